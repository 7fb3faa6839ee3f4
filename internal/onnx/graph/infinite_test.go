package graph_test

import (
	"math"
	"strings"
	"testing"

	"shaver/internal/onnx/graph"
)

// An infinite constant may be a mask, but not a weight. NaN is neither.
func TestCheckConstants(t *testing.T) {
	for _, test := range []struct {
		op    string
		value float64
		want  string
	}{
		{"Add", math.Inf(-1), ""},
		{"Max", math.Inf(-1), ""},
		{"Min", math.Inf(1), ""},
		{"MatMul", math.Inf(-1), `node "layer" (MatMul) has the weight -Inf at position 3: weights must be finite`},
		{"PRelu", math.Inf(1), `node "layer" (PRelu) has the weight +Inf at position 3: weights must be finite`},
		{"Add", math.NaN(), `node "layer" (Add) reads a constant that is NaN at position 3`},
		{"MatMul", math.NaN(), `node "layer" (MatMul) reads a constant that is NaN at position 3`},
	} {
		g := &graph.Graph{}
		x := g.AddInput("x", graph.Float, []int{2, 2})
		c := g.AddConstant(graph.NewFloats([]float32{0, 1, 2, float32(test.value)}, 2, 2))
		out, err := g.Add(graph.Node{Name: "layer", Op: test.op, Inputs: []graph.Value{x, c}})
		if err != nil {
			t.Fatal(err)
		}
		g.Output = out[0]
		text, weights := graph.Encode(g)
		_, decoded := graph.Decode(text, find(weights))
		_, checked := g.CheckConstants()
		for _, err := range []error{checked, decoded} {
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%s with %v: %v, expected %q", test.op, test.value, err, test.want)
			}
		}
	}
}
