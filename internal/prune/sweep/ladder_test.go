package sweep

import (
	"math"
	"strings"
	"testing"

	"shaver/internal/value/baseline"
)

// tableOf returns a point with the given number of parameters of 1000, whose differences to the unpruned table have intervals.
func tableOf(parameters int, auc, aucOff, loss, lossOff float64) Point {
	bytes := int64(4 * parameters)
	p := Point{Method: Magnitude, Baseline: baseline.Zero, Bits: 32, Parameters: parameters, Sparsity: 1 - float64(parameters)/1000, Difference: &Differences{AUC: within(auc, aucOff), LogLoss: within(loss, lossOff)}}
	p.AUC, p.LogLoss, p.Bytes, p.TableBytes = new(.7+auc), new(.5+loss), &bytes, &bytes
	return p
}

// A rung has the smallest table whose intervals are within the bound, and the smallest one whose differences are. The
// number of rows is that on which intervals, narrower by the root of the ratio of rows, are within the bound.
func TestLadder(t *testing.T) {
	d := &Document{Rows: 1000, Unpruned: Measure{Metrics: Metrics{AUC: new(.7), LogLoss: new(.5)}}, Points: []Point{
		tableOf(500, 0, .0005, 0, .0005), tableOf(200, -.0002, .0012, .0001, .0003), tableOf(100, -.003, .0005, .003, .001),
	}}
	rungs := d.Ladder().Rungs
	for i, want := range []struct{ certain, guess int }{{0, 1}, {1, -1}, {2, -1}} {
		r := rungs[i]
		if r.Within != Rungs[i] || r.Certain.Point != &d.Points[want.certain] || want.guess < 0 && r.Guess != nil || want.guess >= 0 && r.Guess.Point != &d.Points[want.guess] {
			t.Errorf("rung %g: %+v", Rungs[i], r)
		}
	}
	// On rows rows, the interval of the AUC of the second table ends at the bound. One order needs no wider intervals.
	mean := d.Series()[0].Points[1].Along
	off := mean.AUC.Value - *mean.AUC.Low
	if end := -.0002 - off*math.Sqrt(1000/rungs[0].Rows); math.Abs(end+.001) > 1e-12 {
		t.Errorf("with %g rows the interval ends at %g, expected -.001", rungs[0].Rows, end)
	}
	better := tableOf(500, .01, .02, 0, .0005) // as small as the certain one, and uncertain
	better.Method = Frequency
	tie := &Document{Rows: 1000, Unpruned: d.Unpruned, Points: []Point{d.Points[0], better}}
	if r := tie.Rung(DefaultBound); r.Certain.Point != &tie.Points[0] || r.Guess != nil {
		t.Errorf("the guess %+v is no smaller than the certain table", r.Guess)
	}
	var text strings.Builder
	d.WriteTable(&text)
	for _, want := range []string{
		"Smallest table whose AUC and LogLoss are at most so much worse:\ncertain within 0.001: sparsity 0.5, 500 parameters, 2000 bytes\n",
		"\ncertain within 0.005: sparsity 0.9, 100 parameters, 400 bytes\n",
		"\nbest guess within 0.001: sparsity 0.8, 200 parameters, 800 bytes; about ", " rows would make it certain\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("table\n%s\nexpected %q", &text, want)
		}
	}
}

// A ladder without tables within a bound says so, and gives no number of rows that nobody knows.
func TestEmptyLadder(t *testing.T) {
	unknown := tableOf(50, -.0001, 0, 0, 0)
	unknown.Difference.AUC.Low, unknown.Difference.AUC.High = nil, nil
	d := &Document{Rows: 1000, Unpruned: Measure{Metrics: Metrics{AUC: new(.7), LogLoss: new(.5)}}, Points: []Point{tableOf(500, -.1, .001, 0, 0), unknown}}
	r := d.Rung(DefaultBound)
	if r.Certain != nil || r.Guess.Point != &d.Points[1] || r.Rows != 0 {
		t.Errorf("%+v", r)
	}
	var text strings.Builder
	d.WriteTable(&text)
	for _, want := range []string{"certain within 0.001: nothing smaller than the whole table\n", "best guess within 0.001: sparsity 0.95, 50 parameters, 200 bytes\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("table\n%s\nexpected %q", &text, want)
		}
	}
	d.Unpruned.CalibratedLogLoss = new(.5)
	if got := d.judged(); got != "AUC and calibrated LogLoss are" {
		t.Errorf("the ladder judges %q", got)
	}
}
