package tally

import (
	"math"
	"slices"

	"shaver/internal/num/layout"
)

// Scores is the merged and normalised result for all n features. In a model with look-ups,
// a feature is a row of a table.
type Scores struct {
	Shape layout.Shape
	Count []int64 // [n], number of rows in which the feature occurs
	Values
}

// Feature copies the values of a feature's entries to the slices of into, each [d].
func (s *Scores) Feature(feature int, into Values) {
	from := s.Part(s.Shape.Row(feature))
	copy(into.Phi, from.Phi)
	copy(into.Abs, from.Abs)
	copy(into.RMS, from.RMS)
	copy(into.SE, from.SE)
	copy(into.PopulationSE, from.PopulationSE)
	copy(into.PairedSE, from.PairedSE)
	copy(into.AbsPairedSE, from.AbsPairedSE)
	copy(into.RMSPairedSE, from.RMSPairedSE)
	copy(into.Rank, from.Rank)
}

// Values holds statistics of all entries, or of the d entries of one feature. c is the mean
// contribution of a player over the walks of a row; c is 0 in rows that do not activate
// the entry. Means are over all scored rows. A nil slice means that the statistic is not
// available.
type Values struct {
	Phi          []float64 // mean of c: the Shapley value, nat; above 0 means useful
	Abs          []float32 // mean of |c|, nat
	RMS          []float32 // square root of the mean of c^2, in which a fresh row counts the square of its weight unless rows have weights, nat
	SE           []float32 // standard error of Phi as an estimate of the dataset's own value, nat; see Sampling
	PopulationSE []float32 // standard error of Phi as an estimate of the value in the population that the rows come from, nat

	// Only in the values of a paired job, otherwise nil: the standard errors of Phi, Abs and
	// RMS as estimates of what a full job with the same model and seed would have computed,
	// nat. Those of Phi are part of SE and PopulationSE.
	PairedSE, AbsPairedSE, RMSPairedSE []float32

	// Rank is the position of each entry in the order of drops, from 0, which is dropped
	// first. Only the scores of an estimator with the trait Ranks have it, and nothing else.
	Rank []int32
}

// NewValues returns Values with memory for n entries.
func NewValues(n int) Values {
	return Values{Phi: make([]float64, n), Abs: make([]float32, n), RMS: make([]float32, n), SE: make([]float32, n), PopulationSE: make([]float32, n)}
}

// NewPairedValues returns the Values of a paired job, with memory for n entries.
func NewPairedValues(n int) Values {
	v := NewValues(n)
	v.PairedSE, v.AbsPairedSE, v.RMSPairedSE = make([]float32, n), make([]float32, n), make([]float32, n)
	return v
}

// NewRanks returns Values that have only Rank, with memory for n entries.
func NewRanks(n int) Values { return Values{Rank: make([]int32, n)} }

// Part returns the entries [from, to).
func (v *Values) Part(from, to int) Values {
	if v.Rank != nil {
		return Values{Rank: v.Rank[from:to]}
	}
	part := Values{Phi: v.Phi[from:to], Abs: v.Abs[from:to], RMS: v.RMS[from:to], SE: v.SE[from:to], PopulationSE: v.PopulationSE[from:to]}
	if v.PairedSE != nil {
		part.PairedSE, part.AbsPairedSE, part.RMSPairedSE = v.PairedSE[from:to], v.AbsPairedSE[from:to], v.RMSPairedSE[from:to]
	}
	return part
}

// Result holds a finished job's scores and the facts by which they can be checked.
type Result struct {
	Scores
	Rows int64
	// Walked is the number of rows whose contributions were too large and were
	// replaced by those of walks.
	Walked    int64
	Fresh     int64   // number of rows that the model was not trained on; 0 if rows have weights
	Weight    int64   // sum of the weights of the rows; 0 if they have none
	LossFull  float64 // mean loss with nothing dropped, nat
	LossEmpty float64 // mean loss with everything dropped, nat
	// EfficiencyError is |sum of all phi - (LossEmpty - LossFull)| in nat, without what
	// Partial.Shared has added to phi.
	EfficiencyError float64
	// EfficiencySE is the standard error of the sum of all phi, for estimators whose rows
	// do not satisfy the efficiency identity before their residuals are shared out. It is
	// estimated from the residuals of the rows. An unbiased estimator has an EfficiencyError
	// of about EfficiencySE; more than twice as much indicates bias. For other estimators
	// EfficiencySE is 0.
	EfficiencySE float64
}

// EfficiencyTolerance is the largest allowed difference between the sum of all scores and
// LossEmpty - LossFull, in nat per nat of 1 + LossFull + LossEmpty. The rounding of
// float32 updates in a walk is a hundred times smaller.
const EfficiencyTolerance = 1e-5

// mostOff is the largest allowed EfficiencyError of an estimator with corrections, in standard
// errors. It applies if the job has many rows. If a job has few, its standard error may be
// far too small by chance, and the bound is the quantile of Student's t with the same
// probability.
const mostOff = 5

// bound returns mostOff for a job of n rows, at least 2.
func bound(n float64) float64 {
	if n > 1000 { // here gonum's inverse becomes inexact, and mostOff differs by less than 1%
		return mostOff
	}
	off := float64(mostOff) // a variable, because the quotient is rounded
	return exceeded(0.5*math.Erfc(off/math.Sqrt2), n-1)
}

// Result normalises the sums. It divides each sum by the numbers of rows and walks. As in
// Algorithm 1 of the paper, it counts all rows, and not only those in which a feature
// occurs.
//
// Result also checks the efficiency identity, sum of phi = LossEmpty - LossFull, on the
// exact integers. The two losses are computed from scratch, independently of the
// contributions. For an efficient estimator, a difference above EfficiencyTolerance is an
// error, because it means that work was wrong or lost.
func (a *Accumulator) Result(e Sampling) (*Result, error) {
	r, err := a.Check(e)
	if err != nil {
		return nil, err
	}
	r.Values = NewValues(a.shape.Entries())
	for f := range a.shape.Rows() {
		a.Values(f, e, r.Part(a.shape.Row(f)))
	}
	return r, nil
}

// Values writes the values of one feature's entries to v, for callers that do not keep
// all of them in memory. They equal those of Result. Nil slices of v are skipped.
func (a *Accumulator) Values(feature int, e Sampling, v Values) {
	w, walks, unit := e.weigh(a.rows, a.fresh, a.weights), float64(e.Walks), e.unit()
	squareUnit := SquareUnit * unit * unit
	put := func(into []float32, c int, value float64) {
		if into != nil {
			into[c] = float32(value)
		}
	}
	from, to := a.shape.Row(feature)
	dim := to - from
	for c := range dim {
		at := a.lists*from + c
		sum, square, within := a.cell(at)*LossUnit/walks, a.cell(at+2*dim)*squareUnit, 0.0
		if a.form.Within {
			within = a.cell(at+3*dim) * squareUnit / (walks * walks)
		}
		value, valueSquare := sum, square
		if list := a.form.CorrectionList(); list >= 0 {
			value = a.cellPair(at, at+list*dim) * LossUnit / walks
			valueSquare = a.cell(at+(list+1)*dim) * squareUnit
		}
		if v.Phi != nil {
			v.Phi[c] = value / w.sum
		}
		centre, mean := w.centre(value), square/w.squares
		if list := a.form.weightedList(); list >= 0 {
			phi, product := value/w.sum, a.cell(at+(list+1)*dim)*LossUnit*unit*unit
			centre = float64(2*phi*product) - float64(phi*phi*w.squares)
			mean = a.cell(at+list*dim) * SquareUnit * unit / w.sum
		}
		dataset, population := e.errors(w, centre, valueSquare, within)
		put(v.Abs, c, a.cell(at+dim)*LossUnit/walks/w.sum)
		put(v.RMS, c, math.Sqrt(mean))
		put(v.SE, c, dataset)
		put(v.PopulationSE, c, population)
	}
}

// Totals writes the sums over rows of the mean contributions of a feature's entries to
// totals, [d]. A total is Phi times the number of rows, and it changes only when another
// row with the feature is added.
func (a *Accumulator) Totals(feature int, e Sampling, totals []float64) {
	from, _ := a.shape.Row(feature)
	for c := range totals {
		at := a.lists*from + c
		total := a.cell(at)
		if list := a.form.CorrectionList(); list >= 0 {
			total = a.cellPair(at, at+list*len(totals))
		}
		totals[c] = total * LossUnit / float64(e.Walks)
	}
}

// cell returns the sum in a cell.
func (a *Accumulator) cell(at int) float64 {
	if len(a.carries) == 0 {
		return float64(a.cells[at])
	}
	return wide{a.carries[at], a.cells[at]}.float()
}

// cellPair returns the exact sum of two cells, rounded once.
func (a *Accumulator) cellPair(at, other int) float64 {
	sum := wide{a.carries[at], a.cells[at]}
	sum.add(a.cells[other])
	sum.carry += a.carries[other]
	return sum.float()
}

// Check is like Result, but leaves Values empty. In a paired job it checks the identity of
// both models.
func (a *Accumulator) Check(e Sampling) (*Result, error) {
	r, err := a.Summary().Check(e)
	if err != nil {
		return nil, err
	}
	r.Shape, r.Count = a.shape, a.count
	return r, nil
}

// total returns the sum of all entries of a list, and of their corrections, as {carry, low}.
func (a *Accumulator) total(list int) [2]int64 {
	var total wide
	lists := []int{list}
	if list := a.form.CorrectionList(); list >= 0 {
		lists = append(lists, list)
	}
	for f := range a.shape.Rows() {
		from, to := a.shape.Row(f)
		for _, list := range lists {
			for _, sum := range a.cells[a.lists*from+list*(to-from):][:to-from] {
				total.add(sum)
			}
		}
	}
	for at, carry := range a.carries {
		from, to := a.shape.Row(a.shape.RowOf(at / a.lists))
		if slices.Contains(lists, (at-a.lists*from)/(to-from)) {
			total.carry += carry
		}
	}
	return [2]int64{total.carry, total.low}
}
