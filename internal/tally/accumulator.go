package tally

import (
	"fmt"
	"math"
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
	cells               []int64       // of each feature d sums and then d squares: merging is bound by memory
	carries             map[int]int64 // cell -> multiples of 2^64 to add
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
		cells: make([]int64, 2*features*dim), carries: map[int]int64{},
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
	dim := a.dim
	for i, f := range p.Features {
		a.count[f] += p.Count[i]
		from, into := i*dim, 2*int(f)*dim
		if addAll(a.cells[into:into+dim], p.Sum[from:from+dim]) {
			carry(a.carries, into, a.cells[into:into+dim], p.Sum[from:from+dim])
		}
		if into += dim; addAll(a.cells[into:into+dim], p.Square[from:from+dim]) {
			carry(a.carries, into, a.cells[into:into+dim], p.Square[from:from+dim])
		}
	}
	return nil
}

// addAll adds x to sums and reports whether one of them left int64. Merging is
// bound by memory: there is no branch in the way of the next feature's.
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

// carry notes which of the sums, from cell at on, left int64 as x was added.
func carry(carries map[int]int64, at int, sums, x []int64) {
	for c, v := range x {
		if _, ok := add(sums[c]-v, v); !ok {
			carries[at+c] += carryOf(v)
		}
	}
}

// State is all that an accumulator holds, for storing it.
type State struct {
	Rows                int64
	LossFull, LossEmpty [2]int64 // multiple of 2^64, and what is added to it
	Count               []int64
	Cells               []int64       // of each feature d sums and then d squares
	Carries             map[int]int64 // by cell: multiples of 2^64 to add
}

// State returns what a holds. The slices and maps are a's own.
func (a *Accumulator) State() State {
	return State{a.rows, [2]int64{a.lossFull.carry, a.lossFull.low}, [2]int64{a.lossEmpty.carry, a.lossEmpty.low},
		a.count, a.cells, a.carries}
}

// Restore gives a, which must be empty, the rows, losses and carries of a State.
// The caller fills the slices of a.State, which has the same lengths for a table
// of the same size. It reports what no accumulator has.
func (a *Accumulator) Restore(s State) error {
	for at := range s.Carries {
		if at < 0 || at >= len(a.cells) {
			return fmt.Errorf("a carry for cell %d of %d", at, len(a.cells))
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
	a.rows, a.carries = s.Rows, s.Carries
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
	// EfficiencyExpected is, for estimators whose rows do not satisfy the
	// efficiency identity, the error that the standard errors would explain: the
	// root of the sum of their squares, as if entries erred independently of each
	// other. What is far beyond it is bias. It is 0 for the other estimators.
	EfficiencyExpected float64
}

// EfficiencyTolerance is the most that the scores may sum off LossEmpty -
// LossFull, in nat for each nat of 1 + LossFull + LossEmpty. The float32 updates
// of a walk stay two orders below it.
const EfficiencyTolerance = 1e-5

// Estimate says what an estimator's sums are.
type Estimate struct {
	Walks     int    // contributions in a row's sum of a player
	Spread    Spread // what squares are
	Efficient bool   // whether a row's sums add up to its loss with everything dropped minus that with nothing dropped, times Walks
}

// Result normalises: every sum is divided by rows and walks (Algorithm 1
// divides by all rows, not by those in which a feature occurs). It checks the
// efficiency identity, sum of phi = LossEmpty - LossFull, on the exact integers.
// The two losses were computed from scratch, beside the contributions, so that for
// an estimator that is efficient a larger difference than EfficiencyTolerance means
// wrong or lost work: an error.
func (a *Accumulator) Result(e Estimate) (*Result, error) {
	r, err := a.Check(e)
	if err != nil {
		return nil, err
	}
	r.Phi, r.SE = make([]float64, len(a.cells)/2), make([]float64, len(a.cells)/2)
	for f := range a.features {
		a.Values(f, e, r.Phi[f*a.dim:(f+1)*a.dim], r.SE[f*a.dim:(f+1)*a.dim])
	}
	return r, nil
}

// Values writes the scores of a feature, and their standard errors, into phi and
// se, of length d: what Result has of it, for those who do not hold them all.
func (a *Accumulator) Values(feature int, e Estimate, phi, se []float64) {
	rows := float64(a.rows)
	draws := rows * float64(e.Walks)
	for c := range a.dim {
		at := 2*feature*a.dim + c
		sum := wide{a.carries[at], a.cells[at]}.float() * LossUnit
		square := wide{a.carries[at+a.dim], a.cells[at+a.dim]}.float() * SquareUnit
		phi[c] = sum / draws
		se[c] = standardError(e.Spread, sum, square, rows, float64(e.Walks))
	}
}

// Check is Result without Phi and SE.
func (a *Accumulator) Check(e Estimate) (*Result, error) {
	if a.rows == 0 {
		return nil, fmt.Errorf("no row was scored")
	}
	draws := float64(a.rows) * float64(e.Walks)
	r := &Result{
		Scores: Scores{Dim: a.dim, Count: a.count},
		Rows:   a.rows, LossFull: a.lossFull.float() * LossUnit / float64(a.rows), LossEmpty: a.lossEmpty.float() * LossUnit / float64(a.rows),
	}
	var total wide
	for from := 0; from < len(a.cells); from += 2 * a.dim {
		for _, sum := range a.cells[from : from+a.dim] {
			total.add(sum)
		}
	}
	for at, carry := range a.carries {
		if at%(2*a.dim) < a.dim { // of a sum
			total.carry += carry
		}
	}
	want := new(big.Int).Sub(a.lossEmpty.big(), a.lossFull.big())
	want.Mul(want, big.NewInt(int64(e.Walks)))
	difference, _ := new(big.Float).SetInt(want.Sub(total.big(), want).Abs(want)).Float64()
	r.EfficiencyError = difference * LossUnit / draws
	if !e.Efficient {
		r.EfficiencyExpected = a.expected(e)
		return r, nil
	}
	if allowed := EfficiencyTolerance * (1 + r.LossFull + r.LossEmpty); r.EfficiencyError > allowed {
		return nil, fmt.Errorf("efficiency identity violated: over %d rows the scores sum to %g nat off mean loss empty %g - full %g; at most %g is rounding",
			a.rows, r.EfficiencyError, r.LossEmpty, r.LossFull, allowed)
	}
	return r, nil
}

// expected returns Result's EfficiencyExpected.
func (a *Accumulator) expected(e Estimate) float64 {
	variance := 0.0
	phi, se := make([]float64, a.dim), make([]float64, a.dim)
	for f := range a.features {
		a.Values(f, e, phi, se)
		for _, s := range se {
			variance += float64(s * s)
		}
	}
	return math.Sqrt(variance)
}
