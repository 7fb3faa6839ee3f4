package graphtest_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/graph/graphtest"
)

// There are vectors for every operator. With -v the test also prints the operators, for
// testdata/make.py.
func TestOperators(t *testing.T) {
	cases, err := graphtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, c := range cases {
		tested[c.Op] = true
	}
	if testing.Verbose() {
		fmt.Println(strings.Join(graph.Operators(), " "))
	}
	for _, op := range graph.Operators() {
		if !tested[op] {
			t.Errorf("there is no vector for %s", op)
		}
	}
}

// Compare refuses wrong types, shapes and elements.
func TestCompare(t *testing.T) {
	want := graph.NewFloats([]float32{1, float32(math.NaN())}, 2)
	if err := graphtest.Compare(graph.NewFloats([]float32{1.0005, float32(math.NaN())}, 2), want, 1e-3, 0); err != nil {
		t.Error(err)
	}
	for _, got := range []*graph.Tensor{
		graph.NewFloats([]float32{1.002, float32(math.NaN())}, 2),
		graph.NewFloats([]float32{1, 1}, 2),
		graph.NewFloats([]float32{float32(math.NaN()), float32(math.NaN())}, 2),
		graph.NewFloats([]float32{1, 1}, 1, 2),
		graph.NewInts([]int64{1, 1}, 2),
	} {
		if graphtest.Compare(got, want, 1e-3, 0) == nil {
			t.Errorf("%v is accepted, expected an error", got)
		}
	}
}
