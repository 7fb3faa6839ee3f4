package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// kinkVectors is the number of vectors of inputs that kinks keeps in registers.
const kinkVectors = 4

// kinkBytes is the size of a group of inputs, kernel.kinkInputs float32.
const kinkBytes = 4 * panelBytes

// kinks generates kinks<suffix>, which implements kernel.level.kinks.
func (g *generator) kinks() {
	name := "kinks" + g.suffix
	build.TEXT(name, build.NOSPLIT, "func(dst *float32, change *float32, w *float32, off *int32, offs int, on *int32, ons int, pre *float32, slope *float32)")
	build.Doc(name+" is the loop of Kinks.Terms for one group of inputs and one row. offs and ons are the",
		"lengths of off and on.")
	build.Pragma("noescape")
	dst, change, w, pre, slope := argument("dst"), argument("change"), argument("w"), argument("pre"), argument("slope")
	for part := 0; part < kinkBytes; part += kinkVectors * g.bytes {
		u, acc, zero := g.vectors(kinkVectors), g.vectors(kinkVectors), g.vector()
		g.zero(zero)
		for v := range u {
			build.VMOVUPS(operand.Mem{Base: change, Disp: part + v*g.bytes}, u[v])
			g.zero(acc[v])
		}
		for _, list := range []string{"off", "on"} {
			id := fmt.Sprint(list, part)
			units, n := argument(list), argument(list+"s")
			build.TESTQ(n, n)
			build.JZ(operand.LabelRef("done" + id))
			build.LEAQ(operand.Mem{Base: units, Index: n, Scale: 4}, units)
			build.NEGQ(n)
			build.Label(id)
			h := build.GP64()
			build.MOVL(operand.Mem{Base: units, Index: n, Scale: 4}, h.As32())
			p, s := g.vector(), g.vector()
			build.VBROADCASTSS(operand.Mem{Base: pre, Index: h, Scale: 4}, p)
			build.VBROADCASTSS(operand.Mem{Base: slope, Index: h, Scale: 4}, s)
			build.SHLQ(operand.Imm(8), h) // kinkBytes
			x := g.vectors(kinkVectors)
			for v := range x {
				build.VMOVUPS(operand.Mem{Base: w, Index: h, Scale: 1, Disp: part + v*g.bytes}, x[v])
				build.VFMADD213PS(p, u[v], x[v])
			}
			for v := range x {
				g.bend(list, x[v], zero, s, acc[v])
			}
			build.INCQ(n)
			build.JNZ(operand.LabelRef(id))
			build.Label("done" + id)
		}
		for v := range acc {
			build.VMOVUPS(acc[v], operand.Mem{Base: dst, Disp: part + v*g.bytes})
		}
	}
	build.VZEROUPPER()
	build.RET()
}

// bend adds s * max(0, x) to acc, or subtracts s * min(0, x) for the units of list on.
func (g *generator) bend(list string, x, zero, s, acc reg.VecVirtual) {
	if list == "off" {
		build.VMAXPS(zero, x, x)
		build.VFMADD231PS(s, x, acc)
	} else {
		build.VMINPS(zero, x, x)
		build.VFNMADD231PS(s, x, acc)
	}
}

// reached generates reachedAVX512, which implements kernel.level.reached with compress
// instructions.
func (g *generator) reached() {
	build.TEXT("reachedAVX512", build.NOSPLIT, "func(off *int32, on *int32, pre *float32, reach *float32, change *float32, panels int) (offs int, ons int)")
	build.Doc("reachedAVX512 finds the units for kinksAVX512. panels is the number of groups of 16 units, at",
		"least 1. off and on need room for 16 elements more than units.")
	build.Pragma("noescape")
	off, on, pre, reach, change, panels := argument("off"), argument("on"), argument("pre"), argument("reach"), argument("change"), argument("panels")
	magnitude, limit, t, zero := build.ZMM(), build.ZMM(), build.ZMM(), build.ZMM()
	build.VMOVDQU32(numbers("magnitudes", func(int) uint32 { return 1<<31 - 1 }), magnitude)
	build.VPXORD(zero, zero, zero)
	build.VPANDD(operand.Mem{Base: change}, magnitude, limit)
	for v := 1; v < 4; v++ {
		build.VPANDD(operand.Mem{Base: change, Disp: v * panelBytes}, magnitude, t)
		build.VMAXPS(t, limit, limit)
	}
	// Rotations by 8, 4, 2 and 1 lanes leave the largest value in every lane.
	build.VSHUFF32X4(operand.Imm(0x4e), limit, limit, t)
	build.VMAXPS(t, limit, limit)
	build.VSHUFF32X4(operand.Imm(0xb1), limit, limit, t)
	build.VMAXPS(t, limit, limit)
	build.VPERMILPS(operand.Imm(0x4e), limit, t)
	build.VMAXPS(t, limit, limit)
	build.VPERMILPS(operand.Imm(0xb1), limit, t)
	build.VMAXPS(t, limit, limit)
	unit, step := build.ZMM(), build.ZMM()
	build.VMOVDQU32(numbers("units", func(i int) uint32 { return uint32(i) }), unit)
	build.VMOVDQU32(numbers("perGroup", func(int) uint32 { return 16 }), step)
	beginOff, beginOn := build.GP64(), build.GP64()
	build.MOVQ(off, beginOff)
	build.MOVQ(on, beginOn)
	build.Label("group")
	p, size, far := build.ZMM(), build.ZMM(), build.ZMM()
	near, above, below := build.K(), build.K(), build.K()
	build.VMOVUPS(operand.Mem{Base: pre}, p)
	build.VPANDD(p, magnitude, size)
	build.VMULPS(operand.Mem{Base: reach}, limit, far)
	build.VCMPPS(operand.Imm(1), far, size, near) // 1: less than
	build.VCMPPS(operand.Imm(1), p, zero, above)
	build.KANDNW(near, above, below)
	build.KANDW(near, above, above)
	for _, list := range []struct {
		to   reg.GPVirtual
		mask reg.OpmaskVirtual
	}{{off, below}, {on, above}} {
		packed, n := build.ZMM(), build.GP64()
		build.VPCOMPRESSD_Z(unit, list.mask, packed)
		build.VMOVDQU32(packed, operand.Mem{Base: list.to})
		build.KMOVW(list.mask, n.As32())
		build.POPCNTL(n.As32(), n.As32())
		build.LEAQ(operand.Mem{Base: list.to, Index: n, Scale: 4}, list.to)
	}
	build.VPADDD(step, unit, unit)
	build.ADDQ(operand.U32(panelBytes), pre)
	build.ADDQ(operand.U32(panelBytes), reach)
	build.DECQ(panels)
	build.JNZ(operand.LabelRef("group"))
	build.SUBQ(beginOff, off)
	build.SHRQ(operand.Imm(2), off)
	build.SUBQ(beginOn, on)
	build.SHRQ(operand.Imm(2), on)
	build.Store(off, build.ReturnIndex(0))
	build.Store(on, build.ReturnIndex(1))
	build.VZEROUPPER()
	build.RET()
}
