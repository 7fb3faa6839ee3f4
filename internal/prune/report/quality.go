package report

import (
	"fmt"
	"math"

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

// calibrationPart compares predicted probabilities with labels.
type calibrationPart struct {
	Heading string
	Figure  figure
	Models  []string // names of the models, in the order of Rows
	Rows    []calibrationRow
}

type calibrationRow struct {
	Name                string
	Rows                int64
	Predicted, Observed string
	Off                 string
}

// slicesPart shows metrics on slices of the rows.
type slicesPart struct {
	Heading string
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
		Calibration: c.calibration(b, show),
		Slices:      c.slices(b),
	}
	if s.Calibration == nil && s.Slices == nil {
		return nil
	}
	return s
}

// calibration returns the calibration curves of the unpruned model and of a pruned one.
func (c *comparison) calibration(b *budget, show addPicture) *calibrationPart {
	full, pruned := c.Unpruned.CalibrationCurve, b.best.Point.CalibrationCurve
	if len(full) == 0 || len(pruned) == 0 {
		return nil
	}
	part := &calibrationPart{}
	add := func(name string, style int, strong bool, bins []sweep.CurveBin, predicted func(*sweep.CurveBin) float64) (curve picture.Curve, worst float64) {
		curve = picture.Curve{Label: name, Style: style, Strong: strong}
		for i := range bins {
			bin := &bins[i]
			p := predicted(bin)
			off := bin.Observed - p
			worst = max(worst, math.Abs(off))
			curve.X, curve.Y = append(curve.X, p), append(curve.Y, off)
			part.Rows = append(part.Rows, calibrationRow{name, bin.Rows, decimal(p), decimal(bin.Observed), signed(off)})
		}
		return curve, worst
	}
	raw := func(bin *sweep.CurveBin) float64 { return bin.Predicted }
	fullCurve, fullOff := add("unpruned", 7, false, full, raw)
	prunedCurve, prunedOff := add("pruned", b.by.style, false, pruned, raw)
	curves := []picture.Curve{fullCurve, prunedCurve}
	part.Heading = fmt.Sprintf("Predictions are off by at most %.3f, and by at most %.3f before pruning", prunedOff, fullOff)
	if pruned[0].Calibrated != nil {
		calibrated, off := add("pruned, calibrated", b.by.style+1, true, pruned, func(bin *sweep.CurveBin) float64 {
			if bin.Calibrated == nil {
				return bin.Predicted
			}
			return *bin.Calibrated
		})
		curves = append(curves, calibrated)
		part.Heading = fmt.Sprintf("After calibration, predictions are off by at most %.3f", off)
	}
	part.Figure = show(picture.Calibration(curves))
	return part
}

// slices returns the metrics on the slices.
func (c *comparison) slices(b *budget) *slicesPart {
	if len(c.Document.Slices) == 0 || len(b.best.Point.Slices) != len(c.Document.Slices) || len(c.Unpruned.Slices) != len(c.Document.Slices) {
		return nil
	}
	part, rare, fields := &slicesPart{}, &sliceTable{Loss: c.lossName(), Unit: c.lossUnit()}, &sliceTable{Loss: c.lossName(), Unit: c.lossUnit(), Named: true}
	var worst *sliceRow
	worstLoss := 0.
	for i := range c.Document.Slices {
		slice, full, pruned := &c.Document.Slices[i], &c.Unpruned.Slices[i], &b.best.Point.Slices[i]
		row := sliceRow{Name: occurrences(slice), Field: slice.Field, Rows: slice.Rows, AUC: "-"}
		if slice.Positives != nil {
			row.Rate = percent(portion(float64(*slice.Positives), float64(slice.Rows)))
		}
		if full.AUC != nil {
			row.AUC = decimal(*full.AUC)
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
			row.AUCChange, row.LossChange = changeOf(d.AUC), changeOf(loss)
			if loss.Differs() && loss.Value > worstLoss {
				worst, worstLoss = &row, loss.Value
			}
		}
		if slice.Field == "" {
			rare.Rows, part.Rare = append(rare.Rows, row), rare
		} else {
			fields.Rows, part.Fields = append(fields.Rows, row), fields
		}
	}
	part.Heading = "No slice is certain to lose"
	if worst != nil {
		of := "rarest feature"
		if worst.Field != "" {
			of = oneLine(worst.Field)
		}
		part.Heading = "Rows whose " + of + " occurs " + worst.Name + " lose most"
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
