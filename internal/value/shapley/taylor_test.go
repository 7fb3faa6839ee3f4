package shapley_test

import (
	"math"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

// Paper, the rival Taylor: the score of an entry is minus the derivative of the loss at the
// full row, times the entry minus its baseline. The test computes the derivative numerically
// from the reference formula, in float64.
func TestTaylor(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		m := modeltest.Random(t, a, 4)
		rows := modeltest.Rows(a, 30, 4)
		for k, base := range []model.Baseline{m.Zero(), baseline(m), modeltest.Words(&a, 3, 4)} {
			game := shapley.Game{Model: m, Baseline: base, Loss: []loss.Kind{loss.Logistic, loss.Squared, loss.Logistic}[k]}
			found := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Taylor, Passes: 1}}, rows)
			want, size := make([]float64, a.Parameters()), make([]float64, a.Parameters())
			entries, x, own := make([]float32, m.Players()), make([]float64, m.Players()), baselines(m, base)
			for r := range rows.Len() {
				m.Embed(entries, rows.Row(r))
				for i, e := range entries {
					x[i] = float64(e)
				}
				loss := func() float64 {
					return game.Loss.Of(modeltest.Logit(&m.Architecture, &m.Weights, rows.Row(r), x), rows.Label[r])
				}
				for i := range x {
					const h = 1e-6
					at := int(rows.Row(r)[i/a.Dim])*a.Dim + i%a.Dim
					v := x[i]
					x[i] = v + h
					up := loss()
					x[i] = v - h
					slope := (up - loss()) / (2 * h)
					x[i] = v
					phi := -slope * (v - float64(own[at])) / float64(rows.Len())
					want[at] += phi
					size[at] += math.Abs(phi)
				}
			}
			for i, phi := range want {
				if math.Abs(found.Phi[i]-phi) > 1e-5+1e-4*size[i] || math.Abs(float64(found.Abs[i])-size[i]) > 1e-5+1e-4*size[i] {
					t.Fatalf("%s, entry %d: the mean is %g and the mean absolute value %g, expected %g and %g", name, i, found.Phi[i], found.Abs[i], phi, size[i])
				}
			}
			for i, se := range found.SE {
				if se != 0 {
					t.Fatalf("%s, entry %d: the standard error is %g, expected 0", name, i, se)
				}
			}
		}
	}
}
