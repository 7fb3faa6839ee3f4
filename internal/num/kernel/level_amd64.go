//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

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

type layerFunc func(out *float32, outStride int, in *float32, inStride int, w *float32, panelStride int, bias *float32, list *int32, n int, panels int, floor float32, mask *uint64, maskByte int)

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
