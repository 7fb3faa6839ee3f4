package tally

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mathext"

	"shaver/internal/value/estimator"
)

// Sampling describes how an estimator samples: how often it estimates each row, and from
// how many rows the scored rows are drawn.
//
// A job scores n of the dataset's N rows, drawn at random; f = n/N. c is the mean
// contribution of a player in a row. s2 is the variance of c between rows. w is the mean
// over rows of the variance of c about the row's own value; it is estimated from the
// row's passes. s2 includes w. The variance of the mean of c is
//
//	s2/n                    about the value of the population that the dataset's rows come from
//	((1-f)*s2 + f*w)/n      about the dataset's own value
//
// If w is unknown, the first expression is an upper bound of the second and replaces it.
type Sampling struct {
	Passes    int               // number of independent estimates of a row
	Walks     int               // number of contributions in a row's sum for a player: Passes, or 2*Passes if a pass has two walks
	Rows      int64             // N, the number of rows of the dataset
	Exact     bool              // whether a row's values have no error: w = 0
	Paired    bool              // whether the job is paired: its partials have the sums of two models
	Efficient bool              // whether a row's sums add up to Walks * (its loss with everything dropped - its loss with nothing dropped)
	Shares    bool              // whether they do so because the row's residual has been shared out
	Corrected bool              // whether contributions are a base and a correction
	Ranks     bool              // whether the sums are the terms of a path, which have no estimates
	Weights   estimator.Weights // how often rows count
	Tasks     int               // number of rows that a row of data becomes, at most; 0 = 1
}

// NewSampling describes the sums of an estimator for a dataset of the given number of
// rows. A job scores all of these rows or a sample of them.
func NewSampling(o estimator.Options, rows int64) Sampling {
	t := o.Traits()
	return Sampling{Passes: o.Passes, Walks: o.Passes * max(1, t.WalksPerPass), Rows: rows, Exact: t.Exact, Efficient: t.Efficient, Shares: t.Shares, Corrected: t.Flips, Ranks: t.Ranks}
}

// Within reports whether partials have Within, the variances within rows. They need at
// least two passes. The partials of a paired job do not have them, because the values that
// it corrects have a standard error already.
func (e Sampling) Within() bool { return e.Passes > 1 && !e.Paired }

// Form returns the form of the partials. fields is the number of the model's fields.
func (e Sampling) Form(fields int) Form {
	if e.Ranks {
		return Form{Path: true, Weighted: e.Weights.Rows > 0}
	}
	return Form{Within: e.Within(), Paired: e.Paired, Corrected: e.Corrected, Fields: fields, Weighted: e.Weights.Rows > 0}
}

// unit returns 2^s, where s is the shift of the weights.
func (e Sampling) unit() float64 { return float64(int64(1) << e.Weights.Shift()) }

// Weights are the sums over rows of their weights and of the squares of these.
type Weights struct {
	Sum     int64 `json:"sum"`
	Squares int64 `json:"squares"`
}

// add adds o to w.
func (w *Weights) add(o Weights) { w.Sum, w.Squares = w.Sum+o.Sum, w.Squares+o.Squares }

// check returns an error if w cannot be the weights of rows in a partial of the given form, or in a sum of several.
func (w Weights) check(form Form, rows int64) error {
	const most = estimator.MostWeight
	if !form.Weighted && w != (Weights{}) || form.Weighted && (w.Sum < rows || w.Sum/most > rows || w.Squares < w.Sum || w.Squares/most > w.Sum) {
		return fmt.Errorf("weights with the sum %d and the sum of squares %d over %d rows", w.Sum, w.Squares, rows)
	}
	return nil
}

// WeightsOf returns the weights of rows, of which some count as often as a fresh row and all others once.
func WeightsOf(rows, fresh int64, by estimator.Weights) Weights {
	more := max(by.Fresh, 1)
	return Weights{rows + (more-1)*fresh, rows + (more*more-1)*fresh}
}

// weights are Weights and the number n of rows.
type weights struct{ n, sum, squares float64 }

// weigh returns the weights of rows: own if rows have weights, and otherwise those of rows of which some are fresh.
func (e Sampling) weigh(rows, fresh int64, own Weights) weights {
	if e.Weights.Rows == 0 {
		own = WeightsOf(rows, fresh, e.Weights)
	}
	return weights{float64(rows), float64(own.Sum), float64(own.Squares)}
}

// centre returns the part of the sum of x^2 that is the square of the mean, as if all rows contributed about the mean, whatever
// their weight. sum is the sum of x.
func (w *weights) centre(sum float64) float64 {
	return float64(float64(sum*sum) / w.n * (w.n * w.squares / (w.sum * w.sum)))
}

// Bound reports whether SE is only an upper bound, because w is unknown.
func (e Sampling) Bound() bool { return !e.Exact && !e.Within() }

// errors returns the standard errors of the mean of c over rows with the weights w. Let x be the weight of a row times c.
// square and within are the sums over the rows of x^2, and of the variance of x about the row's own
// value. square - centre is the sum of the squares of the weight times (c - mean of c). One row does not determine a variance between rows. If n is 1, errors therefore
// uses the square instead, so that the standard error is as large as the value itself and
// not 0.
func (e Sampling) errors(w weights, centre, square, within float64) (dataset, population float64) {
	n := w.n
	between := square
	if n > 1 {
		between = max(0, square-centre) / (n - 1)
	}
	between *= float64(max(1, e.Tasks)) // the most that the variance of a sum of as many terms can be, which depend on each other
	scale := n / w.sum
	population = math.Sqrt(between/n) * scale
	if e.Bound() {
		return population, population
	}
	f := min(1, n/float64(e.Rows))
	return math.Sqrt((float64((1-f)*between)+float64(f*(within/n)))/n) * scale, population
}

// LeastRows is the least number of rows in which a feature must occur for its entries to
// have confidence intervals.
const LeastRows = 5

// Interval returns the half-widths of 95% confidence intervals about Phi, in standard
// errors: for the dataset's own value and for the population's value. It applies to the
// entries of a feature that occurs in count of the scored rows. Both results are NaN if
// count is below LeastRows.
//
// The half-widths are quantiles of Student's t. A row without the feature contributes
// exactly 0, so a variance between rows has count - 1 degrees of freedom. A variance
// within rows would have count * (Passes - 1) degrees if the passes of a row were
// normally distributed and all rows were alike. Neither is the case. In experiments,
// intervals are correct with a third of these degrees (docs/evidence/estimators.md).
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

// quantile returns the 97.5% quantile of Student's t. From a million degrees of freedom
// on it equals the normal quantile to six digits, and gonum's inverse is inexact there,
// so degrees are capped.
func quantile(degrees float64) float64 {
	p := 0.975 // a variable, because 1-p is rounded
	return exceeded(1-p, min(degrees, 1e6))
}

// exceeded returns the number that Student's t exceeds with probability tail, which is below
// one half. The result is that of gonum's package distuv, which would link all of its linear
// algebra into every worker.
func exceeded(tail, degrees float64) float64 {
	t := mathext.InvRegIncBeta(degrees/2, 0.5, 2*tail)
	return math.Sqrt(degrees * (1 - t) / t)
}
