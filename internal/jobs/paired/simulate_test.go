package paired

import (
	"math"
	"math/rand/v2"

	"shaver/internal/click/model"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/layout"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

const dim = 2

// world is a dataset in which each row activates one feature of each field. The
// contributions of its rows under a sequence of models are known.
type world struct {
	dims     []int
	rows     int
	features [][]int // by field and row: feature, over all fields
	of       []int   // by feature: field
	models   [][]float64
	random   *rand.Rand
}

// newWorld returns a world with a few frequent features, many rare ones, and one that
// occurs in every row. It has one model.
func newWorld(rows int, seed uint64) *world {
	w := &world{dims: []int{8, 150, 1}, rows: rows, random: rand.New(rand.NewPCG(seed, 1))}
	base := 0
	for j, size := range w.dims {
		column := make([]int, rows)
		for r := range column {
			at := math.Pow(w.random.Float64(), 2.5) // low ids are frequent
			column[r] = base + min(size-1, int(at*float64(size)))
		}
		for range size {
			w.of = append(w.of, j)
		}
		w.features, base = append(w.features, column), base+size
	}
	w.models = [][]float64{w.noise()}
	return w
}

func (w *world) entries() int { return len(w.of) * dim }

// noise returns contributions for each row, field and column. Each entry has a scale and a
// mean of its own; the contributions have heavier tails than a normal distribution.
func (w *world) noise() []float64 {
	scale, mean := make([]float64, w.entries()), make([]float64, w.entries())
	for i := range scale {
		scale[i], mean[i] = .01*math.Exp(.7*w.random.NormFloat64()), .5*w.random.NormFloat64()
	}
	c := make([]float64, w.rows*len(w.dims)*dim)
	for i := range c {
		e := w.entry(i)
		c[i] = scale[e] * (mean[e] + w.random.NormFloat64()*math.Exp(.4*w.random.NormFloat64()))
	}
	return c
}

// entry returns the entry of a contribution.
func (w *world) entry(i int) int {
	row, at := i/(len(w.dims)*dim), i%(len(w.dims)*dim)
	return w.features[at/dim][row]*dim + at%dim
}

// retrain adds a model whose contributions are keep times those of the last one, plus
// change times independent ones.
func (w *world) retrain(keep, change float64) {
	last, other := w.models[len(w.models)-1], w.noise()
	next := make([]float64, len(last))
	for i := range next {
		next[i] = keep*last[i] + change*other[i]
	}
	w.models = append(w.models, next)
}

// sums are sums over rows. They implement Sums.
type sums struct {
	rows    int64
	count   []int64
	pairs   []tally.Paired
	fourths []tally.Fourths
}

func (s *sums) Rows() int64                           { return s.rows }
func (s *sums) Count(feature int) int64               { return s.count[feature] }
func (s *sums) Fourths(field int) tally.Fourths       { return s.fourths[field] }
func (s *sums) PreviousLosses() (full, empty float64) { return .4, .6 }
func (s *sums) Paired(f int, _ tally.Sampling, into []tally.Paired) {
	copy(into, s.pairs[f*dim:])
	for i := range into {
		into[i].SumSquare, into[i].PreviousSumSquare = into[i].Square, into[i].PreviousSquare
	}
}

// add computes the sums over the given rows, of models m-1 and m.
func (w *world) add(rows []int, m int) *sums {
	s := &sums{int64(len(rows)), make([]int64, len(w.of)), make([]tally.Paired, w.entries()), make([]tally.Fourths, len(w.dims))}
	before, now := w.models[m-1], w.models[m]
	for _, r := range rows {
		for j := range w.dims {
			f := w.features[j][r]
			s.count[f]++
			for k := range dim {
				at := (r*len(w.dims)+j)*dim + k
				c, p := now[at], before[at]
				e := &s.pairs[f*dim+k]
				e.Sum, e.Abs, e.Square = e.Sum+c, e.Abs+math.Abs(c), e.Square+c*c
				e.PreviousSum, e.PreviousAbs, e.PreviousSquare = e.PreviousSum+p, e.PreviousAbs+math.Abs(p), e.PreviousSquare+p*p
				e.DifferenceSquare += (c - p) * (c - p)
				e.AbsDifferenceSquare += (math.Abs(c) - math.Abs(p)) * (math.Abs(c) - math.Abs(p))
				q := &s.fourths[j]
				q.New, q.Previous, q.Difference = q.New+c*c*c*c, q.Previous+p*p*p*p, q.Difference+(c*c-p*p)*(c*c-p*p)
			}
		}
	}
	return s
}

// sampling describes a job with one walk per row.
func (w *world) sampling() tally.Sampling {
	return tally.NewSampling(estimator.Options{Estimator: estimator.Permutation, Passes: 1}, int64(w.rows))
}

// job returns the scores of model m over the given rows.
func (w *world) job(rows []int, m int) *scores.File {
	s := w.add(rows, max(m, 1))
	f := &scores.File{
		Fields: []string{"few", "many", "one"}, Layout: model.Architecture{FieldDims: w.dims, Dim: dim},
		Spec: job.Spec{Version: job.SpecVersion, Model: string(rune('a' + m)), Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}}, DatasetRows: int64(w.rows),
		Result: tally.Result{Rows: s.rows, LossFull: .5, LossEmpty: .7, Scores: tally.Scores{Shape: layout.Of(len(w.of), dim), Count: s.count, Values: tally.NewValues(w.entries())}},
	}
	n := float64(s.rows)
	for i := range f.Phi {
		p := s.pairs[i]
		if m == 0 {
			p.Sum, p.Abs, p.Square = p.PreviousSum, p.PreviousAbs, p.PreviousSquare
		}
		f.Phi[i], f.Abs[i], f.RMS[i] = p.Sum/n, float32(p.Abs/n), float32(math.Sqrt(p.Square/n))
		f.SE[i] = float32(math.Sqrt(max(0, p.Square-float64(p.Sum*p.Sum)/n) / (n - 1) / n))
		f.PopulationSE[i] = f.SE[i]
	}
	return f
}

func (w *world) allRows() []int { return w.random.Perm(w.rows) }

// paired returns the estimate and the file of a paired job on n rows from model m-1 to m,
// and the number of sampled rows of each feature.
func (w *world) paired(previous *scores.File, n, m int) (*Estimate, *scores.File, []int64) {
	rows := w.random.Perm(w.rows)[:n]
	all, first := w.add(rows, m), w.add(rows[:n/2], m)
	e := New(all, first, w.sampling(), previous)
	f := *previous
	f.Result = e.Result(&tally.Result{Rows: int64(n), LossFull: .41, LossEmpty: .61})
	f.Values = tally.NewPairedValues(w.entries())
	for feature := range w.of {
		e.Values(feature, f.Part(f.Shape.Row(feature)))
	}
	f.Spec.Model = string(rune('a' + m))
	f.Lineage = e.Lineage(f.Spec.Model)
	return e, &f, all.count
}

// aggregatesOf returns the aggregates of a file and the errors that pairing adds to them.
func aggregatesOf(f *scores.File, i int) (values, errors [3]float64) {
	return [3]float64{f.Phi[i], float64(f.Abs[i]), float64(f.RMS[i])}, [3]float64{float64(f.PairedSE[i]), float64(f.AbsPairedSE[i]), float64(f.RMSPairedSE[i])}
}

// quality is what many repetitions of a paired job show about an aggregate.
type quality struct {
	bias, square, predicted float64 // sums of (mean error)^2, error^2 and predicted error^2 over the entries
	covered, intervals      int
	rareSquare, rarePredict float64 // as square and predicted, in features with fewer than LeastRows sampled rows
	plain                   float64 // as square, of plain samples of the same rows
}

// enough is the number of sampled rows from which intervals are counted.
const enough = tally.LeastRows

// measure repeats a paired job on n rows from model m-1 to m and compares it with the truth.
func (w *world) measure(previous func() *scores.File, n, m, repeats int) (found [3]quality) {
	truth := w.job(w.allRows(), m)
	full := [][]float64{truth.Phi, nil, nil}
	full[abs], _ = truth.Aggregate(scores.Abs)
	full[square], _ = truth.Aggregate(scores.RMS)
	mean := make([][3]float64, w.entries())
	for range repeats {
		_, f, count := w.paired(previous(), n, m)
		sample := w.job(w.random.Perm(w.rows)[:n], m)
		for i := range mean {
			values, errors := aggregatesOf(f, i)
			for a, v := range values {
				q, d := &found[a], v-full[a][i]
				other := [3]float64{sample.Phi[i], float64(sample.Abs[i]), float64(sample.RMS[i])}[a] - full[a][i]
				q.plain += other * other
				mean[i][a] += d
				q.square, q.predicted = q.square+d*d, q.predicted+errors[a]*errors[a]
				if k := count[i/dim]; k >= enough {
					q.intervals++
					if math.Abs(d) <= 1.96*errors[a] {
						q.covered++
					}
				} else if k < tally.LeastRows {
					q.rareSquare, q.rarePredict = q.rareSquare+d*d, q.rarePredict+errors[a]*errors[a]
				}
			}
		}
	}
	for i := range mean {
		for a := range found {
			d, r := mean[i][a]/float64(repeats), float64(repeats)
			found[a].bias += d * d * r
		}
	}
	return found
}
