package shapley_test

import (
	"math"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// frozenGames returns games in which a field is frozen: of each kind, of a graph that computes the same,
// and of graphs with lists, in one of which the frozen field shares its table with a list.
func frozenGames(t *testing.T) map[string]shapley.Game {
	t.Helper()
	all := map[string]shapley.Game{}
	add := func(name string, m *model.Model, field int) {
		a := m.Architecture
		if err := a.Freeze([]int{field}); err != nil {
			t.Fatal(err)
		}
		all[name] = shapley.Game{Model: m.Freeze(a.Frozen), Baseline: baseline(m)}
	}
	for name, a := range modeltest.Architectures() {
		add(name, modeltest.Random(t, a, 3), 1)
	}
	a := modeltest.Architectures()["deepfm"]
	add("graph", modeltest.Graph(a, modeltest.Weights(a, 3)), 0)
	add("lists, shared", modeltest.ListModel("mean", 3), 0)
	add("lists", modeltest.ListModel("attention", 3), 3)
	return all
}

// reducedGame returns the loss of a row for each set of entries that keep their values. The others have their baseline in the
// tables, as in a pruned file. entries are those that the row reads and that may be dropped, found from the spans alone.
func reducedGame(g shapley.Game, rows *model.Rows, r int) (entries []int, losses []float64) {
	m := g.Model
	one := rows.Slice(r, r+1)
	own, fixed := baselines(m, g.Baseline), m.FixedRows()
	lengths := m.Lengths()
	for _, s := range m.Spans() {
		for _, reader := range s.Readers() {
			if slices.Contains(m.Frozen, s.Field) || slices.ContainsFunc(s.Sharers, func(r model.Reader) bool { return slices.Contains(m.Frozen, r.Field) }) {
				continue
			}
			from := 0
			for _, n := range lengths[:reader.Field] {
				from += n
			}
			for _, id := range rows.Row(r)[from : from+lengths[reader.Field]] {
				for c := range s.Dim {
					row := int(id) - reader.Feature
					if e := s.Entry + row*s.Dim + c; !slices.Contains(entries, e) && !slices.Contains(fixed, s.Row+row) {
						entries = append(entries, e)
					}
				}
			}
		}
	}
	losses = make([]float64, 1<<len(entries))
	logit := make([]float64, 1)
	for set := range losses {
		table := slices.Clone(m.Weights.Embedding)
		for k, e := range entries {
			if set>>k&1 == 0 {
				table[e] = own[e]
			}
		}
		if pruned := m.WithEmbedding(table); m.Kind == model.Graph {
			pruned.NewScorer().Logits(logit, &one)
		} else {
			x := make([]float32, m.Players())
			pruned.Embed(x, rows.Row(r))
			wide := make([]float64, len(x))
			for i, v := range x {
				wide[i] = float64(v)
			}
			logit[0] = modeltest.Logit(&m.Architecture, &m.Weights, rows.Row(r), wide)
		}
		losses[set] = g.Loss.Of(logit[0], rows.Label[r])
	}
	return entries, losses
}

// The values of exact are those of the game without the frozen entries, which are present in all of
// its states. All estimators of Shapley values converge to them, and their values sum to the loss with all other entries dropped minus the
// loss with none dropped. A frozen entry has neither a value nor a count.
func TestFrozenFields(t *testing.T) {
	for name, g := range frozenGames(t) {
		t.Run(name, func(t *testing.T) { testReducedGame(t, g) })
	}
}

// testReducedGame checks the values that all estimators give g.
func testReducedGame(t *testing.T, g shapley.Game) {
	rows := modeltest.Rows(g.Model.Architecture, 5, 4)
	n := float64(rows.Len())
	want, full, empty := make([]float64, g.Model.Parameters()), 0.0, 0.0
	for r := range rows.Len() {
		entries, losses := reducedGame(g, rows, r)
		empty, full = empty+losses[0]/n, full+losses[len(losses)-1]/n
		for k, v := range shapleyOf(losses, len(entries)) {
			want[entries[k]] += v / n
		}
	}
	largest := 0.0
	for _, v := range want {
		largest = max(largest, math.Abs(v))
	}
	for _, o := range []struct {
		estimator.Options
		within float64
	}{
		{estimator.Options{Estimator: estimator.Exact, Passes: 1}, 1e-5},
		{estimator.Options{Estimator: estimator.Permutation, Passes: 3000}, .06},
		{estimator.Options{Estimator: estimator.Antithetic, Passes: 1500}, .06},
		{estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 600}, .5},
		{estimator.Options{Estimator: estimator.Debiased, Passes: 200, Draws: 4, Flips: 8}, .08},
	} {
		o.SetDefaults()
		if o.Traits().Derivatives && g.Model.Differentiable() != nil {
			continue
		}
		got := play(t, g, shapley.Options{Options: o.Options, Seed: 2}, rows)
		if math.Abs(got.LossEmpty-empty) > 1e-5 || math.Abs(got.LossFull-full) > 1e-5 {
			t.Errorf("%s: losses %g and %g, expected %g and %g", o.Estimator, got.LossEmpty, got.LossFull, empty, full)
		}
		sum, shape := 0.0, g.Model.Shape()
		for i, v := range got.Phi {
			sum += v
			if math.Abs(v-want[i]) > o.within*max(largest, .1) {
				t.Errorf("%s: entry %d has the value %g, expected %g", o.Estimator, i, v, want[i])
			}
		}
		if o.Traits().Efficient || o.Traits().Shares {
			if math.Abs(sum-(empty-full)) > 1e-4 {
				t.Errorf("%s: the values sum to %g, expected %g", o.Estimator, sum, empty-full)
			}
		}
		for _, row := range g.Model.FixedRows() {
			if from, to := shape.Row(row); got.Count[row] != 0 || slices.ContainsFunc(got.RMS[from:to], func(v float32) bool { return v != 0 }) {
				t.Errorf("%s: row %d of the tables is fixed and has a count or values", o.Estimator, row)
			}
		}
	}
}

// Freezing fields does not change what the estimators without coalitions say of other entries: the
// contributions of taylor and the terms of a path are derivatives at the whole row.
func TestFrozenFieldsOfDerivatives(t *testing.T) {
	for name, g := range frozenGames(t) {
		rows := modeltest.Rows(g.Model.Architecture, 9, 4)
		whole := g
		whole.Model = g.Model.Freeze(nil)
		o := shapley.Options{Options: estimator.Options{Estimator: estimator.Taylor, Passes: 1}}
		got, want := play(t, g, o, rows), play(t, whole, o, rows)
		shape, fixed := g.Model.Shape(), g.Model.FixedRows()
		for i, v := range got.Phi {
			if slices.Contains(fixed, shape.RowOf(i)) && v != 0 || !slices.Contains(fixed, shape.RowOf(i)) && v != want.Phi[i] {
				t.Errorf("%s: taylor gives entry %d the value %g, and %g with nothing frozen", name, i, v, want.Phi[i])
			}
		}
		p, err := shapley.Estimate(t.Context(), g, pathOptions(), rows, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		a := tally.NewAccumulator(shape, tally.Form{Path: true})
		if err := a.Merge(p); err != nil {
			t.Fatal(err)
		}
		first, _ := termsOf(g, g.Model.Weights.Embedding, loss.Uncalibrated, rows)
		for row := range shape.Rows() {
			from, to := shape.Row(row)
			terms, second := make([]float64, to-from), make([]float64, to-from)
			a.Terms(row, terms, second)
			for c, v := range terms {
				if slices.Contains(fixed, row) && v != 0 || math.Abs(v-first[from+c]) > 1e-6 {
					t.Errorf("%s: entry %d has the term %g, expected %g", name, from+c, v, first[from+c])
				}
			}
		}
	}
}
