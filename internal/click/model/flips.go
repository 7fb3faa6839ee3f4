package model

import "shaver/internal/num/kernel"

// Flip is a change of one entry of a slot of a Gradient.
type Flip struct {
	Slot, Player int
	Change       float32 // what is added to the entry
}

// flips is what a headGradient needs to compute the logits after changes of single entries.
// The first layer and FM's term follow from those of the slot, and only the other layers are
// computed.
type flips struct {
	tile    *tile
	pre     []float32   // outputs of the first layer before ReLU, padded
	mask    kernel.Mask // active units of one flip; nil if lists are useless
	row     [1]int32    // player of one flip
	change  [1]float32  // change of its entry
	column  []float64   // [size, d], FM's sums over fields
	shallow []float64   // [size], part of the logit that does not come from the network
}

// KeepFlips makes Slopes keep what Flips needs. It must be called after KeepKinks, and before
// the first Set. It reports whether the model has Flips. These are models of the kinds DeepFM,
// WideDeep and NeuMF.
func (g *Gradient) KeepFlips() bool {
	h, ok := g.g.(*headGradient)
	if !ok || h.kinks == nil || h.h.deep == nil || h.cross != nil {
		return false
	}
	tile := newTile(h.h)
	h.flips = &flips{tile: tile, pre: make([]float32, len(h.h.deepBias)), column: make([]float64, h.size*h.m.Dim), shallow: make([]float64, h.size)}
	if tile.mask != nil {
		h.flips.mask = kernel.NewMask(h.h.deep.Out)
	}
	return true
}

// Flips sets dst[k] to the logit after flip k, for the embeddings of the last call of Slopes,
// which must have computed the slots. There must be no other call since then, except of
// Kinks. Flips of similar states should follow each other, because they are computed faster.
//
// The result differs from that of Logits for the changed embedding by rounding only. It does
// not depend on the other flips.
func (g *Gradient) Flips(dst []float64, flips []Flip) {
	h := g.g.(*headGradient)
	for size := kernel.TileRows(); len(flips) > 0; {
		n := min(size, len(flips))
		h.flipTile(dst[:n], flips[:n])
		dst, flips = dst[n:], flips[n:]
	}
}

// flipTile is Flips for at most one tile.
func (g *headGradient) flipTile(dst []float64, flips []Flip) {
	f, deep := g.flips, g.h.deep
	s := f.tile
	in := kernel.Tile{Values: s.a, Stride: kernel.Pad(deep.Out)}
	mask := s.maskOf(deep.Out)
	clear(mask)
	for k, flip := range flips {
		copy(f.pre, g.kinks.pre.Row(flip.Slot))
		f.row[0], f.change[0] = int32(flip.Player), flip.Change
		deep.Steps(rowsFrom(in, k), f.pre, f.row[:], f.change[:], true, f.mask)
		for i, bits := range f.mask {
			mask[i] |= bits
		}
	}
	s.mlp(dst, in, s.listOf(mask), g.h.layers[1:])
	for k, flip := range flips {
		dst[k] += f.shallow[flip.Slot] + g.shallowChange(&flip)
	}
}

// shallowChange returns the change of the part of the logit that does not come from the
// network.
func (g *headGradient) shallowChange(flip *Flip) float64 {
	change := 0.0
	before := g.x.Row(flip.Slot)[flip.Player]
	move := float64(before+flip.Change) - float64(before)
	if g.m.pairwise() {
		dim := g.m.Dim
		others := g.flips.column[flip.Slot*dim+flip.Player%dim] - float64(before)
		change = float64(move * others)
	}
	if w := g.m.Weights.Linear; w != nil {
		change += float64(float64(w[flip.Player]) * move)
	}
	if w := g.m.Weights.Product; w != nil && isProduct(flip.Player, g.m.Dim) {
		change += float64(factor(w, g.x.Row(flip.Slot)[:g.m.Players()], flip.Player) * move)
	}
	return change
}
