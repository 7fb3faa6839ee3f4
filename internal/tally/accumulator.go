package tally

import (
	"fmt"
	"math/big"

	"shaver/internal/layout"
)

// Accumulator adds up partials exactly, in any order. It uses 8 bytes per entry for each
// list of sums (see [Lists]) and 8 bytes per feature. A map holds the carries of the few
// sums that overflow int64. Use NewAccumulator; the zero value is not usable. Only one
// goroutine may use an Accumulator at a time.
type Accumulator struct {
	shape                               layout.Shape
	lists                               int
	rows                                int64
	lossFull, lossEmpty, residualSquare wide
	count                               []int64
	cells                               []int64       // for each feature, its d values of each list; they lie together because merging is limited by memory bandwidth
	carries                             map[int]int64 // by cell: multiples of 2^64 to add
}

// wide is the integer carry * 2^64 + low.
type wide struct{ carry, low int64 }

func (w *wide) add(x int64) {
	sum, ok := add(w.low, x)
	w.low = sum
	if !ok {
		w.carry += carryOf(x)
	}
}

// carryOf returns the carry, in multiples of 2^64, if adding x overflows.
func carryOf(x int64) int64 {
	if x < 0 {
		return -1
	}
	return 1
}

func (w wide) big() *big.Int {
	v := new(big.Int).Lsh(big.NewInt(w.carry), 64)
	return v.Add(v, big.NewInt(w.low))
}

func (w wide) float() float64 { return float64(w.carry)*(1<<64) + float64(w.low) }

// NewAccumulator returns an empty accumulator for tables of the given shape. within states
// whether the partials have Within.
func NewAccumulator(shape layout.Shape, within bool) *Accumulator {
	lists := Lists(within)
	return &Accumulator{
		shape: shape, lists: lists,
		count: make([]int64, shape.Rows()),
		cells: make([]int64, lists*shape.Entries()), carries: map[int]int64{},
	}
}

// Merge validates p and adds it. If it returns an error, it has added nothing.
func (a *Accumulator) Merge(p *Partial) error {
	if err := p.Validate(&a.shape, a.lists == Lists(true)); err != nil {
		return err
	}
	a.rows += p.Rows
	a.lossFull.add(p.LossFull)
	a.lossEmpty.add(p.LossEmpty)
	a.residualSquare.add(p.ResidualSquare)
	all, from := p.lists(), 0
	lists := all[:a.lists]
	for i, f := range p.Features {
		a.count[f] += p.Count[i]
		first, end := a.shape.Row(int(f))
		dim, into := end-first, a.lists*first
		for _, list := range lists {
			if addAll(a.cells[into:into+dim], list[from:from+dim]) {
				carry(a.carries, into, a.cells[into:into+dim], list[from:from+dim])
			}
			into += dim
		}
		from += dim
	}
	return nil
}

// addAll adds x to sums and reports whether a sum overflowed int64. Merging is limited by
// memory bandwidth. The loop has no branches, so the processor can load the sums of the
// next feature early.
func addAll(sums, x []int64) (left bool) {
	sums = sums[:len(x)]
	over := int64(0)
	for c, v := range x {
		before := sums[c]
		sum := before + v
		sums[c] = sum
		over |= (before ^ sum) & (v ^ sum)
	}
	return over < 0
}

// carry records the sums that overflowed when x was added. at is the cell of the first
// sum.
func carry(carries map[int]int64, at int, sums, x []int64) {
	for c, v := range x {
		if _, ok := add(sums[c]-v, v); !ok {
			carries[at+c] += carryOf(v)
		}
	}
}

// State is the complete content of an accumulator, for storage.
type State struct {
	Shape                               layout.Shape
	Lists                               int
	Rows                                int64
	LossFull, LossEmpty, ResidualSquare [2]int64 // each is {carry, low}, for carry*2^64 + low
	Count                               []int64
	Cells                               []int64       // for each feature, its d values of each list
	Carries                             map[int]int64 // by cell: multiples of 2^64 to add
}

// State returns the content of a. The slices and maps share memory with a.
func (a *Accumulator) State() State {
	pair := func(w wide) [2]int64 { return [2]int64{w.carry, w.low} }
	return State{a.shape, a.lists, a.rows, pair(a.lossFull), pair(a.lossEmpty), pair(a.residualSquare), a.count, a.cells, a.carries}
}

// Restore sets the rows, losses, residuals and carries of a from s. a must otherwise be
// empty. Restore does not set Count and Cells: before the call, the caller fills the
// slices of a.State(), which have the same lengths for a table of the same size. Restore
// returns an error if the content is invalid.
func (a *Accumulator) Restore(s State) error {
	for at := range s.Carries {
		if at < 0 || at >= len(a.cells) {
			return fmt.Errorf("carry for cell %d, expected one of %d cells", at, len(a.cells))
		}
	}
	for f, n := range a.count {
		if n < 0 || n > s.Rows {
			return fmt.Errorf("feature %d occurs in %d of %d rows", f, n, s.Rows)
		}
	}
	if s.LossFull[0] < 0 || s.LossEmpty[0] < 0 || s.ResidualSquare[0] < 0 || s.Rows < 0 {
		return fmt.Errorf("negative sum of losses or squares, or negative number of rows %d", s.Rows)
	}
	wide := func(pair [2]int64) wide { return wide{pair[0], pair[1]} }
	a.rows, a.carries = s.Rows, s.Carries
	a.lossFull, a.lossEmpty, a.residualSquare = wide(s.LossFull), wide(s.LossEmpty), wide(s.ResidualSquare)
	return nil
}

// Rows returns the number of rows merged.
func (a *Accumulator) Rows() int64 { return a.rows }
