package paired

import (
	"math"
	"slices"
	"sort"

	"shaver/internal/jobs/scores"
	"shaver/internal/value/tally"
)

// Halves writes two estimates of phi of a feature's entries to a and b, each [d], for the
// rule job.Overlap. Each comes from one half of the rows and the coefficients of the
// other half. Both contain the previous value, so they agree better than two independent
// jobs would. Their differences show only what the sample adds. Halves returns false and
// writes nothing if New knows no halves.
func (s *Estimate) Halves(feature int, a, b []float64) bool {
	if s.first == nil {
		return false
	}
	at := sort.Search(len(s.spans), func(i int) bool { return s.spans[i].Row > feature }) - 1
	p := &s.fields[s.spans[at].Field].pool[sum]
	from, to := s.load(feature)
	for c := range to - from {
		old := s.previous.Phi[from+c]
		halves := [2]tally.Paired{s.firstPairs[c], rest(&s.pairs[c], &s.firstPairs[c])}
		for h, into := range [2][]float64{a, b} {
			coefficient := 1 + p.shift[1-h]
			x, y := means(&halves[h], sum)
			into[c] = float64(coefficient*old) + (x-float64(coefficient*y))/s.half[h]
		}
	}
	return true
}

// Result returns the result of the job without Values, which Values writes. sampled is the
// result of the rows that the job computed (tally.Accumulator.Check). The counts and the
// numbers of rows are those of the previous job, because the values are those of its rows. The
// losses are those of the previous job plus the mean differences between the models. If the
// job computed all rows, all of these are its own. The efficiency error is always that of the
// computed rows.
func (s *Estimate) Result(sampled *tally.Result) tally.Result {
	r := s.previous.Result
	full, empty := s.all.PreviousLosses()
	r.LossFull = max(0, r.LossFull+(sampled.LossFull-full))
	r.LossEmpty = max(0, r.LossEmpty+(sampled.LossEmpty-empty))
	if s.left == 0 {
		r.Rows, r.Count, r.LossFull, r.LossEmpty = sampled.Rows, sampled.Count, sampled.LossFull, sampled.LossEmpty
	}
	r.EfficiencyError, r.EfficiencySE, r.Walked = sampled.EfficiencyError, sampled.EfficiencySE, sampled.Walked
	r.Values = tally.Values{}
	return r
}

// Lineage returns the lineage of the values. model is the digest of the new model.
func (s *Estimate) Lineage(model string) *scores.Lineage {
	l := &scores.Lineage{Generation: 1, Models: []string{s.previous.Spec.Model}, Rows: s.all.Rows()}
	if old := s.previous.Lineage; old != nil {
		l.Generation, l.Models = old.Generation+1, slices.Clone(old.Models)
	}
	l.Models = append(l.Models, model)
	var variance, left, squares, squaresLeft float64
	for j := range s.fields {
		p := &s.fields[j].pool
		fieldVariance, fieldLeft := p[sum].all.varX(s.n), p[sum].all.residual(p[sum].b, s.n)
		variance, left = variance+fieldVariance, left+fieldLeft
		squares, squaresLeft = squares+p[square].all.varX(s.n), squaresLeft+p[square].all.residual(p[square].b, s.n)
		l.Fields = append(l.Fields, scores.PairedField{
			Field: s.previous.Fields[j], Reduction: reduction(fieldVariance, fieldLeft), Sum: p[sum].b, Abs: p[abs].b, RMS: p[square].b,
		})
	}
	l.Reduction, l.RMSReduction = reduction(variance, left), reduction(squares, squaresLeft)
	if s.phi2 > 0 {
		rows := min(2*s.n, s.full)
		l.Error = math.Sqrt(s.variance / s.phi2)
		l.Plain = math.Sqrt((1 - rows/s.full) * variance / rows / s.phi2)
	}
	if s.phi2 > 0 && l.Error > 0 {
		l.Previous = s.previousError(l.Error)
	}
	return l
}

// previousError returns the relative error of the previous values as those of the new model, if it
// is less than that of the paired ones, and otherwise nil. The paired values differ from the previous
// ones by the true change and by the noise of the sample, which are independent. The mean square of
// the change is therefore that of the difference minus the variance of the noise.
func (s *Estimate) previousError(paired float64) *float64 {
	e := math.Sqrt(max(0, s.moved-s.sampled)+s.old) / math.Sqrt(s.phi2)
	if e >= paired {
		return nil
	}
	return &e
}

// reduction returns the quotient of two variances, at most scores.MaxReduction. It is 1 if
// both are 0.
func reduction(variance, left float64) float64 {
	switch {
	case variance == 0 && left == 0:
		return 1
	case !(variance < scores.MaxReduction*left):
		return scores.MaxReduction
	}
	return variance / left
}
