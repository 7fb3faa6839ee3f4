package shapley_test

import (
	"math"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

// Walks agree with exact values of models with recurrent layers, convolutions and choices, and
// satisfy the efficiency identity.
func TestExactOfSequences(t *testing.T) {
	for _, name := range []string{"gru.dynamo", "lstm.legacy", "dien.legacy", "caser.dynamo", "ccpm.legacy", "fgcnn.legacy", "sim.dynamo", "hard.legacy", "eulernet.legacy"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := checkpoint.Read(exports + name + ".onnx")
			if err != nil {
				t.Fatal(err)
			}
			m, err := c.Model()
			if err != nil {
				t.Fatal(err)
			}
			rows := modeltest.Rows(m.Architecture, 3, 5)
			for r, ids := range [][6]int32{{1, 2, 2, 2, 2, 2}, {3, 2, 2, 9, 0, 0}, {0, 4, 4, 4, 0, 7}} { // user, item, history
				row := rows.Row(r)
				for i, offset := range []int32{0, 7, 18, 18, 18, 18} {
					row[i] = ids[i] + offset
				}
			}
			game := shapley.Game{Model: m, Baseline: baseline(m)}
			exact := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, rows)
			walks := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Antithetic, Passes: 200}, Seed: 2}, rows)
			sum, largest := 0.0, 0.0
			for _, phi := range walks.Phi {
				sum += phi
			}
			if effect := walks.LossEmpty - walks.LossFull; math.Abs(sum-effect) > 1e-7 {
				t.Errorf("the values of walks sum to %v, expected %v", sum, effect)
			}
			for i, want := range exact.Phi {
				if largest = max(largest, math.Abs(want)); math.Abs(walks.Phi[i]-want) > 5*float64(walks.SE[i])+1e-6 {
					t.Errorf("entry %d has the value %v, expected %v within 5 times %v", i, walks.Phi[i], want, walks.SE[i])
				}
			}
			if largest < 1e-2 {
				t.Errorf("the largest value is %v, which is too small for a comparison", largest)
			}
		})
	}
}
