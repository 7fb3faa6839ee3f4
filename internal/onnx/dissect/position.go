package dissect

import (
	"cmp"
	"slices"

	"shaver/internal/onnx/graph"
)

// positional lists the operators that read the elements at given positions.
var positional = []string{"Gather", "GatherElements", "GatherND"}

// varies reports whether v depends on the row.
func (b *builder) varies(v *value) bool {
	if v.trace != nil {
		return slices.ContainsFunc(v.trace.elements, func(e *element) bool { return e.constant == nil }) || v.trace.elements == nil
	}
	return v.tensor == nil && !v.list && b.head.Values[v.head].Constant == nil
}

// position builds an operator that reads elements at positions that depend on the row, such as
// the last item of a history. Each result is a sum over all positions, of which only one is
// not replaced by 0. So a derivative takes the position for fixed. It returns nil if the
// elements cannot be added.
func (b *builder) position(s *step) ([]*value, error) {
	p := &positions{builder: b, name: s.name}
	kind, shape := p.info(s.inputs[0])
	if kind == graph.Bool || len(shape) == 0 {
		return nil, nil
	}
	zero := &graph.Tensor{Type: kind, Shape: []int{}, Floats: []float32{0}, Ints: []int64{0}}
	if kind == graph.Int {
		zero.Floats = nil
	} else {
		zero.Ints = nil
	}
	p.zero = inHead(b.head.AddConstant(zero))
	axis, ok := s.attributes["axis"].(int64)
	if axis < 0 {
		axis += int64(len(shape))
	}
	if ok && s.op != "GatherND" && (axis < 0 || axis >= int64(len(shape))) {
		return nil, nil // which add refuses
	}
	var v *value
	switch s.op {
	case "Gather":
		v = p.gather(s.inputs[0], s.inputs[1], int(axis))
	case "GatherElements":
		v = p.gatherElements(s.inputs[0], s.inputs[1], int(axis))
	case "GatherND":
		dims, _ := s.attributes["batch_dims"].(int64)
		v = p.gatherND(s.inputs[0], s.inputs[1], int(dims))
	}
	if p.err != nil || v == nil {
		return nil, p.err
	}
	return []*value{v}, nil
}

// positions builds the nodes of one operator. After an error, its methods do nothing.
type positions struct {
	*builder
	name string
	zero *value // of the type of the elements
	err  error
}

func (p *positions) do(op string, attributes graph.Attributes, inputs ...*value) *value {
	if p.err != nil {
		return p.zero
	}
	out, err := p.apply(p.name, op, attributes, inputs...)
	if err != nil {
		p.err = err
		return p.zero
	}
	return out[0]
}

func (p *positions) info(v *value) (graph.Type, []int) {
	if v.trace != nil {
		return v.trace.kind, v.trace.shape
	}
	if v.head == graph.Absent {
		if p.err = p.load(v, p.name); p.err != nil {
			return graph.Float, nil
		}
	}
	info := p.head.Values[v.head]
	return info.Type, info.Shape
}

func (p *positions) reshape(v *value, shape []int) *value {
	list := make([]int64, len(shape))
	for i, size := range shape {
		list[i] = int64(size)
	}
	return p.do("Reshape", nil, v, p.ints(list...))
}

func (p *positions) slice(v *value, axis, from, to int) *value {
	return p.do("Slice", nil, v, p.ints(int64(from)), p.ints(int64(to)), p.ints(int64(axis)), p.ints(1))
}

// one returns the elements of data at an index along an axis, which stays with size 1. The
// shape of index has size 1 there, and otherwise 1 or the sizes of data.
func (p *positions) one(data, index *value, axis int) *value {
	_, shape := p.info(data)
	chosen := p.chosen(index, shape[axis], len(shape), axis)
	return p.do("ReduceSum", graph.Attributes{"keepdims": int64(1)}, p.do("Where", nil, chosen, data, p.zero), p.ints(int64(axis)))
}

// chosen returns, for each position along an axis of the given size, whether index is this position.
func (p *positions) chosen(index *value, size, rank, axis int) *value {
	numbers, column := make([]int64, size), slices.Repeat([]int{1}, rank)
	column[axis] = size
	for i := range numbers {
		numbers[i] = int64(i)
	}
	all := inHead(p.head.AddConstant(graph.NewInts(numbers, column...)))
	fromEnd := p.do("Add", nil, index, inHead(p.head.AddConstant(graph.NewInts([]int64{int64(size)}))))
	negative := p.do("Less", nil, index, inHead(p.head.AddConstant(graph.NewInts([]int64{0}))))
	return p.do("Equal", nil, p.do("Where", nil, negative, fromEnd, index), all)
}

// rewriteOneHot compares indices that depend on the row with all classes.
func rewriteOneHot(c *call) ([]*value, error) {
	if len(c.in) != 3 || slices.Contains(c.in, nil) || !c.varies(c.in[0]) {
		return nil, nil
	}
	kind, shape, err := c.shape(0)
	depth, other := c.constant(c.in[1], c.node)
	if err != nil || other != nil {
		return nil, cmp.Or(err, other)
	}
	rank := len(shape) + 1
	axis := int(c.integer("axis", -1)+int64(rank)) % rank
	if kind != graph.Int || len(depth.Ints) != 1 || depth.Ints[0] < 1 || depth.Ints[0] > maxColumns || axis < 0 {
		return nil, nil
	}
	p := &positions{builder: c.builder, name: c.name()}
	chosen := p.chosen(p.do("Unsqueeze", nil, c.in[0], c.ints(int64(axis))), int(depth.Ints[0]), rank, axis)
	return []*value{p.do("Where", nil, chosen, p.slice(c.in[2], 0, 1, 2), p.slice(c.in[2], 0, 0, 1))}, p.err
}

// joinAll concatenates values along an axis.
func (p *positions) joinAll(list []*value, axis int) *value {
	if len(list) == 1 {
		return list[0]
	}
	return p.do("Concat", graph.Attributes{"axis": int64(axis)}, list...)
}

func (p *positions) gather(data, index *value, axis int) *value {
	_, shape := p.info(data)
	_, of := p.info(index)
	count, err := graph.Count(of)
	if err != nil || count == 0 || count > maxIterations || axis >= len(shape) {
		return nil
	}
	flat, ones := p.reshape(index, []int{count}), slices.Repeat([]int{1}, len(shape))
	var parts []*value
	for i := range count {
		parts = append(parts, p.one(data, p.reshape(p.slice(flat, 0, i, i+1), ones), axis))
	}
	return p.reshape(p.joinAll(parts, axis), slices.Concat(shape[:axis], of, shape[axis+1:]))
}

func (p *positions) gatherElements(data, index *value, axis int) *value {
	_, shape := p.info(data)
	_, of := p.info(index)
	if len(of) != len(shape) || axis >= len(shape) || of[axis] == 0 || of[axis] > maxIterations {
		return nil
	}
	for i := range shape {
		if i != axis && of[i] > shape[i] {
			return nil
		}
		if i != axis && of[i] < shape[i] {
			data = p.slice(data, i, 0, of[i])
		}
	}
	var parts []*value
	for k := range of[axis] {
		at := index
		if of[axis] > 1 {
			at = p.slice(index, axis, k, k+1)
		}
		parts = append(parts, p.one(data, at, axis))
	}
	return p.joinAll(parts, axis)
}

func (p *positions) gatherND(data, index *value, dims int) *value {
	_, shape := p.info(data)
	_, of := p.info(index)
	if len(of) == 0 || dims < 0 || dims >= len(of) || !slices.Equal(of[:dims], shape[:min(dims, len(shape))]) {
		return nil
	}
	k := of[len(of)-1]
	tuples, err := graph.Count(of[:len(of)-1])
	batches, other := graph.Count(of[:dims])
	if err != nil || other != nil || k < 1 || k > len(shape)-dims || tuples == 0 || tuples > maxIterations || batches == 0 {
		return nil
	}
	flat := p.reshape(index, []int{tuples * k})
	known := p.elementsOf(flat)
	all := data
	if dims > 0 {
		all = p.reshape(data, slices.Concat([]int{batches}, shape[dims:]))
	}
	rest := shape[dims+k:]
	var parts []*value
	for i := range tuples {
		piece := all
		if dims > 0 {
			piece = p.drop(piece, inHead(p.head.AddConstant(graph.NewInts([]int64{int64(i / (tuples / batches))}))))
		}
		for j := range k {
			at := i*k + j
			if known != nil && known[at].constant != nil {
				piece = p.drop(piece, inHead(p.head.AddConstant(graph.NewInts([]int64{known[at].constant.Ints[0]}))))
				continue
			}
			_, have := p.info(piece)
			index := p.reshape(p.slice(flat, 0, at, at+1), slices.Repeat([]int{1}, len(have)))
			piece = p.reshape(p.one(piece, index, 0), have[1:])
			if p.err != nil {
				return nil
			}
		}
		parts = append(parts, p.reshape(piece, slices.Concat([]int{1}, rest)))
	}
	return p.reshape(p.joinAll(parts, 0), slices.Concat(of[:len(of)-1], rest))
}

// drop returns the part of v at a constant position of the first axis.
func (p *positions) drop(v, at *value) *value {
	return p.do("Gather", graph.Attributes{"axis": int64(0)}, v, at)
}

// elementsOf returns the elements of v, or nil if they are not known.
func (b *builder) elementsOf(v *value) []*element {
	if v.trace != nil {
		return v.trace.elements
	}
	if t := b.retrace(v.head); t != nil {
		return t.elements
	}
	return nil
}
