// Package evaluate measures a model on labelled rows, and fits the calibration of a pruned
// model. The metrics of the log loss are LogLoss and AUC, and those of the squared loss RMSE,
// MAE and R2.
package evaluate

import (
	"context"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/num/loss"
)

// Metrics describes how well a model predicts a set of rows.
type Metrics struct {
	Rows int64
	AUC  float64 // area under the ROC curve, ties counted half; NaN if all labels are the same, or with the squared loss
	Loss float64 // see Predictions.MeanLoss
	MAE  float64 // mean of |output - label| with the squared loss; otherwise 0
	R2   float64 // 1 - RMSE^2 / (variance of the labels) with the squared loss, NaN if all labels are the same; otherwise 0
}

// Predictions holds the logits and the true labels of rows. With the squared loss, a logit is
// the output that is compared with the label.
type Predictions struct {
	Logits  []float64
	Labels  []float32
	Loss    loss.Kind
	Weights []int32 // how often each row counts, at least 1; nil = all rows count once
	Groups  []int32 // number of the group of each row, below the number of rows, or -1 for a row in no group; nil = no groups
	Top     int     // with Groups: number of rows of a group by which NDCG and recall judge
}

// times returns how often row i counts.
func (p *Predictions) times(i int) float64 {
	if p.Weights == nil {
		return 1
	}
	return float64(p.Weights[i])
}

// total returns how often the rows count together.
func (p *Predictions) total() (sum float64) {
	for i := range p.Logits {
		sum += p.times(i)
	}
	return sum
}

// positives returns how often the rows with label 1 count, or with the squared loss the weighted sum of the labels.
func (p *Predictions) positives() (sum float64) {
	for i, label := range p.Labels {
		sum += float64(p.times(i) * float64(label))
	}
	return sum
}

// independent reports whether all rows count once and are a random sample.
func (p *Predictions) independent() bool { return p.Weights == nil && p.Groups == nil }

// Predict computes m's logits for the rows of source with the given number of goroutines.
// The predictions have the given loss. The result does not depend on this number. Predict keeps 12 bytes per row, and 4 more with weights. If a row does
// not fit the model or its logit is not finite, Predict returns bad input that names the
// row.
func Predict(ctx context.Context, m *model.Model, kind loss.Kind, source model.RowSource, threads int) (*Predictions, error) {
	return predict(ctx, m, kind, source, threads, func(row string, logit float64) error {
		advice := ""
		if math.IsNaN(logit) {
			advice = model.AdviceNaN
		}
		return fault.Inputf("%s: the logit is %g%s", row, logit, advice)
	})
}

// PredictFinite is like Predict, but leaves out rows whose logits are not finite.
func PredictFinite(ctx context.Context, m *model.Model, kind loss.Kind, source model.RowSource, threads int) (*Predictions, error) {
	return predict(ctx, m, kind, source, threads, func(string, float64) error { return nil })
}

// predict is Predict. It leaves out a row whose logit is not finite unless strange returns an error.
func predict(ctx context.Context, m *model.Model, kind loss.Kind, source model.RowSource, threads int, strange func(row string, logit float64) error) (*Predictions, error) {
	scorers := make([]*model.Scorer, max(1, threads))
	for i := range scorers {
		scorers[i] = m.NewScorer()
	}
	p := &Predictions{Loss: kind}
	err := source(ctx, func(rows *model.Rows) error {
		from := len(p.Logits)
		p.Logits = slices.Grow(p.Logits, rows.Len())[:from+rows.Len()]
		p.Labels, p.Weights = append(p.Labels, rows.Label...), append(p.Weights, rows.Weight...)
		var group errgroup.Group
		share := (rows.Len() + len(scorers) - 1) / len(scorers)
		for i, scorer := range scorers {
			first, end := min(i*share, rows.Len()), min((i+1)*share, rows.Len())
			part := rows.Slice(first, end)
			group.Go(func() error {
				for r := range part.Len() {
					if err := m.CheckRow(part.Row(r)); err != nil {
						return fault.Inputf("%s: %w", model.RowName(part.Number[r]), err)
					}
				}
				scorer.Logits(p.Logits[from+first:from+end], &part)
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		kept := from
		for i, logit := range p.Logits[from:] {
			if math.IsNaN(logit) || math.IsInf(logit, 0) {
				if err := strange(model.RowName(rows.Number[i]), logit); err != nil {
					return err
				}
				continue
			}
			p.Logits[kept], p.Labels[kept] = logit, p.Labels[from+i]
			if p.Weights != nil {
				p.Weights[kept] = p.Weights[from+i]
			}
			kept++
		}
		p.Logits, p.Labels = p.Logits[:kept], p.Labels[:kept]
		if p.Weights != nil {
			p.Weights = p.Weights[:kept]
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

// Doubt says that the predictions are worse than one number for all rows, which is the portion of rows with label 1 or, with
// the squared loss, the mean of the labels. The labels, the fields or the ids are then probably not those of the training. With the
// logistic loss it also says that all labels are the same, or that all logits are between 0 and 1 and worse than the probabilities that they
// would be. It is "" unless the difference of the mean loss exceeds three of its standard errors, and with fewer than two rows.
func (p *Predictions) Doubt() string {
	switch {
	case len(p.Labels) < 2:
		return ""
	case p.Loss == loss.Squared:
		return p.squaredDoubt()
	case p.OneKind():
		return sameLabels(int64(len(p.Labels)), int64(p.Labels[0]))
	}
	ones := p.positives()
	constant := math.Log(ones / (p.total() - ones)) // logit
	if own, other, sure := p.worse(func(float64) float64 { return constant }); sure {
		return worse(own, other)
	}
	if slices.Min(p.Logits) < 0 || slices.Max(p.Logits) > 1 {
		return ""
	}
	const least = 1e-6 // a probability of 0 or 1 has no logit
	if own, other, sure := p.worse(func(logit float64) float64 {
		q := min(max(logit, least), 1-least)
		return math.Log(q / (1 - q))
	}); sure {
		return fmt.Sprintf("gives logits that are all between 0 and 1: their LogLoss is %.4f, and that of the same numbers as probabilities is %.4f: "+
			"its output is probably a probability, so export the logit, which is the value before the Sigmoid", own, other)
	}
	return ""
}

// squaredDoubt is Doubt with the squared loss.
func (p *Predictions) squaredDoubt() string {
	mean := p.positives() / p.total()
	own, other, sure := p.worse(func(float64) float64 { return mean })
	if !sure {
		return ""
	}
	return fmt.Sprintf("predicts worse than a constant: its RMSE is %.4f, and that of the mean of the labels is %.4f: "+
		"check that labels, their unit, fields and ids are those of its training", math.Sqrt(own), math.Sqrt(other))
}

// worse returns the mean loss of p and that of the logits that instead makes of its logits. sure
// reports whether that of p exceeds the other by more than three standard errors of the difference. p has
// at least two rows.
func (p *Predictions) worse(instead func(logit float64) float64) (own, other float64, sure bool) {
	total := p.total()
	losses := func(i int) (l, c float64) {
		return p.Loss.Of(p.Logits[i], p.Labels[i]), p.Loss.Of(instead(p.Logits[i]), p.Labels[i])
	}
	for i := range p.Labels {
		l, c := losses(i)
		own, other = own+p.times(i)*l/total, other+p.times(i)*c/total
	}
	variance, _ := p.clustered(func(i int) float64 {
		l, c := losses(i)
		return p.times(i) * (l - c - own + other) / total
	})
	return own, other, own-other > 3*math.Sqrt(variance)
}

// DoubtOf is Predictions.Doubt of a model of which only the mean of the LogLoss over rows is known. These are a sample of
// total rows, at least 1, of which positives have label 1. In place of the unknown standard error of the difference, it
// takes that of the portion times one plus the size of its logit: that of the sample, and of a model whose logits differ
// from the constant one by 1.
func DoubtOf(mean float64, rows, positives, total int64) string {
	switch {
	case rows < 2:
		return ""
	case positives == 0 || positives == total:
		return sameLabels(rows, positives/total)
	}
	p := float64(positives) / float64(total)
	logit, entropy := math.Log(p/(1-p)), -p*math.Log(p)-(1-p)*math.Log(1-p)
	if se := math.Sqrt(p*(1-p)/float64(rows)) * (1 + math.Abs(logit)); mean-entropy <= 3*se {
		return ""
	}
	return worse(mean, entropy)
}

func sameLabels(rows, label int64) string {
	return fmt.Sprintf("is measured on %d rows that all have the label %d, so its AUC is undefined: expected rows with label 0 and rows with label 1", rows, label)
}

// worse says that the LogLoss of a model is higher than that of a constant.
func worse(own, constant float64) string {
	return fmt.Sprintf("predicts worse than a constant: its LogLoss is %.4f, and that of the portion of rows with label 1 is %.4f: "+
		"check that labels, fields and ids are those of its training; if its AUC is good, only its calibration is off", own, constant)
}

// Metrics returns the metrics of the predictions without calibration.
func (p *Predictions) Metrics() Metrics {
	m := Metrics{Rows: int64(len(p.Logits)), AUC: math.NaN(), Loss: p.MeanLoss(loss.Uncalibrated)}
	if p.Loss != loss.Squared {
		m.AUC = Rank(&Predictions{Logits: p.Logits, Labels: p.Labels, Weights: p.Weights}).AUC()
		return m
	}
	m.R2 = math.NaN()
	var labels moments
	total := p.total()
	for i, logit := range p.Logits {
		m.MAE += p.times(i) * math.Abs(logit-float64(p.Labels[i])) / total
		labels.addWeighted(float64(p.Labels[i]), p.times(i))
	}
	if labels.squares > 0 {
		m.R2 = 1 - m.Loss*m.Loss*labels.n/labels.squares
	}
	return m
}

// MeanLoss returns the loss of the calibrated logits. It is LogLoss, the mean log loss in
// nat, or with the squared loss RMSE, the root of the mean squared loss.
func (p *Predictions) MeanLoss(c loss.Calibration) float64 {
	sum := 0.0
	for i, logit := range p.Logits {
		sum += float64(p.times(i) * p.Loss.Of(c.Apply(logit), p.Labels[i]))
	}
	mean := sum / p.total()
	if p.Loss == loss.Squared {
		return math.Sqrt(mean)
	}
	return mean
}

// AUC returns the probability that a random positive row has a higher logit than a random
// negative row, with ties counted half. It is NaN if all labels are equal. Labels must be 0 or
// 1.
func AUC(logits []float64, labels []float32) float64 {
	return Rank(&Predictions{Logits: logits, Labels: labels}).AUC()
}
