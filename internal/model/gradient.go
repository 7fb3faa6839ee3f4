package model

import (
	"math"

	"shaver/internal/kernel"
)

// gradientStates is how many states a Gradient of an MLP takes at once: weights
// come from a cache that cores share, so that each has to serve many states.
const gradientStates = 4 * kernel.States

// Gradient computes the logits of many states at once, and their derivatives by
// each entry of the embedding. A state is a row with any embedding in place of its
// own. Results depend on nothing but the state, to the bit; logits are those of a
// Scorer, but for the rounding of FM's term, in float64. At the kinks of ReLU a unit counts as inactive. It is for one goroutine,
// and allocates nothing after NewGradient.
//
// Its use: Set some slots, from 0 on, then Logits or Slopes.
type Gradient struct {
	m        *Model
	size     int
	x        kernel.Tile // of each slot, [size, D]
	slope    kernel.Tile // [size, D]
	constant []float64   // of each slot
	column   []float64   // FM's sums over fields, [d]
	square   []float64   // and of squares, [d]

	units []kernel.Tile   // of each hidden layer, after ReLU
	back  [2]kernel.Tile  // derivatives by the units of two consecutive layers
	cross *crossGradient  // nil if the head has no cross part
	by    *transposedHead // shared
}

// transposedHead is what a head's derivatives need beside its own weights.
type transposedHead struct {
	layers  []*kernel.Matrix  // of each hidden layer, from its outputs to its inputs; nil for one that is stacked
	stacked *kernel.Outputs   // of the first hidden layer, if it reads the cross layers' output
	cross   []*kernel.Outputs // DCNv2
	mix     []transposedMix   // DCN-Mix
}

type transposedMix struct {
	inner *kernel.Outputs   // experts*rank + experts to D
	c     []*kernel.Outputs // per expert, rank to rank
	u     *kernel.Outputs   // D to experts*rank + 1
}

func (l *Linear) transposed() []float32 { return kernel.Pack(l.Weight, l.In, l.Out) }

func newTransposedHead(a *Architecture, w *Weights) *transposedHead {
	t := &transposedHead{}
	for i := range w.Hidden {
		l := &w.Hidden[i]
		if i == 0 && a.CrossLayers > 0 && a.Structure != Parallel {
			t.stacked = kernel.NewOutputs(l.transposed(), nil, l.Out, l.In)
			t.layers = append(t.layers, nil)
			continue
		}
		t.layers = append(t.layers, kernel.NewMatrix(l.transposed(), nil, l.Out, l.In))
	}
	for i := range w.Cross {
		l := &w.Cross[i]
		t.cross = append(t.cross, kernel.NewOutputs(l.transposed(), nil, l.Out, l.In))
	}
	for i := range w.Mix {
		t.mix = append(t.mix, transposeMix(a, w.Gates, &w.Mix[i]))
	}
	return t
}

func transposeMix(a *Architecture, gates []float32, layer *MixLayer) transposedMix {
	players, rank, vectors := a.Players(), a.Rank, a.Experts*a.Rank
	inner := kernel.Pack(mixInner(a, gates, layer), players, vectors+a.Experts)
	t := transposedMix{inner: kernel.NewOutputs(inner, nil, vectors+a.Experts, players)}
	for k := range a.Experts { // as it is stored, C is the transpose of what multiplies a column
		t.c = append(t.c, kernel.NewOutputs(layer.C[k*rank*rank:(k+1)*rank*rank], nil, rank, rank))
	}
	u := append(append(make([]float32, 0, (vectors+1)*players), layer.U...), layer.Bias...)
	t.u = kernel.NewOutputs(u, nil, players, vectors+1)
	return t
}

// NewGradient returns a gradient of m. The first one of a model takes as much
// memory again as the network's weights, which all share.
func (m *Model) NewGradient() *Gradient {
	g := &Gradient{m: m, size: gradientStates, column: make([]float64, m.Dim), square: make([]float64, m.Dim), by: m.head.transposed()}
	if m.head.first != nil {
		g.size = kernel.States
		g.cross = newCrossGradient(m.head, g.by)
	}
	g.x, g.slope = kernel.NewTile(g.size, m.Players()), kernel.NewTile(g.size, m.Players())
	g.constant = make([]float64, g.size)
	widest := 0
	for _, width := range m.Hidden {
		g.units = append(g.units, kernel.NewTile(g.size, width))
		widest = max(widest, width)
	}
	for i := range g.back {
		g.back[i] = kernel.NewTile(g.size, widest)
	}
	return g
}

// States returns how many slots there are.
func (g *Gradient) States() int { return g.size }

// Set turns slot i to the given row, which must have passed CheckRow, and returns
// the embedding that it reads, [D], for the caller to write.
func (g *Gradient) Set(i int, row []int32) []float32 {
	g.constant[i] = g.m.constant(row)
	return g.x.Row(i)[:g.m.Players()]
}

// Slope returns slot i's derivatives, [D], as the last Slopes left them.
func (g *Gradient) Slope(i int) []float32 { return g.slope.Row(i)[:g.m.Players()] }

// Logits sets dst[i] to the logit of slot i.
func (g *Gradient) Logits(dst []float64) { g.forward(dst, false) }

// Slopes sets dst[i] to the logit of slot i, and Slope(i) to its derivatives.
func (g *Gradient) Slopes(dst []float64) { g.forward(dst, true) }

func (g *Gradient) forward(dst []float64, slopes bool) {
	n := len(dst)
	if n == 0 {
		return
	}
	h := g.m.head
	if g.cross != nil {
		g.cross.forward(g.x, n)
	}
	if h.kind != FM {
		g.mlp(n)
		if slopes {
			g.mlpBack(n)
		}
	}
	for i := range dst {
		dst[i] = 0
		if h.kind != FM {
			last := g.units[len(g.units)-1]
			dst[i] = float64(h.bias) + kernel.Dot(last.Row(i)[:len(h.output)], h.output)
		}
		if h.crossOutput != nil {
			dst[i] += g.cross.output[i]
		}
		dst[i] += g.beside(i, slopes)
	}
}

// beside returns what slot i's logit has beside the network, and adds its
// derivatives.
func (g *Gradient) beside(i int, slopes bool) float64 {
	if !g.m.pairwise() {
		return g.constant[i]
	}
	x := g.x.Row(i)[:g.m.Players()]
	column, square := g.column, g.square[:len(g.column)]
	clear(column)
	clear(square)
	for from := 0; from < len(x); from += len(column) {
		for c, v := range x[from:][:len(column)] {
			e := float64(v)
			column[c] += e
			square[c] += float64(e * e)
		}
	}
	sum := 0.0
	for c, total := range column {
		sum += float64(total*total) - square[c]
	}
	if slopes {
		slope := g.slope.Row(i)
		if g.m.Kind == FM {
			clear(slope)
		}
		for from := 0; from < len(x); from += len(column) {
			part, entries := slope[from:][:len(column)], x[from:][:len(column)]
			for c, total := range column {
				part[c] = float32(float64(part[c]) + (total - float64(entries[c])))
			}
		}
	}
	return g.constant[i] + sum/2
}

// mlp sets units.
func (g *Gradient) mlp(n int) {
	h, in, units := g.m.head, g.x, g.units
	if h.stacked != nil {
		g.cross.mlpInput(units[0], n)
		in, units = units[0], units[1:]
	}
	for l, layer := range h.layers {
		layer.Layer(units[l], in, n, nil, true, nil)
		in = units[l]
	}
}

// mlpBack sets slope to the network's derivatives.
func (g *Gradient) mlpBack(n int) {
	h := g.m.head
	last := len(g.units) - 1
	d, next := g.back[0], g.back[1]
	d.Stride = g.units[last].Stride
	for i := range n {
		row := d.Row(i)
		clear(row[copy(row, h.output):])
		inactive(row, g.units[last].Row(i))
	}
	for l := last; l > 0; l-- {
		next.Stride = g.units[l-1].Stride
		g.by.layers[l].Layer(next, d, n, nil, false, nil)
		for i := range n {
			inactive(next.Row(i), g.units[l-1].Row(i))
		}
		d, next = next, d
	}
	if h.stacked == nil {
		g.by.layers[0].Layer(g.slope, d, n, nil, false, nil)
	}
	if g.cross != nil {
		g.cross.backward(g.slope, d, n)
	}
}

// inactive sets d to 0 where unit is not above 0. NaN counts as above.
func inactive(d, unit []float32) {
	unit = unit[:len(d)]
	for o, v := range unit {
		b := int32(math.Float32bits(v))
		d[o] = math.Float32frombits(math.Float32bits(d[o]) & uint32((-b&^b)>>31))
	}
}
