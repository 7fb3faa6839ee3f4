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

// Config describes a sweep.
type Config struct {
	Model     *model.Model // the unpruned model
	Methods   []Method
	Budgets   []prune.Budget
	Calibrate bool // fit a calibration of each table on the validation split
	Select    bool // measure, of the methods that support any budget, only the one with the highest AUC on the validation split
	// Predict returns a model's predictions on the split to measure on. Validate returns
	// its predictions on the validation split; Run calls it only for Calibrate and Select.
	Predict, Validate func(context.Context, *model.Model) (*evaluate.Predictions, error)
}

// Run sets Unpruned and appends Points to the document. The points are ordered by budget
// and then by method. Methods that support only their own budgets come last.
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

// Work returns the number of models for which Run calls Predict, and the number for which it
// calls Validate.
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

// add measures one point and appends it to the document. best is its ValidationAUC.
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

// choose returns the method with the highest AUC on the validation split, and this AUC. Of
// several such methods it returns the first.
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
