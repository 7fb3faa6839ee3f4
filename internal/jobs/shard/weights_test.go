package shard

import (
	"context"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/job"
)

// Rows keep their weights in shards, in samples and at their places in the dataset, and their digest depends on the weights.
func TestWeights(t *testing.T) {
	a := modeltest.Architectures()["deepfm"]
	rows := modeltest.Rows(a, 30, 1)
	plain := Digest(rows)
	weights, number := make([]int32, 30), map[int64]int32{}
	for i := range weights {
		weights[i] = int32(1 + i*i)
		number[rows.Number[i]] = weights[i]
	}
	rows.Weight = weights
	digest := Digest(rows)
	rows.Weight = slices.Clone(weights)
	rows.Weight[7]++
	if digest == plain || digest == Digest(rows) {
		t.Error("the digest does not depend on the weights")
	}
	rows.Weight = weights
	source := func(_ context.Context, visit func(*model.Rows) error) error { return visit(rows) }
	check := func(what string, got *model.Rows, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for i, n := range got.Number {
			if got.Times(i) != int64(number[n]) {
				t.Errorf("%s: row %d has the weight %d, expected %d", what, n, got.Times(i), number[n])
			}
		}
	}
	sample := NewSample(30, .5, 3)
	drawn, err := sample.Draw(t.Context(), source, 9, func([]int32) error { return nil })
	check("a sample", drawn, err)
	names := make([]string, len(a.FieldDims))
	for j := range names {
		names[j] = string(rune('a' + j))
	}
	plan := job.Plan{Rows: sample.Keep, RowsPerShard: 15}
	err = Cut(t.Context(), source, sample, plan, func(context.Context) (int, error) { return 0, nil }, func(ctx context.Context, piece *Piece) error {
		check("a shard that was cut", piece.Rows, nil)
		piece.Place.SHA256 = Digest(piece.Rows)
		collected, err := Collect(ctx, source, sample, piece.Place, 15)
		check("a shard in place", collected, err)
		data, err := Encode(arrowio.RowForm{Fields: names, Sizes: a.FieldDims, Weighted: true}, piece.Rows)
		if err != nil {
			t.Fatal(err)
		}
		opened, err := Open(data, &a, 15)
		check("a stored shard", opened, err)
		return errEnough
	})
	if err != nil {
		t.Fatal(err)
	}
}
