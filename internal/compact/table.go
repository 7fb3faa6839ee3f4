package compact

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Table is a compact table, for any number of goroutines at once. It keeps the
// Parts' bytes, which nobody may change, and beside them an index of less than a
// byte for each listed row, and a bit for every hundred rows that are not.
type Table struct {
	dim    int
	values Values
	steps  []float32 // for Int8, [m, 2]
	fields []field
}

// field is one field of a Table.
type field struct {
	Field
	size, dim int
	first     int       // global id of its first row
	codebook  []float32 // [d]
	present   []byte    // nil if all rows are listed
	ranks     []uint32  // listed rows before each block of rankRows
	columns   []byte
	starts    []uint32 // kept entries before each block of 1<<shift listed rows
	shift     int
	values    reader
}

// rankRows is how many bits of present a rank covers: a cache line's.
const rankRows = 512

// New returns the table that parts hold, of fields of the given sizes and d
// columns, after checking every index and value in it. It takes memory in
// proportion to parts, whatever the sizes claim.
func New(sizes []int, dim int, v Values, parts *Parts) (*Table, error) {
	if len(parts.Fields) != len(sizes) || len(parts.Codebook) != len(sizes)*dim || v == Int8 && len(parts.Steps) != 2*len(sizes) || v.Size() == 0 {
		return nil, fmt.Errorf("%d fields, a codebook of %d and steps of %d values: expected %d fields of %d columns", len(parts.Fields), len(parts.Codebook), len(parts.Steps), len(sizes), dim)
	}
	for i, e := range parts.Codebook {
		if !finite(e) {
			return nil, fmt.Errorf("the codebook has the value %v in field %d, column %d: values are finite", e, i/dim, i%dim)
		}
	}
	t := &Table{dim: dim, values: v, steps: parts.Steps, fields: make([]field, len(sizes))}
	rest := *parts
	first := 0
	for j, size := range sizes {
		f := &t.fields[j]
		*f = field{Field: parts.Fields[j], size: size, dim: dim, first: first, codebook: parts.Codebook[j*dim : (j+1)*dim]}
		var steps []float32
		if v == Int8 {
			steps = parts.Steps[2*j : 2*j+2]
		}
		if err := f.take(&rest, v, steps); err != nil {
			return nil, fmt.Errorf("field %d: %w", j, err)
		}
		first += size
	}
	if len(rest.Rows)+len(rest.Columns)+len(rest.Values) > 0 {
		return nil, fmt.Errorf("%d bytes of rows, %d of columns and %d of values belong to no field", len(rest.Rows), len(rest.Columns), len(rest.Values))
	}
	return t, nil
}

// take takes the field's bytes from the front of rest, and checks them.
func (f *field) take(rest *Parts, v Values, steps []float32) error {
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
	if rows > 0 {
		if err := f.index(present); err != nil {
			return err
		}
	}
	switch f.Form {
	case Bitmap:
		return f.indexBitmap()
	case Columns:
		return f.indexColumns()
	}
	return nil
}

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

// index ranks the listed rows.
func (f *field) index(present []byte) error {
	f.present = present
	f.ranks = make([]uint32, 0, f.size/rankRows+1)
	total := 0
	for at := 0; at < len(present); at += rankRows / 8 {
		f.ranks = append(f.ranks, uint32(total))
		total += ones(present[at:min(at+rankRows/8, len(present))])
	}
	if spare := len(present)*8 - f.size; spare > 0 && present[len(present)-1]>>(8-spare) != 0 {
		return fmt.Errorf("rows has bits set after the field's %d rows", f.size)
	}
	if total != f.Rows {
		return fmt.Errorf("rows lists %d rows, expected %d", total, f.Rows)
	}
	return nil
}

func (f *field) indexBitmap() error {
	width := bitBytes(f.dim)
	for f.shift = 0; width<<(f.shift+1) <= 64; {
		f.shift++ // a block is at most a cache line
	}
	f.starts = make([]uint32, 0, f.Rows>>f.shift+1)
	block := width << f.shift
	total := 0
	for at := 0; at < len(f.columns); at += block {
		f.starts = append(f.starts, uint32(total))
		total += ones(f.columns[at:min(at+block, len(f.columns))])
	}
	if spare := 8*width - f.dim; spare > 0 {
		for at := width - 1; at < len(f.columns); at += width {
			if f.columns[at]>>(8-spare) != 0 {
				return fmt.Errorf("columns has bits set after the %d columns of listed row %d", f.dim, at/width)
			}
		}
	}
	if total != f.Kept {
		return fmt.Errorf("columns keeps %d entries, expected %d", total, f.Kept)
	}
	return nil
}

func (f *field) indexColumns() error {
	f.shift = 5
	f.starts = make([]uint32, 0, f.Rows>>f.shift+1)
	row, previous := 0, -1
	for i := range f.Kept {
		if previous < 0 && row&(1<<f.shift-1) == 0 {
			f.starts = append(f.starts, uint32(i))
		}
		column, last := f.column(i)
		if column <= previous || column >= f.dim {
			return fmt.Errorf("columns has %d after %d in listed row %d: they rise and are below %d", column, previous, row, f.dim)
		}
		if previous = column; last {
			row, previous = row+1, -1
		}
	}
	if row != f.Rows || previous >= 0 {
		return fmt.Errorf("columns ends %d rows, expected %d", row, f.Rows)
	}
	return nil
}

// column returns the column of kept entry i, of the form columns, and whether it
// is the last of its row.
func (f *field) column(i int) (column int, last bool) {
	if f.dim <= 1<<7 {
		c := f.columns[i]
		return int(c & 0x7f), c&0x80 != 0
	}
	c := binary.LittleEndian.Uint16(f.columns[2*i:])
	return int(c & 0x7fff), c&0x8000 != 0
}

// Values returns how values are stored.
func (t *Table) Values() Values { return t.values }

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
	var codebook []float32
	for j := range t.fields {
		codebook = append(codebook, t.fields[j].codebook...)
	}
	return codebook
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
			f.fill(x, i)
			clear(kept)
			structure.fill(kept, i)
			for c, one := range kept {
				dropped[c] = one == 0
			}
			each(x, dropped)
		}
	}
}

// Embed writes the embedding of a row of the model, [m*d], to x. features are one
// global id of each field. It is what a model.Table does.
func (t *Table) Embed(x []float32, features []int32) {
	for j, id := range features {
		f := &t.fields[j]
		part := x[j*t.dim : (j+1)*t.dim]
		copy(part, f.codebook)
		f.fill(part, int(id)-f.first)
	}
}

// fill writes the kept entries of row i to x, [d].
func (f *field) fill(x []float32, i int) {
	switch f.Form {
	case None:
		return
	case Dense:
		for c := range x {
			x[c] = f.values.at(i*f.dim + c)
		}
		return
	}
	if f.present != nil {
		if f.present[i/8]>>(i%8)&1 == 0 {
			return
		}
		i = f.rank(i)
	}
	if f.Form == Bitmap {
		f.fillBitmap(x, i)
	} else {
		f.fillColumns(x, i)
	}
}

// rank returns how many rows before row i are listed.
func (f *field) rank(i int) int {
	at := i / rankRows * (rankRows / 8)
	return int(f.ranks[i/rankRows]) + ones(f.present[at:i/8]) + bits.OnesCount8(f.present[i/8]&(1<<(i%8)-1))
}

// fillBitmap is fill for the listed row r.
func (f *field) fillBitmap(x []float32, r int) {
	width := bitBytes(f.dim)
	block := r >> f.shift
	kept := int(f.starts[block]) + ones(f.columns[block<<f.shift*width:r*width])
	for k, b := range f.columns[r*width : (r+1)*width] {
		for ; b != 0; b &= b - 1 {
			x[8*k+bits.TrailingZeros8(b)] = f.values.at(kept)
			kept++
		}
	}
}

// fillColumns is fill for the listed row r.
func (f *field) fillColumns(x []float32, r int) {
	kept := int(f.starts[r>>f.shift])
	for before := r & (1<<f.shift - 1); before > 0; kept++ {
		if _, last := f.column(kept); last {
			before--
		}
	}
	for {
		column, last := f.column(kept)
		x[column] = f.values.at(kept)
		if kept++; last {
			return
		}
	}
}

// ones counts the bits that are set.
func ones(data []byte) int {
	n := 0
	for ; len(data) >= 8; data = data[8:] {
		n += bits.OnesCount64(binary.LittleEndian.Uint64(data))
	}
	for _, b := range data {
		n += bits.OnesCount8(b)
	}
	return n
}
