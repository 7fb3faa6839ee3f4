package shapley_test

import (
	"math"
	"math/bits"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

// A game of too many players has no values of pairs, and has those of fields.
func TestTooManyPairs(t *testing.T) {
	a := model.Architecture{Kind: model.FM, FieldDims: make([]int, 513), Dim: 1}
	for i := range a.FieldDims {
		a.FieldDims[i] = 1
	}
	m, rows := modeltest.Random(t, a, 2), modeltest.Rows(a, 1, 5)
	for _, pairs := range []bool{false, true} {
		game := shapley.Game{Model: m, Loss: loss.Logistic, Fields: &shapley.Fields{Background: rows, Pairs: pairs}}
		_, err := shapley.Estimate(t.Context(), game, shapley.Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}}, rows, 1, nil)
		if pairs != (err != nil) || pairs && err.Error() != "513 fields and dense inputs, expected at most 512 for the values of pairs: use the players fields" {
			t.Errorf("pairs %t: %v", pairs, err)
		}
	}
}

// The values of pairs are their Shapley interaction indices by the definition. The values of fields are the same
// as without pairs, to the last bit, and those of pairs add up to 0.
func TestFieldPairs(t *testing.T) {
	for name, m := range fieldGames(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows := modeltest.Rows(m.Architecture, 12, 5)
			game := shapley.Game{Model: m, Loss: loss.Logistic, Fields: &shapley.Fields{Background: modeltest.Rows(m.Architecture, 3, 6)}}
			n := m.Fields() + len(m.Dense)
			want := make([]float64, n*n)
			for r := range rows.Len() {
				losses := fieldLosses(t, game, rows, r)
				for i := range n {
					for j := range i {
						pair := 1<<i | 1<<j
						for set := range losses {
							if set&pair == 0 {
								weight := 1 / (float64(n-1) * binomial(n-2, bits.OnesCount(uint(set))))
								want[j*n+i] += weight * (losses[set|1<<i] + losses[set|1<<j] - losses[set] - losses[set|pair]) / float64(rows.Len())
							}
						}
					}
				}
			}
			pairs := game
			pairs.Fields = &shapley.Fields{Background: game.Fields.Background, Pairs: true}
			for estimatorName, passes := range map[string]int{estimator.Exact: 1, estimator.Permutation: 200, estimator.Antithetic: 100} {
				plain, found := valuesOf(t, game, estimatorName, passes, rows), valuesOf(t, pairs, estimatorName, passes, rows)
				for i := range n {
					if found.Phi[i*n+i] != plain.Phi[i] || found.SE[i*n+i] != plain.SE[i] || found.PopulationSE[i*n+i] != plain.PopulationSE[i] {
						t.Errorf("%s: player %d has the value %v, and %v without pairs", estimatorName, i, found.Phi[i*n+i], plain.Phi[i])
					}
					for j := i + 1; j < n; j++ {
						scale := float64(n) / 2
						at := i*n + j
						if off := math.Abs(scale*found.Phi[at] - want[at]); off > 4.5*scale*float64(found.SE[at])+1e-6 {
							t.Errorf("%s: players %d and %d have the value %v, expected %v +- %v", estimatorName, i, j, scale*found.Phi[at], want[at], scale*float64(found.SE[at]))
						}
						if found.Phi[j*n+i] != -found.Phi[at] {
							t.Errorf("%s: players %d and %d have the entries %v and %v", estimatorName, i, j, found.Phi[at], found.Phi[j*n+i])
						}
					}
				}
			}
		})
	}
}
