package dissect

import (
	"math"
	"reflect"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

// picked is a vector of constants of which a row has only some. It is what a loop makes that
// appends to a list under a condition.
type picked struct {
	items []int64
	keep  []*value // for each item, the truth value that says whether a row has it; nil = each row has it
}

// undecided reports whether v is a single truth value that depends on the row.
func (b *builder) undecided(v *value) bool {
	switch {
	case v.list || v.tensor != nil || v.picked != nil || v.kept != nil:
		return false
	case v.trace != nil:
		t := v.trace
		return t.kind == graph.Bool && (t.elements == nil && b.single(t.shape) || len(t.elements) == 1 && t.elements[0].constant == nil)
	}
	info := b.head.Values[v.head]
	return info.Constant == nil && info.Type == graph.Bool && b.single(info.Shape)
}

func (b *builder) single(shape []int) bool {
	count, err := graph.Count(shape)
	return err == nil && count == 1
}

// choose builds both branches of an If whose condition depends on the row, and joins their
// outputs.
func (b *builder) choose(n *wire.Node, s *scope, path string, condition *value) ([]*value, error) {
	var results [2][]*value
	for i, name := range []string{"then_branch", "else_branch"} {
		body := attribute(n, name).Graph
		if body == nil {
			return nil, fault.Inputf("node %s (If): a branch is not a graph", n.Label())
		}
		inner := &scope{map[string]*value{}, s}
		err := b.graph(body, inner, path+"/"+name)
		if err == nil {
			results[i], err = outputs(body, inner)
		}
		if err != nil {
			return nil, err
		}
	}
	scalar, err := b.apply(n.Label(), "Reshape", nil, condition, b.ints())
	if err != nil {
		return nil, err
	}
	if len(results[0]) != len(results[1]) {
		return nil, fault.Inputf("node %s (If): its branches have %d and %d outputs", n.Label(), len(results[0]), len(results[1]))
	}
	var out []*value
	for i, yes := range results[0] {
		v, err := b.either(n, scalar[0], yes, results[1][i])
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// either returns what is yes in the rows in which the condition holds, and no in the others.
func (b *builder) either(n *wire.Node, condition, yes, no *value) (*value, error) {
	if yes == no {
		return yes, nil
	}
	refuse := fault.Inputf("node %s (If): its condition depends on the row, and its branches give values of different shapes: expected the same shape, or a vector and the same vector with more at its end", n.Label())
	x, y := b.asPicked(yes), b.asPicked(no)
	if x != nil && y != nil && (yes.picked != nil || no.picked != nil || len(x.items) != len(y.items)) {
		if len(x.items) < len(y.items) {
			x, y = y, x
			opposite, err := b.apply(n.Label(), "Not", nil, condition)
			if err != nil {
				return nil, err
			}
			condition = opposite[0]
		}
		short := len(y.items)
		if !slices.Equal(x.items[:short], y.items) || !slices.Equal(x.keep[:short], y.keep) {
			return nil, refuse
		}
		out := &picked{slices.Clone(x.items), slices.Clone(x.keep)}
		for i := short; i < len(out.items); i++ {
			if out.keep[i] == nil {
				out.keep[i] = condition
				continue
			}
			both, err := b.apply(n.Label(), "And", nil, out.keep[i], condition)
			if err != nil {
				return nil, err
			}
			out.keep[i] = both[0]
		}
		return &value{head: graph.Absent, picked: out}, nil
	}
	c := &call{builder: b, node: n, in: []*value{yes, no}}
	kind, shape, err := c.shape(0)
	if err != nil {
		return nil, err
	}
	other, otherShape, err := c.shape(1)
	if err != nil {
		return nil, err
	}
	if kind != other || !slices.Equal(shape, otherShape) {
		return nil, refuse
	}
	out, err := b.apply(n.Label(), "Where", nil, condition, yes, no)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// asPicked returns v as a vector of which each row has all items, if it is a constant vector
// of whole numbers. Otherwise it returns v.picked.
func (b *builder) asPicked(v *value) *picked {
	if v.picked != nil || v.list || v.kept != nil || v.trace != nil {
		return v.picked
	}
	if v.tensor != nil {
		if v.tensor.Type.Floating() || len(v.tensor.Dims) != 1 || v.tensor.Dims[0] > maxIterations || b.load(v, "") != nil {
			return nil
		}
	}
	t := b.head.Values[v.head].Constant
	if t == nil || t.Type != graph.Int || len(t.Shape) != 1 {
		return nil
	}
	return &picked{t.Ints, make([]*value, len(t.Ints))}
}

// applyPicked applies s to inputs of which at least one is a vector that has only some of its
// items in a row, or rows that such a vector chose.
func (b *builder) applyPicked(s *step) ([]*value, error) {
	refuse := fault.Inputf("node %s (%s): its input has as many elements as ids of the row meet a condition, which this operator does not take: expected a sum, mean or maximum of the rows that such ids choose, as EmbeddingBag with padding_idx has", wire.Quote(s.name), s.op)
	if slices.Contains(s.inputs, nil) {
		return nil, refuse
	}
	first := s.inputs[0]
	axis, _ := s.attributes["axis"].(int64)
	switch {
	case s.op == "Concat" && axis == 0:
		all := &picked{}
		for _, v := range s.inputs {
			p := b.asPicked(v)
			if p == nil {
				return nil, refuse
			}
			if b.listed += len(p.items); b.listed > maxListed {
				return nil, fault.Inputf("node %s (%s): the lists of the graph have more than %d values together", wire.Quote(s.name), s.op, maxListed)
			}
			all.items, all.keep = append(all.items, p.items...), append(all.keep, p.keep...)
		}
		return []*value{{head: graph.Absent, picked: all}}, nil
	case s.op == "Cast" && first.picked != nil:
		return []*value{first}, nil
	case (s.op == "Size" || s.op == "Shape" && len(s.attributes) == 0) && first.picked != nil:
		mask, err := b.mask(s.name, first.picked.keep)
		if err != nil {
			return nil, err
		}
		return b.count(s, mask, map[string]int64{"Size": 0, "Shape": 1}[s.op], int64(wire.Int64))
	case s.op == "Gather" && axis == 0 && len(s.inputs) == 2 && first.picked == nil && first.kept == nil:
		index := *s.inputs[1]
		keep := index.kept
		if index.picked != nil {
			keep, index = index.picked.keep, *b.ints(index.picked.items...)
		}
		index.kept = nil
		out, err := b.apply(s.name, s.op, s.attributes, first, &index)
		if err != nil {
			return nil, err
		}
		rows := *out[0]
		rows.kept = keep
		return []*value{&rows}, nil
	case first.kept != nil && len(s.inputs) == 2 && (s.op == "ReduceSum" || s.op == "ReduceMean" || s.op == "ReduceMax"):
		axes := b.asPicked(s.inputs[1])
		if axes == nil || !slices.Equal(axes.items, []int64{0}) || s.inputs[1].picked != nil {
			return nil, refuse
		}
		return b.reduceKept(s, first)
	}
	return nil, refuse
}

// mask returns the truth values keep as a vector.
func (b *builder) mask(name string, keep []*value) (*value, error) {
	elements := make([]*element, len(keep))
	for i, v := range keep {
		switch {
		case v == nil:
			elements[i] = &element{kind: graph.Bool, constant: graph.NewBools([]bool{true})}
		case v.trace != nil && len(v.trace.elements) == 1:
			elements[i] = v.trace.elements[0]
		default:
			elements = nil
		}
		if elements == nil {
			break
		}
	}
	if len(elements) > 0 {
		if v, err := b.together(name, elements); v != nil || err != nil {
			return v, err
		}
	}
	parts := make([]*value, len(keep))
	for i, v := range keep {
		if v == nil {
			v = inHead(b.head.AddConstant(graph.NewBools([]bool{true})))
		}
		part, err := b.apply(name, "Reshape", nil, v, b.ints(1))
		if err != nil {
			return nil, err
		}
		parts[i] = part[0]
	}
	out, err := b.apply(name, "Concat", graph.Attributes{"axis": int64(0)}, parts...)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// together returns a vector of elements that are all computed in the same way, by operators
// on vectors. It returns nil if they are not.
func (b *builder) together(name string, list []*element) (*value, error) {
	first := list[0]
	plain, constant := true, true
	for _, e := range list {
		plain, constant = plain && e.plain(), constant && e.constant != nil
		if e.kind != first.kind || e.size > freeOperators {
			return nil, nil
		}
	}
	switch {
	case plain:
		return &value{head: graph.Absent, trace: &trace{kind: first.kind, shape: []int{len(list)}, elements: list}}, nil
	case constant:
		t := &graph.Tensor{Type: first.kind, Shape: []int{len(list)}}
		for _, e := range list {
			t.Floats, t.Ints, t.Bools = append(t.Floats, e.constant.Floats...), append(t.Ints, e.constant.Ints...), append(t.Bools, e.constant.Bools...)
		}
		return inHead(b.head.AddConstant(t)), nil
	}
	for _, e := range list {
		if e.op == "" || e.op == "Gather" || e.op != first.op || len(e.arguments) != len(first.arguments) || !reflect.DeepEqual(e.attributes, first.attributes) {
			return nil, nil
		}
	}
	arguments := make([]*value, len(first.arguments))
	for i := range arguments {
		parts := make([]*element, len(list))
		for k, e := range list {
			if parts[k] = e.arguments[i]; parts[k] == nil {
				return nil, nil
			}
		}
		v, err := b.together(name, parts)
		if v == nil || err != nil {
			return nil, err
		}
		arguments[i] = v
	}
	out, err := b.apply(name, first.op, first.attributes, arguments...)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// count returns the number of truth values of a vector that hold.
func (b *builder) count(s *step, mask *value, keepdims, to int64) ([]*value, error) {
	ones, err := b.apply(s.name, "Cast", graph.Attributes{"to": to}, mask)
	if err != nil {
		return nil, err
	}
	return b.apply(s.name, "ReduceSum", graph.Attributes{"keepdims": keepdims}, ones[0], b.ints(0))
}

// reduceKept reduces those of the rows v that a row of data has. The result for no rows is 0, or
// the smallest number if s is a maximum.
func (b *builder) reduceKept(s *step, v *value) ([]*value, error) {
	rows := *v
	rows.kept = nil
	mask, err := b.mask(s.name, v.kept)
	if err != nil {
		return nil, err
	}
	c := &call{builder: b, node: &wire.Node{Name: s.name, Op: s.op}, in: []*value{&rows}}
	kind, shape, err := c.shape(0)
	if err != nil {
		return nil, err
	}
	if kind != graph.Float || len(shape) == 0 {
		return nil, fault.Inputf("node %s (%s): it reduces values of type %v, expected rows of a table", wire.Quote(s.name), s.op, kind)
	}
	column := make([]int64, len(shape))
	for i := range column {
		column[i] = 1
	}
	column[0] = int64(shape[0])
	tall, err := b.apply(s.name, "Reshape", nil, mask, b.ints(column...))
	if err != nil {
		return nil, err
	}
	otherwise, op := float32(0), "ReduceSum"
	if s.op == "ReduceMax" {
		otherwise, op = -math.MaxFloat32, s.op
	}
	kept, err := b.apply(s.name, "Where", nil, tall[0], &rows, inHead(b.head.AddConstant(graph.NewFloats([]float32{otherwise}))))
	if err != nil {
		return nil, err
	}
	out, err := b.apply(s.name, op, s.attributes, kept[0], s.inputs[1])
	if err != nil || s.op != "ReduceMean" {
		return out, err
	}
	number, err := b.count(s, mask, 0, int64(wire.Float))
	if err != nil {
		return nil, err
	}
	atLeast, err := b.apply(s.name, "Max", nil, number[0], inHead(b.head.AddConstant(graph.NewFloats([]float32{1}))))
	if err != nil {
		return nil, err
	}
	return b.apply(s.name, "Div", nil, out[0], atLeast[0])
}
