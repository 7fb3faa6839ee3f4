package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vector generates the functions of package vector. They have no multiply-adds, because the
// definitions in Go round products too.
func vector() {
	vectorSplit()
	vectorChanges()
	vectorComplement()
	vectorGather()
	vectorContributions()
	vectorColumns()
	vectorAddOthers()
	vectorRound()
	vectorScores()
	vectorLargest()
	vectorTotal()
	vectorShare()
	vectorAddRow()
	vectorAddTerms()
}

// begin begins a function of package vector.
func begin(name, signature string, doc ...string) {
	build.TEXT(name+"AVX512", build.NOSPLIT, signature)
	build.Doc(append([]string{name + "AVX512 " + doc[0]}, doc[1:]...)...)
	build.Pragma("noescape")
}

func end() {
	build.VZEROUPPER()
	build.RET()
}

// each generates a loop over n elements, of which body computes some lanes at once. k has a bit for
// each of these lanes that has an element, and i is the index of the first.
func each(id string, n reg.GPVirtual, lanes int, body func(k reg.OpmaskVirtual, i reg.GPVirtual)) {
	i, left, ones, k := build.GP64(), build.GP64(), build.GP64(), build.K()
	build.XORQ(i, i)
	build.Label("loop" + id)
	build.MOVQ(n, left)
	build.SUBQ(i, left)
	build.MOVQ(operand.U32(1<<lanes-1), ones)
	build.CMPQ(left, operand.U32(lanes))
	build.JGE(operand.LabelRef("whole" + id))
	build.BZHIQ(left, ones, ones)
	build.Label("whole" + id)
	build.KMOVW(ones.As32(), k)
	body(k, i)
	build.ADDQ(operand.U32(lanes), i)
	build.CMPQ(i, n)
	build.JL(operand.LabelRef("loop" + id))
}

// at returns the address of element i of an array.
func at(base, i reg.GPVirtual, size uint8) operand.Mem {
	return operand.Mem{Base: base, Index: i, Scale: size}
}

// coins loads the bits i to i+lanes of an array of bits. i is a multiple of lanes.
func coins(base, i reg.GPVirtual, lanes int) reg.OpmaskVirtual {
	byte, k := build.GP64(), build.K()
	build.MOVQ(i, byte)
	build.SHRQ(operand.Imm(3), byte)
	if lanes == 16 {
		build.KMOVW(operand.Mem{Base: base, Index: byte, Scale: 1}, k)
	} else {
		build.KMOVB(operand.Mem{Base: base, Index: byte, Scale: 1}, k)
	}
	return k
}

// words returns a constant in memory of 8 lanes that are v.
func words(name string, v uint64) operand.Mem {
	if m, ok := constants[name]; ok {
		return m
	}
	m := build.GLOBL(name, attr.RODATA|attr.NOPTR)
	for i := range 8 {
		build.DATA(8*i, operand.U64(v))
	}
	constants[name] = m
	return m
}

// held loads a constant into a new register.
func held(name string, v uint64) reg.VecVirtual {
	z := build.ZMM()
	build.VMOVDQU64(words(name, v), z)
	return z
}

// empty returns a new register of zeros.
func empty() reg.VecVirtual {
	z := build.ZMM()
	build.VPXORQ(z, z, z)
	return z
}

// broadcast returns a new register with 8 copies of a number in memory.
func broadcast(m operand.Mem) reg.VecVirtual {
	z := build.ZMM()
	build.VBROADCASTSD(m, z)
	return z
}

// double loads float32 numbers as float64.
func double(m operand.Mem, k reg.OpmaskVirtual) reg.VecVirtual {
	z := build.ZMM()
	build.VCVTPS2PD_Z(m, k, z)
	return z
}

func vectorSplit() {
	begin("split", "func(present *float32, absent *float32, baseline *float32, entries *float32, in *uint64, n int)", "implements Split.")
	present, absent, baseline, entries, in := argument("present"), argument("absent"), argument("baseline"), argument("entries"), argument("in")
	each("", argument("n"), 16, func(k reg.OpmaskVirtual, i reg.GPVirtual) {
		b, e, p, a := build.ZMM(), build.ZMM(), build.ZMM(), build.ZMM()
		bit := coins(in, i, 16)
		build.VMOVUPS_Z(at(baseline, i, 4), k, b)
		build.VMOVUPS_Z(at(entries, i, 4), k, e)
		build.VBLENDMPS(e, b, bit, p)
		build.VBLENDMPS(b, e, bit, a)
		build.VMOVUPS(p, k, at(present, i, 4))
		build.VMOVUPS(a, k, at(absent, i, 4))
	})
	end()
}

func vectorChanges() {
	begin("changes", "func(change *float32, opposite *float32, a *float32, b *float32, n int)", "implements Changes.")
	change, opposite, a, b := argument("change"), argument("opposite"), argument("a"), argument("b")
	sign := build.ZMM()
	build.VMOVDQU64(words("signs32", 1<<63|1<<31), sign)
	each("", argument("n"), 16, func(k reg.OpmaskVirtual, i reg.GPVirtual) {
		x, y := build.ZMM(), build.ZMM()
		build.VMOVUPS_Z(at(a, i, 4), k, x)
		build.VMOVUPS_Z(at(b, i, 4), k, y)
		build.VSUBPS(x, y, y)
		build.VMOVUPS(y, k, at(change, i, 4))
		build.VPXORD(sign, y, y)
		build.VMOVUPS(y, k, at(opposite, i, 4))
	})
	end()
}

func vectorComplement() {
	begin("complement", "func(dst *float32, whole *float32, baseline *float32, part *float32, n int)", "implements Complement.")
	dst, whole, baseline, part := argument("dst"), argument("whole"), argument("baseline"), argument("part")
	each("", argument("n"), 16, func(k reg.OpmaskVirtual, i reg.GPVirtual) {
		w, b, p := build.ZMM(), build.ZMM(), build.ZMM()
		build.VMOVUPS_Z(at(whole, i, 4), k, w)
		build.VMOVUPS_Z(at(baseline, i, 4), k, b)
		build.VMOVUPS_Z(at(part, i, 4), k, p)
		build.VADDPS(b, w, w)
		build.VSUBPS(p, w, w)
		build.VMOVUPS(w, k, at(dst, i, 4))
	})
	end()
}

func vectorGather() {
	begin("gather", "func(dst *float32, table *float32, d int, rows *int32, n int)", "implements Gather. n and d are at least 1.")
	dst, table, d, rows, n := argument("dst"), argument("table"), argument("d"), argument("rows"), argument("n")
	bytes := build.GP64()
	build.MOVQ(d, bytes)
	build.SHLQ(operand.Imm(2), bytes)
	build.Label("row")
	from := build.GP64()
	build.MOVL(operand.Mem{Base: rows}, from.As32())
	build.IMULQ(bytes, from)
	build.ADDQ(table, from)
	each("", d, 16, func(k reg.OpmaskVirtual, i reg.GPVirtual) {
		v := build.ZMM()
		build.VMOVUPS_Z(at(from, i, 4), k, v)
		build.VMOVUPS(v, k, at(dst, i, 4))
	})
	build.ADDQ(bytes, dst)
	build.ADDQ(operand.Imm(4), rows)
	build.DECQ(n)
	build.JNZ(operand.LabelRef("row"))
	end()
}

func vectorContributions() {
	begin("contributions", "func(t *float64, lossA *[6]float64, lossB *[6]float64, slopeA *float32, slopeB *float32, bendA *float32, bendB *float32, in *uint64, baseline *float32, entries *float32, n int, limit float64, far *uint64) (any uint64)",
		"implements Contributions. limit is squared. far is zeros before the call.")
	var a, b [6]reg.VecVirtual
	lossA, lossB := argument("lossA"), argument("lossB")
	for j := range a {
		a[j], b[j] = broadcast(operand.Mem{Base: lossA, Disp: 8 * j}), broadcast(operand.Mem{Base: lossB, Disp: 8 * j})
	}
	limit, half := broadcast(stack("limit")), held("halves", math.Float64bits(.5))
	sign := held("signs64", 1<<63)
	sign32 := build.YMM()
	build.VMOVDQU32(words("signs32", 1<<63|1<<31), sign32)
	slopeA, slopeB, bendA, bendB := argument("slopeA"), argument("slopeB"), argument("bendA"), argument("bendB")
	in, baseline, entries, far, t := argument("in"), argument("baseline"), argument("entries"), argument("far"), argument("t")
	seen := build.GP64()
	build.XORQ(seen, seen)
	each("", argument("n"), 8, func(k reg.OpmaskVirtual, i reg.GPVirtual) {
		bit, out := coins(in, i, 8), build.K()
		build.KNOTB(bit, out)
		delta := double(at(entries, i, 4), k)
		build.VSUBPD(double(at(baseline, i, 4), k), delta, delta)
		move := func(slope, bend reg.GPVirtual, present reg.OpmaskVirtual) (u, square reg.VecVirtual) {
			u, square = double(at(slope, i, 4), k), build.ZMM()
			kink, wide := build.YMM(), build.ZMM()
			build.VMOVUPS_Z(at(bend, i, 4), k, kink)
			build.VPXORD(sign32, kink, present, kink)
			build.VCVTPS2PD(kink, wide)
			build.VMULPD(delta, u, u)
			build.VADDPD(wide, u, u)
			build.VMULPD(u, u, square)
			return u, square
		}
		u, x := move(slopeA, bendA, bit)
		v, y := move(slopeB, bendB, out)
		// The bits of players beyond the limit. Comparisons with NaN are false.
		near, also, lost, where := build.K(), build.K(), build.GP64(), build.GP64()
		build.VCMPPD(operand.Imm(lessEqual), limit, x, near)
		build.VCMPPD(operand.Imm(lessEqual), limit, y, also)
		build.KANDB(near, also, near)
		build.KANDNB(k, near, near)
		build.KMOVB(near, lost.As32())
		build.MOVQ(i, where)
		build.SHRQ(operand.Imm(3), where)
		build.MOVB(lost.As8(), operand.Mem{Base: far, Index: where, Scale: 1})
		build.ORQ(lost, seen)
		// value evaluates s*(c0 + q*(c1 + q*c2)).
		value := func(s, q, c0, c1, c2 reg.VecVirtual) reg.VecVirtual {
			r := build.ZMM()
			build.VMULPD(c2, q, r)
			build.VADDPD(c1, r, r)
			build.VMULPD(q, r, r)
			build.VADDPD(c0, r, r)
			build.VMULPD(s, r, r)
			return r
		}
		odd := value(u, x, a[0], a[2], a[4])
		build.VADDPD(value(v, y, b[0], b[2], b[4]), odd, odd)
		even := value(x, x, a[1], a[3], a[5])
		build.VSUBPD(value(y, y, b[1], b[3], b[5]), even, even)
		build.VPXORQ(sign, even, out, even)
		build.VSUBPD(odd, even, even)
		build.VMULPD(half, even, even)
		build.VMOVUPD(even, k, at(t, i, 8))
	})
	build.Store(seen, build.ReturnIndex(0))
	end()
}

func vectorColumns() {
	begin("columns", "func(sum *float64, square *float64, x *float32, d int, rows int)", "implements Columns. d and rows are at least 1.")
	sum, square, x, d := argument("sum"), argument("square"), argument("x"), argument("d")
	stride := build.GP64()
	build.MOVQ(d, stride)
	build.SHLQ(operand.Imm(2), stride)
	each("", d, 8, func(k reg.OpmaskVirtual, i reg.GPVirtual) {
		sums, squares := empty(), empty()
		p, rows := build.GP64(), argument("rows")
		build.LEAQ(at(x, i, 4), p)
		build.Label("row")
		e := double(operand.Mem{Base: p}, k)
		build.VADDPD(e, sums, sums)
		build.VMULPD(e, e, e)
		build.VADDPD(e, squares, squares)
		build.ADDQ(stride, p)
		build.DECQ(rows)
		build.JNZ(operand.LabelRef("row"))
		build.VMOVUPD(sums, k, at(sum, i, 8))
		build.VMOVUPD(squares, k, at(square, i, 8))
	})
	end()
}

func vectorAddOthers() {
	begin("addOthers", "func(slope *float32, x *float32, sum *float64, d int, rows int)", "implements AddOthers. d and rows are at least 1.")
	slope, x, sum, d := argument("slope"), argument("x"), argument("sum"), argument("d")
	stride := build.GP64()
	build.MOVQ(d, stride)
	build.SHLQ(operand.Imm(2), stride)
	each("", d, 8, func(k reg.OpmaskVirtual, i reg.GPVirtual) {
		total := build.ZMM()
		build.VMOVUPD_Z(at(sum, i, 8), k, total)
		p, q, rows := build.GP64(), build.GP64(), argument("rows")
		build.LEAQ(at(x, i, 4), p)
		build.LEAQ(at(slope, i, 4), q)
		build.Label("row")
		e, s, narrow := double(operand.Mem{Base: p}, k), double(operand.Mem{Base: q}, k), build.YMM()
		build.VSUBPD(e, total, e)
		build.VADDPD(e, s, s)
		build.VCVTPD2PS(s, narrow)
		build.VMOVUPS(narrow, k, operand.Mem{Base: q})
		build.ADDQ(stride, p)
		build.ADDQ(stride, q)
		build.DECQ(rows)
		build.JNZ(operand.LabelRef("row"))
	})
	end()
}

func vectorRound() {
	begin("round", "func(dst *int64, x *float64, n int, limit float64) (beyond uint64)", "implements Round. beyond is not 0 if a number exceeds the limit.")
	dst, x := argument("dst"), argument("x")
	limit, size := broadcast(stack("limit")), held("magnitudes64", 1<<63-1)
	beyond := build.GP64()
	build.XORQ(beyond, beyond)
	each("", argument("n"), 8, func(k reg.OpmaskVirtual, i reg.GPVirtual) {
		v, m, within, bits := build.ZMM(), build.ZMM(), build.K(), build.GP64()
		build.VMOVUPD_Z(at(x, i, 8), k, v)
		build.VPANDQ(size, v, m)
		build.VCMPPD(operand.Imm(lessEqual), limit, m, within)
		build.KANDNB(k, within, within)
		build.KMOVB(within, bits.As32())
		build.ORQ(bits, beyond)
		build.VCVTPD2QQ(v, v)
		build.VMOVDQU64(v, k, at(dst, i, 8))
	})
	build.Store(beyond, build.ReturnIndex(0))
	end()
}

func vectorScores() {
	begin("scores", "func(score *float64, entries *float32, baseline *float32, weight *float64, n int, sums *[8]float64)", "is the loop of Scores.")
	score, entries, baseline, weight := argument("score"), argument("entries"), argument("baseline"), argument("weight")
	total := empty()
	each("", argument("n"), 8, func(k reg.OpmaskVirtual, i reg.GPVirtual) {
		delta, w := double(at(entries, i, 4), k), build.ZMM()
		build.VSUBPD(double(at(baseline, i, 4), k), delta, delta)
		build.VMULPD(delta, delta, delta)
		build.VMOVUPD_Z(at(weight, i, 8), k, w)
		build.VMULPD(w, delta, delta)
		build.VMOVUPD(delta, k, at(score, i, 8))
		build.VADDPD(delta, total, k, total)
	})
	build.VMOVUPD(total, operand.Mem{Base: argument("sums")})
	end()
}

func vectorLargest() {
	begin("largest", "func(x *float64, n int, most *[8]float64, index *[8]int64)", "finds the first of the largest numbers above 0 in each lane. most and index are 0 if no number is above 0.")
	x := argument("x")
	most, index, current, step := empty(), empty(), build.ZMM(), held("eights", 8)
	m := build.GLOBL("indices", attr.RODATA|attr.NOPTR)
	for i := range 8 {
		build.DATA(8*i, operand.U64(uint64(i)))
	}
	build.VMOVDQU64(m, current)
	each("", argument("n"), 8, func(k reg.OpmaskVirtual, i reg.GPVirtual) {
		v, above := build.ZMM(), build.K()
		build.VMOVUPD_Z(at(x, i, 8), k, v)
		build.VCMPPD(operand.Imm(greater), most, v, above)
		build.VMOVUPD(v, above, most)
		build.VMOVDQU64(current, above, index)
		build.VPADDQ(step, current, current)
	})
	build.VMOVUPD(most, operand.Mem{Base: argument("most")})
	build.VMOVDQU64(index, operand.Mem{Base: argument("index")})
	end()
}

// reduce leaves the sum of the lanes of v in r, or what else combine does.
func reduce(v reg.VecVirtual, combine func(a, b, dst operand.Op), r reg.GPVirtual) {
	t := build.ZMM()
	build.VSHUFI64X2(operand.Imm(0x4e), v, v, t)
	combine(t, v, v)
	build.VSHUFI64X2(operand.Imm(0xb1), v, v, t)
	combine(t, v, v)
	build.VPERMILPD(operand.Imm(0x55), v, t)
	combine(t, v, v)
	build.MOVQ(v.AsX(), r)
}

func addLanes(a, b, dst operand.Op) { build.VPADDQ(a, b, dst) }
func orLanes(a, b, dst operand.Op)  { build.VPORQ(a, b, dst) }

func vectorTotal() {
	begin("total", "func(x *int64, n int) (total int64, zeros uint64)", "implements Total. zeros is not 0 if an element is 0.")
	x, total, zeros := argument("x"), empty(), build.GP64()
	build.XORQ(zeros, zeros)
	each("", argument("n"), 8, func(k reg.OpmaskVirtual, i reg.GPVirtual) {
		v, zero, bits := build.ZMM(), build.K(), build.GP64()
		build.VMOVDQU64_Z(at(x, i, 8), k, v)
		build.VPADDQ(v, total, total)
		build.VPTESTNMQ(v, v, k, zero)
		build.KMOVB(zero, bits.As32())
		build.ORQ(bits, zeros)
	})
	sum := build.GP64()
	reduce(total, addLanes, sum)
	build.Store(sum, build.ReturnIndex(0))
	build.Store(zeros, build.ReturnIndex(1))
	end()
}

func vectorShare() {
	begin("share", "func(sum *int64, score *float64, n int, rate float64) (added int64)", "implements Share.")
	sum, score, rate, added := argument("sum"), argument("score"), broadcast(stack("rate")), empty()
	each("", argument("n"), 8, func(k reg.OpmaskVirtual, i reg.GPVirtual) {
		v, s := build.ZMM(), build.ZMM()
		build.VMOVUPD_Z(at(score, i, 8), k, v)
		build.VMULPD(rate, v, v)
		build.VCVTPD2QQ_Z(v, k, v)
		build.VPADDQ(v, added, added)
		build.VMOVDQU64_Z(at(sum, i, 8), k, s)
		build.VPADDQ(v, s, s)
		build.VMOVDQU64(s, k, at(sum, i, 8))
	})
	r := build.GP64()
	reduce(added, addLanes, r)
	build.Store(r, build.ReturnIndex(0))
	end()
}

func vectorAddRow() {
	begin("addRow", "func(cells *int64, at *int32, features int, record int, d int, x *int64, scale float64, unit float64, limit int64) (total int64, signs int64, beyond uint64)",
		"implements AddRow. record is in bytes. signs is negative if a sum overflowed. beyond is not 0 if",
		"a magnitude exceeds the limit. features and d are at least 1.")
	positions, features, d, x := argument("at"), argument("features"), argument("d"), argument("x")
	scale, unit, half := broadcast(stack("scale")), broadcast(stack("unit")), held("halves", math.Float64bits(.5))
	limit := build.ZMM()
	build.VPBROADCASTQ(stack("limit"), limit)
	total, signs, beyond := empty(), empty(), build.GP64()
	build.XORQ(beyond, beyond)
	bytes := build.GP64()
	build.MOVQ(d, bytes)
	build.SHLQ(operand.Imm(3), bytes)
	build.Label("feature")
	sums, magnitudes, squares := build.GP64(), build.GP64(), build.GP64()
	build.MOVL(operand.Mem{Base: positions}, sums.As32())
	build.IMULQ(stack("record"), sums)
	build.ADDQ(stack("cells"), sums)
	build.LEAQ(operand.Mem{Base: sums, Index: bytes, Scale: 1}, magnitudes)
	build.LEAQ(operand.Mem{Base: sums, Index: bytes, Scale: 2}, squares)
	each("", d, 8, func(k reg.OpmaskVirtual, i reg.GPVirtual) {
		v, before, sum, size, old := build.ZMM(), build.ZMM(), build.ZMM(), build.ZMM(), build.ZMM()
		build.VMOVDQU64_Z(at(x, i, 8), k, v)
		build.VPADDQ(v, total, total)
		build.VMOVDQU64_Z(at(sums, i, 8), k, before)
		build.VPADDQ(v, before, sum)
		build.VMOVDQU64(sum, k, at(sums, i, 8))
		// An addition overflows if both operands have the other sign than the sum.
		build.VPXORQ(sum, before, before)
		build.VPXORQ(sum, v, sum)
		build.VPANDQ(sum, before, before)
		build.VPORQ(before, signs, signs)
		large, bits := build.K(), build.GP64()
		build.VPABSQ(v, size)
		build.VPCMPUQ(operand.Imm(6), limit, size, large) // 6: above
		build.KMOVB(large, bits.As32())
		build.ORQ(bits, beyond)
		build.VMOVDQU64_Z(at(magnitudes, i, 8), k, old)
		build.VPADDQ(size, old, old)
		build.VPORQ(old, signs, signs)
		build.VMOVDQU64(old, k, at(magnitudes, i, 8))
		square, squared := build.ZMM(), build.ZMM()
		build.VCVTQQ2PD(v, square)
		build.VMULPD(scale, square, square)
		build.VMULPD(square, square, square)
		build.VMULPD(unit, square, square)
		build.VADDPD(half, square, square)
		build.VCVTTPD2QQ(square, square)
		build.VMOVDQU64_Z(at(squares, i, 8), k, squared)
		build.VPADDQ(square, squared, squared)
		build.VPORQ(squared, signs, signs)
		build.VMOVDQU64(squared, k, at(squares, i, 8))
	})
	build.ADDQ(bytes, x)
	build.ADDQ(operand.Imm(4), positions)
	build.DECQ(features)
	build.JNZ(operand.LabelRef("feature"))
	r, s := build.GP64(), build.GP64()
	reduce(total, addLanes, r)
	reduce(signs, orLanes, s)
	build.Store(r, build.ReturnIndex(0))
	build.Store(s, build.ReturnIndex(1))
	build.Store(beyond, build.ReturnIndex(2))
	end()
}

func vectorAddTerms() {
	begin("addTerms", "func(cells *int64, at *int32, features int, record int, d int, v *float64, factor float64, second float64, mostFirst float64, mostSecond float64) (signs int64, broken uint64)",
		"implements AddTerms. record is in bytes. signs is negative if a sum overflowed. broken is not 0 if",
		"a number is not finite. features and d are at least 1.")
	positions, features, d, v := argument("at"), argument("features"), argument("d"), argument("v")
	first, second := broadcast(stack("factor")), broadcast(stack("second"))
	mostFirst, mostSecond := broadcast(stack("mostFirst")), broadcast(stack("mostSecond"))
	signs, finite, zero, leastFirst := empty(), empty(), empty(), build.ZMM()
	build.VSUBPD(mostFirst, zero, leastFirst)
	bytes := build.GP64()
	build.MOVQ(d, bytes)
	build.SHLQ(operand.Imm(3), bytes)
	build.Label("feature")
	firsts, seconds := build.GP64(), build.GP64()
	build.MOVL(operand.Mem{Base: positions}, firsts.As32())
	build.IMULQ(stack("record"), firsts)
	build.ADDQ(stack("cells"), firsts)
	build.LEAQ(operand.Mem{Base: firsts, Index: bytes, Scale: 1}, seconds)
	each("", d, 8, func(k reg.OpmaskVirtual, i reg.GPVirtual) {
		change, x, y, before, sum := build.ZMM(), build.ZMM(), build.ZMM(), build.ZMM(), build.ZMM()
		build.VMOVUPD_Z(at(v, i, 8), k, change)
		build.VMULPD(zero, change, x)
		build.VADDPD(x, finite, finite)
		build.VMULPD(first, change, x)
		build.VMINPD(mostFirst, x, x)
		build.VMAXPD(leastFirst, x, x)
		build.VCVTPD2QQ_Z(x, k, x)
		build.VMULPD(second, change, y)
		build.VMULPD(change, y, y)
		build.VMINPD(mostSecond, y, y)
		build.VCVTPD2QQ_Z(y, k, y)
		build.VMOVDQU64_Z(at(firsts, i, 8), k, before)
		build.VPADDQ(x, before, sum)
		build.VMOVDQU64(sum, k, at(firsts, i, 8))
		// An addition overflows if both operands have the other sign than the sum.
		build.VPXORQ(sum, before, before)
		build.VPXORQ(sum, x, sum)
		build.VPANDQ(sum, before, before)
		build.VPORQ(before, signs, signs)
		build.VMOVDQU64_Z(at(seconds, i, 8), k, before)
		build.VPADDQ(y, before, before)
		build.VPORQ(before, signs, signs)
		build.VMOVDQU64(before, k, at(seconds, i, 8))
	})
	build.ADDQ(bytes, v)
	build.ADDQ(operand.Imm(4), positions)
	build.DECQ(features)
	build.JNZ(operand.LabelRef("feature"))
	broken, bits, s := build.K(), build.GP64(), build.GP64()
	build.VCMPPD(operand.Imm(3), finite, finite, broken) // 3: unordered
	build.KMOVB(broken, bits.As32())
	reduce(signs, orLanes, s)
	build.Store(s, build.ReturnIndex(0))
	build.Store(bits, build.ReturnIndex(1))
	end()
}
