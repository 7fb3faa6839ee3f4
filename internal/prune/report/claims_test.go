package report

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"shaver/internal/base/chart"
	"shaver/internal/base/long"
	"shaver/internal/num/layout"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/tally"
)

// claims counts the samples in which a heading claims something. All differences of a sample are chance.
func claims(t *testing.T, what string, samples int, claimed func(rng *rand.Rand) (heading string, claim bool)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, uint64(len(what))))
	n, last := 0, ""
	for range samples {
		if heading, claim := claimed(rng); claim {
			n, last = n+1, heading
		}
	}
	if share, most := float64(n)/float64(samples), .05+3*math.Sqrt(.05*.95/float64(samples)); share > most {
		t.Errorf("%s: %.3f of the headings claim what is chance, at most %.3f may; for example %q", what, share, most, last)
	}
}

func nowhere(*chart.Figure) chart.Inline { return chart.Inline{} }

// chance returns a job of m fields and their pairs whose values are all 0, apart from chance.
func chance(rng *rand.Rand, m int) *Facts {
	f := fieldFacts()
	s := f.Scores
	s.Fields = nil
	for j := range m {
		s.Fields = append(s.Fields, "f"+string(rune('a'+j)))
	}
	s.Scores = tally.Scores{Shape: layout.Of(m, m), Values: tally.NewValues(m * m)}
	for range m {
		s.Count = append(s.Count, 400)
	}
	s.Rows = 400
	for i := range s.Phi {
		s.Phi[i], s.PopulationSE[i] = .001*rng.NormFloat64(), .001
	}
	return f
}

// calibrated gives both models a calibration curve whose observed rates differ from the predicted ones by chance.
func calibrated(d *sweep.Document, rng *rand.Rand) {
	for _, m := range []*sweep.Measure{&d.Unpruned, &d.Points[0].Measure} {
		m.CalibrationCurve = nil
		for k := range 20 {
			bin := sweep.CurveBin{Rows: 400, Predicted: .05 * (float64(k) + .5)}
			for range bin.Rows {
				if rng.Float64() < bin.Predicted {
					bin.Observed += 1 / float64(bin.Rows)
				}
			}
			m.CalibrationCurve = append(m.CalibrationCurve, bin)
		}
	}
}

// sliced gives the first point 40 slices on which its loss differs from that of the unpruned model by chance.
func sliced(d *sweep.Document, rng *rand.Rand) {
	d.Slices, d.Unpruned.Slices, d.Points[0].Slices = nil, nil, nil
	for range 40 {
		v := .01 * rng.NormFloat64()
		change := interval(&v, new(v-.0196), new(v+.0196))
		d.Slices = append(d.Slices, sweep.Slice{Least: 1, Rows: 10000})
		d.Unpruned.Slices = append(d.Unpruned.Slices, sweep.SliceMetrics{Metrics: d.Unpruned.Metrics})
		d.Points[0].Slices = append(d.Points[0].Slices, sweep.SliceMetrics{Metrics: d.Unpruned.Metrics, Difference: &sweep.Differences{LogLoss: change, CalibratedLogLoss: change}})
	}
}

// If no difference has an effect, a heading claims one in at most 5% of samples, however many are compared.
func TestClaimsByChance(t *testing.T) {
	long.Test(t)
	claims(t, "values", 200, func(rng *rand.Rand) (string, bool) {
		f := chance(rng, 16)
		text := f.valuesOf(f.Scores.FieldValues(), nowhere).Heading
		return text, text != "The rows do not show which fields lower the loss"
	})
	claims(t, "pairs", 200, func(rng *rand.Rand) (string, bool) {
		f := chance(rng, 16)
		text := f.pairsOf(f.Scores.FieldValues(), nowhere).Heading
		return text, text != "No pair is certain to interact"
	})
	claims(t, "the strip", 400, func(rng *rand.Rand) (string, bool) {
		d := swept("")
		calibrated(d, rng)
		sliced(d, rng)
		c := compare(d, sweep.Bound(.02))
		b := &budget{c.methods[0], &c.methods[0].Points[0]}
		curve, slices := c.calibrationOf(b, nowhere), c.slices(b)
		return curve.Heading + ", " + slices.Heading, curve.Heading != "No predictions are certain to be off" || slices.Heading != "No slice is certain to lose" || curve.off || slices.Lost > 0
	})
	claims(t, "tables", 200, func(rng *rand.Rand) (string, bool) {
		d := swept("")
		for i := range 30 { // all are at the edge of the bound
			v := .001 + .001*rng.NormFloat64()
			p := d.Points[0]
			p.Sparsity, p.Parameters = float64(i+1)/32, 32-i
			p.Difference = &sweep.Differences{AUC: interval(new(0.), new(0.), new(0.)), LogLoss: interval(&v, new(v-.00196), new(v+.00196))}
			d.Points = append(d.Points, p)
		}
		d.Rows, d.Points = 100000, d.Points[7:]
		c := compare(d, sweep.Bound(.001))
		lead, _ := c.sentence()
		return lead, c.decided != nil || lead != "No smaller table is certain"
	})
}

// What is certain among all that is compared is in the heading, with an interval that is wide enough for all.
func TestClaims(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	f := chance(rng, 16)
	at, _ := f.Scores.Shape.Row(2)
	f.Scores.Phi[at+2] = -.02
	pair, _ := f.Scores.Shape.Row(3)
	f.Scores.Phi[pair+5] = .02
	if text := f.valuesOf(f.Scores.FieldValues(), nowhere).Heading; !strings.HasPrefix(text, "One field raises the loss: fc, by +0.0") {
		t.Errorf("the heading is %q", text)
	}
	if text := f.pairsOf(f.Scores.FieldValues(), nowhere).Heading; !strings.HasPrefix(text, "Worth more together: f") || !strings.Contains(text, ", by +0.") {
		t.Errorf("the heading is %q", text)
	}
	f = chance(rng, 16)
	for j := range 16 {
		at, _ := f.Scores.Shape.Row(j)
		f.Scores.Phi[at+j] = .0025 // an interval of one field does not contain 0, and that of sixteen does
		if j < 5 {
			f.Scores.Phi[at+j] = .02
		}
	}
	if text := f.valuesOf(f.Scores.FieldValues(), nowhere).Heading; text != "5 of 16 fields are certain to lower the loss" {
		t.Errorf("the heading is %q", text)
	}
	// Only the last bin is off, by more than chance.
	d := swept("")
	for i := range d.Points {
		for k := range d.Points[i].CalibrationCurve {
			bin := &d.Points[i].CalibrationCurve[k]
			*bin = sweep.CurveBin{Rows: 100000, Predicted: bin.Predicted, Observed: bin.Predicted}
			if k == 3 {
				bin.Observed -= .05
			}
		}
	}
	c := compare(d, sweep.Bound(.02))
	if text := c.calibrationOf(c.reference(), nowhere).Heading; !strings.HasPrefix(text, "The observed rate differs from predictions of 0.7 by −0.05") || !strings.Contains(text, " to −0.04") {
		t.Errorf("the heading is %q", text)
	}
	// The widened interval of a night's AUC is that of the night.
	lines, _ := history(1)
	if _, text := lead(&lines[0], ""); !strings.Contains(text, "and loses AUC by +0.0005 to +0.0015 (95% interval)") {
		t.Errorf("the night is %q", text)
	}
	// The bound is that of all steps.
	p := removals()
	if n, most := cheap(p); n != 1 || most <= .0005 {
		t.Errorf("%d steps raise the loss by at most %g", n, most)
	}
}
