//go:build !purego

package kernel

import "sync"

// accelerated returns the level written in assembly. Every arm64 processor has NEON.
func accelerated() []*level {
	return []*level{{
		name: "neon", rows: layerNEON.tile, layer: layerNEON.run, sparse: layerNEON.each, few: layerNEON.few, steps: stepsWith(stepsNEON), prefetch: prefetchWith(prefetchNEON),
		list: listPortable, dot: dotWith(dotNEON), gate: gateWith(gateNEON), expand: expandPortable, unpack: unpackPortable, reached: reachedPortable, kinks: kinksWith(kinksNEON), fma: fmaNEON, flop: 24 * 4 * 2,
		product: productWith(product6NEON, 6), cross: crossWith(crossNEON), tanh: tanhWith(tanhNEON), transpose: transposeWith(transposeNEON, 4), set: setWith(setNEON),
		apply: applyNEON.run, combine: combineNEON.run, multiplyAdd: tripleWith(multiplyAddNEON), choose: tripleWith(chooseNEON), affine: affineWith(affineNEON), reduce: reduceNEON.run, softmax: softmaxWith(softmaxNEON),
		linear: linearWith(linearNEON), update: updateWith(updateNEON, 6), units: 6, pairs: pairsNEON.run, shapes: []pairsShape{{5, 5, false}, {3, 8, false}, {1, 8, false}, {12, 1, true}},
	}}
}

var (
	layerNEON   = packedLayer{tile: 6, few: 3, group: 2, shapes: [7]packedShape{3: {4, pack3NEON, layer3NEON}, 6: {8, pack6NEON, layer6NEON}}}
	applyNEON   = applyFuncs{copyNEON, negateNEON, absoluteNEON, reluNEON, squareRootNEON, reciprocalNEON, expNEON, logNEON, sigmoidNEON, hyperbolicTangentNEON, erfNEON, softplusNEON}
	combineNEON = combineFuncs{addNEON, subtractNEON, multiplyNEON, divideNEON, maximumNEON, minimumNEON, leakyNEON, equalNEON, lessNEON, lessOrEqualNEON}
	reduceNEON  = reduceFuncs{sumNEON, largestNEON, smallestNEON}
	pairsNEON   = tiledPairs{4, []pairsFunc{pairs5x5NEON, pairs3x8NEON, pairs1x8NEON}, dots12NEON}
)

// packedLayer implements Layer and Sparse with generated functions that read the inputs of a tile
// from a copy. There, the inputs of the rows are adjacent, so that one load serves all rows. A copy
// is made once for all outputs.
type packedLayer struct {
	tile   int // largest number of rows that a function computes
	few    int // rows of a tile of Sparse
	group  int // panels that a function computes at once
	shapes [7]packedShape
}

// packedShape has the functions for one number of rows.
type packedShape struct {
	words int // number of float32 that an input takes in the copy
	pack  func(dst *float32, in *float32, inStride int, list *int32, n int)
	layer func(out *float32, outStride int, x *float32, w *float32, panelStride int, bias *float32, list *int32, n int, panels int, floor float32, mask *uint64, maskByte int)
}

// packedTile is a tile whose inputs have been copied.
type packedTile struct {
	shape *packedShape
	row   int // first row
	list  []int32
	x     []float32
}

// packedTiles is the memory of one call of Layer or Sparse.
type packedTiles struct {
	tiles  []packedTile
	values []float32
}

var packedMemory = sync.Pool{New: func() any { return new(packedTiles) }}

// blockRows is the number of rows that use a group of panels one after the other. Its copies fit
// the core's own cache.
const blockRows = 48

// run implements level.layer.
func (l *packedLayer) run(m *Matrix, out, in Tile, rows int, list []int32, floor float32, mask Mask) {
	p := packedMemory.Get().(*packedTiles)
	for from := 0; from < rows; from += blockRows {
		p.tiles = p.tiles[:0]
		for t := from; t < min(from+blockRows, rows); t += l.tile {
			p.tiles = append(p.tiles, packedTile{shape: l.shape(rows - t), row: t, list: list})
		}
		p.compute(m, out, in, l.group, floor, mask)
	}
	packedMemory.Put(p)
}

// each implements level.sparse.
func (l *packedLayer) each(m *Matrix, out, in Tile, rows int, lists [][]int32, floor float32) {
	p := packedMemory.Get().(*packedTiles)
	const most = blockRows / 3
	for from := 0; from < len(lists); from += most {
		p.tiles = p.tiles[:0]
		for i, list := range lists[from:min(from+most, len(lists))] {
			p.tiles = append(p.tiles, packedTile{shape: l.shape(l.few), row: (from + i) * l.few, list: list})
		}
		p.compute(m, out, in, l.group, floor, nil)
	}
	packedMemory.Put(p)
}

// shape returns the shape of a tile of up to the given number of rows.
func (l *packedLayer) shape(rows int) *packedShape {
	rows = min(rows, l.tile)
	for l.shapes[rows].layer == nil {
		rows++
	}
	return &l.shapes[rows]
}

// compute copies the inputs of the tiles, and multiplies them group by group, so that a group of
// panels stays in the cache while all tiles use it.
func (p *packedTiles) compute(m *Matrix, out, in Tile, group int, floor float32, mask Mask) {
	size := 0
	for _, t := range p.tiles {
		size += len(t.list) * t.shape.words
	}
	p.values = resized(p.values, size)
	rest := p.values
	for i := range p.tiles {
		t := &p.tiles[i]
		n := len(t.list) * t.shape.words
		t.x, rest = rest[:n], rest[n:]
		if n > 0 {
			t.shape.pack(&t.x[0], &in.Values[t.row*in.Stride], in.Stride*4, &t.list[0], len(t.list))
		}
	}
	panels := len(m.bias) / Columns
	if len(p.tiles) == 1 {
		group = panels
	}
	for at := 0; at < panels; at += group {
		for _, t := range p.tiles {
			t.shape.layer(&out.Values[t.row*out.Stride+at*Columns], out.Stride*4, first(t.x), first(m.panels[at*m.In*Columns:]), m.In*Columns*4,
				&m.bias[at*Columns], first(t.list), len(t.list), min(group, panels-at), floor, first(mask), at*2)
		}
	}
}
