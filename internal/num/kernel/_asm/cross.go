package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// stateBytes is the size of one element of a Block: kernel.States float32, three panels.
const stateBytes = 3 * panelBytes

// timesState multiplies a register by stateBytes.
func timesState(k reg.GPVirtual) {
	build.LEAQ(operand.Mem{Base: k, Index: k, Scale: 2}, k)
	build.SHLQ(operand.Imm(6), k)
}

// product generates product<units><suffix>, which implements kernel.level.product.
func (g *generator) product(units int) {
	name := fmt.Sprintf("product%d%s", units, g.suffix)
	build.TEXT(name, build.NOSPLIT, "func(out *float32, in *float32, w *float32, wStride int, bias *float32, units *int32, list *int32, n int, panels int, floor float32, next *[8]*float32)")
	build.Doc(fmt.Sprintf("%s is the loop of Outputs.Product for %d units. wStride is in bytes. n is the length", name, units),
		"of list. panels is the number of groups of 16 states, at most 3. floor is 0 for ReLU, otherwise",
		"-Inf. next points to the weights of the following units, as a hint for prefetching.")
	build.Pragma("noescape")
	numbers, stride, w := argument("units"), argument("wStride"), argument("w")
	row := make([]reg.GPVirtual, units) // weights of each unit
	for t := range row {
		row[t] = build.GP64()
		build.MOVLQSX(operand.Mem{Base: numbers, Disp: 4 * t}, row[t])
		build.IMULQ(stride, row[t])
		build.ADDQ(w, row[t])
	}
	in := argument("in")
	for p := g.panels; p >= 1; p-- {
		build.Label(fmt.Sprintf("panels%d", p))
		build.CMPQ(stack("panels"), operand.Imm(uint64(p)))
		if p > 1 {
			build.JL(operand.LabelRef(fmt.Sprintf("panels%d", p-1)))
		} else {
			build.JL(operand.LabelRef("done"))
		}
		g.productPanels(p, row, in)
		if p > 1 {
			build.JMP(operand.LabelRef("done"))
		} else if g.panels == 1 {
			build.ADDQ(operand.U32(panelBytes), in)
			build.ADDQ(operand.U32(panelBytes), stack("out"))
			build.DECQ(stack("panels"))
			build.JMP(operand.LabelRef("panels1"))
		}
	}
	build.Label("done")
	build.VZEROUPPER()
	build.RET()
}

// productPanels computes the given number of panels of states.
func (g *generator) productPanels(panels int, row []reg.GPVirtual, in reg.GPVirtual) {
	id := fmt.Sprint(panels)
	width := panels * g.perPanel()
	acc := g.vectors(len(row) * width)
	{
		bias, numbers, unit := argument("bias"), argument("units"), build.GP64()
		for t := range row {
			build.MOVLQSX(operand.Mem{Base: numbers, Disp: 4 * t}, unit)
			build.VBROADCASTSS(operand.Mem{Base: bias, Index: unit, Scale: 4}, acc[t*width])
			for v := 1; v < width; v++ {
				build.VMOVAPS(acc[t*width], acc[t*width+v])
			}
		}
	}
	list, n := argument("list"), argument("n")
	build.TESTQ(n, n)
	build.JZ(operand.LabelRef("store" + id))
	build.LEAQ(operand.Mem{Base: list, Index: n, Scale: 4}, list)
	build.NEGQ(n)
	var next reg.GPVirtual
	if g.ahead > 0 {
		next = argument("next")
	}
	build.Label("k" + id)
	k, at := build.GP64(), build.GP64()
	build.MOVL(operand.Mem{Base: list, Index: n, Scale: 4}, k.As32())
	build.LEAQ(operand.Mem{Base: k, Index: k, Scale: 2}, at)
	build.SHLQ(operand.Imm(6), at)
	x := g.vectors(width)
	for v := range x {
		build.VMOVUPS(operand.Mem{Base: in, Index: at, Scale: 1, Disp: v * g.bytes}, x[v])
	}
	if g.ahead > 0 {
		build.MOVL(operand.Mem{Base: list, Index: n, Scale: 4, Disp: 4 * g.ahead}, at.As32())
		timesState(at)
		for p := range panels {
			build.PREFETCHT0(operand.Mem{Base: in, Index: at, Scale: 1, Disp: p * panelBytes})
		}
		// The weights are read once per block, and the core's own cache does not hold
		// them. So each input prefetches a line of one of the next 8 units. A cache line
		// holds 16 weights; while 16 inputs pass, each of the 8 units is prefetched.
		build.MOVL(k.As32(), at.As32())
		build.SHRL(operand.Imm(1), at.As32())
		build.ANDL(operand.Imm(7), at.As32())
		build.MOVQ(operand.Mem{Base: next, Index: at, Scale: 8}, at)
		build.PREFETCHT1(operand.Mem{Base: at, Index: k, Scale: 4})
	}
	for t := range row {
		w := g.vector()
		build.VBROADCASTSS(operand.Mem{Base: row[t], Index: k, Scale: 4}, w)
		for v := range x {
			build.VFMADD231PS(w, x[v], acc[t*width+v])
		}
	}
	build.INCQ(n)
	build.JNZ(operand.LabelRef("k" + id))

	build.Label("store" + id)
	floor := g.vector()
	build.VBROADCASTSS(stack("floor"), floor)
	out, numbers, unit := argument("out"), argument("units"), build.GP64()
	for t := range row {
		build.MOVLQSX(operand.Mem{Base: numbers, Disp: 4 * t}, unit)
		timesState(unit)
		for v := range width {
			a := acc[t*width+v]
			build.VMAXPS(a, floor, a) // max returns a if either operand is NaN
			build.VMOVUPS(a, operand.Mem{Base: out, Index: unit, Scale: 1, Disp: v * g.bytes})
		}
	}
}

// cross generates cross<suffix>, which implements kernel.level.cross.
func (g *generator) cross() {
	name := "cross" + g.suffix
	build.TEXT(name, build.NOSPLIT, "func(out *float32, x *float32, x0 *float32, z *float32, list *int32, n int, panels int)")
	build.Doc(name+" is the loop of Cross. n is the length of list, and panels is the number of groups of 16 states.",
		"Both are at least 1.")
	build.Pragma("noescape")
	out, x, x0, z := argument("out"), argument("x"), argument("x0"), argument("z")
	list, n := argument("list"), argument("n")
	build.LEAQ(operand.Mem{Base: list, Index: n, Scale: 4}, list)
	build.NEGQ(n)
	build.Label("element")
	k := build.GP64()
	build.MOVL(operand.Mem{Base: list, Index: n, Scale: 4}, k.As32())
	timesState(k)
	panels := argument("panels")
	build.Label("panel")
	for v := range g.perPanel() {
		at := func(base reg.Register) operand.Mem {
			return operand.Mem{Base: base, Index: k, Scale: 1, Disp: v * g.bytes}
		}
		sum, factor := g.vector(), g.vector()
		build.VMOVUPS(at(x), sum)
		build.VMOVUPS(at(x0), factor)
		build.VFMADD231PS(at(z), factor, sum)
		build.VMOVUPS(sum, at(out))
	}
	build.ADDQ(operand.U32(panelBytes), k)
	build.DECQ(panels)
	build.JNZ(operand.LabelRef("panel"))
	build.INCQ(n)
	build.JNZ(operand.LabelRef("element"))
	build.VZEROUPPER()
	build.RET()
}

// constants holds the constants that everyLane has made, by name.
var constants = map[string]operand.Mem{}

// everyLane returns a constant of 16 equal lanes. All calls with a name must have the same
// bits.
func everyLane(name string, bits uint32) operand.Mem {
	if m, ok := constants[name]; ok {
		return m
	}
	m := build.GLOBL(name, attr.RODATA|attr.NOPTR)
	for i := range 16 {
		build.DATA(4*i, operand.U32(bits))
	}
	constants[name] = m
	return m
}

// tanh generates tanh<suffix>, which implements kernel.level.tanh. It has the same steps
// and constants as tanhPortable in package kernel.
func (g *generator) tanh() {
	name := "tanh" + g.suffix
	build.TEXT(name, build.NOSPLIT, "func(out *float32, in *float32, scale *float32, n int, panels int)")
	build.Doc(name+" is the loop of Tanh for n elements. panels is the number of groups of 16 states.",
		"Both are at least 1.")
	build.Pragma("noescape")
	out, in, scale, n := argument("out"), argument("in"), argument("scale"), argument("n")
	c := g.tanhConstants(g.bytes != 64)
	build.Label("element")
	offset, panels := build.GP64(), argument("panels")
	build.XORQ(offset, offset)
	build.Label("panel")
	for v := range g.perPanel() {
		at := func(base reg.Register) operand.Mem {
			return operand.Mem{Base: base, Index: offset, Scale: 1, Disp: v * g.bytes}
		}
		x := g.vector()
		build.VMOVUPS(at(in), x)
		s := g.hyperbolic(&c, x)
		build.VMULPS(at(scale), s, s)
		g.flush(s, c.magnitude, c.tiny)
		build.VMOVUPS(s, at(out))
	}
	build.ADDQ(operand.U32(panelBytes), offset)
	build.DECQ(panels)
	build.JNZ(operand.LabelRef("panel"))
	build.ADDQ(operand.U32(stateBytes), in)
	build.ADDQ(operand.U32(stateBytes), out)
	build.DECQ(n)
	build.JNZ(operand.LabelRef("element"))
	build.VZEROUPPER()
	build.RET()
}

// tanhConstants are the constants of hyperbolic.
type tanhConstants struct {
	tiny, log2e, high, low, two operand.Op
	limit, one, magnitude       reg.VecVirtual
	p                           []operand.Op
}

// tanhConstants loads the constants into registers. If few is true, it loads only those that
// hyperbolic cannot read from memory.
func (g *generator) tanhConstants(few bool) tanhConstants {
	constant := func(name string, v float64) reg.VecVirtual {
		return g.load(everyLane("tanh"+name, math.Float32bits(float32(v))))
	}
	memory := func(name string, v float64) operand.Op {
		if few {
			return everyLane("tanh"+name, math.Float32bits(float32(v)))
		}
		return constant(name, v)
	}
	var c tanhConstants
	c.tiny, c.limit = memory("Tiny", 1.0/(1<<60)), constant("Limit", 20)
	c.log2e, c.high, c.low = memory("Log2e", math.Log2E), memory("High", -0.693145751953125), memory("Low", -1.428606765330187e-06)
	c.p = []operand.Op{memory("P7", 1.9875691500e-4), memory("P6", 1.3981999507e-3), memory("P5", 8.3334519073e-3), memory("P4", 4.1665795894e-2), memory("P3", 1.6666665459e-1), memory("P2", 5.0000001201e-1)}
	c.one, c.two = constant("One", 1), memory("Two", 2)
	c.magnitude = g.load(everyLane("tanhMagnitude", 1<<31-1))
	return c
}

// hyperbolic returns tanh(x). It has the same steps and constants as hyperbolic in package
// kernel. It overwrites x.
func (g *generator) hyperbolic(c *tanhConstants, x reg.VecVirtual) reg.VecVirtual {
	y, e, r, q, s := g.vector(), g.vector(), g.vector(), g.vector(), g.vector()
	g.flush(x, c.magnitude, c.tiny)
	g.and(x, c.magnitude, y)
	build.VADDPS(y, y, y)
	build.VMINPS(y, c.limit, y) // min returns y if either operand is NaN
	build.VMULPS(c.log2e, y, e)
	g.round(e, e)
	build.VMOVAPS(y, r)
	build.VFMADD231PS(c.high, e, r)
	build.VFMADD231PS(c.low, e, r)
	build.VMOVUPS(c.p[0], q)
	for _, v := range c.p[1:] {
		build.VFMADD213PS(v, r, q)
	}
	build.VMULPS(r, r, s)
	build.VFMADD213PS(r, s, q) // q = q*r*r + r: exp(r)-1
	build.VCVTPS2DQ(e, e)
	build.VPSLLD(operand.Imm(23), e, e)
	build.VPADDD(c.one, e, e) // the bits of 2^e
	build.VSUBPS(c.one, e, s)
	build.VFMADD231PS(e, q, s) // exp(y)-1
	build.VADDPS(c.two, s, q)
	build.VDIVPS(q, s, s)
	g.clear(c.magnitude, x) // keep only the sign
	g.or(x, s, s)
	return s
}

// transpose generates transpose<suffix>, which works on squares of side*side elements.
// side is the number of lanes of a vector.
func (g *generator) transpose() {
	name := "transpose" + g.suffix
	side := g.bytes / 4
	build.TEXT(name, build.NOSPLIT, "func(out *float32, outStride int, in *float32, inStride int, n int)")
	build.Doc(fmt.Sprintf("%s transposes n squares of %d by %d elements. Each square begins %d columns to the right of", name, side, side, side),
		fmt.Sprintf("the previous one in in, and %d rows below it in out. Strides are in bytes.", side))
	build.Pragma("noescape")
	out, outStride, in, inStride, n := argument("out"), argument("outStride"), argument("in"), argument("inStride"), argument("n")
	build.Label("square")
	v := g.vectors(side)
	p := build.GP64()
	build.MOVQ(in, p)
	for i := range v {
		build.VMOVUPS(operand.Mem{Base: p}, v[i])
		if i < side-1 {
			build.ADDQ(inStride, p)
		}
	}
	v = g.exchange(v)
	for i := range v {
		build.VMOVUPS(v[i], operand.Mem{Base: out})
		build.ADDQ(outStride, out)
	}
	build.ADDQ(operand.U32(g.bytes), in)
	build.DECQ(n)
	build.JNZ(operand.LabelRef("square"))
	build.VZEROUPPER()
	build.RET()
}

// exchange transposes a square of registers.
func (g *generator) exchange(v []reg.VecVirtual) []reg.VecVirtual {
	side := len(v)
	pairs := g.vectors(side)
	for i := 0; i < side; i += 2 {
		build.VUNPCKLPS(v[i+1], v[i], pairs[i])
		build.VUNPCKHPS(v[i+1], v[i], pairs[i+1])
	}
	// In each 128-bit lane l, quads[i+c] holds column 4l+c of rows i to i+3.
	quads := g.vectors(side)
	for i := 0; i < side; i += 4 {
		build.VUNPCKLPD(pairs[i+2], pairs[i], quads[i])
		build.VUNPCKHPD(pairs[i+2], pairs[i], quads[i+1])
		build.VUNPCKLPD(pairs[i+3], pairs[i+1], quads[i+2])
		build.VUNPCKHPD(pairs[i+3], pairs[i+1], quads[i+3])
	}
	out := g.vectors(side)
	if side == 8 {
		for c := range 4 {
			build.VPERM2F128(operand.Imm(0x20), quads[4+c], quads[c], out[c])
			build.VPERM2F128(operand.Imm(0x31), quads[4+c], quads[c], out[4+c])
		}
		return out
	}
	for c := range 4 {
		a, b, x, y := g.vector(), g.vector(), g.vector(), g.vector()
		build.VSHUFF32X4(operand.Imm(0x88), quads[4+c], quads[c], a)    // lanes 0 and 2 of rows 0-7
		build.VSHUFF32X4(operand.Imm(0xdd), quads[4+c], quads[c], b)    // lanes 1 and 3 of rows 0-7
		build.VSHUFF32X4(operand.Imm(0x88), quads[12+c], quads[8+c], x) // the same for rows 8-15
		build.VSHUFF32X4(operand.Imm(0xdd), quads[12+c], quads[8+c], y)
		build.VSHUFF32X4(operand.Imm(0x88), x, a, out[c])
		build.VSHUFF32X4(operand.Imm(0x88), y, b, out[4+c])
		build.VSHUFF32X4(operand.Imm(0xdd), x, a, out[8+c])
		build.VSHUFF32X4(operand.Imm(0xdd), y, b, out[12+c])
	}
	return out
}

// set generates set<suffix>, which implements kernel.level.set.
func (g *generator) set() {
	name := "set" + g.suffix
	build.TEXT(name, build.NOSPLIT, "func(mask *uint64, in *float32, stride int, rows int, panels int)")
	build.Doc(name+" is the loop of Mask.Set for whole panels. The mask is all zeros before. rows and panels are at",
		"least 1.")
	build.Pragma("noescape")
	in, stride := argument("in"), argument("stride")
	build.Label("panel")
	p, n := build.GP64(), argument("rows")
	build.MOVQ(in, p)
	seen := g.vectors(g.perPanel())
	for _, v := range seen {
		g.zero(v)
	}
	build.Label("row")
	for i, v := range seen {
		x := g.vector()
		build.VMOVUPS(operand.Mem{Base: p, Disp: i * g.bytes}, x)
		g.or(x, v, v)
	}
	build.ADDQ(stride, p)
	build.DECQ(n)
	build.JNZ(operand.LabelRef("row"))
	g.orMask(seen, "")
	build.ADDQ(operand.U32(panelBytes), in)
	build.DECQ(stack("panels"))
	build.JNZ(operand.LabelRef("panel"))
	build.VZEROUPPER()
	build.RET()
}
