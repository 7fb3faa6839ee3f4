package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

// dot generates dot<suffix>, which implements kernel.level.dot.
func (g *generator) dot() {
	name := "dot" + g.suffix
	build.TEXT(name, build.NOSPLIT, "func(dst *[16]float32, x *float32, w *float32, panels int)")
	build.Doc(name + " sets dst[c] to the sum over all panels of x*w in column c. panels is at least 1.")
	build.Pragma("noescape")
	x, w, n := argument("x"), argument("w"), argument("panels")
	acc := g.vectors(2 * g.perPanel()) // even panels, odd panels
	for _, v := range acc {
		g.zero(v)
	}
	add := func(panel int) {
		for v := range g.perPanel() {
			disp := panel*panelBytes + v*g.bytes
			t := g.vector()
			build.VMOVUPS(operand.Mem{Base: x, Disp: disp}, t)
			build.VFMADD231PS(operand.Mem{Base: w, Disp: disp}, t, acc[panel*g.perPanel()+v])
		}
	}
	build.Label("pair")
	build.CMPQ(n, operand.Imm(2))
	build.JL(operand.LabelRef("single"))
	add(0)
	add(1)
	build.ADDQ(operand.U32(2*panelBytes), x)
	build.ADDQ(operand.U32(2*panelBytes), w)
	build.SUBQ(operand.Imm(2), n)
	build.JMP(operand.LabelRef("pair"))
	build.Label("single")
	build.TESTQ(n, n)
	build.JZ(operand.LabelRef("sum"))
	add(0)
	build.Label("sum")
	dst := argument("dst")
	for v := range g.perPanel() {
		build.VADDPS(acc[v], acc[g.perPanel()+v], acc[v])
		build.VMOVUPS(acc[v], operand.Mem{Base: dst, Disp: v * g.bytes})
	}
	build.VZEROUPPER()
	build.RET()
}

// gate generates gate<suffix>, which sets dst to v where x is above 0 or NaN, elsewhere to 0.
func (g *generator) gate() {
	name := "gate" + g.suffix
	build.TEXT(name, build.NOSPLIT, "func(dst *float32, x *float32, v *float32, panels int)")
	build.Doc(name + " sets dst to v where x is above 0 or NaN, and to 0 elsewhere. panels is at least 1.")
	build.Pragma("noescape")
	dst, x, v, n := argument("dst"), argument("x"), argument("v"), argument("panels")
	zero, from := g.cleared(), build.GP64()
	build.XORQ(from, from)
	build.Label("panel")
	for part := 0; part < panelBytes; part += g.bytes {
		a, b := g.vector(), g.vector()
		build.VMOVUPS(operand.Mem{Base: x, Index: from, Scale: 1, Disp: part}, a)
		build.VMOVUPS(operand.Mem{Base: v, Index: from, Scale: 1, Disp: part}, b)
		g.keep(notLessOrEqual, a, zero, b)
		build.VMOVUPS(b, operand.Mem{Base: dst, Index: from, Scale: 1, Disp: part})
	}
	build.ADDQ(operand.U32(panelBytes), from)
	build.DECQ(n)
	build.JNZ(operand.LabelRef("panel"))
	build.VZEROUPPER()
	build.RET()
}

// notLessOrEqual is the predicate of VCMPPS that is true if a > b or either is NaN.
const notLessOrEqual = 0x16

// prefetch generates prefetch<suffix>, which prefetches each cache line of some rows.
func (g *generator) prefetch() {
	name := "prefetch" + g.suffix
	build.TEXT(name, build.NOSPLIT, "func(w *float32, wStride int, rows *int32, n int)")
	build.Doc(name + " prefetches n rows of wStride bytes into the second-level cache. n and wStride are above 0.")
	build.Pragma("noescape")
	w, stride, rows, n := argument("w"), argument("wStride"), argument("rows"), argument("n")
	build.LEAQ(operand.Mem{Base: rows, Index: n, Scale: 4}, rows)
	build.NEGQ(n)
	build.Label("row")
	p, end := build.GP64(), build.GP64()
	build.MOVL(operand.Mem{Base: rows, Index: n, Scale: 4}, p.As32())
	build.IMULQ(stride, p)
	build.ADDQ(w, p)
	build.LEAQ(operand.Mem{Base: p, Index: stride, Scale: 1}, end)
	build.Label("line")
	build.PREFETCHT1(operand.Mem{Base: p})
	build.ADDQ(operand.U32(panelBytes), p)
	build.CMPQ(p, end)
	build.JL(operand.LabelRef("line"))
	build.INCQ(n)
	build.JNZ(operand.LabelRef("row"))
	build.RET()
}

// list generates listAVX512, which converts 16 columns of a mask at a time with a
// compress instruction.
func (g *generator) list() {
	build.TEXT("listAVX512", build.NOSPLIT, "func(dst *int32, mask *uint64, words int) int")
	build.Doc("listAVX512 writes the columns whose bit is set, in ascending order, and returns their number. dst needs",
		"room for 64*words+16 elements; the function overwrites some of them beyond those it returns.")
	build.Pragma("noescape")
	dst, mask, words := argument("dst"), argument("mask"), argument("words")
	column, step := build.ZMM(), build.ZMM()
	build.VMOVDQU32(numbers("columns", func(i int) uint32 { return uint32(i) }), column)
	build.VMOVDQU32(numbers("sixteen", func(int) uint32 { return 16 }), step)
	begin := build.GP64()
	build.MOVQ(dst, begin)
	build.SHLQ(operand.Imm(2), words) // the loop takes 16 bits at a time
	build.Label("group")
	bits, packed, k := build.GP64(), build.ZMM(), build.K()
	build.MOVWLZX(operand.Mem{Base: mask}, bits.As32())
	build.KMOVW(bits.As32(), k)
	build.VPCOMPRESSD_Z(column, k, packed)
	build.VMOVDQU32(packed, operand.Mem{Base: dst})
	build.POPCNTL(bits.As32(), bits.As32())
	build.LEAQ(operand.Mem{Base: dst, Index: bits, Scale: 4}, dst)
	build.VPADDD(step, column, column)
	build.ADDQ(operand.Imm(2), mask)
	build.DECQ(words)
	build.JNZ(operand.LabelRef("group"))
	build.SUBQ(begin, dst)
	build.SHRQ(operand.Imm(2), dst)
	build.Store(dst, build.ReturnIndex(0))
	build.VZEROUPPER()
	build.RET()
}

// expand generates expandAVX512. One instruction spreads the values of a part over the
// lanes of its mask. It reads only as many values as the mask has bits.
func (g *generator) expand() {
	build.TEXT("expandAVX512", build.NOSPLIT, "func(x *float32, values *byte, part *int, n int)")
	build.Doc("expandAVX512 expands n parts. n is at least 1. part points to the field To of the first part.")
	build.Pragma("noescape")
	x, values, part, n := argument("x"), argument("values"), argument("part"), argument("n")
	build.Label("part")
	to, from, mask, k, z := build.GP64(), build.GP64(), build.GP64(), build.K(), build.ZMM()
	build.MOVQ(operand.Mem{Base: part}, to)
	build.MOVQ(operand.Mem{Base: part, Disp: 8}, from)
	build.MOVWLZX(operand.Mem{Base: part, Disp: 16}, mask.As32())
	build.KMOVW(mask.As32(), k)
	build.VEXPANDPS_Z(operand.Mem{Base: values, Index: from, Scale: 4}, k, z)
	build.VMOVUPS(z, k, operand.Mem{Base: x, Index: to, Scale: 4})
	build.ADDQ(operand.Imm(24), part)
	build.DECQ(n)
	build.JNZ(operand.LabelRef("part"))
	build.VZEROUPPER()
	build.RET()
}

// unpack generates unpackAVX512. It takes the number of each lane from two neighbours of the
// 32-bit words at the part's first byte, and spreads the values as expand does.
func (g *generator) unpack() {
	build.TEXT("unpackAVX512", build.NOSPLIT, "func(x *float32, packed *byte, part *int, n int)")
	build.Doc("unpackAVX512 unpacks n parts. n is at least 1. part points to the field To of the first part. The function",
		"reads 32 bytes of packed for each part.")
	build.Pragma("noescape")
	x, packed, part, n := argument("x"), argument("packed"), argument("part"), argument("n")
	offsets := build.GLOBL("offsets", attr.RODATA|attr.NOPTR) // first bits of the lanes, for 0 to 8 bits per lane
	for size := range 9 {
		for lane := range 16 {
			build.DATA(4*(16*size+lane), operand.U32(size*lane))
		}
	}
	masks := build.GLOBL("masks", attr.RODATA|attr.NOPTR)
	for size := range 9 {
		build.DATA(4*size, operand.U32(1<<size-1))
	}
	lanes, most := build.GP64(), build.GP64()
	build.LEAQ(offsets, lanes)
	build.LEAQ(masks, most)
	one, low := build.ZMM(), build.ZMM()
	build.VMOVDQU32(numbers("ones", func(int) uint32 { return 1 }), one)
	build.VMOVDQU32(numbers("words", func(int) uint32 { return 32 }), low)
	build.Label("part")
	to, bit, mask, size, rest, row := build.GP64(), build.GP64(), build.GP64(), build.GP64(), build.GP64(), build.GP64()
	build.MOVQ(operand.Mem{Base: part}, to)
	build.MOVQ(operand.Mem{Base: part, Disp: 8}, bit)
	build.MOVWLZX(operand.Mem{Base: part, Disp: 16}, mask.As32())
	build.MOVWLZX(operand.Mem{Base: part, Disp: 18}, size.As32())
	k, words := build.K(), build.ZMM()
	build.KMOVW(mask.As32(), k)
	build.MOVL(bit.As32(), rest.As32())
	build.ANDL(operand.Imm(7), rest.As32())
	build.SHRQ(operand.Imm(3), bit)
	build.VMOVDQU(operand.Mem{Base: packed, Index: bit, Scale: 1}, words.AsY())
	build.MOVQ(size, row)
	build.SHLQ(operand.Imm(6), row)
	first, word, number, next := build.ZMM(), build.ZMM(), build.ZMM(), build.ZMM()
	build.VPBROADCASTD(rest.As32(), first)
	build.VPADDD(operand.Mem{Base: lanes, Index: row, Scale: 1}, first, first)
	build.VPSRLD(operand.Imm(5), first, word)
	build.VPERMD(words, word, number)
	build.VPADDD(one, word, word)
	build.VPERMD(words, word, next)
	shift := build.ZMM()
	build.VPSLLD(operand.Imm(27), first, first)
	build.VPSRLD(operand.Imm(27), first, first) // first%32
	build.VPSUBD(first, low, shift)
	build.VPSRLVD(first, number, number)
	build.VPSLLVD(shift, next, next) // a shift by 32 gives 0
	build.VPORD(next, number, number)
	build.VPANDD_BCST(operand.Mem{Base: most, Index: size, Scale: 4}, number, number)
	build.VCVTDQ2PS(number, number)
	build.VMULPS_BCST(operand.Mem{Base: part, Disp: 24}, number, number)
	build.VADDPS_BCST(operand.Mem{Base: part, Disp: 20}, number, number)
	build.VEXPANDPS_Z(number, k, number)
	build.VMOVUPS(number, k, operand.Mem{Base: x, Index: to, Scale: 4})
	build.ADDQ(operand.Imm(32), part)
	build.DECQ(n)
	build.JNZ(operand.LabelRef("part"))
	build.VZEROUPPER()
	build.RET()
}

// numbers returns a constant of 16 lanes.
func numbers(name string, lane func(i int) uint32) operand.Mem {
	m := build.GLOBL(name, attr.RODATA|attr.NOPTR)
	for i := range 16 {
		build.DATA(4*i, operand.U32(lane(i)))
	}
	return m
}

// fma generates fma<suffix>, which runs at the processor's peak, for benchmarks.
func (g *generator) fma() {
	name := "fma" + g.suffix
	build.TEXT(name, build.NOSPLIT, "func(n int)")
	build.Doc(name + fmt.Sprintf(" performs n times %d independent multiply-adds in registers.", fmaVectors*g.bytes/4))
	n := argument("n")
	x, y := g.vector(), g.vector()
	g.zero(x)
	g.zero(y)
	acc := g.vectors(fmaVectors)
	for _, v := range acc {
		g.zero(v)
	}
	build.Label("loop")
	for _, v := range acc {
		build.VFMADD231PS(x, y, v)
	}
	build.DECQ(n)
	build.JG(operand.LabelRef("loop"))
	build.VZEROUPPER()
	build.RET()
}

// fmaVectors is the number of accumulators in fma. It exceeds latency times the number of
// FMA units.
const fmaVectors = 12
