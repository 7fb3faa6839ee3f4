package report

import (
	"fmt"
	"math"
	"strings"

	"shaver/internal/base/chart"
	"shaver/internal/click/evaluate"
	"shaver/internal/prune/picture"
	"shaver/internal/prune/sweep"
)

// qualitySection compares the unpruned model with one pruned model in more detail: by
// predicted probability, and on slices of the rows.
type qualitySection struct {
	Of          string // description of the pruned model
	Calibration *calibrationPart
	Slices      *slicesPart
}

// parts is the number of parts of the section. The intervals behind the claims of both contain their values at once with a confidence of 95%.
const parts = 2

// calibrationPart compares predicted probabilities with labels.
type calibrationPart struct {
	Heading string
	judged  bool // its intervals are known
	off     bool // some predictions are certain to be off
	Figure  chart.Inline
	Models  []string // names of the models, in the order of Rows
	Rows    []calibrationRow
}

type calibrationRow struct {
	Name                string
	Rows                int64
	Predicted, Observed string
	change
}

// slicesPart shows metrics on slices of the rows.
type slicesPart struct {
	Heading string
	Lost    int         // number of slices that are certain to lose
	Rare    *sliceTable // by the rarest feature of a row; may be nil
	Fields  *sliceTable // by the feature of a field; may be nil
}

type sliceTable struct {
	Loss  string // name of the loss that is compared
	Unit  string // what follows the name in a heading
	Named bool   // rows have a field
	Rows  []sliceRow
}

type sliceRow struct {
	Name, Field           string
	Rows                  int64
	Rate                  string
	AUC, LogLoss          string // of the unpruned model
	AUCChange, LossChange change
}

// quality returns the section, or nil if the document has neither curves nor slices.
func (c *comparison) quality(show addPicture) *qualitySection {
	b := c.reference()
	if b == nil {
		return nil
	}
	s := &qualitySection{
		Of:          b.by.Label + " at sparsity " + number(b.best.Sparsity),
		Calibration: c.calibrationOf(b, show),
		Slices:      c.slices(b),
	}
	if s.Calibration == nil && s.Slices == nil {
		return nil
	}
	return s
}

// calibrationOf returns the calibration curves of the unpruned model and of a pruned one. Its heading is about
// the last of them. It has intervals, one for each bin, which contain all rates at once with a confidence of 97.5%; see parts.
func (c *comparison) calibrationOf(b *budget, show addPicture) *calibrationPart {
	full, pruned := c.Unpruned.CalibrationCurve, b.best.Point.CalibrationCurve
	if len(full) == 0 || len(pruned) == 0 {
		return nil
	}
	part := &calibrationPart{judged: c.Unpruned.RMSE == nil}
	var curves []chart.Series
	add := func(name string, style int, strong bool, bins []sweep.CurveBin, predicted func(*sweep.CurveBin) float64) {
		curve, worst := chart.Series{Label: name, Style: style, Strong: strong}, 0.
		part.Heading, part.off = "No predictions are certain to be off", false
		for i := range bins {
			bin := &bins[i]
			p := predicted(bin)
			off := bin.Observed - p
			row := calibrationRow{name, bin.Rows, decimal(p), decimal(bin.Observed), change{Value: signed(off)}}
			curve.X, curve.Y = append(curve.X, p), append(curve.Y, off)
			if c.Unpruned.RMSE == nil { // the variance of other labels is unknown
				low, high := evaluate.RateInterval(int64(math.Round(bin.Observed*float64(bin.Rows))), bin.Rows, parts*len(bins))
				i := &sweep.Interval{Value: off, Low: new(low - p), High: new(high - p)}
				row.change = changeOf(i)
				curve.Low, curve.High = append(curve.Low, *i.Low), append(curve.High, *i.High)
				if i.Differs() && math.Abs(off) > worst {
					worst, part.off = math.Abs(off), true
					part.Heading = fmt.Sprintf("The observed rate differs from predictions of %.2g by %s", p, row.Interval)
				}
			}
			part.Rows = append(part.Rows, row)
		}
		if curves = append(curves, curve); c.Unpruned.RMSE != nil {
			part.Heading = "Predicted and observed values"
		}
	}
	raw := func(bin *sweep.CurveBin) float64 { return bin.Predicted }
	add("unpruned", noMethod, false, full, raw)
	add("pruned", b.by.style, false, pruned, raw)
	if pruned[0].Calibrated != nil {
		add("pruned, calibrated", b.by.style+9, true, pruned, func(bin *sweep.CurveBin) float64 {
			if bin.Calibrated == nil {
				return bin.Predicted
			}
			return *bin.Calibrated
		})
		part.Heading = "After calibration: " + strings.ToLower(part.Heading[:1]) + part.Heading[1:]
	}
	for k := range curves[:len(curves)-1] {
		curves[k].Low, curves[k].High = nil, nil
	}
	part.Figure = show(picture.Calibration(curves))
	return part
}

// slices returns the metrics on the slices.
func (c *comparison) slices(b *budget) *slicesPart {
	if len(c.Document.Slices) == 0 || len(b.best.Point.Slices) != len(c.Document.Slices) || len(c.Unpruned.Slices) != len(c.Document.Slices) {
		return nil
	}
	part, rare, fields := &slicesPart{}, &sliceTable{Loss: c.LossName(), Unit: c.lossUnit()}, &sliceTable{Loss: c.LossName(), Unit: c.lossUnit(), Named: true}
	var worst *sliceRow
	reach := "" // the interval of worst
	worstLoss := 0.
	for i := range c.Document.Slices {
		slice, full, pruned := &c.Document.Slices[i], &c.Unpruned.Slices[i], &b.best.Point.Slices[i]
		row := sliceRow{Name: occurrences(slice), Field: slice.Field, Rows: slice.Rows, AUC: "-"}
		if slice.Task != "" {
			row.Name, row.Field = "", "task "+slice.Task
		}
		if slice.Positives != nil {
			row.Rate = percent(portion(float64(*slice.Positives), float64(slice.Rows)))
		}
		if auc := full.JudgedAUC(); auc != nil && (c.Group == nil || full.GAUC != nil) {
			row.AUC = decimal(*auc)
		}
		row.LogLoss = decimal(full.Metrics.Loss())
		calibrated := c.calibrated && full.CalibratedLoss() != nil
		if calibrated {
			row.LogLoss = decimal(*full.CalibratedLoss())
		}
		row.AUCChange, row.LossChange = change{Value: "-"}, change{Value: "-"}
		if d := pruned.Difference; d != nil {
			loss := d.Loss()
			if calibrated && d.CalibratedLoss() != nil {
				loss = d.CalibratedLoss()
			}
			row.LossChange = changeOf(loss)
			if c.Group == nil || d.GAUC != nil {
				row.AUCChange = changeOf(d.JudgedAUC())
			}
			if joint := loss.Among(parts*len(c.Document.Slices), slice.Rows); joint.Differs() && loss.Value > 0 {
				part.Lost++
				if loss.Value > worstLoss {
					worst, worstLoss, reach = &row, loss.Value, changeOf(joint).Interval
				}
			}
		}
		if row.Field == "" {
			rare.Rows, part.Rare = append(rare.Rows, row), rare
		} else {
			fields.Rows, part.Fields = append(fields.Rows, row), fields
		}
	}
	part.Heading = "No slice is certain to lose"
	if worst != nil {
		of := "whose rarest feature occurs " + worst.Name
		switch {
		case worst.Name == "":
			of = "of the " + oneLine(worst.Field)
		case worst.Field != "":
			of = "whose " + oneLine(worst.Field) + " occurs " + worst.Name
		}
		part.Heading = "Rows " + of + " lose: " + c.LossName() + " " + reach
	}
	return part
}

// occurrences says how often the feature of a slice occurs.
func occurrences(s *sweep.Slice) string {
	switch {
	case s.Most == nil && s.Least <= 0:
		return "any number of times"
	case s.Most == nil:
		return count(s.Least) + " times or more"
	case *s.Most == 0:
		return "never"
	case s.Least == *s.Most:
		return count(s.Least) + " times"
	case s.Least <= 0:
		return "up to " + count(*s.Most) + " times"
	}
	return count(s.Least) + " to " + count(*s.Most) + " times"
}
