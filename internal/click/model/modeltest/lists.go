package modeltest

import (
	"slices"

	"shaver/internal/click/model"
	"shaver/internal/onnx/graph"
)

// Lists returns the layout of a model with four fields: item and user, and the lists
// history and tags. item and history read the same rows of a table. 0 is the pad id of
// history, and tags has none. A row has at most 11 players.
func Lists() model.Architecture {
	return model.Architecture{
		Kind: model.Graph, FieldDims: []int{5, 3, 5, 4},
		Tables:  []model.Table{{Name: "items", Rows: 5, Dim: 2}, {Name: "users", Rows: 3, Dim: 1}, {Name: "tags", Rows: 4, Dim: 1}},
		LookUps: []model.LookUp{{Field: 0, Table: 0}, {Field: 2, Table: 0}, {Field: 1, Table: 1}, {Field: 3, Table: 2}},
		Lists:   []model.List{{Field: 2, Length: 3, Pad: 0}, {Field: 3, Length: 2, Pad: -1}},
	}
}

// Poolings returns the ways in which ListModel pools the history.
func Poolings() []string { return []string{"sum", "mean", "max", "attention"} }

// ListModel returns a model with the layout of Lists and random weights. It pools the
// history, for "mean", "max" and "attention" with a mask that it computes from the ids, and
// has an MLP over the pooled history and the other look-ups.
func ListModel(pooling string, seed uint64) *model.Model {
	a := Lists()
	b := new(Builder)
	item, history := b.AddInput("item", graph.Float, []int{1, 2}), b.AddInput("history", graph.Float, []int{1, 3, 2})
	user, tags := b.AddInput("user", graph.Float, []int{1, 1}), b.AddInput("tags", graph.Float, []int{1, 2, 1})
	head := &model.GraphHead{Graph: &b.Graph, LookUps: []graph.Value{item, history, user, tags}}
	node := func(op string, inputs ...graph.Value) graph.Value { return b.Node(op, nil, inputs...) }
	number := func(v float32) graph.Value { return b.Floats("", []float32{v}, 1) }
	sum := func(x graph.Value, axis int64) graph.Value {
		return b.Node("ReduceSum", graph.Attributes{"keepdims": int64(0)}, x, b.Ints(axis))
	}
	var present, mask graph.Value // whether a position has an item, [1, 3], as a Bool and as a Float
	if pooling != "sum" {
		ids := b.AddInput("history ids", graph.Float, []int{1, 3})
		head.IDs = []model.IDInput{{Field: 2, Input: ids}}
		present = node("Not", node("Equal", ids, number(0)))
		mask = b.Node("Cast", graph.Attributes{"to": int64(1)}, present)
	}
	column := func(x graph.Value) graph.Value { return node("Unsqueeze", x, b.Ints(2)) }
	var pooled graph.Value
	switch pooling {
	case "sum":
		pooled = sum(history, 1)
	case "mean":
		pooled = node("Div", sum(node("Mul", history, column(mask)), 1), node("Add", sum(mask, 1), number(1e-8)))
	case "max":
		pooled = b.Node("ReduceMax", graph.Attributes{"keepdims": int64(0)}, node("Where", column(present), history, number(-2)), b.Ints(1))
	case "attention":
		match := sum(node("Mul", history, node("Unsqueeze", item, b.Ints(1))), 2)
		weight := b.Node("Softmax", graph.Attributes{"axis": int64(1)}, node("Where", present, match, number(-30)))
		pooled = sum(node("Mul", history, column(weight)), 1)
	default:
		panic("modeltest: pooling " + pooling)
	}
	x := b.Node("Concat", graph.Attributes{"axis": int64(1)}, pooled, item, user, node("Reshape", tags, b.Ints(1, 2)))
	w := Weights(model.Architecture{Kind: model.DeepFM, FieldDims: slices.Repeat([]int{2}, 7), Dim: 1, Hidden: []int{6}}, seed)
	x = b.Node("Tanh", nil, b.Linear("hidden", x, &w.Hidden[0], false)) // has no kink, unlike ReLU
	b.Output = b.Linear("output", x, &w.Output, false)
	m, err := model.New(a, model.Weights{Embedding: Weights(model.Architecture{FieldDims: []int{a.Parameters()}, Dim: 1}, seed+1).Embedding, Graph: head})
	if err != nil {
		panic(err)
	}
	return m
}
