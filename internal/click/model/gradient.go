package model

import (
	"sync"

	"shaver/internal/num/kernel"
	"shaver/internal/num/vector"
)

// gradientStates returns the number of states that a Gradient of a model without cross layers
// evaluates at once. What belongs to these states should stay in the core's own cache. With AMX,
// however, loading the weights takes most of the time, so each weight has to serve more states.
func gradientStates() int {
	if kernel.Lists() {
		return kernel.States
	}
	return 4 * kernel.States
}

// Gradient computes the logits of many states at once, and their derivatives with respect
// to each entry of the embedding. A state is a row with any embedding in place of its
// own. To the last bit, the results of a state do not depend on the other states. Logits
// equal those of a Scorer, except for the rounding of FM's term in float64. At the kink
// of a ReLU the unit counts as inactive. Package execute defines the derivatives at the
// kinks of other operators.
//
// To use a Gradient, call Set for some slots, from 0 on, and then Logits or Slopes. Only
// one goroutine may use it at a time. It allocates no memory after NewGradient.
type Gradient struct{ g gradient }

// gradient is what a core makes for a Gradient, which documents the methods.
type gradient interface {
	states() int
	set(i int, rows *Rows, r int) []float32
	slope(i int) []float32
	forward(dst []float64, slopes bool)
	keepKinks() bool
	change(i int) []float32
	computeKinks(n int)
	kink(i int) []float32
}

// Differentiable returns an error if NewGradient cannot work for m, because the derivatives
// need too much memory. The first call for a model, or for models that share its head,
// prepares the derivatives.
func (m *Model) Differentiable() error { return m.core.differentiable() }

// NewGradient returns a gradient for m. The first Gradient of a model packs a transposed
// copy of the network's weights, which takes as much memory as the weights. For a graph it
// also packs the weights themselves once more. All Gradients of the model share these
// copies. NewGradient panics unless the model is Differentiable.
func (m *Model) NewGradient() *Gradient { return &Gradient{m.core.newGradient(m)} }

// States returns the number of slots.
func (g *Gradient) States() int { return g.g.states() }

// Set assigns row r of rows to slot i. The row must have passed CheckRow. Set returns the
// slot's embedding, [D], which the caller must fill.
func (g *Gradient) Set(i int, rows *Rows, r int) []float32 { return g.g.set(i, rows, r) }

// Slope returns the derivatives of slot i, [D], as computed by the last call of Slopes.
func (g *Gradient) Slope(i int) []float32 { return g.g.slope(i) }

// Logits sets dst[i] to the logit of slot i.
func (g *Gradient) Logits(dst []float64) { g.g.forward(dst, false) }

// Slopes sets dst[i] to the logit of slot i, and computes the derivatives that Slope(i)
// returns.
func (g *Gradient) Slopes(dst []float64) { g.g.forward(dst, true) }

// headGradient is the gradient of a model with a head.
type headGradient struct {
	m        *Model
	h        *head
	size     int
	x        kernel.Tile // [size, D], embedding of each slot
	slopes   kernel.Tile // [size, D], derivatives of each slot
	constant []float64   // [size], constant part of each slot's logit
	column   []float64   // [d], FM's sums over fields
	square   []float64   // [d], FM's sums of squares over fields

	units      []kernel.Tile     // output of each hidden layer, after ReLU
	lists      *kernel.TileLists // memory for the products
	back       [2]kernel.Tile    // derivatives with respect to the units of two consecutive layers
	cross      *crossGradient    // cross part; nil if the head has none
	kinks      *kinkState        // nil unless kink terms are needed
	flips      *flips            // nil unless logits after flips are needed
	pairs      *pairs            // nil unless slots come in pairs
	transposed *transposedHead   // weights that all Gradients of the model share
}

// transposedHead holds the weights that derivatives need in addition to the head's own.
type transposedHead struct {
	layers  []*kernel.Matrix  // each hidden layer, from its outputs to its inputs; nil for a stacked first layer
	stacked *kernel.Outputs   // the first hidden layer, if it reads the cross layers' output
	cross   []*kernel.Outputs // DCNv2
	mix     []transposedMix   // DCN-Mix

	kinks func() *kernel.Kinks // the first hidden layer, packed at the first call
}

type transposedMix struct {
	inner *kernel.Outputs   // experts*rank + experts to D
	c     []*kernel.Outputs // rank to rank, one per expert
	u     *kernel.Outputs   // D to experts*rank + 1
}

func (l *Linear) transposed() []float32 { return kernel.Pack(l.Weight, l.In, l.Out) }

func newTransposedHead(a *Architecture, w *Weights) *transposedHead {
	t := &transposedHead{kinks: sync.OnceValue(func() *kernel.Kinks {
		l := &w.Hidden[0]
		return kernel.NewKinks(l.Weight, l.In, l.Out)
	})}
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
	for k := range a.Experts { // C is stored as the transpose of the matrix that multiplies a column
		t.c = append(t.c, kernel.NewOutputs(layer.C[k*rank*rank:(k+1)*rank*rank], nil, rank, rank))
	}
	u := append(append(make([]float32, 0, (vectors+1)*players), layer.U...), layer.Bias...)
	t.u = kernel.NewOutputs(u, nil, players, vectors+1)
	return t
}

func (h *head) differentiable() error { return nil }

func (h *head) newGradient(m *Model) gradient {
	g := &headGradient{m: m, h: h, size: gradientStates(), column: make([]float64, m.Dim), square: make([]float64, m.Dim), transposed: h.transposed()}
	if h.first != nil {
		g.size = kernel.States
		g.cross = newCrossGradient(h, g.transposed)
	}
	g.x, g.slopes = kernel.NewTile(g.size, m.Players()), kernel.NewTile(g.size, m.Players())
	g.constant = make([]float64, g.size)
	widest := 0
	for _, width := range m.Hidden {
		g.units = append(g.units, kernel.NewTile(g.size, width))
		widest = max(widest, width)
	}
	g.lists = kernel.NewTileLists(g.size, max(widest, m.Players()))
	for i := range g.back {
		g.back[i] = kernel.NewTile(g.size, widest)
	}
	return g
}

func (g *headGradient) states() int { return g.size }

func (g *headGradient) set(i int, rows *Rows, r int) []float32 {
	g.constant[i] = g.m.constant(rows.Row(r))
	return g.x.Row(i)[:g.m.Players()]
}

func (g *headGradient) slope(i int) []float32 { return g.slopes.Row(i)[:g.m.Players()] }

func (g *headGradient) forward(dst []float64, slopes bool) {
	n := len(dst)
	if n == 0 {
		return
	}
	h := g.h
	if g.cross != nil {
		g.cross.forward(g.x, n)
	}
	if h.kind != FM {
		g.mlp(n, slopes && g.kinks != nil)
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
		shallow := g.shallow(i, slopes)
		if slopes && g.flips != nil {
			g.flips.shallow[i] = shallow
			copy(g.flips.column[i*len(g.column):], g.column)
		}
		dst[i] += shallow
	}
}

// shallow returns the part of slot i's logit that does not come from the network. If
// slopes is set, it also adds the derivatives of this part.
func (g *headGradient) shallow(i int, slopes bool) float64 {
	x := g.x.Row(i)[:g.m.Players()]
	if !g.m.pairwise() {
		return g.constant[i] + g.direct(i, x, slopes)
	}
	column, square := g.column, g.square[:len(g.column)]
	vector.Columns(column, square, x)
	sum := 0.0
	for c, total := range column {
		sum += float64(total*total) - square[c]
	}
	if slopes {
		slope := g.slopes.Row(i)
		if g.m.Kind == FM {
			clear(slope)
		}
		vector.AddOthers(slope[:len(x)], x, column)
	}
	return g.constant[i] + sum/2 + g.direct(i, x, slopes)
}

// direct returns the term of Weights.Linear and NeuMF's term for slot i, whose embedding is
// x. If slopes is set, it also adds the derivatives of these terms.
func (g *headGradient) direct(i int, x []float32, slopes bool) float64 {
	sum := 0.0
	for p, w := range g.m.Weights.Linear {
		sum += float64(float64(w) * float64(x[p]))
	}
	product := g.m.Weights.Product
	sum += productTerm(product, x)
	if slopes {
		slope := g.slopes.Row(i)
		for p, w := range g.m.Weights.Linear {
			slope[p] += w
		}
		for c := range product {
			user := len(product) + c
			item := user + g.m.Dim
			slope[user] += float32(factor(product, x, user))
			slope[item] += float32(factor(product, x, item))
		}
	}
	return sum
}

// mlp computes units for n slots. If kinks is set, it keeps what the first layer computes
// before ReLU.
func (g *headGradient) mlp(n int, kinks bool) {
	h, in, units := g.h, g.x, g.units
	if h.stacked != nil {
		if !kinks {
			g.cross.mlpInput(units[0], n, true)
		} else {
			g.cross.mlpInput(g.kinks.pre, n, false)
			g.rectifyFirst(g.kinks.pre, n)
		}
		in, units = units[0], units[1:]
	}
	for l, layer := range h.layers {
		if l == 0 && h.stacked == nil {
			g.firstLayer(layer, n, kinks)
		} else {
			layer.Sparse(units[l], in, n, true, g.lists)
		}
		in = units[l]
	}
}

// rectifyFirst sets the units of the first layer for n slots from its outputs before ReLU.
func (g *headGradient) rectifyFirst(pre kernel.Tile, n int) {
	for i := range n {
		kernel.Gate(g.units[0].Row(i), pre.Row(i), pre.Row(i))
	}
}

// mlpBack sets slope to the network's derivatives for n slots.
func (g *headGradient) mlpBack(n int) {
	h := g.h
	last := len(g.units) - 1
	d, next := g.back[0], g.back[1]
	d.Stride = g.units[last].Stride
	for i := range n {
		row := d.Row(i)
		clear(row[copy(row, h.output):])
		if last == 0 {
			g.keepSlope(i, row)
		}
		kernel.Gate(row, g.units[last].Row(i), row)
	}
	for l := last; l > 0; l-- {
		next.Stride = g.units[l-1].Stride
		g.transposed.layers[l].Sparse(next, d, n, false, g.lists)
		for i := range n {
			if l == 1 {
				g.keepSlope(i, next.Row(i))
			}
			kernel.Gate(next.Row(i), g.units[l-1].Row(i), next.Row(i))
		}
		d, next = next, d
	}
	if h.stacked == nil {
		g.transposed.layers[0].Sparse(g.slopes, d, n, false, g.lists)
	}
	if g.cross != nil {
		g.cross.backward(g.slopes, d, n)
	}
}

// keepSlope keeps the derivatives of slot i with respect to the units of the first layer, if
// kink terms need them.
func (g *headGradient) keepSlope(i int, d []float32) {
	if g.kinks != nil {
		copy(g.kinks.slope.Row(i), d)
	}
}
