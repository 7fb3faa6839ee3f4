package tally

import (
	"errors"
	"fmt"
	"math"
	"math/big"
)

// Summary holds the sums of a job that are not those of entries, and the totals over all
// entries. They decide whether the efficiency identity holds.
type Summary struct {
	Rows     int64     `json:"rows"`
	Walked   int64     `json:"walked,omitempty"` // sum of Partial.Walked
	Fresh    int64     `json:"fresh,omitempty"`  // sum of Partial.Fresh
	Weights  Weights   `json:"weights,omitzero"` // sum of Partial.Weights
	Current  TotalSums `json:"current"`
	Previous TotalSums `json:"previous,omitzero"` // in a paired job, of the previous model; otherwise 0
	Paired   bool      `json:"paired,omitempty"`  // whether the job is paired
}

// TotalSums are GameSums with the total of the contributions, in the same form.
type TotalSums struct {
	GameSums
	Total [2]int64 // sum of the contributions of all entries, corrected ones if there are corrections
}

// Summary returns the summary of a.
func (a *Accumulator) Summary() *Summary {
	s := &Summary{Rows: a.rows, Walked: a.walked, Fresh: a.fresh, Weights: a.weights, Current: TotalSums{a.current.state(), a.total(sumList)}, Paired: a.form.Paired}
	if s.Paired {
		s.Previous = TotalSums{a.previous.state(), a.total(previousList)}
	}
	return s
}

// Summary returns the summary of the rows of p, which is not of a round of a path.
func (p *Partial) Summary() *Summary {
	var g games
	g.add(p)
	var current, previous wide // totals of the contributions
	for _, x := range p.Sum {
		current.add(x)
	}
	for _, x := range p.Correction {
		current.add(x)
	}
	for _, x := range p.PreviousSum {
		previous.add(x)
	}
	if h := p.High; h != nil {
		for _, x := range h.Sum {
			current.addHigh(x)
		}
		for _, x := range h.Correction {
			current.addHigh(x)
		}
		for _, x := range h.PreviousSum {
			previous.addHigh(x)
		}
	}
	s := &Summary{Rows: p.Rows, Walked: p.Walked, Fresh: p.Fresh, Weights: p.Weights, Current: TotalSums{g.current.state(), [2]int64{current.carry, current.low}}, Paired: p.PreviousSum != nil}
	if s.Paired {
		s.Previous = TotalSums{g.previous.state(), [2]int64{previous.carry, previous.low}}
	}
	return s
}

// Add adds the totals of o, which summarises the same rows for other entries. It returns an
// error if the rows of o are others. The job must not be paired.
func (s *Summary) Add(o *Summary) error {
	same := *o
	same.Current.Total = s.Current.Total
	if same != *s {
		return errors.New("two ranges of the table were summed over different rows")
	}
	total := wide{s.Current.Total[0] + o.Current.Total[0], s.Current.Total[1]}
	total.add(o.Current.Total[1])
	s.Current.Total = [2]int64{total.carry, total.low}
	return nil
}

// Check returns the result without the values, the shape and the counts. It returns an error if
// the efficiency identity is violated; see [Accumulator.Result].
func (s *Summary) Check(e Sampling) (*Result, error) {
	if s.Rows == 0 {
		return nil, fmt.Errorf("no rows were scored")
	}
	w := e.weigh(s.Rows, s.Fresh, s.Weights)
	full, empty := s.Current.losses(w)
	r := &Result{Rows: s.Rows, Walked: s.Walked, Fresh: s.Fresh, Weight: s.Weights.Sum, LossFull: full, LossEmpty: empty}
	residual := s.Current.residual(e.Walks)
	if e.Shares {
		if err := s.identities(e, EfficiencyTolerance); err != nil {
			return nil, err
		}
		residual -= s.Current.shared(e.Walks)
	}
	r.EfficiencyError = math.Abs(residual) / w.sum
	if e.Efficient {
		return r, s.identities(e, EfficiencyTolerance)
	}
	r.EfficiencySE = s.residualError(e, residual, &s.Current)
	if e.Corrected {
		if err := s.unbiased(e, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// residual returns, in nat, the sum over rows of (the sum of the row's mean
// contributions) - (empty - full) under one model.
func (g *TotalSums) residual(walks int) float64 {
	sums := g.sums()
	due := new(big.Int).Sub(sums.lossEmpty.big(), sums.lossFull.big())
	due.Mul(due, big.NewInt(int64(walks)))
	residual, _ := new(big.Float).SetInt(due.Sub(wide{g.Total[0], g.Total[1]}.big(), due)).Float64()
	return residual * LossUnit / float64(walks)
}

// losses returns the mean losses over the rows with nothing and with everything dropped, in nat.
func (g *TotalSums) losses(w weights) (full, empty float64) {
	sums := g.sums()
	return sums.lossFull.float() * LossUnit / w.sum, sums.lossEmpty.float() * LossUnit / w.sum
}

// shared returns what was shared out over all rows, in nat.
func (g *TotalSums) shared(walks int) float64 {
	return wide{g.Shared[0], g.Shared[1]}.float() * LossUnit / float64(walks)
}

// residualError returns the standard error of the mean residual under a model. residual is
// the sum over rows.
func (s *Summary) residualError(e Sampling, residual float64, g *TotalSums) float64 {
	square := wide{g.ResidualSquare[0], g.ResidualSquare[1]}
	w := e.weigh(s.Rows, s.Fresh, s.Weights)
	_, se := e.errors(w, w.centre(residual), square.float()*SquareUnit*e.unit()*e.unit(), 0)
	return se
}

// unbiased returns an error if the mean residual of a model, before residuals are shared out,
// shows that an estimator with corrections is biased. r has the results of Check.
func (s *Summary) unbiased(e Sampling, r *Result) error {
	if err := s.withinError(r.EfficiencyError, r.EfficiencySE, r.LossFull, r.LossEmpty); err != nil || !s.Paired {
		return err
	}
	residual := s.Previous.residual(e.Walks) - s.Previous.shared(e.Walks)
	w := e.weigh(s.Rows, s.Fresh, s.Weights)
	full, empty := s.Previous.losses(w)
	if err := s.withinError(math.Abs(residual)/w.sum, s.residualError(e, residual, &s.Previous), full, empty); err != nil {
		return fmt.Errorf("previous model: %w", err)
	}
	return nil
}

// withinError returns an error if the mean residual of a model, off, is not 0 within its
// standard error. All arguments are means over rows, in nat. A single row has no standard
// error and passes.
func (s *Summary) withinError(off, se, lossFull, lossEmpty float64) error {
	if s.Rows < 2 {
		return nil
	}
	most := bound(float64(s.Rows))
	if off > float64(most*se)+EfficiencyTolerance*(1+lossFull+lossEmpty) {
		return fmt.Errorf("the estimator is biased: over %d rows the sum of the scores, before residuals are shared out, is off by %g nat, which is more than %.4g times its standard error, %g; an unbiased estimator is off by that much less than once in a million jobs",
			s.Rows, off, most, se)
	}
	return nil
}

// partialTolerance is the tolerance of a partial, in multiples of EfficiencyTolerance. Errors of the float32
// arithmetic of single rows average out over a job, but not over a partial of few rows.
const partialTolerance = 100

// CheckIdentity returns an error if p violates the efficiency identity by more than rounding explains in
// few rows. It returns nil if the estimator does not satisfy the identity.
func (p *Partial) CheckIdentity(e Sampling) error {
	if !e.Efficient && !e.Shares {
		return nil
	}
	return p.Summary().identities(e, partialTolerance*EfficiencyTolerance)
}

// identities returns an error if the efficiency identity of a model is violated.
func (s *Summary) identities(e Sampling, tolerance float64) error {
	if err := s.identity(&s.Current, e, tolerance); err != nil || !s.Paired {
		return err
	}
	if err := s.identity(&s.Previous, e, tolerance); err != nil {
		return fmt.Errorf("previous model: %w", err)
	}
	return nil
}

// identity returns an error if the efficiency identity of a model is violated.
func (s *Summary) identity(g *TotalSums, e Sampling, tolerance float64) error {
	w := e.weigh(s.Rows, s.Fresh, s.Weights)
	full, empty := g.losses(w)
	off := math.Abs(g.residual(e.Walks)) / w.sum
	if allowed := tolerance * (1 + full + empty); off > allowed {
		return fmt.Errorf("efficiency identity violated: over %d rows the sum of the scores differs by %g nat from the mean loss with everything dropped, %g, minus that with nothing dropped, %g; rounding explains at most %g",
			s.Rows, off, empty, full, allowed)
	}
	return nil
}
