package model

import "shaver/internal/num/kernel"

// tile evaluates a head for several states at once. The states are rows of a batch, or
// consecutive steps of a walk, most of whose active units coincide (see docs/internals/kernels.md).
// Only one goroutine may use a tile at a time.
//
// To evaluate rows, call put for each row's embedding, then logits. To evaluate a walk,
// call begin and start, then stepLogits for up to size steps at a time. To the last bit,
// the logit of a state does not depend on the other states.
type tile struct {
	h     *head
	size  int         // maximal number of states
	in    kernel.Tile // x0 of each row
	block *block      // cross part; nil if the head has none

	// The MLP, for kernel.TileRows() states at a time.
	a, b   []float32   // activations of two consecutive layers; a holds the latest
	mask   kernel.Mask // mask of active units; nil if lists are useless
	list   []int32     // list of active units; nil if lists are useless
	player []int32     // players whose x0 is not 0, in begin
	value  []float32   // x0 of these players
}

// steps are consecutive steps of a walk. Step t adds change[t] to element player[t] of
// x0.
type steps struct {
	player []int32
	change []float32
	x      []float32 // [D], x0 after all these steps
	next   []int32   // the players that follow, as a hint for prefetching
}

func newTile(h *head) *tile {
	s := &tile{h: h, size: kernel.TileRows()}
	widest := 0
	for _, l := range h.layers {
		widest = max(widest, l.Out)
	}
	if h.deep != nil {
		widest = max(widest, h.deep.Out)
	}
	if h.first != nil {
		s.block, s.size = newBlock(h), kernel.States
		widest = max(widest, h.first.Out)
		if h.stacked != nil {
			widest = max(widest, h.stacked.Out)
		}
	}
	s.a, s.b = kernel.NewTile(kernel.TileRows(), widest).Values, kernel.NewTile(kernel.TileRows(), widest).Values
	if kernel.Lists() {
		s.mask, s.list = kernel.NewMask(widest), kernel.NewList(widest)
	}
	if h.kind != FM {
		s.in = newStates(h.players)
		s.player, s.value = make([]int32, 0, h.players), make([]float32, 0, h.players)
	}
	return s
}

// pre holds the first linear map of x0 for the cross part and for the MLP. A part that
// does not exist or does not read x0 has an empty slice.
type pre struct{ cross, deep []float32 }

func (h *head) newPre() pre {
	return pre{make([]float32, len(h.firstBias)), make([]float32, len(h.deepBias))}
}

func (p pre) copyFrom(o pre) {
	copy(p.cross, o.cross)
	copy(p.deep, o.deep)
}

// begin sets p to the first linear maps of x0.
func (s *tile) begin(p pre, x0 []float32) {
	s.player, s.value = s.player[:0], s.value[:0]
	for i, v := range x0 {
		if v != 0 && s.h.kind != FM {
			s.player, s.value = append(s.player, int32(i)), append(s.value, v)
		}
	}
	last := kernel.Tile{Values: s.a}
	if s.h.first != nil {
		copy(p.cross, s.h.firstBias)
		s.h.first.Steps(last, p.cross, s.player, s.value, false, nil)
	}
	if s.h.deep != nil {
		copy(p.deep, s.h.deepBias)
		s.h.deep.Steps(last, p.deep, s.player, s.value, false, nil)
	}
}

// start prepares the cross part for a walk from x0.
func (s *tile) start(x0 []float32) {
	if s.block != nil {
		s.block.start(x0)
	}
}

// put sets slot i to the embedding x0.
func (s *tile) put(i int, x0 []float32) {
	if s.h.kind != FM {
		copy(s.in.Row(i), x0)
	}
}

// logits sets each element of dst to the logit of the slot with the same number.
func (s *tile) logits(dst []float64) {
	if s.block == nil {
		s.mlp(dst, s.in, nil, s.h.layers)
		return
	}
	s.block.rows(s.in, len(dst))
	if s.h.stacked != nil {
		s.stackedLogits(dst)
		return
	}
	for from := 0; from < len(dst); from += kernel.TileRows() {
		s.mlp(dst[from:min(from+kernel.TileRows(), len(dst))], rowsFrom(s.in, from), nil, s.h.layers)
	}
	s.addCross(dst)
}

// stepLogits sets dst[t] to the logit after step t of walk. dst has one element per step,
// at most size. p holds the first linear maps before the steps, and after them when
// stepLogits returns.
func (s *tile) stepLogits(dst []float64, p pre, walk *steps) {
	if len(dst) == 0 {
		return
	}
	if s.block != nil {
		s.block.steps(p.cross, walk)
	}
	switch {
	case s.h.stacked != nil:
		s.stackedLogits(dst)
	case s.block != nil:
		tile := kernel.TileRows()
		for from := 0; from < len(dst); from += tile {
			to := min(from+tile, len(dst))
			s.deepLogits(dst[from:to], p, walk.player[from:to], walk.change[from:to], walk.player[to:min(to+tile, len(dst))])
		}
		s.addCross(dst)
	case s.h.deep != nil:
		s.deepLogits(dst, p, walk.player, walk.change, walk.next)
	default:
		s.logits(dst)
	}
}

// deepLogits is stepLogits for an MLP that reads x0, and at most one tile of steps.
func (s *tile) deepLogits(dst []float64, p pre, player []int32, change []float32, next []int32) {
	width := s.h.layers[0].Out
	mask := s.maskOf(width)
	in := kernel.Tile{Values: s.a, Stride: kernel.Pad(width)}
	s.h.deep.Steps(in, p.deep, player, change, true, mask)
	s.h.deep.Prefetch(next)
	s.mlp(dst, in, s.listOf(mask), s.h.layers[1:])
}

// maskOf returns a mask for width units, or nil if lists are useless.
func (s *tile) maskOf(width int) kernel.Mask {
	if s.mask == nil {
		return nil
	}
	return s.mask[:(width+63)/64]
}

// listOf returns the list of a mask, or nil if the mask is nil. The next call overwrites
// the list.
func (s *tile) listOf(mask kernel.Mask) []int32 {
	if mask == nil {
		return nil
	}
	s.list = mask.List(s.list[:0])
	return s.list
}

// stackedLogits runs the MLP on the block's cross state.
func (s *tile) stackedLogits(dst []float64) {
	in := s.block.mlpInput(len(dst))
	mask := s.maskOf(s.h.stacked.Out)
	for from := 0; from < len(dst); from += kernel.TileRows() {
		part := dst[from:min(from+kernel.TileRows(), len(dst))]
		tile := rowsFrom(in, from)
		if mask != nil {
			mask.Set(tile, len(part), s.h.stacked.Out)
		}
		s.mlp(part, tile, s.listOf(mask), s.h.layers)
	}
}

func (s *tile) addCross(dst []float64) {
	for i := range dst {
		dst[i] += s.block.output[i]
	}
}

// rowsFrom returns the rows of t from row i on.
func rowsFrom(t kernel.Tile, i int) kernel.Tile {
	return kernel.Tile{Values: t.Values[i*t.Stride:], Stride: t.Stride}
}

// mlp runs layers on a tile and sets dst to the logits. list holds the active columns of
// the input tile, whose memory must not be s.b.
func (s *tile) mlp(dst []float64, in kernel.Tile, list []int32, layers []*kernel.Matrix) {
	for i, l := range layers {
		out := kernel.Tile{Values: s.b, Stride: kernel.Pad(l.Out)}
		s.a, s.b = s.b, s.a
		if i == len(layers)-1 { // no layer follows that needs the active units
			l.Layer(out, in, len(dst), list, true, nil)
			in = out
			break
		}
		mask := s.maskOf(l.Out)
		l.Layer(out, in, len(dst), list, true, mask)
		in, list = out, s.listOf(mask)
	}
	for i := range dst {
		dst[i] = float64(s.h.bias)
		if s.h.kind != FM {
			dst[i] += kernel.Dot(in.Row(i)[:len(s.h.output)], s.h.output)
		}
	}
}
