package sweep

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/click/compact"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
	"shaver/internal/value/tally"
)

// pieces is the number of parts of a table.
const pieces = 40

// noise says how the parts of a table that go change the logits: each adds noise of a variance, or in place of that of the parts
// before it if it is alone. Tables with alone are as far from each other as from the whole one.
type noise struct {
	variance func(part int) float64
	alone    bool
}

// logs draws the rows of a data set, and returns what tables without the first parts of an order predict on them.
func (of noise) logs(r *rand.Rand, rows int) func(gone int) *evaluate.Predictions {
	p := &evaluate.Predictions{Logits: make([]float64, rows), Labels: make([]float32, rows)}
	noise := make([][pieces + 1]float64, rows)
	for i := range rows {
		p.Logits[i] = r.NormFloat64()
		if r.Float64() < 1/(1+math.Exp(-p.Logits[i])) {
			p.Labels[i] = 1
		}
		for k := range pieces {
			if noise[i][k+1] = r.NormFloat64() * math.Sqrt(of.variance(k)); !of.alone {
				noise[i][k+1] += noise[i][k]
			}
		}
	}
	return func(gone int) *evaluate.Predictions {
		q := &evaluate.Predictions{Logits: slices.Clone(p.Logits), Labels: p.Labels}
		for i := range q.Logits {
			q.Logits[i] += noise[i][gone]
		}
		return q
	}
}

// searched returns a function that sweeps an order of a model with pieces entries, and finds tables within bounds.
func searched(t *testing.T) func(budgets []mask.Budget, within []float64, rows int64, predict func(gone int) *evaluate.Predictions) *Document {
	t.Helper()
	a := modeltest.Architectures()["fm"]
	a.FieldDims, a.Dim = []int{pieces / 2, pieces / 2}, 1
	m := modeltest.Random(t, a, 1)
	for i := range m.Weights.Embedding {
		m.Weights.Embedding[i] = float32(i + 1)
	}
	f := &scores.File{Spec: job.Spec{Options: estimator.Options{Estimator: "permutation", Passes: 1}, Baseline: baseline.Zero, Sample: 1}, Baseline: m.Zero()}
	f.Scores = tally.Scores{Shape: m.Shape(), Values: tally.NewValues(m.Parameters())}
	for i := range f.Phi {
		f.Phi[i] = float64(i)
	}
	start := &Unpruned{
		Architecture: &m.Architecture, Names: []string{"a", "b"}, Entries: m.Weights.Embedding, Values: compact.Float32,
		Footprint: func(dropped []bool, _ model.Baseline) (file, table, memory int64) {
			return int64(len(dropped)), int64(len(dropped)), 1
		},
	}
	method, err := start.ByScores(f, 0, scores.Sum, mask.Abs)
	if err != nil {
		t.Fatal(err)
	}
	return func(budgets []mask.Budget, within []float64, rows int64, predict func(gone int) *evaluate.Predictions) *Document {
		c := Config{Model: m, Methods: []Method{method}, Budgets: budgets, Within: within, Predict: func(_ context.Context, m *model.Model) (*evaluate.Predictions, error) {
			gone := 0
			for _, v := range m.Weights.Embedding {
				if v == 0 {
					gone++
				}
			}
			return predict(gone), nil
		}}
		d := &Document{Rows: rows, Sources: []ScoresFile{NewScoresFile(f, "")}}
		if err := c.Run(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if measured := c.Work(); len(d.Points)+1 > measured {
			t.Errorf("%d tables were measured, expected at most %d", len(d.Points)+1, measured)
		}
		return d
	}
}

// In at most 5% of 1000 data sets, the table that Decide calls certain is worse than the bound, although the rows that judge also
// chose which tables were measured. The true differences are those of many rows. They grow evenly, or are above the bound by
// little from some part on.
func TestCertain(t *testing.T) {
	long.Test(t)
	const bound, sets, rows = .03, 1000, 300
	sweep := searched(t)
	const above = .33 // variance that lowers the AUC and raises the loss by .032
	for name, of := range map[string]noise{
		"even":   {func(int) float64 { return .04 }, false},
		"step":   {func(k int) float64 { return map[bool]float64{true: above}[k == 10] }, false},
		"others": {func(k int) float64 { return map[bool]float64{true: above}[k > 10] }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			truth := of.logs(rand.New(rand.NewPCG(1, 2)), 200_000)
			whole := evaluate.Rank(truth(0))
			var beyond [pieces + 1]bool
			for k := range beyond {
				c := evaluate.Rank(truth(k)).Minus(whole)
				beyond[k] = c.AUC.Value < -bound || c.Loss.Value > bound
			}
			if !beyond[pieces] || beyond[0] {
				t.Fatalf("beyond the bound: %v", beyond)
			}
			errors, found := 0, 0
			for set := range sets {
				d := sweep(nil, []float64{bound}, rows, of.logs(rand.New(rand.NewPCG(3, uint64(set))), rows))
				if p := d.Decide(Bound(bound)); p != nil {
					found++
					if beyond[pieces-p.Parameters] {
						errors++
					}
				}
			}
			t.Logf("%d tables are certain, of which %d are beyond the bound", found, errors)
			if errors > sets/20 || found < sets/20 {
				t.Errorf("%d tables are certain, of which %d are beyond the bound: expected at most %d", found, errors, sets/20)
			}
		})
	}
}
