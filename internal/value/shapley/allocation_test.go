//go:build !race

package shapley

import (
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/value/estimator/estimatortest"
)

// No estimator allocates memory for a row. The race detector is excluded because sync.Pool
// drops some of its items under it.
func TestEvaluatorsDoNotAllocate(t *testing.T) {
	small := model.Architecture{Kind: model.DeepFM, FieldDims: []int{2, 3, 2}, Dim: 2, Hidden: []int{5}} // small enough for exact
	architectures := modeltest.Architectures()
	architectures["small"] = small
	for name, a := range architectures {
		for _, o := range estimatortest.Small() {
			if o.Validate(a.Players()) != nil {
				continue
			}
			game := Game{Model: modeltest.Random(t, a, 2), Baseline: a.Zero()}
			book, roster := a.Book(game.Baseline), model.NewRoster(&a)
			probe := game.Model.NewProbe(book)
			e := evaluators[o.Estimator](&setup{game: game, book: book, options: Options{Options: o}, players: a.Players(), elements: a.Players(), probe: probe, roster: roster}).(valuer)
			rows, sum, within := modeltest.Rows(a, e.rows(), 2), make([]int64, a.Players()), make([]int64, a.Players())
			if o.Passes == 1 {
				within = nil
			}
			full := make([]float64, e.rows())
			if n := testing.AllocsPerRun(3, func() {
				if err := e.play(t.Context(), full, rows); err != nil {
					t.Fatal(err)
				}
				for r := range rows.Len() {
					probe.Reset(rows, r)
					roster.Set(rows.Row(r))
					if err := e.values(sum, within, r); err != nil {
						t.Fatal(err)
					}
				}
			}); n != 0 {
				t.Errorf("%s, %s, %s: %v allocations, expected 0", name, o.Estimator, o.Effort(), n)
			}
		}
	}
}

// Rows allocate no memory once the builder has their features, neither in an ordinary job
// nor in a paired one.
func TestRowsDoNotAllocate(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		earlier := a
		earlier.FieldDims = slices.Clone(a.FieldDims)
		earlier.FieldDims[a.Fields()-1]--
		for _, o := range estimatortest.Small() {
			if o.Validate(a.Players()) != nil {
				continue
			}
			game := Game{Model: modeltest.Random(t, a, 2), Baseline: a.Zero()}
			previous := Game{Model: modeltest.Random(t, earlier, 3), Baseline: a.Zero()}
			translator, err := model.NewTranslator(&a, &earlier)
			if err != nil {
				t.Fatal(err)
			}
			for kind, w := range map[string]*worker{"ordinary": newWorker(game, Options{Options: o}), "paired": newPairWorker(game, previous, Options{Options: o}, translator)} {
				rows := modeltest.Rows(earlier, w.rowsPerBatch(), 2) // the last field alone has grown, so the ids are the same
				if n := testing.AllocsPerRun(3, func() {
					if err := w.batch(t.Context(), rows, nil); err != nil {
						t.Fatal(err)
					}
				}); n != 0 {
					t.Errorf("%s, %s, %s, %s: %v allocations, expected 0", kind, name, o.Estimator, o.Effort(), n)
				}
			}
		}
	}
}

// Rows with lists allocate no memory either.
func TestListsDoNotAllocate(t *testing.T) {
	lists := modeltest.Lists()
	for _, pooling := range modeltest.Poolings() {
		game := Game{Model: modeltest.ListModel(pooling, 2), Baseline: modeltest.Words(&lists, 3, 1)}
		translator, err := model.NewTranslator(&game.Model.Architecture, &game.Model.Architecture)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range estimatortest.Small() {
			for kind, w := range map[string]*worker{"ordinary": newWorker(game, Options{Options: o}), "paired": newPairWorker(game, game, Options{Options: o}, translator)} {
				rows := modeltest.Rows(game.Model.Architecture, w.rowsPerBatch(), 2)
				if n := testing.AllocsPerRun(3, func() {
					if err := w.batch(t.Context(), rows, nil); err != nil {
						t.Fatal(err)
					}
				}); n != 0 {
					t.Errorf("%s, %s, %s, %s: %v allocations, expected 0", kind, pooling, o.Estimator, o.Effort(), n)
				}
			}
		}
	}
}
