package arrowio

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"

	"shaver/internal/fault"
	"shaver/internal/model"
)

// RowsBatch is the number of rows of a record batch, and the most that a reader
// accepts: it bounds the memory of both.
const RowsBatch = 1 << 16

// Columns before those of the fields.
const (
	rowColumn   = "row"   // int64, global row number; shards only
	labelColumn = "label" // uint8
)

const keySizes = "sizes" // JSON array

// CheckFields reports the first field name that no file of rows can have: names
// are UTF-8, distinct and not empty, and neither "label" nor "row".
func CheckFields(fields []string) error {
	seen := make(map[string]int, len(fields))
	for j, name := range fields {
		switch before, ok := seen[name]; {
		case name == "":
			return fmt.Errorf("field %d has an empty name", j)
		case !utf8.ValidString(name):
			return fmt.Errorf("field %d has the name %q, which is not UTF-8", j, name)
		case name == rowColumn || name == labelColumn:
			return fmt.Errorf("field %d has the name %q, which is another column's: rename it", j, name)
		case ok:
			return fmt.Errorf("fields %d and %d have the same name %q", before, j, name)
		}
		seen[name] = j
	}
	if len(fields) > maxColumns-2 {
		return fmt.Errorf("%d fields, at most %d fit a file", len(fields), maxColumns-2)
	}
	return nil
}

func rowsSchema(fields []string, sizes []int, numbered bool) *arrow.Schema {
	columns := make([]arrow.Field, 0, len(fields)+2)
	if numbered {
		columns = append(columns, arrow.Field{Name: rowColumn, Type: arrow.PrimitiveTypes.Int64})
	}
	columns = append(columns, arrow.Field{Name: labelColumn, Type: arrow.PrimitiveTypes.Uint8})
	for _, name := range fields {
		columns = append(columns, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int32})
	}
	metadata := arrow.NewMetadata([]string{keyVersion, keySizes}, []string{RowsVersion, toJSON(sizes)})
	return arrow.NewSchema(columns, &metadata)
}

// RowWriter writes rows as zstd-compressed record batches of RowsBatch rows, in
// Arrow's file format. It is for one goroutine, and holds one batch in memory.
type RowWriter struct {
	w        *writer
	fields   []string
	sizes    []int
	offsets  []int32
	numbered bool
	number   []int64
	label    []uint8
	ids      [][]int32 // [m][rows of the batch], local
	rows     int64     // appended
	last     int64     // row number of the last row
	batches  int
}

// NewRowWriter returns a writer to w of rows of the given fields and sizes;
// numbered says whether each row carries its number (shards do). So many
// compressors, at least one, work side by side, each on a column, whose bytes do
// not depend on which of them it meets; each holds some 18 MiB once it worked.
func NewRowWriter(w io.Writer, fields []string, sizes []int, numbered bool, compressors int) (*RowWriter, error) {
	if err := checkSizes(fields, sizes); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	if err := CheckFields(fields); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	out, err := newFileWriter(w, rowsSchema(fields, sizes, numbered), ipc.WithZstd(), ipc.WithCompressConcurrency(compressors))
	if err != nil {
		return nil, err
	}
	rw := &RowWriter{w: out, fields: slices.Clone(fields), sizes: slices.Clone(sizes), offsets: model.Offsets(sizes),
		numbered: numbered, last: -1, ids: make([][]int32, len(fields))}
	return rw, nil
}

// Append adds rows, whose features are global ids. It copies them. It checks
// labels, ids and, if numbered, that row numbers ascend; on an error nothing
// after the named row was added, and the writer is not to be used again.
func (w *RowWriter) Append(rows *model.Rows) error {
	m := len(w.fields)
	if rows.Fields != m {
		panic(fmt.Sprintf("arrowio: rows of %d fields for a writer of %d", rows.Fields, m))
	}
	for i := range rows.Len() {
		number := w.rows
		if w.numbered {
			if number = rows.Number[i]; number <= w.last {
				return fault.Inputf("row %d after row %d: row numbers ascend", number, w.last)
			}
			w.number = append(w.number, number)
		}
		if rows.Label[i] > 1 {
			return fault.Inputf("row %d: label is %d, expected 0 or 1", number, rows.Label[i])
		}
		w.label = append(w.label, rows.Label[i])
		for j, feature := range rows.Row(i) {
			id := feature - w.offsets[j]
			if id < 0 || int(id) >= w.sizes[j] {
				return fault.Inputf("row %d: field %d (%s): global id %d is outside [%d,%d)",
					number, j, w.fields[j], feature, w.offsets[j], int(w.offsets[j])+w.sizes[j])
			}
			w.ids[j] = append(w.ids[j], id)
		}
		w.last = number
		w.rows++
		if len(w.label) == RowsBatch {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// AppendColumns adds rows that have no numbers: their labels, and for each field
// the local ids. It copies them, and checks them as Append does.
func (w *RowWriter) AppendColumns(label []uint8, ids [][]int32) error {
	if w.numbered || len(ids) != len(w.fields) {
		panic(fmt.Sprintf("arrowio: %d columns without numbers for a writer of %d fields, numbered: %v", len(ids), len(w.fields), w.numbered))
	}
	for from := 0; from < len(label); {
		to := min(len(label), from+RowsBatch-len(w.label))
		if err := w.appendColumns(label[from:to], ids, from, to); err != nil {
			return err
		}
		w.rows += int64(to - from)
		w.last = w.rows - 1
		from = to
		if len(w.label) == RowsBatch {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendColumns adds rows [from, to) of ids, which fit the batch, and their labels.
func (w *RowWriter) appendColumns(label []uint8, ids [][]int32, from, to int) error {
	for i, label := range label {
		if label > 1 {
			return fault.Inputf("row %d: label is %d, expected 0 or 1", w.rows+int64(i), label)
		}
	}
	w.label = append(w.label, label...)
	for j, column := range ids {
		size := uint32(w.sizes[j])
		for i, id := range column[from:to] {
			if uint32(id) >= size {
				return fault.Inputf("row %d: field %d (%s): local id %d is outside [0,%d)", w.rows+int64(i), j, w.fields[j], id, size)
			}
		}
		w.ids[j] = append(w.ids[j], column[from:to]...)
	}
	return nil
}

func (w *RowWriter) flush() error {
	columns := make([]arrow.Array, 0, len(w.ids)+2)
	if w.numbered {
		columns = append(columns, int64s(w.number))
	}
	columns = append(columns, uint8s(w.label))
	for _, ids := range w.ids {
		columns = append(columns, int32s(ids))
	}
	err := w.w.write(len(w.label), columns...)
	w.number, w.label = w.number[:0], w.label[:0]
	for j := range w.ids {
		w.ids[j] = w.ids[j][:0]
	}
	w.batches++
	return err
}

// Close writes what is left and the footer. It does not close the underlying
// writer.
func (w *RowWriter) Close() error {
	if len(w.label) > 0 || w.batches == 0 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	return w.w.close()
}

// RowReader reads what RowWriter wrote, front to back, with at most one batch
// in memory. It is for one goroutine.
type RowReader struct {
	r        *reader
	fields   []string
	sizes    []int
	offsets  []int32
	numbered bool
	rows     int64 // read
	last     int64 // row number of the last row
}

// NewRowReader reads and checks the schema. Who knows which fields and sizes to
// expect compares them before calling Next, whose memory is proportional to
// their number.
func NewRowReader(r io.Reader) (*RowReader, error) {
	in, err := newReader(r, RowsVersion, true)
	if err != nil {
		return nil, err
	}
	columns := in.ipc.Schema().Fields()
	rr := &RowReader{r: in, last: -1}
	first := 1
	if len(columns) > 0 && columns[0].Name == rowColumn {
		rr.numbered = true
		first = 2
	}
	for _, c := range columns[min(first, len(columns)):] {
		rr.fields = append(rr.fields, c.Name)
	}
	if err := json.Unmarshal([]byte(in.meta[keySizes]), &rr.sizes); err != nil {
		return nil, fault.Inputf("the metadata %q is not an array of sizes: %w", keySizes, err)
	}
	if err := checkSizes(rr.fields, rr.sizes); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	if err := CheckFields(rr.fields); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	if err := in.expect(rowsSchema(rr.fields, rr.sizes, rr.numbered).Fields()...); err != nil {
		return nil, err
	}
	rr.offsets = model.Offsets(rr.sizes)
	// Each column with a validity bitmap, should there be one.
	in.messages.allocator.limit = RowsBatch*(8+1+4*len(rr.fields)) + RowsBatch/8*len(columns) + slack
	return rr, nil
}

// Fields returns the names of the fields; Sizes their sizes; Numbered whether
// the rows carry their numbers. They are the reader's own slices.
func (r *RowReader) Fields() []string { return r.fields }

// Sizes returns the number of features of each field.
func (r *RowReader) Sizes() []int { return r.sizes }

// Numbered reports whether the rows carry their global numbers.
func (r *RowReader) Numbered() bool { return r.numbered }

// Next fills rows, reusing its memory, with the next batch, at most RowsBatch
// rows, or returns io.EOF once everything was read and checked to the last
// byte. Features become global ids; rows without numbers are numbered from 0.
func (r *RowReader) Next(rows *model.Rows) error {
	rows.Fields = len(r.fields)
	for {
		rows.Reset()
		err := r.r.next(func(record arrow.Record) error { return r.fill(rows, record) })
		if err != nil || rows.Len() > 0 {
			return err
		}
	}
}

func (r *RowReader) fill(rows *model.Rows, record arrow.Record) error {
	n := int(record.NumRows())
	if n > RowsBatch {
		return fault.Inputf("a batch of %d rows, expected at most %d", n, RowsBatch)
	}
	columns := record.Columns()
	if r.numbered {
		for _, number := range columns[0].(*array.Int64).Int64Values() {
			if number <= r.last || number == math.MaxInt64 {
				return fault.Inputf("row %d after row %d: row numbers ascend from 0", number, r.last)
			}
			r.last = number
			rows.Number = append(rows.Number, number)
		}
		columns = columns[1:]
	} else {
		for i := range int64(n) {
			rows.Number = append(rows.Number, r.rows+i)
		}
	}
	for i, label := range columns[0].(*array.Uint8).Uint8Values() {
		if label > 1 {
			return fault.Inputf("row %d: label is %d, expected 0 or 1", rows.Number[i], label)
		}
		rows.Label = append(rows.Label, label)
	}
	m := len(r.fields)
	rows.Features = slices.Grow(rows.Features, n*m)[:n*m]
	for j, c := range columns[1:] {
		offset, size := r.offsets[j], uint32(r.sizes[j])
		for i, id := range c.(*array.Int32).Int32Values() {
			if uint32(id) >= size {
				return fault.Inputf("row %d: field %d (%s): local id %d is outside [0,%d)", rows.Number[i], j, r.fields[j], id, size)
			}
			rows.Features[i*m+j] = offset + id
		}
	}
	r.rows += int64(n)
	return nil
}

// Close frees the reader; it does not close the underlying one.
func (r *RowReader) Close() { r.r.close() }
