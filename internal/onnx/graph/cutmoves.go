package graph

import "slices"

// reshape returns what stays of a value, of which the new graph has k, in another shape. If what stays does not lie
// at some positions of each axis of the new shape, it puts zeros back.
func (c *cutter) reshape(k kept, t Type, from, to []int) (kept, error) {
	if k.value == Absent {
		return k, nil
	}
	before, after := make([][]int, len(from)), make([][]int, len(to))
	for i, j := 0, 0; count(from) > 0 && (i < len(from) || j < len(to)); {
		i0, j0 := i, j // the next axes that have as many elements together
		m, n := 1, 1
		if i < len(from) {
			m, i = from[i], i+1
		}
		if j < len(to) {
			n, j = to[j], j+1
		}
		for m != n {
			if m < n {
				m, i = m*from[i], i+1
			} else {
				n, j = n*to[j], j+1
			}
		}
		if lists, ok := factors(k.axes[i0:i], from[i0:i], to[j0:j]); ok {
			copy(before[i0:i], k.axes[i0:i])
			copy(after[j0:j], lists)
		}
	}
	x, err := c.place(&k, t, from, before)
	if err != nil {
		return k, err
	}
	k = kept{axes: after}
	k.value, err = c.add("Reshape", nil, x, c.to.AddConstant(ints(k.shape(to))))
	return k, err
}

// factors returns the positions on axes of the sizes to of the elements at the given positions on axes of the
// sizes from. Both have as many elements. ok is false if the elements are not those at some positions of each axis.
func factors(axes [][]int, from, to []int) (lists [][]int, ok bool) {
	lists = make([][]int, len(to))
	if !slices.ContainsFunc(axes, func(list []int) bool { return list != nil }) {
		return lists, true
	}
	elements := []int{0}
	for a, size := range from {
		var next []int
		for _, e := range elements {
			for _, p := range all(axes[a], size) {
				next = append(next, e*size+p)
			}
		}
		elements = next
	}
	product := 1
	for a, step := range strides(to) {
		used := make([]bool, to[a])
		for _, e := range elements {
			used[e/step%to[a]] = true
		}
		for p, is := range used {
			if is {
				lists[a] = append(lists[a], p)
			}
		}
		product *= len(lists[a])
	}
	return lists, product == len(elements)
}

func (c *cutter) transpose() error {
	k := c.of(c.node.Inputs[0])
	if k.value == Absent {
		_, err := c.gone()
		return err
	}
	axes := make([][]int, len(k.axes))
	for i, p := range c.call.permutation() {
		axes[i] = k.axes[p]
	}
	return c.result(axes, "Transpose", c.node.Attributes, k.value)
}

// concat keeps on the other axes what any input has.
func (c *cutter) concat() error {
	n := c.node
	shape := c.call.shape(0)
	along, err := c.call.axis(0, len(shape))
	if err != nil {
		return err
	}
	axes := make([][]int, len(shape))
	for a := range axes {
		axes[a] = []int{}
	}
	offset := 0
	for i, v := range n.Inputs {
		size := c.call.shape(i)[along]
		if k := c.of(v); k.value != Absent {
			for a := range axes {
				if a != along {
					axes[a] = union(axes[a], k.axes[a])
				}
			}
			for _, p := range all(k.axes[along], size) {
				axes[along] = append(axes[along], offset+p)
			}
		}
		offset += size
	}
	var parts []Value
	for _, v := range n.Inputs {
		k := c.of(v)
		if k.value == Absent {
			continue
		}
		own := slices.Clone(axes)
		own[along] = k.axes[along]
		part, err := c.fit(v, own)
		if err != nil {
			return err
		}
		parts = append(parts, part)
	}
	switch len(parts) {
	case 0:
		_, err = c.gone()
	case 1:
		c.set(n.Outputs[0], kept{parts[0], axes})
	default:
		err = c.result(axes, "Concat", n.Attributes, parts...)
	}
	return err
}

// choose is apply for operators that choose positions of axes.
func (c *cutter) choose() (bool, error) {
	n, info := c.node, &c.old.Values[c.node.Inputs[0]]
	k := c.of(n.Inputs[0])
	switch n.Op {
	case "Split":
		along, sizes, err := c.call.parts()
		if err != nil {
			return false, err
		}
		first := 0
		for i, size := range sizes {
			part, err := c.chosen(k, info.Shape, along, all(nil, info.Shape[along])[first:first+size])
			if err != nil {
				return false, err
			}
			c.set(n.Outputs[i], part)
			first += size
		}
		return true, nil
	case "Slice":
		windows, err := c.call.windows()
		if err != nil {
			return false, err
		}
		for a, w := range windows {
			positions := make([]int, w.size)
			for i := range positions {
				positions[i] = w.start + i*w.step
			}
			if k, err = c.chosen(k, info.Shape, a, positions); err != nil {
				return false, err
			}
		}
		c.set(n.Outputs[0], k)
		return true, nil
	}
	which := c.call.tensor(1)
	if which == nil { // the row chooses
		return false, nil
	}
	along, err := c.call.axis(0, len(info.Shape))
	if err != nil {
		return false, err
	}
	size := info.Shape[along]
	positions := make([]int, len(which.Ints))
	for i, index := range which.Ints {
		positions[i] = at(index, size)
	}
	if k, err = c.chosen(k, info.Shape, along, positions); err != nil {
		return false, err
	}
	if len(which.Shape) != 1 {
		from := slices.Clone(info.Shape)
		from[along] = len(positions)
		if k, err = c.reshape(k, info.Type, from, c.old.Values[n.Outputs[0]].Shape); err != nil {
			return false, err
		}
	}
	c.set(n.Outputs[0], k)
	return true, nil
}

// chosen returns what stays of the given positions of an axis of a value of the given shape, of which the new graph has k.
func (c *cutter) chosen(k kept, shape []int, axis int, positions []int) (kept, error) {
	if k.value == Absent {
		return k, nil
	}
	var stay, from []int
	for i, at := range indices(all(k.axes[axis], shape[axis]), positions) {
		if at >= 0 {
			stay, from = append(stay, i), append(from, at)
		}
	}
	axes := slices.Clone(k.axes)
	if len(stay) == 0 {
		return kept{Absent, axes}, nil
	}
	if axes[axis] = stay; len(stay) == len(positions) {
		axes[axis] = nil
	}
	v, err := c.take(k.value, axis, from)
	return kept{v, axes}, err
}

func (c *cutter) expand() error {
	k, shape := c.of(c.node.Inputs[0]), c.old.Values[c.node.Outputs[0]].Shape
	if k.value == Absent {
		_, err := c.gone()
		return err
	}
	out := kept{axes: make([][]int, len(shape))}
	copy(out.axes[len(shape)-len(k.axes):], k.axes)
	return c.result(out.axes, "Expand", nil, k.value, c.to.AddConstant(ints(out.shape(shape))))
}
