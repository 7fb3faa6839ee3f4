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
	off, se, value := f.EfficiencyError, f.EfficiencySE, math.Abs(f.LossEmpty-f.LossFull)
	t := f.Spec.Traits()
	if !t.Shares || off <= value || off <= tally.EfficiencyTolerance*(1+f.LossFull+f.LossEmpty) {
		return ""
	}
	why := "the derivatives of this model say little about dropped entries"
	if off <= 2*se {
		why = fmt.Sprintf("its standard error is %.2g, so few rows decide it", se)
	}
	return fmt.Sprintf("the efficiency error of %s, %.3g nat, exceeds the %.3g nat that all values share, and %s: do not rely on these values or their order, and score with --estimator %s", t.Name, off, value, why, estimator.Antithetic)
}

// Bias says that the standard error of the efficiency error does not cover the bias of the
// estimator. It is "" if the estimator has none.
func Bias(o *estimator.Options) string {
	if t := o.Traits(); !t.Shares || t.Flips {
		return ""
	}
	return "more than twice the standard error is bias; --audit measures that of the values, and --estimator " + estimator.Debiased + " has none"
}
