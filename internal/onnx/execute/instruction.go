package execute

import (
	"slices"

	"shaver/internal/num/kernel"
)

// instruction computes rows from others. Its rows are those of a compiler.
type instruction interface {
	// results returns the rows that it computes. The row none is no row.
	results() []int32

	// operands returns the rows that it reads.
	operands() [][]int32

	// overlays reports whether a result may be in the same place as the operands at its
	// position. Such operands have as many rows as there are results.
	overlays() bool

	// step returns the step that computes the results. at returns the places of rows.
	step(at func(rows []int32) []int32) step

	// differentiate adds the instruction's part of the derivatives of its operands.
	differentiate(d *differentiator)
}

// none stands for a row that is not needed, or that does not exist.
const none int32 = kernel.Discarded

// The instructions that compute lists of rows.
type (
	// applyOp sets out[i] to f(x[i]).
	applyOp struct {
		f      kernel.Function
		out, x []int32
		norm   bool // of SquareRoot: whether the derivative at 0 counts as 0, because x is a sum of squares
	}

	// combineOp sets out[i] to op(x[i], y[i]).
	combineOp struct {
		op        kernel.Operation
		out, x, y []int32
		tie       tie
	}

	// multiplyAddOp sets out[i] to x[i] * y[i] + z[i].
	multiplyAddOp struct{ out, x, y, z []int32 }

	// chooseOp sets out[i] to x[i] != 0 ? y[i] : z[i].
	chooseOp struct{ out, x, y, z []int32 }

	// affineOp sets out[i] to scale[i] * x[i] + offset[i].
	affineOp struct {
		out, x        []int32
		scale, offset []float32
	}

	// reduceOp sets out[i] to the reduction of successive rows of x.
	reduceOp struct {
		op     kernel.Reduction
		out, x []int32
		fixed  bool // whether out counts as a constant, because its derivatives cancel
	}

	// softmaxOp is the softmax of successive rows of n elements.
	softmaxOp struct {
		out, x []int32
		n      int
	}

	// slowOp sets out[i] to f(x[i], y[i]), which package kernel does not have.
	slowOp struct {
		f         func(x, y float64) float64
		dx, dy    func(x, y float64) float64 // derivatives with respect to x and y; nil = 0
		jumps     bool                       // whether f jumps
		out, x, y []int32
	}
)

// tie says what derivatives Maximum and Minimum have if both operands are equal.
type tie uint8

const (
	half   tie = iota // half of the derivative for each operand
	first             // all for the first
	second            // all for the second
)

func (o *applyOp) results() []int32       { return o.out }
func (o *combineOp) results() []int32     { return o.out }
func (o *multiplyAddOp) results() []int32 { return o.out }
func (o *chooseOp) results() []int32      { return o.out }
func (o *affineOp) results() []int32      { return o.out }
func (o *reduceOp) results() []int32      { return o.out }
func (o *softmaxOp) results() []int32     { return o.out }
func (o *slowOp) results() []int32        { return o.out }

func (o *applyOp) operands() [][]int32       { return [][]int32{o.x} }
func (o *combineOp) operands() [][]int32     { return [][]int32{o.x, o.y} }
func (o *multiplyAddOp) operands() [][]int32 { return [][]int32{o.x, o.y, o.z} }
func (o *chooseOp) operands() [][]int32      { return [][]int32{o.x, o.y, o.z} }
func (o *affineOp) operands() [][]int32      { return [][]int32{o.x} }
func (o *reduceOp) operands() [][]int32      { return [][]int32{o.x} }
func (o *softmaxOp) operands() [][]int32     { return [][]int32{o.x} }
func (o *slowOp) operands() [][]int32        { return [][]int32{o.x, o.y} }

func (o *applyOp) overlays() bool       { return true }
func (o *combineOp) overlays() bool     { return true }
func (o *multiplyAddOp) overlays() bool { return true }
func (o *chooseOp) overlays() bool      { return true }
func (o *affineOp) overlays() bool      { return true }
func (o *reduceOp) overlays() bool      { return false }
func (o *softmaxOp) overlays() bool     { return true }
func (o *slowOp) overlays() bool        { return true }

// The steps of these instructions.
type (
	applyStep struct {
		f      kernel.Function
		out, x kernel.Elements
	}
	combineStep struct {
		op        kernel.Operation
		out, x, y kernel.Elements
	}
	multiplyAddStep struct{ out, x, y, z kernel.Elements }
	chooseStep      struct{ out, x, y, z kernel.Elements }
	affineStep      struct {
		out, x        kernel.Elements
		scale, offset []float32
	}
	reduceStep struct {
		op     kernel.Reduction
		out, x kernel.Elements
	}
	softmaxStep struct {
		out, x kernel.Elements
		n      int
	}
	slowStep struct {
		f         func(x, y float64) float64
		out, x, y []int32
	}
)

func (o *applyOp) step(at func([]int32) []int32) step {
	return &applyStep{o.f, kernel.NewElements(at(o.out)), kernel.NewElements(at(o.x))}
}

func (o *combineOp) step(at func([]int32) []int32) step {
	return &combineStep{o.op, kernel.NewElements(at(o.out)), kernel.NewElements(at(o.x)), kernel.NewElements(at(o.y))}
}

func (o *multiplyAddOp) step(at func([]int32) []int32) step {
	return &multiplyAddStep{kernel.NewElements(at(o.out)), kernel.NewElements(at(o.x)), kernel.NewElements(at(o.y)), kernel.NewElements(at(o.z))}
}

func (o *chooseOp) step(at func([]int32) []int32) step {
	return &chooseStep{kernel.NewElements(at(o.out)), kernel.NewElements(at(o.x)), kernel.NewElements(at(o.y)), kernel.NewElements(at(o.z))}
}

func (o *affineOp) step(at func([]int32) []int32) step {
	return &affineStep{kernel.NewElements(at(o.out)), kernel.NewElements(at(o.x)), o.scale, o.offset}
}

func (o *reduceOp) step(at func([]int32) []int32) step {
	return &reduceStep{o.op, kernel.NewElements(at(o.out)), kernel.NewElements(at(o.x))}
}

func (o *softmaxOp) step(at func([]int32) []int32) step {
	return &softmaxStep{kernel.NewElements(at(o.out)), kernel.NewElements(at(o.x)), o.n}
}

func (o *slowOp) step(at func([]int32) []int32) step {
	return &slowStep{o.f, at(o.out), at(o.x), at(o.y)}
}

func (s *applyStep) run(arena kernel.Block, states int) {
	kernel.Apply(s.f, arena, states, s.out, s.x)
}

func (s *combineStep) run(arena kernel.Block, states int) {
	kernel.Combine(s.op, arena, states, s.out, s.x, s.y)
}

func (s *multiplyAddStep) run(arena kernel.Block, states int) {
	kernel.MultiplyAdd(arena, states, s.out, s.x, s.y, s.z)
}

func (s *chooseStep) run(arena kernel.Block, states int) {
	kernel.Choose(arena, states, s.out, s.x, s.y, s.z)
}

func (s *affineStep) run(arena kernel.Block, states int) {
	kernel.Affine(arena, states, s.out, s.x, s.scale, s.offset)
}

func (s *reduceStep) run(arena kernel.Block, states int) {
	kernel.Reduce(s.op, arena, states, s.out, s.x)
}

func (s *softmaxStep) run(arena kernel.Block, states int) {
	kernel.Softmax(arena, states, s.out, s.x, s.n)
}

func (s *slowStep) run(arena kernel.Block, states int) {
	for i, o := range s.out {
		out, x, y := arena.Element(int(o))[:states], arena.Element(int(s.x[i])), arena.Element(int(s.y[i]))
		for t := range out {
			out[t] = float32(s.f(float64(x[t]), float64(y[t])))
		}
	}
}

// emit appends an instruction to the program, unless it has no results.
func (c *compiler) emit(in instruction) {
	switch {
	case c.err != nil || len(in.results()) == 0:
	case c.depends(in.operands()...):
		c.each = append(c.each, in)
	default:
		c.once = append(c.once, in)
	}
}

// apply returns rows of f(x). If a row occurs in x several times, its function is computed
// once.
func (c *compiler) apply(f kernel.Function, x []int32) []int32 {
	distinct, at := distinct(x)
	out := c.allocate(len(distinct), x)
	c.emit(&applyOp{f: f, out: out, x: distinct})
	return pick(out, at)
}

// gather returns adjacent rows that are copies of x.
func (c *compiler) gather(x []int32) []int32 {
	out := c.allocate(len(x), x)
	c.emit(&applyOp{f: kernel.Copy, out: out, x: x})
	return out
}

// norm returns rows of the square roots of x, whose elements are sums of squares.
func (c *compiler) norm(x []int32) []int32 {
	out := c.allocate(len(x), x)
	c.emit(&applyOp{f: kernel.SquareRoot, out: out, x: x, norm: true})
	return out
}

// combine returns rows of op(x, y).
func (c *compiler) combine(op kernel.Operation, x, y []int32) []int32 {
	return c.extreme(op, x, y, half)
}

// extreme is combine for Maximum or Minimum with the given tie.
func (c *compiler) extreme(op kernel.Operation, x, y []int32, tie tie) []int32 {
	out := c.allocate(len(x), x, y)
	c.emit(&combineOp{op, out, x, y, tie})
	return out
}

// multiplyAdd returns rows of x*y + z.
func (c *compiler) multiplyAdd(x, y, z []int32) []int32 {
	out := c.allocate(len(x), x, y, z)
	c.emit(&multiplyAddOp{out, x, y, z})
	return out
}

// choose returns rows of y where x is not 0, and of z elsewhere.
func (c *compiler) choose(x, y, z []int32) []int32 {
	out := c.allocate(len(x), x, y, z)
	c.emit(&chooseOp{out, x, y, z})
	return out
}

// affine returns rows of scale*x + offset. If scale or offset has one number, it holds for
// all rows.
func (c *compiler) affine(x []int32, scale, offset []float32) []int32 {
	if len(scale) == 1 {
		scale = slices.Repeat(scale, len(x))
	}
	if len(offset) == 1 {
		offset = slices.Repeat(offset, len(x))
	}
	out := c.allocate(len(x), x)
	c.emit(&affineOp{out, x, scale, offset})
	return out
}

// scale returns rows of factor*x.
func (c *compiler) scale(x []int32, factor float32) []int32 {
	return c.affine(x, []float32{factor}, []float32{0})
}

// reduce returns one row for each n successive rows of x.
func (c *compiler) reduce(op kernel.Reduction, x []int32, n int) []int32 {
	out := c.allocate(len(x)/n, x)
	c.emit(&reduceOp{op: op, out: out, x: x})
	return out
}

// slow returns rows of f(x, y). dx and dy are the derivatives of f; nil = 0. Without dx, f counts
// as a function that jumps.
func (c *compiler) slow(x, y []int32, f, dx, dy func(x, y float64) float64) []int32 {
	out := c.allocate(len(x), x, y)
	c.emit(&slowOp{f, dx, dy, dx == nil, out, x, y})
	return out
}

// same returns a list of n rows with the value x.
func (c *compiler) same(x float32, n int) []int32 { return slices.Repeat([]int32{c.splat(x)}, n) }
