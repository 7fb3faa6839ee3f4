package shapley

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// steep is an evaluator whose derivatives give a player of one row an absurd value.
type steep struct {
	valuer
	batch  *model.Rows
	number int64   // of the row
	value  float64 // nat
}

func (s *steep) play(ctx context.Context, full []float64, rows *model.Rows) error {
	s.batch = rows
	return s.valuer.play(ctx, full, rows)
}

func (s *steep) values(sum, within []int64, r int) error {
	if err := s.valuer.values(sum, within, r); err != nil || s.batch.Number[r] != s.number {
		return err
	}
	return round(sum, slices.Repeat([]float64{s.value / tally.LossUnit}, len(sum)))
}

func (s *steep) share(played *tally.Played, r int) { s.valuer.(sharer).share(played, r) }

// makeSteep gives row 3 absurd values under an estimator while the test runs.
func makeSteep(t *testing.T, name string, value float64) {
	create := evaluators[name]
	evaluators[name] = func(s *setup) evaluator { return &steep{valuer: create(s).(valuer), number: 3, value: value} }
	t.Cleanup(func() { evaluators[name] = create })
}

// only returns the row with the given number, or all others.
func only(rows *model.Rows, number int64, others bool) *model.Rows {
	var some model.Rows
	for i := range rows.Len() {
		if (rows.Number[i] == number) != others {
			some.Append(rows, i)
		}
	}
	return &some
}

// A row whose values are too large gets exactly the values that the estimator permutation
// gives it, for any number of threads and however the rows are cut. Other rows keep theirs.
func TestWalkedRows(t *testing.T) {
	game := Game{Model: modeltest.Random(t, modeltest.Architectures()["deepfm"], 6)}
	game.Baseline = game.Model.Zero()
	rows := modeltest.Rows(game.Model.Architecture, 100, 6)
	for i := range rows.Number {
		rows.Number[i] = int64(i)
	}
	o := Options{Options: estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 2, Endpoints: estimator.Plain}, Seed: 7}
	walk := Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}, Seed: 7}
	estimate := func(o Options, rows *model.Rows, threads int) *tally.Partial {
		t.Helper()
		p, err := Estimate(t.Context(), game, o, rows, threads, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	combine := func(a, b *tally.Partial) *tally.Partial {
		t.Helper()
		p := tally.Combine(a, b)
		return p
	}
	walked := estimate(walk, only(rows, 3, false), 1)
	walked.Walked, walked.Check = 1, walked.Check+1
	want := combine(estimate(o, only(rows, 3, true), 1), walked)
	for _, value := range []float64{936, 2 * tally.MaxLoss} { // the square, and then the value itself, is too large
		makeSteep(t, estimator.Multilinear, value)
		first, second := rows.Slice(0, 37), rows.Slice(37, rows.Len())
		for name, got := range map[string]*tally.Partial{
			"1 thread": estimate(o, rows, 1), "5 threads": estimate(o, rows, 5), "2 shards": combine(estimate(o, &second, 2), estimate(o, &first, 1)),
		} {
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%v nat, %s: %d rows by walks, or other sums", value, name, got.Walked)
			}
		}
	}
}

// A row of an estimator with corrections has no correction if its values are those of walks.
func TestWalkedCorrections(t *testing.T) {
	game := Game{Model: modeltest.Random(t, modeltest.Architectures()["deepfm"], 6)}
	game.Baseline = game.Model.Zero()
	rows := modeltest.Rows(game.Model.Architecture, 4, 6)
	for i := range rows.Number {
		rows.Number[i] = int64(i)
	}
	rows = only(rows, 3, false)
	o := Options{Options: estimator.Options{Estimator: estimator.Debiased, Passes: 3, Draws: 2, Endpoints: estimator.Plain, Flips: 8}, Seed: 7}
	makeSteep(t, estimator.Debiased, 1e4)
	want, err := Estimate(t.Context(), game, Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 3}, Seed: 7}, rows, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Estimate(t.Context(), game, o, rows, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	want.Walked, want.Correction, want.CorrectedSquare = 1, make([]int64, len(want.Sum)), want.Square
	want.Check = want.Checksum()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, expected %+v", got, want)
	}
}

// In a paired job, both models walk if the values of one are too large.
func TestWalkedPair(t *testing.T) {
	game := Game{Model: modeltest.Random(t, modeltest.Architectures()["deepfm"], 6)}
	game.Baseline = game.Model.Zero()
	previous := game
	previous.Model = modeltest.Random(t, modeltest.Architectures()["deepfm"], 7)
	rows := modeltest.Rows(game.Model.Architecture, 4, 6)
	for i := range rows.Number {
		rows.Number[i] = int64(i)
	}
	rows = only(rows, 3, false)
	o := Options{Options: estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 2, Endpoints: estimator.Plain}, Seed: 7}
	create, models := evaluators[estimator.Multilinear], 0
	evaluators[estimator.Multilinear] = func(s *setup) evaluator {
		if models++; models == 2 { // the previous model
			return &steep{valuer: create(s).(valuer), number: 3, value: 936}
		}
		return create(s)
	}
	t.Cleanup(func() { evaluators[estimator.Multilinear] = create })
	got, err := EstimatePair(t.Context(), game, previous, o, rows, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.Options = estimator.Options{Estimator: estimator.Permutation, Passes: 1}
	want, err := EstimatePair(t.Context(), game, previous, o, rows, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	want.Walked, want.Check = 1, want.Check+1
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, expected %+v", got, want)
	}
}
