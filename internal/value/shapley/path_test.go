package shapley_test

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

func pathOptions() shapley.Options {
	o := shapley.Options{Options: estimator.Options{Estimator: estimator.Path, Passes: 1}}
	o.SetDefaults()
	return o
}

// games returns a game for each kind of head and layout.
func games(t *testing.T) map[string]shapley.Game {
	t.Helper()
	all := map[string]shapley.Game{}
	for name, a := range modeltest.Architectures() {
		all[name] = shapley.Game{Model: modeltest.Random(t, a, 3)}
	}
	for _, pooling := range modeltest.Poolings() {
		all["lists-"+pooling] = shapley.Game{Model: modeltest.ListModel(pooling, 3)}
	}
	for name, g := range maps.Clone(all) {
		g.Baseline = g.Model.Zero()
		for i := range g.Baseline.Values {
			g.Baseline.Values[i] = float32(i%5)/8 - .25
		}
		for _, s := range g.Model.Spans() { // all readers of an entry have the same baseline
			for _, other := range s.Sharers {
				copy(g.Baseline.Values[other.Baseline:][:s.Dim], g.Baseline.Values[s.Baseline:])
			}
		}
		all[name] = g
		g.Baseline = modeltest.Words(&g.Model.Architecture, 3, 5)
		all[name+", words"] = g
	}
	return all
}

// The terms of a round are those of the definition, for both losses, with a calibration, with
// entries that are dropped, and for entries that a row reads at several positions. In a round that adds they are those of some
// entries that the tables do not have, with the derivatives at these tables.
func TestTermsOfPath(t *testing.T) {
	for name, g := range games(t) {
		for _, g.Loss = range []loss.Kind{loss.Logistic, loss.Squared} {
			testTermsOfPath(t, name, g, false)
			testTermsOfPath(t, name, g, true)
		}
	}
}

func testTermsOfPath(t *testing.T, name string, g shapley.Game, adds bool) {
	t.Helper()
	rows := modeltest.Rows(g.Model.Architecture, 90, 4)
	o, n := pathOptions(), g.Model.Parameters()
	o.Calibration, o.Unmeasured = loss.Calibration{Scale: .5, Offset: -.75}, layout.NewMask(n)
	table, measured := slices.Clone(g.Model.Weights.Embedding), slices.Clone(g.Model.Weights.Embedding)
	pads, shape := map[int]bool{}, g.Model.Shape()
	for _, row := range g.Model.FixedRows() {
		pads[row] = true
	}
	spread := baselines(g.Model, g.Baseline)
	for i := range n {
		fixed := pads[shape.RowOf(i)]
		if i%3 == 0 && !fixed { // the tables do not have it
			table[i] = spread[i]
		}
		if may := i%6 == 0 && !fixed; adds && !may || !adds && i%3 == 0 && !fixed {
			o.Unmeasured.Drop(i)
			measured[i] = spread[i]
		}
	}
	pruned := g
	pruned.Model = g.Model.WithEmbedding(table)
	if adds {
		o.Measured = g.Model.WithEmbedding(measured)
	}
	p, err := shapley.Estimate(t.Context(), pruned, o, rows, 2, nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	first, second := termsOf(pruned, g.Model.Weights.Embedding, o.Calibration, rows)
	a := tally.NewAccumulator(shape, tally.Form{Path: true})
	if err := a.Merge(p); err != nil {
		t.Fatal(err)
	}
	for row := range shape.Rows() {
		from, to := shape.Row(row)
		gotFirst, gotSecond := make([]float64, to-from), make([]float64, to-from)
		a.Terms(row, gotFirst, gotSecond)
		for c := range gotFirst {
			wantFirst, wantSecond := first[from+c], second[from+c]
			if o.Unmeasured.Dropped(from + c) {
				wantFirst, wantSecond = 0, 0
			}
			if math.Abs(gotFirst[c]-wantFirst) > 1e-6 || math.Abs(gotSecond[c]-wantSecond) > 1e-6 {
				t.Fatalf("%s, loss %s, adds %t: entry %d has the terms %g and %g, expected %g and %g", name, g.Loss.Name(), adds, from+c, gotFirst[c], gotSecond[c], wantFirst, wantSecond)
			}
		}
	}
}

// baselines returns the baseline of each entry of the tables.
func baselines(m *model.Model, b model.Baseline) []float32 {
	all := make([]float32, m.Parameters())
	for i, at := range places(m, b) {
		all[i] = b.Values[at]
	}
	return all
}

// places returns the position in the values of b of the baseline of each entry of the tables.
func places(m *model.Model, b model.Baseline) []int {
	all := make([]int, m.Parameters())
	next := m.BaselineSize() // second word of the span
	for j, s := range m.Spans() {
		for i := range s.Rows * s.Dim {
			from := s.Baseline
			if b.Words != nil && b.Numbers[s.Row+i/s.Dim] > 0 {
				from = next + (int(b.Numbers[s.Row+i/s.Dim])-1)*s.Dim
			}
			all[s.Entry+i] = from + i%s.Dim
		}
		if b.Words != nil {
			next += (b.Words[j] - 1) * s.Dim
		}
	}
	return all
}

// termsOf returns the sums of the terms of all entries of the unpruned tables, with derivatives at those of g, added up in float64, one row at a time.
func termsOf(g shapley.Game, unpruned []float32, c loss.Calibration, rows *model.Rows) (first, second []float64) {
	m := g.Model
	first, second = make([]float64, m.Parameters()), make([]float64, m.Parameters())
	gradient, roster, own, shape := m.NewGradient(), model.NewRoster(&m.Architecture), baselines(m, g.Baseline), m.Shape()
	logit := make([]float64, 1)
	for r := range rows.Len() {
		m.Embed(gradient.Set(0, rows, r), rows.Row(r))
		gradient.Slopes(logit)
		roster.Set(rows.Row(r))
		slope, player := gradient.Slope(0), 0
		at := func(z float64) float64 { return g.Loss.Of(c.Apply(z), rows.Label[r]) }
		const step = 1e-3
		by := (at(logit[0]+step) - at(logit[0]-step)) / (2 * step)
		bend := (at(logit[0]+step) - 2*at(logit[0]) + at(logit[0]-step)) / (step * step)
		for _, row := range roster.Rows() {
			from, to := shape.Row(int(row))
			for i := from; i < to; i++ {
				v := 0.0
				for _, k := range roster.Elements(player) {
					v += float64(slope[k]) * (float64(unpruned[i]) - float64(own[i]))
				}
				first[i] += by * v
				second[i] += bend * v * v
				player++
			}
		}
	}
	return first, second
}

// The sums of a round do not depend on how its rows are grouped or on the number of goroutines.
func TestGroupsOfPath(t *testing.T) {
	for name, g := range games(t) {
		rows := modeltest.Rows(g.Model.Architecture, 120, 4)
		whole, err := shapley.Estimate(t.Context(), g, pathOptions(), rows, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, b := tally.NewAccumulator(g.Model.Shape(), tally.Form{Path: true}), tally.NewAccumulator(g.Model.Shape(), tally.Form{Path: true})
		if err := a.Merge(whole); err != nil {
			t.Fatal(err)
		}
		for from := 0; from < rows.Len(); from += 17 {
			part := rows.Slice(from, min(from+17, rows.Len()))
			p, err := shapley.Estimate(t.Context(), g, pathOptions(), &part, 2, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Merge(p); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(a.State(), b.State()) {
			t.Errorf("%s: other sums for other groups", name)
		}
	}
}

// A row whose derivatives are not finite is named.
func TestSteepRowOfPath(t *testing.T) {
	game, rows := small(t, 5)
	table := append([]float32(nil), game.Model.Weights.Embedding...)
	table[rows.Row(3)[0]*2] = math.MaxFloat32
	game.Model = game.Model.WithEmbedding(table)
	_, err := shapley.Estimate(t.Context(), game, pathOptions(), rows, 1, nil)
	if err == nil || !strings.Contains(err.Error(), "row ") {
		t.Errorf("error %v, expected one that names the row", err)
	}
}
