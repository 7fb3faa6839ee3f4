package execute

import (
	"errors"
	"math"
	"slices"

	"shaver/internal/num/kernel"
	"shaver/internal/onnx/graph"
)

// rankOp sets successive results to the positions of the k largest of each n successive rows
// of x, from the largest on. Of equal rows, the first comes first.
type rankOp struct {
	out, x   []int32
	n, k     int
	smallest bool // whether the smallest come first instead
	last     bool // whether the last of equal rows comes first; only if k is 1
}

// selectOp sets out[i] to the row at position index[i] of the list i of x. A negative position
// counts from the end. The result is NaN if the position is not in the list.
type selectOp struct {
	out, index []int32
	x          []int32 // [len(out), n]
}

// n returns the number of rows of a list.
func (o *selectOp) n() int { return len(o.x) / len(o.out) }

// scatterOp adds each addend to the result at position index, and sets all other results to 0.
type scatterOp struct {
	out, index, addends []int32
}

func (o *rankOp) results() []int32    { return o.out }
func (o *selectOp) results() []int32  { return o.out }
func (o *scatterOp) results() []int32 { return o.out }

func (o *rankOp) operands() [][]int32    { return [][]int32{o.x} }
func (o *selectOp) operands() [][]int32  { return [][]int32{o.index, o.x} }
func (o *scatterOp) operands() [][]int32 { return [][]int32{o.index, o.addends} }

func (o *rankOp) overlays() bool    { return false }
func (o *selectOp) overlays() bool  { return false }
func (o *scatterOp) overlays() bool { return false }

func (o *rankOp) step(at func([]int32) []int32) step {
	return &rankStep{at(o.out), at(o.x), o.n, o.k, o.smallest, o.last}
}

func (o *selectOp) step(at func([]int32) []int32) step {
	return &selectStep{at(o.out), at(o.index), at(o.x), o.n()}
}

func (o *scatterOp) step(at func([]int32) []int32) step {
	return &scatterStep{at(o.out), at(o.index), at(o.addends)}
}

type rankStep struct {
	out, x         []int32
	n, k           int
	smallest, last bool
}

func (s *rankStep) run(arena kernel.Block, states int) {
	for group := 0; group*s.k < len(s.out); group++ {
		out, x := s.out[group*s.k:][:s.k], s.x[group*s.n:][:s.n]
		for t := range states {
			value := func(i int) float32 { return arena[int(x[i])*kernel.States+t] }
			place := func(k int) *float32 { return &arena[int(out[k])*kernel.States+t] }
			for i, row := range x {
				v, k := arena[int(row)*kernel.States+t], min(i, s.k)
				for ; k > 0 && s.before(v, value(int(*place(k - 1)))); k-- {
					if k < s.k {
						*place(k) = *place(k - 1)
					}
				}
				if k < s.k {
					*place(k) = float32(i)
				}
			}
		}
	}
}

// before reports whether x comes before y, which is at a lower position.
func (s *rankStep) before(x, y float32) bool {
	if s.smallest {
		x, y = y, x
	}
	return x > y || s.last && !(y > x)
}

type selectStep struct {
	out, index, x []int32
	n             int
}

func (s *selectStep) run(arena kernel.Block, states int) {
	for i, row := range s.out {
		out, index, x := arena.Element(int(row)), arena.Element(int(s.index[i])), s.x[i*s.n:][:s.n]
		for t := range states {
			if k := position(index[t], s.n); k >= 0 {
				out[t] = arena[int(x[k])*kernel.States+t]
			} else {
				out[t] = float32(math.NaN())
			}
		}
	}
}

// position returns the position in a list of n elements that an index names, or -1.
func position(index float32, n int) int {
	if index < 0 {
		index += float32(n)
	}
	if index >= 0 && index < float32(n) {
		return int(index)
	}
	return -1
}

type scatterStep struct{ out, index, addends []int32 }

func (s *scatterStep) run(arena kernel.Block, states int) {
	for _, row := range s.out {
		clear(arena.Element(int(row))[:states])
	}
	for i, row := range s.addends {
		index, x := arena.Element(int(s.index[i])), arena.Element(int(row))
		for t := range states {
			if k := position(index[t], len(s.out)); k >= 0 {
				arena[int(s.out[k])*kernel.States+t] += x[t]
			}
		}
	}
}

// differentiate adds nothing, because a choice counts as fixed.
func (o *rankOp) differentiate(*differentiator) {}

// differentiate passes the derivative to the row that was chosen.
func (o *selectOp) differentiate(d *differentiator) {
	n, slopes := o.n(), d.slopes(o.out)
	list := func(i int) []int32 { return o.x[i*n : (i+1)*n] }
	first := map[int32][]int{} // by the first row of a list: results that choose from it
	var order []int32
	for i := range o.out {
		if slopes[i] == none || !d.anyActive(list(i)) {
			continue
		}
		if first[o.x[i*n]] == nil {
			order = append(order, o.x[i*n])
		}
		first[o.x[i*n]] = append(first[o.x[i*n]], i)
	}
	for _, row := range order {
		for left := first[row]; len(left) > 0; {
			var index, g []int32
			same, others := list(left[0]), []int(nil)
			for _, i := range left {
				if slices.Equal(list(i), same) {
					index, g = append(index, o.index[i]), append(g, slopes[i])
				} else {
					others = append(others, i)
				}
			}
			out := d.allocate(n, index, g)
			d.emit(&scatterOp{out, index, g})
			d.add(same, out)
			left = others
		}
	}
}

// differentiate panics, because only derivatives have this instruction.
func (o *scatterOp) differentiate(*differentiator) {
	panic("execute: the derivative of a derivative")
}

// rank returns the positions of the k first of each n successive rows of x.
func (c *compiler) rank(x []int32, n, k int, smallest, last bool) []int32 {
	out := c.allocate(len(x)/n*k, x)
	c.emit(&rankOp{out, x, n, k, smallest, last})
	return out
}

// choice returns the rows that index names in the lists of x, which has n rows for each
// element of index.
func (c *compiler) choice(index, x []int32) []int32 {
	out := c.allocate(len(index), index, x)
	c.emit(&selectOp{out, index, x})
	return out
}

// topK compiles TopK.
func topK(c *compiler, n *graph.Node) error {
	shape, k := c.shape(n.Inputs[0]), int(c.constant(n.Inputs[1]).Ints[0])
	axis := axisOf(n, -1, len(shape))
	positions, size := grouped(shape, []int{axis})
	x := pick(c.read(n.Inputs[0]), positions)
	index := c.rank(x, size, k, integer(n, "largest", 1) == 0, false)
	to := slices.Clone(shape)
	to[axis] = k
	back, _ := grouped(to, []int{axis})
	c.set(n.Outputs[1], place(index, back))
	if c.uses[n.Outputs[0]] == 0 {
		return nil
	}
	var lists []int32
	for i := range index {
		lists = append(lists, x[i/k*size:][:size]...)
	}
	c.set(n.Outputs[0], place(c.choice(index, lists), back))
	return nil
}

// axisOf returns the attribute axis, counted from the first.
func axisOf(n *graph.Node, otherwise int64, rank int) int {
	axis := int(integer(n, "axis", otherwise))
	if axis < 0 {
		axis += rank
	}
	return axis
}

// arg compiles ArgMax and ArgMin.
func arg(c *compiler, n *graph.Node) error {
	shape := c.shape(n.Inputs[0])
	positions, size := grouped(shape, []int{axisOf(n, 0, len(shape))})
	x := pick(c.read(n.Inputs[0]), positions)
	c.set(n.Outputs[0], c.rank(x, size, 1, n.Op == "ArgMin", integer(n, "select_last_index", 0) != 0))
	return nil
}

// maxLists bounds the rows of all lists from which a node chooses.
const maxLists = 1 << 24

// checkLists fails if an operator that chooses count times from n rows has too many.
func checkLists(count, n int) error {
	if n == 0 || count > maxLists/n {
		return errors.New("it chooses among too many elements, or among none")
	}
	return nil
}

// gather compiles a Gather whose indices depend on the row.
func gather(c *compiler, n *graph.Node) error {
	shape, index := c.shape(n.Inputs[0]), c.read(n.Inputs[1])
	axis := axisOf(n, 0, len(shape))
	size, inner := shape[axis], elements(shape[axis+1:])
	if err := checkLists(elements(c.shape(n.Outputs[0])), size); err != nil {
		return err
	}
	x := c.read(n.Inputs[0])
	var indices, lists []int32
	for outer := range elements(shape[:axis]) {
		for _, row := range index {
			for i := range inner {
				indices = append(indices, row)
				for k := range size {
					lists = append(lists, x[(outer*size+k)*inner+i])
				}
			}
		}
	}
	c.set(n.Outputs[0], c.choice(indices, lists))
	return nil
}

// lines returns, for each element of the given shape, where its line along an axis begins in
// the elements of another shape, and how far apart the elements of a line are.
func lines(shape, of []int, axis int) (starts []int32, step int) {
	strides := stridesOf(of)
	step, strides[axis] = strides[axis], 0
	return walk(shape, strides), step
}

// gatherElements compiles a GatherElements whose indices depend on the row.
func gatherElements(c *compiler, n *graph.Node) error {
	shape, index := c.shape(n.Inputs[0]), c.read(n.Inputs[1])
	axis := axisOf(n, 0, len(shape))
	if err := checkLists(len(index), shape[axis]); err != nil {
		return err
	}
	x := c.read(n.Inputs[0])
	starts, step := lines(c.shape(n.Inputs[1]), shape, axis)
	var lists []int32
	for _, start := range starts {
		for k := range shape[axis] {
			lists = append(lists, x[int(start)+k*step])
		}
	}
	c.set(n.Outputs[0], c.choice(index, lists))
	return nil
}

// gatherND compiles a GatherND whose indices depend on the row. Indices that do not depend on
// it narrow the lists from which the others choose.
func gatherND(c *compiler, n *graph.Node) error {
	shape, index, batch := c.shape(n.Inputs[0]), c.shape(n.Inputs[1]), int(integer(n, "batch_dims", 0))
	x, rows, each := c.read(n.Inputs[0]), c.read(n.Inputs[1]), index[len(index)-1]
	size := elements(shape[batch:])
	if err := checkLists(len(rows)/each, size); err != nil {
		return err
	}
	fixed := make(map[int32]float32, len(c.constants)) // by row
	for bits, row := range c.constants {
		fixed[row] = math.Float32frombits(bits)
	}
	per := elements(index[batch : len(index)-1]) // lists of indices for each element of the batch
	var out []int32
	for i := 0; i < len(rows)/each; i++ {
		part := x[i/per*size:][:size]
		for k, row := range rows[i*each:][:each] {
			n := shape[batch+k]
			inner := len(part) / n
			if v, ok := fixed[row]; ok {
				at := position(v, n)
				if at < 0 {
					return errors.New("a constant index is outside its axis")
				}
				part = part[at*inner:][:inner]
				continue
			}
			var lists []int32
			for e := range inner {
				for k := range n {
					lists = append(lists, part[k*inner+e])
				}
			}
			part = c.choice(slices.Repeat([]int32{row}, inner), lists)
		}
		out = append(out, part...)
	}
	c.set(n.Outputs[0], out)
	return nil
}

// scatterElements compiles a ScatterElements whose indices depend on the row.
func scatterElements(c *compiler, n *graph.Node) error {
	shape, index := c.shape(n.Inputs[0]), c.read(n.Inputs[1])
	axis := axisOf(n, 0, len(shape))
	if err := checkLists(len(index), shape[axis]); err != nil {
		return err
	}
	rows, updates := slices.Clone(c.read(n.Inputs[0])), c.read(n.Inputs[2])
	starts, step := lines(c.shape(n.Inputs[1]), shape, axis)
	index = c.combine(kernel.Add, index, c.scale(c.combine(kernel.Less, index, c.same(0, len(index))), float32(shape[axis])))
	for i, start := range starts { // later updates replace earlier ones
		var line, positions []int32
		for k := range shape[axis] {
			line, positions = append(line, rows[int(start)+k*step]), append(positions, c.splat(float32(k)))
		}
		hit := c.combine(kernel.Equal, positions, slices.Repeat(index[i:i+1], len(line)))
		for k, row := range c.choose(hit, slices.Repeat(updates[i:i+1], len(line)), line) {
			rows[int(start)+k*step] = row
		}
	}
	c.set(n.Outputs[0], rows)
	return nil
}
