package checkpoint

import (
	"cmp"
	"io"
	"slices"

	"shaver/internal/base/atomicfile"
	"shaver/internal/click/model"
	"shaver/internal/onnx/dissect"
	"shaver/internal/onnx/emit"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

// signature says how the .onnx file of a model takes a row, and what it returns.
type signature struct {
	inputs   []wire.Value
	fields   []inputColumn // first column of each field
	dense    []inputColumn
	output   wire.Value
	logit    bool // whether the output is the logit, and not a probability
	computed bool // whether ids follow from others
}

// inputColumn is a column of an input: an element of its rows.
type inputColumn struct{ input, column int }

// newSignature returns the signature of the model that n takes out of m.
func newSignature(m *wire.Model, n *dissect.Network) *signature {
	s := &signature{inputs: m.Graph.Inputs, logit: n.End.Op == ""}
	at := func(name string, i int) inputColumn {
		return inputColumn{slices.IndexFunc(s.inputs, func(v wire.Value) bool { return v.Name == name }), i}
	}
	for _, f := range n.Fields {
		s.fields = append(s.fields, at(f.Input, f.Column))
		s.computed = s.computed || f.Computed != nil
	}
	for _, d := range n.Dense {
		s.dense = append(s.dense, at(d.Input, d.Column))
	}
	for _, v := range m.Graph.Outputs {
		if v.Name == n.End.Output {
			s.output = v
		}
	}
	return s
}

// WriteNewONNX writes c as a new .onnx file, and returns its length in bytes. c is a slice of a model of Kind Graph that was
// read from an .onnx file. The new file has the names and types of the inputs of that file, without the columns of what
// is gone, and the same name of the output. The first axis of each input is that of the rows.
//
// A model with computed fields, or with an operator that has no form for several rows, is an input error.
func WriteNewONNX(path string, c *Checkpoint) (int64, error) {
	switch {
	case c.signature == nil:
		return 0, c.inputf("an .onnx file is written from an .onnx file, expected one")
	case c.graph.Tasks > 0:
		return 0, c.inputf("a new .onnx file has one output, and the model has %d tasks: write a safetensors file", c.graph.Tasks)
	case c.signature.computed:
		return 0, c.inputf("the graph computes ids from others, and a new .onnx file cannot yet: write a safetensors file")
	}
	m, err := c.graphModel()
	if err != nil {
		return 0, err
	}
	w := &onnxWriter{c: c, d: wire.NewDraft(), head: m.Weights.Graph, inputs: map[graph.Value]emit.Part{}}
	w.d.Metadata = c.properties()
	if err := w.rows(); err != nil {
		return 0, err
	}
	if err := w.lookUps(m.Weights.Embedding); err != nil {
		return 0, err
	}
	var inputs []emit.Part
	for _, v := range w.head.Graph.Inputs {
		inputs = append(inputs, w.inputs[v])
	}
	out, err := emit.Batch(w.d, w.head.Graph, inputs, w.count)
	if err != nil {
		return 0, c.inputf("%w", err)
	}
	w.output(out)
	var size int64
	err = atomicfile.Write(path, func(f io.Writer) (err error) {
		size, err = w.d.WriteTo(f)
		return err
	})
	return size, err
}

// onnxWriter writes a new .onnx file.
type onnxWriter struct {
	c       *Checkpoint
	d       *wire.Draft
	head    *model.GraphHead
	name    string // of the output
	count   string // name of the number of rows
	columns []span // columns of the inputs, by field
	inputs  map[graph.Value]emit.Part
}

// span is columns of a matrix of whole numbers, [rows, of].
type span struct {
	matrix           string
	from, length, of int
	numbers          *grid // the same columns as the input has them
}

func (w *onnxWriter) node(op string, attributes map[string]any, inputs ...string) string {
	out := w.d.Name("shaver." + op)
	w.d.Node(op, attributes, inputs, []string{out})
	return out
}

func (w *onnxWriter) ints(list ...int64) string {
	name := w.d.Name("shaver.list")
	w.d.Ints(name, list, len(list))
	return name
}

// rows adds the inputs of the file, and the ids and dense inputs of a row.
func (w *onnxWriter) rows() error {
	s, lengths := w.c.signature, w.c.Architecture.Lengths()
	w.columns = make([]span, len(s.fields))
	w.name = w.d.Name(s.output.Name)
	names := make([]string, len(s.inputs))
	for i := range s.inputs {
		names[i] = w.d.Name(s.inputs[i].Name)
	}
	for i := range s.inputs {
		var pieces []piece
		for j, at := range s.fields {
			if at.input == i {
				pieces = append(pieces, piece{at.column, lengths[j], j, false})
			}
		}
		for k, at := range s.dense {
			if at.input == i {
				pieces = append(pieces, piece{at.column, 1, k, true})
			}
		}
		if pieces == nil {
			continue
		}
		slices.SortFunc(pieces, func(p, o piece) int { return cmp.Compare(p.column, o.column) })
		if err := w.input(&s.inputs[i], names[i], pieces); err != nil {
			return err
		}
	}
	return nil
}

// piece is the columns of an input that are a field or a dense input.
type piece struct {
	column, length int
	number         int // of the field or the dense input
	dense          bool
}

// input adds an input with the given pieces. It has their columns. If a piece is a dense input, it has all columns that it
// had, because the names of dense inputs count them.
func (w *onnxWriter) input(v *wire.Value, name string, pieces []piece) error {
	columns := int64(1) // that it had
	var inner []wire.Dim
	if len(v.Dims) > 0 {
		inner = v.Dims[1:]
	}
	for _, d := range inner {
		if d.Size < 0 {
			return w.c.inputf("input %s has the rows on another axis than the first one: write a safetensors file", wire.Quote(v.Name))
		}
		columns *= d.Size
	}
	total, last := 0, pieces[len(pieces)-1]
	for i := range pieces {
		total += pieces[i].length
	}
	if slices.ContainsFunc(pieces, func(p piece) bool { return p.dense }) {
		total = max(int(columns), last.column+last.length)
	} else {
		from := 0
		for i := range pieces {
			pieces[i].column = from
			from += pieces[i].length
		}
	}
	if columns != int64(total) {
		inner = []wire.Dim{{Size: int64(total)}}
	}
	w.d.Input(wire.Value{Name: name, Type: v.Type, Known: true, Dims: append([]wire.Dim{{Size: -1, Name: "batch"}}, inner...)})
	if w.count == "" {
		w.count = w.node("Shape", map[string]any{"start": int64(0), "end": int64(1)}, name)
	}
	matrix := name
	if len(inner) != 1 {
		matrix = w.node("Reshape", nil, name, w.ints(-1, int64(total)))
	}
	ids := matrix
	if v.Type != wire.Int64 {
		ids = w.node("Cast", map[string]any{"to": int64(wire.Int64)}, matrix)
	}
	g := &grid{kind: v.Type, matrix: matrix, of: total}
	for _, p := range pieces {
		if p.dense {
			w.number(g, p.column, 1, w.head.Dense[p.number])
		} else {
			w.columns[p.number] = span{ids, p.column, p.length, total, g}
		}
	}
	return nil
}

// grid is a matrix of numbers, [rows, of].
type grid struct {
	kind   wire.Type
	matrix string
	of     int
	line   string // the same as [rows, 1, of], once something reads it
}

// number makes columns of a matrix an input of the head. Other columns are not converted with them, because a reader
// of the file would take these for numbers as well.
func (w *onnxWriter) number(n *grid, from, length int, input graph.Value) {
	if n.line == "" {
		n.line = w.node("Reshape", nil, n.matrix, w.ints(-1, 1, int64(n.of)))
	}
	p := emit.Part{Name: n.line, Axis: 2, From: from, Size: length, Of: n.of}
	if n.kind != wire.Float {
		p = emit.Part{Name: w.node("Cast", map[string]any{"to": int64(wire.Float)}, w.part(p))}
	}
	w.inputs[input] = w.shaped(p, input, 1, length)
}

// part returns the name of a part of a tensor.
func (w *onnxWriter) part(p emit.Part) string {
	if p.Size == p.Of {
		return p.Name
	}
	return w.node("Slice", nil, p.Name, w.ints(int64(p.From)), w.ints(int64(p.From+p.Size)), w.ints(int64(p.Axis)))
}

// shaped returns a part of a tensor with the given axes of the row as an input of the head.
func (w *onnxWriter) shaped(p emit.Part, input graph.Value, shape ...int) emit.Part {
	want := w.head.Graph.Values[input].Shape
	if slices.Equal(shape, want) {
		return p
	}
	list := []int64{-1}
	for _, size := range want {
		list = append(list, int64(size))
	}
	return emit.Part{Name: w.node("Reshape", nil, w.part(p), w.ints(list...))}
}

// read is a look-up of a table.
type read struct {
	span
	offset int
	input  graph.Value
}

// lookUps adds the tables and what reads them, and the ids that the head reads as numbers.
func (w *onnxWriter) lookUps(embedding []float32) error {
	a, form := &w.c.Architecture, w.c.graph
	tables := a.Tables
	if a.Plain() {
		tables = []model.Table{{Name: graphEmbedding, Rows: a.Features(), Dim: a.Dim}}
	}
	for i, t := range tables {
		var reads []read
		for k, input := range w.head.LookUps {
			switch {
			case a.Plain():
				reads = append(reads, read{w.columns[k], int(a.Offsets()[k]), input})
			case a.LookUps[k].Table == i:
				reads = append(reads, read{w.columns[a.LookUps[k].Field], a.LookUps[k].Offset, input})
			}
		}
		size := t.Rows * t.Dim
		w.table(t.Name, embedding[:size], t.Dim, reads)
		embedding = embedding[size:]
	}
	var done []string
	for _, l := range form.Constants {
		if slices.Contains(done, l.Table) {
			continue
		}
		done = append(done, l.Table)
		var reads []read
		for k, o := range form.Constants {
			if o.Table == l.Table {
				reads = append(reads, read{w.columns[o.Field], o.Offset, w.head.Constants[k].Input})
			}
		}
		key := graphKey(graphConstants, l.Table)
		values, err := w.c.floats(key)
		if err != nil {
			return err
		}
		w.table(l.Table, values, w.c.Tensors[key].Shape[1], reads)
	}
	for _, d := range w.head.IDs {
		s := w.columns[d.Field]
		w.number(s.numbers, s.from, s.length, d.Input)
	}
	return nil
}

// table adds a table and a Gather for each run of columns that read it.
func (w *onnxWriter) table(name string, values []float32, dim int, reads []read) {
	name = w.d.Name(name)
	w.d.Floats(name, values, len(values)/dim, dim)
	slices.SortStableFunc(reads, func(x, y read) int {
		return cmp.Or(cmp.Compare(x.matrix, y.matrix), cmp.Compare(x.from, y.from))
	})
	for len(reads) > 0 {
		run, end := 1, reads[0].from+reads[0].length
		for run < len(reads) && reads[run].matrix == reads[0].matrix && reads[run].from == end {
			end += reads[run].length
			run++
		}
		first, total := reads[0], end-reads[0].from
		ids := w.part(emit.Part{Name: first.matrix, Axis: 1, From: first.from, Size: total, Of: first.of})
		var offsets []int64
		for _, r := range reads[:run] {
			offsets = append(offsets, slices.Repeat([]int64{int64(r.offset)}, r.length)...)
		}
		if slices.ContainsFunc(offsets, func(o int64) bool { return o != 0 }) {
			ids = w.node("Add", nil, ids, w.ints(offsets...))
		}
		block := w.node("Gather", nil, name, ids)
		for _, r := range reads[:run] {
			w.inputs[r.input] = w.shaped(emit.Part{Name: block, Axis: 1, From: r.from - first.from, Size: r.length, Of: total}, r.input, r.length, dim)
		}
		reads = reads[run:]
	}
}

// output adds the output of the file, which is the logit or its probability.
func (w *onnxWriter) output(logit string) {
	s := w.c.signature
	if !s.logit {
		logit = w.node("Sigmoid", nil, logit)
	}
	dims, shape := []wire.Dim{{Size: -1, Name: "batch"}}, []int64{-1}
	if !s.output.Known || len(s.output.Dims) != 1 {
		dims, shape = append(dims, wire.Dim{Size: 1}), append(shape, 1)
	}
	w.d.Node("Reshape", nil, []string{logit, w.ints(shape...)}, []string{w.name})
	w.d.Output(wire.Value{Name: w.name, Type: wire.Float, Known: true, Dims: dims})
}
