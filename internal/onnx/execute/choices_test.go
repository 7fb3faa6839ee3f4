package execute_test

import (
	"math"
	"testing"

	"shaver/internal/onnx/execute"
	"shaver/internal/onnx/graph"
)

// choiceGraphs build a value that depends on the positions index, [2, 2], of elements of x,
// [2, 4], along its last axis. y is [2, 2].
var choiceGraphs = map[string]func(b *builder, x, y, index graph.Value) graph.Value{
	"GatherElements": func(b *builder, x, _, index graph.Value) graph.Value {
		return b.node("GatherElements", attribute("axis", int64(1)), x, index)
	},
	"GatherElements of rows": func(b *builder, x, _, index graph.Value) graph.Value {
		rows := b.node("Reshape", nil, x, b.ints(2, 4, 1))
		rows = b.node("Mul", nil, rows, b.constant(3))
		index = b.node("Expand", nil, b.node("Unsqueeze", nil, index, b.ints(2)), b.ints(2, 2, 3))
		return b.node("GatherElements", attribute("axis", int64(1)), rows, index)
	},
	"GatherElements from the end": func(b *builder, x, _, index graph.Value) graph.Value {
		index = b.node("Sub", nil, index, b.ints(4))
		return b.node("GatherElements", attribute("axis", int64(-1)), x, index)
	},
	"Gather": func(b *builder, x, _, index graph.Value) graph.Value {
		return b.node("Gather", attribute("axis", int64(1)), x, index)
	},
	"Gather of a constant": func(b *builder, _, y, index graph.Value) graph.Value {
		return b.node("Add", nil, b.node("Gather", nil, b.constant(4), index), y)
	},
	"GatherND": func(b *builder, x, _, index graph.Value) graph.Value {
		rows := b.AddConstant(graph.NewInts([]int64{0, 0, 1, 1}, 2, 2, 1))
		index = b.node("Concat", attribute("axis", int64(2)), rows, b.node("Unsqueeze", nil, index, b.ints(2)))
		return b.node("GatherND", nil, x, index)
	},
	"GatherND of two indices": func(b *builder, x, _, index graph.Value) graph.Value {
		square := b.node("Mul", nil, b.node("Reshape", nil, x, b.ints(2, 4, 1)), b.constant(4))
		return b.node("GatherND", attribute("batch_dims", int64(1)), square, b.node("Reshape", nil, index, b.ints(2, 1, 2)))
	},
	"ScatterElements": func(b *builder, x, y, index graph.Value) graph.Value {
		return b.node("ScatterElements", attribute("axis", int64(1)), x, index, y)
	},
	"TopK": func(b *builder, x, _, _ graph.Value) graph.Value { return b.node("TopK", nil, x, b.ints(3)) },
}

// Operators whose indices depend on the players give the results that package graph defines.
// Their derivatives are those of the elements that the state has chosen.
func TestChoices(t *testing.T) {
	for name, build := range choiceGraphs {
		t.Run(name, func(t *testing.T) {
			kinks, compared := 0, 0
			for seed := range uint64(4) {
				b := newBuilder(t, seed)
				x, y, z := b.AddInput("x", graph.Float, []int{2, 4}), b.AddInput("y", graph.Float, []int{2, 2}), b.AddInput("z", graph.Float, []int{2, 4})
				if seed%2 == 0 {
					z = x
				}
				out, err := b.Add(graph.Node{Name: "top", Op: "TopK", Inputs: []graph.Value{z, b.ints(2)}})
				if err != nil {
					t.Fatal(err)
				}
				b.sum(build(b, b.node("Tanh", nil, x), y, out[1]))
				players := []graph.Value{x, b.Inputs[2]}
				b.check(players, 20, 2e-5)
				c, k := b.checkGradient(players, b.states(players, 5), 5e-5)
				kinks, compared = kinks+k, compared+c
			}
			if kinks > compared/100 {
				t.Errorf("%d derivatives are near a jump, %d are not", kinks, compared)
			}
		})
	}
}

// Of equal elements the first comes first, also after steps of a walk, although a Walker
// updates layers: none on which a choice depends.
func TestEqualChoices(t *testing.T) {
	const items, dim = 60, 40
	b := newBuilder(t, 1)
	x := b.AddInput("x", graph.Float, []int{items, dim})
	scores := b.node("MatMul", nil, x, b.constant(dim, 30))
	scores = b.node("ReduceSum", attribute("keepdims", int64(0)), b.node("Relu", nil, scores), b.ints(1))
	place := b.node("Gather", nil, b.constant(items), b.node("ArgMax", nil, scores))
	b.Output = b.node("Add", nil, place, b.node("ReduceMean", attribute("keepdims", int64(0)), b.node("MatMul", nil, x, b.constant(dim, 30))))
	p, err := execute.CompileEager(b.Graph, []graph.Value{x})
	if err != nil {
		t.Fatal(err)
	}
	if p.Updates() != 1 {
		t.Errorf("a Walker updates %d layers, expected only the one on which no choice depends", p.Updates())
	}
	w := p.NewWalker()
	row := b.tensor([]int{dim}).Floats
	for item := range items {
		for i, v := range row {
			w.Players().Element(item*dim + i)[0] = v
		}
	}
	w.Prepare(1)
	want := w.Start()
	out := make([]float64, 1)
	for step := range 2 * dim { // all items but the first change in one element after the other, and come back
		var changed []int32
		for item := 1; item < items; item++ {
			k := item*dim + step/2
			w.Players().Element(k)[0] = row[step/2] + []float32{3e3, 0}[step%2]*float32(item)
			changed = append(changed, int32(k))
		}
		w.Continue(out, changed)
	}
	if math.Abs(out[0]-want) > 1e-3 {
		t.Errorf("the walk comes back to %v, expected %v", out[0], want)
	}
}
