package tally

import (
	"fmt"
	"maps"
	"math/big"
	"slices"

	"shaver/internal/num/layout"
)

// Accumulator adds up partials exactly, in any order. It uses 8 bytes per entry for each
// list of sums (see [Lists]) and 8 bytes per feature. A map holds the carries of the few
// sums that overflow int64. Use NewAccumulator; the zero value is not usable. Only one
// goroutine may use an Accumulator at a time.
type Accumulator struct {
	shape   layout.Shape
	form    Form
	lists   int
	rows    int64
	walked  int64 // sum of Partial.Walked
	fresh   int64 // sum of Partial.Fresh
	weights Weights
	games   // previous only in a paired job
	count   []int64
	cells   []int64       // for each feature, its d values of each list; they lie together because merging is limited by memory bandwidth
	carries map[int]int64 // by cell: multiples of 2^64 to add
	fourths []Powers      // [m], by field; nil unless the job is paired
}

// gameSums holds the sums of a model that are not those of entries.
type gameSums struct{ lossFull, lossEmpty, residualSquare, shared wide }

// games are the sums of both models of a job.
type games struct{ current, previous gameSums }

// add adds the sums of a partial.
func (g *games) add(p *Partial) {
	c, old := &g.current, &g.previous
	sums := [...]*wide{&c.lossFull, &c.lossEmpty, &c.residualSquare, &c.shared, &old.lossFull, &old.lossEmpty, &old.residualSquare, &old.shared}
	for k, x := range p.heads() {
		sums[k].add(*x)
	}
	if p.High != nil {
		for k, x := range p.High.heads() {
			sums[k].addHigh(*x)
		}
	}
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

// NewAccumulator returns an empty accumulator for partials of the given form and tables of
// the given shape.
func NewAccumulator(shape layout.Shape, form Form) *Accumulator {
	form.mustBeValid()
	lists := Lists(form)
	a := &Accumulator{
		shape: shape, form: form, lists: lists,
		count: make([]int64, shape.Rows()),
		cells: make([]int64, lists*shape.Entries()), carries: map[int]int64{},
	}
	if form.Paired {
		a.fourths = make([]Powers, form.Fields)
	}
	return a
}

// Clone returns a copy of a that shares no memory with a.
func (a *Accumulator) Clone() *Accumulator {
	b := *a
	b.count, b.cells, b.carries, b.fourths = slices.Clone(a.count), slices.Clone(a.cells), maps.Clone(a.carries), slices.Clone(a.fourths)
	return &b
}

// Merge validates p, except for Check, and adds it. If it returns an error, it has added nothing.
func (a *Accumulator) Merge(p *Partial) error {
	if err := p.validate(&a.shape, a.form); err != nil {
		return err
	}
	for field := range p.Fourths {
		a.fourths[field].add(&p.Fourths[field])
	}
	a.rows += p.Rows
	a.walked += p.Walked
	a.fresh += p.Fresh
	a.weights.add(p.Weights)
	a.games.add(p)
	var all [2 * maxLists][]int64
	for i, list := range p.AllLists() {
		all[i] = *list
	}
	lists, from := all[:a.lists], 0
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
		if p.High != nil {
			into = a.lists * first
			for _, list := range all[a.lists:][:a.lists] {
				a.addHigh(into, list[from:from+dim])
				into += dim
			}
		}
		from += dim
	}
	return nil
}

// addHigh adds multiples x of 2^63 to consecutive cells.
func (a *Accumulator) addHigh(into int, x []int64) {
	for c, v := range x {
		if v != 0 {
			at := into + c
			sum := wide{a.carries[at], a.cells[at]}
			sum.addHigh(v)
			a.carries[at], a.cells[at] = sum.carry, sum.low
		}
	}
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
	Shape    layout.Shape
	Form     Form
	Rows     int64
	Current  GameSums
	Previous GameSums // in a paired job, of the previous model; otherwise 0
	Count    []int64
	Cells    []int64       // for each feature, its d values of each list
	Carries  map[int]int64 // by cell: multiples of 2^64 to add
	Fourths  []Powers      // [m], by field; nil unless the job is paired
	Walked   int64         // sum of Partial.Walked
	Fresh    int64         // sum of Partial.Fresh
	Weights  Weights       // sum of Partial.Weights
}

// GameSums holds the sums of one model that are not those of entries. Each is {carry,
// low}, for carry*2^64 + low. The units are those of [Partial].
type GameSums struct {
	LossFull, LossEmpty, ResidualSquare, Shared [2]int64
}

func (g *gameSums) state() GameSums {
	pair := func(w wide) [2]int64 { return [2]int64{w.carry, w.low} }
	return GameSums{LossFull: pair(g.lossFull), LossEmpty: pair(g.lossEmpty), ResidualSquare: pair(g.residualSquare), Shared: pair(g.shared)}
}

func (s *GameSums) sums() gameSums {
	wide := func(pair [2]int64) wide { return wide{pair[0], pair[1]} }
	return gameSums{wide(s.LossFull), wide(s.LossEmpty), wide(s.ResidualSquare), wide(s.Shared)}
}

func (s *GameSums) negative() bool {
	return s.LossFull[0] < 0 || s.LossEmpty[0] < 0 || s.ResidualSquare[0] < 0
}

// State returns the content of a. The slices and maps share memory with a.
func (a *Accumulator) State() State {
	return State{a.shape, a.form, a.rows, a.current.state(), a.previous.state(), a.count, a.cells, a.carries, a.fourths, a.walked, a.fresh, a.weights}
}

// Restore sets the rows, losses, residuals, carries and fourth powers of a from s. a must
// otherwise be empty. Restore does not set Count and Cells: before the call, the caller
// fills the slices of a.State(), which have the same lengths for a table of the same size
// and the same form. Restore returns an error if the content is invalid.
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
	if s.Current.negative() || s.Previous.negative() || s.Rows < 0 {
		return fmt.Errorf("negative sum of losses or squares, or negative number of rows %d", s.Rows)
	}
	if s.Walked < 0 || s.Walked > s.Rows {
		return fmt.Errorf("walks in %d of %d rows", s.Walked, s.Rows)
	}
	if s.Fresh < 0 || s.Fresh > s.Rows {
		return fmt.Errorf("%d fresh rows of %d", s.Fresh, s.Rows)
	}
	if err := s.Weights.check(a.form, s.Rows); err != nil {
		return err
	}
	if !a.form.Paired && s.Previous != (GameSums{}) {
		return fmt.Errorf("losses of a previous model, expected none, because the job is not paired")
	}
	if len(s.Fourths) != len(a.fourths) {
		return fmt.Errorf("fourth powers of %d fields, expected %d", len(s.Fourths), len(a.fourths))
	}
	a.rows, a.walked, a.fresh, a.weights, a.carries = s.Rows, s.Walked, s.Fresh, s.Weights, s.Carries
	a.current, a.previous = s.Current.sums(), s.Previous.sums()
	copy(a.fourths, s.Fourths)
	return nil
}

// Rows returns the number of rows merged.
func (a *Accumulator) Rows() int64 { return a.rows }

// Counts returns a copy of the number of rows in which each feature occurs.
func (a *Accumulator) Counts() []int64 { return slices.Clone(a.count) }

// Count returns the number of rows in which a feature occurs.
func (a *Accumulator) Count(feature int) int64 { return a.count[feature] }
