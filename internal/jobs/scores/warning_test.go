package scores

import (
	"strings"
	"testing"

	"shaver/internal/value/estimator"
)

// An efficiency error that exceeds what is shared out is a warning, which names walks. It is no
// warning for estimators that share nothing out.
func TestWarning(t *testing.T) {
	for _, c := range []struct {
		estimator string
		off, se   float64
		want      string // part of the warning, or "" for none
	}{
		{estimator.Multilinear, 6.2, .1, "derivatives"},
		{estimator.Multilinear, 6.2, 6, "few rows"},
		{estimator.Debiased, .09, .06, "few rows"},
		{estimator.Multilinear, .08, .0001, ""},
		{estimator.Taylor, 6.2, .1, ""},
		{estimator.Antithetic, 6.2, 0, ""},
	} {
		var f File
		f.Spec.Estimator, f.LossFull, f.LossEmpty, f.EfficiencyError, f.EfficiencySE = c.estimator, .5, .581, c.off, c.se
		got := f.Warning()
		if c.want == "" && got != "" || c.want != "" && !(strings.Contains(got, c.want) && strings.HasSuffix(got, "--estimator antithetic, or to prune with path")) {
			t.Errorf("%+v: %q", c, got)
		}
		f.Rows = 48
		if got := Early(&f.Spec.Options, &f.Result); (got != "") != (c.off > 6 && f.Spec.Estimator == estimator.Multilinear) || got != "" && !strings.HasPrefix(got, "over the first 48 rows the efficiency error of multilinear, 6.2 nat, exceeds") {
			t.Errorf("%+v: before the job %q", c, got)
		}
	}
}

// Only the estimator with a bias is said to have one.
func TestBias(t *testing.T) {
	for _, name := range estimator.Names() {
		if got := Bias(&estimator.Options{Estimator: name}); (got != "") != (name == estimator.Multilinear) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A path fits its rows if their loss falls by more than 2%, and beyond chance by more than the terms predict.
func TestFits(t *testing.T) {
	for _, c := range []struct {
		before, fall, se, predicted float64
		want                        bool
	}{
		{.42, .06, .003, .025, true},     // AFN and 30,000 rows
		{.42, .0136, .003, .0148, false}, // DeepFM and 30,000 rows
		{.42, .03, .003, .025, false},    // chance
		{.42, .008, .001, .002, false},   // a small fall
		{.42, -.02, .001, -.03, false},   // the loss rises
	} {
		if got := Fits(c.before, c.fall, c.se, c.predicted); (got != "") != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
