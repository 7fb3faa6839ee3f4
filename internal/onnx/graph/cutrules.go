package graph

import "slices"

// apply adds what stays of the current node. done is false if the operator needs all elements of its inputs.
func (c *cutter) apply() (done bool, err error) {
	n := c.node
	if _, ok := elementwise[n.Op]; ok || n.Op == "Where" || n.Op == "Cast" {
		return c.elementwise()
	}
	switch n.Op {
	case "Identity", "Dropout":
		c.set(n.Outputs[0], c.of(n.Inputs[0]))
		return true, nil
	case "Reshape", "Flatten", "Squeeze", "Unsqueeze":
		in := &c.old.Values[n.Inputs[0]]
		k, err := c.reshape(c.of(n.Inputs[0]), in.Type, in.Shape, c.old.Values[n.Outputs[0]].Shape)
		c.set(n.Outputs[0], k)
		return true, err
	case "Transpose":
		return true, c.transpose()
	case "Concat":
		return true, c.concat()
	case "Split", "Slice", "Gather":
		return c.choose()
	case "Expand":
		return true, c.expand()
	case "MatMul":
		return c.matMul()
	case "Gemm":
		return c.gemm()
	case "Conv":
		return c.conv()
	case "Einsum":
		return c.einsum()
	}
	if _, ok := reductions[n.Op]; ok && n.Op != "CumSum" {
		return c.reduce()
	}
	return false, nil
}

// gone sets the only output of the current node to zeros.
func (c *cutter) gone() (bool, error) {
	c.set(c.node.Outputs[0], kept{value: Absent})
	return true, nil
}

// result adds a node and sets the only output of the current node to its output, with the given positions.
func (c *cutter) result(axes [][]int, op string, attributes Attributes, inputs ...Value) error {
	v, err := c.add(op, attributes, inputs...)
	if err == nil {
		c.set(c.node.Outputs[0], kept{v, axes})
	}
	return err
}

// union returns the positions that are in a or b, and intersection those that are in both. nil stands for all.
func union(a, b []int) []int {
	if a == nil || b == nil {
		return nil
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

func intersection(a, b []int) []int {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	both := []int{}
	for _, p := range a {
		if _, found := slices.BinarySearch(b, p); found {
			both = append(both, p)
		}
	}
	return both
}

// elementwise is apply for operators that compute each element of the output from one of each input. An
// element of a product is 0 if a factor is. An element of another output is 0 if all inputs that count are, and the
// operator makes 0 of zeros.
func (c *cutter) elementwise() (bool, error) {
	n := c.node
	shape := c.old.Values[n.Outputs[0]].Shape
	to := make([][]int, len(shape))
	product := n.Op == "Mul" || n.Op == "And"
	if !product && !c.zeroOfZeros() {
		return false, nil
	}
	counts := func(i int) bool { // whether zeros of an input are needed for zeros of the output
		v := n.Inputs[i]
		return v != Absent && c.old.Values[v].Constant == nil && !(n.Op == "Div" && i == 1) && !(n.Op == "Where" && i == 0)
	}
	some := false
	for i, v := range n.Inputs {
		if k := c.some(v); v != Absent && k.value == Absent && product {
			return c.gone()
		} else if counts(i) && k.value != Absent {
			some = true
		}
	}
	if !some {
		return c.gone()
	}
	for a := range shape {
		list := []int{}
		if product {
			list = nil
		}
		for i, v := range n.Inputs {
			k := c.some(v)
			if own := a - len(shape) + len(k.axes); v == Absent || k.value == Absent {
				continue
			} else if product && own >= 0 {
				list = intersection(list, k.axes[own])
			} else if counts(i) && own >= 0 {
				list = union(list, k.axes[own])
			} else if counts(i) {
				list = nil
			}
		}
		to[a] = list
	}
	if !slices.ContainsFunc(to, func(list []int) bool { return list != nil }) {
		return false, nil
	}
	if slices.ContainsFunc(to, func(list []int) bool { return list != nil && len(list) == 0 }) {
		return c.gone()
	}
	inputs := slices.Clone(n.Inputs)
	for i, v := range n.Inputs {
		if v == Absent {
			continue
		}
		var err error
		if inputs[i], err = c.fit(v, aligned(to, c.old.Values[v].Shape)); err != nil {
			return false, err
		}
	}
	return true, c.result(to, n.Op, n.Attributes, inputs...)
}

// aligned returns the positions on the axes of a value of the given shape that broadcasts to a result with the
// positions to.
func aligned(to [][]int, shape []int) [][]int {
	axes := make([][]int, len(shape))
	for a, size := range shape {
		if at := a + len(to) - len(shape); size != 1 && at >= 0 {
			axes[a] = to[at]
		}
	}
	return axes
}

// zeroOfZeros reports whether the current node makes 0 of zeros in place of all its inputs that are not
// constant. It takes every divisor for a number other than 0.
func (c *cutter) zeroOfZeros() bool {
	var in []*Tensor
	for i, v := range c.node.Inputs {
		switch {
		case v == Absent:
			in = append(in, nil)
		case c.old.Values[v].Constant != nil:
			in = append(in, c.old.Values[v].Constant)
		case c.node.Op == "Div" && i == 1:
			if k := c.of(v); k.cuts() {
				return false
			}
			one := newTensor(c.old.Values[v].Type, nil)
			if one.Type == Float {
				one.Floats[0] = 1
			} else {
				one.Ints[0] = 1
			}
			in = append(in, one)
		default:
			in = append(in, newTensor(c.old.Values[v].Type, nil))
		}
	}
	if c.node.Op == "Where" { // either of them
		return !slices.ContainsFunc(in[1:], (*Tensor).anyNonZero)
	}
	out, err := Evaluate(c.node.Op, c.node.Attributes, in)
	return err == nil && !out[0].anyNonZero()
}

func (t *Tensor) anyNonZero() bool {
	for i := range t.Len() {
		if t.nonZero(i) {
			return true
		}
	}
	return false
}
