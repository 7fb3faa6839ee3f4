package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/checkpoint"
	"shaver/internal/prune"
	"shaver/internal/shapley"
	"shaver/internal/tally"
)

// TestMultilinearBias draws so often that only the bias of the multilinear
// estimator is left, on the golden models, whose exact values are known.
func TestMultilinearBias(t *testing.T) {
	run := func(dir string) func(*testing.T) {
		return func(t *testing.T) {
			models, err := filepath.Glob(filepath.Join(dir, "*.pth"))
			if err != nil || len(models) < 6 {
				t.Fatalf("%d models in %s (%v)", len(models), dir, err)
			}
			for _, path := range models {
				name := strings.TrimSuffix(path, ".pth")
				t.Run(filepath.Base(name), func(t *testing.T) { testBias(t, name) })
			}
		}
	}
	t.Run("own", run(goldenDir))
	t.Run("shared", func(t *testing.T) { run(shared(t, "golden"))(t) })
}

func testBias(t *testing.T, name string) {
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
	for baseline, exact := range want.Exact {
		base, _, err := prune.Baseline(baseline, &m.Architecture, m.Weights.Embedding, want.Frequencies)
		if err != nil {
			t.Fatal(err)
		}
		bias := map[string]float64{}
		for _, endpoints := range []string{shapley.Plain, shapley.Balanced} {
			o := shapley.Options{Estimator: shapley.Multilinear, Passes: 1, Draws: 2048, Endpoints: endpoints, Seed: 1}
			p, err := shapley.Estimate(t.Context(), shapley.Game{Model: m, Baseline: base}, o, o.Spread(false), rows, 2, nil)
			if err != nil {
				t.Fatal(err)
			}
			a := tally.NewAccumulator(m.Features(), m.Dim)
			if err := a.Merge(p); err != nil {
				t.Fatal(err)
			}
			r, err := a.Result(o.Tally(false))
			if err != nil {
				t.Fatal(err)
			}
			off, size, i := 0.0, 0.0, 0
			for _, feature := range exact {
				for _, phi := range feature {
					off += (r.Phi[i] - phi) * (r.Phi[i] - phi)
					size += phi * phi
					i++
				}
			}
			bias[endpoints] = math.Sqrt(off / size)
			t.Logf("%s, %s: residual %.3g, expected %.3g", baseline, endpoints, r.EfficiencyError, r.EfficiencyExpected)
		}
		t.Logf("%s: bias %.2f%% plain, %.2f%% balanced: %.1f times less", baseline, 100*bias[shapley.Plain], 100*bias[shapley.Balanced], bias[shapley.Plain]/bias[shapley.Balanced])
	}
}
