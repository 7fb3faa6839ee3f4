package shapley_test

import (
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
