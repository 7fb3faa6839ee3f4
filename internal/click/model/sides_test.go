package model_test

import (
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/onnx/graph"
)

// A model that reads one end of a list needs lists that are filled at the other end. One that weighs positions depends on the
// side but shows no need, and one that treats all positions alike does not depend on it, whatever row its pads read.
func TestPadSides(t *testing.T) {
	for name, c := range map[string]struct {
		weights [3]float32 // of the positions
		need    string
		moves   bool
	}{
		"last":   {[3]float32{0, 0, 1}, model.Front, true},
		"forget": {[3]float32{1e-5, 1e-2, 1}, model.Front, true},
		"first":  {[3]float32{1, 0, 0}, model.End, true},
		"weigh":  {[3]float32{1, 2, 3}, "", true},
		"sum":    {[3]float32{1, 1, 1}, "", false},
		"none":   {[3]float32{}, "", false},
	} {
		for _, pad := range []int{0, 1, 5} {
			a := model.Architecture{
				Kind: model.Graph, FieldDims: []int{3, 6}, Tables: []model.Table{{Name: "users", Rows: 3, Dim: 2}, {Name: "items", Rows: 6, Dim: 2}},
				LookUps: []model.LookUp{{Field: 0, Table: 0}, {Field: 1, Table: 1}}, Lists: []model.List{{Field: 1, Length: 3, Pad: pad}},
			}
			b := new(modeltest.Builder)
			user, list := b.AddInput("user", graph.Float, []int{1, 2}), b.AddInput("list", graph.Float, []int{1, 3, 2})
			weighted := b.Node("Mul", nil, list, b.Floats("", c.weights[:], 1, 3, 1))
			sum := b.Node("ReduceSum", graph.Attributes{"keepdims": int64(0)}, weighted, b.Ints(1))
			b.Output = b.Node("ReduceSum", nil, b.Node("Tanh", nil, b.Node("Add", nil, sum, user)), b.Ints(1))
			weights := modeltest.Weights(model.Architecture{FieldDims: []int{a.Parameters()}, Dim: 1}, 3)
			m, err := model.New(a, model.Weights{Embedding: weights.Embedding, Graph: &model.GraphHead{Graph: &b.Graph, LookUps: []graph.Value{user, list}}})
			if err != nil {
				t.Fatal(err)
			}
			if needs, moves := m.PadSides(); !slices.Equal(needs, []string{c.need}) || moves != c.moves {
				t.Errorf("%s, pad %d: %q and %v, expected %q and %v", name, pad, needs, moves, c.need, c.moves)
			}
		}
	}
	for _, pooling := range modeltest.Poolings() {
		if needs, moves := modeltest.ListModel(pooling, 1).PadSides(); !slices.Equal(needs, []string{"", ""}) || moves {
			t.Errorf("%s: %q and %v, expected no side", pooling, needs, moves)
		}
	}
}
