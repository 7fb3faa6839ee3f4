package shapley

import (
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/value/estimator/estimatortest"
)

// A Trial computes what Estimate adds up: the last row of a batch has the same contributions.
// A row that the model cannot read is an error that names it.
func TestTrial(t *testing.T) {
	a := model.Architecture{Kind: model.DeepFM, FieldDims: []int{2, 3, 2}, Dim: 2, Hidden: []int{5}}
	game := Game{Model: modeltest.Random(t, a, 2), Baseline: a.Zero()}
	for _, o := range estimatortest.Small() {
		options := Options{Options: o, Seed: 4}
		if options.check(&game) != nil {
			continue
		}
		trial, err := NewTrial(game, options)
		if err != nil {
			t.Fatal(err)
		}
		rows := modeltest.Rows(a, 60, 2)
		if err := trial.Compute(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
		last := rows.Slice(59, 60)
		p, err := Estimate(t.Context(), game, options, &last, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for _, v := range p.Sum {
			total += v
		}
		own := int64(0)
		for _, v := range trial.player.played.Sum {
			own += v
		}
		if !slices.ContainsFunc(trial.player.played.Sum, func(v int64) bool { return v != 0 }) || p.LossFull != trial.player.played.LossFull || total != own {
			t.Errorf("%s: sum %d and loss %d, expected %d and %d", o.Effort(), own, trial.player.played.LossFull, total, p.LossFull)
		}
		rows.Row(30)[1] = 1 << 20
		if err := trial.Compute(t.Context(), rows); err == nil || !strings.Contains(err.Error(), model.RowName(rows.Number[30])) {
			t.Errorf("%s: a malformed row: %v", o.Effort(), err)
		}
	}
}
