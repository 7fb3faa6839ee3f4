package wire

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"shaver/internal/base/fault"
)

// MaxFile is the largest size of an .onnx file in bytes, because protobuf has no larger
// messages. Files with external data may be larger.
const MaxFile = math.MaxInt32

// Size returns the size of the .onnx file of m in bytes.
func (m *Model) Size() int64 { return m.size }

// External returns the paths of the files with external data that m has.
func (m *Model) External() []string {
	var files []string
	for _, t := range m.outside {
		if !slices.Contains(files, t.file) {
			files = append(files, t.file)
		}
	}
	return files
}

// Table gives a tensor of a model new elements.
type Table struct {
	Tensor  *Tensor   // of a floating-point type
	Values  []float32 // one for each element, with Compact those that a reader gets
	Compact *Compact  // nil, or how the table is stored if it can be
}

// Options say how Rewrite stores tables.
type Options struct {
	// Data is the name of the file with external data, which will be next to the .onnx file.
	Data string
	// Calibration calibrates the logit; nil = it stays the same.
	Calibration *Calibration
	// Metadata replaces the values of these keys of Model.Metadata, or adds them. The keys begin
	// with MetadataPrefix.
	Metadata map[string]string
	// Weights8 are stored in 8 bits. They are among those of NewWeight8, and not among the tables.
	Weights8 []*Weight8

	most int64 // MaxFile; 0 = MaxFile
}

// Rewriting is a model with new elements of some tensors, which can be written.
type Rewriting struct {
	Bytes      int64 // size of the .onnx file
	External   bool  // whether there is a file with external data
	DataBytes  int64 // size of that file
	TableBytes int64 // of the tables that Rewrite was given, with everything that compact ones add
	Compact    int   // number of these tables that are compact

	main, data []content
}

// WriteTo writes the .onnx file. It reads the model, which must still be open.
func (r *Rewriting) WriteTo(w io.Writer) (int64, error) { return writeAll(w, r.main) }

// WriteData writes the file with external data. It reads the model, which must still be
// open.
func (r *Rewriting) WriteData(w io.Writer) (int64, error) { return writeAll(w, r.data) }

// Rewrite returns m with new elements of the tables. The elements that do not change, and
// everything else of the file except what Options say, keep their bytes. A new element is rounded to the type of
// its tensor.
//
// Tensors stay in the .onnx file or in a file with external data, as they were. If m has
// several files with external data, they become one. If the .onnx file would exceed
// MaxFile, the tables become external.
//
// A table of two axes and type float32 becomes compact if that is smaller, the nodes that read it are Gather along the first
// axis, it is no input, which a runtime may replace, and the file has version compactOpset of the operator set, or a later one.
func (m *Model) Rewrite(tables []Table, o Options) (*Rewriting, error) {
	r, err := m.rewrite(tables, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	return r, nil
}

func (m *Model) rewrite(tables []Table, o Options) (*Rewriting, error) {
	if o.most == 0 {
		o.most = MaxFile
	}
	w := &writer{model: m, options: o, tables: map[*message]*table{}, moved: map[*message]int64{}}
	for _, given := range tables {
		t, err := newTable(given)
		if err != nil {
			return nil, err
		}
		if other := w.tables[t.place]; other != nil {
			return nil, fault.Inputf("tables %s and %s are one tensor of the file", Quote(other.Name), Quote(t.Name))
		}
		w.tables[t.place] = t
		w.order = append(w.order, t)
	}
	w.shrink()
	if o.Calibration != nil {
		var err error
		if w.calibration, err = m.planCalibration(*o.Calibration); err != nil {
			return nil, err
		}
	}
	r, err := w.plan()
	if err == nil && r.Bytes > o.most {
		w.outside = true
		r, err = w.plan()
	}
	if err != nil {
		return nil, err
	}
	if r.Bytes > o.most {
		return nil, fault.Inputf("the .onnx file would have %d bytes without its tables, expected at most %d: export the model with external data", r.Bytes, o.most)
	}
	if r.External && !localName(o.Data) {
		return nil, fault.Inputf("the external data would be in the file %s, expected a name without a colon or a backslash", Quote(o.Data))
	}
	return r, nil
}

// writer plans how a model is written.
type writer struct {
	model       *Model
	options     Options
	tables      map[*message]*table // by their tensors
	order       []*table
	outside     bool         // whether all tables become external
	weights8    []weight8    // of the options
	calibration *calibration // nil = none

	edits splices
	data  []content
	size  int64              // of data
	moved map[*message]int64 // where external tensors are in data
}

// table is a tensor with new elements.
type table struct {
	*Tensor
	values  []float32
	changed bool
	compact *Compact
	small   *small // nil unless it becomes compact
}

// newTable finds out whether a table changes.
func newTable(given Table) (*table, error) {
	t := &table{Tensor: given.Tensor, values: given.Values, compact: given.Compact}
	if len(t.values) != t.Elements() || !t.Type.Floating() || t.place == nil {
		panic(fmt.Sprintf("onnx: Rewrite: %d values for tensor %s of %s with the shape %v", len(t.values), t.Name, t.Type, t.Dims))
	}
	err := t.each(0, len(t.values), func(i int, bits uint64) error {
		v := t.values[i]
		if same(t.Type.float(bits), v) {
			return nil
		}
		t.changed = true
		if stored := t.Type.float(t.Type.bits(v)); math.IsInf(float64(stored), 0) && !math.IsInf(float64(v), 0) {
			return fault.Inputf("tensor %s is of %s, which cannot hold the value %v", Quote(t.Name), t.Type, v)
		}
		return nil
	})
	if err == nil && t.changed && t.form == compacted {
		err = fault.Inputf("table %s is compact and cannot change: expected the model before it was made compact", Quote(t.Name))
	}
	if err == nil && t.changed && t.form == computed {
		err = fault.Inputf("table %s is quantised in the file, and cannot change there: write a .safetensors file, or prune the model before it is quantised", Quote(t.Name))
	}
	return t, err
}

func same(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// content returns the elements of t, little-endian.
func (t *table) content() content {
	width := t.Type.width()
	return content{int64(len(t.values) * width), func(w io.Writer) error {
		b := bufio.NewWriterSize(w, chunk)
		element := make([]byte, 8)
		err := t.each(0, len(t.values), func(i int, bits uint64) error {
			if v := t.values[i]; !same(t.Type.float(bits), v) {
				bits = t.Type.bits(v)
			}
			binary.LittleEndian.PutUint64(element, bits)
			_, err := b.Write(element[:width])
			return err
		})
		if err != nil {
			return err
		}
		return b.Flush()
	}}
}

// plan plans the two files.
func (w *writer) plan() (*Rewriting, error) {
	w.edits, w.data, w.size = nil, nil, 0
	w.placeTensors()
	r := &Rewriting{}
	for _, t := range w.model.outside {
		if changed := w.tables[t.place]; (changed == nil || changed.small == nil) && !w.rounds(t) {
			w.pointTo(t, changed != nil && changed.changed)
		}
	}
	for _, t := range w.order {
		r.TableBytes += t.bytes()
		switch {
		case t.small != nil:
			r.Compact++
			w.writeSmall(t)
		case t.form == compacted:
			r.Compact++
		case t.outside != nil || t.form == nothing || t.form == computed:
		case w.outside:
			w.edits.replace(t.place, t.data.tag, t.data.end, contentOf(w.entries(w.add(t.content()), t.content().size, nil)))
		case t.changed && t.form == varints: // raw_data, because the elements may take more or fewer bytes
			c := t.content()
			w.edits.replace(t.place, t.data.tag, t.data.end, contentOf(header(9, c.size)), c)
		case t.changed:
			w.edits.replace(t.place, t.at, t.at+t.size, t.content())
		}
	}
	if w.calibration != nil {
		w.calibration.edit(w)
	}
	for i, q := range w.options.Weights8 {
		w.writeProgram(q.Tensor, w.weights8[i].program(q.Tensor.Dims), q.data())
	}
	metadata := w.metadata()
	for _, key := range sortedNames(metadata) {
		entry := appendBytes(nil, 14, appendText(appendText(nil, 1, key), 2, metadata[key]))
		at, end := w.model.size, w.model.size
		if old, ok := w.model.properties[key]; ok {
			at, end = old.tag, old.end
		}
		w.edits.replace(nil, at, end, contentOf(entry))
	}
	r.data, r.DataBytes, r.External = w.data, w.size, len(w.model.outside) > 0 || w.size > 0
	r.main, r.Bytes = w.edits.apply(w.model.source, w.model.size)
	return r, nil
}

// rounds reports whether t is stored in 8 bits.
func (w *writer) rounds(t *Tensor) bool {
	return slices.ContainsFunc(w.options.Weights8, func(q *Weight8) bool { return q.Tensor.place == t.place })
}

// metadata returns the metadata that change.
func (w *writer) metadata() map[string]string {
	var all []compactTable
	for i := range w.model.compact {
		all = append(all, *w.model.compact[i])
	}
	for _, t := range w.order {
		if t.small != nil {
			all = append(all, *t.small.compactTable)
		}
	}
	changed := map[string]string{}
	maps.Copy(changed, w.options.Metadata)
	if len(all) > len(w.model.compact) {
		changed[compactKey] = jsonText(all)
	}
	if len(w.weights8) > 0 {
		changed[int8Key] = jsonText(append(slices.Clone(w.model.weights8), w.weights8...))
	}
	return changed
}

// jsonText returns v, which has no error as JSON.
func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// bytes returns the size of the elements that are written for t.
func (t *table) bytes() int64 {
	switch {
	case t.small != nil:
		return t.small.bytes
	case t.form == compacted:
		return t.entries.bytes
	case t.form == computed:
		return t.scaled.bytes()
	}
	return int64(len(t.values) * t.Type.width())
}

// run is the bytes of a file with external data that one tensor has, or several that share
// bytes.
type run struct {
	source  io.ReaderAt
	at, end int64
	tensors []*Tensor
}

// runs returns the runs of all external tensors that have bytes and do not become compact,
// and the number of files that have external tensors. No two runs overlap.
func (w *writer) runs() (all []*run, files int) {
	number := map[io.ReaderAt]int{}
	var list []*Tensor
	for _, t := range w.model.outside {
		if _, ok := number[t.source]; !ok {
			number[t.source] = len(number)
		}
		if changed := w.tables[t.place]; t.size > 0 && (changed == nil || changed.small == nil) && !w.rounds(t) {
			list = append(list, t)
		}
	}
	slices.SortStableFunc(list, func(a, b *Tensor) int {
		return cmp.Or(cmp.Compare(number[a.source], number[b.source]), cmp.Compare(a.at, b.at))
	})
	for _, t := range list {
		if len(all) > 0 {
			if last := all[len(all)-1]; last.source == t.source && t.at < last.end {
				last.end, last.tensors = max(last.end, t.at+t.size), append(last.tensors, t)
				continue
			}
		}
		all = append(all, &run{t.source, t.at, t.at + t.size, []*Tensor{t}})
	}
	return all, len(number)
}

// placeTensors lays out the external tensors. Tensors of a single file keep their places,
// unless a table becomes compact or moves there. Tensors without elements go to the place 0.
// Bytes of a file that belong to no tensor become 0.
func (w *writer) placeTensors() {
	runs, files := w.runs()
	keep := files == 1 && !w.outside && !slices.ContainsFunc(w.model.outside, w.rounds) && !slices.ContainsFunc(w.order, func(t *table) bool { return t.small != nil && t.Tensor.outside != nil })
	var apart []*table // changed tables that share bytes with other tensors
	for _, r := range runs {
		c := section(r.source, r.at, r.end-r.at)
		for _, t := range r.tensors {
			if changed := w.tables[t.place]; changed == nil || !changed.changed {
				continue
			} else if len(r.tensors) == 1 {
				c = changed.content()
			} else {
				apart = append(apart, changed)
			}
		}
		at := r.at
		if keep {
			w.pad(r.at - w.size)
			w.append(c)
		} else {
			at = w.add(c)
		}
		for _, t := range r.tensors {
			w.moved[t.place] = at + t.at - r.at
		}
	}
	for _, t := range apart {
		w.moved[t.place] = w.add(t.content())
	}
}

func (w *writer) append(c content) {
	w.data = append(w.data, c)
	w.size += c.size
}

func (w *writer) pad(size int64) {
	if size > 0 {
		w.append(zeros(size))
	}
}

// add appends c to the external data, aligned, and returns its place.
func (w *writer) add(c content) int64 {
	align := int64(64)
	if c.size >= chunk {
		align = 4096 // so that it can be mapped into memory
	}
	w.pad((align - w.size%align) % align)
	at := w.size
	w.append(c)
	return at
}

// pointTo writes where the external tensor t is now, if that or its content changes.
func (w *writer) pointTo(t *Tensor, changed bool) {
	at := w.moved[t.place]
	var others []setting // a checksum, for example
	for _, s := range t.outside.settings {
		if s.key != "location" && s.key != "offset" && s.key != "length" {
			others = append(others, s)
		}
	}
	if at == t.at && t.outside.location == w.options.Data && (!changed || others == nil) {
		return
	}
	if changed {
		others = nil
	}
	for i, e := range t.outside.entries {
		if i == 0 {
			w.edits.replace(t.place, e.tag, e.end, contentOf(w.entries(at, t.size, others)))
		} else {
			w.edits.replace(t.place, e.tag, e.end)
		}
	}
}

// entries returns the fields of a tensor with size bytes at the place at of the external
// data.
func (w *writer) entries(at, size int64, others []setting) []byte {
	var b []byte
	list := []setting{{"location", w.options.Data}, {"offset", strconv.FormatInt(at, 10)}, {"length", strconv.FormatInt(size, 10)}}
	for _, s := range append(list, others...) {
		b = appendBytes(b, 13, appendText(appendText(nil, 1, s.key), 2, s.value))
	}
	return appendInt(b, 14, 1)
}

// header returns the tag and the length of a field of size bytes.
func header(number protowire.Number, size int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.BytesType), uint64(size))
}

func appendText(b []byte, number protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
}

func appendBytes(b []byte, number protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), message)
}

func appendInt(b []byte, number protowire.Number, n int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(n))
}

// bits returns the bits of v in a floating-point type, rounded to the nearest number and,
// in the middle, to the even one.
func (t Type) bits(v float32) uint64 {
	switch t {
	case Double:
		return math.Float64bits(float64(v))
	case Float16:
		return uint64(halfBits(v))
	case Bfloat16:
		b := math.Float32bits(v)
		if v != v {
			return uint64(b>>16 | 1)
		}
		return uint64((b + 0x7fff + b>>16&1) >> 16)
	}
	return uint64(math.Float32bits(v))
}

// halfBits returns the IEEE 754 half-precision number that is nearest to v.
func halfBits(v float32) uint16 {
	b := math.Float32bits(v)
	sign, size := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case size > 0x7f800000: // not a number
		return sign | 0x7e00
	case size >= 0x47800000: // 65536 or more
		return sign | 0x7c00
	case size < 0x38800000: // less than the smallest normal number, 2^-14
		return sign | uint16(math.RoundToEven(math.Abs(float64(v))*(1<<24)))
	}
	size += 0xfff + size>>13&1
	return sign | uint16((size-0x38000000)>>13)
}
