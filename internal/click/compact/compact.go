// Package compact stores pruned embedding tables by their kept entries. Rows can be read
// without decompressing the tables. A row of a table without kept entries takes one bit,
// for any number of columns.
//
// The rows that a look-up reads are called a field here, because in a model with a single
// table each field has one look-up. The fields are in the order of model.Architecture.Spans,
// so their rows are numbered on from table to table. Of a model.Architecture this package
// reads only the layout (model.Architecture.ValidateLayout), which must be valid.
//
// Each field is stored by itself, in the smallest of four forms:
//
//	none     no entry is kept
//	dense    every entry is kept; only values are stored
//	bitmap   some rows are listed, with d bits each that mark the kept entries
//	columns  some rows are listed, with the columns of their kept entries
//
// If a form lists only some rows of a field, one bit per row marks the listed rows. Only
// this structure decides whether an entry is kept. The value of a kept entry may be 0, or
// equal to the value that stands for dropped entries.
package compact

import "shaver/internal/click/model"

// Form is the way in which a field is stored.
type Form string

// The forms.
const (
	None    Form = "none"
	Dense   Form = "dense"
	Bitmap  Form = "bitmap"
	Columns Form = "columns"
)

// MaxInflation is the largest allowed ratio between the bytes of all tables as float32 and
// the bytes of their Parts. A reader that inflates the tables can thus bound the memory
// that a malicious file makes it allocate. Plan keeps within the bound.
const MaxInflation = 1024

// maxColumnsDim is the largest number of columns for the form columns. A column's number
// has 15 bits, and one more bit marks the end of a row.
const maxColumnsDim = 1 << 15

// Field describes how a field is stored.
type Field struct {
	Form Form `json:"form"`
	Rows int  `json:"rows"` // number of listed rows: those with a kept entry, or all
	Kept int  `json:"kept"` // number of kept entries
}

// Parts holds the bytes of all tables. Each slice holds all fields, one after the other.
type Parts struct {
	Fields []Field
	// Rows marks the listed rows of the fields that list some rows but not all. Row i is
	// bit i%8 of byte i/8, [ceil(size/8)].
	Rows []byte
	// Columns describes the listed rows. In the form bitmap, a listed row has [ceil(d/8)]
	// bytes, in which column c is bit c%8 of byte c/8. In the form columns, a listed row
	// has the ascending columns of its kept entries. Each column takes one byte if d <=
	// 128, else a little-endian uint16, and has its highest bit set if it is the last one
	// of the row.
	Columns []byte
	// Values holds the kept entries, row by row.
	Values []byte
	// Steps holds each field's origin and step, [fields, 2]. Only Int8 uses it.
	Steps []float32
	// Baseline is what dropped entries read. The number of a row that drops nothing is 0. New reads
	// only the values.
	Baseline model.Baseline
	// Words is empty if each field has one word. Otherwise it has a byte for each field, its number
	// of words less 1, and then an arithmetic code of the numbers of the rows that drop an entry, in
	// the fields of several words.
	Words []byte
	// Quantizers and Positions are used by Mixed, in place of Rows, Columns and Steps, and
	// Fields and Baseline are then not read. Positions codes the quantizers of the codebook, and
	// for each field which rows are listed, then the quantizer and the kept columns of each of
	// these. Values holds the words of each field, unless their values are 0, and then the kept entries,
	// row by row. The values of a quantizer take its number of bits, from the lowest bit of the first
	// byte on, without gaps. Of the parts of Union, Positions only counts as bytes.
	Quantizers []Quantizer
	Positions  []byte
}

// columnBytes returns the size of one column number in the form columns.
func columnBytes(dim int) int {
	if dim <= 1<<7 {
		return 1
	}
	return 2
}

func bitBytes(n int) int { return (n + 7) / 8 }

// Sizes returns the number of bytes of the field in Rows and in Columns. size is the
// number of rows of the field, and dim its number of columns.
func (f Field) Sizes(size, dim int) (rows, columns int) {
	switch f.Form {
	case Bitmap:
		columns = f.Rows * bitBytes(dim)
	case Columns:
		columns = f.Kept * columnBytes(dim)
	default:
		return 0, 0
	}
	if f.Rows < size {
		rows = bitBytes(size)
	}
	return rows, columns
}

// bytes returns the number of bytes of the field without its values.
func (f Field) bytes(size, dim int) int {
	rows, columns := f.Sizes(size, dim)
	return rows + columns
}

// smallest returns the smallest form of a field with size rows and dim columns. kept is
// the number of its kept entries, and occupied the number of rows that have one.
func smallest(size, dim, kept, occupied int) Field {
	switch kept {
	case 0:
		return Field{Form: None}
	case size * dim:
		return Field{Dense, size, kept}
	}
	best := Field{Bitmap, size, kept}
	try := func(f Field) {
		if f.bytes(size, dim) < best.bytes(size, dim) {
			best = f
		}
	}
	try(Field{Bitmap, occupied, kept})
	if dim <= maxColumnsDim {
		try(Field{Columns, occupied, kept})
	}
	return best
}

// Plan returns the fields of the smallest Parts of the tables of a that drop the given
// entries, [Parameters]. If these Parts would exceed MaxInflation, Plan stores the first
// fields as bitmaps of all rows, which are larger.
func Plan(a *model.Architecture, dropped []bool) []Field {
	spans := a.Spans()
	fields := make([]Field, len(spans))
	parts := 0
	for j := range spans {
		s := &spans[j]
		from, to := s.Entries()
		fields[j] = smallest(s.Rows, s.Dim, kept(dropped[from:to]), occupied(dropped[from:to], s.Dim))
		parts += fields[j].bytes(s.Rows, s.Dim) + fields[j].Kept
	}
	pad(fields, spans, parts)
	return fields
}

// pad changes fields to bitmaps of all rows, from the first on, until MaxInflation is
// satisfied. parts is the number of bytes of all fields, with one byte per value.
func pad(fields []Field, spans []model.Span, parts int) {
	tables := 0
	for _, s := range spans {
		tables += 4 * s.Rows * s.Dim
	}
	for j, s := range spans {
		if tables <= MaxInflation*parts {
			return
		}
		if fields[j].Form != Dense {
			parts -= fields[j].bytes(s.Rows, s.Dim)
			fields[j] = Field{Bitmap, s.Rows, fields[j].Kept}
			parts += fields[j].bytes(s.Rows, s.Dim)
		}
	}
}

// kept returns the number of entries that are not dropped.
func kept(dropped []bool) int {
	n := len(dropped)
	for _, gone := range dropped {
		if gone {
			n--
		}
	}
	return n
}

// occupied returns the number of rows that have a kept entry.
func occupied(dropped []bool, dim int) int {
	n := 0
	for at := 0; at < len(dropped); at += dim {
		for _, gone := range dropped[at : at+dim] {
			if !gone {
				n++
				break
			}
		}
	}
	return n
}
