package dissect

import (
	"slices"

	"shaver/internal/onnx/graph"
)

// functions is the set of operators that, in addition to those in elementwise, may compute the
// row of a table from ids and numbers.
var functions = map[string]bool{"Log": true, "Exp": true, "Sqrt": true, "Pow": true, "Reciprocal": true, "Sign": true}

// retrace returns the elements of a value of the head that depends on inputs and not on tables.
// It returns nil if another operator computed it than those that compute or move elements, and
// sums of whole numbers.
func (b *builder) retrace(v graph.Value) *trace {
	if t, ok := b.retraced[v]; ok {
		return t
	}
	for ; b.indexed < len(b.head.Nodes); b.indexed++ {
		for _, out := range b.head.Nodes[b.indexed].Outputs {
			b.producers[out] = b.indexed
		}
	}
	t := b.retraceOnce(v)
	b.retraced[v] = t
	return t
}

func (b *builder) retraceOnce(v graph.Value) *trace {
	info := b.head.Values[v]
	count, err := graph.Count(info.Shape)
	if err != nil || count > maxTraced || !b.trace(count, 1) {
		return nil
	}
	t := &trace{kind: info.Type, shape: info.Shape}
	if info.Constant != nil {
		t.elements = newConstantElements(info.Constant)
		return t
	}
	i, ok := b.producers[v]
	if !ok {
		at := slices.IndexFunc(b.numbers, func(d *number) bool { return d.value == v })
		if at < 0 {
			return nil
		}
		t.elements = []*element{b.numbers[at].element}
		return t
	}
	n := b.head.Nodes[i]
	inputs := make([]*trace, len(n.Inputs))
	for k, in := range n.Inputs {
		if in == graph.Absent {
			continue
		}
		if inputs[k] = b.retrace(in); inputs[k] == nil {
			return nil
		}
	}
	out := slices.Index(n.Outputs, v)
	if b.head.Relabel(&n, func(output, input, at int) {
		switch {
		case output != out:
		case input == graph.Nothing:
			t.elements = append(t.elements, &element{kind: t.kind, constant: zeroOf(t.kind)})
		default:
			t.elements = append(t.elements, inputs[input].elements[at])
		}
	}) {
		return t
	}
	switch {
	case !b.trace(count, 3) || len(n.Outputs) != 1:
		return nil
	case elementwise[n.Op] || functions[n.Op]:
		places := make([][]int64, len(inputs))
		for k, in := range inputs {
			if in == nil {
				continue
			}
			if places[k], err = broadcast(in.shape, t.shape); err != nil {
				return nil
			}
		}
		for at := range count {
			arguments := make([]*element, len(inputs))
			for k, in := range inputs {
				if in != nil {
					arguments[k] = in.elements[places[k][at]]
				}
			}
			t.elements = append(t.elements, newComputedElement(t.kind, n.Op, n.Attributes, arguments))
		}
		return t
	case n.Op == "ReduceSum" && inputs[0] != nil:
		return b.retraceSum(t, &n, inputs)
	}
	return nil
}

// retraceSum sets the elements of t, which n sums. Sums of numbers that may not be whole are
// refused, because they depend on the order.
func (b *builder) retraceSum(t *trace, n *graph.Node, inputs []*trace) *trace {
	x := inputs[0]
	exact := func(e *element) bool { // builder.position keeps one term
		return e.op == "Cast" && e.arguments[0].kind != graph.Float || e.op == "Where" && e.arguments[2].constant != nil && e.arguments[2].constant.Floats[0] == 0
	}
	if x.kind != graph.Int && slices.ContainsFunc(x.elements, func(e *element) bool { return !exact(e) }) {
		return nil
	}
	reduced := make([]bool, len(x.shape))
	all := true
	if len(n.Inputs) > 1 && n.Inputs[1] != graph.Absent {
		axes := b.head.Values[n.Inputs[1]].Constant
		if axes == nil || axes.Type != graph.Int {
			return nil
		}
		for _, a := range axes.Ints {
			if a < 0 {
				a += int64(len(x.shape))
			}
			if a < 0 || a >= int64(len(x.shape)) {
				return nil
			}
			reduced[a], all = true, false
		}
	}
	if keep, _ := n.Attributes["noop_with_empty_axes"].(int64); all && keep != 0 || !b.trace(len(x.elements), 3) {
		return nil
	}
	count, _ := graph.Count(t.shape)
	t.elements = make([]*element, count)
	for at, e := range x.elements {
		to, step, rest := 0, 1, at
		for a := len(x.shape) - 1; a >= 0; a-- {
			index := rest % x.shape[a]
			rest /= x.shape[a]
			if !reduced[a] && !all {
				to += index * step
				step *= x.shape[a]
			}
		}
		if t.elements[to] == nil {
			t.elements[to] = e
		} else {
			t.elements[to] = newComputedElement(t.kind, "Add", nil, []*element{t.elements[to], e})
		}
	}
	if slices.Contains(t.elements, nil) {
		return nil
	}
	return t
}
