package model

import "shaver/internal/num/kernel"

// block evaluates cross layers for up to kernel.States states at once. The states are
// rows of a batch or consecutive steps of a walk. The weights of cross layers do not fit
// in a core's cache, so each weight that is loaded has to serve many states.
//
// Every cross layer maps an element whose x0 is 0 to 0. If the baseline is 0, this holds
// for all players that have not appeared yet. The products skip these elements, so a
// product is cheap at the start of a walk and takes longer as the walk proceeds.
type block struct {
	h       *head
	x0      kernel.Block // [D]
	x       kernel.Block // [D], the current cross state
	z       kernel.Block // [D], the factor of x0 in a cross layer
	inner   kernel.Block // DCN-Mix: [experts*(rank+1)], V of every expert, then the gates
	low     kernel.Block // DCN-Mix: [experts*rank], tanh of V's outputs
	mid     kernel.Block // DCN-Mix: [experts*rank + 1], tanh of C's outputs times the expert's gate, then the sum of the gates
	pre     kernel.Tile  // first linear maps after each step of a walk
	nonzero kernel.Mask  // elements of x0 that are not 0 in every state
	active  []int32      // list of nonzero
	output  []float64    // [States], what the cross layers add to the logit (parallel DCNv2)

	// Used if the MLP is stacked.
	unit   kernel.Block // output of the MLP's first layer
	hidden kernel.Tile  // the same values, state by state
}

func newBlock(h *head) *block {
	b := &block{
		h: h, x0: kernel.NewBlock(h.players), x: kernel.NewBlock(h.players), z: kernel.NewBlock(h.players),
		pre: kernel.NewTile(kernel.States, h.first.Out), nonzero: kernel.NewMask(h.players), active: kernel.NewList(h.players),
		output: make([]float64, kernel.States),
	}
	if h.kind == DCNMix {
		vectors := h.mix[0].u.In
		b.inner, b.low, b.mid = kernel.NewBlock(h.first.Out), kernel.NewBlock(vectors), kernel.NewBlock(vectors)
	}
	if h.stacked != nil {
		b.unit = kernel.NewBlock(h.stacked.Out)
		b.hidden = newStates(h.stacked.Out)
	}
	return b
}

// newStates returns a tile for the states of a block. It has 12 more rows, so that a
// Layer can begin at any state.
func newStates(width int) kernel.Tile { return kernel.NewTile(kernel.States+12, width) }

// rows evaluates the cross part of n rows. in holds their embeddings.
func (b *block) rows(in kernel.Tile, n int) {
	kernel.ToBlock(b.x0, in, n, b.h.players)
	for p := range b.h.players {
		b.nonzero[p/64] |= 1 << (p % 64)
	}
	b.active = b.nonzero.List(b.active[:0])
	first := b.h.cross
	if b.h.kind == DCNMix {
		b.h.mix[0].inner.Product(b.inner, b.x0, n, nil, b.active, false)
	} else {
		first[0].Product(b.z, b.x0, n, b.active, b.active, false)
	}
	b.layers(n)
}

// start begins a walk from x0.
func (b *block) start(x0 []float32) {
	clear(b.nonzero)
	for p, v := range x0 {
		b.settle(p, 0, v)
		if v != 0 {
			b.nonzero[p/64] |= 1 << (p % 64)
		}
	}
}

// settle sets element p of x0 to v in all states from t on.
func (b *block) settle(p, t int, v float32) {
	states := b.x0.Element(p)[t:]
	for i := range states {
		states[i] = v
	}
}

// steps evaluates the cross part after each of the given steps of a walk. pre holds the
// first linear map before the steps, and after them when steps returns.
func (b *block) steps(pre []float32, s *steps) {
	for t, p := range s.player {
		b.settle(int(p), t, s.x[p])
		b.nonzero[p/64] |= 1 << (p % 64)
	}
	b.active = b.nonzero.List(b.active[:0])
	n := len(s.player)
	b.h.first.Steps(b.pre, pre, s.player, s.change, false, nil)
	if b.h.kind == DCNMix {
		kernel.ToBlock(b.inner, b.pre, n, b.h.first.Out)
	} else {
		kernel.ToBlock(b.z, b.pre, n, b.h.first.Out)
	}
	b.layers(n)
	b.h.first.Prefetch(s.next)
	for _, p := range s.player {
		b.settle(int(p), 0, s.x[p])
	}
}

// layers runs the cross layers on x0. The linear map of the first layer is already in
// inner (DCN-Mix) or z (DCNv2).
func (b *block) layers(n int) {
	x := b.x0
	if b.h.kind == DCNMix {
		for l := range b.h.mix {
			b.mixLayer(&b.h.mix[l], x, l == 0, n)
			x = b.x
		}
	} else {
		for l, layer := range b.h.cross {
			if l > 0 {
				layer.Product(b.z, x, n, b.active, b.active, false)
			}
			kernel.Cross(b.x, x, b.x0, b.z, n, b.active)
			x = b.x
		}
	}
	if b.h.crossOutput != nil {
		b.sum(n)
	}
}

// mixLayer runs one layer of DCN-Mix. It scales the low-rank vector of each expert by the
// expert's gate, so that one product with U serves all experts. The bias is the last
// column of U, and its input is the sum of the gates.
func (b *block) mixLayer(layer *mixStage, x kernel.Block, first bool, n int) {
	if !first {
		layer.inner.Product(b.inner, x, n, nil, b.active, false)
	}
	rank, vectors := layer.c[0].In, len(layer.c)*layer.c[0].In
	kernel.Tanh(b.low, b.inner, n, vectors, nil)
	sum := b.mid.Element(vectors)
	clear(sum[:n])
	for k, c := range layer.c {
		mid, gate := b.mid.From(k*rank), b.inner.Element(vectors+k)
		c.Product(mid, b.low.From(k*rank), n, nil, nil, false)
		kernel.Tanh(mid, mid, n, rank, gate)
		for t, g := range gate[:n] {
			sum[t] += g
		}
	}
	layer.u.Product(b.z, b.mid, n, b.active, nil, false)
	kernel.Cross(b.x, x, b.x0, b.z, n, b.active)
}

// sum sets output to the product of x with the cross layers' output weights.
func (b *block) sum(n int) {
	output := b.output[:n]
	clear(output)
	for _, p := range b.active {
		w := float64(b.h.crossOutput[p])
		for t, v := range b.x.Element(int(p))[:n] {
			output[t] += float64(w * float64(v))
		}
	}
}

// mlpInput returns the output of the MLP's first layer for n states of a stacked head.
func (b *block) mlpInput(n int) kernel.Tile {
	b.h.stacked.Product(b.unit, b.x, n, nil, b.active, true)
	kernel.ToTile(b.hidden, b.unit, n, b.h.stacked.Out)
	return b.hidden
}
