package graph_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/graph/graphtest"
)

// Evaluate gives the results of ONNX's own vectors.
func TestVectors(t *testing.T) {
	each(t, func(t *testing.T, c graphtest.Case) {
		out, err := graph.Evaluate(c.Op, c.Attributes, c.Inputs)
		if err != nil {
			t.Fatal(err)
		}
		if len(out) != len(c.Outputs) {
			t.Fatalf("%d outputs, expected %d", len(out), len(c.Outputs))
		}
		for i, want := range c.Outputs {
			if err := graphtest.Compare(out[i], want, c.Relative, c.Absolute); err != nil {
				t.Errorf("output %d: %v", i, err)
			}
		}
	})
}

// each runs test for each vector.
func each(t *testing.T, test func(t *testing.T, c graphtest.Case)) {
	t.Helper()
	cases, err := graphtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { test(t, c) })
	}
}

// A graph whose inputs depend on the row has the types and shapes of ONNX's vectors and
// gives the same bits as Evaluate. So does the graph that is decoded from its description.
// Relabel emits the elements of the results, and these are within Bounds.
func TestVectorGraphs(t *testing.T) {
	graphs, relabelled, bounded := 0, 0, 0
	each(t, func(t *testing.T, c graphtest.Case) {
		g, inputs := rowGraph(t, c)
		if g == nil {
			return
		}
		graphs++
		n := g.Nodes[0]
		want, err := graph.Evaluate(c.Op, c.Attributes, c.Inputs)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range n.Outputs {
			if info := g.Values[v]; info.Type != want[i].Type || !slices.Equal(info.Shape, want[i].Shape) {
				t.Errorf("inferred %v%v, expected %v%v", info.Type, info.Shape, want[i].Type, want[i].Shape)
			}
			g.Output = v
			got, err := g.Run(inputs)
			if err != nil {
				t.Fatal(err)
			}
			if err := graphtest.Compare(got, want[i], 0, 0); err != nil {
				t.Errorf("Run: %v", err)
			}
			for e, y := range got.Floats {
				x := g.Bounds(v, e)
				if float64(y) < x.Low-1e-5 || float64(y) > x.High+1e-5 {
					t.Errorf("element %d is %v, and its bounds are %v", e, y, x)
				}
				if !math.IsInf(x.Low, 0) || !math.IsInf(x.High, 0) {
					bounded++
				}
			}
			got, err = recode(t, g).Run(inputs)
			if err != nil {
				t.Fatal(err)
			}
			if err := graphtest.Compare(got, want[i], 0, 0); err != nil {
				t.Errorf("Run after Decode: %v", err)
			}
		}
		moved := make([]*graph.Tensor, len(want))
		for i, w := range want {
			moved[i] = &graph.Tensor{Type: w.Type, Shape: w.Shape}
		}
		if g.Relabel(&n, func(output, input, element int) {
			from := &graph.Tensor{Floats: []float32{0}, Ints: []int64{0}, Bools: []bool{false}}
			if input != graph.Nothing {
				from = c.Inputs[input]
			}
			switch to := moved[output]; to.Type {
			case graph.Float:
				to.Floats = append(to.Floats, from.Floats[element])
			case graph.Int:
				to.Ints = append(to.Ints, from.Ints[element])
			case graph.Bool:
				to.Bools = append(to.Bools, from.Bools[element])
			}
		}) {
			relabelled++
			for i := range want {
				if err := graphtest.Compare(moved[i], want[i], 0, 0); err != nil {
					t.Errorf("Relabel: output %d: %v", i, err)
				}
			}
		}
	})
	if graphs < 300 || relabelled < 70 || bounded < 100 {
		t.Errorf("%d graphs, of which %d only move elements; %d elements have bounds", graphs, relabelled, bounded)
	}
}

// rowGraph returns a graph with the case's node and the inputs of the graph. Inputs that
// are floats depend on the row. If there are no floats, the first input depends on it.
// rowGraph returns nil if the operator's inputs must be constant, or if it has none.
func rowGraph(t *testing.T, c graphtest.Case) (*graph.Graph, []*graph.Tensor) {
	t.Helper()
	anyFloat := slices.ContainsFunc(c.Inputs, func(in *graph.Tensor) bool { return in != nil && in.Type == graph.Float })
	g := &graph.Graph{}
	var inputs []*graph.Tensor
	n := graph.Node{Name: c.Name, Op: c.Op, Attributes: c.Attributes}
	for i, in := range c.Inputs {
		switch {
		case in == nil:
			n.Inputs = append(n.Inputs, graph.Absent)
		case in.Type == graph.Float && (i == 0 || c.Op != "Dropout") || !anyFloat && i == 0:
			n.Inputs = append(n.Inputs, g.AddInput(fmt.Sprint("x", i), in.Type, in.Shape))
			inputs = append(inputs, in)
		default:
			n.Inputs = append(n.Inputs, g.AddConstant(in))
		}
	}
	_, err := g.Add(n)
	switch c.Op {
	case "Range", "NonZero", "ConstantOfShape", "OneHot":
		if err == nil {
			t.Error("inputs that depend on the row are accepted")
		}
		return nil, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Nodes) == 0 {
		return nil, nil
	}
	return g, inputs
}

// recode encodes a graph and decodes the description. It fails the test if the description
// of the result differs.
func recode(t *testing.T, g *graph.Graph) *graph.Graph {
	t.Helper()
	text, weights := graph.Encode(g)
	out, err := graph.Decode(text, find(weights))
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := graph.Encode(out); !bytes.Equal(again, text) {
		t.Errorf("%s becomes %s", text, again)
	}
	return out
}

// find returns the weight of a name.
func find(weights []*graph.Tensor) func(name string) (*graph.Tensor, error) {
	return func(name string) (*graph.Tensor, error) {
		for _, w := range weights {
			if w.Name == name {
				return w, nil
			}
		}
		return nil, fmt.Errorf("there is no weight %q", name)
	}
}
