package tally

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"shaver/internal/estimator"
)

// Sampling says what an estimator's sums are, and of what they are a sample.
//
// Of N rows of the dataset n are scored, a portion f = n/N drawn at random. Let s2
// be the variance between rows of the mean contribution c, and w the mean over rows
// of the variance that c has about the row's own value, which the row's passes tell.
// s2 contains w. Then the variance of the mean of c is
//
//	s2/n                    about the value of the population that the dataset's rows come from
//	((1-f)*s2 + f*w)/n      about the dataset's own value
//
// If w is not told, the first is an upper bound of the second, and stands for it.
type Sampling struct {
	Passes    int   // independent estimates of a row
	Walks     int   // contributions in a row's sum of a player: Passes, or twice as many if a pass has two walks
	Rows      int64 // N
	Exact     bool  // a row's values have no error: w = 0
	Efficient bool  // a row's sums add up to its loss with everything dropped minus that with nothing dropped, times Walks
}

// NewSampling returns what the sums of an estimator are, for a dataset of the given
// number of rows, all of which or a sample of which is scored.
func NewSampling(o estimator.Options, rows int64) Sampling {
	t := o.Traits()
	return Sampling{Passes: o.Passes, Walks: o.Passes * max(1, t.WalksPerPass), Rows: rows, Exact: t.Exact, Efficient: t.Efficient}
}

// Within reports whether the sums have Partial.Within, the variances that two or
// more passes tell.
func (e Sampling) Within() bool { return e.Passes > 1 }

// Bound reports whether SE is an upper bound: w is not told.
func (e Sampling) Bound() bool { return !e.Exact && !e.Within() }

// errors returns the standard errors of the mean of c over n rows, from the sums
// over them of c, of its square, and of its variance about the row's own value. One
// row tells no variance between rows: its square stands for it, so that its value is
// as uncertain as it is large, and not certain.
func (e Sampling) errors(n, sum, square, within float64) (dataset, population float64) {
	between := square
	if n > 1 {
		between = max(0, square-float64(sum*sum)/n) / (n - 1)
	}
	population = math.Sqrt(between / n)
	if e.Bound() {
		return population, population
	}
	f := min(1, n/float64(e.Rows))
	return math.Sqrt((float64((1-f)*between) + float64(f*(within/n))) / n), population
}

// LeastRows is the least number of rows in which a feature has to occur for its
// entries to have intervals.
const LeastRows = 5

// Interval returns how many standard errors on each side of Phi make a 95% interval
// for the dataset's own value and for the population's, of the entries of a feature
// that occurs in count of the rows; NaN if these are fewer than LeastRows.
//
// They are Student's t. The rows that do not activate a feature contribute exactly
// 0, so that a variance between rows has count - 1 degrees of freedom. One within
// rows would have count * (Passes - 1), if the passes of a row were normal and rows
// alike; they are neither, and a third of it is what intervals that hold turn out
// to need (docs/estimators.md).
func (e Sampling) Interval(count, rows int64) (dataset, population float64) {
	if count < LeastRows {
		return math.NaN(), math.NaN()
	}
	population = quantile(float64(count - 1))
	if !e.Within() || rows < e.Rows {
		return population, population
	}
	return quantile(float64(count) * float64(e.Passes-1) / 3), population
}

// quantile returns the value of Student's t beyond which 2.5% lie. From a million
// degrees on it is the normal's to six digits, and gonum's inverse is not exact.
func quantile(degrees float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: min(degrees, 1e6)}.Quantile(0.975)
}
