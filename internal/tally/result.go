package tally

import (
	"fmt"
	"math"
	"math/big"
)

// Scores is the merged, normalised result over all n features.
type Scores struct {
	Dim   int
	Count []int64 // rows in which the feature occurs, [n]
	Values
}

// Feature copies the entries of a feature to the slices of into, each [d].
func (s *Scores) Feature(feature int, into Values) {
	from := s.Part(feature*s.Dim, (feature+1)*s.Dim)
	copy(into.Phi, from.Phi)
	copy(into.Abs, from.Abs)
	copy(into.RMS, from.RMS)
	copy(into.SE, from.SE)
	copy(into.PopulationSE, from.PopulationSE)
}

// Values is what is told of entries, [n, d] or of one feature [d]: of the mean
// contribution c of a row's player over its walks, which is 0 in the rows that do
// not activate the entry, over all rows scored. A slice that is nil is not told.
type Values struct {
	Phi          []float64 // the mean of c: Shapley values in nat; above 0 means useful
	Abs          []float32 // the mean of |c|, nat
	RMS          []float32 // the root of the mean of c^2, nat
	SE           []float32 // standard error of Phi as an estimate of the dataset's own value, nat; see Estimate
	PopulationSE []float32 // the same, of the value of the population that the rows are drawn from
}

// NewValues returns room for n entries.
func NewValues(n int) Values {
	return Values{make([]float64, n), make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)}
}

// Part returns the entries [from, to).
func (v *Values) Part(from, to int) Values {
	return Values{v.Phi[from:to], v.Abs[from:to], v.RMS[from:to], v.SE[from:to], v.PopulationSE[from:to]}
}

// Result is a finished job's scores and the facts that prove them.
type Result struct {
	Scores
	Rows            int64
	LossFull        float64 // mean loss with nothing dropped, nat
	LossEmpty       float64 // mean loss with everything dropped, nat
	EfficiencyError float64 // |sum of all phi - (LossEmpty - LossFull)|, nat
	// EfficiencySE is, for estimators whose rows do not satisfy the efficiency
	// identity, the standard error of the mean over rows of how far a row's
	// contributions sum off: an estimator without bias has an EfficiencyError of
	// about that, and what is beyond two of it is bias. It is 0 for the others.
	EfficiencySE float64
}

// EfficiencyTolerance is the most that the scores may sum off LossEmpty -
// LossFull, in nat for each nat of 1 + LossFull + LossEmpty. The float32 updates
// of a walk stay two orders below it.
const EfficiencyTolerance = 1e-5

// Result normalises: every sum is divided by rows and walks (Algorithm 1
// divides by all rows, not by those in which a feature occurs). It checks the
// efficiency identity, sum of phi = LossEmpty - LossFull, on the exact integers.
// The two losses were computed from scratch, beside the contributions, so that for
// an estimator that is efficient a larger difference than EfficiencyTolerance means
// wrong or lost work: an error.
func (a *Accumulator) Result(e Sampling) (*Result, error) {
	r, err := a.Check(e)
	if err != nil {
		return nil, err
	}
	r.Values = NewValues(a.features * a.dim)
	for f := range a.features {
		a.Values(f, e, r.Part(f*a.dim, (f+1)*a.dim))
	}
	return r, nil
}

// Values writes what is told of a feature's entries into v, for those who do not
// hold them all: what Result has of it.
func (a *Accumulator) Values(feature int, e Sampling, v Values) {
	rows, walks := float64(a.rows), float64(e.Walks)
	put := func(into []float32, c int, value float64) {
		if into != nil {
			into[c] = float32(value)
		}
	}
	for c := range a.dim {
		at := feature*a.lists*a.dim + c
		sum, square, within := a.cell(at)*LossUnit/walks, a.cell(at+2*a.dim)*SquareUnit, 0.0
		if a.lists == Lists(true) {
			within = a.cell(at+3*a.dim) * SquareUnit / (walks * walks)
		}
		if v.Phi != nil {
			v.Phi[c] = sum / rows
		}
		dataset, population := e.errors(rows, sum, square, within)
		put(v.Abs, c, a.cell(at+a.dim)*LossUnit/walks/rows)
		put(v.RMS, c, math.Sqrt(square/rows))
		put(v.SE, c, dataset)
		put(v.PopulationSE, c, population)
	}
}

// Totals writes the sums over rows of the mean contributions of a feature's players
// into totals, [d]: Phi times the rows. They are the same until the feature occurs again.
func (a *Accumulator) Totals(feature int, e Sampling, totals []float64) {
	for c := range totals {
		totals[c] = a.cell(feature*a.lists*a.dim+c) * LossUnit / float64(e.Walks)
	}
}

// cell returns the sum in a cell.
func (a *Accumulator) cell(at int) float64 {
	if len(a.carries) == 0 {
		return float64(a.cells[at])
	}
	return wide{a.carries[at], a.cells[at]}.float()
}

// Check is Result without Values.
func (a *Accumulator) Check(e Sampling) (*Result, error) {
	if a.rows == 0 {
		return nil, fmt.Errorf("no row was scored")
	}
	rows := float64(a.rows)
	r := &Result{
		Scores: Scores{Dim: a.dim, Count: a.count},
		Rows:   a.rows, LossFull: a.lossFull.float() * LossUnit / rows, LossEmpty: a.lossEmpty.float() * LossUnit / rows,
	}
	residual := a.residual(e.Walks)
	r.EfficiencyError = math.Abs(residual) / rows
	if !e.Efficient {
		_, r.EfficiencySE = e.errors(rows, residual, a.residualSquare.float()*SquareUnit, 0)
		return r, nil
	}
	if allowed := EfficiencyTolerance * (1 + r.LossFull + r.LossEmpty); r.EfficiencyError > allowed {
		return nil, fmt.Errorf("efficiency identity violated: over %d rows the scores sum to %g nat off mean loss empty %g - full %g; at most %g is rounding",
			a.rows, r.EfficiencyError, r.LossEmpty, r.LossFull, allowed)
	}
	return r, nil
}

// residual returns the sum over rows of how far their mean contributions sum off
// empty - full, in nat.
func (a *Accumulator) residual(walks int) float64 {
	var total wide
	for from := 0; from < len(a.cells); from += a.lists * a.dim {
		for _, sum := range a.cells[from : from+a.dim] {
			total.add(sum)
		}
	}
	for at, carry := range a.carries {
		if at%(a.lists*a.dim) < a.dim { // of a sum
			total.carry += carry
		}
	}
	due := new(big.Int).Sub(a.lossEmpty.big(), a.lossFull.big())
	due.Mul(due, big.NewInt(int64(walks)))
	residual, _ := new(big.Float).SetInt(due.Sub(total.big(), due)).Float64()
	return residual * LossUnit / float64(walks)
}
