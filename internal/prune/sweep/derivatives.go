package sweep

import (
	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
)

// SSEDS is the name of the method that drops whole columns of fields (Qu et al., SIGIR 2022).
// It ranks a column by the absolute value of the derivative of the loss with respect to a factor
// of the column. This is the sum of the column's scores by Taylor with the zero baseline.
const SSEDS = "sseds"

// SNIP is the name of the method that ranks by the model before its training (Lee et al., ICLR
// 2019). The score of an entry is the absolute value of the derivative of that model's loss with
// respect to a factor of the entry. This is the aggregate scores.Sum of Taylor with the zero baseline.
const SNIP = "snip"

// CheckSSEDS returns an error unless SSEDS can rank by scores that have these options and the
// named baseline.
func CheckSSEDS(o *estimator.Options, baselineName string) error {
	return checkDerivatives(SSEDS, o, baselineName)
}

// CheckSNIP returns an error unless SNIP can rank the entries of a model by the scores f. They are
// those of another model with the same layout. digest is that of the model.
func CheckSNIP(f *scores.File, a *model.Architecture, digest string) error {
	if err := f.CheckLayout(a); err != nil {
		return err
	}
	if f.Spec.Model == digest {
		return fault.Inputf("the scores are those of this model: expected those of the model before its training")
	}
	return checkDerivatives(SNIP, &f.Spec.Options, f.Spec.Baseline)
}

// BySNIP returns the method SNIP for the scores f of the model before its training. source is the
// index of f in Document.Sources.
func (t *Unpruned) BySNIP(f *scores.File, source int) (Method, error) {
	order, err := SNIPOrder(f, t.Entries)
	if err != nil {
		return nil, err
	}
	return t.ordered(Point{Method: SNIP, Source: &source, Baseline: f.Spec.Baseline}, f.Baseline, order)
}

// SNIPOrder returns the entries in the order in which SNIP drops them. entries are the tables of
// the model that is pruned, whose magnitudes break ties. The entries of pad rows come last.
func SNIPOrder(f *scores.File, entries []float32) ([]int32, error) {
	if err := checkDerivatives(SNIP, &f.Spec.Options, f.Spec.Baseline); err != nil {
		return nil, err
	}
	return Order(f, scores.Sum, mask.Abs, entries)
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
	order, err := mask.ColumnOrder(&f.Layout, f.Phi)
	if err != nil {
		return nil, fault.Usagef("%w", err)
	}
	order, _ = mask.PadsLast(&f.Layout, order)
	return order, nil
}
