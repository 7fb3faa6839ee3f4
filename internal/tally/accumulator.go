package tally

import (
	"fmt"
	"math/big"
)

// Accumulator adds up partials exactly, in any order. It takes 16 bytes an
// entry and 8 a feature: the rare entry whose sum leaves int64 has its carries
// in a map. Its zero value is not usable; it is for one goroutine.
type Accumulator struct {
	features, dim       int
	rows                int64
	lossFull, lossEmpty wide
	count               []int64
	sum, square         []int64
	carrySum            map[int]int64 // entry -> multiples of 2^64 to add to sum
	carrySquare         map[int]int64
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

// carryOf is what an overflow by adding x is worth, in multiples of 2^64.
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

// NewAccumulator returns an empty accumulator for a table of features x dim.
func NewAccumulator(features, dim int) *Accumulator {
	return &Accumulator{
		features: features, dim: dim,
		count: make([]int64, features),
		sum:   make([]int64, features*dim), square: make([]int64, features*dim),
		carrySum: map[int]int64{}, carrySquare: map[int]int64{},
	}
}

// Merge adds p, which it checks first: on an error nothing has been added.
func (a *Accumulator) Merge(p *Partial) error {
	if err := p.Validate(a.features, a.dim); err != nil {
		return err
	}
	a.rows += p.Rows
	a.lossFull.add(p.LossFull)
	a.lossEmpty.add(p.LossEmpty)
	for i, f := range p.Features {
		a.count[f] += p.Count[i]
		for c := range a.dim {
			into, from := int(f)*a.dim+c, i*a.dim+c
			addTo(a.sum, a.carrySum, into, p.Sum[from])
			addTo(a.square, a.carrySquare, into, p.Square[from])
		}
	}
	return nil
}

func addTo(sums []int64, carries map[int]int64, at int, x int64) {
	sum, ok := add(sums[at], x)
	sums[at] = sum
	if !ok {
		carries[at] += carryOf(x)
	}
}

// State is all that an accumulator holds, for storing it.
type State struct {
	Rows                  int64
	LossFull, LossEmpty   [2]int64 // multiple of 2^64, and what is added to it
	Count, Sum, Square    []int64
	CarrySum, CarrySquare map[int]int64 // by entry: multiples of 2^64 to add
}

// State returns what a holds. The slices and maps are a's own.
func (a *Accumulator) State() State {
	return State{a.rows, [2]int64{a.lossFull.carry, a.lossFull.low}, [2]int64{a.lossEmpty.carry, a.lossEmpty.low},
		a.count, a.sum, a.square, a.carrySum, a.carrySquare}
}

// Restore gives a, which must be empty, the rows, losses and carries of a State.
// The caller fills the slices of a.State, which has the same lengths for a table
// of the same size. It reports what no accumulator has.
func (a *Accumulator) Restore(s State) error {
	for _, carries := range []map[int]int64{s.CarrySum, s.CarrySquare} {
		for at := range carries {
			if at < 0 || at >= len(a.sum) {
				return fmt.Errorf("a carry for entry %d of %d", at, len(a.sum))
			}
		}
	}
	for f, n := range a.count {
		if n < 0 || n > s.Rows {
			return fmt.Errorf("feature %d occurs in %d of %d rows", f, n, s.Rows)
		}
	}
	if s.LossFull[0] < 0 || s.LossEmpty[0] < 0 || s.Rows < 0 {
		return fmt.Errorf("negative losses or %d rows", s.Rows)
	}
	a.rows, a.carrySum, a.carrySquare = s.Rows, s.CarrySum, s.CarrySquare
	a.lossFull, a.lossEmpty = wide{s.LossFull[0], s.LossFull[1]}, wide{s.LossEmpty[0], s.LossEmpty[1]}
	return nil
}

// Rows returns how many rows were merged.
func (a *Accumulator) Rows() int64 { return a.rows }

// Result is a finished job's scores and the facts that prove them.
type Result struct {
	Scores
	Rows            int64
	LossFull        float64 // mean loss with nothing dropped, nat
	LossEmpty       float64 // mean loss with everything dropped, nat
	EfficiencyError float64 // |sum of all phi - (LossEmpty - LossFull)|, nat
}

// EfficiencyTolerance is the most that the scores may sum off LossEmpty -
// LossFull, in nat for each nat of 1 + LossFull + LossEmpty. The float32 updates
// of a walk stay two orders below it.
const EfficiencyTolerance = 1e-5

// Result normalises: every sum is divided by rows and passes (Algorithm 1
// divides by all rows, not by those in which a feature occurs). It checks the
// efficiency identity, sum of phi = LossEmpty - LossFull, on the exact integers.
// The two losses were computed from scratch, beside the contributions, so that a
// larger difference than EfficiencyTolerance means wrong or lost work: an error.
func (a *Accumulator) Result(passes int, spread Spread) (*Result, error) {
	if a.rows == 0 {
		return nil, fmt.Errorf("no row was scored")
	}
	draws := float64(a.rows) * float64(passes)
	r := &Result{
		Scores: Scores{Dim: a.dim, Count: a.count, Phi: make([]float64, len(a.sum)), SE: make([]float64, len(a.sum))},
		Rows:   a.rows, LossFull: a.lossFull.float() * LossUnit / float64(a.rows), LossEmpty: a.lossEmpty.float() * LossUnit / float64(a.rows),
	}
	var total wide
	for i := range a.sum {
		sum := wide{a.carrySum[i], a.sum[i]}
		square := wide{a.carrySquare[i], a.square[i]}
		total.add(sum.low)
		total.carry += sum.carry
		r.Phi[i] = sum.float() * LossUnit / draws
		r.SE[i] = standardError(spread, sum.float()*LossUnit, square.float()*SquareUnit, float64(a.rows), float64(passes))
	}
	want := new(big.Int).Sub(a.lossEmpty.big(), a.lossFull.big())
	want.Mul(want, big.NewInt(int64(passes)))
	difference, _ := new(big.Float).SetInt(want.Sub(total.big(), want).Abs(want)).Float64()
	r.EfficiencyError = difference * LossUnit / draws
	if allowed := EfficiencyTolerance * (1 + r.LossFull + r.LossEmpty); r.EfficiencyError > allowed {
		return nil, fmt.Errorf("efficiency identity violated: over %d rows the scores sum to %g nat off mean loss empty %g - full %g; at most %g is rounding",
			a.rows, r.EfficiencyError, r.LossEmpty, r.LossFull, allowed)
	}
	return r, nil
}
