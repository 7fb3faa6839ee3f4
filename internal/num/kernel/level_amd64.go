//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

//go:generate go -C _asm run . -level amx -out ../amx_amd64.s -stubs ../amx_amd64.go -pkg kernel
//go:generate go -C _asm run . -level avx512 -out ../avx512_amd64.s -stubs ../avx512_amd64.go -pkg kernel
//go:generate go -C _asm run . -level avx2 -out ../avx2_amd64.s -stubs ../avx2_amd64.go -pkg kernel

// accelerated returns the levels written in assembly. Every machine with AVX-512 also has
// AVX2, so turning off AVX2 turns off AVX-512 as well.
func accelerated() (faster []*level) {
	x := &cpu.X86
	if !x.HasAVX2 || !x.HasFMA {
		return nil
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		wide := level{
			name: "avx512", rows: 8, layer: layerAVX512.run, sparse: sparseAVX512.each, few: sparseAVX512.tile, steps: stepsWith(stepsAVX512), prefetch: prefetchWith(prefetchAVX512),
			list: compress, dot: dotWith(dotAVX512), gate: gateWith(gateAVX512), expand: expand, unpack: unpack, reached: reached, kinks: kinksWith(kinksAVX512), fma: fmaAVX512, flop: 12 * 16 * 2,
			product: productAVX512, cross: crossWith(crossAVX512), tanh: tanhWith(tanhAVX512), transpose: transposeWith(transposeAVX512, 16), set: setWith(setAVX512),
			apply: applyAVX512.run, combine: combineAVX512.run, multiplyAdd: tripleWith(multiplyAddAVX512), choose: tripleWith(chooseAVX512), affine: affineWith(affineAVX512), reduce: reduceAVX512.run, softmax: softmaxWith(softmaxAVX512),
			linear: linearWith(linearAVX512), update: updateWith(updateAVX512, 8), units: 8, pairs: pairsAVX512.run, shapes: []pairsShape{{5, 5, false}, {3, 8, false}, {1, 8, false}, {12, 1, true}},
		}
		if permitAMX() {
			tiles := wide
			tiles.name, tiles.rows, tiles.digits = "amx", Columns, true
			tiles.layer, tiles.product, tiles.sparse, tiles.few = layerTiles, productTiles, nil, 0
			tiles.fma, tiles.flop = peakAMX, 65536*2/6 // one product of numbers takes six products of bytes
			faster = append(faster, &tiles)
		}
		faster = append(faster, &wide)
	}
	layer := assembled{group: 1, tile: 6, call: [13]layerFunc{3: layer3AVX2, 6: layer6AVX2}}
	return append(faster, &level{
		name: "avx2", rows: 6, layer: layer.run, steps: stepsWith(stepsAVX2), prefetch: prefetchWith(prefetchAVX2),
		list: listPortable, dot: dotWith(dotAVX2), gate: gateWith(gateAVX2), expand: expandPortable, unpack: unpackPortable, reached: reachedPortable, kinks: kinksWith(kinksAVX2), fma: fmaAVX2, flop: 12 * 8 * 2,
		product: productWith(product6AVX2, 6), cross: crossWith(crossAVX2), tanh: tanhWith(tanhAVX2), transpose: transposeWith(transposeAVX2, 8), set: setWith(setAVX2),
		apply: applyAVX2.run, combine: combineAVX2.run, multiplyAdd: tripleWith(multiplyAddAVX2), choose: tripleWith(chooseAVX2), affine: affineWith(affineAVX2), reduce: reduceAVX2.run, softmax: softmaxWith(softmaxAVX2),
		linear: linearWith(linearAVX2), update: updateWith(updateAVX2, 6), units: 6, pairs: pairsAVX2.run, shapes: []pairsShape{{3, 4, false}, {1, 8, false}, {8, 1, true}},
	})
}

// The AMX level falls back to these for layers that have no digits.
var (
	layerAVX512   = assembled{group: 3, tile: 8, call: [13]layerFunc{4: layer4AVX512, 8: layer8AVX512}}
	sparseAVX512  = assembled{group: 8, tile: 3, call: [13]layerFunc{3: layer3AVX512}}
	productAVX512 = productWith(product8AVX512, 8)
)

type (
	layerFunc     func(out *float32, outStride int, in *float32, inStride int, w *float32, panelStride int, bias *float32, list *int32, n int, panels int, floor float32, mask *uint64, maskByte int)
	stepsFunc     func(out *float32, outStride int, pre *float32, w *float32, wStride int, rows *int32, a *float32, n int, panels int, floor float32, mask *uint64)
	productFunc   func(out *float32, in *float32, w *float32, wStride int, bias *float32, units *int32, list *int32, n int, panels int, floor float32, next *[8]*float32)
	crossFunc     func(out *float32, x *float32, x0 *float32, z *float32, list *int32, n int, panels int)
	tanhFunc      func(out *float32, in *float32, scale *float32, n int, panels int)
	transposeFunc func(out *float32, outStride int, in *float32, inStride int, n int)
	dotFunc       func(dst *[Columns]float32, x *float32, w *float32, panels int)
)

// assembled implements Layer with generated functions. Each function computes a fixed
// number of rows.
type assembled struct {
	group int           // panels that a function computes at once
	tile  int           // largest number of rows that a function computes
	call  [13]layerFunc // functions by number of rows
}

func (a *assembled) run(m *Matrix, out, in Tile, rows int, list []int32, floor float32, mask Mask) {
	panels := len(m.bias) / Columns
	if rows <= a.tile {
		a.panels(m, out, in, 0, rows, 0, panels, list, floor, mask)
		return
	}
	// A group of panels stays in the cache while all rows use it.
	for p := 0; p < panels; p += a.group {
		for t := 0; t < rows; t += a.tile {
			a.panels(m, out, in, t, min(a.tile, rows-t), p, min(a.group, panels-p), list, floor, mask)
		}
	}
}

// each implements level.sparse for tiles of a.tile rows.
func (a *assembled) each(m *Matrix, out, in Tile, rows int, lists [][]int32, floor float32) {
	panels := len(m.bias) / Columns
	for p := 0; p < panels; p += a.group { // a group of panels stays in the cache while all rows use it
		for i, list := range lists {
			t := i * a.tile
			a.panels(m, out, in, t, min(a.tile, rows-t), p, min(a.group, panels-p), list, floor, nil)
		}
	}
}

// panels computes panels [p, p+n) for rows [t, t+rows).
func (a *assembled) panels(m *Matrix, out, in Tile, t, rows, p, n int, list []int32, floor float32, mask Mask) {
	for a.call[rows] == nil {
		rows++
	}
	a.call[rows](&out.Values[t*out.Stride+p*Columns], out.Stride*4, first(in.Values[t*in.Stride:]), in.Stride*4,
		first(m.panels[p*m.In*Columns:]), m.In*Columns*4, &m.bias[p*Columns], first(list), len(list), n, floor, first(mask), p*2)
}

func stepsWith(f stepsFunc) func(m *RowMatrix, out Tile, pre []float32, row []int32, change []float32, floor float32, mask Mask) {
	return func(m *RowMatrix, out Tile, pre []float32, row []int32, change []float32, floor float32, mask Mask) {
		f(&out.Values[0], out.Stride*4, &pre[0], &m.values[0], len(pre)*4, &row[0], &change[0], len(row), len(pre)/Columns, floor, first(mask))
	}
}

func prefetchWith(f func(w *float32, wStride int, rows *int32, n int)) func(m *RowMatrix, row []int32) {
	return func(m *RowMatrix, row []int32) { f(&m.values[0], Pad(m.Out)*4, &row[0], len(row)) }
}

// productWith returns a product that computes group units at a time. If the last group is
// incomplete, it is filled with copies of the last unit.
func productWith(f productFunc, group int) func(m *Outputs, out, in Block, states int, units, list []int32, floor float32) {
	return func(m *Outputs, out, in Block, states int, units, list []int32, floor float32) {
		panels := (states + Columns - 1) / Columns
		var last [8]int32
		var next [8]*float32
		for u := 0; u < len(units); u += group {
			these := units[u:]
			if len(these) < group {
				copy(last[:], these)
				for i := len(these); i < group; i++ {
					last[i] = these[len(these)-1]
				}
				these = last[:]
			}
			for i := range group {
				next[i] = first(m.weight[int(units[min(u+group+i, len(units)-1)])*m.In:])
			}
			copy(next[group:], next[:])
			f(&out[0], first(in), first(m.weight), m.In*4, &m.bias[0], &these[0], first(list), len(list), panels, floor, &next)
		}
	}
}

func crossWith(f crossFunc) func(out, x, x0, z Block, panels int, list []int32) {
	return func(out, x, x0, z Block, panels int, list []int32) {
		f(&out[0], &x[0], &x0[0], &z[0], &list[0], len(list), panels)
	}
}

func tanhWith(f tanhFunc) func(out, in, scale []float32, panels int) {
	return func(out, in, scale []float32, panels int) {
		f(&out[0], &in[0], &scale[0], len(in)/States, panels)
	}
}

func transposeWith(f transposeFunc, side int) func(out []float32, outStride int, in []float32, inStride, rows, columns int) {
	return func(out []float32, outStride int, in []float32, inStride, rows, columns int) {
		for t := 0; t < rows; t += side {
			f(&out[t], outStride*4, &in[t*inStride], inStride*4, columns/side)
		}
	}
}

func setWith(f func(mask *uint64, in *float32, stride int, rows int, panels int)) func(m Mask, t Tile, rows, panels int) {
	return func(m Mask, t Tile, rows, panels int) { f(&m[0], &t.Values[0], t.Stride*4, rows, panels) }
}

// compress appends to list as List does. It uses listAVX512 if list has room for
// everything that listAVX512 overwrites.
func compress(m Mask, list []int32) []int32 {
	n := len(list)
	if cap(list)-n < listRoom(m) {
		return listPortable(m, list)
	}
	list = list[:n+listRoom(m)]
	return list[:n+listAVX512(&list[n], &m[0], len(m))]
}

func expand(x []float32, values []byte, parts []Part) {
	expandAVX512(&x[0], &values[0], &parts[0].To, len(parts))
}

func unpack(x []float32, packed []byte, parts []Packed) {
	unpackAVX512(&x[0], &packed[0], &parts[0].To, len(parts))
}

func reached(off, on []int32, pre, reach, change []float32) (offs, ons int) {
	return reachedAVX512(&off[0], &on[0], &pre[0], &reach[0], &change[0], len(pre)/Columns)
}

func kinksWith(f func(dst *float32, change *float32, w *float32, off *int32, offs int, on *int32, ons int, pre *float32, slope *float32)) func(dst, change, weight []float32, off, on []int32, pre, slope []float32) {
	return func(dst, change, weight []float32, off, on []int32, pre, slope []float32) {
		f(&dst[0], &change[0], &weight[0], first(off), len(off), first(on), len(on), &pre[0], &slope[0])
	}
}

func gateWith(f func(dst *float32, x *float32, v *float32, panels int)) func(dst, x, v []float32) {
	return func(dst, x, v []float32) { f(&dst[0], &x[0], &v[0], len(dst)/Columns) }
}

func dotWith(f dotFunc) func(x, y []float32) float64 {
	return func(x, y []float32) float64 {
		whole := len(x) / Columns * Columns
		var sum0, sum1, sum2, sum3 float64
		if whole > 0 {
			var lanes [Columns]float32
			f(&lanes, &x[0], &y[0], whole/Columns)
			for i := range 4 { // four independent sums
				sum0 += float64(lanes[i])
				sum1 += float64(lanes[i+4])
				sum2 += float64(lanes[i+8])
				sum3 += float64(lanes[i+12])
			}
		}
		return (sum0 + sum1) + (sum2 + sum3) + dotPortable(x[whole:], y[whole:])
	}
}

// The functions of each level, in the order of the constants.
type (
	applyFuncs   [functions]func(b *float32, out *uint32, x *uint32, n int, panels int)
	combineFuncs [operations]func(b *float32, out *uint32, x *uint32, y *uint32, n int, panels int)
	reduceFuncs  [reductions]func(b *float32, out *uint32, outs int, x *uint32, n int, panels int)
	pairsFunc    func(b *float32, tile *uint32, tiles int, steps *int32, n int)
)

var (
	applyAVX512   = applyFuncs{copyAVX512, negateAVX512, absoluteAVX512, reluAVX512, squareRootAVX512, reciprocalAVX512, expAVX512, logAVX512, sigmoidAVX512, hyperbolicTangentAVX512, erfAVX512, softplusAVX512}
	applyAVX2     = applyFuncs{copyAVX2, negateAVX2, absoluteAVX2, reluAVX2, squareRootAVX2, reciprocalAVX2, expAVX2, logAVX2, sigmoidAVX2, hyperbolicTangentAVX2, erfAVX2, softplusAVX2}
	combineAVX512 = combineFuncs{addAVX512, subtractAVX512, multiplyAVX512, divideAVX512, maximumAVX512, minimumAVX512, leakyAVX512, equalAVX512, lessAVX512, lessOrEqualAVX512}
	combineAVX2   = combineFuncs{addAVX2, subtractAVX2, multiplyAVX2, divideAVX2, maximumAVX2, minimumAVX2, leakyAVX2, equalAVX2, lessAVX2, lessOrEqualAVX2}
	reduceAVX512  = reduceFuncs{sumAVX512, largestAVX512, smallestAVX512}
	reduceAVX2    = reduceFuncs{sumAVX2, largestAVX2, smallestAVX2}

	pairsAVX512 = tiledPairs{16, []pairsFunc{pairs5x5AVX512, pairs3x8AVX512, pairs1x8AVX512}, dots12AVX512}
	pairsAVX2   = tiledPairs{8, []pairsFunc{pairs3x4AVX2, pairs1x8AVX2}, dots8AVX2}
)

func (f *applyFuncs) run(name Function, b Block, out, x []uint32, panels int) {
	f[name](&b[0], &out[0], &x[0], len(out), panels)
}

func (f *combineFuncs) run(name Operation, b Block, out, x, y []uint32, panels int) {
	f[name](&b[0], &out[0], &x[0], &y[0], len(out), panels)
}

func (f *reduceFuncs) run(name Reduction, b Block, out, x []uint32, panels int) {
	f[name](&b[0], &out[0], len(out), &x[0], len(x)/len(out), panels)
}

// tiledPairs implements Pairs.Compute with generated functions. A call computes one vector
// of states of all tiles, so that the first cache has to hold only these states.
type tiledPairs struct {
	lanes int                                              // number of states of a vector
	call  []pairsFunc                                      // functions of the first shapes in level.shapes
	dots  func(b *float32, tile *uint32, tiles int, n int) // function of the last shape, which is diagonal
}

func (f *tiledPairs) run(p *Pairs, b Block, panels int) {
	if p.tiles == 0 {
		return
	}
	for t := 0; t < panels*Columns; t += f.lanes {
		if p.shape < len(f.call) {
			f.call[p.shape](&b[t], &p.words[0], p.tiles, first(p.steps), p.inner)
		} else {
			f.dots(&b[t], &p.words[0], p.tiles, p.inner)
		}
	}
}

func softmaxWith(f func(b *float32, out *uint32, x *uint32, n int, rows int, panels int)) func(b Block, out, x []uint32, n, panels int) {
	return func(b Block, out, x []uint32, n, panels int) {
		f(&b[0], &out[0], &x[0], n, len(x)/n, panels)
	}
}

func linearWith(f func(b *float32, out *uint32, x *uint32, n int, w *float32, bias *float32, groups int, panels int, floor float32)) func(l *Linear, b Block, panels int, floor float32) {
	return func(l *Linear, b Block, panels int, floor float32) {
		for row := range l.batch {
			f(&b[0], &l.outputs[row*len(l.bias)], first(l.x[row*l.m.In:]), l.m.In, first(l.packed), &l.bias[0], len(l.bias)/l.units, panels, floor)
		}
	}
}

func updateWith(f func(b *float32, out *uint32, x *uint32, rows *uint32, n int, w *float32, bias *float32, groups int, panels int, floor float32), units int) func(b Block, out, x, rows []uint32, w, bias []float32, panels int, floor float32) {
	return func(b Block, out, x, rows []uint32, w, bias []float32, panels int, floor float32) {
		f(&b[0], &out[0], first(x), first(rows), len(x), first(w), &bias[0], len(out)/units, panels, floor)
	}
}

func tripleWith(f func(b *float32, out *uint32, x *uint32, y *uint32, z *uint32, n int, panels int)) func(b Block, out, x, y, z []uint32, panels int) {
	return func(b Block, out, x, y, z []uint32, panels int) {
		f(&b[0], &out[0], &x[0], &y[0], &z[0], len(out), panels)
	}
}

func affineWith(f func(b *float32, out *uint32, x *uint32, scale *float32, offset *float32, n int, panels int)) func(b Block, out, x []uint32, scale, offset []float32, panels int) {
	return func(b Block, out, x []uint32, scale, offset []float32, panels int) {
		f(&b[0], &out[0], &x[0], &scale[0], &offset[0], len(out), panels)
	}
}

// first returns the address of the first element, or nil if s is empty.
func first[S ~[]E, E any](s S) *E {
	if len(s) == 0 {
		return nil
	}
	return &s[0]
}
