package sweep

import (
	"shaver/internal/baseline"
	"shaver/internal/estimator"
	"shaver/internal/fault"
	"shaver/internal/prune"
	"shaver/internal/scores"
)

// SSEDS is the name of the method that drops whole columns of fields (Qu et al., SIGIR 2022).
// It ranks a column by the absolute value of the derivative of the loss with respect to a factor
// of the column. This is the sum of the column's scores by Taylor with the zero baseline.
const SSEDS = "sseds"

// CheckSSEDS returns an error unless SSEDS can rank by scores that have these options and the
// named baseline.
func CheckSSEDS(o *estimator.Options, baselineName string) error {
	return checkDerivatives(SSEDS, o, baselineName)
}

// checkDerivatives returns an error unless scores with these options and the named baseline
// are the products of gradients and weights, from which the named method is made.
func checkDerivatives(method string, o *estimator.Options, baselineName string) error {
	if o.Estimator == estimator.Taylor && baselineName == baseline.Zero {
		return nil
	}
	return fault.Inputf("method %q needs scores of the estimator %s with the baseline %s, not of %s with %s", method, estimator.Taylor, baseline.Zero, o.Estimator, baselineName)
}

// BySSEDS returns the method SSEDS for the scores f. source is the index of f in
// Document.Sources.
func (t *Unpruned) BySSEDS(f *scores.File, source int) (Method, error) {
	order, err := SSEDSOrder(f)
	if err != nil {
		return nil, err
	}
	return t.ordered(Point{Method: SSEDS, Source: &source, Baseline: f.Spec.Baseline}, f.Baseline, order)
}

// SSEDSOrder returns the entries in the order in which SSEDS drops them. The entries of pad
// rows come last.
func SSEDSOrder(f *scores.File) ([]int32, error) {
	if err := CheckSSEDS(&f.Spec.Options, f.Spec.Baseline); err != nil {
		return nil, err
	}
	order, err := prune.ColumnOrder(&f.Layout, f.Phi)
	if err != nil {
		return nil, fault.Usagef("%w", err)
	}
	order, _ = prune.PadsLast(&f.Layout, order)
	return order, nil
}
