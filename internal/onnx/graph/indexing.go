package graph

import (
	"fmt"
	"slices"
)

// indexing has the operators that copy elements from or to positions that other inputs
// name. If those inputs are constant, the operators only move elements.
var indexing = map[string]operator{
	"Gather":          {inputs: "A i~", attributes: "axis:i", infer: inferGather, relabel: relabelGather},
	"GatherElements":  {inputs: "A i~", attributes: "axis:i", infer: inferGatherElements, relabel: relabelGatherElements},
	"GatherND":        {inputs: "A i~", attributes: "batch_dims:i", infer: inferGatherND, relabel: relabelGatherND},
	"ScatterElements": {inputs: "A i~ A", attributes: "axis:i reduction:s", infer: inferScatterElements, relabel: relabelScatterElements},
	"ScatterND":       {inputs: "A i~ A", attributes: "reduction:s", infer: inferScatterND, relabel: relabelScatterND},
	"Where":           {inputs: "b~ A A", infer: inferWhere, relabel: relabelWhere},
}

// checkIndices fails if an index of input 2 is outside an axis, if the input is constant.
func (c *call) checkIndices(size int) error {
	if t := c.tensor(1); t != nil {
		for _, i := range t.Ints {
			if err := inside(i, size); err != nil {
				return err
			}
		}
	}
	return nil
}

// inside fails if an index is outside an axis.
func inside(index int64, size int) error {
	if index < -int64(size) || index >= int64(size) {
		return fmt.Errorf("index %d, expected %d to %d", index, -size, size-1)
	}
	return nil
}

// at returns an index that was checked, counted from the start.
func at(index int64, size int) int {
	if index < 0 {
		index += int64(size)
	}
	return int(index)
}

func inferGather(c *call) ([]Info, error) {
	shape := c.shape(0)
	a, err := c.axis(0, len(shape))
	if err != nil {
		return nil, err
	}
	return one(c.in[0].Type, slices.Concat(shape[:a], c.shape(1), shape[a+1:])), c.checkIndices(shape[a])
}

func relabelGather(c *call, emit func(output, input, element int)) {
	shape := c.shape(0)
	a, _ := c.axis(0, len(shape))
	size, inner := shape[a], count(shape[a+1:])
	for i := range count(shape[:a]) {
		for _, index := range c.tensor(1).Ints {
			start := (i*size + at(index, size)) * inner
			for j := range inner {
				emit(0, 0, start+j)
			}
		}
	}
}

// checkSmaller fails if a shape has more elements along some axis, except one, than
// another shape.
func checkSmaller(shape, than []int, except int) error {
	if len(shape) != len(than) {
		return fmt.Errorf("indices of the shape %v do not fit the shape %v", shape, than)
	}
	for i := range shape {
		if i != except && shape[i] > than[i] {
			return fmt.Errorf("indices of the shape %v do not fit the shape %v", shape, than)
		}
	}
	return nil
}

// checkElements checks the indices of GatherElements and ScatterElements.
func (c *call) checkElements() error {
	shape := c.shape(0)
	a, err := c.axis(0, len(shape))
	if err != nil {
		return err
	}
	if err := checkSmaller(c.shape(1), shape, a); err != nil {
		return err
	}
	return c.checkIndices(shape[a])
}

func inferGatherElements(c *call) ([]Info, error) {
	return one(c.in[0].Type, c.shape(1)), c.checkElements()
}

// elements calls visit for each index of GatherElements and ScatterElements, with the
// element of the first input that it names.
func (c *call) elements(visit func(element int)) {
	shape := c.shape(0)
	a, _ := c.axis(0, len(shape))
	own := strides(shape)
	step := own[a]
	own[a] = 0
	indices, n := c.tensor(1).Ints, 0
	each(c.shape(1), func(offsets []int) {
		visit(offsets[0] + at(indices[n], shape[a])*step)
		n++
	}, own)
}

func relabelGatherElements(c *call, emit func(output, input, element int)) {
	c.elements(func(element int) { emit(0, 0, element) })
}

// checkND checks the indices of GatherND and ScatterND, whose last axis has k indices of
// the axes of the data after the first b.
func (c *call) checkND(b int) (k int, err error) {
	shape, indices := c.shape(0), c.shape(1)
	if len(indices) < 1 {
		return 0, fmt.Errorf("indices of the shape %v, expected at least one axis", indices)
	}
	k = indices[len(indices)-1]
	if b < 0 || b >= min(len(shape), len(indices)) || k < 1 || k > len(shape)-b || !slices.Equal(shape[:b], indices[:b]) {
		return 0, fmt.Errorf("indices of the shape %v for the shape %v with %d batch axes", indices, shape, b)
	}
	if t := c.tensor(1); t != nil {
		for i, index := range t.Ints {
			if err := inside(index, shape[b+i%k]); err != nil {
				return 0, err
			}
		}
	}
	return k, nil
}

// startsND calls visit for each list of indices of GatherND and ScatterND. It passes the
// first element of the data that the list names, and the number of elements.
func (c *call) startsND(b int, visit func(start, size int)) {
	shape, list := c.shape(0), c.shape(1)
	k := list[len(list)-1]
	own := strides(shape)
	size := count(shape[b+k:])
	batch := count(shape[b:])
	lists := count(list[b : len(list)-1])
	indices := c.tensor(1).Ints
	for i := range count(shape[:b]) {
		for range lists {
			start := i * batch
			for j, index := range indices[:k] {
				start += at(index, shape[b+j]) * own[b+j]
			}
			indices = indices[k:]
			visit(start, size)
		}
	}
}

func inferGatherND(c *call) ([]Info, error) {
	b := c.int("batch_dims", 0)
	if b < 0 || b > MaxRank {
		return nil, fmt.Errorf("%d batch axes, expected 0 to %d", b, MaxRank)
	}
	k, err := c.checkND(int(b))
	if err != nil {
		return nil, err
	}
	list := c.shape(1)
	return one(c.in[0].Type, slices.Concat(list[:len(list)-1], c.shape(0)[int(b)+k:])), nil
}

func relabelGatherND(c *call, emit func(output, input, element int)) {
	c.startsND(int(c.int("batch_dims", 0)), func(start, size int) {
		for i := range size {
			emit(0, 0, start+i)
		}
	})
}

func (c *call) checkReduction() error {
	if r := c.string("reduction", "none"); r != "none" {
		return fmt.Errorf("reduction %.100q is not supported, expected none", r)
	}
	return nil
}

func inferScatterElements(c *call) ([]Info, error) {
	if err := c.checkElements(); err != nil {
		return nil, err
	}
	if !slices.Equal(c.shape(1), c.shape(2)) {
		return nil, fmt.Errorf("updates of the shape %v, expected the shape of the indices, %v", c.shape(2), c.shape(1))
	}
	return one(c.in[0].Type, c.shape(0)), c.checkReduction()
}

// scatter emits the data with the updates in it. place calls put once for each update, in
// order, with the element of the data that the update replaces.
func (c *call) scatter(emit func(output, input, element int), place func(put func(element int))) {
	from := make([]int, count(c.shape(0))) // update of each element, plus 1
	n := 0
	place(func(element int) {
		n++
		from[element] = n
	})
	for i, update := range from {
		if update > 0 {
			emit(0, 2, update-1)
		} else {
			emit(0, 0, i)
		}
	}
}

func relabelScatterElements(c *call, emit func(output, input, element int)) {
	c.scatter(emit, c.elements)
}

func inferScatterND(c *call) ([]Info, error) {
	k, err := c.checkND(0)
	if err != nil {
		return nil, err
	}
	shape, list := c.shape(0), c.shape(1)
	if want := slices.Concat(list[:len(list)-1], shape[k:]); !slices.Equal(want, c.shape(2)) {
		return nil, fmt.Errorf("updates of the shape %v, expected %v", c.shape(2), want)
	}
	return one(c.in[0].Type, shape), c.checkReduction()
}

func relabelScatterND(c *call, emit func(output, input, element int)) {
	c.scatter(emit, func(put func(element int)) {
		c.startsND(0, func(start, size int) {
			for i := range size {
				put(start + i)
			}
		})
	})
}

func inferWhere(c *call) ([]Info, error) {
	out, err := broadcast(c.shape(0), c.shape(1), c.shape(2))
	return one(c.in[1].Type, out), err
}

func relabelWhere(c *call, emit func(output, input, element int)) {
	to, _ := broadcast(c.shape(0), c.shape(1), c.shape(2))
	condition := c.tensor(0).Bools
	each(to, func(at []int) {
		if condition[at[0]] {
			emit(0, 1, at[1])
		} else {
			emit(0, 2, at[2])
		}
	}, broadcastStrides(c.shape(0), to), broadcastStrides(c.shape(1), to), broadcastStrides(c.shape(2), to))
}
