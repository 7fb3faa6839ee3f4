package compact

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// Table is a compact table, for any number of goroutines at once. It keeps the
// Parts' bytes, which nobody may change, and beside them an index. If d <= 16 that
// has three bytes for each listed row, or for each row of a field that lists three
// in eight or more, and two bits for each of the others; after New, it stands in place of Parts' Rows
// and Columns.
type Table struct {
	dim      int
	values   Encoding
	steps    []float32 // for Int8, [m, 2]
	fields   []field
	codebook []float32 // [m, d]
	entries  []byte    // all kept values
}

// field is one field of a Table.
type field struct {
	Field
	size, dim int
	first     int       // global id of its first row
	before    int       // kept entries of the fields before it
	layout    layout    // of Form, for the hot path
	width     int       // bytes of columns: of a row's bitmap, or of a column's number
	ends      uint64    // of 8 bytes of the form columns, the bits that end rows
	step      int       // numbers in 8 bytes of the form columns
	endShift  int       // 2^endShift bits a number
	codebook  []float32 // [d]
	columns   []byte
	blocks    []block  // of 1<<shift rows
	shift     int      // at most 6
	listing   []uint64 // of a narrow table: the word of each 32 rows, nil if groups has all of them
	groups    []group  // of a narrow table
	values    reader
}

// block is some consecutive rows of a field.
type block struct {
	listed     uint64 // bit i is 1 if its row i is listed
	rows, kept uint32 // listed rows and kept entries before it
}

// New returns the table that parts hold, of fields of the given sizes and d
// columns, after checking every index and value in it. It takes memory in
// proportion to parts, whatever the sizes claim.
func New(sizes []int, dim int, v Encoding, parts *Parts) (*Table, error) {
	if len(parts.Fields) != len(sizes) || len(parts.Codebook) != len(sizes)*dim || v == Int8 && len(parts.Steps) != 2*len(sizes) || v.Size() == 0 {
		return nil, fmt.Errorf("%d fields, a codebook of %d and steps of %d values: expected %d fields of %d columns", len(parts.Fields), len(parts.Codebook), len(parts.Steps), len(sizes), dim)
	}
	for i, e := range parts.Codebook {
		if !finite(e) {
			return nil, fmt.Errorf("the codebook has the value %v in field %d, column %d: values are finite", e, i/dim, i%dim)
		}
	}
	t := &Table{dim: dim, values: v, steps: parts.Steps, fields: make([]field, len(sizes)), codebook: parts.Codebook, entries: parts.Values}
	rest := *parts
	first, before := 0, 0
	for j, size := range sizes {
		f := &t.fields[j]
		*f = field{Field: parts.Fields[j], size: size, dim: dim, first: first, before: before, codebook: parts.Codebook[j*dim : (j+1)*dim]}
		var steps []float32
		if v == Int8 {
			steps = parts.Steps[2*j : 2*j+2]
		}
		if err := f.take(&rest, v, steps); err != nil {
			return nil, fmt.Errorf("field %d: %w", j, err)
		}
		first += size
		before += f.Kept
	}
	if len(rest.Rows)+len(rest.Columns)+len(rest.Values) > 0 {
		return nil, fmt.Errorf("%d bytes of rows, %d of columns and %d of values belong to no field", len(rest.Rows), len(rest.Columns), len(rest.Values))
	}
	return t, nil
}

// take takes the field's bytes from the front of rest, and checks them.
func (f *field) take(rest *Parts, v Encoding, steps []float32) error {
	if err := f.check(); err != nil {
		return err
	}
	rows, columns := f.Sizes(f.size, f.dim)
	values := f.Kept * v.Size()
	if rows > len(rest.Rows) || columns > len(rest.Columns) || values > len(rest.Values) {
		return fmt.Errorf("%d kept entries in %d rows need %d bytes of rows, %d of columns and %d of values; %d, %d and %d are left",
			f.Kept, f.Rows, rows, columns, values, len(rest.Rows), len(rest.Columns), len(rest.Values))
	}
	present := rest.Rows[:rows]
	f.columns, rest.Rows, rest.Columns = rest.Columns[:columns], rest.Rows[rows:], rest.Columns[columns:]
	var err error
	f.values, err = newReader(v, rest.Values[:values], steps)
	rest.Values = rest.Values[values:]
	if err != nil {
		return err
	}
	switch f.Form {
	case None:
		f.layout = nothing
		return nil
	case Dense:
		f.layout = everything
		return nil
	case Bitmap:
		f.layout, f.width = bitmaps, bitBytes(f.dim)
	case Columns:
		f.layout, f.width, f.ends, f.step, f.endShift = columnLists, 1, 0x8080808080808080, 8, 3
		if columnBytes(f.dim) == 2 {
			f.width, f.ends, f.step, f.endShift = 2, 0x8000800080008000, 4, 4
		}
	}
	return f.index(present)
}

// layout is a Form that is quick to compare.
type layout uint8

const (
	nothing layout = iota
	everything
	bitmaps
	columnLists
)

// check checks the field's numbers, without any bytes.
func (f *field) check() error {
	entries := int64(f.size) * int64(f.dim)
	kept, rows, ok := int64(f.Kept), int64(f.Rows), false
	switch f.Form {
	case None:
		ok = kept == 0 && rows == 0
	case Dense:
		ok = kept == entries && rows == int64(f.size)
	case Bitmap:
		ok = rows > 0 && rows <= int64(f.size) && kept >= 0 && kept <= rows*int64(f.dim)
	case Columns:
		ok = rows > 0 && rows <= int64(f.size) && kept >= rows && kept <= rows*int64(f.dim) && f.dim <= maxColumnsDim
	default:
		return fmt.Errorf("form %q: the forms are %s, %s, %s and %s", f.Form, None, Dense, Bitmap, Columns)
	}
	if !ok {
		return fmt.Errorf("the form %s cannot keep %d entries in %d of %d rows of %d columns", f.Form, kept, rows, f.size, f.dim)
	}
	if f.Form != Dense && kept >= 1<<32 {
		return fmt.Errorf("%d kept entries: the form %s has less than 2^32", kept, f.Form)
	}
	return nil
}

// index checks the structure and makes the field's index.
func (f *field) index(present []byte) error {
	if len(present) > 0 {
		if spare := len(present)*8 - f.size; spare > 0 && present[len(present)-1]>>(8-spare) != 0 {
			return fmt.Errorf("rows has bits set after the field's %d rows", f.size)
		}
		if total := ones(present, 0, len(present)); total != f.Rows {
			return fmt.Errorf("rows lists %d rows, expected %d", total, f.Rows)
		}
	}
	walk := f.walkColumns
	bytes := f.Kept * f.width / f.size // of a row
	if f.layout == bitmaps {
		walk, bytes = f.walkBitmaps, f.width
	}
	rows, kept := 0, 0
	var err error
	if f.dim <= maxNarrow {
		kept, err = walk(0, f.Rows, 0)
	} else {
		for f.shift = 6; f.shift > 0 && bytes<<f.shift > 128; { // to go through, at most
			f.shift--
		}
		f.blocks = make([]block, 0, f.size>>f.shift+1)
		for i := 0; err == nil && i < f.size; i += 1 << f.shift {
			listed := listedRows(present, i, min(i+1<<f.shift, f.size))
			f.blocks = append(f.blocks, block{listed, uint32(rows), uint32(kept)})
			end := rows + bits.OnesCount64(listed)
			kept, err = walk(rows, end, kept)
			rows = end
		}
	}
	switch {
	case err != nil:
		return err
	case kept != f.Kept:
		return fmt.Errorf("columns keeps %d entries, expected %d", kept, f.Kept)
	case f.dim <= maxNarrow:
		f.indexNarrow(present)
	}
	return nil
}

// listedRows returns a bit for each row from row from until to, of one block: all
// 1 if present is empty.
func listedRows(present []byte, from, to int) uint64 {
	word := ^uint64(0)
	if len(present) > 0 {
		word = load(present, from/64*8) >> (from % 64)
	}
	return word << (64 - (to - from)) >> (64 - (to - from))
}

// walkBitmaps checks the listed rows from row until end, and returns how many
// entries are kept before end if there are kept before row.
func (f *field) walkBitmaps(row, end, kept int) (int, error) {
	width := f.width
	if spare := 8*width - f.dim; spare > 0 {
		for r := row; r < end; r++ {
			if f.columns[(r+1)*width-1]>>(8-spare) != 0 {
				return 0, fmt.Errorf("columns has bits set after the %d columns of listed row %d", f.dim, r)
			}
		}
	}
	return kept + ones(f.columns, row*width, end*width), nil
}

// walkColumns is walkBitmaps for the form columns.
func (f *field) walkColumns(row, end, kept int) (int, error) {
	for previous := -1; row < end; kept++ {
		if kept == f.Kept {
			return 0, fmt.Errorf("columns ends in listed row %d of %d", row, f.Rows)
		}
		column, last := f.column(kept)
		if column <= previous || column >= f.dim {
			return 0, fmt.Errorf("columns has %d after %d in listed row %d: they rise and are below %d", column, previous, row, f.dim)
		}
		if previous = column; last {
			row, previous = row+1, -1
		}
	}
	return kept, nil
}

// column returns the column of kept entry i, of the form columns, and whether it
// is the last of its row.
func (f *field) column(i int) (column int, last bool) {
	if f.width == 1 {
		c := f.columns[i]
		return int(c & 0x7f), c&0x80 != 0
	}
	c := binary.LittleEndian.Uint16(f.columns[2*i:])
	return int(c & 0x7fff), c&0x8000 != 0
}

// Encoding returns how values are stored.
func (t *Table) Encoding() Encoding { return t.values }

// Fields returns how each field is stored.
func (t *Table) Fields() []Field {
	fields := make([]Field, len(t.fields))
	for j := range t.fields {
		fields[j] = t.fields[j].Field
	}
	return fields
}

// Kept returns the number of kept entries.
func (t *Table) Kept() int {
	kept := 0
	for j := range t.fields {
		kept += t.fields[j].Kept
	}
	return kept
}

// Codebook returns what dropped entries read, [m, d], in memory that the caller
// owns.
func (t *Table) Codebook() []float32 {
	return slices.Clone(t.codebook)
}

// Steps returns the distance of the values that each field can read, for Int8,
// and nil else. A value that was written is at most half of it away.
func (t *Table) Steps() []float32 {
	if t.values != Int8 {
		return nil
	}
	steps := make([]float32, len(t.fields))
	for j := range steps {
		steps[j] = t.steps[2*j+1]
	}
	return steps
}

// Rows calls each with every row, in order of the global ids: what it reads, and
// which of its entries are dropped, both [d]. They are overwritten by the next.
func (t *Table) Rows(each func(x []float32, dropped []bool)) {
	x, kept, dropped := make([]float32, t.dim), make([]float32, t.dim), make([]bool, t.dim)
	for j := range t.fields {
		f := &t.fields[j]
		structure := *f
		structure.values = reader{} // all of which is 1
		for i := range f.size {
			copy(x, f.codebook)
			f.read(x, i)
			clear(kept)
			structure.read(kept, i)
			for c, one := range kept {
				dropped[c] = one == 0
			}
			each(x, dropped)
		}
	}
}
