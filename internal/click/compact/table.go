package compact

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"shaver/internal/click/model"
)

// Table holds the tables of a model in compact form. Any number of goroutines may use it at
// once. It keeps the bytes of Parts, which must not be changed.
//
// New also builds an index. If no table has more than 16 columns, the index takes three
// bytes per listed row and two bits per other row. A field that lists at least 3/8 of its
// rows takes three bytes for every row instead. After New, this index is used in place of
// Parts.Rows and Parts.Columns.
//
// The index of Mixed has four bytes for each segment of 16 columns of which an entry is kept,
// and two bits for each other segment, or four bytes for every segment of a field of which at
// least 3/8 of the segments may be listed.
//
// A field with several words takes one more byte for each row.
type Table struct {
	values     Encoding
	steps      []float32 // [fields, 2], origin and step of each field, for Int8
	ids        int       // number of ids of a row of data, Width
	narrow     bool      // whether no table has more than maxNarrow columns
	fields     []field
	looks      []look        // what a row of data reads, field by field
	empty      []float32     // [D], the embedding of a row without kept entries
	several    []look        // the looks of fields with several words
	codebook   []float32     // [BaselineSize], the first word of each look-up
	entries    []byte        // all kept values
	palette    []Quantizer   // Mixed: the quantizers
	widths     [16]uint8     // Mixed: the bits of each quantizer
	quantizers [16]Quantizer // Mixed: the palette
	lines      []uint8       // Mixed: the quantizers of the codebook
}

// field is one field of a Table.
type field struct {
	layout    layout // the form, for fast comparison
	narrow    bool   // Table.narrow
	size, dim int
	before    int          // number of kept entries of all previous fields
	listing   []uint64     // narrow tables: one word per 32 rows; nil if groups holds all rows
	groups    []group      // narrow tables: masks of the rows
	segments  int          // segments per row; 1 unless Mixed
	some      bool         // Mixed: whether the groups hold the listed segments only
	mixed     []mixedGroup // Mixed: masks of the segments
	bytes     int          // Mixed: bytes of the positions and values in the file
	width     int          // bytes of a row's bitmap, or of a column's number
	ends      uint64       // in 8 bytes of the form columns, the bits that mark the end of a row
	step      int          // numbers per 8 bytes of the form columns
	endShift  int          // log2 of the bits per number
	words     []float32    // [words, d], what dropped entries read
	numbers   []uint8      // [size], the number of each row's word; nil if there is one word
	columns   []byte       // the field's part of Parts.Columns
	blocks    []block      // blocks of 1<<shift rows; nil in narrow tables
	shift     int          // log2 of the rows per block, at most 6
	values    reader
	Field
}

// look is the row of a field that one id of a row of data selects.
type look struct {
	field *field
	id    int // position of the id among those of a row of data
	first int // global id that selects the field's first row
	at    int // first element of the row's embedding that it fills
	// segment is the segment of the row that is read, for Mixed; otherwise it is 0, and all of the
	// row is read.
	segment int
}

// block describes consecutive rows of a field.
type block struct {
	listed     uint64 // bit i is 1 if row i of the block is listed
	rows, kept uint32 // numbers of listed rows and kept entries of the field before the block
}

// blockShift returns log2 of the rows per block of a field, at most 6. A block has at most
// 128 bytes to scan on average.
func (f Field) blockShift(size, dim int) int {
	bytes := bitBytes(dim) // average bytes of a row
	if f.Form == Columns {
		bytes = f.Kept * columnBytes(dim) / size
	}
	shift := 6
	for shift > 0 && bytes<<shift > 128 {
		shift--
	}
	return shift
}

// Memory returns the number of bytes that a Table of a needs to read rows: the kept values,
// the baseline, the steps and the index, and for wide tables the columns. words is that of the baseline. Memory does not count
// Parts.Rows, nor the columns of narrow tables, because only New reads them.
func Memory(a *model.Architecture, fields []Field, words []int, v Encoding) int64 {
	const blockBytes, wordBytes, groupBytes = 16, 8, 12
	spans, narrow := a.Spans(), isNarrow(a)
	bytes := 4 * a.BaselineSize()
	if len(a.Lists) > 0 {
		bytes += 4 * a.Players()
	}
	if v == Int8 {
		bytes += 8 * len(spans)
	}
	for j, f := range fields {
		size, dim := spans[j].Rows, spans[j].Dim
		bytes += f.Kept * v.Size()
		if words != nil {
			bytes += wordMemory(words[j], size, dim)
		}
		if f.Form == None || f.Form == Dense {
			continue
		}
		if narrow {
			rows := size
			if f.listsFew(size) {
				rows = f.Rows
				bytes += wordBytes * ((size + listingRows - 1) / listingRows)
			}
			bytes += groupBytes * (rows/groupRows + 1)
			continue
		}
		_, columns := f.Sizes(size, dim)
		shift := f.blockShift(size, dim)
		bytes += columns + blockBytes*((size+1<<shift-1)>>shift)
	}
	return int64(bytes)
}

// isNarrow reports whether no table of a has more than maxNarrow columns.
func isNarrow(a *model.Architecture) bool {
	shape := a.Shape()
	return shape.Widest() <= maxNarrow
}

// New returns the tables of a that are stored in parts. New checks every index and value.
// Its use of memory is proportional to the size of parts and the number of look-ups, even
// if the sizes in a are wrong.
func New(a *model.Architecture, v Encoding, parts *Parts) (*Table, error) {
	if len(a.Lists) > 0 && a.Players() > maxPlayers {
		return nil, fmt.Errorf("the lists have %d entries in a row, expected at most %d", a.Players(), maxPlayers)
	}
	if v == Mixed {
		return newMixed(a, parts)
	}
	spans := a.Spans()
	words, values, code, err := cutWords(a, spans, parts.Words)
	if err != nil {
		return nil, err
	}
	book, next := parts.Baseline.Values, a.BaselineSize()
	if len(parts.Fields) != len(spans) || len(book) != values || v == Int8 && len(parts.Steps) != 2*len(spans) || v.Size() == 0 {
		return nil, fmt.Errorf("parts have %d fields, %d codebook values and %d steps, expected %d fields with %d codebook values", len(parts.Fields), len(book), len(parts.Steps), len(spans), values)
	}
	if bytes, least := len(parts.Rows)+len(parts.Columns)+len(parts.Values)+len(parts.Positions), leastMixed(a, next); len(parts.Words) > 0 && bytes < least {
		return nil, fmt.Errorf("%s with several words in %d bytes of rows, columns and values: expected at least %d bytes", a.Size(), bytes, least)
	}
	t := &Table{values: v, steps: parts.Steps, ids: a.Width(), narrow: isNarrow(a), fields: make([]field, len(spans)), codebook: book[:next], entries: parts.Values}
	rest := *parts
	before := 0
	for j := range spans {
		s, f := &spans[j], &t.fields[j]
		*f = field{
			Field: parts.Fields[j], size: s.Rows, dim: s.Dim, narrow: t.narrow, before: before, segments: 1,
			words: book[s.Baseline : s.Baseline+s.Dim],
		}
		if more := (words[j] - 1) * s.Dim; more > 0 {
			f.words = slices.Concat(f.words, book[next:next+more])
			next += more
		}
		for i, e := range f.words {
			if !finite(e) {
				return nil, fmt.Errorf("the codebook has the value %v in %s, column %d: values must be finite", e, spanName(a, s), i%s.Dim)
			}
		}
		for _, r := range s.Sharers {
			if !slices.EqualFunc(f.words[:s.Dim], book[r.Baseline:r.Baseline+s.Dim], func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
				return nil, fmt.Errorf("the codebook has other values for look-up %d than for look-up %d, which read the same rows", r.LookUp, s.LookUp)
			}
		}
		var steps []float32
		if v == Int8 {
			steps = parts.Steps[2*j : 2*j+2]
		}
		if err := f.take(&rest, v, steps); err != nil {
			return nil, fmt.Errorf("%s: %w", spanName(a, s), err)
		}
		before += f.Kept
	}
	if len(rest.Rows)+len(rest.Columns)+len(rest.Values) > 0 {
		return nil, fmt.Errorf("%d bytes of rows, %d of columns and %d of values belong to no field", len(rest.Rows), len(rest.Columns), len(rest.Values))
	}
	return t, t.finish(a, spans, code)
}

// maxPlayers is the largest number of entries of a row with lists. No head reads more.
const maxPlayers = 1 << 24

// look sets what a row of data reads.
func (t *Table) look(a *model.Architecture, spans []model.Span) {
	if t.empty = t.codebook; len(a.Lists) > 0 {
		t.empty = a.Book(model.Baseline{Values: t.codebook}).Spread(nil, nil)
	}
	lengths := a.Lengths()
	ids := model.Offsets(lengths)
	elements := make([]int, len(a.LookUps)) // first element of each look-up, unless a is plain
	next := 0
	for k, l := range a.LookUps {
		elements[k] = next
		next += lengths[l.Field] * a.Tables[l.Table].Dim
	}
	for j := range spans {
		for _, r := range spans[j].Readers() {
			at := r.Baseline
			if !a.Plain() {
				at = elements[r.LookUp]
			}
			for i := range lengths[r.Field] {
				l := look{&t.fields[j], int(ids[r.Field]) + i, r.Feature, at + i*spans[j].Dim, 0}
				if l.field.numbers != nil {
					t.several = append(t.several, l)
				}
				for range max(1, l.field.segments) {
					t.looks = append(t.looks, l)
					l.at, l.segment = l.at+maxNarrow, l.segment+1
				}
			}
		}
	}
}

// take checks the field's bytes and removes them from the front of rest.
func (f *field) take(rest *Parts, v Encoding, steps []float32) error {
	if err := f.check(); err != nil {
		return err
	}
	rows, columns := f.Sizes(f.size, f.dim)
	values := f.Kept * v.Size()
	if rows > len(rest.Rows) || columns > len(rest.Columns) || values > len(rest.Values) {
		return fmt.Errorf("%d kept entries in %d rows need %d bytes of rows, %d of columns and %d of values; the file has %d, %d and %d left",
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

// layout is a Form as a number, which is fast to compare.
type layout uint8

const (
	nothing layout = iota
	everything
	bitmaps
	columnLists
	coded
)

// check checks the numbers of the field's description.
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
		return fmt.Errorf("form is %q: expected %s, %s, %s or %s", f.Form, None, Dense, Bitmap, Columns)
	}
	if !ok {
		return fmt.Errorf("form %s cannot keep %d entries in %d of %d rows of %d columns", f.Form, kept, rows, f.size, f.dim)
	}
	if f.Form != Dense && kept >= 1<<32 {
		return fmt.Errorf("%d kept entries: the form %s must have fewer than 2^32", kept, f.Form)
	}
	return nil
}

// index checks the field's structure and builds its index.
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
	if f.layout == bitmaps {
		walk = f.walkBitmaps
	}
	rows, kept := 0, 0
	var err error
	if f.narrow {
		kept, err = walk(0, f.Rows, 0)
	} else {
		f.shift = f.blockShift(f.size, f.dim)
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
	case f.narrow:
		f.indexNarrow(present)
	}
	return nil
}

// listedRows returns one bit for each row in [from, to), which must lie in one block. A
// bit is 1 if the row is listed. All bits are 1 if present is empty.
func listedRows(present []byte, from, to int) uint64 {
	word := ^uint64(0)
	if len(present) > 0 {
		word = load(present, from/64*8) >> (from % 64)
	}
	return word << (64 - (to - from)) >> (64 - (to - from))
}

// walkBitmaps checks the listed rows [row, end). kept is the number of entries kept
// before row. walkBitmaps returns the number kept before end.
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

// walkColumns is like walkBitmaps, for the form columns.
func (f *field) walkColumns(row, end, kept int) (int, error) {
	for previous := -1; row < end; kept++ {
		if kept == f.Kept {
			return 0, fmt.Errorf("columns ends in listed row %d of %d", row, f.Rows)
		}
		column, last := f.column(kept)
		if column <= previous || column >= f.dim {
			return 0, fmt.Errorf("columns has %d after %d in listed row %d: columns must ascend and be below %d", column, previous, row, f.dim)
		}
		if previous = column; last {
			row, previous = row+1, -1
		}
	}
	return kept, nil
}

// column returns the column of kept entry i in the form columns. It also reports whether
// the entry is the last of its row.
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

// Fields returns how each field is stored, in the order of model.Architecture.Spans.
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

// Steps returns, for Int8, the distance between the levels of each field. A value that
// was written differs from the value read by at most half of this distance. For other
// encodings Steps returns nil.
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

// Rows calls each for every row of the tables, in ascending order. x holds the row's values
// and dropped marks its dropped entries. Both have an element for each column of the row's
// table. The next call overwrites both.
func (t *Table) Rows(each func(x []float32, dropped []bool)) {
	for j := range t.fields {
		t.rows(&t.fields[j], each)
	}
}

// rows is Rows for a field.
func (t *Table) rows(f *field, each func(x []float32, dropped []bool)) {
	x, kept, dropped := make([]float32, f.dim), make([]float32, f.dim), make([]bool, f.dim)
	if t.values == Mixed {
		for i := range f.size {
			copy(x, f.absent(i))
			for c := range dropped {
				dropped[c] = true
			}
			t.readMixed(x, dropped, f, i)
			each(x, dropped)
		}
		return
	}
	structure := *f
	structure.values = reader{} // returns 1 for every value
	for i := range f.size {
		copy(x, f.absent(i))
		f.read(x, i)
		clear(kept)
		structure.read(kept, i)
		for c, one := range kept {
			dropped[c] = one == 0
		}
		each(x, dropped)
	}
}
