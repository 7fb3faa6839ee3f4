package graph

import (
	"errors"
	"fmt"
	"slices"
)

// Part is what stays of an input of a graph.
type Part struct {
	// Axes has the positions that stay on each axis, in ascending order; nil = all of them. An
	// element stays if its positions on all axes do.
	Axes [][]int
	// Constant takes the place of the input, which goes; nil = the input is not a constant.
	Constant *Tensor
}

// Cut returns a graph that computes what g computes if the elements of its inputs that go are 0.
// parts has what stays of each input, in the order of g.Inputs. The inputs of the result have the elements that
// stay. An input of which none stays, or which becomes a constant, is not among them.
//
// The nodes compute only what depends on elements that stay, as far as each operator allows it: products have
// fewer weights, for example. Where an operator needs all elements, zeros are put back in their places. The
// result is that of g up to rounding. An output that depends on no input is an error.
func (g *Graph) Cut(parts []Part) (*Graph, error) {
	if len(parts) != len(g.Inputs) {
		panic(fmt.Sprintf("graph: Cut: %d parts of %d inputs", len(parts), len(g.Inputs)))
	}
	c := &cutter{
		old: g, to: &Graph{}, kept: make([]kept, len(g.Values)), reads: make([]int, len(g.Values)),
		constants: map[*Tensor]Value{}, readers: map[Value]int{}, made: map[Value]int{}, node: &Node{},
	}
	for i := range g.Nodes {
		for _, v := range g.Nodes[i].Inputs {
			if v != Absent {
				c.reads[v]++
			}
		}
	}
	c.reads[g.Output]++
	for i, v := range g.Inputs {
		c.input(v, &parts[i])
	}
	for i := range g.Nodes {
		if err := c.cut(&g.Nodes[i]); err != nil {
			return nil, err
		}
	}
	var err error
	if c.to.Output, err = c.whole(g.Output); err != nil {
		return nil, err
	}
	if c.to.Values[c.to.Output].Constant != nil {
		return nil, errors.New("the output no longer depends on the row")
	}
	c.to.Trim()
	return c.to, nil
}

// kept is what the new graph has of a value.
type kept struct {
	value Value   // in the new graph; Absent = every element is 0
	axes  [][]int // positions on each axis that value has, ascending; nil = all of them; the other elements are 0
}

// cutter makes the graph of Cut.
type cutter struct {
	old, to   *Graph
	kept      []kept            // by value of old
	reads     []int             // number of inputs of nodes that read each value of old
	constants map[*Tensor]Value // constants of to
	readers   map[Value]int     // of values of to, as reads
	made      map[Value]int     // node of to that makes a value
	node      *Node             // current node of old
	call      *call             // of node
}

// input adds what stays of an input.
func (c *cutter) input(v Value, p *Part) {
	info := &c.old.Values[v]
	if p.Constant != nil {
		c.set(v, kept{c.constant(p.Constant), nil})
		return
	}
	k := kept{Absent, p.Axes}
	if shape := k.shape(info.Shape); count(shape) > 0 {
		k.value = c.to.AddInput(info.Name, info.Type, shape)
	}
	c.set(v, k)
}

// shape returns the shape of the elements that stay, of those with the given shape.
func (k *kept) shape(shape []int) []int {
	shape = slices.Clone(shape)
	for a, list := range k.axes {
		if list != nil {
			shape[a] = len(list)
		}
	}
	return shape
}

// cuts reports whether some elements are gone.
func (k *kept) cuts() bool {
	return k.value == Absent || slices.ContainsFunc(k.axes, func(list []int) bool { return list != nil })
}

// set sets what the new graph has of a value.
func (c *cutter) set(v Value, k kept) {
	shape := c.old.Values[v].Shape
	axes := make([][]int, len(shape))
	for a, list := range k.axes {
		switch {
		case k.value == Absent:
		case list != nil && len(list) == 0:
			k.value = Absent
			clear(axes)
		case len(list) < shape[a]:
			axes[a] = list
		}
	}
	k.axes = axes
	if c.kept[v] = k; k.value != Absent {
		c.readers[k.value] += c.reads[v]
	}
}

// of returns what the new graph has of a value.
func (c *cutter) of(v Value) kept {
	if t := c.old.Values[v].Constant; t != nil {
		return kept{c.constant(t), make([][]int, len(t.Shape))}
	}
	return c.kept[v]
}

func (c *cutter) constant(t *Tensor) Value {
	v, ok := c.constants[t]
	if !ok {
		v = c.to.AddConstant(t)
		c.constants[t] = v
		c.readers[v] = 2 // it is never computed again
	}
	return v
}

// add adds a node with one output, which has the name of the current node.
func (c *cutter) add(op string, attributes Attributes, inputs ...Value) (Value, error) {
	before := len(c.to.Nodes)
	out, err := c.to.Add(Node{Name: c.node.Name, Op: op, Inputs: inputs, Attributes: attributes})
	if err != nil {
		return 0, err
	}
	if len(c.to.Nodes) > before {
		c.made[out[0]] = before
	}
	return out[0], nil
}

// cut adds what stays of a node.
func (c *cutter) cut(n *Node) (err error) {
	c.node = n
	done := false
	if slices.ContainsFunc(n.Inputs, func(v Value) bool { k := c.some(v); return k.cuts() }) {
		if c.call, err = newCall(n.Op, n.Attributes, c.old.infos(n.Inputs)); err == nil {
			done, err = c.apply()
		}
	}
	if err == nil && !done {
		err = c.repeat()
	}
	if err != nil {
		return fmt.Errorf("node %.100q (%.100s): %w", n.Name, n.Op, err)
	}
	return nil
}

// some is of for an input that may be absent.
func (c *cutter) some(v Value) kept {
	if v == Absent {
		return kept{}
	}
	return c.of(v)
}

// repeat adds the current node as it is, with zeros in place of what is gone.
func (c *cutter) repeat() error {
	n := Node{Name: c.node.Name, Op: c.node.Op, Attributes: c.node.Attributes}
	for _, v := range c.node.Inputs {
		in, err := v, error(nil)
		if v != Absent {
			in, err = c.whole(v)
		}
		if err != nil {
			return err
		}
		n.Inputs = append(n.Inputs, in)
	}
	before := len(c.to.Nodes)
	out, err := c.to.Add(n)
	if err != nil {
		return err
	}
	for i, v := range c.node.Outputs {
		c.set(v, kept{out[i], nil})
		if len(c.to.Nodes) > before {
			c.made[out[i]] = before
		}
	}
	return nil
}

// whole returns a value with zeros in place of what is gone.
func (c *cutter) whole(v Value) (Value, error) {
	return c.fit(v, make([][]int, len(c.old.Values[v].Shape)))
}

// fit returns the elements of a value at the given positions of each axis, where nil stands for all.
func (c *cutter) fit(v Value, axes [][]int) (Value, error) {
	info := &c.old.Values[v]
	k := c.of(v)
	return c.place(&k, info.Type, info.Shape, axes)
}

// place is fit for a value of which the new graph has k.
func (c *cutter) place(k *kept, t Type, shape []int, axes [][]int) (Value, error) {
	if k.value == Absent {
		want := kept{axes: axes}
		return c.to.AddConstant(newTensor(t, want.shape(shape))), nil
	}
	out := k.value
	for a, size := range shape {
		have, want := k.axes[a], axes[a]
		if have == nil && want == nil {
			continue
		}
		var err error
		if out, err = c.pick(out, a, indices(all(have, size), all(want, size))); err != nil {
			return 0, err
		}
	}
	return out, nil
}

// all returns positions of an axis of the given size, where nil stands for all.
func all(list []int, size int) []int {
	if list == nil {
		list = make([]int, size)
		for i := range list {
			list[i] = i
		}
	}
	return list
}

// indices returns where each position of want is in have, which is ascending, or -1.
func indices(have, want []int) []int {
	out := make([]int, len(want))
	for i, position := range want {
		at, found := slices.BinarySearch(have, position)
		if out[i] = at; !found {
			out[i] = -1
		}
	}
	return out
}

// pick returns the given positions of an axis of a value of the new graph. It puts zeros at the positions -1.
func (c *cutter) pick(v Value, axis int, positions []int) (Value, error) {
	if !slices.Contains(positions, -1) {
		return c.take(v, axis, positions)
	}
	info := c.to.Values[v]
	zeros := func(n int) Value {
		shape := slices.Clone(info.Shape)
		shape[axis] = n
		return c.to.AddConstant(newTensor(info.Type, shape))
	}
	before, after := 0, 0
	for before < len(positions) && positions[before] == -1 {
		before++
	}
	if before == len(positions) {
		return zeros(before), nil
	}
	for positions[len(positions)-1-after] == -1 {
		after++
	}
	along := Attributes{"axis": int64(axis)}
	if middle := positions[before : len(positions)-after]; !slices.Contains(middle, -1) { // a block
		block, err := c.take(v, axis, middle)
		if err != nil {
			return 0, err
		}
		parts := []Value{block}
		if before > 0 {
			parts = append([]Value{zeros(before)}, parts...)
		}
		if after > 0 {
			parts = append(parts, zeros(after))
		}
		return c.add("Concat", along, parts...)
	}
	v, err := c.add("Concat", along, v, zeros(1))
	if err != nil {
		return 0, err
	}
	positions = slices.Clone(positions)
	for i, p := range positions {
		if p == -1 {
			positions[i] = info.Shape[axis]
		}
	}
	return c.take(v, axis, positions)
}

// take returns the given positions of an axis of a value of the new graph. If nothing else reads the value, a
// product that makes it makes only these positions.
func (c *cutter) take(v Value, axis int, positions []int) (Value, error) {
	size := c.to.Values[v].Shape[axis]
	consecutive := true
	for i, p := range positions {
		consecutive = consecutive && p == positions[0]+i
	}
	switch {
	case consecutive && len(positions) == size:
		return v, nil
	case c.pushes(v, axis):
		return c.push(v, axis, positions)
	case consecutive:
		one := func(n int) Value { return c.to.AddConstant(NewInts([]int64{int64(n)}, 1)) }
		return c.add("Slice", nil, v, one(positions[0]), one(positions[0]+len(positions)), one(axis))
	}
	return c.add("Gather", Attributes{"axis": int64(axis)}, v, c.to.AddConstant(ints(positions)))
}

// ints returns a tensor of whole numbers.
func ints(list []int) *Tensor {
	out := make([]int64, len(list))
	for i, n := range list {
		out[i] = int64(n)
	}
	return NewInts(out, len(out))
}

// pushes reports whether the node that makes v can make some positions of an axis only, and computes fewer
// products for them.
func (c *cutter) pushes(v Value, axis int) bool {
	slots, product := c.slots(v, axis)
	if product {
		return true
	}
	for i, slot := range slots {
		if slot >= 0 && c.pushes(c.to.Nodes[c.made[v]].Inputs[i], slot) {
			return true
		}
	}
	return false
}

// push repeats the node that makes v for some positions of an axis. pushes must hold.
func (c *cutter) push(v Value, axis int, positions []int) (Value, error) {
	slots, _ := c.slots(v, axis)
	n := c.to.Nodes[c.made[v]]
	inputs := slices.Clone(n.Inputs)
	for i, slot := range slots {
		if slot < 0 {
			continue
		}
		var err error
		if inputs[i], err = c.take(inputs[i], slot, positions); err != nil {
			return 0, err
		}
	}
	if n.Op == "Reshape" {
		shape := slices.Clone(c.to.Values[v].Shape)
		shape[axis] = len(positions)
		inputs[1] = c.to.AddConstant(ints(shape))
	}
	return c.add(n.Op, n.Attributes, inputs...)
}

// slots returns, for each input of the node that makes v, its axis along which the positions of an axis of v
// lie, or -1 if all positions read the whole input. It returns nil if they do not lie along one axis, or if something else
// reads v. product says whether the node is a product with fewer weights for fewer positions.
func (c *cutter) slots(v Value, axis int) (slots []int, product bool) {
	made, ok := c.made[v]
	if !ok || c.readers[v] > 1 {
		return nil, false
	}
	n := &c.to.Nodes[made]
	in := c.to.infos(n.Inputs)
	slots = make([]int, len(in))
	for i := range slots {
		slots[i] = -1
	}
	shape := c.to.Values[v].Shape
	switch _, simple := elementwise[n.Op]; {
	case n.Op == "MatMul" && len(in[0].Shape) > 1 && len(in[1].Shape) > 1:
		switch side := len(shape) - 1 - axis; {
		case side == 0 && in[1].Constant != nil:
			slots[1] = len(in[1].Shape) - 1
		case side == 1 && in[0].Constant != nil:
			slots[0] = len(in[0].Shape) - 2
		default:
			return nil, false
		}
		return slots, true
	case n.Op == "Gemm" && axis == 1 && in[1].Constant != nil:
		slots[1] = 1
		if t, _ := n.Attributes["transB"].(int64); t != 0 {
			slots[1] = 0
		}
		if len(in) > 2 && in[2].Type != 0 {
			if last := len(in[2].Shape) - 1; last >= 0 && in[2].Shape[last] > 1 {
				slots[2] = last
			}
		}
		return slots, true
	case simple, n.Op == "Cast", n.Op == "Where":
		for i := range in {
			own := axis - len(shape) + len(in[i].Shape)
			if in[i].Type != 0 && own >= 0 && in[i].Shape[own] > 1 {
				slots[i] = own
			}
		}
		return slots, false
	case n.Op == "Transpose":
		slots[0] = len(shape) - 1 - axis
		if p, ok := n.Attributes["perm"].([]int64); ok {
			slots[0] = int(p[axis])
		}
		return slots, false
	case n.Op == "Reshape":
		for a, size := range in[0].Shape {
			if size == shape[axis] && count(in[0].Shape[:a]) == count(shape[:axis]) {
				slots[0] = a
				return slots, false
			}
		}
	}
	return nil, false
}
