package sweep

import (
	"strings"
	"testing"

	"shaver/internal/value/baseline"
)

// A sweep warns of the sparsities at which an order is clearly worse than the table with nothing kept of its baseline. The smallest table is
// the one with nothing kept only if that is within the bound, and if nothing is protected.
func TestFloor(t *testing.T) {
	at := func(method string, sparsity, auc, loss float64) Point {
		interval := func(v float64) *Interval { return &Interval{v, new(v - .01), new(v + .01)} }
		p := Point{Method: method, Baseline: baseline.Zero, Values: "float32", Bits: 32, Sparsity: sparsity, Parameters: int(1000 * (1 - sparsity))}
		p.AUC, p.LogLoss, p.Bytes, p.TableBytes, p.MemoryBytes = new(.8+auc), new(.5+loss), new(int64(9)), new(int64(9)), new(int64(9))
		p.Difference = newDifferences("", interval(auc), interval(loss), nil)
		return p
	}
	d := &Document{Rows: 1000, Entries: 1000, Points: []Point{
		at(Magnitude, .5, -.01, .01), at(Magnitude, .9, -.3, .3), at(Magnitude, .95, -.19, .2), at(Magnitude, .99, -.4, .4), // at .9 and .99 below the floor
		at(Random, .8, -.3, .05), // its AUC is, but its loss is better
		at(Frequency, .9, -.21, .3), at(Nothing, 1, -.2, .2),
	}}
	d.Unpruned.AUC, d.Unpruned.LogLoss = new(.8), new(.5)
	if text := d.BelowFloor(); text != "magnitude at sparsity 0.9 and 1 more is worse than keeping nothing: drop fewer entries, or take another method" {
		t.Errorf("warning %q", text)
	}
	d.Points[4] = at(Random, .8, -.3, .3)
	if text := d.BelowFloor(); text != "magnitude at sparsity 0.9 and 1 more, random at sparsity 0.8 are worse than keeping nothing: drop fewer entries, or take another method" {
		t.Errorf("warning %q", text)
	}
	d.Points[6].Baseline = baseline.Codebook
	if text := d.BelowFloor(); text != "" {
		t.Errorf("a floor of another baseline: %q", text)
	}
	for _, c := range []struct {
		within   Bound
		settings *Settings
		want     string
	}{{.1, nil, Magnitude}, {.3, nil, Nothing}, {.3, &Settings{Protect: []string{"a"}}, Magnitude}, {.3, &Settings{FieldMinimum: .1}, Magnitude}} {
		d.Settings = c.settings
		if p := d.Decide(Bound(c.within)); p == nil || p.Method != c.want {
			t.Errorf("within %v with %+v: %+v, expected %s", c.within, c.settings, p, c.want)
		}
	}
	if err := d.checkMethod(&d.Points[6]); err != nil || !strings.Contains(d.Label(&d.Points[6]), Nothing) {
		t.Errorf("label %q, %v", d.Label(&d.Points[6]), err)
	}
}
