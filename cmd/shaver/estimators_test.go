package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/baseline"
	"shaver/internal/checkpoint"
	"shaver/internal/estimator"
	"shaver/internal/shapley"
)

// worstBias is how far multilinear values may be from the exact ones, in the root
// mean square, on golden models. An FM is linear in each entry: there is none but
// the noise of the draws. The others are what docs/estimators.md says of trained
// models, twice; and 0 is for tiny networks of random weights, in which one entry is
// a tenth of all there is: nobody would take their logit for linear, and what they
// give is only logged. shapley's tests compare it with its expectation.
var worstBias = map[string]float64{"fm": .01, "deepfm-toy": .08, "deepfm-nobn": .08}

// TestMultilinearBias draws so often that only the bias of the multilinear
// estimator is left, on the golden models, whose exact values are known.
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
	t.Run("own", func(t *testing.T) { run(t, goldenDir) })
	t.Run("shared", func(t *testing.T) { run(t, shared(t, "golden")) })
}

func testBias(t *testing.T, name string, worst float64) {
	var want golden
	readJSON(t, name+".json", &want)
	ck, err := checkpoint.Read(name + ".pth")
	if err != nil {
		t.Fatal(err)
	}
	m, err := ck.Model()
	if err != nil {
		t.Fatal(err)
	}
	rows := goldenRows(t, name+".rows.csv", m.Fields())
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
