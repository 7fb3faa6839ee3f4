package scores

import (
	"fmt"
	"math"

	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// Warning says that the values mean little for this model, and what to do. It is "" unless the
// estimator shares residuals out and its EfficiencyError exceeds what all values share out,
// |LossEmpty - LossFull|. The contributions that were estimated are then less than what was added
// to them. If the error is within two standard errors, a few rows or chance decide it, and not a
// bias.
func (f *File) Warning() string {
	text := exceeds(&f.Spec.Options, &f.Result)
	if text == "" {
		return ""
	}
	why := derivatives
	if f.EfficiencyError <= 2*f.EfficiencySE {
		why = fmt.Sprintf("its standard error is %.2g, so few rows decide it", f.EfficiencySE)
	}
	return fmt.Sprintf("%s, and %s: do not rely on these values or their order, and score with --estimator %s, or to prune with %s", text, why, estimator.Antithetic, estimator.Path)
}

const derivatives = "the derivatives of this model say little about dropped entries"

// Early is Warning before a job: r is the result of its first rows. It is also "" if these are too
// few to tell, which they are not if the error exceeds the losses themselves.
func Early(o *estimator.Options, r *tally.Result) string {
	text := exceeds(o, r)
	if text == "" || r.EfficiencyError <= min(2*r.EfficiencySE, r.LossFull+r.LossEmpty) {
		return ""
	}
	return fmt.Sprintf("over the first %d rows %s: %s; end this job, and score with --estimator %s, or to prune with %s", r.Rows, text, derivatives, estimator.Antithetic, estimator.Path)
}

// exceeds says that the efficiency error exceeds what all values share, or is "".
func exceeds(o *estimator.Options, r *tally.Result) string {
	off, value, t := r.EfficiencyError, math.Abs(r.LossEmpty-r.LossFull), o.Traits()
	if !t.Shares || off <= value || off <= tally.EfficiencyTolerance*(1+r.LossFull+r.LossEmpty) {
		return ""
	}
	return fmt.Sprintf("the efficiency error of %s, %.3g nat, exceeds the %.3g nat that all values share", t.Name, off, value)
}

// Fits says that the first cut of a path fits its rows and not the model, and what to do. It is "" unless the loss of
// rows falls by more than 2%, and by more than the derivatives predict. The cut drops entries because the
// loss of the rows then falls. If a drop does more than its derivative says, as in a model with logarithms,
// the labels of few rows decide. before is the mean loss of rows of the job with nothing dropped, fall by how much
// the cut lowers it, se the standard error of fall, and predicted what the terms of the round say, all in nat.
func Fits(before, fall, se, predicted float64) string {
	if fall <= before/50 || fall-2.5*se <= predicted {
		return ""
	}
	return fmt.Sprintf("dropping a fifth of the entries lowers the loss of the scored rows by %.2g nat, but the derivatives predict %.2g: this order fits these rows; "+
		"score more rows, or compare it with --estimator %s by shaver sweep", fall, predicted, estimator.Permutation)
}

// Bias says that the standard error of the efficiency error does not cover the bias of the
// estimator. It is "" if the estimator has none.
func Bias(o *estimator.Options) string {
	if t := o.Traits(); !t.Shares || t.Flips {
		return ""
	}
	return "more than twice the standard error is bias; --audit measures that of the values, and --estimator " + estimator.Debiased + " has none"
}

// FewRows is the number of rows below which values rank better than a path at low sparsities
// (docs/guide/estimators.md).
const FewRows = 30_000

// Noise says that few rows made the order of a path, and what to do, as a clause. It is "" for values, and for
// FewRows rows or more.
func (f *File) Noise() string {
	rows := math.Round(f.Spec.Sample * float64(f.DatasetRows))
	if !f.Ranks() || rows >= FewRows {
		return ""
	}
	return fmt.Sprintf("the order comes from %.0f rows, and a path is noisy below %d: try the estimator %s", rows, FewRows, estimator.Multilinear)
}
