package shapley

import (
	"math"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// gamesOfFlips returns games that multilinear alone gets wrong: a model of each kind, with
// the log loss and the squared loss, and models with lists.
func gamesOfFlips(t *testing.T) map[string]Game {
	games := map[string]Game{}
	for name, a := range modeltest.Architectures() {
		a.FieldDims, a.Dim = []int{2, 2, 2}[:a.Fields()], 2
		base := make([]float32, a.Players())
		for i := range base {
			base[i] = 0.1 * float32(i%3)
		}
		games[name] = Game{Model: modeltest.Random(t, a, 6), Baseline: model.Baseline{Values: base}}
		games[name+" squared"] = Game{Model: modeltest.Random(t, a, 6), Baseline: model.Baseline{Values: base}, Loss: loss.Squared}
	}
	for _, pooling := range modeltest.Poolings() {
		games["lists "+pooling] = Game{Model: modeltest.ListModel(pooling, 3), Baseline: model.Baseline{Values: []float32{.1, -.2, .1, -.2, .3, -.1}}}
	}
	return games
}

// The values with flips have the exact values as their mean, and the players of each row sum
// exactly to what they are worth. Multilinear alone does not have them for these models.
func TestFlipsAreUnbiased(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out statistics")
	}
	const seeds = 8000
	far, all := 0, 0
	for name, game := range gamesOfFlips(t) {
		rows := modeltest.Rows(game.Model.Architecture, 4, 6)
		exact := newPlayer(game, Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, false)
		if err := exact.play(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
		var want [][]float64
		for r := range rows.Len() {
			if err := exact.row(rows, r); err != nil {
				t.Fatal(err)
			}
			want = append(want, make([]float64, len(exact.played.Sum)))
			for i, v := range exact.played.Sum {
				want[r][i] = float64(v) * tally.LossUnit
			}
		}
		o := Options{Options: estimator.Options{Estimator: estimator.Debiased, Passes: 1, Draws: 2, Endpoints: estimator.Plain, Flips: 4}}
		p := newPlayer(game, o, false)
		type moments struct{ mean, square, base float64 }
		found := make([][]moments, len(want))
		for r := range found {
			found[r] = make([]moments, len(want[r]))
		}
		for seed := range uint64(seeds) {
			p.evaluator.(*debiased).options.Seed = seed
			if err := p.play(t.Context(), rows); err != nil {
				t.Fatal(err)
			}
			for r := range rows.Len() {
				if err := p.row(rows, r); err != nil {
					t.Fatal(err)
				}
				left := p.played.LossEmpty - p.played.LossFull
				for i, v := range p.played.Sum {
					corrected := v + p.played.Correction[i]
					left -= corrected
					x, m := float64(corrected)*tally.LossUnit, &found[r][i]
					m.mean += x / seeds
					m.square += x * x / seeds
					m.base += float64(v) * tally.LossUnit / seeds
				}
				if left != 0 && len(want[r]) > 0 {
					t.Fatalf("%s: row %d: the contributions miss %d units of what the players are worth", name, r, left)
				}
			}
		}
		var bias, before, size float64
		for r := range want {
			for i, want := range want[r] {
				m := found[r][i]
				se := math.Sqrt(max(0, m.square-m.mean*m.mean) / seeds)
				if all++; math.Abs(m.mean-want) > 4*se+1e-6 {
					far++
					t.Logf("%s: player %d of row %d is %g on average, expected %g +- %g", name, i, r, m.mean, want, se)
				}
				bias, before, size = bias+math.Pow(m.mean-want, 2), before+math.Pow(m.base-want, 2), size+want*want
			}
		}
		t.Logf("%s: bias %.2f%%, without flips %.2f%%", name, 100*math.Sqrt(bias/size), 100*math.Sqrt(before/size))
	}
	if far > all/100 {
		t.Errorf("%d of %d values are more than 4 standard errors off", far, all)
	}
}
