package graph_test

import (
	"math"
	"testing"

	"shaver/internal/onnx/graph"
)

// The bounds of an element follow from the functions that it is computed with.
func TestBounds(t *testing.T) {
	inf := math.Inf(1)
	unit, anything := graph.Interval{Low: 0, High: 1}, graph.Interval{Low: -inf, High: inf}
	type attributes = graph.Attributes
	for name, c := range map[string]struct {
		build func(b *builder) graph.Value // of x [1, 2], p = Sigmoid(x) and softmax(x)
		want  graph.Interval
	}{
		"input":   {func(b *builder) graph.Value { return b.x }, anything},
		"sigmoid": {func(b *builder) graph.Value { return b.p }, unit},
		"mean":    {func(b *builder) graph.Value { return b.do("ReduceMean", nil, b.p) }, unit},
		"stack": {func(b *builder) graph.Value {
			return b.do("ReduceMean", nil, b.do("Concat", attributes{"axis": int64(0)}, b.p, b.softmax))
		}, unit},
		"sum":         {func(b *builder) graph.Value { return b.do("ReduceSum", nil, b.p) }, graph.Interval{Low: 0, High: 2}},
		"mean of any": {func(b *builder) graph.Value { return b.do("ReduceMean", nil, b.x) }, anything},
		"weights":     {func(b *builder) graph.Value { return b.do("ReduceSum", nil, b.do("Mul", nil, b.p, b.floats(.75, .25))) }, unit},
		"matrix":      {func(b *builder) graph.Value { return b.do("MatMul", nil, b.p, b.column(.75, .25)) }, unit},
		"vector":      {func(b *builder) graph.Value { return b.do("MatMul", nil, b.p, b.floats(.75, .25)) }, unit},
		"einsum": {func(b *builder) graph.Value {
			return b.do("Einsum", attributes{"equation": "bk,k->b"}, b.p, b.floats(.75, .25))
		}, unit},
		"layer": {func(b *builder) graph.Value {
			return b.do("Gemm", attributes{"alpha": float32(2)}, b.p, b.column(3, -1), b.floats(-1))
		}, graph.Interval{Low: -3, High: 5}},
		"layer of any":     {func(b *builder) graph.Value { return b.do("Gemm", nil, b.x, b.column(3, -1), b.floats(-1)) }, anything},
		"without a weight": {func(b *builder) graph.Value { return b.do("MatMul", nil, b.x, b.column(0, 0)) }, graph.Interval{}},
		"attention":        {func(b *builder) graph.Value { return b.do("ReduceSum", nil, b.do("Mul", nil, b.softmax, b.p)) }, unit},
		"attention matrix": {func(b *builder) graph.Value {
			return b.do("MatMul", nil, b.softmax, b.do("Transpose", nil, b.do("Clip", nil, b.x, b.number(-1), b.number(2))))
		}, graph.Interval{Low: -1, High: 2}},
		"attention to any": {func(b *builder) graph.Value { return b.do("ReduceSum", nil, b.do("Mul", nil, b.softmax, b.x)) }, anything},
		"one class twice": {func(b *builder) graph.Value {
			first := b.do("Gather", attributes{"axis": int64(1)}, b.softmax, b.g.AddConstant(graph.NewInts([]int64{0, 0}, 2)))
			return b.do("ReduceSum", nil, b.do("Mul", nil, first, b.p))
		}, graph.Interval{Low: 0, High: 2}},
		"logistic": {func(b *builder) graph.Value {
			return b.do("Div", nil, b.number(1), b.do("Add", nil, b.number(1), b.do("Exp", nil, b.do("Neg", nil, b.x))))
		}, unit},
		"tanh": {func(b *builder) graph.Value {
			return b.do("Div", nil, b.do("Add", nil, b.do("Tanh", nil, b.x), b.number(1)), b.number(2))
		}, unit},
		"normal": {func(b *builder) graph.Value {
			return b.do("Mul", nil, b.number(.5), b.do("Add", nil, b.number(1), b.do("Erf", nil, b.x)))
		}, unit},
		"odds": {func(b *builder) graph.Value {
			return b.do("Div", nil, b.p, b.do("Add", nil, b.p, b.do("Mul", nil, b.do("Sub", nil, b.number(1), b.p), b.number(3))))
		}, unit},
		"softsign": {func(b *builder) graph.Value {
			return b.do("Div", nil, b.x, b.do("Add", nil, b.number(1), b.do("Abs", nil, b.x)))
		}, graph.Interval{Low: -1, High: 1}},
		"ratio":      {func(b *builder) graph.Value { return b.do("Div", nil, b.p, b.do("Add", nil, b.softmax, b.p)) }, unit},
		"no portion": {func(b *builder) graph.Value { return b.do("Div", nil, b.p, b.do("Add", nil, b.softmax, b.number(0))) }, graph.Interval{Low: 0, High: inf}},
		"complement": {func(b *builder) graph.Value { return b.do("Sub", nil, b.number(1), b.p) }, unit},
		"clip":       {func(b *builder) graph.Value { return b.do("Clip", nil, b.p, b.number(.25), b.number(.75)) }, graph.Interval{Low: .25, High: .75}},
		"half clip":  {func(b *builder) graph.Value { return b.do("Clip", nil, b.x, graph.Absent, b.number(.75)) }, graph.Interval{Low: -inf, High: .75}},
		"no number": {func(b *builder) graph.Value {
			return b.do("Where", nil, b.do("IsNaN", nil, b.p), b.number(.5), b.p)
		}, unit},
		"no infinity": {func(b *builder) graph.Value {
			large := b.do("And", nil, b.do("IsInf", nil, b.p), b.do("Greater", nil, b.p, b.number(0)))
			return b.do("Where", nil, large, b.number(math.MaxFloat32), b.p)
		}, unit},
		"truth": {func(b *builder) graph.Value {
			some := b.do("Cast", attributes{"to": int64(9)}, b.do("Clip", nil, b.x, b.number(.25), b.number(.75)))
			return b.do("Cast", attributes{"to": int64(1)}, some)
		}, unit},
		"infinity": {func(b *builder) graph.Value { return b.do("Where", nil, b.do("IsInf", nil, b.x), b.number(2), b.p) }, graph.Interval{Low: 0, High: 2}},
		"choice": {func(b *builder) graph.Value {
			return b.do("Cast", attributes{"to": int64(1)}, b.do("Greater", nil, b.x, b.number(.5)))
		}, unit},
		"logarithm":  {func(b *builder) graph.Value { return b.do("Exp", nil, b.do("Log", nil, b.p)) }, unit},
		"square":     {func(b *builder) graph.Value { return b.do("Mul", nil, b.x, b.x) }, graph.Interval{Low: 0, High: inf}},
		"even power": {func(b *builder) graph.Value { return b.do("Pow", nil, b.do("Tanh", nil, b.x), b.number(2)) }, unit},
		"odd power":  {func(b *builder) graph.Value { return b.do("Pow", nil, b.do("Tanh", nil, b.x), b.number(3)) }, graph.Interval{Low: -1, High: 1}},
		"product":    {func(b *builder) graph.Value { return b.do("ReduceProd", nil, b.p) }, unit},
		"largest": {func(b *builder) graph.Value {
			return b.do("ReduceMax", nil, b.do("Clip", nil, b.x, b.number(-1), b.number(2)))
		}, graph.Interval{Low: -1, High: 2}},
		"smaller": {func(b *builder) graph.Value { return b.do("Min", nil, b.x, b.p) }, graph.Interval{Low: -inf, High: 1}},
		"sorted": {func(b *builder) graph.Value {
			return b.do("TopK", nil, b.p, b.g.AddConstant(graph.NewInts([]int64{1}, 1)))
		}, unit},
		"gate": {func(b *builder) graph.Value {
			return b.do("Add", nil, b.do("Mul", nil, b.p, b.x), b.do("Mul", nil, b.do("Sub", nil, b.number(1), b.p), b.do("Tanh", nil, b.x)))
		}, anything},
	} {
		b := newBuilder(t)
		if got := b.g.Bounds(c.build(b), 0); got != c.want {
			t.Errorf("%s: %v, expected %v", name, got, c.want)
		}
	}
}

// builder builds a graph of the input x.
type builder struct {
	t             *testing.T
	g             *graph.Graph
	x, p, softmax graph.Value
}

func newBuilder(t *testing.T) *builder {
	b := &builder{t: t, g: &graph.Graph{}}
	b.x = b.g.AddInput("x", graph.Float, []int{1, 2})
	b.p, b.softmax = b.do("Sigmoid", nil, b.x), b.do("Softmax", nil, b.x)
	return b
}

// do adds a node, and returns its first output.
func (b *builder) do(op string, attributes graph.Attributes, inputs ...graph.Value) graph.Value {
	b.t.Helper()
	out, err := b.g.Add(graph.Node{Name: op, Op: op, Inputs: inputs, Attributes: attributes})
	if err != nil {
		b.t.Fatal(err)
	}
	return out[0]
}

func (b *builder) number(x float32) graph.Value {
	return b.g.AddConstant(graph.NewFloats([]float32{x}))
}

func (b *builder) floats(list ...float32) graph.Value {
	return b.g.AddConstant(graph.NewFloats(list, len(list)))
}

func (b *builder) column(list ...float32) graph.Value {
	return b.g.AddConstant(graph.NewFloats(list, len(list), 1))
}

// A deep graph and a wide one have bounds without much work.
func TestBoundsOfMuch(t *testing.T) {
	b := newBuilder(t)
	y := b.p
	for range 100000 {
		y = b.do("Sin", nil, y)
	}
	b.g.Bounds(y, 0)
	wide := b.do("MatMul", nil, b.do("Sigmoid", nil, b.do("MatMul", nil, b.x, b.g.AddConstant(graph.NewFloats(make([]float32, 2<<19), 2, 1<<19)))),
		b.g.AddConstant(graph.NewFloats(make([]float32, 1<<19), 1<<19, 1)))
	if got := b.g.Bounds(wide, 0); got.Low > 0 || got.High < 0 {
		t.Errorf("%v", got)
	}
}
