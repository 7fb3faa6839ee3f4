package shapley_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/loss"
	"shaver/internal/onnx/graph"
	"shaver/internal/value/estimator"
	"shaver/internal/value/estimator/estimatortest"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// entry is an entry of a table. It identifies a player.
type entry struct{ row, column int }

// listRow has the players of a row of modeltest.Lists, found without package model.
type listRow struct {
	players  []entry
	element  []int // player of each element, or -1
	x        []float32
	features []int32 // local ids
}

// listRowOf returns the players of a row. table has the tables one after another.
func listRowOf(row []int32, table []float32) *listRow {
	l := &listRow{}
	for i, first := range []int32{0, 5, 8, 8, 8, 13, 13} { // item, user, history, tags
		l.features = append(l.features, row[i]-first)
	}
	item, user, history, tags := l.features[0], l.features[1], l.features[2:5], l.features[5:7]
	read := func(row, dim, from int, pad bool) {
		for c := range dim {
			e, player := entry{row, c}, -1
			if !pad {
				if player = slices.Index(l.players, e); player < 0 {
					player = len(l.players)
					l.players = append(l.players, e)
				}
			}
			l.element, l.x = append(l.element, player), append(l.x, table[from+c])
		}
	}
	for _, id := range append([]int32{item}, history...) {
		read(int(id), 2, 2*int(id), id == 0)
	}
	read(5+int(user), 1, 10+int(user), false)
	for _, id := range tags {
		read(8+int(id), 1, 13+int(id), false)
	}
	return l
}

// logit runs the graph with the given embedding of the row.
func (l *listRow) logit(t *testing.T, head *model.GraphHead, x []float32) float64 {
	t.Helper()
	in := []*graph.Tensor{graph.NewFloats(x[:2], 1, 2), graph.NewFloats(x[2:8], 1, 3, 2), graph.NewFloats(x[8:9], 1, 1), graph.NewFloats(x[9:11], 1, 2, 1)}
	if len(head.IDs) > 0 {
		in = append(in, graph.NewFloats([]float32{float32(l.features[2]), float32(l.features[3]), float32(l.features[4])}, 1, 3))
	}
	out, err := head.Graph.Run(in)
	if err != nil {
		t.Fatal(err)
	}
	return float64(out.Floats[0])
}

// listBaseline is a baseline of modeltest.Lists, and that of the elements.
func listBaseline() (values, elements []float32) {
	return []float32{.1, -.2, .1, -.2, .3, -.1}, []float32{.1, -.2, .1, -.2, .1, -.2, .1, -.2, .3, -.1, -.1}
}

// enumerated returns the Shapley values of the row's players and the loss with everything
// dropped.
func (l *listRow) enumerated(t *testing.T, head *model.GraphHead, label float32) (values []float64, empty float64) {
	t.Helper()
	_, baseline := listBaseline()
	n := len(l.players)
	losses, x := make([]float64, 1<<n), make([]float32, len(l.x))
	for set := range losses {
		for k, player := range l.element {
			if x[k] = l.x[k]; player >= 0 && set>>player&1 == 0 {
				x[k] = baseline[k]
			}
		}
		losses[set] = loss.Logistic.Of(l.logit(t, head, x), label)
	}
	values = make([]float64, n)
	for p := range values {
		for set := range losses {
			if set>>p&1 == 0 {
				size := 0
				for q := range n {
					size += set >> q & 1
				}
				weight := math.Gamma(float64(size+1)) * math.Gamma(float64(n-size)) / math.Gamma(float64(n+1))
				values[p] += weight * (losses[set] - losses[set|1<<p])
			}
		}
	}
	return values, losses[0]
}

// Exact values agree with enumeration of the distinct entries of a row, in which package
// graph computes every logit. Lists have repeated ids and pads, and the item may be in the
// history.
func TestExactOfLists(t *testing.T) {
	for _, pooling := range modeltest.Poolings() {
		t.Run(pooling, func(t *testing.T) {
			m := modeltest.ListModel(pooling, 3)
			rows := modeltest.Rows(m.Architecture, 12, 5)
			for r, history := range [][4]int32{{2, 2, 2, 2}, {0, 0, 0, 0}, {1, 3, 0, 3}, {0, 1, 1, 4}} { // item, then the history
				row := rows.Row(r)
				for i, at := range []int{0, 2, 3, 4} {
					row[at] = history[i] + []int32{0, 8, 8, 8}[i]
				}
			}
			values, _ := listBaseline()
			game := shapley.Game{Model: m, Baseline: model.Baseline{Values: values}}
			want, counts, empty := make([]float64, m.Parameters()), make([]int64, 12), 0.0
			starts := []int{0, 2, 4, 6, 8, 10, 11, 12, 13, 14, 15, 16} // first entry of each row of the tables
			for r := range rows.Len() {
				l := listRowOf(rows.Row(r), m.Weights.Embedding)
				phi, dropped := l.enumerated(t, m.Weights.Graph, rows.Label[r])
				empty += dropped / float64(rows.Len())
				for p, e := range l.players {
					want[starts[e.row]+e.column] += phi[p] / float64(rows.Len())
					if e.column == 0 {
						counts[e.row]++
					}
				}
			}
			got := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, rows)
			if !slices.Equal(got.Count, counts) || got.Count[0] != 0 {
				t.Errorf("the rows of the tables occur %v times, expected %v", got.Count, counts)
			}
			if math.Abs(got.LossEmpty-empty) > 1e-6 {
				t.Errorf("the loss with everything dropped is %v, expected %v", got.LossEmpty, empty)
			}
			largest := 0.0
			for i, phi := range got.Phi {
				if largest = max(largest, math.Abs(phi)); math.Abs(phi-want[i]) > 1e-6 {
					t.Errorf("entry %d has the value %v, expected %v", i, phi, want[i])
				}
			}
			if largest < 1e-2 {
				t.Errorf("the largest value is %v, which is too small for a comparison", largest)
			}
			for _, name := range []string{estimator.Permutation, estimator.Antithetic} {
				walks := play(t, game, shapley.Options{Options: estimator.Options{Estimator: name, Passes: 300}, Seed: 2}, rows)
				for i, phi := range walks.Phi {
					if math.Abs(phi-want[i]) > 5*float64(walks.SE[i])+1e-6 {
						t.Errorf("%s: entry %d has the value %v, expected %v within 5 times %v", name, i, phi, want[i], walks.SE[i])
					}
				}
			}
		})
	}
}

// In the game of x1*x2*z, in which x1 and x2 read the same entry, this entry and z are two
// players with half of the worth each. Three players would have a third each.
func TestOneEntryIsOnePlayer(t *testing.T) {
	b := new(modeltest.Builder)
	head := &model.GraphHead{Graph: &b.Graph}
	for _, name := range []string{"x1", "x2", "z"} {
		head.LookUps = append(head.LookUps, b.AddInput(name, graph.Float, []int{1, 1}))
	}
	b.Output = b.Node("Mul", nil, b.Node("Mul", nil, head.LookUps[0], head.LookUps[1]), head.LookUps[2])
	m, err := model.New(model.Architecture{
		Kind: model.Graph, FieldDims: []int{2, 2, 1}, Tables: []model.Table{{Name: "x", Rows: 2, Dim: 1}, {Name: "z", Rows: 1, Dim: 1}},
		LookUps: []model.LookUp{{Field: 0, Table: 0}, {Field: 1, Table: 0}, {Field: 2, Table: 1}},
	}, model.Weights{Embedding: []float32{7, 2, 3}, Graph: head})
	if err != nil {
		t.Fatal(err)
	}
	rows := &model.Rows{Width: 3, Number: []int64{0}, Label: []float32{0}, Features: []int32{1, 3, 4}}
	worth := loss.Logistic.Of(0, 0) - loss.Logistic.Of(2*2*3, 0)
	for _, o := range []estimator.Options{{Estimator: estimator.Exact, Passes: 1}, {Estimator: estimator.Antithetic, Passes: 1}} {
		got := play(t, shapley.Game{Model: m, Baseline: m.Zero()}, shapley.Options{Options: o}, rows)
		for i, want := range []float64{0, worth / 2, worth / 2} {
			if math.Abs(got.Phi[i]-want) > 1e-6 {
				t.Errorf("%s: entry %d has the value %v, expected %v", o.Estimator, i, got.Phi[i], want)
			}
		}
	}
}

// All estimators give a list the same values as a field that has the sum of the weights of
// its positions, if all positions of a row have the same id and the head is linear. The
// players have the same numbers in both models, so the random draws are the same.
func TestRepeatedIDs(t *testing.T) {
	linear := func(a model.Architecture, weights ...float32) *model.Model {
		b := new(modeltest.Builder)
		head := &model.GraphHead{Graph: &b.Graph}
		var flat []graph.Value
		lengths := a.Lengths()
		for _, l := range a.LookUps {
			n := lengths[l.Field] * a.Tables[l.Table].Dim
			in := b.AddInput(a.Tables[l.Table].Name, graph.Float, []int{1, n})
			head.LookUps, flat = append(head.LookUps, in), append(flat, in)
		}
		x := b.Node("Concat", graph.Attributes{"axis": int64(1)}, flat...)
		b.Output = b.Node("Gemm", graph.Attributes{"transB": int64(1)}, x, b.Floats("w", weights, 1, len(weights)))
		m, err := model.New(a, model.Weights{Embedding: []float32{.5, -1, 1.5, .25, -.75, 2, 1, -.5}, Graph: head})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a := model.Architecture{
		Kind: model.Graph, FieldDims: []int{3, 2}, Tables: []model.Table{{Name: "x", Rows: 3, Dim: 2}, {Name: "z", Rows: 2, Dim: 1}},
		LookUps: []model.LookUp{{Field: 0, Table: 0}, {Field: 1, Table: 1}},
	}
	plain := linear(a, 1.75, -.5, 1)
	a.Lists = []model.List{{Field: 0, Length: 3, Pad: -1}}
	list := linear(a, .5, 1, 1, -2, .25, .5, 1)
	once, thrice := modeltest.Rows(plain.Architecture, 40, 3), &model.Rows{Width: 4}
	for r := range once.Len() {
		row := once.Row(r)
		thrice.Number, thrice.Label = append(thrice.Number, once.Number[r]), append(thrice.Label, once.Label[r])
		thrice.Features = append(thrice.Features, row[0], row[0], row[0], row[1])
	}
	for _, o := range estimatortest.Small() {
		options := shapley.Options{Options: o, Seed: 7}
		want := play(t, shapley.Game{Model: plain, Baseline: model.Baseline{Values: []float32{.25, -.25, .5}}}, options, once)
		got := play(t, shapley.Game{Model: list, Baseline: model.Baseline{Values: []float32{.25, -.25, .5}}}, options, thrice)
		if !slices.Equal(got.Count, want.Count) {
			t.Errorf("%s: counts %v, expected %v", o.Estimator, got.Count, want.Count)
		}
		for i, phi := range got.Phi {
			if math.Abs(phi-want.Phi[i]) > 1e-6 || math.Abs(float64(got.SE[i]-want.SE[i])) > 1e-6 {
				t.Errorf("%s: entry %d has the value %v +- %v, expected %v +- %v", o.Estimator, i, phi, got.SE[i], want.Phi[i], want.SE[i])
			}
		}
	}
}

// The mean of multilinear over many seeds is near the exact values, and taylor has the
// derivatives of the loss, for heads that read an entry at several positions.
func TestDerivativesOfLists(t *testing.T) {
	for _, pooling := range modeltest.Poolings() {
		m := modeltest.ListModel(pooling, 3)
		rows := modeltest.Rows(m.Architecture, 30, 6)
		values, baseline := listBaseline()
		table := slices.Clone(m.Weights.Embedding)
		for _, part := range [][]float32{values, baseline, table} {
			for i := range part {
				part[i] /= 8 // makes the heads nearly linear, so that multilinear has little bias
			}
		}
		m = m.WithEmbedding(table)
		game := shapley.Game{Model: m, Baseline: model.Baseline{Values: values}}
		exact := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, rows).Phi
		const seeds = 60
		mean := make([]float64, len(exact))
		for seed := range uint64(seeds) {
			o := estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 8, Endpoints: estimator.Balanced}
			for i, v := range play(t, game, shapley.Options{Options: o, Seed: seed}, rows).Phi {
				mean[i] += v / seeds
			}
		}
		off, size := 0.0, 0.0
		for i, v := range exact {
			off, size = off+(mean[i]-v)*(mean[i]-v), size+v*v
		}
		if rms := math.Sqrt(off / size); !(rms < 0.05) {
			t.Errorf("%s: the relative RMS of the difference of multilinear is %.3f", pooling, rms)
		} else {
			t.Logf("%s: the relative RMS of the difference of multilinear is %.3f", pooling, rms)
		}

		row := rows.Slice(0, 1)
		for r := range rows.Len() {
			row = rows.Slice(r, r+1)
			l := listRowOf(row.Row(0), m.Weights.Embedding)
			p, err := shapley.Estimate(t.Context(), game, shapley.Options{Options: estimator.Options{Estimator: estimator.Taylor, Passes: 1}}, &row, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			order := map[entry]int{} // position in the partial
			n := 0
			for _, f := range p.Features {
				from, to := p.Shape.Row(int(f))
				for c := range to - from {
					order[entry{int(f), c}] = n
					n++
				}
			}
			if n != len(l.players) {
				t.Fatalf("row %d has %d players, expected %d", r, n, len(l.players))
			}
			for player, e := range l.players {
				const h = 1.0 / 512
				var sides [2]float64
				delta := 0.0
				for side, step := range []float32{-h, h} {
					x := slices.Clone(l.x)
					for k, of := range l.element {
						if of == player {
							delta = float64(l.x[k]) - float64(baseline[k])
							x[k] += step
						}
					}
					sides[side] = loss.Logistic.Of(l.logit(t, m.Weights.Graph, x), row.Label[0])
				}
				want := -(sides[1] - sides[0]) / (2 * h) * delta
				if got := float64(p.Sum[order[e]]) * tally.LossUnit; math.Abs(got-want) > 1e-4+2e-2*math.Abs(want) {
					t.Errorf("%s, row %d: taylor has the value %v for entry %v, expected %v", pooling, r, got, e, want)
				}
			}
		}
	}
}

// Walks of rows with lists satisfy the efficiency identity exactly, no partial has a pad
// row, and the sums do not depend on how rows are cut into tasks or on the number of
// goroutines. The previous model of a paired job, if it is the same, has the same values.
func TestCutsOfLists(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, pooling := range modeltest.Poolings() {
		m := modeltest.ListModel(pooling, 8)
		rows := modeltest.Rows(m.Architecture, 75, 9)
		values, _ := listBaseline()
		game := shapley.Game{Model: m, Baseline: model.Baseline{Values: values}}
		for _, o := range estimatortest.Small() {
			options := shapley.Options{Options: o, Seed: 3}
			merge := func(cuts ...int) tally.State {
				a := tally.NewAccumulator(m.Shape(), tally.NewSampling(o, 0).Form(m.Fields()))
				for _, k := range r.Perm(len(cuts) - 1) {
					part := rows.Slice(cuts[k], cuts[k+1])
					p, err := shapley.Estimate(t.Context(), game, options, &part, 1+r.IntN(3), nil)
					if err != nil {
						t.Fatal(err)
					}
					if slices.Contains(p.Features, 0) {
						t.Fatalf("%s: the partial has the pad row", o.Estimator)
					}
					if err := a.Merge(p); err != nil {
						t.Fatal(err)
					}
				}
				return a.State()
			}
			want := merge(0, rows.Len())
			if o.Traits().Efficient && want.Current.ResidualSquare != [2]int64{} && !o.Traits().Exact {
				t.Errorf("%s: the residuals are %v, expected 0", o.Estimator, want.Current.ResidualSquare)
			}
			if got := merge(0, 1, 30, 31, 60, rows.Len()); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %s: other cuts have other sums", pooling, o.Estimator)
			}
			pair, err := shapley.EstimatePair(t.Context(), game, game, options, rows, 2, nil)
			if err != nil {
				t.Fatal(err)
			}
			alone, err := shapley.Estimate(t.Context(), game, options, rows, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			sum := slices.Clone(alone.Sum)
			for i, z := range alone.Correction {
				sum[i] += z
			}
			if !slices.Equal(pair.Sum, sum) || !slices.Equal(pair.PreviousSum, sum) || !slices.Equal(pair.CorrectedSquare, alone.CorrectedSquare) || !slices.Equal(pair.Features, alone.Features) || !slices.Equal(pair.Count, alone.Count) {
				t.Errorf("%s, %s: a paired job has other sums than a job of its own", pooling, o.Estimator)
			}
			if slices.ContainsFunc(pair.DifferenceSquare, func(s int64) bool { return s != 0 }) {
				t.Errorf("%s, %s: the same model differs from itself", pooling, o.Estimator)
			}
			if pair.Fourths[2] != (tally.Powers{}) || pair.Fourths[0] == (tally.Powers{}) {
				t.Errorf("%s, %s: the fourth powers are %v, expected those of the shared rows in field 0", pooling, o.Estimator, pair.Fourths)
			}
		}
	}
}

// A model whose fields are lists with one position has the partials of the model without
// lists.
func TestListsOfOne(t *testing.T) {
	a := modeltest.Architectures()["deepfm"]
	plain := modeltest.Graph(a, modeltest.Weights(a, 3))
	lists := plain.Architecture
	lists.Dim, lists.Tables = 0, []model.Table{{Name: "all", Rows: a.Features(), Dim: a.Dim}}
	for j, first := range a.Offsets() {
		lists.LookUps = append(lists.LookUps, model.LookUp{Field: j, Offset: int(first)})
		lists.Lists = append(lists.Lists, model.List{Field: j, Length: 1, Pad: -1})
	}
	m, err := model.New(lists, plain.Weights)
	if err != nil {
		t.Fatal(err)
	}
	rows := modeltest.Rows(a, 60, 4)
	for _, o := range estimatortest.Small() {
		if o.Validate(a.Players()) != nil {
			continue
		}
		options := shapley.Options{Options: o, Seed: 5}
		var partials []*tally.Partial
		for _, m := range []*model.Model{plain, m} {
			p, err := shapley.Estimate(t.Context(), shapley.Game{Model: m, Baseline: baseline(plain)}, options, rows, 2, nil)
			if err != nil {
				t.Fatal(err)
			}
			partials = append(partials, p)
		}
		if !reflect.DeepEqual(partials[0], partials[1]) {
			t.Errorf("%s: lists with one position have other sums", o.Estimator)
		}
	}
}
