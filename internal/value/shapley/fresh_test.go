package shapley_test

import (
	"math"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// The sums of rows of which some are fresh are those of the other rows, plus those of the fresh rows alone times their weight. This
// holds for each estimator and for both terms of a path, which round once a row. Variances within rows count the square of the weight.
func TestFreshRows(t *testing.T) {
	const weight = 3
	a := modeltest.Architectures()["deepfm"]
	g := shapley.Game{Model: modeltest.Random(t, a, 3)}
	g.Baseline = baseline(g.Model)
	rows := modeltest.Rows(g.Model.Architecture, 40, 4)
	fresh := &estimator.Fresh{Weight: weight, Rows: [][2]int64{{rows.Number[5], rows.Number[9]}, {rows.Number[30], rows.Number[31]}}}
	var parts [2]model.Rows // seen, fresh
	for r, number := range rows.Number {
		if k := 0; fresh.Has(number) {
			parts[k+1].Append(rows, r)
		} else {
			parts[k].Append(rows, r)
		}
	}
	if parts[1].Len() != 5 {
		t.Fatalf("%d rows are fresh, expected 5", parts[1].Len())
	}
	for _, name := range estimator.Names() {
		o := shapley.Options{Options: estimator.Options{Estimator: name, Passes: 1}}
		if t := o.Traits(); !t.Exact && !t.Draws {
			o.Passes = 2
		}
		o.SetDefaults()
		sums := func(o shapley.Options, rows *model.Rows) *tally.Partial {
			p, err := shapley.Estimate(t.Context(), g, o, rows, 2, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return p
		}
		weighted := o
		weighted.Fresh = fresh
		all, seen, once := sums(weighted, rows), sums(o, &parts[0]), sums(o, &parts[1])
		if all.Rows != 40 || all.Fresh != 5 || all.LossFull != seen.LossFull+weight*once.LossFull || all.LossEmpty != seen.LossEmpty+weight*once.LossEmpty {
			t.Errorf("%s: %d rows, %d fresh, losses %d and %d", name, all.Rows, all.Fresh, all.LossFull, all.LossEmpty)
		}
		check := func(what string, weight int64, list func(p *tally.Partial) []int64) {
			want := map[int]int64{}
			for k, p := range []*tally.Partial{seen, once} {
				for entry, x := range entries(p, list(p)) {
					want[entry] += x * []int64{1, weight}[k]
				}
			}
			for entry, x := range entries(all, list(all)) {
				if off := x - want[entry]; off < -10 || off > 10 || !o.Traits().Ranks && off != 0 {
					t.Errorf("%s: the %s of entry %d is %d, expected %d", name, what, entry, x, want[entry])
				}
			}
		}
		check("sum", weight, func(p *tally.Partial) []int64 { return p.Sum })
		switch {
		case o.Traits().Ranks:
			check("second-order sum", weight, func(p *tally.Partial) []int64 { return p.Square })
		case o.Traits().Flips:
			check("correction", weight, func(p *tally.Partial) []int64 { return p.Correction })
		case o.Passes > 1:
			check("variance within rows", weight*weight, func(p *tally.Partial) []int64 { return p.Within })
		}
	}
}

// entries returns a list of a partial by entry.
func entries(p *tally.Partial, list []int64) map[int]int64 {
	all, at := map[int]int64{}, 0
	for _, f := range p.Features {
		from, to := p.Shape.Row(int(f))
		for i := from; i < to; i++ {
			all[i] = list[at]
			at++
		}
	}
	return all
}

// The variance of a player within a row is that of its sum over the passes: n / (n-1) times the sum of the squares by which the passes, each of which a
// job of one pass computes, differ from their mean.
func TestVarianceWithinRows(t *testing.T) {
	const passes = 4
	a := modeltest.Architectures()["deepfm"]
	g := shapley.Game{Model: modeltest.Random(t, a, 3)}
	g.Baseline = baseline(g.Model)
	rows := modeltest.Rows(g.Model.Architecture, 5, 4)
	for _, name := range []string{estimator.Permutation, estimator.Antithetic, estimator.Debiased} {
		o := shapley.Options{Options: estimator.Options{Estimator: name, Passes: passes}, Seed: 9}
		o.SetDefaults()
		for r := range rows.Len() {
			row := rows.Slice(r, r+1)
			all, err := shapley.Estimate(t.Context(), g, o, &row, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			sum, square := map[int]float64{}, map[int]float64{}
			for pass := range passes {
				one := o
				one.Passes, one.First = 1, pass
				p, err := shapley.Estimate(t.Context(), g, one, &row, 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				values := p.Sum
				for i, z := range p.Correction {
					values[i] += z
				}
				for entry, x := range entries(p, values) {
					v := float64(x) * tally.LossUnit
					sum[entry], square[entry] = sum[entry]+v, square[entry]+v*v
				}
			}
			for entry, units := range entries(all, all.Within) {
				want := (square[entry] - sum[entry]*sum[entry]/passes) * passes / (passes - 1)
				if got := float64(units) * tally.SquareUnit; math.Abs(got-want) > 1e-6*(want+square[entry]) {
					t.Errorf("%s, row %d: entry %d has the variance %g, expected %g", name, r, entry, got, want)
				}
			}
		}
	}
}
