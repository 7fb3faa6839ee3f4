package execute

import (
	"errors"
	"math"
	"slices"

	"shaver/internal/num/kernel"
	"shaver/internal/onnx/graph"
)

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
	return unary(func(c *compiler, _ *graph.Node, x []int32) []int32 { return c.apply(f, x) })
}

// smooth compiles a function that package kernel does not have, with its derivative.
func smooth(f, derivative func(x float64) float64) compileFunc {
	return unary(func(c *compiler, _ *graph.Node, x []int32) []int32 {
		distinct, at := distinct(x)
		dx := func(x, _ float64) float64 { return derivative(x) }
		return pick(c.slow(distinct, distinct, func(x, _ float64) float64 { return f(x) }, dx, nil), at)
	})
}

// rounding compiles an operator that rounds its operand. Its derivative is 0.
func rounding(f func(x float64) float64) compileFunc {
	return unary(func(c *compiler, _ *graph.Node, x []int32) []int32 { return c.round(x, f) })
}

// round returns rows of f(x), whose derivative is 0.
func (c *compiler) round(x []int32, f func(x float64) float64) []int32 {
	return c.slow(x, x, func(x, _ float64) float64 { return f(x) }, nil, nil)
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
	return binary(func(c *compiler, x, y []int32) []int32 { return c.combine(op, x, y) })
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
		if op == kernel.Multiply && c.fuse(n, shape) {
			return nil
		}
		return general(c, n)
	}
}

// affineNode makes the output of n scale*v + offset.
func (c *compiler) affineNode(n *graph.Node, v graph.Value, scale, offset []float32) {
	c.set(n.Outputs[0], c.affine(c.readAs(v, c.shape(n.Outputs[0])), scale, offset))
}

// fuse compiles a product together with an Add, if only that Add reads the product. It
// reports whether there is such an Add.
func (c *compiler) fuse(n *graph.Node, shape []int) bool {
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
	c.set(next.Outputs[0], c.multiplyAdd(x, y, z))
	c.fused[i] = true
	return true
}

// where compiles a Where whose condition depends on the row.
func where(c *compiler, n *graph.Node) error {
	shape := c.shape(n.Outputs[0])
	x, y, z := c.readAs(n.Inputs[0], shape), c.readAs(n.Inputs[1], shape), c.readAs(n.Inputs[2], shape)
	c.set(n.Outputs[0], c.choose(x, y, z))
	return nil
}

// clip compiles Clip, whose bounds are inputs. A number that equals a bound has a
// derivative, and the bound has none.
func clip(c *compiler, n *graph.Node) error {
	shape := c.shape(n.Outputs[0])
	rows := c.read(n.Inputs[0])
	for i, op := range [...]kernel.Operation{kernel.Maximum, kernel.Minimum} {
		if len(n.Inputs) > i+1 && n.Inputs[i+1] != graph.Absent {
			rows = c.extreme(op, rows, c.readAs(n.Inputs[i+1], shape), first)
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
		rows = c.round(rows, math.Trunc)
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
		if allFinite(scale) {
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
	c.set(n.Outputs[0], c.slow(x, c.readAs(n.Inputs[1], shape), math.Pow, powerBase, powerExponent))
	return nil
}

// powerBase returns the derivative of x^y with respect to x.
func powerBase(x, y float64) float64 {
	if y == 0 {
		return 0
	}
	return y * math.Pow(x, y-1)
}

// powerExponent returns the derivative of x^y with respect to y.
func powerExponent(x, y float64) float64 {
	if x == 0 && y >= 0 {
		return 0
	}
	return math.Pow(x, y) * math.Log(x)
}

// modulo compiles Mod of floats. The result has the sign of the dividend.
func modulo(c *compiler, n *graph.Node) error {
	if c.g.Values[n.Outputs[0]].Type != graph.Float {
		return errors.New("a division of whole numbers depends on the row")
	}
	return binary(func(c *compiler, x, y []int32) []int32 {
		out := c.allocate(len(x), x, y)
		c.emit(&slowOp{math.Mod, func(_, _ float64) float64 { return 1 }, func(x, y float64) float64 { return -math.Trunc(x / y) }, true, out, x, y})
		return out
	})(c, n)
}
