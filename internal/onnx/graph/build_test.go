package graph

import "testing"

// A small network gives the value that was computed by hand, and folds its constants.
func TestRun(t *testing.T) {
	g := &Graph{}
	x := g.AddInput("x", Float, []int{1, 2})
	w := g.AddConstant(NewFloats([]float32{1, 2, 3, 4}, 2, 2))
	add := func(op string, attributes Attributes, inputs ...Value) Value {
		t.Helper()
		out, err := g.Add(Node{Name: op, Op: op, Inputs: inputs, Attributes: attributes})
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	transposed := add("Transpose", nil, w)
	if g.Values[transposed].Constant == nil || len(g.Nodes) != 0 {
		t.Error("the transposed matrix is not folded")
	}
	product := add("MatMul", nil, x, transposed)
	add("Neg", nil, product)
	g.Output = add("Relu", nil, product)
	g.Trim()
	if len(g.Nodes) != 2 {
		t.Errorf("%d nodes after Trim, expected 2", len(g.Nodes))
	}
	out, err := g.Run([]*Tensor{NewFloats([]float32{1, -1}, 1, 2)})
	if err != nil {
		t.Fatal(err)
	}
	if want := [2]float32{0, 0}; [2]float32(out.Floats) != want {
		t.Errorf("got %v, expected %v", out.Floats, want)
	}
	out, err = g.Run([]*Tensor{NewFloats([]float32{3, -1}, 1, 2)})
	if err != nil {
		t.Fatal(err)
	}
	if want := [2]float32{1, 5}; [2]float32(out.Floats) != want {
		t.Errorf("got %v, expected %v", out.Floats, want)
	}
}
