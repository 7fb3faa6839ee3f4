package model

import "shaver/internal/kernel"

// tile evaluates a head for some states at once: rows of a batch, or consecutive
// steps of a walk, which have most of their active units in common
// (docs/kernels.md). It is for one goroutine.
//
// Its use for rows: put each one's embedding into a slot, then logits. For a walk:
// begin, start, then stepLogits for each size of steps. Every state's logit depends
// on nothing but the state, to the bit.
type tile struct {
	h     *head
	size  int         // states at once
	in    kernel.Tile // x0 of rows
	block *block      // the cross part; nil if the head has none

	// the MLP, kernel.TileRows() states at once
	a, b   []float32   // activations of two consecutive layers; a holds the latest
	mask   kernel.Mask // of active units, and their list; nil if lists are of no use
	list   []int32
	player []int32   // begin's nonzero entries
	value  []float32 // theirs
}

// steps are consecutive steps of a walk: step t adds change[t] to x0's element
// player[t].
type steps struct {
	player []int32
	change []float32
	x      []float32 // x0 after all of them, [D]
	next   []int32   // a hint: who will appear after them
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
		copy(p.deep, s.h.begins)
		s.h.deep.Steps(last, p.deep, s.player, s.value, false, nil)
	}
}

// start begins a walk from x0.
func (s *tile) start(x0 []float32) {
	if s.block != nil {
		s.block.start(x0)
	}
}

// put sets slot i to the state x0.
func (s *tile) put(i int, x0 []float32) {
	if s.h.kind != FM {
		copy(s.in.Row(i), x0)
	}
}

// logits sets each element of dst to its slot's, as put sets them.
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

// stepLogits sets the elements of dst to the logits after each of as many steps
// from p, at most size, which it changes.
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

// deepLogits is stepLogits of an MLP that reads x0, for a tile of steps.
func (s *tile) deepLogits(dst []float64, p pre, player []int32, change []float32, next []int32) {
	width := s.h.layers[0].Out
	mask := s.maskOf(width)
	in := kernel.Tile{Values: s.a, Stride: kernel.Pad(width)}
	s.h.deep.Steps(in, p.deep, player, change, true, mask)
	s.h.deep.Prefetch(next)
	s.mlp(dst, in, s.listOf(mask), s.h.layers[1:])
}

// maskOf returns a mask of so many units, nil if lists are of no use.
func (s *tile) maskOf(width int) kernel.Mask {
	if s.mask == nil {
		return nil
	}
	return s.mask[:(width+63)/64]
}

// listOf returns the list of a mask, which the next overwrites; nil for nil.
func (s *tile) listOf(mask kernel.Mask) []int32 {
	if mask == nil {
		return nil
	}
	s.list = mask.List(s.list[:0])
	return s.list
}

// stackedLogits is the MLP on the block's cross state.
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

// rowsFrom returns the rows of t from i on.
func rowsFrom(t kernel.Tile, i int) kernel.Tile {
	return kernel.Tile{Values: t.Values[i*t.Stride:], Stride: t.Stride}
}

// mlp runs layers on a tile, whose active columns are list, and sums up the
// logits. in is not in s.b.
func (s *tile) mlp(dst []float64, in kernel.Tile, list []int32, layers []*kernel.Matrix) {
	for i, l := range layers {
		out := kernel.Tile{Values: s.b, Stride: kernel.Pad(l.Out)}
		s.a, s.b = s.b, s.a
		if i == len(layers)-1 { // whose active units nobody asks for
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
