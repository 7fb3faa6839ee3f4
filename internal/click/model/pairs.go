package model

import (
	"shaver/internal/num/kernel"
	"shaver/internal/num/vector"
)

// pairs is what a headGradient needs to compute the first layer of two states from that of
// one. A layer is linear before ReLU. If each element is that of the row in one of the states and
// that of the baseline in the other, the outputs of the two states have the same sum as those of
// the row and of the baseline.
type pairs struct {
	baseline []float32   // output of the first layer for the baseline, before ReLU, padded
	full     kernel.Tile // [size/2, units], outputs for the rows of the last call of Full
	keep     bool        // whether mlp must set full
}

// KeepPairs makes Slopes compute pairs of slots faster. For each element, one of the slots 2i and
// 2i+1 must have the element of baseline, [D], and the other that of slot i in the last call of
// Full. The number of slots must be even. KeepPairs must be called after KeepKinks, and before the
// first Set. It does nothing if the first layer does not read the embedding itself, or if
// KeepKinks has returned false.
//
// The results of a pair differ from those of single slots by rounding only. They do not depend on
// the other pairs.
func (g *Gradient) KeepPairs(baseline []float32) {
	h, ok := g.g.(*headGradient)
	if !ok || h.kinks == nil || h.h.stacked != nil {
		return
	}
	layer := h.h.layers[0]
	in, out := kernel.NewTile(1, layer.In), kernel.NewTile(1, layer.Out)
	copy(in.Row(0), baseline)
	layer.Layer(out, in, 1, nil, false, nil)
	h.pairs = &pairs{baseline: out.Row(0), full: kernel.NewTile(h.size/2, layer.Out)}
}

// Full sets dst[i] to the logit of slot i. The slots must hold the rows with nothing dropped, and
// there must be at most half as many as the gradient has.
func (g *Gradient) Full(dst []float64) {
	h, ok := g.g.(*headGradient)
	if !ok || h.pairs == nil {
		g.Logits(dst)
		return
	}
	h.pairs.keep = true
	h.forward(dst, false)
	h.pairs.keep = false
}

// firstLayer sets the units of the first layer for n slots, and what kink terms and pairs keep
// of its outputs.
func (g *headGradient) firstLayer(layer *kernel.Matrix, n int, kinks bool) {
	switch {
	case kinks && g.pairs != nil:
		pre := g.kinks.pre
		layer.Sparse(everySecond(pre), everySecond(g.x), n/2, false, g.lists)
		for i := range n / 2 {
			vector.Complement(pre.Row(2*i+1), g.pairs.full.Row(i), g.pairs.baseline, pre.Row(2*i))
		}
		g.rectifyFirst(pre, n)
	case kinks:
		layer.Sparse(g.kinks.pre, g.x, n, false, g.lists)
		g.rectifyFirst(g.kinks.pre, n)
	case g.pairs != nil && g.pairs.keep:
		layer.Layer(g.pairs.full, g.x, n, nil, false, nil)
		g.rectifyFirst(g.pairs.full, n)
	default:
		layer.Sparse(g.units[0], g.x, n, true, g.lists)
	}
}

// everySecond returns the rows 0, 2, 4, ... of t as a tile.
func everySecond(t kernel.Tile) kernel.Tile {
	return kernel.Tile{Values: t.Values, Stride: 2 * t.Stride}
}
