package graph

import (
	"fmt"
	"slices"
)

// choices has the operators that choose elements by their size. Their indices count from 0.
var choices = map[string]operator{
	"TopK":   {inputs: "N i!", attributes: "axis:i largest:i sorted:i", infer: inferTopK, evaluate: evaluateTopK, work: workTopK},
	"ArgMax": {inputs: "N", attributes: "axis:i keepdims:i select_last_index:i", infer: inferArg, evaluate: func(c *call, out []*Tensor) error { return evaluateArg(c, out, true) }},
	"ArgMin": {inputs: "N", attributes: "axis:i keepdims:i select_last_index:i", infer: inferArg, evaluate: func(c *call, out []*Tensor) error { return evaluateArg(c, out, false) }},
}

func inferTopK(c *call) ([]Info, error) {
	shape := c.shape(0)
	a, err := c.axis(-1, len(shape))
	if err != nil {
		return nil, err
	}
	k, err := c.one(1)
	if err != nil {
		return nil, err
	}
	if k < 1 || k > int64(shape[a]) {
		return nil, fmt.Errorf("%d elements of an axis of %d, expected 1 to %d", k, shape[a], shape[a])
	}
	to := slices.Clone(shape)
	to[a] = int(k)
	return []Info{{Type: c.in[0].Type, Shape: to}, {Type: Int, Shape: slices.Clone(to)}}, nil
}

func workTopK(c *call, out []Info) int64 {
	a, _ := c.axis(-1, len(c.shape(0)))
	return int64(count(out[0].Shape)) * int64(c.shape(0)[a])
}

// evaluateTopK sorts the elements, also if the attribute sorted is 0. Of equal elements, the
// one with the lower index comes first.
func evaluateTopK(c *call, out []*Tensor) error {
	x, k := c.tensor(0), int(c.tensor(1).Ints[0])
	largest := c.int("largest", 1) != 0
	list := make([]int, k)
	to := 0
	a, _ := c.axis(-1, len(x.Shape))
	inner := count(x.Shape[a+1:])
	c.lines(int64(a), func(start, size, step int) {
		choose(list, size, func(i, j int) bool { return x.beyond(start+i*step, start+j*step, largest) })
		at := to/inner*inner*k + to%inner // line number to of the outputs
		for r, i := range list {
			out[0].set(at+r*inner, x, start+i*step)
			out[1].Ints[at+r*inner] = int64(i)
		}
		to++
	})
	return nil
}

// choose sets list to the first elements of 0 to n-1 in the order that before defines. Where it
// defines none, lower numbers come first.
func choose(list []int, n int, before func(i, j int) bool) {
	for i := range n {
		k := min(i, len(list))
		for ; k > 0 && before(i, list[k-1]); k-- {
			if k < len(list) {
				list[k] = list[k-1]
			}
		}
		if k < len(list) {
			list[k] = i
		}
	}
}

// beyond reports whether element i of a tensor of numbers is larger than element j, or smaller
// if largest is false.
func (t *Tensor) beyond(i, j int, largest bool) bool {
	if !largest {
		i, j = j, i
	}
	if t.Type == Float {
		return t.float(i) > t.float(j)
	}
	return t.Ints[i] > t.Ints[j]
}

func inferArg(c *call) ([]Info, error) {
	shape := c.shape(0)
	a, err := c.axis(0, len(shape))
	if err != nil {
		return nil, err
	}
	if shape[a] == 0 {
		return nil, fmt.Errorf("axis %d has no elements", a)
	}
	to := slices.Clone(shape)
	if to[a] = 1; c.int("keepdims", 1) == 0 {
		to = slices.Delete(to, a, a+1)
	}
	return one(Int, to), nil
}

func evaluateArg(c *call, out []*Tensor, largest bool) error {
	x, to := c.tensor(0), 0
	last := c.int("select_last_index", 0) != 0
	c.lines(c.int("axis", 0), func(start, size, step int) {
		best := 0
		for i := range size {
			at, from := start+i*step, start+best*step
			if x.beyond(at, from, largest) || last && !x.beyond(from, at, largest) {
				best = i
			}
		}
		out[0].Ints[to] = int64(best)
		to++
	})
	return nil
}
