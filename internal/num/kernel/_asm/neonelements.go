package main

import (
	"fmt"
	"math"
)

// The functions of this file have the same steps and constants as those of elements.go, and as the
// definitions in package kernel.

// flush sets the lanes of v that are below tiny in magnitude to 0. NaN stays.
func (a *arm) flush(v, tiny vec) {
	a.scope(func() {
		t := a.vector()
		a.farther(tiny, v, t)
		a.clear(v, t, v)
	})
}

// polynomial sets q to a polynomial at x. The coefficient of the highest power comes first.
func (a *arm) polynomial(x, q vec, c ...float64) {
	a.scope(func() {
		other := a.vector()
		from, to := q, other
		if len(c)%2 == 0 { // the last sum is in q
			from, to = other, q
		}
		a.set(c[0], from)
		for _, v := range c[1:] {
			a.set(v, to)
			a.fma(from, x, to)
			from, to = to, from
		}
	})
}

// exponent splits y into e*ln(2) + r, where e is an integer.
func (a *arm) exponent(y, e, r vec) {
	a.scope(func() {
		c := a.number(math.Log2E)
		a.mul(y, c, e)
		a.round(e, e)
		a.move(y, r)
		a.set(-0.693145751953125, c)
		a.fma(c, e, r)
		a.set(-1.428606765330187e-06, c)
		a.fma(c, e, r)
	})
}

// exp sets q to e^x, or to 0 if x is below smallest. q is not x.
func (a *arm) exp(x, q vec, smallest float64) {
	a.scope(func() {
		least, one := a.number(smallest), a.number(1)
		e, r := a.vector(), a.vector()
		a.scope(func() {
			y := a.number(89)
			a.min(x, y, y)
			a.max(y, least, y)
			a.exponent(y, e, r)
		})
		a.scope(func() {
			s, t := a.vector(), a.vector()
			a.mul(r, r, s)
			a.polynomial(r, q, 1.9875691500e-4, 1.3981999507e-3)
			a.polynomial(r, t, 8.3334519073e-3, 4.1665795894e-2)
			a.fma(q, s, t)
			a.polynomial(r, q, 1.6666665459e-1, 5.0000001201e-1)
			a.fma(t, s, q)
			a.fma(q, s, r) // e^r - 1
			a.add(r, one, q)
			a.integer(e, e)
			a.shiftRight(e, 1, s) // 2^e may overflow although the result does not
			a.op("VSUB", s, e, e)
			for _, half := range []vec{s, e} {
				a.shiftLeft(half, 23, half)
				a.op("VADD", one, half, half) // the bits of 2^e
				a.mul(q, half, q)
			}
			a.above(least, x, s)
			a.clear(q, s, q)
		})
	})
}

// hyperbolic sets s to tanh(x). It overwrites x. s is not x.
func (a *arm) hyperbolic(tiny, x, s vec) {
	a.flush(x, tiny)
	a.scope(func() {
		e, r, q, one := a.vector(), a.vector(), a.vector(), a.number(1)
		a.scope(func() {
			y, c := a.vector(), a.number(20)
			a.absolute(x, y)
			a.add(y, y, y)
			a.min(y, c, y)
			a.exponent(y, e, r)
		})
		a.polynomial(r, q, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
		a.mul(r, r, s)
		a.fma(q, s, r) // e^r - 1
		a.integer(e, e)
		a.shiftLeft(e, 23, e)
		a.op("VADD", one, e, e) // the bits of 2^e
		a.sub(e, one, s)
		a.fma(e, r, s) // e^y - 1
		a.set(2, q)
		a.add(s, q, q)
		a.div(s, q, s)
		sign := a.constant(signBit)
		a.and(x, sign, x)
		a.or(x, s, s)
	})
}

// tanh generates tanhNEON, which implements kernel.level.tanh.
func (a *arm) tanh() {
	a.function("tanh", "func(out *float32, in *float32, scale *float32, n int, panels int)",
		"is the loop of Tanh for n elements. panels is the number of groups of 16 states.", "Both are at least 1.")
	a.constants()
	out, in, scale, n, tiny := a.arg("out"), a.arg("in"), a.arg("scale"), a.arg("n"), a.number(1.0/(1<<60))
	from, to, by := a.gp(), a.gp(), a.gp()
	a.label("element")
	a.op("MOVD", in, from)
	a.op("MOVD", out, to)
	a.op("MOVD", scale, by)
	panels := a.arg("panels")
	a.label("panel")
	for v := range perPanel {
		a.scope(func() {
			x, s := a.vector(), a.vector()
			a.load(from, v*vectorBytes, x)
			a.hyperbolic(tiny, x, s)
			a.load(by, v*vectorBytes, x)
			a.mul(s, x, s)
			a.flush(s, tiny)
			a.store(to, v*vectorBytes, s)
		})
	}
	for _, r := range []gpr{from, to, by} {
		a.op("ADD", panelBytes, r, r)
	}
	a.countDown(panels, "panel")
	a.op("ADD", stateBytes, in, in)
	a.op("ADD", stateBytes, out, out)
	a.countDown(n, "element")
	a.ret()
}

// logOnePlus sets q to log(1+f). It overwrites f. q is not f.
func (a *arm) logOnePlus(f, q vec) {
	a.scope(func() {
		s, z := a.vector(), a.number(2)
		a.add(f, z, s)
		a.div(f, s, s)
		a.mul(s, s, z)
		a.add(s, s, f)
		a.polynomial(z, s, 0.14013687, 0.1399925, 0.2001087, 0.33333206)
		a.mul(s, z, s)
		a.move(f, q)
		a.fma(s, f, q)
	})
}

// log sets q to log(x). q is not x.
func (a *arm) log(x, q vec) {
	a.scope(func() {
		y, e, m, shift, c := a.vector(), a.vector(), a.vector(), a.number(23), a.number(0x1p23)
		a.mul(x, c, m)
		a.set(0x1p-126, c)
		a.above(c, x, y) // y is the condition until it is the choice
		a.and(shift, y, shift)
		a.either(y, m, x)
		a.setBits(0x3f3504f3, c) // sqrt(1/2)
		a.op("VSUB", c, y, y)
		a.shiftRight(y, 23, e)
		a.float(e, e)
		a.sub(e, shift, e)
		a.setBits(1<<23-1, m)
		a.and(y, m, m)
		a.op("VADD", c, m, m)
		a.set(1, c)
		a.sub(m, c, m)
		a.logOnePlus(m, q)
		a.set(1.428606765330187e-06, c)
		a.fma(c, e, q)
		a.set(0.693145751953125, c)
		a.fma(c, e, q)
		choose := func(mask vec, value vec) { // q = mask ? value : q
			a.either(mask, value, q)
			a.move(mask, q)
		}
		a.isZero(x, m)
		a.set(math.Inf(-1), c)
		choose(m, c)
		a.belowZero(x, m)
		a.setBits(0x7fc00000, c)
		choose(m, c)
		a.set(math.MaxFloat32, c)
		a.atLeast(c, x, m)
		a.either(m, q, x)
		a.move(m, q)
	})
}

// erf sets q to erf(x). q is not x.
func (a *arm) erf(x, q vec) {
	a.scope(func() {
		near, y, far, c := a.vector(), a.vector(), a.vector(), a.vector()
		a.mul(x, x, c)
		a.polynomial(c, y, -0.0005969914, 0.004989366, -0.026764316, 0.11281767, -0.37612492, 0.12837915)
		a.move(x, near)
		a.fma(x, y, near)
		a.absolute(x, y)
		a.set(4, c)
		a.min(y, c, far)
		a.polynomial(far, q, 0.00021327379, -0.0032091571, 0.022871599, -0.10523359, -0.63573945, -0.12850821)
		a.negate(far, c)
		a.fma(q, far, c)
		a.exp(c, q, expSmallest)
		a.set(1, c)
		a.sub(c, q, q)
		a.setBits(signBit, c)
		a.and(x, c, c)
		a.or(q, c, q)
		a.set(0.927734375, c)
		a.above(y, c, c)
		a.either(c, q, near)
		a.move(c, q)
	})
}

// lists generates a function of lists. It has a loop over the elements and one over the states. body
// computes a vector of out, z, from the vectors x of the operands, which it may overwrite. before may
// load what is the same for all states. It gets the number of the element.
func (a *arm) lists(name, doc string, operands []string, more string, before func(i gpr), body func(x []vec, z vec)) {
	names := append([]string{"out"}, operands...)
	signature := "func(b *float32"
	for _, name := range names {
		signature += ", " + name + " *uint32"
	}
	a.function(name, signature+more+", n int, panels int)", doc+" The lists contain indices of b.",
		"n is their length, and panels is the number of groups of 16 states. Both are at least 1.")
	a.constants()
	b, n, i, every := a.arg("b"), a.arg("n"), a.gp(), a.arg("panels")
	var list, at []gpr
	for _, name := range names {
		list, at = append(list, a.arg(name)), append(at, a.gp())
	}
	a.op("MOVD", zr, i)
	a.label("element")
	for l := range list {
		a.element(list[l], i, at[l])
		a.shifted(b, at[l], 2, at[l])
	}
	if before != nil {
		before(i)
	}
	panels := a.gp()
	a.op("MOVD", every, panels)
	a.label("panel")
	a.scope(func() {
		x := make([][]vec, len(operands))
		for l := range x {
			x[l] = a.vectors(perPanel)
			a.load(at[l+1], 0, x[l]...)
		}
		z := a.vectors(perPanel)
		for v := range z {
			var these []vec
			for l := range x {
				these = append(these, x[l][v])
			}
			body(these, z[v])
		}
		a.store(at[0], 0, z...)
	})
	for _, r := range at {
		a.op("ADD", panelBytes, r, r)
	}
	a.countDown(panels, "panel")
	a.op("ADD", 1, i, i)
	a.op("CMP", n, i)
	a.op("BLT", "element")
	a.ret()
}

// applyAll generates a function for each Function of package kernel.
func (a *arm) applyAll() {
	for _, f := range []struct {
		name string
		body func(x, z vec)
	}{
		{"copy", a.move},
		{"negate", a.negate},
		{"absolute", a.absolute},
		{"relu", func(x, z vec) {
			a.zero(z)
			a.max(x, z, z)
		}},
		{"squareRoot", a.squareRoot},
		{"reciprocal", func(x, z vec) {
			a.set(1, z)
			a.div(z, x, z)
		}},
		{"exp", func(x, z vec) { a.exp(x, z, expSmallest) }},
		{"log", a.log},
		{"sigmoid", func(x, z vec) {
			a.negate(x, x)
			a.exp(x, z, expSmallest)
			a.set(1, x)
			a.add(z, x, z)
			a.div(x, z, z)
		}},
		{"hyperbolicTangent", func(x, z vec) {
			a.scope(func() {
				tiny := a.number(1.0 / (1 << 60))
				a.hyperbolic(tiny, x, z)
				a.flush(z, tiny)
			})
		}},
		{"erf", a.erf},
		{"softplus", func(x, z vec) {
			a.scope(func() {
				y, e := a.constant(signBit), a.vector()
				a.or(x, y, y)
				a.exp(y, e, expSmallest)
				a.logOnePlus(e, z)
				a.zero(y)
				a.max(x, y, y)
				a.add(z, y, z)
			})
		}},
	} {
		a.lists(f.name, "is the loop of Apply for one function.", []string{"x"}, "", nil, func(x []vec, z vec) { f.body(x[0], z) })
	}
}

// combineAll generates a function for each Operation of package kernel.
func (a *arm) combineAll() {
	truth := func(compare func(x, y, to vec)) func(x, y, z vec) {
		return func(x, y, z vec) {
			compare(x, y, x)
			a.set(1, z)
			a.and(x, z, z)
		}
	}
	for _, f := range []struct {
		name string
		body func(x, y, z vec)
	}{
		{"add", a.add},
		{"subtract", a.sub},
		{"multiply", a.mul},
		{"divide", a.div},
		{"maximum", a.max},
		{"minimum", a.min},
		{"leaky", func(x, y, z vec) {
			a.mul(x, y, y)
			a.belowZero(x, z)
			a.either(z, y, x)
		}},
		{"equal", truth(a.equal)},
		{"less", truth(func(x, y, to vec) { a.above(y, x, to) })},
		{"lessOrEqual", truth(func(x, y, to vec) { a.atLeast(y, x, to) })},
	} {
		a.lists(f.name, "is the loop of Combine for one operation.", []string{"x", "y"}, "", nil, func(x []vec, z vec) { f.body(x[0], x[1], z) })
	}
}

// triples generates the functions of three operands, and affine.
func (a *arm) triples() {
	three := []string{"x", "y", "z"}
	a.lists("multiplyAdd", "is the loop of MultiplyAdd.", three, "", nil, func(x []vec, z vec) {
		a.move(x[2], z)
		a.fma(x[0], x[1], z)
	})
	a.lists("choose", "is the loop of Choose.", three, "", nil, func(x []vec, z vec) {
		a.isZero(x[0], z)
		a.either(z, x[2], x[1])
	})
	var factor, sum vec
	a.lists("affine", "is the loop of Affine.", []string{"x"}, ", scale *float32, offset *float32", func(i gpr) {
		scale, offset := a.arg("scale"), a.arg("offset")
		factor, sum = a.vector(), a.vector()
		a.lane0(scale, i, factor)
		a.lane0(offset, i, sum)
		a.dup(sum, 0, sum)
	}, func(x []vec, z vec) {
		a.move(sum, z)
		a.fmaLane(x[0], factor, 0, z)
	})
}

// reduceAll generates a function for each Reduction of package kernel.
func (a *arm) reduceAll() {
	for _, f := range []struct {
		name string
		body func(x, y, to vec)
	}{{"sum", a.add}, {"largest", a.max}, {"smallest", a.min}} {
		a.function(f.name, "func(b *float32, out *uint32, outs int, x *uint32, n int, panels int)",
			"is the loop of Reduce for one reduction. The lists contain indices of b. outs is the",
			"length of out, and n*outs that of x. panels is the number of groups of 16 states. All are at least 1.")
		for panels := 3; panels > 0; panels-- {
			a.scope(func() {
				id := fmt.Sprint(panels)
				a.label("panels" + id)
				if panels > 1 {
					a.scope(func() {
						all := a.arg("panels")
						a.op("CMP", panels, all)
						a.op("BLT", "panels"+fmt.Sprint(panels-1))
					})
				}
				b, out, outs, list := a.arg("b"), a.arg("out"), a.arg("outs"), a.arg("x")
				a.label("out" + id)
				n, k, sum, x := a.arg("n"), a.gp(), a.vectors(panels*perPanel), a.vectors(perPanel)
				a.next(list, k)
				a.shifted(b, k, 2, k)
				a.load(k, 0, sum...)
				a.op("B", "next"+id)
				a.label("add" + id)
				a.next(list, k)
				a.shifted(b, k, 2, k)
				for v := 0; v < len(sum); v += perPanel {
					a.load(k, v*vectorBytes, x...)
					for i := range x {
						f.body(sum[v+i], x[i], sum[v+i])
					}
				}
				a.label("next" + id)
				a.countDown(n, "add"+id)
				a.next(out, k)
				a.shifted(b, k, 2, k)
				a.store(k, 0, sum...)
				a.countDown(outs, "out"+id)
				a.ret()
			})
		}
	}
}

// softmax generates softmaxNEON, which implements kernel.level.softmax.
func (a *arm) softmax() {
	a.function("softmax", "func(b *float32, out *uint32, x *uint32, n int, rows int, panels int)",
		"is the loop of Softmax for rows of n elements. The lists contain indices of b. panels is the number",
		"of groups of 16 states. n, rows and panels are at least 1.")
	a.constants()
	out, list, n, rows := a.arg("out"), a.arg("x"), a.arg("n"), a.arg("rows")
	a.label("row")
	b, panels := a.arg("b"), a.arg("panels")
	a.label("panel")
	i, k, largest, sum := a.gp(), a.gp(), a.vectors(perPanel), a.vectors(perPanel)
	element := func(list gpr) {
		a.element(list, i, k)
		a.shifted(b, k, 2, k)
	}
	again := func(label string) {
		a.op("ADD", 1, i, i)
		a.op("CMP", n, i)
		a.op("BLT", label)
	}
	x := a.vectors(perPanel)
	a.op("MOVD", zr, i)
	element(list)
	a.load(k, 0, largest...)
	a.zero(sum...)
	a.label("largest")
	element(list)
	a.load(k, 0, x...)
	for v := range x {
		a.max(x[v], largest[v], largest[v])
	}
	again("largest")
	a.op("MOVD", zr, i)
	a.label("exp")
	element(list)
	a.load(k, 0, x...)
	element(out)
	for v := range x {
		a.scope(func() {
			y := a.vector()
			a.sub(x[v], largest[v], x[v])
			a.exp(x[v], y, softmaxSmallest)
			a.add(sum[v], y, sum[v])
			a.store(k, v*vectorBytes, y)
		})
	}
	again("exp")
	a.scope(func() {
		one := a.number(1)
		for v := range sum {
			a.div(one, sum[v], sum[v])
		}
	})
	a.op("MOVD", zr, i)
	a.label("divide")
	element(out)
	a.load(k, 0, x...)
	for v := range x {
		a.mul(x[v], sum[v], x[v])
	}
	a.store(k, 0, x...)
	again("divide")
	a.op("ADD", panelBytes, b, b)
	a.countDown(panels, "panel")
	a.shifted(list, n, 2, list)
	a.shifted(out, n, 2, out)
	a.countDown(rows, "row")
	a.ret()
}

// pairs generates a function of Pairs.Compute for tiles of rows*columns outputs. The sums of a tile
// are in registers, so that each operand that is loaded serves a whole row or column.
func (a *arm) pairs(rows, columns int) {
	a.function(fmt.Sprintf("pairs%dx%d", rows, columns), "func(b *float32, tile *uint32, tiles int, steps *int32, n int)",
		fmt.Sprintf("is the loop of Pairs.Compute for one vector of states and tiles of %d by %d outputs.", rows, columns),
		"A tile has one word that is not 0 if outputs are discarded, the indices of its operands' first elements",
		"in b, and those of its outputs. If bit 31 of the latter is set, the output is discarded. steps has two",
		"numbers for each k, which are added to the indices of the operands. n is the number of products that a",
		"sum adds.")
	b, tile, tiles, discards := a.arg("b"), a.arg("tile"), a.arg("tiles"), a.gp()
	operands := make([]gpr, rows+columns)
	for i := range operands {
		operands[i] = a.gp()
	}
	a.label("tile")
	a.next(tile, discards)
	for _, r := range operands {
		a.next(tile, r)
		a.shifted(b, r, 2, r)
	}
	sum := a.vectors(rows * columns)
	a.zero(sum...)
	steps, n, xk, yk := a.arg("steps"), a.arg("n"), a.gp(), a.gp()
	a.op("CBZ", n, "store")
	a.label("k")
	a.op("MOVW.P", at64(steps, 4), xk)
	a.op("MOVW.P", at64(steps, 4), yk)
	a.op("LSL", 2, xk, xk)
	a.op("LSL", 2, yk, yk)
	x, y := a.vectors(rows), a.vectors(min(2, 32-rows*columns-rows))
	for i := range x {
		a.loadAt(operands[i], xk, x[i])
	}
	for j := range columns {
		y := y[j%len(y)]
		a.loadAt(operands[rows+j], yk, y)
		for i := range x {
			a.fma(x[i], y, sum[i*columns+j])
		}
	}
	a.countDown(n, "k")
	a.label("store")
	k := xk
	a.op("CBNZ", discards, "discard")
	for _, v := range sum {
		a.next(tile, k)
		a.shifted(b, k, 2, k)
		a.store(k, 0, v)
	}
	a.label("next")
	a.countDown(tiles, "tile")
	a.ret()
	a.label("discard")
	for i, v := range sum {
		skip := fmt.Sprintf("discard%d", i+1)
		a.next(tile, k)
		a.op("TBNZ", 31, k, skip)
		a.shifted(b, k, 2, k)
		a.store(k, 0, v)
		a.label(skip)
	}
	a.op("B", "next")
}

// dots generates a function of Pairs.Compute for outputs that share no operands, or whose operands
// have no common steps.
func (a *arm) dots(n int) {
	a.function(fmt.Sprintf("dots%d", n), "func(b *float32, tile *uint32, tiles int, n int)",
		fmt.Sprintf("is the loop of Pairs.Compute for one vector of states and tiles of %d outputs that need not", n),
		fmt.Sprintf("share operands. A tile has the indices of its outputs in b. For each k, %d operands of each side follow.", n),
		"n is the number of products that a sum adds.")
	b, tile, tiles, out, k := a.arg("b"), a.arg("tile"), a.arg("tiles"), a.gp(), a.gp()
	a.label("tile")
	left, sum, x := a.arg("n"), a.vectors(n), a.vectors(n)
	a.op("MOVD", tile, out)
	a.op("ADD", 4*n, tile, tile)
	a.zero(sum...)
	a.op("CBZ", left, "store")
	a.label("k")
	load := func(v vec) {
		a.next(tile, k)
		a.shifted(b, k, 2, k)
		a.load(k, 0, v)
	}
	for _, v := range x {
		load(v)
	}
	y := a.vectors(4)
	for i := range sum {
		load(y[i%4])
		a.fma(x[i], y[i%4], sum[i])
	}
	a.countDown(left, "k")
	a.label("store")
	for _, v := range sum {
		a.next(out, k)
		a.shifted(b, k, 2, k)
		a.store(k, 0, v)
	}
	a.countDown(tiles, "tile")
	a.ret()
}
