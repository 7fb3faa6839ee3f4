package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// panelBytes is the size of one row of a panel: 16 columns of packed weights, one cache
// line.
const panelBytes = 64

// layerShape is the shape of a layer function.
type layerShape struct {
	rows   int
	panels []int // numbers of panels that the function computes at once, the largest first; the last is 1
}

// generator holds what differs between instruction sets.
type generator struct {
	suffix string
	layers []layerShape
	panels int // panels that a product function computes at once; remaining panels are computed one by one
	chunk  int // panels that steps computes at once
	ahead  int // number of list elements that a layer function prefetches ahead, at most kernel.listAhead
	bytes  int // bytes of a vector
	vector func() reg.VecVirtual
	zero   func(v reg.VecVirtual)
	or     func(a, b, dst reg.VecVirtual)
	and    func(a, b, dst reg.VecVirtual)
	// clear clears the bits of v that are set in mask. round rounds to the nearest
	// integer, ties to even. flush sets the lanes of v that are below tiny in magnitude
	// to +0.
	clear func(mask, v reg.VecVirtual)
	round func(v, dst reg.VecVirtual)
	flush func(v, magnitude reg.VecVirtual, tiny operand.Op)
	units int      // number of units that a product function computes at once
	tiles [][2]int // rows and columns of the tiles of pairs functions
	sums  int      // number of outputs that a dots function computes at once
	// bits sets one low bit of dst for each lane of v that is not 0. NaN is not 0.
	bits func(v, zero reg.VecVirtual, dst reg.GPVirtual)
}

func (g *generator) vectors(n int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, n)
	for i := range v {
		v[i] = g.vector()
	}
	return v
}

// perPanel returns the number of vectors in 16 columns.
func (g *generator) perPanel() int { return panelBytes / g.bytes }

func avx512() generator {
	return generator{
		suffix: "AVX512", layers: []layerShape{{3, []int{8, 4, 1}}, {4, []int{3, 1}}, {8, []int{3, 1}}}, panels: 3, chunk: 4, ahead: 12, bytes: 64,
		vector: func() reg.VecVirtual { return build.ZMM() },
		zero:   func(v reg.VecVirtual) { build.VPXORD(v, v, v) },
		or:     func(a, b, dst reg.VecVirtual) { build.VPORD(a, b, dst) },
		and:    func(a, b, dst reg.VecVirtual) { build.VPANDD(a, b, dst) },
		units:  8, tiles: [][2]int{{5, 5}, {3, 8}, {1, 8}}, sums: 12,
		clear: func(mask, v reg.VecVirtual) { build.VPANDND(v, mask, v) },
		round: func(v, dst reg.VecVirtual) { build.VRNDSCALEPS(operand.Imm(8), v, dst) },
		flush: func(v, magnitude reg.VecVirtual, tiny operand.Op) {
			t, k := build.ZMM(), build.K()
			build.VPANDD(v, magnitude, t)
			build.VCMPPS(operand.Imm(5), tiny, t, k) // 5: not less than, or unordered
			build.VMOVAPS_Z(v, k, v)
		},
		bits: func(v, zero reg.VecVirtual, dst reg.GPVirtual) {
			k := build.K()
			build.VCMPPS(operand.Imm(4), zero, v, k) // 4: not equal, or unordered
			build.KMOVW(k, dst.As32())
		},
	}
}

func avx2() generator {
	return generator{
		suffix: "AVX2", layers: []layerShape{{3, []int{1}}, {6, []int{1}}}, panels: 1, chunk: 2, bytes: 32,
		vector: func() reg.VecVirtual { return build.YMM() },
		zero:   func(v reg.VecVirtual) { build.VXORPS(v, v, v) },
		or:     func(a, b, dst reg.VecVirtual) { build.VORPS(a, b, dst) },
		and:    func(a, b, dst reg.VecVirtual) { build.VANDPS(a, b, dst) },
		units:  6, tiles: [][2]int{{3, 4}, {1, 8}}, sums: 8,
		clear: func(mask, v reg.VecVirtual) { build.VANDNPS(v, mask, v) },
		round: func(v, dst reg.VecVirtual) { build.VROUNDPS(operand.Imm(8), v, dst) },
		flush: func(v, magnitude reg.VecVirtual, tiny operand.Op) {
			t := build.YMM()
			build.VANDPS(v, magnitude, t)
			build.VCMPPS(operand.Imm(5), tiny, t, t) // 5: not less than, or unordered
			build.VANDPS(t, v, v)
		},
		bits: func(v, zero reg.VecVirtual, dst reg.GPVirtual) {
			t := build.YMM()
			build.VCMPPS(operand.Imm(4), zero, v, t)
			build.VMOVMSKPS(t, dst.As32())
		},
	}
}

// argument loads a parameter into a new register.
func argument(name string) reg.GPVirtual {
	r := build.GP64()
	build.Load(build.Param(name), r)
	return r
}

// stack returns the memory that holds a parameter. A function may use it as a local
// variable.
func stack(name string) operand.Mem {
	b, err := build.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// rowsFrom holds a stride and its odd multiples. With them the addressing modes reach
// every row of a tile, and the loop needs no address arithmetic.
type rowsFrom struct{ odd map[int]reg.GPVirtual }

func newRowsFrom(stride reg.GPVirtual, rows int) rowsFrom {
	r := rowsFrom{map[int]reg.GPVirtual{1: stride}}
	for m := 3; m < rows; m += 2 {
		next := build.GP64()
		build.LEAQ(operand.Mem{Base: prev(r, m-2), Index: stride, Scale: 2}, next)
		r.odd[m] = next
	}
	return r
}

func prev(r rowsFrom, m int) reg.Register { return r.odd[m] }

// at returns the address of row t of the tile that begins at base.
func (r rowsFrom) at(base reg.Register, t int) operand.Mem {
	if t == 0 {
		return operand.Mem{Base: base}
	}
	odd, scale := t, uint8(1)
	for odd%2 == 0 {
		odd, scale = odd/2, scale*2
	}
	return operand.Mem{Base: base, Index: r.odd[odd], Scale: scale}
}

// layer generates layer<rows><suffix>, which implements kernel.level.layer.
func (g *generator) layer(shape layerShape) {
	rows := shape.rows
	name := fmt.Sprintf("layer%d%s", rows, g.suffix)
	build.TEXT(name, build.NOSPLIT, "func(out *float32, outStride int, in *float32, inStride int, w *float32, panelStride int, bias *float32, list *int32, n int, panels int, floor float32, mask *uint64, maskByte int)")
	build.Doc(name+" is the loop of Matrix.Layer for "+fmt.Sprint(rows)+" rows of a tile. Strides are in bytes.",
		"n is the length of list. floor is 0 for ReLU, otherwise -Inf. mask may be nil; if it is not,",
		"maskByte is the index of the byte in which the first panel's bits begin.")
	build.Pragma("noescape")
	at := argument("maskByte")
	build.CMPQ(stack("mask"), operand.Imm(0))
	build.JE(operand.LabelRef("begin"))
	build.ADDQ(at, stack("mask"))
	build.Label("begin")
	in := argument("in")
	strides := newRowsFrom(argument("inStride"), rows)
	w := argument("w")
	for i, panels := range shape.panels {
		next := "done"
		if i+1 < len(shape.panels) {
			next = fmt.Sprintf("panel%d", shape.panels[i+1])
		}
		this := fmt.Sprintf("panel%d", panels)
		build.Label(this)
		build.CMPQ(stack("panels"), operand.Imm(uint64(panels)))
		build.JL(operand.LabelRef(next))
		g.layerPanels(rows, panels, in, strides, w)
		build.JMP(operand.LabelRef(this))
	}
	build.Label("done")
	build.VZEROUPPER()
	build.RET()
}

// layerPanels computes one group of panels and advances to the next.
func (g *generator) layerPanels(rows, panels int, in reg.GPVirtual, strides rowsFrom, w reg.GPVirtual) {
	id := fmt.Sprint(panels)
	width := panels * g.perPanel() // number of vectors
	base := []reg.GPVirtual{w}     // address of each panel
	for p := 1; p < panels; p++ {
		next := build.GP64()
		build.MOVQ(base[p-1], next)
		build.ADDQ(stack("panelStride"), next)
		base = append(base, next)
	}
	weight := func(v int, off reg.Register) operand.Mem {
		return operand.Mem{Base: base[v/g.perPanel()], Index: off, Scale: 1, Disp: v % g.perPanel() * g.bytes}
	}

	// The accumulators start at the bias.
	acc := g.vectors(rows * width)
	bias := build.GP64()
	build.MOVQ(stack("bias"), bias)
	for v := range width {
		build.VMOVUPS(operand.Mem{Base: bias, Disp: v * g.bytes}, acc[v])
		for t := 1; t < rows; t++ {
			build.VMOVAPS(acc[v], acc[t*width+v])
		}
	}
	build.ADDQ(operand.U32(panels*panelBytes), bias)
	build.MOVQ(bias, stack("bias"))

	list, n := build.GP64(), build.GP64()
	build.MOVQ(stack("list"), list)
	build.MOVQ(stack("n"), n)
	build.TESTQ(n, n)
	build.JZ(operand.LabelRef("store" + id))
	build.LEAQ(operand.Mem{Base: list, Index: n, Scale: 4}, list)
	build.NEGQ(n)
	build.Label("k" + id)
	k, p := build.GP64(), build.GP64()
	build.MOVL(operand.Mem{Base: list, Index: n, Scale: 4}, k.As32())
	build.LEAQ(operand.Mem{Base: in, Index: k, Scale: 4}, p)
	build.SHLQ(operand.Imm(6), k)
	prefetch := func() {
		if g.ahead == 0 {
			return
		}
		// The hardware cannot predict the jumps of a list. Past the end of the list this
		// reads unused capacity and prefetches an arbitrary address, which is harmless.
		build.MOVL(operand.Mem{Base: list, Index: n, Scale: 4, Disp: 4 * g.ahead}, k.As32())
		build.SHLQ(operand.Imm(6), k)
		for v := 0; v < width; v += g.perPanel() {
			build.PREFETCHT0(weight(v, k))
		}
	}
	// The registers hold what the loop loads fewer of: the weights or the rows' inputs.
	if width < rows {
		weights := g.vectors(width)
		for v := range weights {
			build.VMOVUPS(weight(v, k), weights[v])
		}
		prefetch()
		for t := range rows {
			x := g.vector()
			build.VBROADCASTSS(strides.at(p, t), x)
			for v := range weights {
				build.VFMADD231PS(x, weights[v], acc[t*width+v])
			}
		}
	} else {
		x := g.vectors(rows)
		for t := range rows {
			build.VBROADCASTSS(strides.at(p, t), x[t])
		}
		for v := range width {
			w := g.vector()
			build.VMOVUPS(weight(v, k), w)
			for t := range rows {
				build.VFMADD231PS(x[t], w, acc[t*width+v])
			}
		}
		prefetch()
	}
	build.INCQ(n)
	build.JNZ(operand.LabelRef("k" + id))

	build.Label("store" + id)
	floor := g.vector()
	build.VBROADCASTSS(stack("floor"), floor)
	out, stride := build.GP64(), build.GP64()
	build.MOVQ(stack("out"), out)
	build.MOVQ(stack("outStride"), stride)
	next := build.GP64()
	build.LEAQ(operand.Mem{Base: out, Disp: panels * panelBytes}, next)
	build.MOVQ(next, stack("out"))
	for t := range rows {
		for v := range width {
			a := acc[t*width+v]
			build.VMAXPS(a, floor, a) // max returns a if either operand is NaN
			build.VMOVUPS(a, operand.Mem{Base: out, Disp: v * g.bytes})
			if t > 0 {
				g.or(acc[v], a, acc[v])
			}
		}
		if t < rows-1 {
			build.ADDQ(stride, out)
		}
	}
	g.orMask(acc[:width], id)
	for range panels {
		build.ADDQ(stack("panelStride"), w)
	}
	build.SUBQ(operand.U32(panels), stack("panels"))
}

// orMask sets a bit of the mask for each lane that is not 0, and advances the mask. It
// does nothing if the mask is nil.
func (g *generator) orMask(v []reg.VecVirtual, id string) {
	mask := build.GP64()
	build.MOVQ(stack("mask"), mask)
	build.TESTQ(mask, mask)
	build.JZ(operand.LabelRef("masked" + id))
	zero := g.vector()
	g.zero(zero)
	lanes := g.bytes / 4
	for i := 0; i < len(v); i++ {
		bits := build.GP64()
		g.bits(v[i], zero, bits)
		if lanes == 16 {
			build.ORW(bits.As16(), operand.Mem{Base: mask, Disp: i * 2})
		} else {
			build.ORB(bits.As8L(), operand.Mem{Base: mask, Disp: i})
		}
	}
	build.ADDQ(operand.U32(len(v)*lanes/8), mask)
	build.MOVQ(mask, stack("mask"))
	build.Label("masked" + id)
}

// steps generates steps<suffix>, which implements kernel.level.steps.
func (g *generator) steps() {
	name := "steps" + g.suffix
	build.TEXT(name, build.NOSPLIT, "func(out *float32, outStride int, pre *float32, w *float32, wStride int, rows *int32, a *float32, n int, panels int, floor float32, mask *uint64)")
	build.Doc(name+" is the loop of RowMatrix.Steps. Strides are in bytes. n is the number of steps, at least 1.",
		"floor is 0 for ReLU, otherwise -Inf. mask may be nil.")
	build.Pragma("noescape")
	for _, panels := range []int{g.chunk, 1} {
		id := fmt.Sprint(panels)
		next := "panels1"
		if panels == 1 {
			next = "done"
		}
		build.Label("panels" + id)
		build.CMPQ(stack("panels"), operand.U32(panels))
		build.JL(operand.LabelRef(next))
		g.stepsPanels(panels, id)
		build.JMP(operand.LabelRef("panels" + id))
	}
	build.Label("done")
	build.VZEROUPPER()
	build.RET()
}

func (g *generator) stepsPanels(panels int, id string) {
	width := panels * g.perPanel()
	out, outStride := argument("out"), argument("outStride")
	w, wStride := argument("w"), argument("wStride")
	rows, a := argument("rows"), argument("a")
	pre, n := argument("pre"), argument("n")
	floor := g.vector()
	build.VBROADCASTSS(stack("floor"), floor)
	acc, seen := g.vectors(width), g.vectors(width)
	for v := range width {
		build.VMOVUPS(operand.Mem{Base: pre, Disp: v * g.bytes}, acc[v])
		g.zero(seen[v])
	}
	i := build.GP64()
	build.XORQ(i, i)
	build.Label("step" + id)
	row := build.GP64()
	build.MOVL(operand.Mem{Base: rows, Index: i, Scale: 4}, row.As32())
	build.IMULQ(wStride, row)
	x := g.vector()
	build.VBROADCASTSS(operand.Mem{Base: a, Index: i, Scale: 4}, x)
	for v := range width {
		build.VFMADD231PS(operand.Mem{Base: w, Index: row, Scale: 1, Disp: v * g.bytes}, x, acc[v])
	}
	for v := range width {
		h := g.vector()
		build.VMAXPS(acc[v], floor, h)
		build.VMOVUPS(h, operand.Mem{Base: out, Disp: v * g.bytes})
		g.or(seen[v], h, seen[v])
	}
	build.ADDQ(outStride, out)
	build.INCQ(i)
	build.CMPQ(i, n)
	build.JL(operand.LabelRef("step" + id))
	for v := range width {
		build.VMOVUPS(acc[v], operand.Mem{Base: pre, Disp: v * g.bytes})
	}
	g.orMask(seen, "s"+id)
	for _, name := range []string{"out", "pre", "w"} {
		build.ADDQ(operand.U32(panels*panelBytes), stack(name))
	}
	build.SUBQ(operand.U32(panels), stack("panels"))
}
