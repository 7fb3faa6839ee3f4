package graph

import "testing"

// Work counts the products of a graph and stops at its limit.
func TestWork(t *testing.T) {
	var g Graph
	v := g.AddInput("x", Float, []int{1, 8})
	for range 3 {
		out, err := g.Add(Node{Name: "m", Op: "MatMul", Inputs: []Value{v, g.AddConstant(NewFloats(make([]float32, 64), 8, 8))}})
		if err != nil {
			t.Fatal(err)
		}
		v = out[0]
	}
	g.Output = v
	if got := g.Work(1000); got != 3*64 {
		t.Errorf("Work is %d, expected %d", got, 3*64)
	}
	if got := g.Work(100); got != 101 {
		t.Errorf("Work with a limit of 100 is %d", got)
	}
}
