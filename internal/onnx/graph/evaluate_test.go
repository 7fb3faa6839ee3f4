package graph_test

import (
	"math"
	"strings"
	"testing"

	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/graph/graphtest"
)

// Evaluate is right where ONNX's vectors are silent: for whole numbers, casts that do not
// fit, and numbers at the limits of float32.
func TestEvaluate(t *testing.T) {
	ints := func(list ...int64) *graph.Tensor { return graph.NewInts(list, len(list)) }
	floats := func(list ...float32) *graph.Tensor { return graph.NewFloats(list, len(list)) }
	bools := func(list ...bool) *graph.Tensor { return graph.NewBools(list, len(list)) }
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	to := func(onnx int64) graph.Attributes { return graph.Attributes{"to": onnx} }
	for _, test := range []struct {
		op         string
		attributes graph.Attributes
		inputs     []*graph.Tensor
		want       *graph.Tensor
	}{
		{"Cast", to(7), []*graph.Tensor{floats(nan, inf, -inf, 1e20, -2.9)}, ints(0, math.MaxInt64, math.MinInt64, math.MaxInt64, -2)},
		{"Cast", to(2), []*graph.Tensor{ints(256, -1)}, ints(0, 255)},
		{"Cast", to(3), []*graph.Tensor{ints(128)}, ints(-128)},
		{"Cast", to(4), []*graph.Tensor{ints(-1)}, ints(1<<16 - 1)},
		{"Cast", to(5), []*graph.Tensor{ints(1 << 15)}, ints(-1 << 15)},
		{"Cast", to(6), []*graph.Tensor{ints(1 << 31)}, ints(-1 << 31)},
		{"Cast", to(12), []*graph.Tensor{ints(-1)}, ints(1<<32 - 1)},
		{"Cast", to(13), []*graph.Tensor{ints(1)}, ints(1)},
		{"Cast", to(9), []*graph.Tensor{floats(0, nan, .5)}, bools(false, true, true)},
		{"Cast", to(11), []*graph.Tensor{bools(false, true)}, floats(0, 1)},
		{"Cast", to(10), []*graph.Tensor{floats(1e30)}, floats(1e30)},
		{"Cast", to(9), []*graph.Tensor{bools(false, true)}, bools(false, true)},
		{"Constant", graph.Attributes{"value_float": float32(2)}, nil, graph.NewFloats([]float32{2})},
		{"Constant", graph.Attributes{"value_floats": []float32{2, 3}}, nil, floats(2, 3)},
		{"Constant", graph.Attributes{"value_int": int64(2)}, nil, graph.NewInts([]int64{2})},
		{"Constant", graph.Attributes{"value_ints": []int64{2, 3}}, nil, ints(2, 3)},
		{"Add", nil, []*graph.Tensor{ints(math.MaxInt64), ints(1)}, ints(math.MinInt64)},
		{"Div", nil, []*graph.Tensor{ints(-7, 7, math.MinInt64), ints(2, -2, -1)}, ints(-3, -3, math.MinInt64)},
		{"Div", nil, []*graph.Tensor{floats(1, -1, 0), floats(0, 0, 0)}, floats(inf, -inf, nan)},
		{"Mod", nil, []*graph.Tensor{ints(-7, 7, 6), ints(3, -3, 3)}, ints(2, -2, 0)},
		{"Mod", graph.Attributes{"fmod": int64(1)}, []*graph.Tensor{ints(-7, 7), ints(3, -3)}, ints(-1, 1)},
		{"Pow", nil, []*graph.Tensor{ints(3, -2, 2), ints(40, 3, -1)}, ints(-6289078614652622815, -8, 0)},
		{"Pow", nil, []*graph.Tensor{floats(2, 9), ints(-1, 2)}, floats(.5, 81)},
		{"Neg", nil, []*graph.Tensor{ints(3, -4)}, ints(-3, 4)},
		{"Abs", nil, []*graph.Tensor{ints(3, -4)}, ints(3, 4)},
		{"Sign", nil, []*graph.Tensor{floats(3, -4, 0)}, floats(1, -1, 0)},
		{"Relu", nil, []*graph.Tensor{floats(nan, -inf, inf)}, floats(nan, 0, inf)},
		{"Clip", nil, []*graph.Tensor{floats(nan, -3, 3), graph.NewFloats([]float32{2}), graph.NewFloats([]float32{1})}, floats(nan, 1, 1)},
		{"Max", nil, []*graph.Tensor{floats(nan, 1, 2), floats(1, nan, 3)}, floats(nan, nan, 3)},
		{"Equal", nil, []*graph.Tensor{bools(true, false), bools(true, true)}, bools(true, false)},
		{"Equal", nil, []*graph.Tensor{floats(nan, 1), floats(nan, 1)}, bools(false, true)},
		{"Sigmoid", nil, []*graph.Tensor{floats(-1000, 1000, 0)}, floats(0, 1, .5)},
		{"Softplus", nil, []*graph.Tensor{floats(-1000, 1000)}, floats(0, 1000)},
		{"Softmax", nil, []*graph.Tensor{floats(-1e38, 3e38, 3e38)}, floats(0, .5, .5)},
		{"LogSoftmax", nil, []*graph.Tensor{floats(0, -1000)}, floats(0, -1000)},
		{"Gelu", nil, []*graph.Tensor{floats(-100, 100)}, floats(0, 100)},
		{"ReduceSum", nil, []*graph.Tensor{ints(1, 2, 3)}, ints(6)},
		{"ReduceL1", nil, []*graph.Tensor{ints(1, -2, 3)}, ints(6)},
		{"ReduceSumSquare", nil, []*graph.Tensor{ints(1, -2, 3)}, ints(14)},
		{"ReduceMax", nil, []*graph.Tensor{ints(-1, -2)}, ints(-1)},
		{"ReduceMin", nil, []*graph.Tensor{ints(-1, -2)}, ints(-2)},
		{"ReduceMax", nil, []*graph.Tensor{floats()}, floats(-inf)},
		{"ReduceMean", nil, []*graph.Tensor{floats(16777216, 1, 1)}, floats(16777218. / 3)},
		{"ReduceLogSumExp", nil, []*graph.Tensor{floats(1000, 1000)}, floats(1000 + math.Ln2)},
		{"CumSum", nil, []*graph.Tensor{ints(1, 2, 3), ints(0)}, ints(1, 3, 6)},
		{"EyeLike", graph.Attributes{"k": int64(math.MinInt64)}, []*graph.Tensor{graph.NewInts([]int64{5}, 1, 1)}, graph.NewInts([]int64{0}, 1, 1)},
		{"EyeLike", graph.Attributes{"dtype": int64(9)}, []*graph.Tensor{graph.NewInts([]int64{5}, 1, 1)}, graph.NewBools([]bool{true}, 1, 1)},
		{"Slice", nil, []*graph.Tensor{ints(0, 1, 2, 3), ints(math.MaxInt64), ints(math.MinInt64), ints(0), ints(math.MinInt64)}, ints(3)},
		{"Slice", nil, []*graph.Tensor{ints(0, 1, 2, 3), ints(1), ints(math.MaxInt64), ints(0), ints(2)}, ints(1, 3)},
		{"Slice", nil, []*graph.Tensor{ints(0, 1, 2, 3), ints(3), ints(1)}, graph.NewInts([]int64{}, 0)},
		{"Einsum", graph.Attributes{"equation": "ii->i"}, []*graph.Tensor{graph.NewFloats([]float32{1, 2, 3, 4}, 2, 2)}, floats(1, 4)},
		{"Einsum", graph.Attributes{"equation": ",->"}, []*graph.Tensor{graph.NewFloats([]float32{2}), graph.NewFloats([]float32{3})}, graph.NewFloats([]float32{6})},
	} {
		out, err := graph.Evaluate(test.op, test.attributes, test.inputs)
		if err != nil {
			t.Errorf("%s: %v", test.op, err)
			continue
		}
		if err := graphtest.Compare(out[0], test.want, 1e-7, 0); err != nil {
			t.Errorf("%s: %v", test.op, err)
		}
	}
}

// Sums are computed in float64 and rounded once.
func TestRounding(t *testing.T) {
	const n = 1 << 12
	list := make([]float32, n)
	ones := make([]float32, n)
	sum := 0.0
	for i := range list {
		list[i], ones[i] = 1/float32(i+1), 1
		sum += float64(list[i])
	}
	want := float32(sum)
	row, column := graph.NewFloats(list, 1, n), graph.NewFloats(ones, n, 1)
	for _, test := range []struct {
		op         string
		attributes graph.Attributes
		inputs     []*graph.Tensor
	}{
		{"ReduceSum", nil, []*graph.Tensor{row}},
		{"MatMul", nil, []*graph.Tensor{row, column}},
		{"Gemm", nil, []*graph.Tensor{row, column}},
		{"Einsum", graph.Attributes{"equation": "ab,bc->ac"}, []*graph.Tensor{row, column}},
	} {
		out, err := graph.Evaluate(test.op, test.attributes, test.inputs)
		if err != nil {
			t.Fatal(err)
		}
		if out[0].Floats[0] != want {
			t.Errorf("%s: %v, expected %v", test.op, out[0].Floats[0], want)
		}
	}
}

// Run refuses inputs that are not those of the graph, and names the node that fails.
func TestRunRefuses(t *testing.T) {
	g := &graph.Graph{}
	x := g.AddInput("x", graph.Int, []int{2})
	out, err := g.Add(graph.Node{Name: "n", Op: "Gather", Inputs: []graph.Value{g.AddConstant(graph.NewFloats([]float32{1}, 1)), x}})
	if err != nil {
		t.Fatal(err)
	}
	g.Output = out[0]
	for _, test := range []struct {
		inputs  []*graph.Tensor
		message string
	}{
		{nil, "0 inputs, expected 1"},
		{[]*graph.Tensor{nil}, `input "x" is missing`},
		{[]*graph.Tensor{graph.NewInts([]int64{1}, 1)}, `input "x" is int64[1], expected int64[2]`},
		{[]*graph.Tensor{graph.NewFloats([]float32{1, 2}, 2)}, `input "x" is float[2], expected int64[2]`},
		{[]*graph.Tensor{graph.NewInts([]int64{1}, 2)}, "1 ints"},
		{[]*graph.Tensor{graph.NewInts([]int64{0, 1}, 2)}, `node "n" (Gather): index 1`},
	} {
		if _, err := g.Run(test.inputs); err == nil || !strings.Contains(err.Error(), test.message) {
			t.Errorf("%v, expected %q", err, test.message)
		}
	}
	g.Output = 99
	if _, err := g.Run([]*graph.Tensor{graph.NewInts([]int64{0, 0}, 2)}); err == nil {
		t.Error("a graph without an output runs")
	}
}
