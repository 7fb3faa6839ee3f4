package shapley_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

// A row whose list is masked as a whole is refused with advice, unless the model replaces the
// NaN. Derivatives for it are then finite.
func TestEmptyListsOfMaskedGraphs(t *testing.T) {
	for name, replaced := range map[string]bool{"masked-weights.legacy": false, "masked-filled.dynamo": true, "masked-pooled.legacy": true, "masked-attention.legacy": true} {
		c, err := checkpoint.Read(exports + name + ".onnx")
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.Model()
		if err != nil {
			t.Fatal(err)
		}
		rows := modeltest.Rows(m.Architecture, 4, 3)
		pad := m.Offsets()[2]
		for i := range 4 {
			rows.Row(1)[2+i] = pad
		}
		logits := make([]float64, rows.Len())
		g := m.NewGradient()
		m.Embed(g.Set(0, rows, 1), rows.Row(1))
		g.Slopes(logits[:1])
		for _, v := range g.Slope(0) {
			if replaced && v-v != 0 {
				t.Errorf("%s: a derivative is %v", name, v)
			}
		}
		if math.IsNaN(logits[0]) == replaced {
			t.Errorf("%s: the logit is %v", name, logits[0])
		}
		_, predicted := evaluate.Predict(context.Background(), m, loss.Logistic, func(_ context.Context, each func(*model.Rows) error) error { return each(rows) }, 1)
		game := shapley.Game{Model: m, Baseline: baseline(m)}
		for _, e := range []string{estimator.Antithetic, estimator.Multilinear, estimator.Debiased} {
			o := estimator.Options{Estimator: e, Passes: 1}
			if e != estimator.Antithetic {
				o.Draws, o.Endpoints = 2, estimator.Plain
			}
			if e == estimator.Debiased {
				o.Flips = 4
			}
			_, err := shapley.Estimate(t.Context(), game, shapley.Options{Options: o, Seed: 1}, rows, 1, nil)
			for _, err := range []error{err, predicted} {
				if replaced && err != nil || !replaced && (err == nil || !strings.Contains(err.Error(), "the logit is NaN, expected a number: if the model masks with -inf")) {
					t.Errorf("%s, %s: %v", name, e, err)
				}
			}
		}
	}
}
