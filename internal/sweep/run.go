package sweep

import (
	"context"
	"math"
	"slices"

	"shaver/internal/evaluate"
	"shaver/internal/fault"
	"shaver/internal/model"
	"shaver/internal/prune"
	"shaver/internal/scores"
)

// Config is what to compare.
type Config struct {
	Model     *model.Model // unpruned
	Methods   []Method
	Budgets   []prune.Budget
	Calibrate bool // fit a calibration of each table on the validation split
	Select    bool // of the methods that take any budget, measure only the one with the highest AUC on the validation split
	// Predict predicts a model on the split to measure on, Validate on the
	// validation split, which Calibrate and Select need.
	Predict, Validate func(context.Context, *model.Model) (*evaluate.Predictions, error)
}

// Run fills the document: Unpruned and Points, budget by budget, the methods in
// their order, and those with budgets of their own at the end.
func (c *Config) Run(ctx context.Context, d *Document) error {
	var err error
	if d.Unpruned, err = c.measure(ctx, c.Model); err != nil {
		return err
	}
	free := slices.DeleteFunc(slices.Clone(c.Methods), func(m Method) bool { return m.Own() != nil })
	for _, b := range c.Budgets {
		measured := free
		var best *float64
		if c.Select && len(free) > 0 {
			chosen, auc, err := c.choose(ctx, free, b)
			if err != nil {
				return err
			}
			measured, best = []Method{chosen}, &auc
		}
		for _, m := range measured {
			if err := c.add(ctx, d, m, b, best); err != nil {
				return err
			}
		}
	}
	for _, m := range c.Methods {
		for _, b := range m.Own() {
			if err := c.add(ctx, d, m, b, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// Work returns how many models Run predicts on the split to measure on, and on the
// validation split.
func (c *Config) Work() (measured, validated int) {
	measured = 1
	free := 0
	for _, m := range c.Methods {
		if own := m.Own(); own != nil {
			measured += len(own)
		} else {
			free++
		}
	}
	if c.Select && free > 0 {
		validated = free * len(c.Budgets)
		free = 1
	}
	measured += free * len(c.Budgets)
	if c.Calibrate {
		validated += measured
	}
	return measured, validated
}

// add measures one point.
func (c *Config) add(ctx context.Context, d *Document, m Method, b prune.Budget, best *float64) error {
	p, table, err := m.Cut(b)
	if err != nil {
		return err
	}
	if p.Measure, err = c.measure(ctx, c.Model.WithEmbedding(table)); err != nil {
		return err
	}
	p.ValidationAUC = best
	d.Points = append(d.Points, p)
	return nil
}

func (c *Config) measure(ctx context.Context, m *model.Model) (Measure, error) {
	p, err := c.Predict(ctx, m)
	if err != nil {
		return Measure{}, err
	}
	metrics := p.Metrics()
	found := Measure{AUC: scores.Figure(metrics.AUC), LogLoss: metrics.LogLoss}
	if c.Calibrate {
		validation, err := c.Validate(ctx, m)
		if err != nil {
			return Measure{}, err
		}
		if validation.OneKind() {
			return Measure{}, fault.Inputf("all labels of the validation split are the same: there is nothing to calibrate by")
		}
		calibration := evaluate.Calibrate(validation)
		loss := p.LogLoss(calibration)
		found.Calibration, found.CalibratedLogLoss = &calibration, &loss
	}
	return found, nil
}

// choose returns the method with the highest AUC on the validation split, the first
// of several.
func (c *Config) choose(ctx context.Context, methods []Method, b prune.Budget) (best Method, auc float64, err error) {
	auc = math.Inf(-1)
	for _, m := range methods {
		_, table, err := m.Cut(b)
		if err != nil {
			return nil, 0, err
		}
		p, err := c.Validate(ctx, c.Model.WithEmbedding(table))
		if err != nil {
			return nil, 0, err
		}
		if p.OneKind() {
			return nil, 0, fault.Inputf("all labels of the validation split are the same: there is no AUC to choose by")
		}
		if found := evaluate.AUC(p.Logits, p.Labels); found > auc {
			best, auc = m, found
		}
	}
	return best, auc, nil
}
