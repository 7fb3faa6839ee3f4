package execute

import (
	"errors"
	"math"
	"slices"

	"shaver/internal/graph"
	"shaver/internal/kernel"
)

// The steps that compute lists of rows.
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
	// slowStep applies a function that package kernel does not have.
	slowStep struct {
		f         func(x, y float64) float64
		out, x, y []int32
	}
)

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

func (s *slowStep) run(arena kernel.Block, states int) {
	for i, o := range s.out {
		out, x, y := arena.Element(int(o))[:states], arena.Element(int(s.x[i])), arena.Element(int(s.y[i]))
		for t := range out {
			out[t] = float32(s.f(float64(x[t]), float64(y[t])))
		}
	}
}

// emit appends a step to the program. from are the rows that it reads.
func (c *compiler) emit(s step, from ...[]int32) {
	switch {
	case c.err != nil:
	case c.depends(from...):
		c.p.each = append(c.p.each, s)
	default:
		c.p.once = append(c.p.once, s)
	}
}

// apply returns rows of f(x). If a row occurs in x several times, its function is computed
// once.
func (c *compiler) apply(f kernel.Function, x []int32) []int32 {
	distinct, at := distinct(x)
	out := c.allocate(len(distinct), x)
	c.applyTo(out, f, distinct)
	return pick(out, at)
}

// applyTo is apply with given rows for the results. out may be x.
func (c *compiler) applyTo(out []int32, f kernel.Function, x []int32) {
	if len(x) > 0 {
		c.emit(&applyStep{f, kernel.NewElements(out), kernel.NewElements(x)}, x)
	}
}

// combine returns rows of op(x, y).
func (c *compiler) combine(op kernel.Operation, x, y []int32) []int32 {
	out := c.allocate(len(x), x, y)
	c.combineTo(out, op, x, y)
	return out
}

// combineTo is combine with given rows for the results. out may be x or y.
func (c *compiler) combineTo(out []int32, op kernel.Operation, x, y []int32) {
	if len(x) > 0 {
		c.emit(&combineStep{op, kernel.NewElements(out), kernel.NewElements(x), kernel.NewElements(y)}, x, y)
	}
}

// affine returns rows of scale*x + offset. If scale or offset has one number, it holds for
// all rows.
func (c *compiler) affine(x []int32, scale, offset []float32) []int32 {
	out := c.allocate(len(x), x)
	c.affineTo(out, x, scale, offset)
	return out
}

// affineTo is affine with given rows for the results. out may be x.
func (c *compiler) affineTo(out, x []int32, scale, offset []float32) {
	if len(x) == 0 {
		return
	}
	if len(scale) == 1 {
		scale = slices.Repeat(scale, len(x))
	}
	if len(offset) == 1 {
		offset = slices.Repeat(offset, len(x))
	}
	c.emit(&affineStep{kernel.NewElements(out), kernel.NewElements(x), scale, offset}, x)
}

// reduce returns one row for each n successive rows of x.
func (c *compiler) reduce(op kernel.Reduction, x []int32, n int) []int32 {
	out := c.allocate(len(x)/n, x)
	if len(x) > 0 {
		c.emit(&reduceStep{op, kernel.NewElements(out), kernel.NewElements(x)}, x)
	}
	return out
}

// slow returns rows of f(x, y).
func (c *compiler) slow(f func(x, y float64) float64, x, y []int32) []int32 {
	out := c.allocate(len(x), x, y)
	c.emit(&slowStep{f, out, x, y}, x, y)
	return out
}

// same returns a list of n rows with the value x.
func (c *compiler) same(x float32, n int) []int32 { return slices.Repeat([]int32{c.splat(x)}, n) }

// distinct returns the rows of x without repetitions, and the position in them of each
// element of x.
func distinct(x []int32) (rows, at []int32) {
	at = make([]int32, len(x))
	known := make(map[int32]int32, len(x))
	for i, row := range x {
		p, ok := known[row]
		if !ok {
			p = int32(len(rows))
			known[row] = p
			rows = append(rows, row)
		}
		at[i] = p
	}
	return rows, at
}

// unary compiles an operator that applies f to the rows of its first input.
func unary(f func(c *compiler, n *graph.Node, x []int32) []int32) compileFunc {
	return func(c *compiler, n *graph.Node) error {
		c.set(n.Outputs[0], f(c, n, c.read(n.Inputs[0])))
		return nil
	}
}

// function compiles an operator that is one function of package kernel.
func function(f kernel.Function) compileFunc {
	return unary(func(c *compiler, n *graph.Node, x []int32) []int32 {
		if c.last(n.Inputs[0], x) {
			c.applyTo(x, f, x)
			return x
		}
		return c.apply(f, x)
	})
}

// slowly compiles an operator whose function package kernel does not have.
func slowly(f func(x float64) float64) compileFunc {
	return unary(func(c *compiler, _ *graph.Node, x []int32) []int32 {
		return c.slow(func(x, _ float64) float64 { return f(x) }, x, x)
	})
}

// binary compiles an operator that combines its inputs with f, from left to right.
func binary(f func(c *compiler, x, y []int32) []int32) compileFunc {
	return func(c *compiler, n *graph.Node) error {
		shape := c.shape(n.Outputs[0])
		rows := c.readAs(n.Inputs[0], shape)
		for _, v := range n.Inputs[1:] {
			rows = f(c, rows, c.readAs(v, shape))
		}
		c.set(n.Outputs[0], rows)
		return nil
	}
}

// operation compiles an operator that is one operation of package kernel.
func operation(op kernel.Operation) compileFunc {
	general := binary(func(c *compiler, x, y []int32) []int32 { return c.combine(op, x, y) })
	return func(c *compiler, n *graph.Node) error {
		if len(n.Inputs) != 2 {
			return general(c, n)
		}
		shape := c.shape(n.Outputs[0])
		x, y := c.readAs(n.Inputs[0], shape), c.readAs(n.Inputs[1], shape)
		out := x
		if !c.last(n.Inputs[0], x) {
			out = c.target(n.Inputs[1], y, x)
		}
		c.combineTo(out, op, x, y)
		c.set(n.Outputs[0], out)
		return nil
	}
}

// arithmetic compiles an operation. If one of its two inputs is a constant x, the operation
// is scale*v + offset for the other input v. of returns scale and offset. swapped is true if
// the constant is the left input.
func arithmetic(op kernel.Operation, of func(x float32, swapped bool) (scale, offset float32)) compileFunc {
	general := operation(op)
	return func(c *compiler, n *graph.Node) error {
		if len(n.Inputs) != 2 {
			return general(c, n)
		}
		shape := c.shape(n.Outputs[0])
		for side, v := range n.Inputs {
			t := c.constant(v)
			if t == nil {
				continue
			}
			scale := numbers(t, shape)
			offset := make([]float32, len(scale))
			for i, x := range scale {
				scale[i], offset[i] = of(x, side == 0)
			}
			c.affineNode(n, n.Inputs[1-side], scale, offset)
			return nil
		}
		if op == kernel.Multiply && c.multiplyAdd(n, shape) {
			return nil
		}
		return general(c, n)
	}
}

// affineNode makes the output of n scale*v + offset.
func (c *compiler) affineNode(n *graph.Node, v graph.Value, scale, offset []float32) {
	x := c.readAs(v, c.shape(n.Outputs[0]))
	out := c.target(v, x)
	c.affineTo(out, x, scale, offset)
	c.set(n.Outputs[0], out)
}

// multiplyAdd compiles a product together with an Add, if only that Add reads the product.
// It reports whether there is such an Add.
func (c *compiler) multiplyAdd(n *graph.Node, shape []int) bool {
	i, next := c.only(n.Outputs[0])
	if next == nil || next.Op != "Add" || !slices.Equal(c.shape(next.Outputs[0]), shape) {
		return false
	}
	other := next.Inputs[0]
	if other == n.Outputs[0] {
		other = next.Inputs[1]
	}
	if c.constant(other) != nil || c.values[other] == nil {
		return false
	}
	x, y, z := c.readAs(n.Inputs[0], shape), c.readAs(n.Inputs[1], shape), c.readAs(other, shape)
	out := x
	if !c.last(n.Inputs[0], x) {
		out = c.target(n.Inputs[1], y, x, z)
	}
	if len(x) > 0 {
		c.emit(&multiplyAddStep{kernel.NewElements(out), kernel.NewElements(x), kernel.NewElements(y), kernel.NewElements(z)}, x, y, z)
	}
	c.set(next.Outputs[0], out)
	c.fused[i] = true
	return true
}

// where compiles a Where whose condition depends on the row.
func where(c *compiler, n *graph.Node) error {
	shape := c.shape(n.Outputs[0])
	x, y, z := c.readAs(n.Inputs[0], shape), c.readAs(n.Inputs[1], shape), c.readAs(n.Inputs[2], shape)
	out := c.allocate(len(x), x, y, z)
	if len(x) > 0 {
		c.emit(&chooseStep{kernel.NewElements(out), kernel.NewElements(x), kernel.NewElements(y), kernel.NewElements(z)}, x, y, z)
	}
	c.set(n.Outputs[0], out)
	return nil
}

// clip compiles Clip, whose bounds are inputs.
func clip(c *compiler, n *graph.Node) error {
	shape := c.shape(n.Outputs[0])
	rows := c.read(n.Inputs[0])
	for i, op := range [...]kernel.Operation{kernel.Maximum, kernel.Minimum} {
		if len(n.Inputs) > i+1 && n.Inputs[i+1] != graph.Absent {
			rows = c.combine(op, rows, c.readAs(n.Inputs[i+1], shape))
		}
	}
	c.set(n.Outputs[0], rows)
	return nil
}

// cast compiles Cast. In an arena a bool is 0 or 1, and a whole number is a float32.
func cast(c *compiler, n *graph.Node) error {
	from, to := c.g.Values[n.Inputs[0]].Type, c.g.Values[n.Outputs[0]].Type
	rows := c.read(n.Inputs[0])
	switch {
	case from == graph.Float && to == graph.Int:
		rows = c.slow(func(x, _ float64) float64 { return math.Trunc(x) }, rows, rows)
	case from != graph.Bool && to == graph.Bool:
		rows = c.not(c.combine(kernel.Equal, rows, c.same(0, len(rows))))
	}
	c.set(n.Outputs[0], rows)
	return nil
}

// not returns rows of 1-x.
func (c *compiler) not(x []int32) []int32 { return c.affine(x, []float32{-1}, []float32{1}) }

// divide compiles Div. A division by a constant is a product with its reciprocal.
func divide(c *compiler, n *graph.Node) error {
	if c.g.Values[n.Outputs[0]].Type != graph.Float {
		return errors.New("a division of whole numbers depends on the row")
	}
	if t := c.constant(n.Inputs[1]); t != nil {
		shape := c.shape(n.Outputs[0])
		scale := numbers(t, shape)
		for i := range scale {
			scale[i] = 1 / scale[i]
		}
		if !slices.ContainsFunc(scale, func(x float32) bool { return x-x != 0 }) { // all are finite
			c.affineNode(n, n.Inputs[0], scale, []float32{0})
			return nil
		}
	}
	return operation(kernel.Divide)(c, n)
}

// power compiles Pow. Squares, roots and reciprocals have functions of their own.
func power(c *compiler, n *graph.Node) error {
	if c.g.Values[n.Outputs[0]].Type != graph.Float {
		return errors.New("a power of whole numbers depends on the row")
	}
	shape := c.shape(n.Outputs[0])
	x := c.readAs(n.Inputs[0], shape)
	if t := c.constant(n.Inputs[1]); t != nil && elements(t.Shape) == 1 {
		rows := x
		switch number(t, 0) {
		case 1:
		case 2:
			rows = c.combine(kernel.Multiply, x, x)
		case 0.5:
			rows = c.apply(kernel.SquareRoot, x)
		case -1:
			rows = c.apply(kernel.Reciprocal, x)
		case -0.5:
			rows = c.apply(kernel.Reciprocal, c.apply(kernel.SquareRoot, x))
		default:
			rows = nil
		}
		if rows != nil {
			c.set(n.Outputs[0], rows)
			return nil
		}
	}
	c.set(n.Outputs[0], c.slow(math.Pow, x, c.readAs(n.Inputs[1], shape)))
	return nil
}

// modulo compiles Mod of floats. The result has the sign of the dividend.
func modulo(c *compiler, n *graph.Node) error {
	if c.g.Values[n.Outputs[0]].Type != graph.Float {
		return errors.New("a division of whole numbers depends on the row")
	}
	return binary(func(c *compiler, x, y []int32) []int32 { return c.slow(math.Mod, x, y) })(c, n)
}
