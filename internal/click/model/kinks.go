package model

import (
	"slices"

	"shaver/internal/num/kernel"
)

// A logit is not linear in a single entry where a ReLU switches on or off. For each entry,
// the kink term is the part of a change of the logit that the first layer with a ReLU adds to
// the prediction of the derivative. It is exact if this layer reads the embedding and the
// rest of the network is linear. If the layer reads the output of stacked cross layers, the
// term takes only the change of the entry's own element of that output into account.
// In a graph, the layers that count are those that package execute finds. Models of the kind
// FM have no kink terms, and neither have graphs without such layers.

// KeepKinks makes Slopes keep what Kinks needs. It must be called before the first Set. It
// reports whether the model has kink terms. If it returns false, Change, Kinks and Kink must
// not be called.
func (g *Gradient) KeepKinks() bool { return g.g.keepKinks() }

// Change returns the changes of the entries of slot i, [D], which the caller must set before
// it calls Kinks.
func (g *Gradient) Change(i int) []float32 { return g.g.change(i) }

// Kinks computes the kink terms of the slots [0, n), for the embeddings of the last call of
// Slopes, which must have had at least n slots. It may overwrite the changes.
func (g *Gradient) Kinks(n int) { g.g.computeKinks(n) }

// Kink returns the kink terms of slot i, [D], as computed by the last call of Kinks. The term
// of an entry is the one for a change of this entry alone.
func (g *Gradient) Kink(i int) []float32 { return g.g.kink(i) }

// ColumnNorms returns, for each element of the embedding, the sum of the squares of the
// weights with which the first hidden layer reads it, [D]. If the layer reads the output of
// cross layers, these are the weights of the element of that output. In a graph, the first
// hidden layer is the layers that have kink terms. ColumnNorms returns nil for models without
// such a layer, and for those in which no such layer reads some of the elements.
func (m *Model) ColumnNorms() []float64 {
	var weight []float32 // [units, D]
	if c, ok := m.core.(*graphCore); !ok {
		if len(m.Weights.Hidden) > 0 {
			weight = m.Weights.Hidden[0].Weight
		}
	} else if program, err := c.gradient(); err == nil {
		_, weight = program.Kinks()
	}
	if len(weight) == 0 {
		return nil
	}
	players := m.Players()
	norms := make([]float64, players)
	for at, w := range weight {
		norms[at%players] += float64(float64(w) * float64(w))
	}
	if m.Kind == Graph && slices.Contains(norms, 0) {
		return nil
	}
	return norms
}

// kinkState is what a headGradient keeps for kink terms.
type kinkState struct {
	layer   *kernel.Kinks
	pre     kernel.Tile // [size, units], outputs of the layer before ReLU
	slope   kernel.Tile // [size, units], derivatives with respect to the outputs after ReLU
	change  kernel.Tile // [size, D]
	term    kernel.Tile // [size, D]
	factor  kernel.Tile // [size, D]: derivative of each element of the cross layers' output with respect to the same element of x0, except through other elements; only if the layer is stacked
	off, on []int32
}

func (g *headGradient) change(i int) []float32 { return g.kinks.change.Row(i)[:g.m.Players()] }

func (g *headGradient) kink(i int) []float32 { return g.kinks.term.Row(i)[:g.m.Players()] }

func (g *headGradient) keepKinks() bool {
	if g.h.kind == FM {
		return false
	}
	layer := g.transposed.kinks()
	g.kinks = &kinkState{
		layer: layer, pre: kernel.NewTile(g.size, layer.Out), slope: kernel.NewTile(g.size, layer.Out),
		change: layer.NewTile(g.size), term: layer.NewTile(g.size), off: kernel.NewList(layer.Out), on: kernel.NewList(layer.Out),
	}
	if g.h.stacked != nil {
		g.kinks.factor = kernel.NewTile(g.size, g.m.Players())
	}
	return true
}

// computeKinks sets term for n slots.
func (g *headGradient) computeKinks(n int) {
	k := g.kinks
	if g.h.stacked != nil {
		g.cross.factors(k.factor, n)
		for i := range n {
			change, factor := k.change.Row(i), k.factor.Row(i)[:g.m.Players()]
			for p, v := range factor {
				change[p] *= v
			}
		}
	}
	k.layer.Terms(k.term, k.change, k.pre, k.slope, n, k.off, k.on)
}

// factors sets out to 1 plus the sum of z over all layers, for n states. x[l+1] = x[l] + x0 *
// z[l], so this is the derivative of an element of the last x with respect to the same element
// of x0, if z is taken as constant.
func (c *crossGradient) factors(out kernel.Tile, n int) {
	kernel.Cross(c.t, c.one, c.one, c.z[0], n, c.all)
	for _, z := range c.z[1:] {
		kernel.Cross(c.t, c.t, c.one, z, n, c.all)
	}
	kernel.ToTile(out, c.t, n, c.h.players)
}
