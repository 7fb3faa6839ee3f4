package shapley_test

import (
	"math"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

// A dropped entry of a GMF column takes its partner out of the logit too, if the baseline is
// zero. Without the MLP, the entries of a column of the user and of the item are therefore
// symmetric in the game of each row, and those of the MLP columns are null players. Walks give
// the values of exact on average.
func TestProductsAreSymmetric(t *testing.T) {
	a := modeltest.Architectures()["neumf"]
	w := modeltest.Weights(a, 7)
	clear(w.Output.Weight)
	m, err := model.New(a, w)
	if err != nil {
		t.Fatal(err)
	}
	game := shapley.Game{Model: m, Baseline: m.Zero()}
	rows := modeltest.Rows(a, 20, 7)
	for i := range rows.Len() {
		row := rows.Slice(i, i+1)
		values := func(o estimator.Options) []float64 {
			r := play(t, game, shapley.Options{Options: o, Seed: 1}, &row)
			var phi []float64
			for _, f := range row.Row(0) {
				phi = append(phi, r.Phi[int(f)*a.Dim:][:a.Dim]...)
			}
			return phi
		}
		phi := values(estimator.Options{Estimator: estimator.Exact, Passes: 1})
		walks := values(estimator.Options{Estimator: estimator.Antithetic, Passes: 2000})
		for c := range a.Dim {
			user, item := phi[c], phi[a.Dim+c]
			switch {
			case c < a.Dim/2 && (user != 0 || item != 0):
				t.Errorf("row %d, MLP column %d: values %g and %g, expected 0", i, c, user, item)
			case c >= a.Dim/2 && (math.Abs(user-item) > 1e-8 || user == 0):
				t.Errorf("row %d, GMF column %d: the user's value is %g and the item's %g, expected the same", i, c, user, item)
			}
		}
		for p, v := range walks {
			if math.Abs(v-phi[p]) > .05*(1+math.Abs(phi[p])) {
				t.Errorf("row %d, player %d: walks give %g, expected %g", i, p, v, phi[p])
			}
		}
	}
}
