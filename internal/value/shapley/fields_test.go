package shapley_test

import (
	"context"
	"math"
	"math/bits"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/loss"
	"shaver/internal/onnx/graph"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// fieldGames returns games of fields: of each architecture, with lists, with shared tables, and of a graph with
// dense inputs.
func fieldGames(t *testing.T) map[string]*model.Model {
	games := map[string]*model.Model{"lists": modeltest.ListModel("mean", 3), "attention": modeltest.ListModel("attention", 3)}
	for name, a := range modeltest.Architectures() {
		games[name] = modeltest.Random(t, a, 2)
	}
	games["dense"] = denseModel(t)
	return games
}

// The exact values of fields are those of an enumeration that composes rows itself, for values of other rows and
// for fixed values. Walks agree with them.
func TestFieldGame(t *testing.T) {
	for name, m := range fieldGames(t) {
		t.Run(name, func(t *testing.T) {
			a := &m.Architecture
			rows, background := modeltest.Rows(*a, 12, 5), modeltest.Rows(*a, 3, 6)
			absent := &model.Absent{Embedding: make([]float32, a.BaselineSize()), Constants: m.MeanConstants(make([]int64, a.Features())), Dense: make([]float32, len(a.Dense))}
			for i := range absent.Embedding {
				absent.Embedding[i] = 0.25
			}
			for k := range absent.Dense {
				absent.Dense[k] = 0.5
			}
			for kind, fields := range map[string]*shapley.Fields{"background": {Background: background}, "absent": {Absent: absent}} {
				game := shapley.Game{Model: m, Loss: loss.Logistic, Fields: fields}
				phi := valuesOf(t, game, estimator.Exact, 1, rows)
				want := enumeratedFields(t, game, rows)
				for i := range want.Phi {
					if math.Abs(phi.Phi[i]-want.Phi[i]) > 1e-6 {
						t.Errorf("%s: player %d has the value %v, expected %v", kind, i, phi.Phi[i], want.Phi[i])
					}
				}
				walked := valuesOf(t, game, estimator.Antithetic, 200, rows)
				for i := range want.Phi {
					if diff := math.Abs(walked.Phi[i] - want.Phi[i]); diff > 4.5*float64(walked.SE[i])+1e-6 {
						t.Errorf("%s: player %d has the value %v by walks, expected %v +- %v", kind, i, walked.Phi[i], want.Phi[i], walked.SE[i])
					}
				}
			}
		})
	}
}

// valuesOf returns the values that an estimator gives rows.
func valuesOf(t *testing.T, game shapley.Game, name string, passes int, rows *model.Rows) *tally.Result {
	t.Helper()
	options := estimator.Options{Estimator: name, Passes: passes}
	options.SetDefaults()
	partial, err := shapley.Estimate(context.Background(), game, shapley.Options{Options: options, Seed: 4}, rows, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	layout := shapley.FieldLayout(&game.Model.Architecture, game.Fields.Pairs)
	sampling := tally.NewSampling(options, int64(rows.Len()))
	sums := tally.NewAccumulator(layout.Shape(), sampling.Form(game.Model.Fields()))
	if err := sums.Merge(partial); err != nil {
		t.Fatal(err)
	}
	result, err := sums.Result(sampling)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// enumeratedFields returns the values of the players of rows by the definition.
func enumeratedFields(t *testing.T, game shapley.Game, rows *model.Rows) tally.Values {
	t.Helper()
	players := game.Model.Fields() + len(game.Model.Dense)
	sum := make([]float64, players)
	for r := range rows.Len() {
		losses := fieldLosses(t, game, rows, r)
		for i := range players {
			for set := range losses {
				if set>>i&1 == 0 {
					s := bits.OnesCount(uint(set))
					weight := 1 / (float64(players) * binomial(players-1, s))
					sum[i] += weight * (losses[set] - losses[set|1<<i]) / float64(rows.Len())
				}
			}
		}
	}
	return tally.Values{Phi: sum}
}

// fieldLosses returns the losses of a row by the set of the players that are present.
func fieldLosses(t *testing.T, game shapley.Game, rows *model.Rows, r int) []float64 {
	t.Helper()
	m, a := game.Model, &game.Model.Architecture
	if v := game.Fields.Absent; v != nil {
		m = m.WithAbsent(v)
	}
	scorer, other := m.NewScorer(), backgroundRow(t, game, rows, r)
	losses := make([]float64, 1<<(a.Fields()+len(a.Dense)))
	for set := range losses {
		state := &model.Rows{}
		state.Append(rows, r)
		at := 0
		for j, n := range a.Lengths() {
			for i := at; i < at+n && set>>j&1 == 0; i++ {
				state.Features[i] = ^state.Features[i]
				if other >= 0 {
					state.Features[i] = game.Fields.Background.Row(other)[i]
				}
			}
			at += n
		}
		for k := range a.Dense {
			if set>>(a.Fields()+k)&1 == 0 {
				if other >= 0 {
					state.Dense[k] = game.Fields.Background.DenseRow(other)[k]
				} else {
					state.Dense[k] = game.Fields.Absent.Dense[k]
				}
			}
		}
		logit := make([]float64, 1)
		scorer.Logits(logit, state)
		losses[set] = game.Loss.Of(logit[0], rows.Label[r])
	}
	return losses
}

func binomial(n, k int) float64 {
	v := 1.0
	for i := range k {
		v = v * float64(n-i) / float64(i+1)
	}
	return v
}

// backgroundRow returns the number of the background row that replaces row r, or -1. It finds the row by the loss of a game in which
// only this row is scored and all players are absent.
func backgroundRow(t *testing.T, game shapley.Game, rows *model.Rows, r int) int {
	t.Helper()
	b := game.Fields.Background
	if b == nil {
		return -1
	}
	one := rows.Slice(r, r+1)
	empty := valuesOf(t, game, estimator.Permutation, 1, &one).LossEmpty
	logits := make([]float64, b.Len())
	game.Model.NewScorer().Logits(logits, b)
	i := slices.IndexFunc(logits, func(logit float64) bool {
		return math.Abs(game.Loss.Of(logit, rows.Label[r])-empty) < 1e-9
	})
	if i < 0 {
		t.Fatalf("row %d with all players absent has the loss %v, which no background row has", r, empty)
	}
	return i
}

// A worker computes the same sums from what the coordinator sends.
func TestFieldsWire(t *testing.T) {
	for name, m := range fieldGames(t) {
		a := &m.Architecture
		rows := modeltest.Rows(*a, 5, 1)
		absent := &model.Absent{Embedding: make([]float32, a.BaselineSize()), Constants: m.MeanConstants(make([]int64, a.Features())), Dense: make([]float32, len(a.Dense))}
		for _, fields := range []*shapley.Fields{{Background: modeltest.Rows(*a, 7, 2)}, {Absent: absent}} {
			data := fields.Encode()
			decoded, err := shapley.DecodeFields(data, m, fields.Background != nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			game := shapley.Game{Model: m, Loss: loss.Logistic, Fields: fields}
			want := valuesOf(t, game, estimator.Permutation, 1, rows)
			if game.Fields = decoded; !slices.Equal(valuesOf(t, game, estimator.Permutation, 1, rows).Phi, want.Phi) {
				t.Errorf("%s: other values after decoding", name)
			}
			if _, err := shapley.DecodeFields(data[:len(data)-1], m, fields.Background != nil); err == nil {
				t.Errorf("%s: a missing byte was accepted", name)
			}
		}
	}
}

// No bytes make DecodeFields fail in another way than by an error.
func FuzzDecodeFields(f *testing.F) {
	m := modeltest.ListModel("mean", 3)
	f.Add((&shapley.Fields{Background: modeltest.Rows(m.Architecture, 2, 2)}).Encode(), true)
	f.Add((&shapley.Fields{Absent: &model.Absent{Embedding: make([]float32, m.BaselineSize())}}).Encode(), false)
	f.Fuzz(func(t *testing.T, data []byte, background bool) {
		if fields, err := shapley.DecodeFields(data, m, background); err == nil && !slices.Equal(fields.Encode(), data) {
			t.Errorf("%x was decoded to other values", data)
		}
	})
}

// Estimators with derivatives refuse fields.
func TestFieldEstimators(t *testing.T) {
	m := modeltest.Random(t, modeltest.Architectures()["deepfm"], 2)
	rows := modeltest.Rows(m.Architecture, 3, 5)
	game := shapley.Game{Model: m, Loss: loss.Logistic, Fields: &shapley.Fields{Background: rows}}
	for _, name := range estimator.Names() {
		o := estimator.Options{Estimator: name, Passes: 1}
		o.SetDefaults()
		_, err := shapley.Estimate(context.Background(), game, shapley.Options{Options: o}, rows, 1, nil)
		if derivatives := o.Traits().Derivatives; derivatives != (err != nil) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// denseModel returns a graph with two fields, of which one has a table of constants, and two dense inputs.
func denseModel(t *testing.T) *model.Model {
	t.Helper()
	b, h := new(modeltest.Builder), new(model.GraphHead)
	input := func(name string, n int) graph.Value { return b.AddInput(name, graph.Float, []int{1, n}) }
	wide, other, first := input("wide", 2), input("other", 2), input("first", 1)
	age, price := input("age", 1), input("price", 1)
	h.LookUps, h.Dense = []graph.Value{wide, other}, []graph.Value{age, price}
	h.Constants = []model.ConstantLookUp{{Name: "first", Field: 1, Dim: 1, Values: []float32{.5, -1, 2}, Input: first}}
	pairs := b.Node("Mul", nil, b.Node("ReduceSum", nil, b.Node("Mul", nil, wide, other), b.Ints(1)), age)
	b.Output = b.Node("Add", nil, b.Node("Sum", nil, pairs, first), b.Node("Tanh", nil, price))
	h.Graph = &b.Graph
	m, err := model.New(model.Architecture{
		Kind: model.Graph, FieldDims: []int{2, 3}, Dense: []string{"age", "price"},
		Tables:  []model.Table{{Name: "w", Rows: 2, Dim: 2}, {Name: "o", Rows: 3, Dim: 2}},
		LookUps: []model.LookUp{{Field: 0, Table: 0}, {Field: 1, Table: 1}},
	}, model.Weights{Graph: h, Embedding: []float32{1, 2, -1, .5, .25, 1, -2, 1, 3, -1}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
