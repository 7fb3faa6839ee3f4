package model

import "shaver/internal/kernel"

// tile evaluates a head for up to kernel.TileRows() states at once: rows of a
// batch, or consecutive steps of a walk, which have most of their active units in
// common (docs/kernels.md). It is for one goroutine.
//
// Its use: for each state, in order, put what the head's parts read into slot i;
// then logits. Every state's logit depends on nothing but the state, to the bit.
type tile struct {
	h  *head
	in kernel.Tile // the MLP's input: x0, or what stacked cross layers make of it

	// the MLP
	a, b   []float32 // activations of two consecutive layers; a holds the latest
	mask   kernel.Mask
	list   []int32
	player []int32   // begin's nonzero entries
	value  []float32 // theirs

	// the cross part
	cross []float64 // per state, the cross layers' share of the logit (DCNv2 in parallel)
	x     []float32 // [D], the running cross state
	inner []float32 // [experts*(rank+1)]
	low   []float32 // [experts*rank]
	tanh  []float32 // [experts*rank]
	z     []float32 // [D]
}

func newTile(h *head) *tile {
	rows := kernel.TileRows()
	s := &tile{h: h, cross: make([]float64, rows)}
	widest := 0
	for _, l := range h.layers {
		widest = max(widest, l.Out)
	}
	s.a, s.b = kernel.NewTile(rows, widest).Values, kernel.NewTile(rows, widest).Values
	s.mask, s.list = kernel.NewMask(widest), kernel.NewList(widest)
	if h.kind != FM {
		s.in = kernel.NewTile(rows, h.players)
	}
	if h.deep != nil {
		s.player, s.value = make([]int32, 0, h.players), make([]float32, 0, h.players)
	}
	if h.first != nil {
		s.x, s.z = make([]float32, h.players), make([]float32, h.players)
		s.inner, s.low, s.tanh = make([]float32, len(h.firstBias)), make([]float32, len(h.firstBias)), make([]float32, len(h.firstBias))
	}
	return s
}

// pre is the first linear maps of an x0: of the cross part and of the MLP, each
// empty if the head has none that reads x0.
type pre struct{ cross, deep []float32 }

func (h *head) newPre() pre {
	return pre{make([]float32, len(h.firstBias)), make([]float32, len(h.begins))}
}

func (p pre) copyFrom(o pre) {
	copy(p.cross, o.cross)
	copy(p.deep, o.deep)
}

// begin sets p to the first linear maps of x0.
func (s *tile) begin(p pre, x0 []float32) {
	h := s.h
	if h.first != nil {
		kernel.Affine(p.cross, x0, h.first, h.firstBias)
	}
	if h.deep == nil {
		return
	}
	s.player, s.value = s.player[:0], s.value[:0]
	for i, v := range x0 {
		if v != 0 {
			s.player, s.value = append(s.player, int32(i)), append(s.value, v)
		}
	}
	copy(p.deep, h.begins)
	h.deep.Steps(kernel.Tile{Values: s.a}, p.deep, s.player, s.value, false, nil)
}

// put sets slot i to the state x0. The head evaluates the MLP's first layer, if it
// reads x0, for all slots at once.
func (s *tile) put(i int, x0 []float32) {
	if s.h.first == nil {
		copy(s.in.Row(i), x0)
		return
	}
	kernel.Affine(s.inner, x0, s.h.first, s.h.firstBias)
	s.putCross(i, x0, s.inner)
	if s.h.deep != nil {
		copy(s.in.Row(i), x0)
	}
}

// putCross sets the cross part of slot i to that of x0, whose first linear map is
// pre.
func (s *tile) putCross(i int, x0, pre []float32) {
	var out []float32
	if s.h.kind == DCNMix {
		out = s.mixLayers(x0, pre)
	} else {
		out = s.crossLayers(x0, pre)
	}
	if s.h.crossOutput != nil {
		s.cross[i] = kernel.Dot(out, s.h.crossOutput)
	} else {
		copy(s.in.Row(i), out)
	}
}

// logits sets each element of dst to its slot's, as put sets them.
func (s *tile) logits(dst []float64) { s.mlp(dst, s.in, nil, s.h.layers) }

// stepLogits does the same after len(dst) steps from p: step t adds change[t] to
// x0's element player[t]. The cross part, if any, has been put. next is a hint: who
// will appear in the next tile.
func (s *tile) stepLogits(dst []float64, p pre, player []int32, change []float32, next []int32) {
	if len(dst) == 0 {
		return
	}
	if s.h.deep == nil {
		s.logits(dst)
		return
	}
	width := s.h.layers[0].Out
	mask := s.mask[:(width+63)/64]
	in := kernel.Tile{Values: s.a, Stride: kernel.Pad(width)}
	s.h.deep.Steps(in, p.deep, player, change, true, mask)
	s.h.deep.Prefetch(next)
	s.list = mask.List(s.list[:0])
	s.mlp(dst, in, s.list, s.h.layers[1:])
}

// mlp runs layers on in, whose active columns are list, and sums up the logits.
// in is s.in, or lies in s.a.
func (s *tile) mlp(dst []float64, in kernel.Tile, list []int32, layers []*kernel.Matrix) {
	for i, l := range layers {
		out := kernel.Tile{Values: s.b, Stride: kernel.Pad(l.Out)}
		s.a, s.b = s.b, s.a
		if i == len(layers)-1 { // whose active units nobody asks for
			l.Layer(out, in, len(dst), list, true, nil)
			in = out
			break
		}
		mask := s.mask[:(l.Out+63)/64]
		l.Layer(out, in, len(dst), list, true, mask)
		s.list = mask.List(s.list[:0])
		in, list = out, s.list
	}
	for i := range dst {
		dst[i] = float64(s.h.bias) + s.cross[i]
		if s.h.kind != FM {
			dst[i] += kernel.Dot(in.Row(i)[:len(s.h.output)], s.h.output)
		}
	}
}
