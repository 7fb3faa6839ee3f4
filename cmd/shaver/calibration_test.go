package main

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/checkpoint"
	"shaver/internal/model"
	"shaver/internal/prune"
	"shaver/internal/shapley"
	"shaver/internal/tally"
)

// TestGoldenIntervals checks 95% intervals against the exact values of the golden
// models, over many seeds: the dataset's own values by all rows and by a sample of
// them; and the population's, which for rows drawn with replacement is the golden's
// dataset.
func TestGoldenIntervals(t *testing.T) {
	run := func(dir string) func(*testing.T) {
		return func(t *testing.T) {
			models, err := filepath.Glob(filepath.Join(dir, "*.pth"))
			if err != nil || len(models) < 6 {
				t.Fatalf("%d models in %s (%v)", len(models), dir, err)
			}
			held := map[string][2]int{}
			for _, path := range models {
				goldenIntervals(t, strings.TrimSuffix(path, ".pth"), held)
			}
			for what, v := range held {
				share := float64(v[0]) / float64(v[1])
				if t.Logf("%s: %.1f%% of %d", what, 100*share, v[1]); share < .93 || share > .97 {
					t.Errorf("%s: 95%% intervals hold %.1f%% of the values", what, 100*share)
				}
			}
		}
	}
	t.Run("own", run(goldenDir))
	t.Run("shared", func(t *testing.T) { run(shared(t, "golden"))(t) })
}

// goldenIntervals adds to held how many intervals hold their value, and how many
// there are.
func goldenIntervals(t *testing.T, name string, held map[string][2]int) {
	t.Helper()
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
	r := rand.New(rand.NewPCG(1, 2))
	for _, baseline := range slices.Sorted(maps.Keys(want.Exact)) {
		base, _, err := prune.Baseline(baseline, &m.Architecture, m.Weights.Embedding, want.Frequencies)
		if err != nil {
			t.Fatal(err)
		}
		game, exact := shapley.Game{Model: m, Baseline: base}, slices.Concat(want.Exact[baseline]...)
		add := func(what string, found *tally.Result, se []float32, interval func(count int64) float64) {
			v := held[what]
			for i, phi := range found.Phi {
				if t := interval(found.Count[i/m.Dim]); !math.IsNaN(t) {
					if v[1]++; math.Abs(phi-exact[i]) <= t*float64(se[i])+exactTolerance {
						v[0]++
					}
				}
			}
			held[what] = v
		}
		for seed := range uint64(25) {
			for _, passes := range []int{2, 4} {
				o := shapley.Options{Estimator: shapley.Permutation, Passes: passes, Seed: seed}
				dataset := func(n, of int) func(int64) float64 {
					return func(count int64) float64 { t, _ := o.Tally(int64(of)).Interval(count, int64(n)); return t }
				}
				population := func(count int64) float64 { _, t := o.Tally(0).Interval(count, 0); return t }
				all := estimateOf(t, game, o, rows, rows.Len())
				add(fmt.Sprintf("dataset, passes %d", passes), all, all.SE, dataset(rows.Len(), rows.Len()))
				half := rows.Len() / 2
				part := estimateOf(t, game, o, pick(rows, r.Perm(rows.Len())[:half]), rows.Len())
				add(fmt.Sprintf("dataset, half of the rows, passes %d", passes), part, part.SE, dataset(half, rows.Len()))
				again := make([]int, 200)
				for i := range again {
					again[i] = r.IntN(rows.Len())
				}
				drawn := estimateOf(t, game, o, pick(rows, again), len(again))
				add(fmt.Sprintf("population, passes %d", passes), drawn, drawn.PopulationSE, population)
			}
		}
	}
}

// pick returns the rows at these positions, numbered anew.
func pick(rows *model.Rows, at []int) *model.Rows {
	picked := &model.Rows{Fields: rows.Fields}
	for number, i := range at {
		picked.Number, picked.Label = append(picked.Number, int64(number)), append(picked.Label, rows.Label[i])
		picked.Features = append(picked.Features, rows.Row(i)...)
	}
	return picked
}
