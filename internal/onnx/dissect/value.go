package dissect

import (
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

// value is what a name of the file stands for. A value with a trace or a tensor is added
// to the head only if the head needs it.
type value struct {
	head     graph.Value  // a value of the head; graph.Absent = none yet
	trace    *trace       // nil, or what is known about a value that depends on inputs and not on tables
	tensor   *wire.Tensor // nil, or a constant of the file
	sequence []*value
	list     bool         // whether it is a sequence, which may be empty
	width    wire.Type    // type of whole numbers that are not int64; otherwise wire.Undefined
	reshaped *wire.Tensor // nil, or a table of the file in another shape, which head has
	picked   *picked
	kept     []*value // if v is rows of which a row of data has only some: see picked.keep
}

// trace is a value that consists of elements.
type trace struct {
	kind     graph.Type
	shape    []int
	elements []*element
	node     *step // operator that computed the value; nil = it is an input
	output   int   // which output of node
}

// step is an operator in its newest form, with its inputs.
type step struct {
	name       string
	op         string
	attributes graph.Attributes
	inputs     []*value      // nil = absent
	added      []graph.Value // outputs in the head; nil = not added yet
}

const (
	maxTraced = 1 << 16        // elements of a value that does not come from a table
	maxTraces = 16 * maxTraced // elements of all such values, as builder.trace counts them
)

// inHead returns a value that is in the head already.
func inHead(v graph.Value) *value { return &value{head: v} }

// elementwise is the set of operators that are applied to ids and numbers one by one.
var elementwise = map[string]bool{
	"Cast": true, "Add": true, "IsNaN": true, "IsInf": true, "Sub": true, "Mul": true, "Div": true, "Mod": true, "Neg": true, "Abs": true, "Floor": true,
	"Ceil": true, "Round": true, "Min": true, "Max": true, "Sum": true, "Clip": true, "Where": true, "Equal": true, "Less": true,
	"LessOrEqual": true, "Greater": true, "GreaterOrEqual": true, "Not": true, "And": true, "Or": true, "Xor": true, "Relu": true,
}

// wrapping is the set of operators whose whole numbers may exceed the type of their inputs.
var wrapping = map[string]bool{"Add": true, "Sub": true, "Mul": true, "Neg": true, "Abs": true, "Pow": true}

// apply applies an operator in its newest form. Whole numbers wrap in the type that the file gives
// them, as a Cast of the result does.
func (b *builder) apply(name, op string, attributes graph.Attributes, inputs ...*value) ([]*value, error) {
	out, err := b.applyWide(name, op, attributes, inputs)
	width := widthOf(op, attributes, inputs)
	if err != nil || width == wire.Undefined || b.kind(out[0]) != graph.Int {
		return out, err
	}
	// Sums of values of the head are lengths and positions, which are small.
	if wrapping[op] && (out[0].trace != nil || op == "Mul" || op == "Pow") && b.varies(out[0]) {
		if width == wire.Uint64 {
			return nil, fault.Inputf("node %s (%s): it computes in uint64, which is not supported: compute in int64", wire.Quote(name), op)
		}
		return b.apply(name, "Cast", graph.Attributes{"to": int64(width)}, out[0])
	}
	for _, v := range out {
		if !slices.Contains(inputs, v) {
			v.width = width
		}
	}
	return out, nil
}

// widthOf returns the type of the whole numbers that an operator makes, or wire.Undefined for int64.
func widthOf(op string, attributes graph.Attributes, inputs []*value) wire.Type {
	switch op {
	case "Cast":
		to, _ := attributes["to"].(int64)
		inputs = []*value{{width: wire.Type(to)}}
	case "Shape", "Size", "ArgMax", "ArgMin", "NonZero", "TopK":
		return wire.Undefined
	case "Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND":
		inputs = inputs[:1]
	}
	for _, v := range inputs {
		if v != nil && v.tensor != nil {
			v = &value{width: v.tensor.Type}
		}
		if v != nil && v.width.Integer() && v.width != wire.Int64 {
			return v.width
		}
	}
	return wire.Undefined
}

// kind returns the type of v, or 0 if it has none or several.
func (b *builder) kind(v *value) graph.Type {
	switch {
	case v.trace != nil:
		return v.trace.kind
	case v.tensor != nil && v.tensor.Type.Integer():
		return graph.Int
	case v.head != graph.Absent:
		return b.head.Values[v.head].Type
	}
	return 0
}

func (b *builder) applyWide(name, op string, attributes graph.Attributes, inputs []*value) ([]*value, error) {
	if b.readsRows(op, attributes, inputs) {
		return b.gatherRows(name, inputs)
	}
	s := &step{name: name, op: op, attributes: attributes, inputs: inputs}
	traced, heads := false, false
	for i, v := range inputs {
		if v == nil {
			continue
		}
		if v.list {
			return nil, fault.Inputf("node %s: operator %s of a sequence is not supported", wire.Quote(name), op)
		}
		if slices.ContainsFunc(inputs, func(v *value) bool { return v != nil && (v.picked != nil || v.kept != nil) }) {
			return b.applyPicked(s)
		}
		if op == "Gather" && i == 0 && len(inputs) == 2 && inputs[1] != nil && v.trace == nil && b.isTable(v) {
			if inputs[1].trace == nil && b.varies(inputs[1]) {
				if t := b.retrace(inputs[1].head); t != nil {
					return b.applyWide(name, op, attributes, []*value{v, {head: inputs[1].head, trace: t}})
				}
			}
			if inputs[1].trace != nil && b.kind(v) != graph.Int {
				return b.lookUp(s)
			}
		}
		if v.tensor != nil {
			if err := b.load(v, name); err != nil {
				return nil, err
			}
		}
		if v.trace != nil {
			traced = true
		} else if b.head.Values[v.head].Constant == nil {
			heads = true
		}
	}
	if len(inputs) == 2 && inputs[0] != nil && inputs[1] != nil && slices.Contains(positional, op) && b.varies(inputs[1]) && (op != "Gather" || inputs[0].tensor == nil) {
		if out, err := b.position(s); out != nil || err != nil {
			return out, err
		}
	}
	if traced {
		if out, err := b.applyTrace(s, heads); out != nil || err != nil {
			return out, err
		}
	}
	out, err := b.add(s)
	if err == nil && (op == "Reshape" || op == "Flatten") && inputs[0].tensor != nil {
		t, shape := inputs[0].tensor, b.head.Values[out[0].head].Shape
		if b.reshaped[t] == nil {
			other := *t
			other.Dims = shape
			b.reshaped[t] = &other
		}
		if slices.Equal(b.reshaped[t].Dims, shape) { // a table has one shape
			out[0].reshaped = b.reshaped[t]
		}
	}
	return out, err
}

// isTable reports whether v may be a table, which does not depend on the row.
func (b *builder) isTable(v *value) bool {
	return v.tensor != nil || v.head != graph.Absent && b.head.Values[v.head].Constant != nil
}

// add adds s to the head.
func (b *builder) add(s *step) ([]*value, error) {
	if s.added == nil {
		n := graph.Node{Name: s.name, Op: s.op, Attributes: s.attributes}
		for _, v := range s.inputs {
			if v == nil {
				n.Inputs = append(n.Inputs, graph.Absent)
				continue
			}
			if err := b.materialise(v, s); err != nil {
				return nil, err
			}
			n.Inputs = append(n.Inputs, v.head)
		}
		added, err := b.head.Add(n)
		if err != nil {
			return nil, fault.Inputf("%w", err)
		}
		s.added = added
	}
	var out []*value
	for _, v := range s.added {
		out = append(out, inHead(v))
	}
	return out, nil
}

// load makes the tensor of v a constant of the head. reader is the node that needs it.
func (b *builder) load(v *value, reader string) error {
	if b.readers[v.tensor] == "" {
		b.readers[v.tensor] = reader
	}
	if v.head != graph.Absent {
		return nil
	}
	t := b.loaded[v.tensor]
	if t == nil {
		var err error
		if t, err = load(v.tensor); err != nil {
			return err
		}
		b.loaded[v.tensor] = t
	}
	v.head = b.addConstant(v.tensor, t)
	return nil
}

// addConstant adds t to the head, at most once for each key, which is what holds t in the
// file. Otherwise a loop could add t many times, which would raise the limits of folding.
func (b *builder) addConstant(key any, t *graph.Tensor) graph.Value {
	v, ok := b.added[key]
	if !ok {
		v = b.head.AddConstant(t)
		b.added[key] = v
	}
	return v
}

// load returns t as a tensor in memory.
func load(t *wire.Tensor) (*graph.Tensor, error) {
	out := &graph.Tensor{Name: t.Name, Shape: slices.Clone(t.Dims)}
	if out.Shape == nil {
		out.Shape = []int{}
	}
	if _, err := graph.Count(out.Shape); err != nil {
		return nil, fault.Inputf("tensor %s: %w", wire.Quote(t.Name), err)
	}
	var err error
	switch {
	case t.Type.Floating():
		out.Type = graph.Float
		out.Floats, err = t.Floats()
	case t.Type == wire.Bool:
		out.Type = graph.Bool
		out.Bools, err = t.Bools()
	default:
		out.Type = graph.Int
		out.Ints, err = t.Ints()
	}
	return out, err
}

// applyTrace applies s to values of which at least one has a trace. heads says whether
// another one depends on tables. applyTrace returns nil if s must be added to the head.
func (b *builder) applyTrace(s *step, heads bool) ([]*value, error) {
	scratch, added, err := b.inferTrace(s)
	if err != nil {
		return nil, err
	}
	if len(scratch.Nodes) == 0 { // the result is constant, such as the shape of a value
		var out []*value
		for _, v := range added {
			out = append(out, inHead(b.head.AddConstant(scratch.Values[v].Constant)))
		}
		return out, nil
	}
	if heads {
		return nil, nil
	}
	var out []*value
	for i, v := range added {
		info := scratch.Values[v]
		count, err := graph.Count(info.Shape)
		if err != nil || count > maxTraced || !b.trace(count, 1) {
			return nil, fault.Inputf("node %s (%s): its result with the shape %v is too large for a value that depends on inputs only", wire.Quote(s.name), s.op, info.Shape)
		}
		out = append(out, &value{head: graph.Absent, trace: &trace{kind: info.Type, shape: info.Shape, node: s, output: i}})
	}
	if axis, _ := s.attributes["axis"].(int64); s.op == "Gather" && s.inputs[0].trace == nil && axis == 0 {
		b.mapIDs(b.head.Values[s.inputs[0].head].Constant, s.inputs[1].trace, out[0].trace)
		return out, nil
	}
	elements := make([][]*element, len(s.inputs))
	for i, v := range s.inputs {
		switch {
		case v == nil:
		case v.trace != nil:
			elements[i] = v.trace.elements
		case b.head.Values[v.head].Constant.Len() <= maxTraced:
			elements[i] = newConstantElements(b.head.Values[v.head].Constant)
		default:
			return nil, nil
		}
	}
	first := out[0].trace
	switch {
	case s.op == "Cast" && s.inputs[0].trace.kind == graph.Float && first.kind == graph.Float:
		first.elements = elements[0]
		return out, nil
	case move(scratch, elements, out):
		return out, nil
	case elementwise[s.op] && len(out) == 1:
		if count, _ := graph.Count(first.shape); !b.trace(count, 3) {
			return nil, fault.Inputf("node %s (%s): the values that depend on inputs only have too many elements", wire.Quote(s.name), s.op)
		}
		if err := compute(s, scratch, elements, first); err != nil {
			return nil, err
		}
		b.compared(s.op, first)
		return out, nil
	}
	return nil, nil
}

// inferTrace applies s in a new graph, where all values that depend on the row are inputs.
// It returns the graph and the outputs of s.
func (b *builder) inferTrace(s *step) (*graph.Graph, []graph.Value, error) {
	scratch := &graph.Graph{}
	n := graph.Node{Name: s.name, Op: s.op, Attributes: s.attributes}
	for i, v := range s.inputs {
		if v == nil {
			n.Inputs = append(n.Inputs, graph.Absent)
			continue
		}
		if v.trace != nil {
			if s.op == "Slice" && i > 0 {
				if err := b.bind(v.trace); err != nil {
					return nil, nil, err
				}
			}
			n.Inputs = append(n.Inputs, scratch.AddInput("", v.trace.kind, v.trace.shape))
			continue
		}
		info := b.head.Values[v.head]
		if info.Constant != nil {
			n.Inputs = append(n.Inputs, scratch.AddConstant(info.Constant))
		} else {
			n.Inputs = append(n.Inputs, scratch.AddInput("", info.Type, info.Shape))
		}
	}
	added, err := scratch.Add(n)
	if err != nil {
		return nil, nil, fault.Inputf("%w", err)
	}
	return scratch, added, nil
}

// move sets the elements of the outputs of the only node of scratch, if that node only moves
// elements. It reports whether it does.
func move(scratch *graph.Graph, elements [][]*element, out []*value) bool {
	return scratch.Relabel(&scratch.Nodes[0], func(output, input, at int) {
		t := out[output].trace
		if input == graph.Nothing {
			t.elements = append(t.elements, &element{kind: t.kind, constant: zeroOf(t.kind)})
		} else {
			t.elements = append(t.elements, elements[input][at])
		}
	})
}

// compared notes the elements of t, which op computed, if they compare elements of inputs
// with constants, as Clip(id, 0, 1) also does.
func (b *builder) compared(op string, t *trace) {
	switch op {
	case "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Clip", "Min", "Cast":
		for _, e := range t.elements {
			if e.source != nil && (op != "Cast" || t.kind == graph.Bool) {
				b.comparisons = append(b.comparisons, e)
			}
		}
	}
}

// compute sets the elements of the output of the only node of scratch, which is an
// elementwise operator.
func compute(s *step, scratch *graph.Graph, elements [][]*element, out *trace) error {
	places := make([][]int64, len(s.inputs))
	for i, v := range s.inputs {
		if v == nil {
			continue
		}
		var err error
		if places[i], err = broadcast(scratch.Values[scratch.Nodes[0].Inputs[i]].Shape, out.shape); err != nil {
			return fault.Inputf("node %s (%s): %w", wire.Quote(s.name), s.op, err)
		}
	}
	count, _ := graph.Count(out.shape)
	for at := range count {
		arguments := make([]*element, len(s.inputs))
		for i := range s.inputs {
			if places[i] != nil {
				arguments[i] = elements[i][places[i][at]]
			}
		}
		out.elements = append(out.elements, newComputedElement(out.kind, s.op, s.attributes, arguments))
	}
	return nil
}

func zeroOf(kind graph.Type) *graph.Tensor {
	t := &graph.Tensor{Type: kind, Shape: []int{}}
	switch kind {
	case graph.Float:
		t.Floats = []float32{0}
	case graph.Int:
		t.Ints = []int64{0}
	case graph.Bool:
		t.Bools = []bool{false}
	}
	return t
}

// broadcast returns, for each element of the shape to, the position of the element of the
// shape from that ONNX's broadcasting reads.
func broadcast(from, to []int) ([]int64, error) {
	count, err := graph.Count(from)
	if err != nil {
		return nil, err
	}
	numbers := make([]int64, count)
	for i := range numbers {
		numbers[i] = int64(i)
	}
	shape := make([]int64, len(to))
	for i, size := range to {
		shape[i] = int64(size)
	}
	out, err := graph.Evaluate("Expand", nil, []*graph.Tensor{graph.NewInts(numbers, from...), graph.NewInts(shape, len(shape))})
	if err != nil {
		return nil, err
	}
	return out[0].Ints, nil
}

// materialise adds v to the head, because s reads it.
func (b *builder) materialise(v *value, s *step) error {
	if v.head != graph.Absent {
		return nil
	}
	if v.list {
		return fault.Inputf("node %s: operator %s of a sequence is not supported", wire.Quote(s.name), s.op)
	}
	if v.picked != nil {
		_, err := b.applyPicked(s)
		return err
	}
	if v.tensor != nil {
		return b.load(v, s.name)
	}
	t := v.trace
	if t.node != nil && t.node.op == "Gather" && len(t.elements) > 0 && t.elements[0].op == "Gather" { // by mapIDs
		out, err := b.position(t.node)
		if err == nil && out == nil {
			err = fault.Inputf("node %s (%s) maps too many ids to numbers", wire.Quote(t.node.name), t.node.op)
		}
		if err == nil {
			err = b.materialise(out[0], s)
			v.head = out[0].head
		}
		return err
	}
	if parts := b.parts(t, s); parts != nil {
		var err error
		if v.head, err = b.join(s.name, parts, 1, 1, t.shape); err == nil && t.kind != graph.Float {
			v.head, err = b.cast(s.name, v.head, t.kind)
		}
		return err
	}
	if len(t.elements) == 0 {
		return fault.Inputf("node %s (%s) reads a part of an input that has no elements", wire.Quote(s.name), s.op)
	}
	if t.node == nil {
		return fault.Inputf("node %s (%s) reads a part of an input that cannot be a number", wire.Quote(s.name), s.op)
	}
	if t.node.added == nil {
		for _, in := range t.node.inputs {
			if in == nil {
				continue
			}
			if err := b.materialise(in, s); err != nil {
				return err
			}
		}
	}
	out, err := b.add(t.node)
	if err != nil {
		return err
	}
	v.head = out[t.output].head
	return nil
}

// parts returns the elements of t as numbers, which are values of the head of shape [1, 1],
// if they are elements of inputs and constants only. Otherwise it returns nil.
func (b *builder) parts(t *trace, s *step) []graph.Value {
	for _, e := range t.elements {
		if e.constant == nil && !e.plain() || e.constant != nil && len(e.constant.Ints) == 1 && max(e.constant.Ints[0], -e.constant.Ints[0]) > maxExactFloat {
			return nil
		}
	}
	var parts []graph.Value
	for _, e := range t.elements {
		if e.constant == nil {
			parts = append(parts, b.dense(e, s))
			continue
		}
		c := graph.NewFloats(e.constant.Floats, 1, 1)
		switch {
		case e.kind == graph.Int:
			c.Floats = []float32{float32(e.constant.Ints[0])}
		case e.kind == graph.Bool:
			c.Floats = []float32{0}
			if e.constant.Bools[0] {
				c.Floats[0] = 1
			}
		}
		parts = append(parts, b.head.AddConstant(c))
	}
	return parts
}

// cast adds the conversion of v to a type.
func (b *builder) cast(name string, v graph.Value, kind graph.Type) (graph.Value, error) {
	to := map[graph.Type]wire.Type{graph.Float: wire.Float, graph.Int: wire.Int64, graph.Bool: wire.Bool}[kind]
	out, err := b.head.Add(graph.Node{Name: name, Op: "Cast", Inputs: []graph.Value{v}, Attributes: graph.Attributes{"to": int64(to)}})
	if err != nil {
		return 0, fault.Inputf("%w", err)
	}
	return out[0], nil
}

// join returns parts of shape [1, width] as one value of the given shape.
func (b *builder) join(name string, parts []graph.Value, width, axis int, shape []int) (graph.Value, error) {
	v, have := parts[0], []int{1, width}
	if len(parts) > 1 {
		out, err := b.head.Add(graph.Node{Name: name, Op: "Concat", Inputs: parts, Attributes: graph.Attributes{"axis": int64(axis)}})
		if err != nil {
			return 0, fault.Inputf("%w", err)
		}
		v = out[0]
		have[axis] *= len(parts)
	}
	if slices.Equal(have, shape) {
		return v, nil
	}
	target := &graph.Tensor{Type: graph.Int, Shape: []int{len(shape)}, Ints: make([]int64, len(shape))}
	for i, size := range shape {
		target.Ints[i] = int64(size)
	}
	out, err := b.head.Add(graph.Node{Name: name, Op: "Reshape", Inputs: []graph.Value{v, b.head.AddConstant(target)}})
	if err != nil {
		return 0, fault.Inputf("%w", err)
	}
	return out[0], nil
}
