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

	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// 95% intervals contain the exact values of the golden models in 95% of many seeds. There
// are intervals for the values on the dataset, from all rows and from a sample of them,
// and for the values on the population. For the latter, rows are drawn with replacement,
// so that the golden's dataset is the population.
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
	for name, dir := range goldenDirs(t) {
		t.Run(name, run(dir))
	}
}

// goldenIntervals adds to held the number of intervals that hold their value and the
// number of all intervals.
func goldenIntervals(t *testing.T, name string, held map[string][2]int) {
	t.Helper()
	want, m, rows := loadGolden(t, name)
	r := rand.New(rand.NewPCG(1, 2))
	for _, kind := range slices.Sorted(maps.Keys(want.Exact)) {
		base, _, err := baseline.Of(kind, &m.Architecture, m.Weights.Embedding, want.Frequencies)
		if err != nil {
			t.Fatal(err)
		}
		game, exact := shapley.Game{Model: m, Baseline: base}, slices.Concat(want.Exact[kind]...)
		for seed := range uint64(25) {
			for _, passes := range []int{2, 4} {
				o := shapley.Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: passes}, Seed: seed}
				add := func(what string, picked *model.Rows, of int, population bool) {
					found := estimateOf(t, game, o, picked, of)
					holds(held, fmt.Sprintf("%s, passes %d", what, passes), found, exact, tally.NewSampling(o.Options, int64(of)), population)
				}
				add("dataset", rows, rows.Len(), false)
				add("dataset, half of the rows", pick(rows, r.Perm(rows.Len())[:rows.Len()/2]), rows.Len(), false)
				drawn := make([]int, 200)
				for i := range drawn {
					drawn[i] = r.IntN(rows.Len())
				}
				add("population", pick(rows, drawn), len(drawn), true)
			}
		}
	}
}

// Over many seeds, the mean of debiased values is the exact value, for at least 99% of the
// entries within 4 standard errors. The contributions of each row sum exactly to what its
// players are worth. Multilinear alone is wrong for most entries.
func TestGoldenDebiased(t *testing.T) {
	long.Test(t)
	run := func(t *testing.T, dir string) {
		models, err := filepath.Glob(filepath.Join(dir, "*.pth"))
		if err != nil || len(models) < 6 {
			t.Fatalf("%d models in %s (%v)", len(models), dir, err)
		}
		far, all := 0, 0
		for _, path := range models {
			f, n := goldenDebiased(t, strings.TrimSuffix(path, ".pth"))
			far, all = far+f, all+n
		}
		if t.Logf("%d of %d values are more than 4 standard errors off", far, all); all < 100 || far > all/100 {
			t.Error("expected at most 1%")
		}
	}
	for name, dir := range goldenDirs(t) {
		t.Run(name, func(t *testing.T) { run(t, dir) })
	}
}

// goldenDebiased returns how many values of a golden model are more than 4 standard errors off,
// and the number of values.
func goldenDebiased(t *testing.T, name string) (far, all int) {
	const seeds = 400
	want, m, rows := loadGolden(t, name)
	for kind, exact := range want.Exact {
		base, _, err := baseline.Of(kind, &m.Architecture, m.Weights.Embedding, want.Frequencies)
		if err != nil {
			t.Fatal(err)
		}
		game := shapley.Game{Model: m, Baseline: base}
		o := shapley.Options{Options: estimator.Options{Estimator: estimator.Debiased, Passes: 1, Draws: 2, Endpoints: estimator.Plain, Flips: 8}}
		for r := range rows.Len() {
			row := rows.Slice(r, r+1)
			p, err := shapley.Estimate(t.Context(), game, o, &row, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			left := p.LossEmpty - p.LossFull
			for i, v := range p.Sum {
				left -= v + p.Correction[i]
			}
			if left != 0 {
				t.Errorf("%s, %s: the contributions to row %d miss %d units of what its players are worth", name, kind, r, left)
			}
		}
		values := slices.Concat(exact...)
		mean, square := make([]float64, len(values)), make([]float64, len(values))
		for o.Seed = range uint64(seeds) {
			for i, phi := range estimate(t, game, o, rows).Phi {
				mean[i] += phi / seeds
				square[i] += phi * phi / seeds
			}
		}
		for i, phi := range values {
			se := math.Sqrt(max(0, square[i]-mean[i]*mean[i]) / (seeds - 1))
			if all++; math.Abs(mean[i]-phi) > 4*se+exactTolerance {
				far++
				t.Logf("%s, %s: entry %d is %g on average, expected %g +- %g", filepath.Base(name), kind, i, mean[i], phi, se)
			}
		}
	}
	return far, all
}

// pick returns the rows at these positions, with new numbers.
func pick(rows *model.Rows, at []int) *model.Rows {
	picked := &model.Rows{Width: rows.Width}
	for number, i := range at {
		picked.Number, picked.Label = append(picked.Number, int64(number)), append(picked.Label, rows.Label[i])
		picked.Features = append(picked.Features, rows.Row(i)...)
	}
	return picked
}

// holds adds to held the number of intervals that hold the values and the number of all
// intervals.
func holds(held map[string][2]int, what string, found *tally.Result, values []float64, e tally.Sampling, population bool) {
	v := held[what]
	for i, phi := range found.Phi {
		t, of := e.Interval(found.Count[found.Shape.RowOf(i)], found.Rows)
		se := found.SE[i]
		if population {
			t, se = of, found.PopulationSE[i]
		}
		if math.IsNaN(t) {
			continue
		}
		if v[1]++; math.Abs(phi-values[i]) <= t*float64(se)+exactTolerance/float64(found.Rows) {
			v[0]++
		}
	}
	held[what] = v
}

// The same holds for a trained model, with walks instead of exact values. The values on
// 400 rows are compared with 150 antithetic passes over them. The values on all rows, from
// a sample of 3,000, are compared with one walk for each row. There, the intervals of
// rare features are wider than necessary. The test takes five minutes.
func testFlightsIntervals(t *testing.T) {
	flights, dir := importFlights(t)
	d, err := dataset.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	counts, err := d.Frequencies(dataset.Train)
	if err != nil {
		t.Fatal(err)
	}
	ck, err := checkpoint.Read(filepath.Join(flights, "deepfm.pth"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := ck.Model()
	if err != nil {
		t.Fatal(err)
	}
	base, _, err := baseline.Of(baseline.Codebook, &m.Architecture, m.Weights.Embedding, counts)
	if err != nil {
		t.Fatal(err)
	}
	game := shapley.Game{Model: m, Baseline: base}
	all := &model.Rows{Width: len(d.Fields())}
	if err := d.Scan(t.Context(), []string{dataset.Train}, 4096, func(rows *model.Rows) error {
		all.Number, all.Label, all.Features = append(all.Number, rows.Number...), append(all.Label, rows.Label...), append(all.Features, rows.Features...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	few := pick(all, r.Perm(all.Len())[:400])
	truth := estimate(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Antithetic, Passes: 150}, Seed: 99}, few)
	whole := estimate(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}, Seed: 99}, all)
	held := map[string][2]int{}
	for seed := range uint64(5) {
		for _, passes := range []int{2, 4} {
			o := shapley.Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: passes}, Seed: seed}
			holds(held, fmt.Sprintf("dataset, passes %d", passes), estimate(t, game, o, few), truth.Phi, tally.NewSampling(o.Options, int64(few.Len())), false)
			sample := estimateOf(t, game, o, pick(all, r.Perm(all.Len())[:3000]), all.Len())
			holds(held, fmt.Sprintf("dataset, a sample, passes %d", passes), sample, whole.Phi, tally.NewSampling(o.Options, int64(all.Len())), false)
		}
	}
	for what, v := range held {
		share := float64(v[0]) / float64(v[1])
		if t.Logf("%s: %.1f%% of %d", what, 100*share, v[1]); share < .94 {
			t.Errorf("%s: 95%% intervals hold %.1f%%", what, 100*share)
		}
	}
}
