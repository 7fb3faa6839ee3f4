package main

import "fmt"

// neonUnits is the number of units that product, linear and update compute at once.
const neonUnits = 6

// neonAll generates the functions of level neon. They have the steps of those for AVX2, and give the
// same bits.
func neonAll(a *arm) {
	a.layer(6, []int{1})
	a.layer(3, []int{2, 1})
	a.pack(6)
	a.pack(3)
	a.steps()
	a.set16()
	a.dot()
	a.prefetch()
	a.product()
	a.cross()
	a.tanh()
	a.transpose()
	a.applyAll()
	a.combineAll()
	a.triples()
	a.reduceAll()
	a.softmax()
	for _, t := range [][2]int{{5, 5}, {3, 8}, {1, 8}} {
		a.pairs(t[0], t[1])
	}
	a.dots(12)
	a.linearLoop("linear", "func(b *float32, out *uint32, x *uint32, n int, w *float32, bias *float32, groups int, panels int, floor float32)",
		fmt.Sprintf("is the loop of Linear.Compute for groups of %d units. The lists contain indices of b. n is the length", neonUnits),
		"of x. panels is the number of groups of 16 states. groups and panels are at least 1. floor is 0 for ReLU,",
		"otherwise -Inf.")
	a.linearLoop("update", "func(b *float32, out *uint32, x *uint32, rows *uint32, n int, w *float32, bias *float32, groups int, panels int, floor float32)",
		"is the loop of linear, except that the weights of input k are at w[rows[k]], unit by unit.")
	a.kinks()
	a.gate()
	a.peak()
}

// packedBytes is the size of one input of a tile that pack has written.
func packedBytes(rows int) int { return (rows + 3) / 4 * vectorBytes }

// pack generates pack<rows>NEON, which copies the listed inputs of a tile for layer.
func (a *arm) pack(rows int) {
	name := fmt.Sprintf("pack%d", rows)
	a.function(name, "func(dst *float32, in *float32, inStride int, list *int32, n int)",
		fmt.Sprintf("copies the listed inputs of %d rows for layer%d%s, input by input. Each takes", rows, rows, a.suffix),
		fmt.Sprintf("%d bytes of dst. inStride is in bytes. n is the length of list, at least 1.", packedBytes(rows)))
	dst, in, stride, list, n := a.arg("dst"), a.arg("in"), a.arg("inStride"), a.arg("list"), a.arg("n")
	row := []gpr{in}
	for t := 1; t < rows; t++ {
		row = append(row, a.gp())
		a.op("ADD", stride, row[t-1], row[t])
	}
	k, x := a.gp(), make([]gpr, rows)
	for t := range x {
		x[t] = a.gp()
	}
	a.label("k")
	a.next(list, k)
	for t := range x {
		a.element(row[t], k, x[t])
	}
	for t := 0; t < rows; t += 2 {
		second := zr
		if t+1 < rows {
			second = x[t+1]
		}
		a.op("STPW", pair(x[t].String(), second.String()), at64(dst, 4*t))
	}
	a.op("ADD", packedBytes(rows), dst, dst)
	a.countDown(n, "k")
	a.ret()
}

// layer generates layer<rows>NEON, which implements kernel.level.layer for inputs from pack. widths
// are the numbers of panels that it computes at once, the largest first; the last is 1.
func (a *arm) layer(rows int, widths []int) {
	a.function(fmt.Sprintf("layer%d", rows), "func(out *float32, outStride int, x *float32, w *float32, panelStride int, bias *float32, list *int32, n int, panels int, floor float32, mask *uint64, maskByte int)",
		fmt.Sprintf("is the loop of Matrix.Layer for %d rows of a tile, whose inputs pack%d%s has copied to x.", rows, rows, a.suffix),
		"Strides are in bytes. n is the length of list. floor is 0 for ReLU, otherwise -Inf. mask may be nil; if",
		"it is not, maskByte is the index of the byte in which the first panel's bits begin.")
	a.constants()
	out, w, bias, panels, mask := a.arg("out"), a.arg("w"), a.arg("bias"), a.arg("panels"), a.arg("mask")
	outStride, panelStride := a.arg("outStride"), a.arg("panelStride")
	a.op("CBZ", mask, "begin")
	a.scope(func() { a.op("ADD", a.arg("maskByte"), mask, mask) })
	a.label("begin")
	for i, width := range widths {
		this, next := fmt.Sprintf("panel%d", width), "done"
		if i+1 < len(widths) {
			next = fmt.Sprintf("panel%d", widths[i+1])
		}
		a.label(this)
		a.op("CMP", width, panels)
		a.op("BLT", next)
		a.scope(func() { a.layerPanels(rows, width, out, outStride, w, panelStride, bias, mask) })
		a.op("SUB", width, panels, panels)
		a.op("B", this)
	}
	a.label("done")
	a.ret()
}

// layerPanels computes one group of panels and advances to the next.
func (a *arm) layerPanels(rows, panels int, out, outStride, w, panelStride, bias, mask gpr) {
	id, width := fmt.Sprint(panels), panels*perPanel
	acc := make([][]vec, rows) // by row
	for t := range acc {
		acc[t] = a.vectors(width)
	}
	a.load(bias, 0, acc[0]...)
	for t := 1; t < rows; t++ {
		for v := range width {
			a.move(acc[0][v], acc[t][v])
		}
	}
	a.op("ADD", panels*panelBytes, bias, bias)
	base := []gpr{w} // address of each panel
	for p := 1; p < panels; p++ {
		base = append(base, a.gp())
		a.op("ADD", panelStride, base[p-1], base[p])
	}
	a.scope(func() {
		x, list, n, k := a.arg("x"), a.arg("list"), a.arg("n"), a.gp()
		a.op("CBZ", n, "store"+id)
		a.label("k" + id)
		a.next(list, k)
		p := a.gp()
		inputs := a.vectors(packedBytes(rows) / vectorBytes)
		weights := a.vectors(perPanel)
		for i := range base {
			a.shifted(base[i], k, 6, p)
			a.load(p, 0, weights...)
			if i == 0 {
				if len(inputs) == 2 {
					a.op("FLDPQ.P", at64(x, 2*vectorBytes), pair(inputs[0].scalar(), inputs[1].scalar()))
				} else {
					a.op("FMOVQ.P", at64(x, vectorBytes), inputs[0].scalar())
				}
			}
			for t := range rows {
				for v, weight := range weights {
					a.fmaLane(weight, inputs[t/4], t%4, acc[t][i*perPanel+v])
				}
			}
		}
		a.countDown(n, "k"+id)
	})
	a.label("store" + id)
	a.scope(func() {
		floor, to := a.argVector("floor"), a.gp()
		a.op("MOVD", out, to)
		for t := range rows {
			for v := range width {
				a.max(acc[t][v], floor, acc[t][v])
			}
			a.store(to, 0, acc[t]...)
			if t > 0 {
				for v := range width {
					a.or(acc[0][v], acc[t][v], acc[0][v])
				}
			}
			if t < rows-1 {
				a.op("ADD", outStride, to, to)
			}
		}
	})
	a.op("ADD", panels*panelBytes, out, out)
	for t := 1; t < rows; t++ {
		a.free(acc[t]...)
	}
	a.orMask(mask, acc[0], id)
	for range panels {
		a.op("ADD", panelStride, w, w)
	}
}

// orMask sets a bit of the mask for each lane that is not 0, and advances the mask. It does nothing
// if the mask is nil. It overwrites v, which are whole panels.
func (a *arm) orMask(mask gpr, v []vec, id string) {
	a.op("CBZ", mask, "masked"+id)
	a.scope(func() {
		magnitude, bits, old := a.constant(1<<31-1), a.vectors(perPanel), a.gp()
		for i, b := range bits {
			a.setLanes([4]uint32{1 << (4 * i), 2 << (4 * i), 4 << (4 * i), 8 << (4 * i)}, b)
		}
		for p := 0; p < len(v); p += perPanel {
			for i, b := range bits {
				a.op("VCMTST", magnitude, v[p+i], v[p+i]) // whether a bit other than the sign is set
				a.and(v[p+i], b, v[p+i])
			}
			a.or(v[p], v[p+1], v[p])
			a.or(v[p+2], v[p+3], v[p+2])
			a.or(v[p], v[p+2], v[p])
			a.op("VADDV", v[p], fmt.Sprintf("V%d", v[p]))
			set := a.gp()
			a.op("VMOV", fmt.Sprintf("V%d.S[0]", v[p]), set)
			a.op("MOVHU", at64(mask, 0), old)
			a.op("ORR", old, set, set)
			a.op("MOVH.P", set, at64(mask, 2))
			a.freeR(set)
		}
	})
	a.label("masked" + id)
}

// steps generates stepsNEON, which implements kernel.level.steps.
func (a *arm) steps() {
	a.function("steps", "func(out *float32, outStride int, pre *float32, w *float32, wStride int, rows *int32, a *float32, n int, panels int, floor float32, mask *uint64)",
		"is the loop of RowMatrix.Steps. Strides are in bytes. n is the number of steps, at least 1.",
		"floor is 0 for ReLU, otherwise -Inf. mask may be nil.")
	a.constants()
	out, outStride, pre, w, wStride := a.arg("out"), a.arg("outStride"), a.arg("pre"), a.arg("w"), a.arg("wStride")
	panels, mask, floor := a.arg("panels"), a.arg("mask"), a.argVector("floor")
	for _, chunk := range []int{2, 1} {
		id, next := fmt.Sprint(chunk), "panels1"
		if chunk == 1 {
			next = "done"
		}
		a.label("panels" + id)
		a.op("CMP", chunk, panels)
		a.op("BLT", next)
		a.scope(func() {
			width := chunk * perPanel
			acc, seen := a.vectors(width), a.vectors(width)
			a.load(pre, 0, acc...)
			a.zero(seen...)
			a.scope(func() {
				rows, change, n, to, row := a.arg("rows"), a.arg("a"), a.arg("n"), a.gp(), a.gp()
				a.op("MOVD", out, to)
				a.label("step" + id)
				x, weights := a.vector(), a.vectors(perPanel)
				a.next(rows, row)
				a.op("MADD", wStride, w, row, row)
				a.op("FMOVS.P", at64(change, 4), x.scalar())
				for v := 0; v < width; v += perPanel {
					a.load(row, v*vectorBytes, weights...)
					for i, weight := range weights {
						a.fmaLane(weight, x, 0, acc[v+i])
					}
					for i, h := range weights {
						a.max(acc[v+i], floor, h)
					}
					a.store(to, v*vectorBytes, weights...)
					for i, h := range weights {
						a.or(seen[v+i], h, seen[v+i])
					}
				}
				a.op("ADD", outStride, to, to)
				a.countDown(n, "step"+id)
			})
			a.store(pre, 0, acc...)
			a.free(acc...)
			a.orMask(mask, seen, "s"+id)
		})
		for _, r := range []gpr{out, pre, w} {
			a.op("ADD", chunk*panelBytes, r, r)
		}
		a.op("SUB", chunk, panels, panels)
		a.op("B", "panels"+id)
	}
	a.label("done")
	a.ret()
}

// set16 generates setNEON, which implements kernel.level.set.
func (a *arm) set16() {
	a.function("set", "func(mask *uint64, in *float32, stride int, rows int, panels int)",
		"is the loop of Mask.Set for whole panels. The mask is all zeros before. rows and panels are at", "least 1.")
	a.constants()
	mask, in, stride, panels := a.arg("mask"), a.arg("in"), a.arg("stride"), a.arg("panels")
	a.label("panel")
	a.scope(func() {
		p, n, seen, x := a.gp(), a.arg("rows"), a.vectors(perPanel), a.vectors(perPanel)
		a.op("MOVD", in, p)
		a.zero(seen...)
		a.label("row")
		a.load(p, 0, x...)
		for v := range seen {
			a.or(x[v], seen[v], seen[v])
		}
		a.op("ADD", stride, p, p)
		a.countDown(n, "row")
		a.orMask(mask, seen, "")
	})
	a.op("ADD", panelBytes, in, in)
	a.countDown(panels, "panel")
	a.ret()
}

// dot generates dotNEON, which implements kernel.level.dot.
func (a *arm) dot() {
	a.function("dot", "func(dst *[16]float32, x *float32, w *float32, panels int)",
		"sets dst[c] to the sum over all panels of x*w in column c. panels is at least 1.")
	dst, x, w, n := a.arg("dst"), a.arg("x"), a.arg("w"), a.arg("panels")
	even, odd, p, q := a.vectors(perPanel), a.vectors(perPanel), a.vectors(perPanel), a.vectors(perPanel)
	a.zero(even...)
	a.zero(odd...)
	add := func(offset int, acc []vec) {
		a.load(x, offset, p...)
		a.load(w, offset, q...)
		for v := range acc {
			a.fma(p[v], q[v], acc[v])
		}
	}
	a.label("pair")
	a.op("CMP", 2, n)
	a.op("BLT", "single")
	add(0, even)
	add(panelBytes, odd)
	a.op("ADD", 2*panelBytes, x, x)
	a.op("ADD", 2*panelBytes, w, w)
	a.op("SUB", 2, n, n)
	a.op("B", "pair")
	a.label("single")
	a.op("CBZ", n, "sum")
	add(0, even)
	a.label("sum")
	for v := range even {
		a.add(even[v], odd[v], even[v])
	}
	a.store(dst, 0, even...)
	a.ret()
}

// prefetch generates prefetchNEON, which prefetches each 64 bytes of some rows.
func (a *arm) prefetch() {
	a.function("prefetch", "func(w *float32, wStride int, rows *int32, n int)",
		"prefetches n rows of wStride bytes into the second-level cache. n and wStride are above 0.")
	w, stride, rows, n, p, end := a.arg("w"), a.arg("wStride"), a.arg("rows"), a.arg("n"), a.gp(), a.gp()
	a.label("row")
	a.next(rows, p)
	a.op("MADD", stride, w, p, p)
	a.op("ADD", stride, p, end)
	a.label("line")
	a.op("PRFM", at64(p, 0), "PLDL2KEEP")
	a.op("ADD", panelBytes, p, p)
	a.op("CMP", end, p)
	a.op("BLO", "line")
	a.countDown(n, "row")
	a.ret()
}

// product generates product6NEON, which implements kernel.level.product.
func (a *arm) product() {
	a.function(fmt.Sprintf("product%d", neonUnits), "func(out *float32, in *float32, w *float32, wStride int, bias *float32, units *int32, list *int32, n int, panels int, floor float32, next *[8]*float32)",
		fmt.Sprintf("is the loop of Outputs.Product for %d units. wStride is in bytes. n is the length of list.", neonUnits),
		"panels is the number of groups of 16 states. floor is 0 for ReLU, otherwise -Inf. next is not used.")
	out, in, bias, panels := a.arg("out"), a.arg("in"), a.arg("bias"), a.arg("panels")
	size := a.gp()
	a.op("MOVD", stateBytes, size)
	row := make([]gpr, neonUnits) // weights of each unit
	a.scope(func() {
		for t := range row {
			row[t] = a.gp()
		}
		w, stride, units := a.arg("w"), a.arg("wStride"), a.arg("units")
		for t := range row {
			a.next(units, row[t])
			a.op("MADD", stride, w, row[t], row[t])
		}
	})
	for _, r := range row {
		a.usedR |= 1 << r
	}
	a.label("panel")
	acc := make([][]vec, neonUnits)
	for t := range acc {
		acc[t] = a.vectors(perPanel)
	}
	a.scope(func() {
		units, unit := a.arg("units"), a.gp()
		for t := range acc {
			a.next(units, unit)
			a.lane0(bias, unit, acc[t][0])
			for v := perPanel - 1; v >= 0; v-- {
				a.dup(acc[t][0], 0, acc[t][v])
			}
		}
	})
	a.scope(func() {
		list, n, k, at, x, w := a.arg("list"), a.arg("n"), a.gp(), a.gp(), a.vectors(perPanel), a.vectors(4)
		a.op("CBZ", n, "store")
		a.label("k")
		a.next(list, k)
		a.op("MADD", size, in, k, at)
		a.load(at, 0, x...)
		for t, r := range row {
			a.lane0(r, k, w[t%len(w)])
			for v := range x {
				a.fmaLane(x[v], w[t%len(w)], 0, acc[t][v])
			}
		}
		a.countDown(n, "k")
	})
	a.label("store")
	a.scope(func() {
		floor, units, unit := a.argVector("floor"), a.arg("units"), a.gp()
		for t := range acc {
			a.next(units, unit)
			a.op("MADD", size, out, unit, unit)
			for _, v := range acc[t] {
				a.max(v, floor, v)
			}
			a.store(unit, 0, acc[t]...)
		}
	})
	a.op("ADD", panelBytes, in, in)
	a.op("ADD", panelBytes, out, out)
	a.countDown(panels, "panel")
	a.ret()
}

// cross generates crossNEON, which implements kernel.level.cross.
func (a *arm) cross() {
	a.function("cross", "func(out *float32, x *float32, x0 *float32, z *float32, list *int32, n int, panels int)",
		"is the loop of Cross. n is the length of list, and panels is the number of groups of 16 states.", "Both are at least 1.")
	base := []gpr{a.arg("x"), a.arg("x0"), a.arg("z"), a.arg("out")}
	list, n, size, k := a.arg("list"), a.arg("n"), a.gp(), a.gp()
	a.op("MOVD", stateBytes, size)
	a.label("element")
	a.next(list, k)
	at := make([]gpr, len(base))
	for i := range at {
		at[i] = a.gp()
		a.op("MADD", size, base[i], k, at[i])
	}
	panels, x, x0, z := a.arg("panels"), a.vectors(perPanel), a.vectors(perPanel), a.vectors(perPanel)
	a.label("panel")
	a.load(at[0], 0, x...)
	a.load(at[1], 0, x0...)
	a.load(at[2], 0, z...)
	for v := range x {
		a.fma(x0[v], z[v], x[v])
	}
	a.store(at[3], 0, x...)
	for _, r := range at {
		a.op("ADD", panelBytes, r, r)
	}
	a.countDown(panels, "panel")
	a.countDown(n, "element")
	a.ret()
}

// transpose generates transposeNEON, which works on squares of 4 by 4 elements.
func (a *arm) transpose() {
	a.function("transpose", "func(out *float32, outStride int, in *float32, inStride int, n int)",
		"transposes n squares of 4 by 4 elements. Each square begins 4 columns to the right of the",
		"previous one in in, and 4 rows below it in out. Strides are in bytes.")
	out, outStride, inStride, n := a.arg("out"), a.arg("outStride"), a.arg("inStride"), a.arg("n")
	in := []gpr{a.arg("in")}
	for i := 1; i < 4; i++ {
		in = append(in, a.gp())
		a.op("ADD", inStride, in[i-1], in[i])
	}
	v, p := a.vectors(4), a.vectors(4)
	a.label("square")
	for i := range v {
		a.op("FMOVQ.P", at64(in[i], vectorBytes), v[i].scalar())
	}
	for i := 0; i < 4; i += 2 { // rows i and i+1 of columns 0 and 2, and of columns 1 and 3
		a.op("VTRN1", v[i+1], v[i], p[i])
		a.op("VTRN2", v[i+1], v[i], p[i+1])
	}
	for c := range 2 {
		a.op("VTRN1", p[2+c].doubles(), p[c].doubles(), v[c].doubles())
		a.op("VTRN2", p[2+c].doubles(), p[c].doubles(), v[2+c].doubles())
	}
	for i := range v {
		a.op("FMOVQ", v[i].scalar(), at64(out, 0))
		a.op("ADD", outStride, out, out)
	}
	a.countDown(n, "square")
	a.ret()
}

// gate generates gateNEON, which sets dst to v where x is above 0 or NaN, elsewhere to 0.
func (a *arm) gate() {
	a.function("gate", "func(dst *float32, x *float32, v *float32, panels int)",
		"sets dst to v where x is above 0 or NaN, and to 0 elsewhere. panels is at least 1.")
	dst, x, v, n, p, q := a.arg("dst"), a.arg("x"), a.arg("v"), a.arg("panels"), a.vectors(perPanel), a.vectors(perPanel)
	a.label("panel")
	a.load(x, 0, p...)
	a.load(v, 0, q...)
	for i := range p {
		a.atMostZero(p[i], p[i])
		a.clear(q[i], p[i], q[i])
	}
	a.store(dst, 0, q...)
	for _, r := range []gpr{dst, x, v} {
		a.op("ADD", panelBytes, r, r)
	}
	a.countDown(n, "panel")
	a.ret()
}

// neonKinkVectors is the number of vectors of inputs that kinks keeps in registers.
const neonKinkVectors = 8

// kinks generates kinksNEON, which implements kernel.level.kinks.
func (a *arm) kinks() {
	a.function("kinks", "func(dst *float32, change *float32, w *float32, off *int32, offs int, on *int32, ons int, pre *float32, slope *float32)",
		"is the loop of Kinks.Terms for one group of inputs and one row. offs and ons are the", "lengths of off and on.")
	dst, change, w, pre, slope := a.arg("dst"), a.arg("change"), a.arg("w"), a.arg("pre"), a.arg("slope")
	zero := a.vector()
	a.zero(zero)
	for part := 0; part < kinkBytes; part += neonKinkVectors * vectorBytes {
		a.scope(func() {
			u, acc := a.vectors(neonKinkVectors), a.vectors(neonKinkVectors)
			a.load(change, part, u...)
			a.zero(acc...)
			for _, list := range []string{"off", "on"} {
				a.scope(func() {
					id := fmt.Sprint(list, part)
					units, n, h, at, p, s := a.arg(list), a.arg(list+"s"), a.gp(), a.gp(), a.vector(), a.vector()
					x, weights := a.vectors(perPanel), a.vectors(2)
					a.op("CBZ", n, "done"+id)
					a.label(id)
					a.next(units, h)
					a.lane0(pre, h, p)
					a.lane0(slope, h, s)
					a.shifted(w, h, 8, at) // kinkBytes
					for v := 0; v < neonKinkVectors; v += 2 {
						x := x[v%4 : v%4+2]
						a.load(at, part+v*vectorBytes, weights...)
						for i := range x {
							a.dup(p, 0, x[i])
							a.fma(weights[i], u[v+i], x[i])
						}
						for i := range x {
							if list == "off" {
								a.max(x[i], zero, x[i])
								a.fmaLane(x[i], s, 0, acc[v+i])
							} else {
								a.min(x[i], zero, x[i])
								a.fmsLane(x[i], s, 0, acc[v+i])
							}
						}
					}
					a.countDown(n, id)
					a.label("done" + id)
				})
			}
			a.store(dst, part, acc...)
		})
	}
	a.ret()
}

// neonPeak is the number of accumulators in fma. It exceeds latency times the number of FMA units.
const neonPeak = 24

// peak generates fmaNEON, which runs at the processor's peak, for benchmarks.
func (a *arm) peak() {
	a.function("fma", "func(n int)", fmt.Sprintf("performs n times %d independent multiply-adds in registers.", neonPeak*4))
	n, x, y, acc := a.arg("n"), a.vector(), a.vector(), a.vectors(neonPeak)
	a.zero(x, y)
	a.zero(acc...)
	a.label("loop")
	for _, v := range acc {
		a.fmaLane(x, y, 0, v)
	}
	a.countDown(n, "loop")
	a.ret()
}

// linearLoop generates linear or, if it has the parameter rows, update. linear is the loop of
// product, but weights are packed in the order of their use.
func (a *arm) linearLoop(name, signature string, doc ...string) {
	a.function(name, signature, doc...)
	_, listed := a.params["rows"]
	b, panels, floor := a.arg("b"), a.arg("panels"), a.argVector("floor")
	a.label("panel")
	out, w, bias, groups := a.arg("out"), a.arg("w"), a.arg("bias"), a.arg("groups")
	a.label("group")
	sum, k := make([][]vec, neonUnits), a.gp()
	for u := range sum {
		sum[u] = a.vectors(perPanel)
	}
	for u := range sum {
		a.op("FMOVS.P", at64(bias, 4), sum[u][0].scalar())
		for v := perPanel - 1; v >= 0; v-- {
			a.dup(sum[u][0], 0, sum[u][v])
		}
	}
	a.scope(func() {
		list, n, at, x, weights := a.arg("x"), a.arg("n"), a.gp(), a.vectors(perPanel), a.vectors(2)
		from, rows := w, gpr(0)
		if listed {
			from, rows = a.gp(), a.arg("rows")
		}
		a.op("CBZ", n, "store")
		a.label("k")
		a.next(list, k)
		a.shifted(b, k, 2, at)
		a.load(at, 0, x...)
		if listed {
			a.next(rows, k)
			a.shifted(w, k, 2, from)
		}
		a.op("FMOVD", at64(from, 16), weights[1].scalar())
		a.op("FMOVQ", at64(from, 0), weights[0].scalar())
		if !listed {
			a.op("ADD", 4*neonUnits, w, w)
		}
		for u := range sum {
			for v := range x {
				a.fmaLane(x[v], weights[u/4], u%4, sum[u][v])
			}
		}
		a.countDown(n, "k")
	})
	a.label("store")
	a.scope(func() {
		at := a.gp()
		for u := range sum {
			a.next(out, k)
			a.shifted(b, k, 2, at)
			for _, v := range sum[u] {
				a.max(v, floor, v)
			}
			a.store(at, 0, sum[u]...)
		}
	})
	if listed {
		a.op("ADD", 4*neonUnits, w, w)
	}
	a.countDown(groups, "group")
	a.op("ADD", panelBytes, b, b)
	a.countDown(panels, "panel")
	a.ret()
}
