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

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
)

// RowsBatch is the number of rows of a full record batch. Readers accept no larger batch,
// so it bounds the memory of writers and readers.
const RowsBatch = 1 << 16

// The columns before those of the fields.
const (
	rowColumn   = "row"   // int64, global row number; only in shards
	labelColumn = "label" // uint8, or float32 if labels are numbers

	weightColumn = "weight" // int32; only in files of WeightedRowsVersion, where no other column has the name
)

// Missing is the label of a row that has none. Only the labels after the first may be missing.
const Missing = -1

const keySizes = "sizes" // JSON array

// CheckColumns reports the first invalid name of a field, a dense input or a label after the first. Names must be UTF-8,
// distinct and not empty, and must not be "label" or "row". With weights or several labels they must not be "weight".
func (f *RowForm) CheckColumns() error {
	fields, all := f.Fields, slices.Concat(f.Fields, f.inputs())
	most := MaxColumns - 2
	if f.Weighted {
		most--
	}
	if n := len(all); n > most {
		return fmt.Errorf("%d fields, dense inputs and labels after the first, expected at most %d", n, most)
	}
	seen := make(map[string]string, len(all))
	for i, name := range all {
		kind, at := "field", i
		if i >= len(fields) {
			kind, at = "dense input", i-len(fields)
		}
		if at >= len(f.Dense) && i >= len(fields) {
			kind, at = "label", at-len(f.Dense)+1
		}
		what := fmt.Sprintf("%s %d", kind, at)
		switch before, ok := seen[name]; {
		case name == "":
			return fmt.Errorf("%s has an empty name", what)
		case !utf8.ValidString(name):
			return fmt.Errorf("%s has the name %q, which is not UTF-8", what, name)
		case name == rowColumn || name == labelColumn || name == weightColumn && f.version() == WeightedRowsVersion:
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

// RowForm describes the columns of a file of rows.
type RowForm struct {
	Fields   []string // names of the fields
	Sizes    []int    // number of features of each field
	Lengths  []int    // number of positions of each field that is a list, and 0 for the others; nil without lists
	Dense    []string // names of the dense inputs
	Labels   []string // names of the labels after the first; in rows they are the last dense inputs, each 0, 1 or Missing
	Weighted bool     // each row has a weight
	Numbers  bool     // labels are finite numbers; otherwise they are 0 or 1
	Numbered bool     // each row carries its number, as in shards
}

// check returns an error for the first part of f that is not valid.
func (f *RowForm) check() error {
	if err := checkSizes(f.Fields, f.Sizes); err != nil {
		return err
	}
	for j, length := range f.Lengths {
		if length < 0 || length > model.MaxLength {
			return fmt.Errorf("field %d (%s) is a list of %d positions, expected at most %d", j, f.Fields[j], length, model.MaxLength)
		}
	}
	return f.CheckColumns()
}

// inputs returns the names of the dense inputs of rows in memory.
func (f *RowForm) inputs() []string { return slices.Concat(f.Dense, f.Labels) }

// version returns the oldest version that can describe f.
func (f *RowForm) version() string {
	switch {
	case f.Weighted || len(f.Labels) > 0:
		return WeightedRowsVersion
	case f.Numbers || f.Lengths != nil:
		return ListRowsVersion
	case len(f.Dense) > 0:
		return DenseRowsVersion
	}
	return RowsVersion
}

// positions returns the number of ids of field j in a row.
func (f *RowForm) positions(j int) int {
	if f.Lengths == nil {
		return 1
	}
	return max(1, f.Lengths[j])
}

// width returns the number of ids of a row.
func (f *RowForm) width() int {
	width := len(f.Fields)
	for _, length := range f.Lengths {
		width += max(1, length) - 1
	}
	return width
}

// Batch returns the number of rows of a full record batch. It is below RowsBatch only if lists
// make the rows wide.
func (f *RowForm) Batch() int {
	const most = 64 * RowsBatch // ids of a batch
	if f.Lengths == nil {
		return RowsBatch
	}
	return max(1, min(RowsBatch, most/f.width()))
}

// schema returns the schema of the file.
func (f *RowForm) schema() *arrow.Schema {
	columns := make([]arrow.Field, 0, len(f.Fields)+len(f.Dense)+len(f.Labels)+3)
	if f.Numbered {
		columns = append(columns, arrow.Field{Name: rowColumn, Type: arrow.PrimitiveTypes.Int64})
	}
	label := arrow.Field{Name: labelColumn, Type: arrow.PrimitiveTypes.Uint8}
	if f.Numbers {
		label.Type = arrow.PrimitiveTypes.Float32
	}
	columns = append(columns, label)
	if f.Weighted {
		columns = append(columns, arrow.Field{Name: weightColumn, Type: arrow.PrimitiveTypes.Int32})
	}
	for j, name := range f.Fields {
		column := arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int32}
		if f.Lengths != nil && f.Lengths[j] > 0 {
			column.Type = listOf(arrow.PrimitiveTypes.Int32, f.Lengths[j])
		}
		columns = append(columns, column)
	}
	for _, name := range f.Dense {
		columns = append(columns, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Float32})
	}
	for _, name := range f.Labels {
		columns = append(columns, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int8})
	}
	metadata := arrow.NewMetadata([]string{keyVersion, keySizes}, []string{f.version(), toJSON(f.Sizes)})
	return arrow.NewSchema(columns, &metadata)
}

// RowWriter writes rows as zstd-compressed record batches of RowsBatch rows, or fewer if
// lists make the rows wide, in Arrow's file format. It holds one batch in memory. It must
// not be used by several goroutines at once.
type RowWriter struct {
	w       *writer
	form    RowForm
	offsets []int32
	batch   int // number of rows of a batch
	number  []int64
	label   []float32
	weight  []int32     // empty without weights
	ids     [][]int32   // [m][rows of the batch * positions], local ids
	values  [][]float32 // [k][rows of the batch], dense inputs and then labels
	rows    int64       // number of rows appended
	last    int64       // row number of the last row
	batches int
	written func() // nil or of Notify
}

// NewRowWriter returns a writer to w of rows of the given form, which must not change.
// compressors, at least 1, is the number of columns that are compressed concurrently. This
// number does not change the bytes. Each compressor holds about 18 MiB after its first use.
func NewRowWriter(w io.Writer, form RowForm, compressors int) (*RowWriter, error) {
	if !slices.ContainsFunc(form.Lengths, func(length int) bool { return length > 0 }) {
		form.Lengths = nil
	}
	if err := form.check(); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	out, err := newFileWriter(w, form.schema(), ipc.WithZstd(), ipc.WithCompressConcurrency(compressors))
	if err != nil {
		return nil, err
	}
	return &RowWriter{w: out, form: form, offsets: model.Offsets(form.Sizes), batch: form.Batch(), last: -1,
		ids: make([][]int32, len(form.Fields)), values: make([][]float32, len(form.inputs()))}, nil
}

// Notify makes w call written after each batch, when all bytes up to the end of the batch are written.
func (w *RowWriter) Notify(written func()) { w.written = written }

// Append adds copies of rows, whose features are global ids. It checks labels, weights, ids, dense inputs and,
// if numbered, that the row numbers of a day ascend (see model.RowsPerDay). If it returns an error, it added no row after the
// named one, and the writer must not be used again.
func (w *RowWriter) Append(rows *model.Rows) error {
	if rows.Width != w.form.width() || rows.Inputs != len(w.values) || rows.Weight != nil && !w.form.Weighted {
		panic(fmt.Sprintf("arrowio: rows of %d ids and %d dense inputs, with weights: %v, for a writer of %d and %d, with weights: %v",
			rows.Width, rows.Inputs, rows.Weight != nil, w.form.width(), len(w.values), w.form.Weighted))
	}
	for i := range rows.Len() {
		number := w.rows
		if w.form.Numbered {
			if number = rows.Number[i]; !follows(number, w.last) {
				return fault.Inputf("%s comes after %s: expected ascending row numbers", model.RowName(number), model.RowName(w.last))
			}
			w.number = append(w.number, number)
		}
		if err := checkLabel(rows.Label[i], w.form.Numbers); err != nil {
			return fault.Inputf("%s: %w", model.RowName(number), err)
		}
		w.label = append(w.label, rows.Label[i])
		if w.form.Weighted {
			if rows.Times(i) < 1 {
				return lowWeight(number, rows.Weight[i])
			}
			w.weight = append(w.weight, int32(rows.Times(i)))
		}
		row := rows.Row(i)
		for j := range w.ids {
			n := w.form.positions(j)
			for at, feature := range row[:n] {
				id := feature - w.offsets[j]
				if id < 0 || int(id) >= w.form.Sizes[j] {
					return fault.Inputf("%s: %s: global id %d is outside [%d,%d)",
						model.RowName(number), w.form.place(j, at), feature, w.offsets[j], int(w.offsets[j])+w.form.Sizes[j])
				}
				w.ids[j] = append(w.ids[j], id)
			}
			row = row[n:]
		}
		for j, x := range rows.DenseRow(i) {
			if err := w.form.checkInput(number, j, x); err != nil {
				return err
			}
			w.values[j] = append(w.values[j], x)
		}
		w.last = number
		w.rows++
		if len(w.label) == w.batch {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// place names a position of field j in messages.
func (f *RowForm) place(j, position int) string {
	if f.Lengths != nil && f.Lengths[j] > 0 {
		return fmt.Sprintf("field %d (%s), position %d", j, f.Fields[j], position)
	}
	return fmt.Sprintf("field %d (%s)", j, f.Fields[j])
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

// checkInput returns an error unless x can be the value of a row's input j, a dense input or a label after
// the first.
func (f *RowForm) checkInput(row int64, j int, x float32) error {
	switch k := j - len(f.Dense); {
	case k < 0 && x-x != 0:
		return fault.Inputf("%s: dense input %s is %v, expected a finite number", model.RowName(row), f.Dense[j], x)
	case k >= 0 && x != 0 && x != 1 && x != Missing:
		return fault.Inputf("%s: label %s is %v, expected 0, 1 or %d", model.RowName(row), f.Labels[k], x, Missing)
	}
	return nil
}

// lowWeight returns the error for a weight that is not positive.
func lowWeight(row int64, weight int32) error {
	return fault.Inputf("%s: weight is %d, expected at least 1", model.RowName(row), weight)
}

// AppendColumns adds copies of rows without row numbers, given as labels, weights if the form has them, for each field
// local ids, and for each dense input, and then each label after the first, values. A list has the ids of its positions, row by
// row. AppendColumns checks them as Append does.
func (w *RowWriter) AppendColumns(label []float32, weight []int32, ids [][]int32, dense [][]float32) error {
	if !w.form.Weighted && len(weight) > 0 || w.form.Weighted && len(weight) != len(label) || w.form.Numbered || len(ids) != len(w.ids) || len(dense) != len(w.values) {
		panic(fmt.Sprintf("arrowio: %d fields and %d dense inputs without row numbers for a writer of %d and %d, numbered: %v",
			len(ids), len(dense), len(w.ids), len(w.values), w.form.Numbered))
	}
	for from := 0; from < len(label); {
		to := min(len(label), from+w.batch-len(w.label))
		if w.form.Weighted {
			for i, times := range weight[from:to] {
				if times < 1 {
					return lowWeight(w.rows+int64(i), times)
				}
			}
			w.weight = append(w.weight, weight[from:to]...)
		}
		if err := w.appendColumns(label[from:to], ids, dense, from, to); err != nil {
			return err
		}
		w.rows += int64(to - from)
		w.last = w.rows - 1
		from = to
		if len(w.label) == w.batch {
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
		if err := checkLabel(label, w.form.Numbers); err != nil {
			return fault.Inputf("row %d: %w", w.rows+int64(i), err)
		}
	}
	w.label = append(w.label, label...)
	for j, column := range ids {
		size, n := uint32(w.form.Sizes[j]), w.form.positions(j)
		for i, id := range column[from*n : to*n] {
			if uint32(id) >= size {
				return fault.Inputf("row %d: %s: local id %d is outside [0,%d)", w.rows+int64(i/n), w.form.place(j, i%n), id, size)
			}
		}
		w.ids[j] = append(w.ids[j], column[from*n:to*n]...)
	}
	for j, column := range dense {
		for i, x := range column[from:to] {
			if err := w.form.checkInput(w.rows+int64(i), j, x); err != nil {
				return err
			}
		}
		w.values[j] = append(w.values[j], column[from:to]...)
	}
	return nil
}

func (w *RowWriter) flush() error {
	columns := make([]arrow.Array, 0, len(w.ids)+len(w.values)+3)
	if w.form.Numbered {
		columns = append(columns, int64s(w.number))
	}
	if w.form.Numbers {
		columns = append(columns, float32s(w.label))
	} else {
		labels := make([]uint8, len(w.label))
		for i, label := range w.label {
			labels[i] = uint8(label)
		}
		columns = append(columns, uint8s(labels))
	}
	if w.form.Weighted {
		columns = append(columns, int32s(w.weight))
	}
	for j, ids := range w.ids {
		column := int32s(ids)
		if w.form.Lengths != nil && w.form.Lengths[j] > 0 {
			column = lists(column, w.form.Lengths[j], nil)
		}
		columns = append(columns, column)
	}
	for j, values := range w.values {
		if j < len(w.form.Dense) {
			columns = append(columns, float32s(values))
			continue
		}
		labels := make([]uint8, len(values))
		for i, label := range values {
			labels[i] = uint8(int8(label))
		}
		columns = append(columns, column(arrow.PrimitiveTypes.Int8, len(labels), labels))
	}
	err := w.w.write(len(w.label), columns...)
	w.number, w.label = w.number[:0], w.label[:0]
	w.weight = w.weight[:0]
	for j := range w.ids {
		w.ids[j] = w.ids[j][:0]
	}
	for j := range w.values {
		w.values[j] = w.values[j][:0]
	}
	w.batches++
	if err == nil && w.written != nil {
		w.written()
	}
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
	r       *reader
	form    RowForm
	width   int   // number of ids of a row
	fields  []int // positions in form.Fields of the fields that Next delivers
	chosen  []int // positions in form.inputs() of the dense inputs that Next delivers, in its order
	offsets []int32
	rows    int64 // number of rows read
	last    int64 // row number of the last row
}

// NewRowReader reads and checks the schema. The memory of Next is proportional to the
// number of ids of a row, so a caller that knows the expected form should compare it before
// it calls Next.
func NewRowReader(r io.Reader) (*RowReader, error) {
	in, err := newReader(r, true, RowsVersion, DenseRowsVersion, ListRowsVersion, WeightedRowsVersion)
	if err != nil {
		return nil, err
	}
	columns := in.ipc.Schema().Fields()
	rr := &RowReader{r: in, last: -1}
	f := &rr.form
	first := 1
	if len(columns) > 0 && columns[0].Name == rowColumn {
		f.Numbered = true
		first = 2
	}
	version := in.meta[keyVersion]
	recent := version == ListRowsVersion || version == WeightedRowsVersion // may have lists and labels of numbers
	if recent && len(columns) >= first {
		f.Numbers = columns[first-1].Type.ID() == arrow.FLOAT32
	}
	if version == WeightedRowsVersion && len(columns) > first && columns[first].Name == weightColumn {
		f.Weighted = true
		first++
	}
	if err := json.Unmarshal([]byte(in.meta[keySizes]), &f.Sizes); err != nil {
		return nil, fault.Inputf("the metadata %q is not an array of sizes: %w", keySizes, err)
	}
	fields := len(columns) - first
	if version != RowsVersion && len(f.Sizes) < fields {
		fields = len(f.Sizes) // the others are dense inputs
	}
	var lengths []int
	lists := false
	for i, c := range columns[min(first, len(columns)):] {
		if i >= fields {
			rr.chosen = append(rr.chosen, i-fields)
			if version == WeightedRowsVersion && c.Type.ID() == arrow.INT8 {
				f.Labels = append(f.Labels, c.Name)
			} else {
				f.Dense = append(f.Dense, c.Name)
			}
			continue
		}
		f.Fields = append(f.Fields, c.Name)
		lengths = append(lengths, 0)
		if list, ok := c.Type.(*arrow.FixedSizeListType); ok && recent {
			lengths[i], lists = int(list.Len()), true
		}
	}
	if lists {
		f.Lengths = lengths
	}
	if err := f.check(); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	switch {
	case version == DenseRowsVersion && len(f.Dense) == 0:
		return nil, fault.Inputf("the schema's version is %q, but it has no dense inputs", DenseRowsVersion)
	case version == ListRowsVersion && !f.Numbers && !lists:
		return nil, fault.Inputf("the schema's version is %q, but it has neither lists nor numbers as labels", ListRowsVersion)
	case version == WeightedRowsVersion && f.version() != version:
		return nil, fault.Inputf("the schema's version is %q, but it has neither weights nor several labels", version)
	}
	if err := in.expect(f.schema().Fields()...); err != nil {
		return nil, err
	}
	rr.offsets, rr.width = model.Offsets(f.Sizes), f.width()
	for j := range f.Fields {
		rr.fields = append(rr.fields, j)
	}
	// Every column and the values of a list may also have a validity bitmap.
	row := 8 + 4 + 4 + 4*rr.width + 4*len(rr.chosen)
	in.messages.allocator.limit = f.Batch()*row + f.Batch()/8*(len(columns)+rr.width) + slack
	return rr, nil
}

// Form returns the form of the rows. The caller must not change it.
func (r *RowReader) Form() *RowForm { return &r.form }

// Choose selects the dense inputs that Next delivers, among them labels after the first, and their order. Without a call of
// Choose they are all. The file must have them.
func (r *RowReader) Choose(names []string) error {
	r.chosen = nil
	for _, name := range names {
		at := slices.Index(r.form.inputs(), name)
		if at < 0 {
			return fault.Inputf("no dense input %q: the file has %q", name, r.form.inputs())
		}
		r.chosen = append(r.chosen, at)
	}
	return nil
}

// ChooseFields selects the fields that Next delivers, by their positions in the file, in ascending
// order. Without a call of ChooseFields they are all. Call Widen after it.
func (r *RowReader) ChooseFields(fields []int) {
	r.fields, r.width = fields, 0
	for _, j := range fields {
		r.width += r.form.positions(j)
	}
}

// Widen makes Next return the global ids of the chosen fields with the given sizes. No field may
// be smaller than in the file.
func (r *RowReader) Widen(sizes []int) { r.offsets = model.Offsets(sizes) }

// Next fills rows with the next batch, of at most RowsBatch rows, and reuses the memory
// of rows. It returns io.EOF after everything was read and checked to the last byte.
// Features become global ids. Rows without numbers are numbered from 0.
func (r *RowReader) Next(rows *model.Rows) error {
	rows.Width, rows.Inputs = r.width, len(r.chosen)
	for {
		rows.Reset()
		if !r.form.Weighted {
			rows.Weight = nil
		}
		err := r.r.next(func(record arrow.Record) error { return r.fill(rows, record) })
		if err != nil || rows.Len() > 0 {
			return err
		}
	}
}

func (r *RowReader) fill(rows *model.Rows, record arrow.Record) error {
	n := int(record.NumRows())
	if most := r.form.Batch(); n > most {
		return fault.Inputf("a batch has %d rows, expected at most %d", n, most)
	}
	columns := record.Columns()
	if r.form.Numbered {
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
	columns = columns[1:]
	if r.form.Weighted {
		for i, weight := range columns[0].(*array.Int32).Int32Values() {
			if weight < 1 {
				return lowWeight(rows.Number[i], weight)
			}
			rows.Weight = append(rows.Weight, weight)
		}
		columns = columns[1:]
	}
	m, first := len(r.form.Fields), 0
	rows.Features = slices.Grow(rows.Features, n*r.width)[:n*r.width]
	for k, j := range r.fields {
		if err := r.fillField(rows, columns[j], j, r.offsets[k], first); err != nil {
			return err
		}
		first += r.form.positions(j)
	}
	k := len(r.chosen)
	rows.Dense = slices.Grow(rows.Dense, n*k)[:n*k]
	for j, at := range r.chosen {
		if labels, ok := columns[m+at].(*array.Int8); ok {
			for i, label := range labels.Int8Values() {
				rows.Dense[i*k+j] = float32(label)
			}
		} else {
			for i, x := range columns[m+at].(*array.Float32).Float32Values() {
				rows.Dense[i*k+j] = x
			}
		}
		for i := range n {
			if err := r.form.checkInput(rows.Number[i], at, rows.Dense[i*k+j]); err != nil {
				return err
			}
		}
	}
	r.rows += int64(n)
	return nil
}

// fillField sets the ids of field j, which begin at position first of each row. offset is the global
// id of the field's first feature.
func (r *RowReader) fillField(rows *model.Rows, c arrow.Array, j int, offset int32, first int) error {
	size, features := uint32(r.form.Sizes[j]), rows.Features
	outside := func(i, at int, id int32) error {
		return fault.Inputf("%s: %s: local id %d is outside [0,%d)", model.RowName(rows.Number[i]), r.form.place(j, at), id, size)
	}
	if list, ok := c.(*array.FixedSizeList); ok {
		positions := r.form.Lengths[j]
		ids := list.ListValues().(*array.Int32).Int32Values()
		for i := 0; len(ids) > 0; i++ {
			row := features[i*r.width+first:][:positions]
			for at, id := range ids[:positions] {
				if uint32(id) >= size {
					return outside(i, at, id)
				}
				row[at] = offset + id
			}
			ids = ids[positions:]
		}
		return nil
	}
	for i, id := range c.(*array.Int32).Int32Values() {
		if uint32(id) >= size {
			return outside(i, 0, id)
		}
		features[i*r.width+first] = offset + id
	}
	return nil
}

// fillLabels appends the labels in a column to rows, which has the numbers of the rows.
func (r *RowReader) fillLabels(rows *model.Rows, column arrow.Array) error {
	if r.form.Numbers {
		rows.Label = append(rows.Label, column.(*array.Float32).Float32Values()...)
	} else {
		for _, label := range column.(*array.Uint8).Uint8Values() {
			rows.Label = append(rows.Label, float32(label))
		}
	}
	for i, label := range rows.Label {
		if err := checkLabel(label, r.form.Numbers); err != nil {
			return fault.Inputf("%s: %w", model.RowName(rows.Number[i]), err)
		}
	}
	return nil
}

// Close frees the reader. It does not close the underlying reader.
func (r *RowReader) Close() { r.r.close() }
