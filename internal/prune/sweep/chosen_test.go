package sweep

import (
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
)

// ChosenAt finds the point of a budget among those that Select chose, and only among them.
func TestChosenAt(t *testing.T) {
	auc := .7
	at := func(sparsity float64, parameters int, auc *float64) Point {
		return Point{Method: "shapley", Sparsity: sparsity, Parameters: parameters, ValidationAUC: auc}
	}
	d := &Document{Points: []Point{at(.5, 50, nil), at(.5, 50, &auc), at(.9, 10, &auc), at(1./3, 66, &auc)}}
	for i, b := range []mask.Budget{1: {Unit: mask.Sparsity, Amount: .5}, 2: {Unit: mask.Kept, Amount: 10}, 3: {Unit: mask.Sparsity, Amount: .333333}} {
		if i == 0 {
			continue
		}
		if p, err := d.ChosenAt(&b); err != nil || p != &d.Points[i] {
			t.Errorf("%+v: %+v, %v", b, p, err)
		}
	}
	if p, err := (&Document{Points: d.Points[:2]}).ChosenAt(nil); err != nil || p.ValidationAUC == nil {
		t.Errorf("the only chosen point: %+v, %v", p, err)
	}
	for _, c := range []struct {
		d    *Document
		b    *mask.Budget
		want string
	}{
		{d, nil, "the sweep chose at several sparsities: give --sparsity, one of 0.5 (50 parameters), 0.9 (10 parameters), 0.333333 (66 parameters)"},
		{d, &mask.Budget{Unit: mask.Sparsity, Amount: .8}, "the sweep has no choice at sparsity 0.8, only at the sparsities 0.5"},
		{&Document{Points: d.Points[:1]}, &mask.Budget{Unit: mask.Sparsity, Amount: .5}, "the sweep chose no method: run shaver sweep with --select"},
	} {
		if _, err := c.d.ChosenAt(c.b); err == nil || !strings.Contains(err.Error(), c.want) || !fault.IsUsage(err) && !fault.IsInput(err) {
			t.Errorf("error %v, expected %q", err, c.want)
		}
	}
}

// A method that ranks by scores has their aggregate. Another one takes its baseline from the
// first scores that have it.
func TestScoresOf(t *testing.T) {
	first, second, last := 0, 1, 3
	d := &Document{Sources: []ScoresFile{
		{Options: estimator.Options{Estimator: "taylor"}, Baseline: "zero"},
		{Options: estimator.Options{Estimator: "permutation"}, Baseline: "codebook"},
		{Options: estimator.Options{Estimator: "permutation"}, Baseline: "codebook"},
		{Options: estimator.Options{Estimator: "taylor"}, Baseline: "zero", Model: "ab"},
	}}
	for _, c := range []struct {
		p         Point
		source    int
		aggregate string
	}{
		{Point{Method: "shapley-abs", Source: &second}, 1, "abs"},
		{Point{Method: Name(&d.Sources[1].Options, "sum"), Source: &second}, 1, "sum"},
		{Point{Method: SSEDS, Baseline: "zero", Source: &first}, 0, ""},
		{Point{Method: SNIP, Baseline: "zero", Source: &last}, 3, ""},
		{Point{Method: Magnitude, Baseline: "codebook"}, 1, ""},
		{Point{Method: Magnitude, Baseline: "zero"}, 0, ""},
	} {
		source, err := d.ScoresOf(&c.p)
		aggregate, failed := d.AggregateOf(&c.p)
		if err != nil || failed != nil || source != c.source || aggregate != c.aggregate {
			t.Errorf("%+v: scores %d, aggregate %q, %v, %v", c.p, source, aggregate, err, failed)
		}
	}
	if _, err := d.ScoresOf(&Point{Method: Magnitude, Baseline: "mean"}); !fault.IsInput(err) {
		t.Error(err)
	}
	for _, p := range []Point{{Method: "taylor-abs", Source: &second}, {Method: "taylor-abs", Source: &last}, {Method: SSEDS, Source: &second}, {Method: SSEDS, Source: &last}, {Method: SNIP, Source: &first}} {
		if _, err := d.AggregateOf(&p); !fault.IsInput(err) {
			t.Errorf("%s by source %d: error %v", p.Method, *p.Source, err)
		}
	}
}
