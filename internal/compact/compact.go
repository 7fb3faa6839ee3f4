// Package compact holds a pruned embedding table by its kept entries, and gives
// rows their embeddings without ever inflating it. A feature of which nothing is
// kept costs a bit, whatever d is.
//
// Fields are stored one by one, each in the smallest of four forms:
//
//	none     nothing is kept
//	dense    everything is kept: the values alone
//	bitmap   some rows are listed: d bits for each, its kept entries
//	columns  some rows are listed: the columns of each one's kept entries
//
// Unless all rows of a field are listed, a bit for each says which. What is kept
// is said by this structure alone: a kept value may be 0, or what a dropped entry
// reads.
package compact

// Form is how a field is stored.
type Form string

// The forms.
const (
	None    Form = "none"
	Dense   Form = "dense"
	Bitmap  Form = "bitmap"
	Columns Form = "columns"
)

// MaxInflation is the most that a table, [n, d] of float32, can have of bytes for
// each byte of its Parts, so that who inflates one can bound what a hostile file
// claims. Plan keeps to it.
const MaxInflation = 1024

// maxColumnsDim is the most columns of the form columns, whose numbers have 15
// bits, and one that ends a row.
const maxColumnsDim = 1 << 15

// Field says how a field is stored.
type Field struct {
	Form Form `json:"form"`
	Rows int  `json:"rows"` // listed rows: with a kept entry, or all
	Kept int  `json:"kept"` // kept entries
}

// Parts are the bytes of a table. Fields follow each other in all of them.
type Parts struct {
	Fields []Field
	// Rows says which rows are listed, for fields that list some but not all: bit
	// i%8 of byte i/8 for row i, [ceil(size/8)].
	Rows []byte
	// Columns has for each listed row of the form bitmap [ceil(d/8)] bytes: bit c%8
	// of byte c/8 for column c. Of the form columns it has the rising columns of
	// each row's kept entries, one byte each if d <= 128, else a little-endian
	// uint16; the highest bit is set in the last of a row.
	Columns []byte
	// Values are the kept entries, row by row.
	Values []byte
	// Steps are, for Int8, each field's origin and step, [m, 2].
	Steps []float32
	// Codebook is what dropped entries read, [m, d].
	Codebook []float32
}

// columnBytes is the size of a number of the form columns.
func columnBytes(dim int) int {
	if dim <= 1<<7 {
		return 1
	}
	return 2
}

func bitBytes(n int) int { return (n + 7) / 8 }

// Sizes returns the bytes of Rows and of Columns that the field takes, of the
// given number of rows and columns.
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

// bytes is what the field takes beside its values.
func (f Field) bytes(size, dim int) int {
	rows, columns := f.Sizes(size, dim)
	return rows + columns
}

// smallest returns the smallest form of a field with so many kept entries, in so
// many of its rows.
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

// Plan returns the fields of the smallest table that drops the given entries,
// [n*d], of fields of the given sizes and d columns. Where that would be smaller
// than MaxInflation allows, the first fields are stored as bitmaps of all rows.
func Plan(sizes []int, dim int, dropped []bool) []Field {
	fields := make([]Field, len(sizes))
	parts := 0
	for j, size := range sizes {
		n := size * dim
		fields[j] = smallest(size, dim, kept(dropped[:n]), occupied(dropped[:n], dim))
		dropped = dropped[n:]
		parts += fields[j].bytes(size, dim) + fields[j].Kept
	}
	pad(fields, sizes, dim, parts)
	return fields
}

// pad stores the first fields as bitmaps of all rows, as many as MaxInflation asks
// for. parts are the bytes of the fields if a value had one.
func pad(fields []Field, sizes []int, dim, parts int) {
	table := 0
	for _, size := range sizes {
		table += 4 * size * dim
	}
	for j, size := range sizes {
		if table <= MaxInflation*parts {
			return
		}
		if fields[j].Form != Dense {
			parts -= fields[j].bytes(size, dim)
			fields[j] = Field{Bitmap, size, fields[j].Kept}
			parts += fields[j].bytes(size, dim)
		}
	}
}

// kept counts the entries that are not dropped.
func kept(dropped []bool) int {
	n := len(dropped)
	for _, gone := range dropped {
		if gone {
			n--
		}
	}
	return n
}

// occupied counts the rows of which something is kept.
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
