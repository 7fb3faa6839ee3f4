package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// worstBias is the largest difference of multilinear values from exact values on golden
// models, in the root mean square. An FM is linear in each entry, so it only has the
// noise of the draws. The bounds of the others are twice the bias of trained models in
// docs/evidence/estimators.md. 0 means that the difference is only logged. This is for tiny
// networks of random weights, whose logit is far from linear, because one entry is a
// tenth of the table. The tests of shapley compare them with the expectation.
var worstBias = map[string]float64{"fm": .01, "deepfm-toy": .08, "deepfm-nobn": .08}

// The multilinear estimator has a small bias on the golden models, whose exact values are
// known. It has enough draws that only the bias is left.
func TestMultilinearBias(t *testing.T) {
	run := func(t *testing.T, dir string) {
		models, err := filepath.Glob(filepath.Join(dir, "*.pth"))
		if err != nil || len(models) < 6 {
			t.Fatalf("%d models in %s (%v)", len(models), dir, err)
		}
		for _, path := range models {
			name := strings.TrimSuffix(path, ".pth")
			t.Run(filepath.Base(name), func(t *testing.T) { testBias(t, name, worstBias[filepath.Base(name)]) })
		}
	}
	for name, dir := range goldenDirs(t) {
		t.Run(name, func(t *testing.T) { run(t, dir) })
	}
}

func testBias(t *testing.T, name string, worst float64) {
	want, m, rows := loadGolden(t, name)
	for kind, exact := range want.Exact {
		base, _, err := baseline.Of(kind, &m.Architecture, m.Weights.Embedding, want.Frequencies)
		if err != nil {
			t.Fatal(err)
		}
		for _, endpoints := range []string{estimator.Plain, estimator.Balanced} {
			r := estimate(t, shapley.Game{Model: m, Baseline: base},
				shapley.Options{Options: estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 2048, Endpoints: endpoints}, Seed: 1}, rows)
			off, size, i := 0.0, 0.0, 0
			for _, feature := range exact {
				for _, phi := range feature {
					off += (r.Phi[i] - phi) * (r.Phi[i] - phi)
					size += phi * phi
					i++
				}
			}
			bias := math.Sqrt(off / size)
			t.Logf("%s, %s: bias %.2f%%; efficiency error %.3g, standard error %.2g", kind, endpoints, 100*bias, r.EfficiencyError, r.EfficiencySE)
			if worst > 0 && !(bias <= worst) {
				t.Errorf("%s, %s: expected a bias of at most %g%%", kind, endpoints, 100*worst)
			}
		}
	}
}

// estimate returns the result of an estimator on all rows of a dataset.
func estimate(t *testing.T, game shapley.Game, o shapley.Options, rows *model.Rows) *tally.Result {
	t.Helper()
	return estimateOf(t, game, o, rows, rows.Len())
}

// estimateOf is like estimate, but the rows are a sample of a dataset with of rows.
func estimateOf(t *testing.T, game shapley.Game, o shapley.Options, rows *model.Rows, of int) *tally.Result {
	t.Helper()
	p, err := shapley.Estimate(t.Context(), game, o, rows, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	sampling := tally.NewSampling(o.Options, int64(of))
	a := tally.NewAccumulator(game.Model.Shape(), sampling.Form(game.Model.Fields()))
	if err := a.Merge(p); err != nil {
		t.Fatal(err)
	}
	r, err := a.Result(sampling)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
