package graph_test

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"shaver/internal/onnx/graph"
)

// A node that is wrong, or that would take too much memory or time, is refused with an
// error that names it. Little memory is allocated before.
func TestHostileNodes(t *testing.T) {
	ints := func(list ...int64) *graph.Tensor { return graph.NewInts(list, len(list)) }
	scalar := func(i int64) *graph.Tensor { return graph.NewInts([]int64{i}) }
	row := func(shape ...int) *graph.Tensor { return &graph.Tensor{Type: graph.Float, Shape: shape} } // depends on the row
	floats := func(shape ...int) *graph.Tensor {
		n := 1
		for _, size := range shape {
			n *= size
		}
		return graph.NewFloats(make([]float32, n), shape...)
	}
	const huge = 1 << 40
	for _, test := range []struct {
		op         string
		attributes graph.Attributes
		inputs     []*graph.Tensor
		message    string // a part of the error
	}{
		{"TreeEnsembleClassifier", nil, nil, "not supported"},
		{"Relu", nil, nil, "input 1 is missing"},
		{"Relu", nil, []*graph.Tensor{row(1), row(1)}, "2 inputs, expected at most 1"},
		{"Relu", graph.Attributes{"axis": int64(1)}, []*graph.Tensor{row(1)}, `unknown attribute "axis"`},
		{"Elu", graph.Attributes{"alpha": int64(1)}, []*graph.Tensor{row(1)}, "expected type f"},
		{"Elu", graph.Attributes{"alpha": nil}, []*graph.Tensor{row(1)}, "expected type f"},
		{"Elu", nil, []*graph.Tensor{ints(1)}, "int64, expected float"},
		{"Add", nil, []*graph.Tensor{row(2), row(3)}, "do not broadcast"},
		{"Add", nil, []*graph.Tensor{row(2), ints(1, 2)}, "int64, expected float"},
		{"Add", nil, []*graph.Tensor{row(2), {Type: graph.Float, Shape: []int{2}, Floats: []float32{1}}}, "1 floats"},
		{"Add", nil, []*graph.Tensor{row(2), {Type: graph.Float, Shape: []int{-2}, Floats: []float32{1}}}, "negative size"},
		{"Add", nil, []*graph.Tensor{row(2), {Type: 9, Shape: []int{1}, Floats: []float32{1}}}, "unknown type 9"},
		{"Relu", nil, []*graph.Tensor{row(1<<20, 1<<20)}, "more than 2147483647 elements"},
		{"Relu", nil, []*graph.Tensor{row(make([]int, 17)...)}, "17 axes"},
		{"Relu", nil, []*graph.Tensor{row(1<<30, 1)}, "values of a row"},
		{"Expand", nil, []*graph.Tensor{row(1), ints(huge)}, "the size 1099511627776"},
		{"Expand", nil, []*graph.Tensor{row(1), ints(1<<20, 1<<20)}, "more than 2147483647 elements"},
		{"Expand", nil, []*graph.Tensor{row(1), ints(1 << 30)}, "values of a row"},
		{"Expand", nil, []*graph.Tensor{floats(1), ints(1 << 30)}, "constants that are computed"},
		{"Expand", nil, []*graph.Tensor{row(1), row(1)}, "float, expected int64"},
		{"Tile", nil, []*graph.Tensor{floats(1, 1), ints(math.MaxInt64, 2)}, "the size 9223372036854775807"},
		{"Tile", nil, []*graph.Tensor{floats(2, 2), ints(math.MaxInt32, math.MaxInt32)}, "elements"},
		{"Pad", nil, []*graph.Tensor{floats(2), ints(math.MinInt64, 0)}, "a pad is"},
		{"Pad", nil, []*graph.Tensor{floats(2), ints(-1, -1)}, ""},
		{"Pad", nil, []*graph.Tensor{floats(2), ints(-1, -2)}, "remove more"},
		{"Pad", nil, []*graph.Tensor{floats(2), ints(1<<30, 1<<30)}, "elements"},
		{"Pad", nil, []*graph.Tensor{floats(2), ints(-3, 5)}, "remove more"},
		{"ConstantOfShape", nil, []*graph.Tensor{ints(1<<15, 1<<15)}, "constants that are computed"},
		{"ConstantOfShape", nil, []*graph.Tensor{ints(-1)}, "the size -1"},
		{"Range", nil, []*graph.Tensor{scalar(0), scalar(math.MaxInt64), scalar(1)}, "the range has"},
		{"Range", nil, []*graph.Tensor{scalar(0), scalar(1), scalar(0)}, "the range has"},
		{"Range", nil, []*graph.Tensor{scalar(0), scalar(0), scalar(0)}, "the range has NaN"},
		{"EyeLike", nil, []*graph.Tensor{row(1<<15, 1<<15)}, "constants that are computed"},
		{"Split", graph.Attributes{"num_outputs": int64(1 << 30)}, []*graph.Tensor{row(1 << 30)}, "1073741824 outputs"},
		{"Split", graph.Attributes{"num_outputs": int64(4)}, []*graph.Tensor{row(5)}, "4 outputs of size 2"},
		{"Split", nil, []*graph.Tensor{row(0), graph.NewInts([]int64{}, 0)}, "there are no sizes"},
		{"Split", nil, []*graph.Tensor{row(4), ints(math.MaxInt64, math.MaxInt64, 6)}, "do not add up"},
		{"Slice", nil, []*graph.Tensor{row(4), ints(0), ints(4), ints(0), ints(0)}, "step is 0"},
		{"Slice", nil, []*graph.Tensor{row(4, 4), ints(0, 0), ints(4, 4), ints(0, -2)}, "given twice"},
		{"Slice", nil, []*graph.Tensor{row(4), ints(0, 0), ints(4, 4)}, "2 starts"},
		{"Gather", nil, []*graph.Tensor{row(4), ints(4)}, "index 4"},
		{"Gather", nil, []*graph.Tensor{row(4), ints(math.MinInt64)}, "index -9223372036854775808"},
		{"Gather", nil, []*graph.Tensor{row(), ints(0)}, "axis 0 of a value with 0 axes"},
		{"GatherND", graph.Attributes{"batch_dims": int64(math.MaxInt64)}, []*graph.Tensor{row(4), ints(0)}, "batch axes"},
		{"GatherND", nil, []*graph.Tensor{row(4), scalar(0)}, "at least one axis"},
		{"ScatterND", nil, []*graph.Tensor{row(4), graph.NewInts([]int64{1}, 1, 1), row(2)}, "updates of the shape"},
		{"Transpose", graph.Attributes{"perm": []int64{0, 0}}, []*graph.Tensor{row(2, 2)}, "given twice"},
		{"Transpose", graph.Attributes{"perm": []int64{0, math.MinInt64}}, []*graph.Tensor{row(2, 2)}, "axis -9223372036854775808"},
		{"Reshape", nil, []*graph.Tensor{row(4), ints(-1, -1)}, "invalid shape"},
		{"Reshape", nil, []*graph.Tensor{row(4), ints(-1, 3)}, "as many elements"},
		{"Reshape", nil, []*graph.Tensor{row(4), ints(4, 0)}, "keeps axis 1"},
		{"Reshape", nil, []*graph.Tensor{row(0, 3), ints(-1, 3)}, ""},
		{"Unsqueeze", nil, []*graph.Tensor{row(4), ints(make([]int64, 1000)...)}, "1000 new axes"},
		{"Squeeze", nil, []*graph.Tensor{row(4), ints(0)}, "does not have size 1"},
		{"MatMul", nil, []*graph.Tensor{row(2, 3), row(2, 3)}, "do not fit"},
		{"MatMul", nil, []*graph.Tensor{row(1<<15, 1), row(1, 1<<15)}, "values of a row"},
		{"MatMul", nil, []*graph.Tensor{row(1<<12, 1<<16), row(1<<16, 1<<12)}, "a row takes more than"},
		{"MatMul", nil, []*graph.Tensor{floats(1<<10, 1<<10), floats(1<<10, 1<<10)}, "multiplications to compute"},
		{"Gemm", nil, []*graph.Tensor{row(2, 3), row(3, 4), row(3, 4)}, "does not broadcast"},
		{"Einsum", graph.Attributes{"equation": "ab,bc,cd->ad"}, []*graph.Tensor{row(2, 2), row(2, 2), row(2, 2)}, "3 inputs, expected one or two"},
		{"Einsum", graph.Attributes{"equation": "ab->ac"}, []*graph.Tensor{row(2, 2)}, "invalid output"},
		{"Einsum", graph.Attributes{"equation": "ab->aa"}, []*graph.Tensor{row(2, 2)}, "invalid output"},
		{"Einsum", graph.Attributes{"equation": "aé->a"}, []*graph.Tensor{row(2, 2, 2)}, "invalid label"},
		{"Einsum", graph.Attributes{"equation": "a...b...->a"}, []*graph.Tensor{row(2, 2, 2, 2, 2)}, "invalid label"},
		{"Einsum", graph.Attributes{"equation": "a,a->"}, []*graph.Tensor{row(2), row(3)}, "do not fit"},
		{"Einsum", graph.Attributes{"equation": "abcd,efgh->"}, []*graph.Tensor{row(256, 256, 256, 64), row(256, 256, 256, 64)}, "a row takes more than"},
		{"Einsum", graph.Attributes{"equation": strings.Repeat(" ", 2000)}, []*graph.Tensor{row(2)}, "too long"},
		{"Conv", nil, []*graph.Tensor{row(1, 2, 5), floats(2, 2, 3)}, "kernels of a single element"},
		{"Conv", graph.Attributes{"group": int64(0)}, []*graph.Tensor{row(1, 2, 5), floats(2, 2, 1)}, "groups"},
		{"BatchNormalization", graph.Attributes{"training_mode": int64(1)}, []*graph.Tensor{row(1, 1), row(1), row(1), row(1), row(1)}, "training mode"},
		{"LayerNormalization", nil, []*graph.Tensor{row(1, 3), row(3, 3)}, "does not broadcast"},
		{"Softmax", graph.Attributes{"axis": int64(2)}, []*graph.Tensor{row(1, 3)}, "axis 2"},
		{"ReduceSum", nil, []*graph.Tensor{row(1, 3), ints(0, -2)}, "given twice"},
		{"ReduceSum", nil, []*graph.Tensor{row(1, 3), graph.NewInts([]int64{0}, 1, 1)}, "expected a list"},
		{"Div", nil, []*graph.Tensor{ints(1), ints(0)}, "division of a whole number by 0"},
		{"Mod", nil, []*graph.Tensor{ints(math.MinInt64), ints(0)}, "division of a whole number by 0"},
		{"Cast", graph.Attributes{"to": int64(8)}, []*graph.Tensor{row(1)}, "element type 8"},
		{"Cast", nil, []*graph.Tensor{row(1)}, "element type 0"},
		{"Constant", nil, nil, "0 attributes"},
		{"Constant", graph.Attributes{"value": (*graph.Tensor)(nil)}, nil, "has no tensor"},
		{"Constant", graph.Attributes{"value": &graph.Tensor{Type: graph.Int, Shape: []int{huge}}}, nil, "elements"},
		{"Dropout", nil, []*graph.Tensor{row(1), floats(), graph.NewBools([]bool{true})}, "training mode"},
		{"Concat", nil, []*graph.Tensor{row(1)}, "axis is missing"},
		{"Concat", graph.Attributes{"axis": int64(0)}, []*graph.Tensor{row(1, 2), row(1, 3)}, "the shape"},
		{"Trilu", nil, []*graph.Tensor{row(1)}, "two axes"},
		{"CumSum", nil, []*graph.Tensor{row(2), scalar(1)}, "axis 1"},
		{"PRelu", nil, []*graph.Tensor{row(2), row(2, 2)}, "slope of the shape"},
	} {
		g := &graph.Graph{}
		n := graph.Node{Name: "the node", Op: test.op, Attributes: test.attributes}
		for i, in := range test.inputs {
			if in.Floats == nil && in.Ints == nil && in.Bools == nil {
				n.Inputs = append(n.Inputs, g.AddInput(fmt.Sprint("x", i), in.Type, in.Shape))
			} else {
				n.Inputs = append(n.Inputs, g.AddConstant(in))
			}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := g.Add(n)
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 1<<20 {
			t.Errorf("%s %s: takes %d bytes", test.op, test.message, taken)
		}
		switch {
		case test.message == "":
			if err != nil {
				t.Errorf("%s: %v", test.op, err)
			}
		case err == nil:
			t.Errorf("%s: accepted, expected an error with %q", test.op, test.message)
		case !strings.HasPrefix(err.Error(), `node "the node" (`+test.op+"): ") || !strings.Contains(err.Error(), test.message):
			t.Errorf("%s: %v, expected %q", test.op, err, test.message)
		}
	}
}

// Nodes that read values that do not exist are refused.
func TestHostileValues(t *testing.T) {
	for _, v := range []graph.Value{-2, 0, 1, math.MaxInt} {
		g := &graph.Graph{}
		if _, err := g.Add(graph.Node{Op: "Relu", Inputs: []graph.Value{v}}); err == nil {
			t.Errorf("value %d is accepted", v)
		}
	}
}

// Many nodes that are harmless one by one do not take more memory than the limits allow.
func TestManyNodes(t *testing.T) {
	g := &graph.Graph{}
	x := g.AddInput("x", graph.Float, []int{1})
	c := g.AddConstant(graph.NewFloats([]float32{1}, 1))
	size := g.AddConstant(graph.NewInts([]int64{1<<20 - 1}, 1))
	for _, v := range []graph.Value{x, c} {
		var err error
		n := 0
		for ; err == nil && n < 100; n++ {
			_, err = g.Add(graph.Node{Op: "Expand", Inputs: []graph.Value{v, size}})
		}
		if err == nil {
			t.Errorf("value %d: %d nodes are accepted", v, n)
		}
		if _, err := g.Add(graph.Node{Op: "Relu", Inputs: []graph.Value{v}}); err != nil {
			t.Errorf("value %d: a small node is refused after a large one: %v", v, err)
		}
	}
	total := 0
	for _, info := range g.Values {
		if info.Constant != nil {
			total += info.Constant.Len()
		}
	}
	if total > 1<<24 {
		t.Errorf("the constants have %d elements", total)
	}
}

// perceptron returns a graph with weights, attributes and an index list.
func perceptron(t testing.TB) *graph.Graph {
	t.Helper()
	g := &graph.Graph{}
	add := func(op string, attributes graph.Attributes, inputs ...graph.Value) graph.Value {
		out, err := g.Add(graph.Node{Name: op, Op: op, Inputs: inputs, Attributes: attributes})
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	x := g.AddInput("x", graph.Float, []int{1, 3})
	w := g.AddConstant(&graph.Tensor{Name: "w", Type: graph.Float, Shape: []int{2, 3}, Floats: []float32{1, 2, 3, 4, 5, 6}})
	again := g.AddConstant(&graph.Tensor{Name: "w", Type: graph.Float, Shape: []int{2}, Floats: []float32{-.1, .2}})
	v := add("Gather", graph.Attributes{"axis": int64(1)}, x, g.AddConstant(graph.NewInts([]int64{2, 1, 0}, 3)))
	v = add("Gemm", graph.Attributes{"transB": int64(1), "alpha": float32(.1)}, v, w, again)
	v = add("Clip", nil, v, graph.Absent, g.AddConstant(graph.NewFloats([]float32{float32(math.Inf(1))})))
	v = add("Einsum", graph.Attributes{"equation": "ab->a"}, v)
	g.Output = v
	g.Trim()
	return g
}

// A damaged description is refused with an error that says what is wrong.
func TestDecodeHostile(t *testing.T) {
	g := perceptron(t)
	text, weights := graph.Encode(g)
	if len(weights) != 3 || weights[0].Name == weights[1].Name {
		t.Errorf("the weights are %v", weights)
	}
	recode(t, g)
	for _, test := range []struct{ from, to, message string }{
		{`"version":1`, `"version":2`, "version 2, expected 1"},
		{`"version":1`, `"version":1,"x":1`, "unknown field"},
		{`"output":`, `"output":9`, "the output is value"},
		{`"output":`, `"output":-`, "the output is value"},
		{`"op":"Gemm"`, `"op":"Gemmm"`, `node "Gemm" (Gemmm): the operator is not supported`},
		{`{"i":1}`, `{"i":1,"s":"x"}`, "expected one of"},
		{`{"i":1}`, `{}`, "expected one of"},
		{`{"f":"0.1"}`, `{"f":"x"}`, "invalid syntax"},
		{`{"f":"0.1"}`, `{"fs":["1","x"]}`, "invalid syntax"},
		{`"shape":[1,3]`, `"shape":[1,4294967296]`, "elements"},
		{`"shape":[1,3]`, `"shape":[1,134217728]`, "the inputs have more than"},
		{`"shape":[1,3]`, `"shape":[1,-3]`, "negative"},
		{`"shape":[1,3]`, `"shape":[1,2]`, "index 2"},
		{`"shape":[2,3]`, `"shape":[3,2]`, "the weight is float[2 3], expected float[3 2]"},
		{`"ints":[2,1,0]`, `"ints":[2,1]`, "2 ints"},
		{`"type":"int64"`, `"type":"int8"`, "unknown type"},
		{`"name":"w"`, `"name":"u"`, `constant "u": there is no weight "u"`},
		{`"inputs":[0,1]`, `"inputs":[0,99]`, "it reads value 99"},
		{`"inputs":[0,1]`, `"inputs":[0,-3]`, "it reads value -3"},
		{`"inputs":[0,1]`, `"inputs":[5,1]`, "it reads value 5"}, // its own output
	} {
		changed := strings.Replace(string(text), test.from, test.to, 1)
		if changed == string(text) {
			t.Errorf("%s does not have %s", text, test.from)
			continue
		}
		_, err := graph.Decode([]byte(changed), find(weights))
		if err == nil || !strings.Contains(err.Error(), test.message) {
			t.Errorf("%s: %v, expected %q", test.to, err, test.message)
		}
	}
	for n := range text {
		if _, err := graph.Decode(text[:n], find(weights)); err == nil {
			t.Errorf("the first %d bytes are accepted", n)
		}
	}
	for _, bomb := range []string{`{},`, `{"shape":[`, `[`} {
		var before, after runtime.MemStats
		long := []byte(`{"version":1,"nodes":[` + strings.Repeat(bomb, 8<<20/len(bomb)))
		runtime.ReadMemStats(&before)
		_, err := graph.Decode(long, find(weights))
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; err == nil || taken > 64<<20 {
			t.Errorf("8 MiB of %s: %v after %d bytes", bomb, err, taken)
		}
	}
	if _, err := graph.Decode(text, func(string) (*graph.Tensor, error) { return nil, nil }); err == nil {
		t.Error("missing weights are accepted")
	}
}

// Decode accepts or refuses any bytes. A graph that it accepts is encoded to a description
// that does not change when it is decoded and encoded again.
func FuzzDecode(f *testing.F) {
	text, weights := graph.Encode(perceptron(f))
	f.Add(text)
	f.Add([]byte(`{"version":1,"inputs":[],"constants":[{"name":"","type":"bool","shape":[1],"bools":[true]}],"nodes":[],"output":0}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		g, err := graph.Decode(text, find(weights))
		if err != nil {
			return
		}
		g.Trim()
		once, w := graph.Encode(g)
		if !json.Valid(once) {
			t.Fatalf("invalid JSON: %s", once)
		}
		recode(t, g)
		for _, tensor := range w {
			if err := tensor.Check(); err != nil {
				t.Error(err)
			}
		}
	})
}
