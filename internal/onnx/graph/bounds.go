package graph

import (
	"math"
	"slices"
)

// Limits of what Bounds follows. Beyond them an element can be any number.
const (
	maxBoundsWork  = 1 << 20 // elements
	maxBoundsDepth = 1000    // nodes
)

// Bounds returns an interval of all numbers that an element of v can be for any inputs of g,
// except by rounding and where a result is not finite. It may be wider than needed. A truth value
// counts as 0 or 1. The interval is that of all numbers if v is of type Int and depends on the row.
func (g *Graph) Bounds(v Value, element int) Interval {
	b := &bounds{Graph: g, producers: map[Value]*Node{}, known: map[place]Interval{}, left: maxBoundsWork}
	for i := range g.Nodes {
		for _, out := range g.Nodes[i].Outputs {
			b.producers[out] = &g.Nodes[i]
		}
	}
	return b.of(place{v, element})
}

// place is an element of a value.
type place struct {
	value   Value
	element int
}

// bounds computes intervals of elements in interval arithmetic.
type bounds struct {
	*Graph
	producers map[Value]*Node
	known     map[place]Interval
	left      int // elements that may still be followed
	depth     int // nodes between the element that is asked for and the present one
}

// of returns the interval of p.
func (b *bounds) of(p place) Interval {
	info := &b.Values[p.value]
	switch c := info.Constant; {
	case c != nil && info.Type == Bool && c.Bools[p.element]:
		return Interval{1, 1}
	case c != nil && info.Type == Bool:
		return Interval{}
	case c != nil:
		return around(c.Number(p.element))
	case info.Type == Int || b.producers[p.value] == nil || b.depth == maxBoundsDepth:
		return b.unknown(p.value)
	}
	if x, ok := b.known[p]; ok {
		return x
	}
	if b.left--; b.left < 0 {
		return b.unknown(p.value)
	}
	b.depth++
	x := b.compute(p).meet(b.unknown(p.value))
	b.depth--
	b.known[p] = x
	return x
}

// unknown returns the interval of all elements of the type of v.
func (b *bounds) unknown(v Value) Interval {
	if b.Values[v].Type == Bool {
		return Interval{0, 1}
	}
	return anything
}

// compute returns the interval of p, which a node computes.
func (b *bounds) compute(p place) Interval {
	if from, ok := b.moved(p); ok {
		if from.value == Absent {
			return Interval{}
		}
		return b.of(from)
	}
	n := b.producers[p.value]
	c, err := newCall(n.Op, n.Attributes, b.infos(n.Inputs))
	if err != nil {
		return anything
	}
	if _, ok := reductions[n.Op]; ok {
		return b.reduce(n, c, p)
	}
	var in []place
	switch n.Op {
	case "Softmax":
		return Interval{0, 1}
	case "LogSoftmax":
		return Interval{math.Inf(-1), 0}
	case "Gather", "GatherElements", "GatherND", "TopK":
		return b.any(n.Inputs[0])
	case "MatMul", "Gemm", "Einsum":
		return b.product(n, c, p)
	case "Clip":
		for i, v := range n.Inputs {
			element := 0
			if i == 0 {
				element = p.element
			}
			in = append(in, place{v, element})
		}
	default:
		if _, ok := elementwise[n.Op]; !ok && n.Op != "Where" && n.Op != "Cast" {
			return anything
		}
		for i := range n.Inputs {
			in = append(in, b.operand(n, i, p))
		}
	}
	return b.elementwise(n, in)
}

// operand returns the element of an input of n that broadcasting reads for p, an element of
// n. An input that is absent has none.
func (b *bounds) operand(n *Node, input int, p place) place {
	v := n.Inputs[input]
	if v == Absent {
		return place{value: v}
	}
	shape := b.Values[p.value].Shape
	return place{v, offset(p.element, shape, broadcastStrides(b.Values[v].Shape, shape))}
}

// offset returns where a tensor that is read with some strides has the given element of a
// shape.
func offset(element int, shape, strides []int) (at int) {
	for axis := len(shape) - 1; axis >= 0; axis-- {
		at += element % shape[axis] * strides[axis]
		element /= shape[axis]
	}
	return at
}

// moved returns the element that p equals, if its node only moves elements. The value Absent
// means 0.
func (b *bounds) moved(p place) (from place, ok bool) {
	n := b.producers[p.value]
	if n == nil {
		return p, false
	}
	which, next := slices.Index(n.Outputs, p.value), 0
	from.value = Absent
	ok = b.Relabel(n, func(output, input, element int) {
		if output != which {
			return
		}
		if next == p.element && input != Nothing {
			from = place{n.Inputs[input], element}
		}
		next++
	})
	if n.Op == "Cast" && b.Values[n.Inputs[0]].Type == b.Values[p.value].Type {
		return place{n.Inputs[0], p.element}, true
	}
	b.left -= next
	return from, ok
}

// origin follows p over nodes that only move elements.
func (b *bounds) origin(p place) place {
	for b.left > 0 {
		from, ok := b.moved(p)
		if !ok || from.value == Absent {
			break
		}
		b.left--
		p = from
	}
	return p
}

// any returns the interval of all elements of v.
func (b *bounds) any(v Value) Interval {
	n := count(b.Values[v].Shape)
	if n == 0 {
		return anything
	}
	x := b.of(place{v, 0})
	for i := 1; i < n && x != anything && b.left > 0; i++ {
		x = x.join(b.of(place{v, i}))
	}
	if b.left <= 0 {
		return anything
	}
	return x
}

// monotone lists functions of a number that never fall, or never rise.
var monotone = []string{"Atan", "Ceil", "Erf", "Exp", "Floor", "HardSigmoid", "Log", "Neg", "Relu", "Round", "Sigmoid", "Sign", "Softplus", "Sqrt", "Tanh"}

// elementwise returns the interval of n for its inputs.
func (b *bounds) elementwise(n *Node, in []place) Interval {
	var x []Interval
	for _, p := range in {
		if p.value == Absent {
			x = append(x, anything)
			continue
		}
		x = append(x, b.of(p))
	}
	if slices.Contains(monotone, n.Op) {
		ends := x[0]
		if n.Op == "Log" || n.Op == "Sqrt" {
			ends = Interval{max(0, ends.Low), max(0, ends.High)}
		}
		out, err := Evaluate(n.Op, n.Attributes, []*Tensor{NewDoubles([]float64{ends.Low, ends.High}, 2)})
		if err != nil {
			return anything
		}
		return around(out[0].float(0), out[0].float(1))
	}
	fold := func(combine func(x, y Interval) Interval) Interval {
		sum := x[0]
		for _, y := range x[1:] {
			sum = combine(sum, y)
		}
		return sum
	}
	switch n.Op {
	case "Cast":
		if b.Values[n.Outputs[0]].Type == Float {
			return x[0]
		}
	case "Where":
		switch x[0] {
		case Interval{1, 1}:
			return x[1]
		case Interval{}:
			return x[2]
		}
		return x[1].join(x[2])
	case "IsInf": // a number may be infinite only if it has no bound
		if x[0].Low >= -math.MaxFloat32 && x[0].High <= math.MaxFloat32 {
			return Interval{}
		}
	case "And":
		return x[0].times(x[1])
	case "Add", "Sum":
		return fold(Interval.plus)
	case "Mean":
		return fold(Interval.plus).times(around(1 / float64(len(x))))
	case "Min":
		return fold(least)
	case "Max":
		return fold(greatest)
	case "Clip":
		if len(x) > 1 && in[1].value != Absent {
			x[0] = greatest(x[0], x[1])
		}
		if len(x) > 2 && in[2].value != Absent {
			x[0] = least(x[0], x[2])
		}
		return x[0]
	case "Sub":
		return x[0].minus(x[1])
	case "Mul":
		if b.origin(in[0]) == b.origin(in[1]) {
			return x[0].square()
		}
		return x[0].times(x[1])
	case "Div":
		if b.portion(in[0], in[1]) {
			return x[0].times(x[1].inverse()).meet(Interval{-1, 1})
		}
		return x[0].times(x[1].inverse())
	case "Reciprocal":
		return x[0].inverse()
	case "Pow":
		return x[0].power(x[1])
	case "Abs":
		return x[0].abs()
	case "Sin", "Cos":
		return Interval{-1, 1}
	}
	return anything
}

// portion reports whether y is the size of x plus a number that is not negative.
func (b *bounds) portion(x, y place) bool {
	x, y = b.origin(x), b.origin(y)
	n := b.producers[y.value]
	if n == nil || n.Op != "Add" {
		return false
	}
	for k := range n.Inputs {
		size := b.origin(b.operand(n, k, y))
		if abs := b.producers[size.value]; abs != nil && abs.Op == "Abs" {
			size = b.origin(place{abs.Inputs[0], size.element})
		} else if b.of(size).Low < 0 {
			continue
		}
		if size == x && b.of(b.operand(n, 1-k, y)).Low >= 0 {
			return true
		}
	}
	return false
}

// least returns the interval of the smaller one of a number of x and one of y.
func least(x, y Interval) Interval { return Interval{min(x.Low, y.Low), min(x.High, y.High)} }

// greatest returns the interval of the larger one of a number of x and one of y.
func greatest(x, y Interval) Interval { return Interval{max(x.Low, y.Low), max(x.High, y.High)} }
