package arrowio

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"

	"shaver/internal/fault"
	"shaver/internal/model"
)

// RowsBatch is the number of rows of a full record batch. Readers accept no larger batch,
// so it bounds the memory of writers and readers.
const RowsBatch = 1 << 16

// The columns before those of the fields.
const (
	rowColumn   = "row"   // int64, global row number; only in shards
	labelColumn = "label" // uint8, or float32 if labels are numbers
)

const keySizes = "sizes" // JSON array

// CheckFields reports the first invalid field name. Names must be UTF-8, distinct and not
// empty, and must not be "label" or "row".
func CheckFields(fields []string) error { return CheckColumns(fields, nil) }

// CheckColumns is like CheckFields for the names of fields and dense inputs, which must
// also differ from each other.
func CheckColumns(fields, dense []string) error {
	if n := len(fields) + len(dense); n > maxColumns-2 {
		return fmt.Errorf("%d fields and dense inputs, expected at most %d", n, maxColumns-2)
	}
	seen := make(map[string]string, len(fields)+len(dense))
	for i, name := range slices.Concat(fields, dense) {
		kind, at := "field", i
		if i >= len(fields) {
			kind, at = "dense input", i-len(fields)
		}
		what := fmt.Sprintf("%s %d", kind, at)
		switch before, ok := seen[name]; {
		case name == "":
			return fmt.Errorf("%s has an empty name", what)
		case !utf8.ValidString(name):
			return fmt.Errorf("%s has the name %q, which is not UTF-8", what, name)
		case name == rowColumn || name == labelColumn:
			return fmt.Errorf("%s has the name %q, which is reserved for another column: rename the %s", what, name, kind)
		case ok && i < len(fields):
			return fmt.Errorf("fields %s and %d have the same name %q", strings.TrimPrefix(before, "field "), i, name)
		case ok:
			return fmt.Errorf("%s and %s have the same name %q", before, what, name)
		}
		seen[name] = what
	}
	return nil
}

// rowsSchema returns the schema of rows. numbered says that each row carries its number, and
// numbers that labels are numbers.
func rowsSchema(fields []string, sizes []int, dense []string, numbered, numbers bool) *arrow.Schema {
	columns := make([]arrow.Field, 0, len(fields)+len(dense)+2)
	if numbered {
		columns = append(columns, arrow.Field{Name: rowColumn, Type: arrow.PrimitiveTypes.Int64})
	}
	label := arrow.Field{Name: labelColumn, Type: arrow.PrimitiveTypes.Uint8}
	if numbers {
		label.Type = arrow.PrimitiveTypes.Float32
	}
	columns = append(columns, label)
	for _, name := range fields {
		columns = append(columns, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int32})
	}
	for _, name := range dense {
		columns = append(columns, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Float32})
	}
	version := RowsVersion
	switch {
	case numbers:
		version = ListRowsVersion
	case len(dense) > 0:
		version = DenseRowsVersion
	}
	metadata := arrow.NewMetadata([]string{keyVersion, keySizes}, []string{version, toJSON(sizes)})
	return arrow.NewSchema(columns, &metadata)
}

// RowWriter writes rows as zstd-compressed record batches of RowsBatch rows, in Arrow's
// file format. It holds one batch in memory. It must not be used by several goroutines at
// once.
type RowWriter struct {
	w        *writer
	fields   []string
	sizes    []int
	dense    []string
	offsets  []int32
	numbered bool
	numbers  bool // labels are numbers
	number   []int64
	label    []float32
	ids      [][]int32   // [m][rows of the batch], local ids
	values   [][]float32 // [k][rows of the batch]
	rows     int64       // number of rows appended
	last     int64       // row number of the last row
	batches  int
}

// NewRowWriter returns a writer to w of rows with the given fields, sizes and dense inputs. numbered
// says that each row carries its number, as in shards. compressors, at least 1, is the
// number of columns that are compressed concurrently. This number does not change the
// bytes. Each compressor holds about 18 MiB after its first use.
//
// Labels must be 0 or 1.
func NewRowWriter(w io.Writer, fields []string, sizes []int, dense []string, numbered bool, compressors int) (*RowWriter, error) {
	return newRowWriter(w, fields, sizes, dense, numbered, false, compressors)
}

// NewNumberWriter is like NewRowWriter for rows whose labels are finite numbers.
func NewNumberWriter(w io.Writer, fields []string, sizes []int, dense []string, numbered bool, compressors int) (*RowWriter, error) {
	return newRowWriter(w, fields, sizes, dense, numbered, true, compressors)
}

func newRowWriter(w io.Writer, fields []string, sizes []int, dense []string, numbered, numbers bool, compressors int) (*RowWriter, error) {
	if err := checkSizes(fields, sizes); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	if err := CheckColumns(fields, dense); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	out, err := newFileWriter(w, rowsSchema(fields, sizes, dense, numbered, numbers), ipc.WithZstd(), ipc.WithCompressConcurrency(compressors))
	if err != nil {
		return nil, err
	}
	rw := &RowWriter{w: out, fields: slices.Clone(fields), sizes: slices.Clone(sizes), dense: slices.Clone(dense), offsets: model.Offsets(sizes),
		numbered: numbered, numbers: numbers, last: -1, ids: make([][]int32, len(fields)), values: make([][]float32, len(dense))}
	return rw, nil
}

// Append adds copies of rows, whose features are global ids. It checks labels, ids, dense inputs and,
// if numbered, that the row numbers of a day ascend (see model.RowsPerDay). If it returns an error, it added no row after the
// named one, and the writer must not be used again.
func (w *RowWriter) Append(rows *model.Rows) error {
	if rows.Width != len(w.fields) || rows.Inputs != len(w.dense) {
		panic(fmt.Sprintf("arrowio: rows of %d fields and %d dense inputs for a writer of %d and %d", rows.Width, rows.Inputs, len(w.fields), len(w.dense)))
	}
	for i := range rows.Len() {
		number := w.rows
		if w.numbered {
			if number = rows.Number[i]; !follows(number, w.last) {
				return fault.Inputf("%s comes after %s: expected ascending row numbers", model.RowName(number), model.RowName(w.last))
			}
			w.number = append(w.number, number)
		}
		if err := checkLabel(rows.Label[i], w.numbers); err != nil {
			return fault.Inputf("%s: %w", model.RowName(number), err)
		}
		w.label = append(w.label, rows.Label[i])
		for j, feature := range rows.Row(i) {
			id := feature - w.offsets[j]
			if id < 0 || int(id) >= w.sizes[j] {
				return fault.Inputf("%s: field %d (%s): global id %d is outside [%d,%d)",
					model.RowName(number), j, w.fields[j], feature, w.offsets[j], int(w.offsets[j])+w.sizes[j])
			}
			w.ids[j] = append(w.ids[j], id)
		}
		for j, x := range rows.DenseRow(i) {
			if x-x != 0 {
				return notFinite(number, w.dense[j], x)
			}
			w.values[j] = append(w.values[j], x)
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

// checkLabel returns an error unless the label is 0 or 1, or finite if labels are numbers.
func checkLabel(label float32, numbers bool) error {
	switch {
	case numbers && label-label != 0:
		return fmt.Errorf("label is %v, expected a finite number", label)
	case !numbers && label != 0 && label != 1:
		return fmt.Errorf("label is %v, expected 0 or 1", label)
	}
	return nil
}

// follows reports whether a row may come directly after the row with the number last, which is
// -1 for the first row. Numbers ascend within a day, see model.RowsPerDay.
func follows(number, last int64) bool {
	return number > last || number >= 0 && number/model.RowsPerDay != last/model.RowsPerDay
}

// notFinite returns the error for a value of a dense input that is infinite or NaN.
func notFinite(row int64, name string, x float32) error {
	return fault.Inputf("%s: dense input %s is %v, expected a finite number", model.RowName(row), name, x)
}

// AppendColumns adds copies of rows without row numbers, given as labels, for each field
// local ids, and for each dense input values. It checks them as Append does.
func (w *RowWriter) AppendColumns(label []float32, ids [][]int32, dense [][]float32) error {
	if w.numbered || len(ids) != len(w.fields) || len(dense) != len(w.dense) {
		panic(fmt.Sprintf("arrowio: %d fields and %d dense inputs without row numbers for a writer of %d and %d, numbered: %v",
			len(ids), len(dense), len(w.fields), len(w.dense), w.numbered))
	}
	for from := 0; from < len(label); {
		to := min(len(label), from+RowsBatch-len(w.label))
		if err := w.appendColumns(label[from:to], ids, dense, from, to); err != nil {
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

// appendColumns adds rows [from, to) of ids and dense, which fit into the batch, and their
// labels.
func (w *RowWriter) appendColumns(label []float32, ids [][]int32, dense [][]float32, from, to int) error {
	for i, label := range label {
		if err := checkLabel(label, w.numbers); err != nil {
			return fault.Inputf("row %d: %w", w.rows+int64(i), err)
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
	for j, column := range dense {
		for i, x := range column[from:to] {
			if x-x != 0 {
				return notFinite(w.rows+int64(i), w.dense[j], x)
			}
		}
		w.values[j] = append(w.values[j], column[from:to]...)
	}
	return nil
}

func (w *RowWriter) flush() error {
	columns := make([]arrow.Array, 0, len(w.ids)+len(w.values)+2)
	if w.numbered {
		columns = append(columns, int64s(w.number))
	}
	if w.numbers {
		columns = append(columns, float32s(w.label))
	} else {
		labels := make([]uint8, len(w.label))
		for i, label := range w.label {
			labels[i] = uint8(label)
		}
		columns = append(columns, uint8s(labels))
	}
	for _, ids := range w.ids {
		columns = append(columns, int32s(ids))
	}
	for _, values := range w.values {
		columns = append(columns, float32s(values))
	}
	err := w.w.write(len(w.label), columns...)
	w.number, w.label = w.number[:0], w.label[:0]
	for j := range w.ids {
		w.ids[j] = w.ids[j][:0]
	}
	for j := range w.values {
		w.values[j] = w.values[j][:0]
	}
	w.batches++
	return err
}

// Close writes the remaining rows and the footer. It does not close the underlying
// writer.
func (w *RowWriter) Close() error {
	if len(w.label) > 0 || w.batches == 0 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	return w.w.close()
}

// RowReader reads a file of RowWriter from front to back, with at most one batch in
// memory. It must not be used by several goroutines at once.
type RowReader struct {
	r        *reader
	fields   []string
	sizes    []int
	dense    []string
	chosen   []int // positions in dense of the dense inputs that Next delivers, in its order
	offsets  []int32
	numbered bool
	numbers  bool  // labels are numbers
	rows     int64 // number of rows read
	last     int64 // row number of the last row
}

// NewRowReader reads and checks the schema. The memory of Next is proportional to the
// number of fields, so a caller that knows the expected fields and sizes should compare
// them before it calls Next.
func NewRowReader(r io.Reader) (*RowReader, error) {
	in, err := newReader(r, true, RowsVersion, DenseRowsVersion, ListRowsVersion)
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
	if err := json.Unmarshal([]byte(in.meta[keySizes]), &rr.sizes); err != nil {
		return nil, fault.Inputf("the metadata %q is not an array of sizes: %w", keySizes, err)
	}
	fields, version := len(columns)-first, in.meta[keyVersion]
	rr.numbers = version == ListRowsVersion
	if version != RowsVersion && len(rr.sizes) < fields {
		fields = len(rr.sizes) // the others are dense inputs
	}
	for i, c := range columns[min(first, len(columns)):] {
		if i < fields {
			rr.fields = append(rr.fields, c.Name)
		} else {
			rr.chosen = append(rr.chosen, len(rr.dense))
			rr.dense = append(rr.dense, c.Name)
		}
	}
	if err := checkSizes(rr.fields, rr.sizes); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	if err := CheckColumns(rr.fields, rr.dense); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	if version == DenseRowsVersion && len(rr.dense) == 0 {
		return nil, fault.Inputf("the schema's version is %q, but it has no dense inputs", DenseRowsVersion)
	}
	if err := in.expect(rowsSchema(rr.fields, rr.sizes, rr.dense, rr.numbered, rr.numbers).Fields()...); err != nil {
		return nil, err
	}
	rr.offsets = model.Offsets(rr.sizes)
	// Every column may also have a validity bitmap.
	in.messages.allocator.limit = RowsBatch*(8+4+4*len(rr.fields)+4*len(rr.dense)) + RowsBatch/8*len(columns) + slack
	return rr, nil
}

// Fields returns the names of the fields. The caller must not change the slice.
func (r *RowReader) Fields() []string { return r.fields }

// Sizes returns the number of features of each field. The caller must not change the
// slice.
func (r *RowReader) Sizes() []int { return r.sizes }

// Dense returns the names of all dense inputs of the file. The caller must not change the
// slice.
func (r *RowReader) Dense() []string { return r.dense }

// Choose selects the dense inputs that Next delivers, and their order. Without a call of
// Choose they are all. The file must have them.
func (r *RowReader) Choose(names []string) error {
	r.chosen = nil
	for _, name := range names {
		at := slices.Index(r.dense, name)
		if at < 0 {
			return fault.Inputf("no dense input %q: the file has %q", name, r.dense)
		}
		r.chosen = append(r.chosen, at)
	}
	return nil
}

// Widen makes Next return the global ids of fields with the given sizes. No field may be
// smaller than in the file.
func (r *RowReader) Widen(sizes []int) { r.offsets = model.Offsets(sizes) }

// Numbered reports whether the rows carry their global numbers.
func (r *RowReader) Numbered() bool { return r.numbered }

// Numbers reports whether labels are finite numbers. Otherwise they are 0 or 1.
func (r *RowReader) Numbers() bool { return r.numbers }

// Next fills rows with the next batch, of at most RowsBatch rows, and reuses the memory
// of rows. It returns io.EOF after everything was read and checked to the last byte.
// Features become global ids. Rows without numbers are numbered from 0.
func (r *RowReader) Next(rows *model.Rows) error {
	rows.Width, rows.Inputs = len(r.fields), len(r.chosen)
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
		return fault.Inputf("a batch has %d rows, expected at most %d", n, RowsBatch)
	}
	columns := record.Columns()
	if r.numbered {
		for _, number := range columns[0].(*array.Int64).Int64Values() {
			if !follows(number, r.last) || number == math.MaxInt64 {
				return fault.Inputf("%s comes after %s: expected ascending row numbers of at least 0", model.RowName(number), model.RowName(r.last))
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
	if err := r.fillLabels(rows, columns[0]); err != nil {
		return err
	}
	m := len(r.fields)
	rows.Features = slices.Grow(rows.Features, n*m)[:n*m]
	for j, c := range columns[1 : 1+m] {
		offset, size := r.offsets[j], uint32(r.sizes[j])
		for i, id := range c.(*array.Int32).Int32Values() {
			if uint32(id) >= size {
				return fault.Inputf("%s: field %d (%s): local id %d is outside [0,%d)", model.RowName(rows.Number[i]), j, r.fields[j], id, size)
			}
			rows.Features[i*m+j] = offset + id
		}
	}
	k := len(r.chosen)
	rows.Dense = slices.Grow(rows.Dense, n*k)[:n*k]
	for j, at := range r.chosen {
		for i, x := range columns[1+m+at].(*array.Float32).Float32Values() {
			if x-x != 0 {
				return notFinite(rows.Number[i], r.dense[at], x)
			}
			rows.Dense[i*k+j] = x
		}
	}
	r.rows += int64(n)
	return nil
}

// fillLabels appends the labels in a column to rows, which has the numbers of the rows.
func (r *RowReader) fillLabels(rows *model.Rows, column arrow.Array) error {
	if r.numbers {
		rows.Label = append(rows.Label, column.(*array.Float32).Float32Values()...)
	} else {
		for _, label := range column.(*array.Uint8).Uint8Values() {
			rows.Label = append(rows.Label, float32(label))
		}
	}
	for i, label := range rows.Label {
		if err := checkLabel(label, r.numbers); err != nil {
			return fault.Inputf("%s: %w", model.RowName(rows.Number[i]), err)
		}
	}
	return nil
}

// Close frees the reader. It does not close the underlying reader.
func (r *RowReader) Close() { r.r.close() }
