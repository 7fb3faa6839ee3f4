package dissect

import (
	"shaver/internal/onnx/graph"
)

// readsRows reports whether a GatherND chooses whole rows of a table by ids of the row, as
// table[ids] of a parameter or a buffer does.
func (b *builder) readsRows(op string, attributes graph.Attributes, inputs []*value) bool {
	if op != "GatherND" || len(inputs) != 2 || inputs[0] == nil || inputs[1] == nil || inputs[1].trace == nil {
		return false
	}
	table, shape := inputs[0], inputs[1].trace.shape
	dims, _ := attributes["batch_dims"].(int64)
	return dims == 0 && len(shape) > 0 && shape[len(shape)-1] == 1 && table.trace == nil && !table.list &&
		(table.tensor != nil || b.head.Values[table.head].Constant != nil)
}

// gatherRows writes a GatherND for which readsRows is true as a Gather.
func (b *builder) gatherRows(name string, inputs []*value) ([]*value, error) {
	last := inHead(b.head.AddConstant(graph.NewInts([]int64{-1}, 1)))
	ids, err := b.apply(name, "Squeeze", graph.Attributes{}, inputs[1], last)
	if err != nil {
		return nil, err
	}
	return b.apply(name, "Gather", graph.Attributes{"axis": int64(0)}, inputs[0], ids[0])
}
