package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The predicates of comparisons. A comparison with NaN is true for those whose name
// begins with not, and for unordered.
const (
	equal     = 0
	less      = 1
	lessEqual = 2
	unordered = 3
	notEqual  = 4
	notLess   = 5
	notAtMost = 6
	greater   = 14
)

// every returns a constant in memory of 16 lanes that are v.
func every(v float64) operand.Mem { return bits(math.Float32bits(float32(v))) }

// bits returns a constant in memory of 16 lanes with the bits b.
func bits(b uint32) operand.Mem { return everyLane(fmt.Sprintf("lanes%08x", b), b) }

// load copies a constant into a new register.
func (g *generator) load(m operand.Mem) reg.VecVirtual {
	v := g.vector()
	build.VMOVUPS(m, v)
	return v
}

// cleared returns a new register of zeros.
func (g *generator) cleared() reg.VecVirtual {
	v := g.vector()
	g.zero(v)
	return v
}

// either sets dst to yes where a and b compare as the predicate says, elsewhere to no.
func (g *generator) either(predicate uint64, a reg.VecVirtual, b operand.Op, yes operand.Op, no, dst reg.VecVirtual) {
	if g.bytes == 64 {
		k := build.K()
		build.VCMPPS(operand.Imm(predicate), b, a, k)
		build.VBLENDMPS(yes, no, k, dst)
		return
	}
	t := g.vector()
	build.VCMPPS(operand.Imm(predicate), b, a, t)
	build.VBLENDVPS(t, yes, no, dst)
}

// keep sets the lanes of v to 0 where a and b do not compare as the predicate says.
func (g *generator) keep(predicate uint64, a reg.VecVirtual, b operand.Op, v reg.VecVirtual) {
	if g.bytes == 64 {
		k := build.K()
		build.VCMPPS(operand.Imm(predicate), b, a, k)
		build.VMOVAPS_Z(v, k, v)
		return
	}
	t := g.vector()
	build.VCMPPS(operand.Imm(predicate), b, a, t)
	build.VANDPS(t, v, v)
}

// polynomial evaluates a polynomial at x. The coefficient of the highest power comes
// first.
func (g *generator) polynomial(x reg.VecVirtual, c ...float64) reg.VecVirtual {
	q := g.load(every(c[0]))
	for _, v := range c[1:] {
		build.VFMADD213PS(every(v), x, q)
	}
	return q
}

// expSmallest is the constant of that name in package kernel.
const expSmallest = -87.3365

// exp returns e^x, or 0 if x is below smallest. It has the same steps and constants as
// exponential in package kernel.
func (g *generator) exp(x reg.VecVirtual, smallest operand.Mem) reg.VecVirtual {
	y, e, r, s := g.vector(), g.vector(), g.vector(), g.vector()
	build.VMINPS(x, g.load(every(89)), y) // min and max return x if either operand is NaN
	if g.bytes == 32 {
		// Without this, 2^e would be subnormal in lanes that become 0 in the end. Subnormal
		// numbers make the processor a hundred times slower.
		build.VMAXPS(y, g.load(smallest), y)
	}
	build.VMULPS(every(math.Log2E), y, e)
	g.round(e, e)
	build.VMOVAPS(y, r)
	build.VFMADD231PS(every(-0.693145751953125), e, r)
	build.VFMADD231PS(every(-1.428606765330187e-06), e, r)
	build.VMULPS(r, r, s)
	q := g.polynomial(r, 1.9875691500e-4, 1.3981999507e-3)
	build.VFMADD213PS(g.polynomial(r, 8.3334519073e-3, 4.1665795894e-2), s, q)
	build.VFMADD213PS(g.polynomial(r, 1.6666665459e-1, 5.0000001201e-1), s, q)
	build.VFMADD213PS(r, s, q)
	build.VADDPS(every(1), q, q)
	if g.bytes == 64 {
		k := build.K()
		build.VCMPPS(operand.Imm(notLess), smallest, x, k)
		build.VSCALEFPS_Z(e, q, k, q)
		return q
	}
	build.VCVTPS2DQ(e, e)
	half := g.vector() // 2^e may overflow although the result does not
	build.VPSRAD(operand.Imm(1), e, half)
	build.VPSUBD(half, e, e)
	for _, e := range []reg.VecVirtual{half, e} {
		build.VPSLLD(operand.Imm(23), e, e)
		build.VPADDD(every(1), e, e) // the bits of 2^e
		build.VMULPS(e, q, q)
	}
	g.keep(notLess, x, smallest, q)
	return q
}

// logOnePlus has the same steps and constants as logOnePlus in package kernel.
func (g *generator) logOnePlus(f reg.VecVirtual) reg.VecVirtual {
	s, z := g.vector(), g.vector()
	build.VADDPS(every(2), f, s)
	build.VDIVPS(s, f, s)
	build.VMULPS(s, s, z)
	build.VADDPS(s, s, s)
	q := g.polynomial(z, 0.14013687, 0.1399925, 0.2001087, 0.33333206)
	build.VMULPS(z, q, q)
	build.VFMADD213PS(s, s, q)
	return q
}

// log has the same steps and constants as logarithm in package kernel.
func (g *generator) log(x reg.VecVirtual) reg.VecVirtual {
	y, e, m, shift := g.vector(), g.vector(), g.vector(), g.load(every(23))
	smallest := every(0x1p-126)
	build.VMULPS(every(0x1p23), x, y)
	g.either(less, x, smallest, y, x, y)
	g.keep(less, x, smallest, shift)
	sqrtHalf := bits(0x3f3504f3)
	build.VPSUBD(sqrtHalf, y, y)
	build.VPSRAD(operand.Imm(23), y, e)
	build.VCVTDQ2PS(e, e)
	build.VSUBPS(shift, e, e)
	g.and(y, g.load(bits(1<<23-1)), m)
	build.VPADDD(sqrtHalf, m, m)
	build.VSUBPS(every(1), m, m)
	q := g.logOnePlus(m)
	build.VFMADD231PS(every(1.428606765330187e-06), e, q)
	build.VFMADD231PS(every(0.693145751953125), e, q)
	zero := g.cleared()
	g.either(equal, x, zero, every(math.Inf(-1)), q, q)
	g.either(less, x, zero, bits(0x7fc00000), q, q)
	g.either(notAtMost, x, every(math.MaxFloat32), x, q, q)
	return q
}

const signBit = 1 << 31

// sigmoid has the same steps as sigmoid in package kernel.
func (g *generator) sigmoid(x reg.VecVirtual) reg.VecVirtual {
	y := g.vector()
	build.VSUBPS(x, g.cleared(), y)
	y = g.exp(y, every(expSmallest))
	build.VADDPS(every(1), y, y)
	build.VDIVPS(y, g.load(every(1)), y)
	return y
}

// softplus has the same steps as softplus in package kernel.
func (g *generator) softplus(x reg.VecVirtual) reg.VecVirtual {
	y, positive := g.vector(), g.vector()
	g.or(x, g.load(bits(signBit)), y)
	y = g.logOnePlus(g.exp(y, every(expSmallest)))
	build.VMAXPS(x, g.cleared(), positive) // max returns x if either operand is NaN
	build.VADDPS(positive, y, y)
	return y
}

// erf has the same steps and constants as errorFunction in package kernel.
func (g *generator) erf(x reg.VecVirtual) reg.VecVirtual {
	y, z, far, sign := g.vector(), g.vector(), g.vector(), g.vector()
	build.VMULPS(x, x, z)
	near := g.polynomial(z, -0.0005969914, 0.004989366, -0.026764316, 0.11281767, -0.37612492, 0.12837915)
	build.VFMADD213PS(x, x, near)
	g.and(x, g.load(bits(signBit-1)), y)
	build.VMINPS(y, g.load(every(4)), far) // min returns y if either operand is NaN
	q := g.polynomial(far, 0.00021327379, -0.0032091571, 0.022871599, -0.10523359, -0.63573945, -0.12850821)
	build.VFMSUB213PS(far, far, q)
	q = g.exp(q, every(expSmallest))
	build.VSUBPS(q, g.load(every(1)), q)
	g.and(x, g.load(bits(signBit)), sign)
	g.or(q, sign, q)
	g.either(greater, y, every(0.927734375), q, near, q)
	return q
}

// lists generates a function of lists. It has a loop over the elements and one over the
// states. body computes a vector of out from the vectors x of the operands. It may read the
// parameters more at index i, which is that of the element.
func (g *generator) lists(name, doc string, operands []string, body func(i reg.GPVirtual, x []reg.VecVirtual) reg.VecVirtual, more string) {
	names := append([]string{"out"}, operands...)
	signature := "func(b *float32"
	for _, name := range names {
		signature += ", " + name + " *uint32"
	}
	build.TEXT(name+g.suffix, build.NOSPLIT, signature+more+", n int, panels int)")
	build.Doc(name+g.suffix+" "+doc+" The lists contain indices of b.", "n is their length, and panels is the number of groups of 16 states. Both are at least 1.")
	build.Pragma("noescape")
	b, i, n := argument("b"), build.GP64(), argument("n")
	var list, at []reg.GPVirtual
	for _, name := range names {
		list, at = append(list, argument(name)), append(at, build.GP64())
	}
	build.XORQ(i, i)
	build.Label("element")
	for l := range list {
		build.MOVL(operand.Mem{Base: list[l], Index: i, Scale: 4}, at[l].As32())
		build.LEAQ(operand.Mem{Base: b, Index: at[l], Scale: 4}, at[l])
	}
	panels, offset := argument("panels"), build.GP64()
	build.XORQ(offset, offset)
	build.Label("panel")
	for v := range g.perPanel() {
		x := g.vectors(len(operands))
		for l := range x {
			build.VMOVUPS(operand.Mem{Base: at[l+1], Index: offset, Scale: 1, Disp: v * g.bytes}, x[l])
		}
		build.VMOVUPS(body(i, x), operand.Mem{Base: at[0], Index: offset, Scale: 1, Disp: v * g.bytes})
	}
	build.ADDQ(operand.U32(panelBytes), offset)
	build.DECQ(panels)
	build.JNZ(operand.LabelRef("panel"))
	build.INCQ(i)
	build.CMPQ(i, n)
	build.JL(operand.LabelRef("element"))
	build.VZEROUPPER()
	build.RET()
}

// apply generates a function for each Function of package kernel.
func (g *generator) apply() {
	var c tanhConstants
	for _, f := range []struct {
		name string
		body func(x, y reg.VecVirtual) reg.VecVirtual // y is a free register
	}{
		{"copy", func(x, _ reg.VecVirtual) reg.VecVirtual { return x }},
		{"negate", func(x, y reg.VecVirtual) reg.VecVirtual {
			build.VXORPS(bits(signBit), x, y)
			return y
		}},
		{"absolute", func(x, y reg.VecVirtual) reg.VecVirtual {
			build.VANDPS(bits(signBit-1), x, y)
			return y
		}},
		{"relu", func(x, y reg.VecVirtual) reg.VecVirtual {
			build.VMAXPS(x, g.cleared(), y) // max returns x if either operand is NaN
			return y
		}},
		{"squareRoot", func(x, y reg.VecVirtual) reg.VecVirtual {
			build.VSQRTPS(x, y)
			return y
		}},
		{"reciprocal", func(x, y reg.VecVirtual) reg.VecVirtual {
			build.VDIVPS(x, g.load(every(1)), y)
			return y
		}},
		{"exp", func(x, _ reg.VecVirtual) reg.VecVirtual { return g.exp(x, every(expSmallest)) }},
		{"log", func(x, _ reg.VecVirtual) reg.VecVirtual { return g.log(x) }},
		{"sigmoid", func(x, _ reg.VecVirtual) reg.VecVirtual { return g.sigmoid(x) }},
		{"hyperbolicTangent", func(x, y reg.VecVirtual) reg.VecVirtual {
			c = g.tanhConstants(true)
			y = g.hyperbolic(&c, x)
			g.flush(y, c.magnitude, c.tiny)
			return y
		}},
		{"erf", func(x, _ reg.VecVirtual) reg.VecVirtual { return g.erf(x) }},
		{"softplus", func(x, _ reg.VecVirtual) reg.VecVirtual { return g.softplus(x) }},
	} {
		g.lists(f.name, "is the loop of Apply for one function.", []string{"x"}, func(_ reg.GPVirtual, x []reg.VecVirtual) reg.VecVirtual {
			return f.body(x[0], g.vector())
		}, "")
	}
}

// larger returns the larger one of x and y, or the smaller one if smaller is true. It
// returns NaN if either is NaN.
func (g *generator) larger(x, y reg.VecVirtual, smaller bool) reg.VecVirtual {
	z := g.vector()
	if smaller {
		build.VMINPS(y, x, z) // min and max return y if either operand is NaN
	} else {
		build.VMAXPS(y, x, z)
	}
	g.either(unordered, x, x, x, z, z)
	return z
}

// combine generates a function for each Operation of package kernel.
func (g *generator) combine() {
	compare := func(predicate uint64) func(x, y, z reg.VecVirtual) reg.VecVirtual {
		return func(x, y, z reg.VecVirtual) reg.VecVirtual {
			build.VMOVUPS(every(1), z)
			g.keep(predicate, x, y, z)
			return z
		}
	}
	simple := func(f func(...operand.Op)) func(x, y, z reg.VecVirtual) reg.VecVirtual {
		return func(x, y, z reg.VecVirtual) reg.VecVirtual {
			f(y, x, z)
			return z
		}
	}
	for _, f := range []struct {
		name string
		body func(x, y, z reg.VecVirtual) reg.VecVirtual // z is a free register
	}{
		{"add", simple(build.VADDPS)},
		{"subtract", simple(build.VSUBPS)},
		{"multiply", simple(build.VMULPS)},
		{"divide", simple(build.VDIVPS)},
		{"maximum", func(x, y, _ reg.VecVirtual) reg.VecVirtual { return g.larger(x, y, false) }},
		{"minimum", func(x, y, _ reg.VecVirtual) reg.VecVirtual { return g.larger(x, y, true) }},
		{"leaky", func(x, y, z reg.VecVirtual) reg.VecVirtual {
			build.VMULPS(y, x, z)
			g.either(less, x, g.cleared(), z, x, z)
			return z
		}},
		{"equal", compare(equal)},
		{"less", compare(less)},
		{"lessOrEqual", compare(lessEqual)},
	} {
		g.lists(f.name, "is the loop of Combine for one operation.", []string{"x", "y"}, func(_ reg.GPVirtual, x []reg.VecVirtual) reg.VecVirtual {
			return f.body(x[0], x[1], g.vector())
		}, "")
	}
}

// triples generates the functions of three operands, and affine.
func (g *generator) triples() {
	three := []string{"x", "y", "z"}
	g.lists("multiplyAdd", "is the loop of MultiplyAdd.", three, func(_ reg.GPVirtual, x []reg.VecVirtual) reg.VecVirtual {
		build.VFMADD213PS(x[2], x[1], x[0])
		return x[0]
	}, "")
	g.lists("choose", "is the loop of Choose.", three, func(_ reg.GPVirtual, x []reg.VecVirtual) reg.VecVirtual {
		g.either(notEqual, x[0], g.cleared(), x[1], x[2], x[2])
		return x[2]
	}, "")
	g.lists("affine", "is the loop of Affine.", []string{"x"}, func(i reg.GPVirtual, x []reg.VecVirtual) reg.VecVirtual {
		factor, sum := g.vector(), g.vector()
		build.VBROADCASTSS(operand.Mem{Base: argument("scale"), Index: i, Scale: 4}, factor)
		build.VBROADCASTSS(operand.Mem{Base: argument("offset"), Index: i, Scale: 4}, sum)
		build.VFMADD231PS(factor, x[0], sum)
		return sum
	}, ", scale *float32, offset *float32")
}

// reduce generates a function for each Reduction of package kernel.
func (g *generator) reduce() {
	for _, f := range []struct {
		name string
		body func(sum, x reg.VecVirtual) // adds x to sum
	}{
		{"sum", func(sum, x reg.VecVirtual) { build.VADDPS(x, sum, sum) }},
		{"largest", func(sum, x reg.VecVirtual) { build.VMOVAPS(g.larger(sum, x, false), sum) }},
		{"smallest", func(sum, x reg.VecVirtual) { build.VMOVAPS(g.larger(sum, x, true), sum) }},
	} {
		name := f.name + g.suffix
		build.TEXT(name, build.NOSPLIT, "func(b *float32, out *uint32, outs int, x *uint32, n int, panels int)")
		build.Doc(name+" is the loop of Reduce for one reduction. The lists contain indices of b. outs is the",
			"length of out, and n*outs that of x. panels is the number of groups of 16 states. All are at least 1.")
		build.Pragma("noescape")
		for panels := 3; panels > 0; panels-- {
			id := fmt.Sprint(panels)
			if panels > 1 {
				build.CMPQ(stack("panels"), operand.Imm(uint64(panels)))
				build.JL(operand.LabelRef("panels" + fmt.Sprint(panels-1)))
			}
			b, out, outs, list := argument("b"), argument("out"), argument("outs"), argument("x")
			build.Label("out" + id)
			n, k := argument("n"), build.GP64()
			sum := g.vectors(panels * g.perPanel())
			at := func(v int) operand.Mem { return operand.Mem{Base: b, Index: k, Scale: 4, Disp: v * g.bytes} }
			build.MOVL(operand.Mem{Base: list}, k.As32())
			for v := range sum {
				build.VMOVUPS(at(v), sum[v])
			}
			build.JMP(operand.LabelRef("next" + id))
			build.Label("add" + id)
			build.MOVL(operand.Mem{Base: list}, k.As32())
			for v := range sum {
				x := g.vector()
				build.VMOVUPS(at(v), x)
				f.body(sum[v], x)
			}
			build.Label("next" + id)
			build.ADDQ(operand.Imm(4), list)
			build.DECQ(n)
			build.JNZ(operand.LabelRef("add" + id))
			build.MOVL(operand.Mem{Base: out}, k.As32())
			for v := range sum {
				build.VMOVUPS(sum[v], at(v))
			}
			build.ADDQ(operand.Imm(4), out)
			build.DECQ(outs)
			build.JNZ(operand.LabelRef("out" + id))
			build.VZEROUPPER()
			build.RET()
			if panels > 1 {
				build.Label("panels" + fmt.Sprint(panels-1))
			}
		}
	}
}

// softmaxSmallest is the constant of that name in package kernel.
const softmaxSmallest = -41.5

// softmax generates softmax<suffix>, which implements kernel.level.softmax.
func (g *generator) softmax() {
	name := "softmax" + g.suffix
	build.TEXT(name, build.NOSPLIT, "func(b *float32, out *uint32, x *uint32, n int, rows int, panels int)")
	build.Doc(name+" is the loop of Softmax for rows of n elements. The lists contain indices of b. panels is the number",
		"of groups of 16 states. n, rows and panels are at least 1.")
	build.Pragma("noescape")
	build.Label("row")
	begin, panels := argument("b"), argument("panels")
	build.Label("panel")
	out, list, i, k := argument("out"), argument("x"), build.GP64(), build.GP64()
	at := func(v int) operand.Mem {
		return operand.Mem{Base: begin, Index: k, Scale: 4, Disp: v * g.bytes}
	}
	n := argument("n")
	largest, sum := g.vectors(g.perPanel()), g.vectors(g.perPanel())
	build.MOVL(operand.Mem{Base: list}, k.As32())
	for v := range largest {
		build.VMOVUPS(at(v), largest[v])
		g.zero(sum[v])
	}
	build.XORQ(i, i)
	build.Label("largest") // NaN may be lost here, but not in the sum
	build.MOVL(operand.Mem{Base: list, Index: i, Scale: 4}, k.As32())
	for v := range largest {
		build.VMAXPS(at(v), largest[v], largest[v])
	}
	build.INCQ(i)
	build.CMPQ(i, n)
	build.JL(operand.LabelRef("largest"))
	build.XORQ(i, i)
	build.Label("exp")
	x := g.vectors(g.perPanel())
	build.MOVL(operand.Mem{Base: list, Index: i, Scale: 4}, k.As32())
	for v := range x {
		build.VMOVUPS(at(v), x[v])
	}
	build.MOVL(operand.Mem{Base: out, Index: i, Scale: 4}, k.As32())
	for v := range x {
		build.VSUBPS(largest[v], x[v], x[v])
		y := g.exp(x[v], every(softmaxSmallest))
		build.VADDPS(y, sum[v], sum[v])
		build.VMOVUPS(y, at(v))
	}
	build.INCQ(i)
	build.CMPQ(i, n)
	build.JL(operand.LabelRef("exp"))
	for v := range sum {
		build.VDIVPS(sum[v], g.load(every(1)), sum[v])
	}
	build.XORQ(i, i)
	build.Label("divide")
	build.MOVL(operand.Mem{Base: out, Index: i, Scale: 4}, k.As32())
	for v := range sum {
		y := g.vector()
		build.VMULPS(at(v), sum[v], y)
		build.VMOVUPS(y, at(v))
	}
	build.INCQ(i)
	build.CMPQ(i, n)
	build.JL(operand.LabelRef("divide"))
	build.ADDQ(operand.U32(panelBytes), begin)
	build.DECQ(panels)
	build.JNZ(operand.LabelRef("panel"))
	build.LEAQ(operand.Mem{Base: list, Index: n, Scale: 4}, list)
	build.LEAQ(operand.Mem{Base: out, Index: n, Scale: 4}, out)
	build.MOVQ(list, stack("x"))
	build.MOVQ(out, stack("out"))
	build.DECQ(stack("rows"))
	build.JNZ(operand.LabelRef("row"))
	build.VZEROUPPER()
	build.RET()
}

// pairs generates a function of Pairs.Compute for tiles of rows*columns outputs. The sums of a
// tile are in registers, so that each operand that is loaded serves a whole row or column.
func (g *generator) pairs(rows, columns int) {
	name := fmt.Sprintf("pairs%dx%d%s", rows, columns, g.suffix)
	build.TEXT(name, build.NOSPLIT, "func(b *float32, tile *uint32, tiles int, steps *int32, n int)")
	build.Doc(fmt.Sprintf("%s is the loop of Pairs.Compute for one vector of states and tiles of %d by %d outputs.", name, rows, columns),
		"A tile has one word that is not 0 if outputs are discarded, the indices of its operands' first elements",
		"in b, and those of its outputs. If bit 31 of the latter is set, the output is discarded. steps has two",
		"numbers for each k, which are added to the indices of the operands. n is the number of products that a",
		"sum adds.")
	build.Pragma("noescape")
	build.Label("tile")
	b, tile, operands := argument("b"), argument("tile"), make([]reg.GPVirtual, rows+columns)
	for i := range operands {
		operands[i] = build.GP64()
		build.MOVL(operand.Mem{Base: tile, Disp: 4 + 4*i}, operands[i].As32())
		build.LEAQ(operand.Mem{Base: b, Index: operands[i], Scale: 4}, operands[i])
	}
	sum := g.vectors(rows * columns)
	for _, v := range sum {
		g.zero(v)
	}
	steps, n := argument("steps"), argument("n")
	build.TESTQ(n, n)
	build.JZ(operand.LabelRef("store"))
	build.LEAQ(operand.Mem{Base: steps, Index: n, Scale: 8}, steps)
	build.NEGQ(n)
	build.Label("k")
	xk, yk := build.GP64(), build.GP64()
	build.MOVLQSX(operand.Mem{Base: steps, Index: n, Scale: 8}, xk)
	build.MOVLQSX(operand.Mem{Base: steps, Index: n, Scale: 8, Disp: 4}, yk)
	x := g.vectors(rows)
	for i := range x {
		build.VMOVUPS(operand.Mem{Base: operands[i], Index: xk, Scale: 4}, x[i])
	}
	for j := range columns {
		at := operand.Mem{Base: operands[rows+j], Index: yk, Scale: 4}
		if rows == 1 {
			build.VFMADD231PS(at, x[0], sum[j])
			continue
		}
		y := g.vector()
		build.VMOVUPS(at, y)
		for i := range x {
			build.VFMADD231PS(y, x[i], sum[i*columns+j])
		}
	}
	build.INCQ(n)
	build.JNZ(operand.LabelRef("k"))
	build.Label("store")
	tile, b = argument("tile"), argument("b")
	build.CMPL(operand.Mem{Base: tile}, operand.Imm(0))
	build.JNE(operand.LabelRef("discard"))
	k := build.GP64()
	for i, v := range sum {
		build.MOVL(operand.Mem{Base: tile, Disp: 4 * (1 + rows + columns + i)}, k.As32())
		build.VMOVUPS(v, operand.Mem{Base: b, Index: k, Scale: 4})
	}
	build.Label("next")
	build.ADDQ(operand.U32(4*(1+rows+columns+rows*columns)), stack("tile"))
	build.DECQ(stack("tiles"))
	build.JNZ(operand.LabelRef("tile"))
	build.VZEROUPPER()
	build.RET()
	build.Label("discard")
	for i, v := range sum {
		skip := fmt.Sprintf("discard%d", i+1)
		build.MOVL(operand.Mem{Base: tile, Disp: 4 * (1 + rows + columns + i)}, k.As32())
		build.TESTL(k.As32(), k.As32())
		build.JS(operand.LabelRef(skip))
		build.VMOVUPS(v, operand.Mem{Base: b, Index: k, Scale: 4})
		build.Label(skip)
	}
	build.JMP(operand.LabelRef("next"))
}

// dots generates a function of Pairs.Compute for outputs that share no operands, or whose
// operands have no common steps.
func (g *generator) dots(n int) {
	name := fmt.Sprintf("dots%d%s", n, g.suffix)
	build.TEXT(name, build.NOSPLIT, "func(b *float32, tile *uint32, tiles int, n int)")
	build.Doc(fmt.Sprintf("%s is the loop of Pairs.Compute for one vector of states and tiles of %d outputs that need not", name, n),
		fmt.Sprintf("share operands. A tile has the indices of its outputs in b. For each k, %d operands of each side follow.", n),
		"n is the number of products that a sum adds.")
	build.Pragma("noescape")
	b, tile, k := argument("b"), argument("tile"), build.GP64()
	build.Label("tile")
	at := func(i int) operand.Mem {
		build.MOVL(operand.Mem{Base: tile, Disp: 4 * i}, k.As32())
		return operand.Mem{Base: b, Index: k, Scale: 4}
	}
	out, left := build.GP64(), argument("n")
	build.MOVQ(tile, out)
	build.ADDQ(operand.U32(4*n), tile)
	sum := g.vectors(n)
	for _, v := range sum {
		g.zero(v)
	}
	build.TESTQ(left, left)
	build.JZ(operand.LabelRef("store"))
	build.Label("k")
	for i := range sum {
		x := g.vector()
		build.VMOVUPS(at(i), x)
		build.VFMADD231PS(at(n+i), x, sum[i])
	}
	build.ADDQ(operand.U32(8*n), tile)
	build.DECQ(left)
	build.JNZ(operand.LabelRef("k"))
	build.Label("store")
	for i, v := range sum {
		build.MOVL(operand.Mem{Base: out, Disp: 4 * i}, k.As32())
		build.VMOVUPS(v, operand.Mem{Base: b, Index: k, Scale: 4})
	}
	build.DECQ(stack("tiles"))
	build.JNZ(operand.LabelRef("tile"))
	build.VZEROUPPER()
	build.RET()
}

// linear generates linear<suffix>, which implements Linear.Compute for one vector of
// elements. It is the loop of product, but weights are packed in the order of their use.
func (g *generator) linear() {
	g.linearLoop("linear"+g.suffix, "func(b *float32, out *uint32, x *uint32, n int, w *float32, bias *float32, groups int, panels int, floor float32)",
		fmt.Sprintf("%s is the loop of Linear.Compute for groups of %d units. The lists contain indices of b. n is the length", "linear"+g.suffix, g.units),
		"of x. panels is the number of groups of 16 states, at most 3. groups and panels are at least 1. floor is 0 for",
		"ReLU, otherwise -Inf.")
}

// update generates update<suffix>, which implements Sums.Continue for one vector.
func (g *generator) update() {
	g.linearLoop("update"+g.suffix, "func(b *float32, out *uint32, x *uint32, rows *uint32, n int, w *float32, bias *float32, groups int, panels int, floor float32)",
		fmt.Sprintf("%s is the loop of linear%s, except that the weights of input k are at w[rows[k]], unit by unit.", "update"+g.suffix, g.suffix))
}

// linearLoop generates linear or, if the signature has rows, update.
func (g *generator) linearLoop(name, signature string, doc ...string) {
	build.TEXT(name, build.NOSPLIT, signature)
	build.Doc(doc...)
	build.Pragma("noescape")
	listed := strings.Contains(signature, "rows")
	for panels := g.panels; panels > 0; panels-- {
		if panels > 1 {
			build.CMPQ(stack("panels"), operand.Imm(uint64(panels)))
			build.JL(operand.LabelRef(fmt.Sprintf("panels%d", panels-1)))
		} else if g.panels == 1 {
			build.Label("panel")
		}
		g.linearPanels(panels, listed)
		if panels == 1 && g.panels == 1 {
			build.ADDQ(operand.U32(panelBytes), stack("b"))
			build.DECQ(stack("panels"))
			build.JNZ(operand.LabelRef("panel"))
		}
		build.VZEROUPPER()
		build.RET()
		if panels > 1 {
			build.Label(fmt.Sprintf("panels%d", panels-1))
		}
	}
}

// linearPanels generates the loops of linear or, if listed is set, update, for the given
// number of panels.
func (g *generator) linearPanels(panels int, listed bool) {
	id, width := fmt.Sprint(panels), panels*g.perPanel()
	b, out, w, bias, groups := argument("b"), argument("out"), argument("w"), argument("bias"), argument("groups")
	floor := g.vector()
	build.VBROADCASTSS(stack("floor"), floor)
	build.Label("group" + id)
	sum := g.vectors(g.units * width)
	for u := range g.units {
		build.VBROADCASTSS(operand.Mem{Base: bias, Disp: 4 * u}, sum[u*width])
		for v := 1; v < width; v++ {
			build.VMOVAPS(sum[u*width], sum[u*width+v])
		}
	}
	list, n, k := argument("x"), argument("n"), build.GP64()
	build.TESTQ(n, n)
	build.JZ(operand.LabelRef("store" + id))
	build.LEAQ(operand.Mem{Base: list, Index: n, Scale: 4}, list)
	weights := operand.Mem{Base: w}
	var rows, row reg.GPVirtual
	if listed {
		rows, row = argument("rows"), build.GP64()
		build.LEAQ(operand.Mem{Base: rows, Index: n, Scale: 4}, rows)
		weights.Index, weights.Scale = row, 4
	}
	build.NEGQ(n)
	build.Label("k" + id)
	build.MOVL(operand.Mem{Base: list, Index: n, Scale: 4}, k.As32())
	if listed {
		build.MOVL(operand.Mem{Base: rows, Index: n, Scale: 4}, row.As32())
	}
	x := g.vectors(width)
	for v := range x {
		build.VMOVUPS(operand.Mem{Base: b, Index: k, Scale: 4, Disp: v * g.bytes}, x[v])
	}
	for u := range g.units {
		weight, from := g.vector(), weights
		from.Disp = 4 * u
		build.VBROADCASTSS(from, weight)
		for v := range x {
			build.VFMADD231PS(weight, x[v], sum[u*width+v])
		}
	}
	if !listed {
		build.ADDQ(operand.Imm(uint64(4*g.units)), w)
	}
	build.INCQ(n)
	build.JNZ(operand.LabelRef("k" + id))
	build.Label("store" + id)
	for u := range g.units {
		build.MOVL(operand.Mem{Base: out, Disp: 4 * u}, k.As32())
		for v := range width {
			a := sum[u*width+v]
			build.VMAXPS(a, floor, a) // max returns a if either operand is NaN
			build.VMOVUPS(a, operand.Mem{Base: b, Index: k, Scale: 4, Disp: v * g.bytes})
		}
	}
	if listed {
		build.ADDQ(operand.Imm(uint64(4*g.units)), w)
	}
	build.ADDQ(operand.Imm(uint64(4*g.units)), out)
	build.ADDQ(operand.Imm(uint64(4*g.units)), bias)
	build.DECQ(groups)
	build.JNZ(operand.LabelRef("group" + id))
}
