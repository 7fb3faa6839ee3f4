package graph

import (
	"slices"
	"strings"
)

// matMul leaves out the weights of elements that are gone, and the rows and columns of the result that are 0.
func (c *cutter) matMul() (bool, error) {
	n := c.node
	a, b := c.of(n.Inputs[0]), c.of(n.Inputs[1])
	if a.value == Absent || b.value == Absent {
		return c.gone()
	}
	shapes := [2][]int{c.call.shape(0), c.call.shape(1)}
	if len(shapes[0]) < 2 || len(shapes[1]) < 2 {
		return false, nil
	}
	rank := len(c.old.Values[n.Outputs[0]].Shape)
	to := make([][]int, rank)
	for _, k := range []*kept{&a, &b} {
		for axis, list := range k.axes[:len(k.axes)-2] {
			at := axis + rank - len(k.axes)
			to[at] = intersection(to[at], list)
		}
	}
	inner := intersection(a.axes[len(a.axes)-1], b.axes[len(b.axes)-2])
	left, right := aligned(to, shapes[0]), aligned(to, shapes[1])
	left[len(left)-2], left[len(left)-1] = a.axes[len(left)-2], inner
	right[len(right)-2], right[len(right)-1] = inner, b.axes[len(right)-1]
	to[rank-2], to[rank-1] = left[len(left)-2], right[len(right)-1]
	return c.multiply(to, [][][]int{left, right}, append(slices.Clone(to), inner))
}

// multiply adds a product with the given positions on the axes of its output and of its factors. If an axis has none,
// the product is 0.
func (c *cutter) multiply(to [][]int, factors [][][]int, every [][]int) (bool, error) {
	n := c.node
	if slices.ContainsFunc(every, func(list []int) bool { return list != nil && len(list) == 0 }) {
		return c.gone()
	}
	inputs := slices.Clone(n.Inputs)
	for i, axes := range factors {
		var err error
		if inputs[i], err = c.fit(n.Inputs[i], axes); err != nil {
			return false, err
		}
	}
	for i := len(factors); i < len(inputs); i++ {
		var err error
		if inputs[i] == Absent {
			continue
		}
		if inputs[i], err = c.whole(n.Inputs[i]); err != nil {
			return false, err
		}
	}
	return true, c.result(to, n.Op, n.Attributes, inputs...)
}

// gemm leaves out the weights of elements that are gone. Without an addend it also leaves out the rows and columns
// of the result that are 0.
func (c *cutter) gemm() (bool, error) {
	n := c.node
	a, b, bias := c.of(n.Inputs[0]), c.of(n.Inputs[1]), c.call.has(2)
	if a.value == Absent || b.value == Absent {
		if bias {
			return false, nil
		}
		return c.gone()
	}
	row, column := 0, 1
	if c.call.int("transA", 0) != 0 {
		row = 1
	}
	if c.call.int("transB", 0) != 0 {
		column = 0
	}
	left, right := slices.Clone(a.axes), slices.Clone(b.axes)
	inner := intersection(left[1-row], right[1-column])
	left[1-row], right[1-column] = inner, inner
	if bias {
		if left[row], right[column] = nil, nil; inner != nil && len(inner) == 0 {
			return false, nil
		}
	}
	to := [][]int{left[row], right[column]}
	return c.multiply(to, [][][]int{left, right}, [][]int{inner})
}

// conv leaves out the weights of channels that are gone.
func (c *cutter) conv() (bool, error) {
	x, w, bias := c.of(c.node.Inputs[0]), c.of(c.node.Inputs[1]), c.call.has(2)
	if c.call.int("group", 1) != 1 || w.cuts() {
		return false, nil
	}
	if x.value == Absent {
		if bias {
			return false, nil
		}
		return c.gone()
	}
	left, right := slices.Clone(x.axes), make([][]int, len(w.axes))
	right[1] = left[1]
	if bias {
		clear(left)
		left[1] = right[1]
	}
	to := slices.Clone(left)
	to[1] = nil
	return c.multiply(to, [][][]int{left, right}, nil)
}

// einsum keeps a position of a label only if all inputs with this label have it.
func (c *cutter) einsum() (bool, error) {
	n := c.node
	equation := strings.ReplaceAll(c.call.string("equation", ""), " ", "")
	sides, out, explicit := strings.Cut(equation, "->")
	terms := strings.Split(sides, ",")
	if !explicit || strings.Contains(equation, ".") {
		return false, nil
	}
	labels := map[byte][]int{}
	for i, term := range terms {
		k := c.of(n.Inputs[i])
		if k.value == Absent {
			return c.gone()
		}
		for a := range len(term) {
			if strings.Count(term, term[a:a+1]) > 1 {
				return false, nil
			}
			labels[term[a]] = intersection(labels[term[a]], k.axes[a])
		}
	}
	lists := func(term string, shape []int) [][]int {
		axes := make([][]int, len(term))
		for a := range axes {
			if shape[a] != 1 {
				axes[a] = labels[term[a]]
			}
		}
		return axes
	}
	var factors [][][]int
	for i, term := range terms {
		factors = append(factors, lists(term, c.call.shape(i)))
	}
	var every [][]int
	for _, list := range labels {
		every = append(every, list)
	}
	return c.multiply(lists(out, c.old.Values[n.Outputs[0]].Shape), factors, every)
}

// reduce is apply for reductions. Sums need no zeros. The largest and the smallest element and a product do.
func (c *cutter) reduce() (bool, error) {
	n := c.node
	sum := slices.Contains([]string{"ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare"}, n.Op)
	if !sum && !slices.Contains([]string{"ReduceMax", "ReduceMin", "ReduceProd"}, n.Op) {
		return false, nil
	}
	k, shape := c.of(n.Inputs[0]), c.call.shape(0)
	if k.value == Absent {
		return c.gone()
	}
	reduced, err := c.call.reduced()
	if err != nil {
		return false, err
	}
	from := slices.Clone(k.axes)
	var to [][]int
	size, less := 1, false
	for a, is := range reduced {
		if !is {
			to = append(to, from[a])
			continue
		}
		if !sum {
			from[a] = nil
		}
		size, less = size*shape[a], less || from[a] != nil
		if c.call.int("keepdims", 1) != 0 {
			to = append(to, nil)
		}
	}
	x, err := c.fit(n.Inputs[0], from)
	if err != nil {
		return false, err
	}
	inputs := []Value{x}
	if c.call.has(1) {
		inputs = append(inputs, c.constant(c.call.tensor(1)))
	}
	if n.Op == "ReduceMean" && less {
		if x, err = c.add("ReduceSum", n.Attributes, inputs...); err != nil {
			return false, err
		}
		return true, c.result(to, "Div", nil, x, c.to.AddConstant(NewFloats([]float32{float32(size)})))
	}
	return true, c.result(to, n.Op, n.Attributes, inputs...)
}
