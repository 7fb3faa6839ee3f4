package shapley_test

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/estimator/estimatortest"
	"shaver/internal/value/shapley"
)

// With several words for each span, the values are those of the game in which each dropped entry reads the
// word of its row of the tables: of a network and a graph, with lists, pads and shared rows, with and without a frozen field.
func TestWords(t *testing.T) {
	a := modeltest.Architectures()["deepfm"]
	for name, m := range map[string]*model.Model{
		"deepfm": modeltest.Random(t, a, 3), "graph": modeltest.Graph(a, modeltest.Weights(a, 3)),
		"mean": modeltest.ListModel("mean", 3), "attention": modeltest.ListModel("attention", 3),
	} {
		for _, frozen := range [][]int{nil, {1}, {2}} {
			a := m.Architecture
			if err := a.Freeze(frozen); err != nil {
				t.Fatal(err)
			}
			g := shapley.Game{Model: m.Freeze(a.Frozen), Baseline: modeltest.Words(&a, 3, 5)}
			t.Run(name, func(t *testing.T) { testReducedGame(t, g) })

			// The values of taylor are minus the first terms of a path.
			rows := modeltest.Rows(a, 9, 4)
			phi := play(t, g, shapley.Options{Options: estimator.Options{Estimator: estimator.Taylor, Passes: 1}}, rows).Phi
			first, _ := termsOf(g, m.Weights.Embedding, loss.Uncalibrated, rows)
			for i, v := range phi {
				if math.Abs(v+first[i]/9) > 1e-6 {
					t.Errorf("%s: taylor gives entry %d the value %g, expected %g", name, i, v, -first[i]/9)
				}
			}

			// A paired job has the sums of both games, each with its own words.
			earlier := g
			earlier.Baseline = modeltest.Words(&a, 3, 6)
			o := shapley.Options{Options: estimator.Options{Estimator: estimator.Antithetic, Passes: 1}, Seed: 2}
			pair, err := shapley.EstimatePair(t.Context(), g, earlier, o, rows, 2, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, g := range []shapley.Game{g, earlier} {
				alone, err := shapley.Estimate(t.Context(), g, o, rows, 2, nil)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal([][]int64{pair.Sum, pair.PreviousSum}[i], alone.Sum) {
					t.Errorf("%s: a paired job has other sums than game %d", name, i)
				}
			}
		}
	}
}

// If all words of a span are equal, the sums are those of one word, whatever the rows read. They have the same bytes, except
// those of multilinear and debiased for heads that compute the two states of a pair from one, which needs one word and rounds otherwise.
func TestEqualWords(t *testing.T) {
	for name, g := range games(t) {
		a := &g.Model.Architecture
		if g.Baseline.Words != nil {
			continue
		}
		equal := g
		equal.Baseline = modeltest.Words(a, 3, 5)
		copy(equal.Baseline.Values, g.Baseline.Values)
		next := a.BaselineSize()
		for j, s := range a.Spans() {
			for range equal.Baseline.Words[j] - 1 {
				next += copy(equal.Baseline.Values[next:], g.Baseline.Values[s.Baseline:][:s.Dim])
			}
		}
		rows := modeltest.Rows(*a, 40, 4)
		for _, o := range append(estimatortest.Small(), pathOptions().Options) {
			if o.Validate(a.Players()) != nil {
				continue
			}
			want, err := shapley.Estimate(t.Context(), g, shapley.Options{Options: o, Seed: 3}, rows, 2, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := shapley.Estimate(t.Context(), equal, shapley.Options{Options: o, Seed: 3}, rows, 3, nil)
			if err != nil {
				t.Fatal(err)
			}
			if reflect.DeepEqual(got, want) {
				continue
			}
			if pairs := o.Estimator == estimator.Multilinear || o.Estimator == estimator.Debiased; !pairs || len(g.Model.Weights.Hidden) == 0 {
				t.Errorf("%s, %s, %s: other sums", name, o.Estimator, o.Effort())
			}
			for i, v := range got.Sum {
				if math.Abs(float64(v-want.Sum[i])) > 1e-4*math.Abs(float64(want.Sum[i]))+1e4 {
					t.Errorf("%s, %s: sum %d is %d, expected about %d", name, o.Estimator, i, v, want.Sum[i])
				}
			}
		}
	}
}

// The curvature of a word's value is the mean, over rows, of the second derivative of the loss by the logit times the square of
// the logit's derivative by the value, which is that of all dropped entries that read it.
func TestCurvatureOfWords(t *testing.T) {
	for _, pooling := range []string{"mean", "attention"} {
		m := modeltest.ListModel(pooling, 3)
		b, n, rows := modeltest.Words(&m.Architecture, 3, 5), m.Parameters(), modeltest.Rows(m.Architecture, 60, 4)
		at, dropped := places(m, b), layout.NewMask(n)
		for i := 2; i < n; i += 1 + i%3 { // 0 and 1 are those of the pad
			dropped.Drop(i)
		}
		logits := func(b model.Baseline) []float64 {
			table, all := slices.Clone(m.Weights.Embedding), make([]float64, rows.Len())
			for i, v := range baselines(m, b) {
				if dropped.Dropped(i) {
					table[i] = v
				}
			}
			m.WithEmbedding(table).NewScorer().Logits(all, rows)
			return all
		}
		table := slices.Clone(m.Weights.Embedding)
		for i := range table {
			if dropped.Dropped(i) {
				table[i] = b.Values[at[i]]
			}
		}
		h, err := shapley.MeasureCurvature(t.Context(), shapley.Game{Model: m.WithEmbedding(table), Baseline: b}, dropped, loss.Uncalibrated, rows)
		if err != nil {
			t.Fatal(err)
		}
		whole, tested := logits(b), 0
		for v := range b.Values {
			if v < 4 { // the first words of the two look-ups of the items, which have derivatives of their own
				continue
			}
			const step = 1.0 / 64
			up, down := b.Scaled(1), b.Scaled(1)
			up.Values[v] += step
			down.Values[v] -= step
			high, low, want := logits(up), logits(down), 0.0
			for r, z := range whole {
				p, d := 1/(1+math.Exp(-z)), (high[r]-low[r])/(2*step)
				want += p * (1 - p) * d * d / float64(rows.Len())
			}
			if math.Abs(h.Baseline[v]-want) > 1e-6+1e-2*want {
				t.Errorf("%s: value %d has the curvature %g, expected %g", pooling, v, h.Baseline[v], want)
			}
			if want > 1e-4 {
				tested++
			}
		}
		if tested < 4 {
			t.Errorf("%s: %d values have a curvature, expected several", pooling, tested)
		}
	}
}
