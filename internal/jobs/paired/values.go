package paired

import (
	"math"
	"sort"

	"shaver/internal/value/tally"
)

// Values writes the values of a feature's entries to the slices of into that are not nil,
// each [d].
//
// Errors of features that occur in few of the sampled rows cannot be measured from their own
// rows: one in no row would have an error of 0. An entry in k < tally.LeastRows of the rows
// weighs its own variance by k/LeastRows. The rest is the entry's previous mean square
// times the ratio of all variances of its field to all previous mean squares. This assumes
// that the entries of a field change in proportion to their size. The weight rises with k,
// because otherwise an entry whose few rows happen to agree would look exact.
//
// The variance of c^2 - b p^2 is known only for whole fields. It is divided among the
// entries in proportion to the mean squares of |c| + r|p| and |c| - r|p|, where r is the
// root of b. This assumes that the contributions of all entries of a field, in the rows that
// activate them, have the same kurtosis. A division in proportion to the mean square of c
// alone would give too small an error to entries that change more than others.
//
// SE and PopulationSE have two independent parts: PairedSE, and what a full job would have.
// The second part follows from that of the previous values. It is scaled by the standard
// deviation of c between rows, because the contributions of the new model may be larger or
// smaller.
//
// Abs is at least |Phi|, and RMS at least Abs, as in a full job. If contributions are a base
// and a correction, Abs may be less than |Phi|, because it is that of the base.
func (s *Estimate) Values(feature int, into tally.Values) {
	at := sort.Search(len(s.spans), func(i int) bool { return s.spans[i].Row > feature }) - 1
	s.write(feature, s.spans[at].Field, into)
}

// write is Values for a feature of the given field.
func (s *Estimate) write(feature, j int, into tally.Values) {
	put := func(to []float32, c int, value float64) {
		if to != nil {
			to[c] = float32(value)
		}
	}
	g := &s.fields[j]
	from, to := s.load(feature)
	for c := range to - from {
		i := from + c
		old := [aggregates]float64{s.previous.Phi[i], float64(s.previous.Abs[i]), squared(s.previous.RMS[i])}
		phi, size, mean := s.mean(j, sum, c, old[sum]), s.mean(j, abs, c, old[abs]), s.mean(j, square, c, old[square])
		root := math.Sqrt(max(0, mean))
		if changed := phi != old[sum] || size != old[abs]; changed {
			least := math.Abs(phi)
			if s.sampling.Corrected {
				least = 0
			}
			size = max(size, least)
		}
		if changed := size != old[abs] || mean != old[square]; changed {
			root = max(root, float64(float32(size)))
		}
		if into.Phi != nil {
			into.Phi[c] = phi
		}
		put(into.Abs, c, size)
		put(into.RMS, c, root)
		inherited := s.inherited(i, g.pool[square].prior, s.spread(feature, old[square]))
		variance := func(aggregate int) float64 {
			p := &g.pool[aggregate]
			return s.left*s.between(feature, i, c, g, aggregate)/s.n + float64(p.b*p.b*inherited[aggregate])
		}
		added := variance(sum)
		put(into.PairedSE, c, math.Sqrt(added))
		if into.AbsPairedSE != nil {
			into.AbsPairedSE[c] = float32(math.Sqrt(variance(abs)))
		}
		if into.RMSPairedSE != nil {
			into.RMSPairedSE[c] = float32(RootError(variance(square), root))
		}
		dataset, population := s.fullErrors(i, c, phi, root, inherited[sum])
		put(into.SE, c, math.Sqrt(dataset+added))
		put(into.PopulationSE, c, math.Sqrt(population+added))
	}
}

// mean returns X for entry c of the feature that is loaded. old is X'.
func (s *Estimate) mean(j, aggregate, c int, old float64) float64 {
	p := &s.fields[j].pool[aggregate]
	x, y := means(&s.pairs[c], aggregate)
	if p.b == 0 {
		return x / s.n
	}
	// Each half has the coefficient of the other one.
	first, rest := y, 0.0
	if s.first != nil {
		_, first = means(&s.firstPairs[c], aggregate)
		rest = y - first
	}
	return float64(p.b*old) + (x-y-(float64(p.shift[1]*first)+float64(p.shift[0]*rest)))/s.n
}

// between returns s2(x - b y) of entry c of the feature that is loaded. i is its number
// among all entries.
func (s *Estimate) between(feature, i, c int, g *field, aggregate int) float64 {
	if aggregate == square {
		return s.squareBetween(feature, i, c, g)
	}
	p := &g.pool[aggregate]
	m := momentsOf(&s.pairs[c], aggregate)
	own := m.residual(p.b, s.n)
	k := float64(s.all.Count(feature))
	if k >= tally.LeastRows {
		return own
	}
	weight := k / tally.LeastRows
	return float64(weight*own) + float64((1-weight)*p.excess*s.typicalSquare(feature, i, c, g))
}

// squareBetween is between for square.
func (s *Estimate) squareBetween(feature, i, c int, g *field) float64 {
	p := &g.pool[square]
	x, y := means(&s.pairs[c], square)
	average := (x - float64(p.b*y)) / s.n
	weight := min(1, float64(s.all.Count(feature))/tally.LeastRows)
	own := max(0, float64(p.kurtosis*s.shape(feature, c, p.b)/s.n)-float64(average*average))
	return float64(weight*own) + float64((1-weight)*p.excess*s.spread(feature, s.typicalSquare(feature, i, c, g)))
}

// typicalSquare returns earlierSquare of entry c of the feature that is loaded, or, if that
// is 0, what the entry would have if its contributions were those of the field's other
// entries.
func (s *Estimate) typicalSquare(feature, i, c int, g *field) float64 {
	second := s.earlierSquare(feature, i, &s.pairs[c])
	if second == 0 && g.occurring > 0 {
		second = g.second / g.occurring * float64(s.previous.Count[feature])
	}
	return second
}

// shape returns the sum over rows of (x - b y)^2 of entry c of the feature that is loaded,
// for square, as it would be if its two factors |c| + r|p| and |c| - r|p| were equal in
// magnitude in all rows that activate the entry. r is the root of b.
func (s *Estimate) shape(feature, c int, b float64) float64 {
	p, r, k := &s.pairs[c], math.Sqrt(b), float64(s.all.Count(feature))
	if k == 0 {
		return 0
	}
	m := momentsOf(p, abs)
	minus := m.second(r)
	plus := max(0, float64(2*(p.Square+float64(b*p.PreviousSquare)))-minus)
	return minus * plus / k
}

// spread returns the mean over all rows of c^4 of an entry with the given mean of c^2, if
// its contributions are equal in magnitude in all rows that activate it.
func (s *Estimate) spread(feature int, mean float64) float64 {
	portion := float64(s.previous.Count[feature]) / max(1, float64(s.previous.Rows))
	if portion == 0 {
		portion = float64(s.all.Count(feature)) / s.n
	}
	if portion == 0 {
		return 0
	}
	return mean * mean / portion
}

// earlierSquare returns the mean square of an entry in the previous job, or in the sampled
// rows if it did not occur then.
func (s *Estimate) earlierSquare(feature, i int, p *tally.Paired) float64 {
	if s.previous.Count[feature] == 0 {
		return p.Square / s.n
	}
	return squared(s.previous.RMS[i])
}

// unscored returns (1-f)/n of the previous job. It is 0 if that job scored all rows. It is
// meant for a job that was not paired.
func (s *Estimate) unscored() float64 {
	n := float64(s.previous.Rows)
	if n == 0 {
		return 0
	}
	return max(0, 1-n/s.full) / n
}

// inherited returns E' of entry i, by aggregate. prior and spread are needed for square if
// the previous job was not paired.
func (s *Estimate) inherited(i int, prior, spread float64) [aggregates]float64 {
	old := s.previous
	if old.Lineage != nil {
		return [aggregates]float64{squared(old.PairedSE[i]), squared(old.AbsPairedSE[i]), RootVariance(float64(old.RMSPairedSE[i]), float64(old.RMS[i]))}
	}
	portion := s.unscored()
	if portion == 0 {
		return [aggregates]float64{}
	}
	mean := squared(old.RMS[i])
	sample := float64(old.Rows) / max(1, float64(old.Rows-1))
	value := portion * sample * max(0, mean-float64(old.Phi[i]*old.Phi[i]))
	if s.sampling.Corrected { // RMS is that of the base
		value = portion * float64(old.Rows) * squared(old.PopulationSE[i])
	}
	return [aggregates]float64{
		value,
		portion * sample * max(0, mean-squared(old.Abs[i])),
		portion * max(0, float64(prior*spread)-float64(mean*mean)),
	}
}

// RootError returns the standard error of the root of a mean square with the given
// variance. For a root near 0 it is the fourth root of the variance, because the roots of
// two numbers differ by at most the root of their difference.
func RootError(variance, root float64) float64 {
	deviation := math.Sqrt(variance)
	bound := math.Sqrt(deviation)
	if root == 0 {
		return bound
	}
	return min(bound, deviation/(2*root))
}

// RootVariance is the inverse of RootError.
func RootVariance(se, root float64) float64 {
	deviation := max(2*root*se, se*se)
	return deviation * deviation
}

// fullErrors returns the variances of phi in a full job, for the dataset's own value and
// for the population's value. c is the number of the entry in the feature that is loaded, i
// its number among all entries, and inherited its E'.
func (s *Estimate) fullErrors(i, c int, phi, root, inherited float64) (dataset, population float64) {
	old := s.previous
	if s.left == 0 && s.bound {
		m := momentsOf(&s.pairs[c], sum)
		variance := m.varX(s.n) / s.n
		return variance, variance
	}
	dataset, population = max(0, squared(old.SE[i])-inherited), max(0, squared(old.PopulationSE[i])-inherited)
	oldRoot := float64(old.RMS[i])
	if phi == old.Phi[i] && root == oldRoot {
		return dataset, population
	}
	before, now := float64(oldRoot*oldRoot)-float64(old.Phi[i]*old.Phi[i]), max(0, float64(root*root)-float64(phi*phi))
	if s.sampling.Corrected { // the roots are those of the base, so they may be less than |phi|
		before, now = oldRoot*oldRoot, root*root
	}
	if before > negligible*oldRoot*oldRoot {
		return dataset * (now / before), population * (now / before)
	}
	now /= max(1, s.full-1)
	return max(dataset, now), max(population, now)
}

// negligible is the portion of a mean square below which the difference between it and the
// square of the mean is rounding, because the root is a float32.
const negligible = 1e-5

// squared returns v^2. The conversion keeps the compiler from fusing the product with a sum,
// which would give other last bits on other processors.
func squared(v float32) float64 { return float64(float64(v) * float64(v)) }
