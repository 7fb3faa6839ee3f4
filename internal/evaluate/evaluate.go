// Package evaluate measures the LogLoss and AUC of a model on labelled rows, and fits the
// calibration of a pruned model.
package evaluate

import (
	"context"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"shaver/internal/model"
)

// Metrics describes how well a model predicts a set of rows.
type Metrics struct {
	Rows    int64   `json:"rows"`
	AUC     float64 `json:"auc"`      // area under the ROC curve, ties counted half; NaN if all labels are the same
	LogLoss float64 `json:"log_loss"` // mean loss, nat
}

// Predictions holds the logits and the true labels of rows.
type Predictions struct {
	Logits []float64
	Labels []float32
}

// Predict computes m's logits for the rows of source with the given number of goroutines.
// The result does not depend on this number. Predict keeps 9 bytes per row. If a row does
// not fit the model or its logit is not finite, Predict returns an error that names the
// row.
func Predict(ctx context.Context, m *model.Model, source model.RowSource, threads int) (*Predictions, error) {
	scorers := make([]*model.Scorer, max(1, threads))
	for i := range scorers {
		scorers[i] = m.NewScorer()
	}
	p := &Predictions{}
	err := source(ctx, func(rows *model.Rows) error {
		from := len(p.Logits)
		p.Logits = slices.Grow(p.Logits, rows.Len())[:from+rows.Len()]
		p.Labels = append(p.Labels, rows.Label...)
		var group errgroup.Group
		share := (rows.Len() + len(scorers) - 1) / len(scorers)
		for i, scorer := range scorers {
			first, end := min(i*share, rows.Len()), min((i+1)*share, rows.Len())
			part := rows.Slice(first, end)
			group.Go(func() error {
				for r := range part.Len() {
					if err := m.CheckRow(part.Row(r)); err != nil {
						return fmt.Errorf("%s: %w", model.RowName(part.Number[r]), err)
					}
				}
				scorer.Logits(p.Logits[from+first:from+end], &part)
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		for i, logit := range p.Logits[from:] {
			if math.IsNaN(logit) || math.IsInf(logit, 0) {
				return fmt.Errorf("%s: the logit is %g", model.RowName(rows.Number[i]), logit)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Probability returns the probability of label 1 that a logit stands for.
func Probability(logit float64) float64 { return 1 / (1 + math.Exp(-logit)) }

// OneKind reports whether all labels are equal. In this case AUC is undefined and a
// calibration is meaningless.
func (p *Predictions) OneKind() bool {
	return !slices.ContainsFunc(p.Labels, func(label float32) bool { return label != p.Labels[0] })
}

// Metrics returns the metrics of the predictions without calibration.
func (p *Predictions) Metrics() Metrics {
	return Metrics{int64(len(p.Logits)), AUC(p.Logits, p.Labels), p.LogLoss(Uncalibrated)}
}

// LogLoss returns the mean loss of the calibrated logits, in nat.
func (p *Predictions) LogLoss(c Calibration) float64 {
	loss := 0.0
	for i, logit := range p.Logits {
		loss += model.Loss(c.Apply(logit), p.Labels[i])
	}
	return loss / float64(len(p.Logits))
}

// AUC returns the probability that a random positive row has a higher logit than a random
// negative row, with ties counted half. It is NaN if all labels are equal.
func AUC(logits []float64, labels []float32) float64 { return Rank(&Predictions{logits, labels}).AUC() }
