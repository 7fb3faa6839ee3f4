package shapley

import (
	"math"
	"strings"
	"testing"

	"shaver/internal/base/long"
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
	long.Heavy(t)
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

// Of the states of a row only the one with exactly the first two players has a loss that is no number. Each draw is that state or one flip
// away from it, and the row fails in each case. Without flips it fails in the draws alone.
func TestFlipsThatFail(t *testing.T) {
	const much = 2048
	w := model.Weights{Embedding: []float32{much, much, -much / 2}, FirstOrder: make([]float32, 3)} // the logits of pairs are 2^22, -2^21 and -2^21
	m, err := model.New(model.Architecture{Kind: model.FM, FieldDims: []int{1, 1, 1}, Dim: 1}, w)
	if err != nil {
		t.Fatal(err)
	}
	game := Game{Model: m, Baseline: m.Zero()}
	rows := &model.Rows{Width: 3, Number: []int64{7}, Label: []float32{0}, Features: []int32{0, 1, 2}}
	failed := map[string]int{}
	for seed := range uint64(30) {
		for name, o := range map[string]estimator.Options{
			"flips": {Estimator: estimator.Debiased, Passes: 1, Draws: 2, Endpoints: estimator.Plain, Flips: 16},
			"draws": {Estimator: estimator.Multilinear, Passes: 1, Draws: 2, Endpoints: estimator.Plain},
		} {
			_, err := Estimate(t.Context(), game, Options{Options: o, Seed: seed}, rows, 1, nil)
			if err != nil && strings.Contains(err.Error(), "row 7: with some entries present: the logit is 4.194304e+06") {
				failed[name]++
			} else if name == "flips" {
				t.Errorf("seed %d: error %v, expected that of the state with the first two players", seed, err)
			}
		}
	}
	if failed["draws"] == 0 || failed["draws"] == 30 {
		t.Errorf("the draws fail with %d of 30 seeds, expected some", failed["draws"])
	}
}
