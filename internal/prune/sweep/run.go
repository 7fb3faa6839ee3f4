package sweep

import (
	"context"
	"math"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/value/mask"
)

// Config describes a sweep.
type Config struct {
	Model   *model.Model // the unpruned model
	Methods []Method
	Budgets []mask.Budget
	Unnamed bool // nobody named Budgets, so Run leaves out sparsities at which a method drops more entries than may go
	// Within holds bounds for which Run also finds the smallest tables of the methods that rank by scores.
	Within    []float64
	Models    []Ready // measured as they are
	Calibrate bool    // fit a calibration of each table on the validation split
	Optional  bool    // Calibrate has no effect if all labels of the validation split are the same
	// Predict returns a model's predictions on the split to measure on. Validate returns
	// its predictions on the validation split; Run calls it only for Calibrate.
	Predict, Validate func(context.Context, *model.Model) (*evaluate.Predictions, error)
	Warn              func(doubt string) // takes Document.Doubt before other models are measured; may be nil
	Slices            *Slicer            // has the rows that Predict predicts; nil = no slices are measured
	Group             string             // name of the field by which Predict groups the rows, if it does
}

// curveBins is the number of bins of a calibration curve.
const curveBins = 15

// Run sets Slices, Doubt and Unpruned, except for the sizes of its table, and appends Points to the
// document. The points are ordered by budget and then by method. Methods that support only
// their own budgets come next, and then Models, whose files are appended to the document.
//
// Run keeps the predictions of the unpruned model with their ranks, about 21 bytes per row,
// and as much for the rows of each slice.
func (c *Config) Run(ctx context.Context, d *Document) error {
	r := run{Config: c, d: d, orders: len(c.Models)}
	d.Slices = nil
	if c.Slices != nil {
		r.shown = c.Slices.shown()
		for _, k := range r.shown {
			d.Slices = append(d.Slices, c.Slices.slices[k])
		}
	}
	var err error
	if r.unpruned, err = r.measure(ctx, c.Model, &d.Unpruned); err != nil {
		return err
	}
	for _, t := range d.tasks(d.Unpruned.Slices) {
		if t.JudgedAUC() == nil && t.RMSE == nil {
			return fault.Inputf("all rows of a task have the same label, so its AUC is undefined: expected both labels for each task")
		}
	}
	if d.Group = NewGroup(c.Group, r.unpruned.rows); d.Group != nil && d.Group.Mixed == 0 {
		return fault.Inputf("--group %s: none of %d groups has rows of both labels, so the GAUC is undefined", c.Group, d.Group.Count)
	}
	if d.Doubt = r.unpruned.rows.Doubt(); d.Doubt != "" && c.Warn != nil {
		c.Warn(d.Doubt)
	}
	free := slices.DeleteFunc(slices.Clone(c.Methods), func(m Method) bool { return m.Own() != nil })
	for _, b := range c.Budgets {
		for _, m := range free {
			if o, ok := m.(*ordered); ok && c.Unnamed && b.Unit == mask.Sparsity {
				if least, most := o.reach(); b.Amount < least || b.Amount > most {
					continue
				}
			}
			if err := r.add(ctx, m, b); err != nil {
				return err
			}
		}
	}
	for _, m := range c.Methods {
		if o, ok := m.(*ordered); ok && o.template.Method != Nothing {
			r.orders++
		}
	}
	for _, m := range c.found() {
		if err := r.find(ctx, m); err != nil {
			return err
		}
	}
	for _, m := range c.Methods {
		for _, b := range m.Own() {
			if err := r.add(ctx, m, b); err != nil {
				return err
			}
		}
	}
	for i := range c.Models {
		if err := r.addModel(ctx, &c.Models[i]); err != nil {
			return err
		}
	}
	return nil
}

// found returns the methods of which Run finds tables.
func (c *Config) found() (all []*ordered) {
	if c.Within == nil {
		return nil
	}
	for _, m := range c.Methods {
		if o, ok := m.(*ordered); ok && o.template.Source != nil && !o.columns() {
			all = append(all, o)
		}
	}
	return all
}

// Work returns the number of models for which Run calls Predict, and with Calibrate also Validate, at most.
func (c *Config) Work() int {
	measured := 1 + len(c.found())*MostFound(len(c.Within)) + len(c.Models)
	for _, m := range c.Methods {
		if own := m.Own(); own != nil {
			measured += len(own)
		} else {
			measured += len(c.Budgets)
		}
	}
	return measured
}

// run is a run of a sweep.
type run struct {
	*Config
	d        *Document
	orders   int   // number of orders that the document compares
	shown    []int // indices of the slices that are measured
	unpruned *measured
}

// measured holds the predictions with one table, from which differences are computed.
type measured struct {
	rows        *evaluate.Ranking
	calibration *loss.Calibration   // nil without calibration
	slices      []*evaluate.Ranking // by slice
}

// add measures one point and appends it to the document.
func (r *run) add(ctx context.Context, m Method, b mask.Budget) error {
	p, table, err := m.Cut(b)
	if err != nil {
		return err
	}
	if err := r.compare(ctx, r.Model.WithEmbedding(table), &p); err != nil {
		return err
	}
	r.d.Points = append(r.d.Points, p)
	return nil
}

// compare measures the model m for the point p, and compares it with the unpruned model.
func (r *run) compare(ctx context.Context, m *model.Model, p *Point) error {
	found, err := r.measure(ctx, m, &p.Measure)
	if err != nil {
		return err
	}
	p.Difference = r.difference(found, found.rows, r.unpruned.rows)
	for k := range p.Slices {
		p.Slices[k].Difference = r.difference(found, found.slices[k], r.unpruned.slices[k])
	}
	p.Difference = r.d.worstTask(p)
	return nil
}

// tasks returns the metrics on the slices of tasks.
func (d *Document) tasks(of []SliceMetrics) (all []*SliceMetrics) {
	for k := range d.Slices {
		if d.Slices[k].Task != "" {
			all = append(all, &of[k])
		}
	}
	return all
}

// worstTask returns the differences of p, or with several tasks, for each metric the worst value, and the worst of each end of the intervals.
// Hence a value or an end is within a bound if those of all tasks are.
func (d *Document) worstTask(p *Point) *Differences {
	all := d.tasks(p.Slices)
	if len(all) == 0 {
		return p.Difference
	}
	worst := func(sign float64, of func(*Differences) *Interval) *Interval {
		most := of(all[0].Difference)
		for _, t := range all[1:] {
			i := of(t.Difference)
			if most == nil || i == nil {
				return nil
			}
			worse := &Interval{Value: sign * max(sign*most.Value, sign*i.Value)}
			if most.Low != nil && i.Low != nil {
				worse.Low, worse.High = new(sign*max(sign**most.Low, sign**i.Low)), new(sign*max(sign**most.High, sign**i.High))
			}
			most = worse
		}
		return most
	}
	worse := newDifferences(d.Loss, worst(-1, func(d *Differences) *Interval { return d.AUC }), worst(1, (*Differences).Loss), worst(1, (*Differences).CalibratedLoss))
	worse.GAUC = worst(-1, func(d *Differences) *Interval { return d.GAUC })
	return worse
}

// meanOverTasks sets the AUC and the GAUC of m to the means over the tasks, if there are several.
func (d *Document) meanOverTasks(m *Measure) {
	all := d.tasks(m.Slices)
	for _, of := range []func(*Metrics) **float64{func(m *Metrics) **float64 { return &m.AUC }, func(m *Metrics) **float64 { return &m.GAUC }} {
		mean := 0.0
		for _, t := range all {
			if v := *of(&t.Metrics); v != nil {
				mean += *v / float64(len(all))
			} else {
				mean = math.NaN()
			}
		}
		if len(all) > 0 {
			*of(&m.Metrics) = scores.Figure(mean)
		}
	}
}

// measure predicts with the model m and sets the metrics, the curve and the slices of to.
func (r *run) measure(ctx context.Context, m *model.Model, to *Measure) (*measured, error) {
	p, err := r.Predict(ctx, m)
	if err != nil {
		return nil, err
	}
	found := &measured{rows: evaluate.Rank(p)}
	if r.Calibrate {
		validation, err := r.Validate(ctx, m)
		if err != nil {
			return nil, err
		}
		switch {
		case !validation.OneKind():
			calibration := evaluate.Calibrate(validation)
			found.calibration = &calibration
		case !r.Optional:
			return nil, fault.Inputf("all labels of the validation split are the same: there is nothing to calibrate by")
		}
	}
	to.Calibration = found.calibration
	to.Metrics, to.CalibrationCurve = found.metrics(found.rows), found.curve()
	to.Slices = nil
	for _, k := range r.shown {
		slice := evaluate.Rank(r.Slices.predictions(p, k))
		found.slices = append(found.slices, slice)
		to.Slices = append(to.Slices, SliceMetrics{Metrics: found.metrics(slice)})
	}
	r.d.meanOverTasks(to)
	return found, nil
}

// metrics returns the metrics of the rows or of a slice.
func (m *measured) metrics(of *evaluate.Ranking) Metrics { return NewMetrics(of, m.calibration) }

// curve returns the calibration curve.
func (m *measured) curve() (curve []CurveBin) {
	for _, bin := range m.rows.Curve(curveBins, loss.Uncalibrated) {
		curve = append(curve, CurveBin{Rows: bin.Rows, Predicted: bin.Predicted, Observed: bin.Observed})
	}
	if m.calibration != nil {
		for i, bin := range m.rows.Curve(curveBins, *m.calibration) {
			curve[i].Calibrated = &bin.Predicted
		}
	}
	return curve
}

// difference returns the differences between a table and the unpruned one, of which m has the
// calibrations, on the rows or on a slice.
func (r *run) difference(m *measured, pruned, unpruned *evaluate.Ranking) *Differences {
	var calibrated *Interval
	if m.calibration != nil {
		calibrated = NewInterval(evaluate.CompareLoss(unpruned.Predictions, pruned.Predictions, *r.unpruned.calibration, *m.calibration))
	}
	return DifferencesOf(unpruned, pruned, calibrated)
}
