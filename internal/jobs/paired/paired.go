// Package paired estimates the values of a paired job. Such a job computes a previous model
// and a new model on a sample of the rows, with the same random numbers, and corrects the
// previous values by the differences. The estimate is unbiased, and its error is that of the
// difference between the models.
//
// The job has N rows, of which it computes n; f = n/N. For one entry and one aggregate, x is
// c, |c| or c^2 of a row under the new model, and y the same under the previous one. X' is
// the previous mean of y over all rows, and E' the variance of X' about what a full job would
// have computed. The rows are divided into two halves, A and B. With a coefficient b,
//
//	X = b X' + mean(x - b y)
//	E = (1-f) s2(x - b y) / n + b^2 E'
//
// are the new mean and its variance about what a full job with the new model and the same
// seed would compute. E is least if b is
//
//	sum of Cov(x, y) / (sum of Var(y) + sum of E' n/(1-f))
//
// where the sums are over the entries of a field. An estimate of b from the same rows would
// make X biased. Each half therefore has the coefficient of the other half. With b = 0 the
// estimate is that of a plain sample. With models that are alike, b is about 1. If the
// models are equal and E' is 0, b is exactly 1, and all values equal the previous ones bit
// for bit. If n = N, b is 0, and the values equal those of a full job bit for bit. Only SE
// may then differ, because the sums have no variances within rows.
package paired

import (
	"shaver/internal/click/model"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/tally"
)

// Sums are the sums of a paired job over some of its rows. *tally.Accumulator has them.
type Sums interface {
	Rows() int64
	Count(feature int) int64 // number of rows in which the feature occurs
	Paired(feature int, e tally.Sampling, into []tally.Paired)
	Fourths(field int) tally.Fourths
	PreviousLosses() (full, empty float64) // mean losses of the previous model, nat
}

// Estimate is the estimate of a paired job. It has a few numbers for each field and refers
// to the sums and the previous values, which must not change. Only one goroutine may use an
// Estimate at a time.
type Estimate struct {
	all, first Sums // first is nil if it or the rest of the rows is empty
	sampling   tally.Sampling
	previous   *scores.File
	spans      []model.Span
	bound      bool // SE is an upper bound; see tally.Sampling.Bound

	n, full float64    // n and N
	half    [2]float64 // number of rows in each half
	left    float64    // 1-f, the portion of the rows that are not computed
	fields  []field    // [m]
	// Sums over all entries of phi^2 and of the variances of phi, nat^2.
	phi2, variance float64
	// moved and sampled are sums over entries: of the squared difference between the new and the previous
	// phi, and of the part of variance that is not inherited. old is that of the previous values' own variance.
	moved, sampled, old float64

	pairs, firstPairs []tally.Paired // scratch, [d]
	values            tally.Values   // scratch, [d]
}

// The aggregates, as indices. square is the mean of c^2, the square of the aggregate rms.
const (
	sum = iota
	abs
	square
	aggregates
)

// field has what the entries of a field share.
type field struct {
	pool      [aggregates]pool
	second    float64 // sum over the entries of their previous mean squares
	spread    float64 // sum over the entries of the spreads of their previous mean squares
	occurring float64 // sum over the entries of the number of rows in which they occur, in the previous job
}

// pool is the sum of the moments of all entries of a field, for an aggregate.
type pool struct {
	half      [2]moments
	all       moments
	inherited [2]float64 // sum of E', for each half
	shift     [2]float64 // b-1 of each half
	b         float64    // mean of b over all rows: the coefficient of the previous values

	// excess is the ratio of the sum of the variances s2(x - b y) to the sum of the previous
	// mean squares, or for square to the sum of the spreads of these mean squares.
	excess float64
	// Only for square: kurtosis is the ratio of the sums of (x - b y)^2 to those of shape.
	// prior is the ratio of the means of y^2 to the previous spreads.
	kurtosis, prior float64
}

// New returns the estimate from the sums of all rows that a job computed, and from those of
// the first half of them. first may be nil or empty, or have all the rows. In these cases
// nothing is known about the halves, and all coefficients are 1. e describes the sampling
// of the job, with e.Rows = N. previous has the previous values, for features and fields as in
// all; a feature that the previous model lacks has a count and values of 0. all must have at
// least one row.
func New(all, first Sums, e tally.Sampling, previous *scores.File) *Estimate {
	widest := previous.Shape.Widest()
	s := &Estimate{
		all: all, first: first, sampling: e, previous: previous, spans: previous.Layout.Spans(), bound: previous.Sampling().Bound(),
		n: float64(all.Rows()), full: float64(e.Rows), fields: make([]field, len(previous.Layout.FieldDims)),
		pairs: make([]tally.Paired, widest), firstPairs: make([]tally.Paired, widest), values: tally.NewPairedValues(widest),
	}
	s.left = max(0, 1-s.n/s.full)
	if first != nil && first.Rows() > 0 && first.Rows() < all.Rows() {
		s.half = [2]float64{float64(first.Rows()), float64(all.Rows() - first.Rows())}
	} else {
		s.first, s.half = nil, [2]float64{s.n, 0}
	}
	s.addFields()
	for g := range s.fields {
		for a := range s.fields[g].pool {
			s.setCoefficients(&s.fields[g].pool[a])
		}
	}
	s.addTotals()
	return s
}

// addFields adds up the moments of the entries of each field.
func (s *Estimate) addFields() {
	fourths := make([]float64, len(s.fields)) // by field: sum of the squares of the previous mean squares
	for _, span := range s.spans {
		g := &s.fields[span.Field]
		for row := range span.Rows {
			feature := span.Row + row
			from, to := s.load(feature)
			for c, i := 0, from; i < to; c, i = c+1, i+1 {
				halves := [2]tally.Paired{s.pairs[c], {}}
				if s.first != nil {
					halves = [2]tally.Paired{s.firstPairs[c], rest(&s.pairs[c], &s.firstPairs[c])}
				}
				inherited := s.inherited(i, 0, 0)
				for a := range g.pool {
					g.pool[a].all.add(momentsOf(&s.pairs[c], a))
					g.pool[a].half[0].add(momentsOf(&halves[0], a))
					g.pool[a].half[1].add(momentsOf(&halves[1], a))
					if a != square || s.previous.Lineage != nil {
						g.pool[a].inherited[0] += inherited[a]
						g.pool[a].inherited[1] += inherited[a]
					}
				}
				second := s.earlierSquare(feature, i, &s.pairs[c])
				g.second, g.spread = g.second+second, g.spread+s.spread(feature, second)
				g.occurring += float64(s.previous.Count[feature])
				mean := squared(s.previous.RMS[i])
				fourths[span.Field] += float64(mean * mean)
			}
		}
	}
	for j := range s.fields {
		p := &s.fields[j].pool[square]
		all, first := s.all.Fourths(j), tally.Fourths{}
		p.all.setFourths(all)
		if s.first != nil {
			first = s.first.Fourths(j)
			p.half[0].setFourths(first)
		} else {
			p.half[0].setFourths(all)
			first = all
		}
		p.half[1].setFourths(restFourths(all, first))
		if spread := s.fields[j].spread; spread > 0 {
			p.prior = all.Previous / s.n / spread
		}
		if s.previous.Lineage != nil {
			continue
		}
		// E' is estimated from the rows that estimate the covariance, because a few rows may
		// dominate both.
		for h := range p.half {
			if s.half[h] > 0 {
				p.inherited[h] = s.unscored() * max(0, p.half[h].y2/s.half[h]-fourths[j])
			}
		}
	}
}

// load fills s.pairs and s.firstPairs with the sums of a feature, and returns its entries.
func (s *Estimate) load(feature int) (from, to int) {
	from, to = s.previous.Shape.Row(feature)
	s.all.Paired(feature, s.sampling, s.pairs[:to-from])
	if s.first != nil {
		s.first.Paired(feature, s.sampling, s.firstPairs[:to-from])
	}
	return from, to
}

// setCoefficients sets the coefficients of a pool from its moments. If x and y are 0 in all
// rows, nothing speaks against the previous values, and b is 1. If y is 0 in all rows and x
// is not, b is 0.
func (s *Estimate) setCoefficients(p *pool) {
	for h := range p.shift {
		n := s.half[h]
		varX, varY := p.half[h].varX(n), p.half[h].varY(n)
		switch least := varY + float64(p.inherited[h]*s.n/s.left); {
		case s.left == 0:
			p.shift[h] = -1
		case s.first == nil || varX == 0 && varY == 0:
			p.shift[h] = 0
		case !(least > 0):
			p.shift[h] = -1
		default:
			p.shift[h] = min(max(p.half[h].cov(n)/least, 0), 2) - 1
		}
	}
	p.b = 1 + (float64(s.half[0]/s.n*p.shift[1]) + float64(s.half[1]/s.n*p.shift[0]))
	if p.shift[0] == -1 && p.shift[1] == -1 {
		p.b = 0
	}
}

// entry returns the number of entry c of a feature among all entries.
func (s *Estimate) entry(feature, c int) int {
	from, _ := s.previous.Shape.Row(feature)
	return from + c
}

// addTotals computes the pooled variances, and then the sums over all entries.
func (s *Estimate) addTotals() {
	for j := range s.fields {
		g := &s.fields[j]
		for a := range square {
			if g.second > 0 {
				g.pool[a].excess = g.pool[a].all.residual(g.pool[a].b, s.n) / g.second
			}
		}
		if p := &g.pool[square]; g.spread > 0 {
			p.excess = p.all.second(p.b) / s.n / g.spread
		}
	}
	shapes := make([]float64, len(s.fields))
	for _, span := range s.spans {
		for row := range span.Rows {
			feature := span.Row + row
			v := s.values.Part(0, span.Dim)
			v.Abs, v.RMS, v.SE, v.PopulationSE, v.AbsPairedSE, v.RMSPairedSE = nil, nil, nil, nil, nil, nil
			s.write(feature, span.Field, v)
			for c, phi := range v.Phi {
				s.phi2, s.variance = s.phi2+float64(phi*phi), s.variance+squared(v.PairedSE[c])
				i, b := s.entry(feature, c), s.fields[span.Field].pool[sum].b
				change, inherited := phi-s.previous.Phi[i], s.inherited(i, 0, 0)[sum]
				s.moved, s.old = s.moved+float64(change*change), s.old+inherited
				s.sampled += max(0, squared(v.PairedSE[c])-float64(b*b*inherited))
				shapes[span.Field] += s.shape(feature, c, s.fields[span.Field].pool[square].b)
			}
		}
	}
	for j := range s.fields {
		if p := &s.fields[j].pool[square]; shapes[j] > 0 {
			p.kurtosis = p.all.second(p.b) / shapes[j]
		}
	}
}
