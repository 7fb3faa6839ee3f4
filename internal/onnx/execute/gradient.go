package execute

import (
	"math"
	"slices"

	"shaver/internal/num/kernel"
)

// differentiator adds to a program the instructions that compute the derivatives of its
// output. It follows the instructions from the last to the first. Where an element of a
// value is read at several places, the derivative is the sum of those at these places. Since
// moving elements only makes other lists of rows, it needs no instruction here either.
//
// The derivatives at points where a function has none are those of PyTorch:
//
//   - 0 for Abs, Relu, Sign and HardSigmoid at a kink, for what is rounded, compared or cast
//     to another type, and for ReduceL2 at 0;
//   - the slope for negative numbers for LeakyRelu, PRelu, Elu, Selu and Celu at 0;
//   - that of the number, and not that of the bound, for Clip at a bound;
//   - 0 for the positions that TopK, ArgMax and ArgMin choose: the derivative is that of the
//     elements which a state has chosen, and does not say that another state chooses others;
//   - equal parts for Max and Min of two equal numbers, and for ReduceMax and ReduceMin.
//
// Sqrt has an infinite derivative at 0, as in PyTorch. A factor that an infinite constant made
// infinite or NaN counts as 0, so what a mask hides has the derivative 0.
type differentiator struct {
	*compiler
	active []bool    // by row: whether the output may have a derivative with respect to a player through it
	parts  [][]int32 // by row: the rows whose sum is the derivative with respect to it
	special
}

// differentiate appends the instructions that compute the derivatives of the output with
// respect to all players. It returns their adjacent rows. k remembers what kink terms need.
func (c *compiler) differentiate(output int32, k *kinks) []int32 {
	d := &differentiator{c, make([]bool, len(c.region)), make([][]int32, len(c.region)), c.findSpecial()}
	for p := range c.p.players {
		d.active[p] = true
	}
	for _, in := range c.each {
		d.activate(in)
	}
	d.parts[output] = []int32{c.splat(1)}
	for _, in := range slices.Backward(c.each) {
		if c.err == nil {
			k.keep(d, in)
			in.differentiate(d)
		}
	}
	slopes := d.filled(d.slopes(span{0, int32(c.p.players)}.list()))
	return c.gather(slopes)
}

// activate sets active for the results of an instruction.
func (d *differentiator) activate(in instruction) {
	results, operands := in.results(), in.operands()
	switch o := in.(type) {
	case *combineOp:
		if o.op == kernel.Equal || o.op == kernel.Less || o.op == kernel.LessOrEqual {
			return
		}
	case *chooseOp:
		operands = operands[1:]
	case *slowOp:
		if o.dx == nil && o.dy == nil {
			return
		}
	case *reduceOp:
		if o.fixed {
			return
		}
	case *rankOp:
		return
	case *selectOp:
		operands = operands[1:]
	}
	if in.overlays() { // each result reads the operands at its position
		if _, whole := in.(*softmaxOp); !whole {
			for i, row := range results {
				for _, rows := range operands {
					d.active[row] = d.active[row] || d.active[rows[i]]
				}
			}
			return
		}
	}
	if slices.ContainsFunc(operands, func(rows []int32) bool {
		return slices.ContainsFunc(rows, func(row int32) bool { return d.active[row] })
	}) {
		for _, row := range results {
			if row != none {
				d.active[row] = true
			}
		}
	}
}

// slopes returns the rows of the derivatives with respect to the given rows, or none where
// the output does not depend on a row.
func (d *differentiator) slopes(rows []int32) []int32 {
	g := slices.Repeat([]int32{none}, len(rows))
	sums := map[int][]int{} // positions of the rows to compute, by the number of parts
	most := 1
	for i, row := range rows {
		if row == none {
			continue
		}
		if n := len(d.parts[row]); n > 1 {
			sums[n] = append(sums[n], i)
			most = max(most, n)
		}
	}
	for n := 2; n <= most; n++ {
		var parts []int32
		var of []int32
		for _, i := range sums[n] {
			if row := rows[i]; len(d.parts[row]) == n { // a row may occur several times
				parts, of = append(parts, d.parts[row]...), append(of, row)
				d.parts[row] = d.parts[row][:1]
			}
		}
		for i, sum := range d.reduce(kernel.Sum, parts, n) {
			d.parts[of[i]] = []int32{sum}
		}
	}
	for i, row := range rows {
		if row != none && len(d.parts[row]) > 0 {
			g[i] = d.parts[row][0]
		}
	}
	return g
}

// add adds parts of the derivatives with respect to rows.
func (d *differentiator) add(rows, parts []int32) {
	for i, row := range rows {
		if d.active[row] && parts[i] != none {
			d.parts[row] = append(d.parts[row], parts[i])
		}
	}
}

// filled replaces none by a row of zeros.
func (d *differentiator) filled(rows []int32) []int32 {
	if !slices.Contains(rows, none) {
		return rows
	}
	rows = slices.Clone(rows)
	for i, row := range rows {
		if row == none {
			rows[i] = d.splat(0)
		}
	}
	return rows
}

// live returns the positions at which the output depends on out, and x is active. It also
// returns the derivatives with respect to out at these positions.
func (d *differentiator) live(out, x []int32) (at, g []int32) {
	for i, slope := range d.slopes(out) {
		if slope != none && d.active[x[i]] {
			at, g = append(at, int32(i)), append(g, slope)
		}
	}
	return at, g
}

// multiply returns rows of g*y.
func (d *differentiator) multiply(g, y []int32) []int32 {
	return d.combine(kernel.Multiply, g, d.cleaned(y))
}

// divide returns rows of g/y, and of 0 where g is 0 and y may be 0 or NaN because of an
// infinite constant.
func (d *differentiator) divide(g, y []int32) []int32 {
	slopes := d.combine(kernel.Divide, g, y)
	if d.has(y) {
		slopes = d.choose(g, slopes, d.same(0, len(g)))
	}
	return slopes
}

// cleaned returns rows of y, and of 0 where y is infinite or NaN because of an infinite
// constant.
func (d *differentiator) cleaned(y []int32) []int32 {
	if !d.has(y) {
		return y
	}
	rows, at := distinct(y)
	zero := d.same(0, len(rows))
	return pick(d.choose(d.combine(kernel.Equal, d.combine(kernel.Subtract, rows, rows), zero), rows, zero), at)
}

// differentiate follows from the derivative of the function.
func (o *applyOp) differentiate(d *differentiator) {
	at, g := d.live(o.out, o.x)
	if len(at) == 0 {
		return
	}
	operand, zero := pick(o.x, at), d.same(0, len(at))
	x, y := d.cleaned(operand), d.cleaned(pick(o.out, at))
	switch o.f {
	case kernel.Copy:
	case kernel.Negate:
		g = d.apply(kernel.Negate, g)
	case kernel.Absolute:
		g = d.multiply(g, d.combine(kernel.Subtract, d.combine(kernel.Less, zero, x), d.combine(kernel.Less, x, zero)))
	case kernel.ReLU:
		g = d.choose(y, g, zero)
	case kernel.SquareRoot:
		if g = d.combine(kernel.Divide, g, d.scale(y, 2)); o.norm || d.has(o.out) { // cleaned is 0
			g = d.choose(y, g, zero)
		}
	case kernel.Reciprocal:
		g = d.scale(d.multiply(g, d.multiply(y, y)), -1)
	case kernel.Exp:
		g = d.multiply(g, y)
	case kernel.Log:
		g = d.divide(g, operand)
	case kernel.Sigmoid:
		g = d.multiply(g, d.multiply(y, d.affine(y, []float32{-1}, []float32{1})))
	case kernel.HyperbolicTangent:
		g = d.multiply(g, d.affine(d.multiply(y, y), []float32{-1}, []float32{1}))
	case kernel.Erf:
		e := d.apply(kernel.Exp, d.scale(d.multiply(x, x), -1))
		g = d.multiply(g, d.scale(e, float32(2/math.Sqrt(math.Pi))))
	case kernel.Softplus:
		g = d.multiply(g, d.apply(kernel.Sigmoid, x))
	default:
		panic("execute: a function without a derivative")
	}
	d.add(operand, g)
}

// differentiate follows from the derivatives of the operation.
func (o *combineOp) differentiate(d *differentiator) {
	if o.op == kernel.Multiply && slices.Equal(o.x, o.y) {
		at, g := d.live(o.out, o.x)
		x := pick(o.x, at)
		d.add(x, d.scale(d.multiply(g, x), 2))
		return
	}
	if at, g := d.live(o.out, o.x); len(at) > 0 {
		d.add(pick(o.x, at), o.slope(d, pick(o.x, at), pick(o.y, at), g))
	}
	if at, g := d.live(o.out, o.y); len(at) > 0 {
		d.add(pick(o.y, at), o.slopeY(d, pick(o.x, at), pick(o.y, at), pick(o.out, at), g))
	}
}

// slope returns the parts of the derivatives with respect to x.
func (o *combineOp) slope(d *differentiator, x, y, g []int32) []int32 {
	switch o.op {
	case kernel.Add, kernel.Subtract:
		return g
	case kernel.Multiply:
		return d.multiply(g, y)
	case kernel.Divide:
		return d.divide(g, y)
	case kernel.Maximum:
		return d.larger(x, y, g, o.tie == first, o.tie == half)
	case kernel.Minimum:
		return d.larger(y, x, g, o.tie == first, o.tie == half)
	case kernel.Leaky:
		zero := d.same(0, len(x))
		return d.choose(d.combine(kernel.Less, zero, x), g, d.multiply(g, y))
	}
	panic("execute: an operation without a derivative")
}

// slopeY returns the parts of the derivatives with respect to y. z are the results.
func (o *combineOp) slopeY(d *differentiator, x, y, z, g []int32) []int32 {
	switch o.op {
	case kernel.Add:
		return g
	case kernel.Subtract:
		return d.apply(kernel.Negate, g)
	case kernel.Multiply:
		return d.multiply(g, x)
	case kernel.Divide:
		return d.scale(d.multiply(d.divide(g, y), z), -1)
	case kernel.Maximum:
		return d.larger(y, x, g, o.tie == second, o.tie == half)
	case kernel.Minimum:
		return d.larger(x, y, g, o.tie == second, o.tie == half)
	case kernel.Leaky:
		return d.multiply(g, d.combine(kernel.Minimum, d.cleaned(x), d.same(0, len(x))))
	}
	panic("execute: an operation without a derivative")
}

// larger returns rows of g where x > y, and of 0 where x < y. Where they are equal, it
// returns g if all is set, half of it if part is set, and otherwise 0.
func (d *differentiator) larger(x, y, g []int32, all, part bool) []int32 {
	zero := d.same(0, len(x))
	if all {
		return d.choose(d.combine(kernel.LessOrEqual, y, x), g, zero)
	}
	strict := d.choose(d.combine(kernel.Less, y, x), g, zero)
	if !part {
		return strict
	}
	return d.choose(d.combine(kernel.Equal, x, y), d.scale(g, 0.5), strict)
}

// differentiate follows from d(x*y + z) = y*dx + x*dy + dz.
func (o *multiplyAddOp) differentiate(d *differentiator) {
	at, g := d.live(o.out, o.x)
	d.add(pick(o.x, at), d.multiply(g, pick(o.y, at)))
	at, g = d.live(o.out, o.y)
	d.add(pick(o.y, at), d.multiply(g, pick(o.x, at)))
	at, g = d.live(o.out, o.z)
	d.add(pick(o.z, at), g)
}

// differentiate passes the derivative to the operand that was chosen.
func (o *chooseOp) differentiate(d *differentiator) {
	at, g := d.live(o.out, o.y)
	d.add(pick(o.y, at), d.choose(pick(o.x, at), g, d.same(0, len(at))))
	at, g = d.live(o.out, o.z)
	d.add(pick(o.z, at), d.choose(pick(o.x, at), d.same(0, len(at)), g))
}

// differentiate multiplies by the scale.
func (o *affineOp) differentiate(d *differentiator) {
	at, g := d.live(o.out, o.x)
	if scale := pick(o.scale, at); slices.ContainsFunc(scale, func(v float32) bool { return v != 1 }) {
		g = d.affine(g, scale, []float32{0})
	}
	d.add(pick(o.x, at), g)
}

// differentiate spreads the derivative over the operands of a sum. It spreads it over the
// largest or smallest operands in equal parts.
func (o *reduceOp) differentiate(d *differentiator) {
	if o.fixed {
		return
	}
	n := len(o.x) / len(o.out)
	var x, y, g []int32
	for i, slope := range d.slopes(o.out) {
		if group := o.x[i*n : (i+1)*n]; slope != none && d.anyActive(group) {
			x, y, g = append(x, group...), append(y, o.out[i]), append(g, slope)
		}
	}
	if len(g) == 0 {
		return
	}
	if o.op == kernel.Sum {
		d.add(x, spread(g, n))
		return
	}
	equal := d.combine(kernel.Equal, x, spread(y, n))
	count := d.reduce(kernel.Sum, equal, n)
	if d.has(y) { // the largest of numbers that are NaN equals none of them
		count = d.combine(kernel.Maximum, count, d.same(1, len(count)))
	}
	part := d.combine(kernel.Divide, g, count)
	d.add(x, d.multiply(equal, spread(part, n)))
}

// anyActive reports whether one of the rows is active.
func (d *differentiator) anyActive(rows []int32) bool {
	return slices.ContainsFunc(rows, func(row int32) bool { return d.active[row] })
}

// differentiate follows from dx = y * (dy - the sum of y*dy).
func (o *softmaxOp) differentiate(d *differentiator) {
	var x, y, g []int32
	all := d.slopes(o.out)
	for i := 0; i < len(o.x); i += o.n {
		if slope := all[i : i+o.n]; slices.ContainsFunc(slope, func(row int32) bool { return row != none }) && d.anyActive(o.x[i:i+o.n]) {
			x, y, g = append(x, o.x[i:i+o.n]...), append(y, o.out[i:i+o.n]...), append(g, slope...)
		}
	}
	if len(g) == 0 {
		return
	}
	g = d.filled(g)
	sum := d.reduce(kernel.Sum, d.multiply(g, y), o.n)
	d.add(x, d.multiply(d.combine(kernel.Subtract, g, spread(sum, o.n)), y))
}

// differentiate multiplies by the derivatives of the function.
func (o *slowOp) differentiate(d *differentiator) {
	for side, f := range [...]func(x, y float64) float64{o.dx, o.dy} {
		operand := o.operands()[side]
		at, g := d.live(o.out, operand)
		if f != nil {
			d.add(pick(operand, at), d.multiply(g, d.slow(d.cleaned(pick(o.x, at)), d.cleaned(pick(o.y, at)), f, nil, nil)))
		}
	}
}

// differentiate multiplies by the transposed matrix.
func (o *linearOp) differentiate(d *differentiator) {
	var x, y, g []int32
	all := d.slopes(o.out)
	for v := range o.vectors {
		in, slope := o.x[v*o.m.In:(v+1)*o.m.In], all[v*o.m.Out:(v+1)*o.m.Out]
		if d.anyActive(in) && slices.ContainsFunc(slope, func(row int32) bool { return row != none }) {
			x, y, g = append(x, in...), append(y, o.out[v*o.m.Out:(v+1)*o.m.Out]...), append(g, slope...)
		}
	}
	if len(g) == 0 {
		return
	}
	if g = d.filled(g); o.relu {
		g = d.choose(y, g, d.same(0, len(g)))
	}
	out := d.allocate(len(x), g)
	d.compiler.linear(o.m.Transposed(), out, g, len(g)/o.m.Out, false)
	d.count(len(g)*o.m.In, g)
	d.add(x, out)
}

// count adds multiplications to those of the program, if they depend on a player.
func (c *compiler) count(n int, from ...[]int32) {
	if c.depends(from...) {
		c.p.products += n
	}
}

// differentiate multiplies by the other operand. With dz for the derivatives with respect
// to the results,
//
//	dx[i] = sum over j of dz[i][j] * y[j]
//	dy[j] = sum over i of dz[i][j] * x[i]
func (o *pairsOp) differentiate(d *differentiator) {
	g := d.slopes(o.out)
	if !slices.ContainsFunc(g, func(row int32) bool { return row != none }) {
		return
	}
	if o.symmetric {
		scale := slices.Repeat([]float32{1}, len(g))
		for i := range g {
			switch row, column := i/o.n%o.m, i%o.n; {
			case column == row:
				scale[i] = 2
			case column > row:
				g[i] = g[i+(column-row)*(o.n-1)]
			}
		}
		g = d.affine(d.filled(g), scale, []float32{0}) // in adjacent rows, which NewPairs needs
		d.product(o.x, g, o.x, o.batch, o.m, o.n, o.k)
		return
	}
	if slices.Contains(g, none) {
		g = d.gather(d.filled(g))
	}
	d.product(o.x, g, o.y, o.batch, o.m, o.n, o.k)
	d.product(o.y, transposed(g, o.batch, o.m, o.n), o.x, o.batch, o.n, o.m, o.k)
}

// product adds the parts dx[i] = sum over j of g[i][j] * y[j], for a batch of x [m, k],
// g [m, n] and y [n, k].
func (d *differentiator) product(x, g, y []int32, batch, m, n, k int) {
	if !d.anyActive(x) {
		return
	}
	out := d.allocate(len(x), g, y)
	d.emit(&pairsOp{out: out, x: g, y: transposed(d.cleaned(y), batch, n, k), batch: batch, m: m, n: k, k: n})
	d.count(batch*m*n*k, g, y)
	d.add(x, out)
}

// transposed returns the rows of a batch of matrices [m, n] as matrices [n, m].
func transposed(rows []int32, batch, m, n int) []int32 {
	return pick(rows, walk([]int{batch, n, m}, []int{m * n, 1, n}))
}
