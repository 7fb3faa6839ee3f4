package model_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/onnx/graph"
)

// A DeepFM or a DCNv2 as a graph has the logits of the network, in batches, walks and
// coalitions.
func TestGraphEqualsNetwork(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		if a.Kind != model.DeepFM && a.Kind != model.DCNv2 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			w := modeltest.Weights(a, 3)
			plain, m := modeltest.Random(t, a, 3), modeltest.Graph(a, w)
			rows := modeltest.Rows(a, 100, 4)
			want, got := make([]float64, rows.Len()), make([]float64, rows.Len())
			plain.NewScorer().Logits(want, rows)
			m.NewScorer().Logits(got, rows)
			near(t, got, want)
			baseline := make([]float32, m.Players())
			for i := range baseline {
				baseline[i] = float32(i%3) * 0.1
			}
			p, q := plain.NewProbe(plain.Book(model.Baseline{Values: baseline})), m.NewProbe(m.Book(model.Baseline{Values: baseline}))
			order, present := make([]int32, m.Players()), make([]bool, m.Players())
			want, full := make([]float64, m.Players()+1), got
			got = make([]float64, m.Players()+1)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range 20 {
				p.Reset(rows, i)
				q.Reset(rows, i)
				for k, player := range r.Perm(m.Players()) {
					order[k], present[k] = int32(player), r.IntN(2) == 0
				}
				p.Walk(order, want)
				q.Walk(order, got)
				near(t, got, want)
				if got[0] != q.Empty() || got[m.Players()] != full[i] {
					t.Fatalf("row %d: the walk goes from %v to %v, expected from %v to %v", i, got[0], got[m.Players()], q.Empty(), full[i])
				}
				near(t, []float64{q.Coalition(present)}, []float64{p.Coalition(present)})
				all := slices.Repeat([]bool{true}, m.Players())
				if c := q.Coalition(all); c != full[i] {
					t.Fatalf("row %d: everything present gives %v, the scorer %v", i, c, full[i])
				}
			}
		})
	}
}

func near(t *testing.T, got, want []float64) {
	t.Helper()
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= 1e-4*(1+math.Abs(want[i]))) {
			t.Fatalf("logit %d is %v, expected %v", i, got[i], want[i])
		}
	}
}

// mixed returns a model with two tables of different widths on one field, another field, a
// constant table and a dense input: a product and sums of which each step is exact.
func mixed(t testing.TB) *model.Model {
	b := new(modeltest.Builder)
	h := &model.GraphHead{Graph: &b.Graph}
	wide := b.AddInput("wide", graph.Float, []int{1, 3})
	dense := b.AddInput("age", graph.Float, []int{1, 1})
	narrow := b.AddInput("narrow", graph.Float, []int{1, 1})
	other := b.AddInput("other", graph.Float, []int{1, 3})
	first := b.AddInput("first", graph.Float, []int{1, 1})
	h.LookUps = []graph.Value{wide, narrow, other}
	h.Dense = []graph.Value{dense}
	h.Constants = []model.ConstantLookUp{{Name: "first", Field: 1, Dim: 1, Values: []float32{10, 20, 30}, Input: first}}
	product := b.Node("Mul", nil, wide, other)
	sum := b.Node("ReduceSum", nil, product, b.Ints(1))
	b.Output = b.Node("Add", nil, b.Node("Mul", nil, sum, dense), b.Node("Mul", nil, narrow, first))
	a := model.Architecture{
		Kind: model.Graph, FieldDims: []int{2, 3}, Dense: []string{"age"},
		Tables:  []model.Table{{Name: "w", Rows: 2, Dim: 3}, {Name: "n", Rows: 2, Dim: 1}, {Name: "o", Rows: 3, Dim: 3}},
		LookUps: []model.LookUp{{Field: 0, Table: 0}, {Field: 0, Table: 1}, {Field: 1, Table: 2}},
	}
	m, err := model.New(a, model.Weights{Graph: h, Embedding: []float32{1, 2, 3, 4, 5, 6, 0.5, 0.25, 1, 1, 1, 2, 2, 2, 3, 0, 1}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Walks that update linear layers agree with coalitions, which are computed from scratch,
// within 1e-5 of the largest logit. They have the same bits in every probe, whatever it
// evaluated before.
func TestGraphWalks(t *testing.T) {
	a := model.Architecture{Kind: model.DCNv2, FieldDims: slices.Repeat([]int{50}, 12), Dim: 16, Hidden: []int{100, 50}, CrossLayers: 2, Structure: model.Parallel}
	fm := model.Architecture{Kind: model.DeepFM, FieldDims: a.FieldDims, Dim: 16, Hidden: a.Hidden}
	for name, test := range map[string]struct {
		m    *model.Model
		most float64 // portion of the products that a walk computes
	}{
		"DeepFM":  {modeltest.Graph(fm, modeltest.Weights(fm, 1)), 0.5},
		"DCNv2":   {modeltest.Graph(a, modeltest.Weights(a, 1)), 0.6},
		"PNN":     {modeltest.PNN(20, 1), 0.8},
		"DIN":     {modeltest.DIN(16, 4, 1), 0.6},
		"AutoInt": {modeltest.AutoInt(12, 1), 0.9},
		"FiBiNET": {modeltest.FiBiNET(12, 1), 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := test.m
			if portion := float64(m.WalkProducts()) / float64(m.Products()); portion > test.most || (portion == 1) != (test.most == 1) {
				t.Errorf("a walk computes %.3f of the products, expected at most %v", portion, test.most)
			}
			players, rows := m.Players(), modeltest.Rows(m.Architecture, 2, 4)
			r, baseline := rand.New(rand.NewPCG(3, 4)), make([]float32, players)
			for i := range baseline {
				if i%3 > 0 {
					baseline[i] = float32(r.NormFloat64())
				}
			}
			full := make([]float64, rows.Len())
			m.NewScorer().Logits(full, rows)
			used, other := m.NewProbe(m.Book(model.Baseline{Values: baseline})), m.NewProbe(m.Book(model.Baseline{Values: baseline}))
			order, present := make([]int32, players), make([]bool, players)
			got, want := make([]float64, players+1), make([]float64, players+1)
			worst := 0.0
			for i := range rows.Len() {
				for k, player := range r.Perm(players) {
					order[k] = int32(player)
				}
				probe := m.NewProbe(m.Book(model.Baseline{Values: baseline}))
				probe.Reset(rows, i)
				probe.Walk(order, got)
				largest := math.Abs(full[i])
				clear(present)
				other.Reset(rows, i)
				for k := range want {
					if k > 0 {
						present[order[k-1]] = true
					}
					want[k] = other.Coalition(present)
					largest = max(largest, math.Abs(want[k]))
				}
				for k := range want {
					worst = max(worst, math.Abs(got[k]-want[k])/largest)
					if !(math.Abs(got[k]-want[k]) <= 1e-5*largest) {
						t.Fatalf("row %d: with %d players the logit is %v, expected %v", i, k, got[k], want[k])
					}
				}
				if got[0] != want[0] || !(math.Abs(got[players]-full[i]) <= 1e-5*largest) {
					t.Fatalf("row %d: the walk goes from %v to %v, expected from %v to %v", i, got[0], got[players], want[0], full[i])
				}
				used.Reset(rows, i)
				for range 2 {
					used.Coalition(present)
					used.Empties(make([]float64, rows.Len()), rows)
					used.Reset(rows, i)
					if used.Walk(order, want); !slices.Equal(got, want) {
						t.Fatalf("row %d: the walk has other bits in a probe that was used before", i)
					}
				}
			}
			t.Logf("%d players, the largest difference is %.1e of the largest logit", players, worst)
		})
	}
}

// Tables of different widths, constants and dense inputs reach the right inputs.
func TestGraphInputs(t *testing.T) {
	m := mixed(t)
	rows := &model.Rows{Width: 2, Inputs: 1, Number: []int64{0, 1}, Label: []float32{0, 1}, Features: []int32{0, 3, 1, 4}, Dense: []float32{2, -1}}
	want := []float64{(1+2+3)*2*2 + 0.5*20, (4*3+6)*-1 + 0.25*30}
	got := make([]float64, 2)
	if m.NewScorer().Logits(got, rows); !slices.Equal(got, want) {
		t.Fatalf("logits %v, expected %v", got, want)
	}
	baseline := []float32{1, 1, 1, 1, 0, 0, 0}
	p := m.NewProbe(m.Book(model.Baseline{Values: baseline}))
	logits := make([]float64, 8)
	for range 2 { // the second time after another row
		p.Reset(rows, 0)
		if p.Walk([]int32{3, 4, 5, 6, 0, 1, 2}, logits); !slices.Equal(logits, []float64{20, 10, 14, 18, 22, 22, 26, 34}) {
			t.Fatalf("a walk has the logits %v", logits)
		}
		p.Reset(rows, 1)
		if p.Walk([]int32{0, 1, 2, 3, 4, 5, 6}, logits); !slices.Equal(logits, []float64{30, 30, 30, 30, 7.5, -4.5, -4.5, -10.5}) {
			t.Fatalf("a walk has the logits %v", logits)
		}
	}
	order := []int32{3, 4, 5, 6, 0, 1, 2}
	if n := testing.AllocsPerRun(10, func() { p.Reset(rows, 0); p.Walk(order, logits) }); n != 0 {
		t.Errorf("%v allocations in a walk", n)
	}
}

// The gradient of a graph has the logits of a scorer to the last bit. The results of a slot do
// not depend on the other slots. Slopes and Empties allocate no memory, and Empties agrees
// with Empty.
func TestGraphGradient(t *testing.T) {
	for name, m := range map[string]*model.Model{"mixed": mixed(t), "AutoInt": modeltest.AutoInt(5, 1), "FiBiNET": modeltest.FiBiNET(6, 1)} {
		t.Run(name, func(t *testing.T) {
			if err := m.Differentiable(); err != nil {
				t.Fatal(err)
			}
			if m.SlopeProducts() <= m.Products() && name != "mixed" {
				t.Errorf("%d products with derivatives, %d without", m.SlopeProducts(), m.Products())
			}
			g := m.NewGradient()
			rows := modeltest.Rows(m.Architecture, g.States(), 3)
			x := make([][]float32, rows.Len())
			for i := range x {
				x[i] = make([]float32, m.Players())
				m.Embed(x[i], rows.Row(i))
			}
			want := make([]float64, rows.Len())
			m.NewScorer().Logits(want, rows)
			logits, slope := slopes(g, rows, x, g.States())
			if !slices.Equal(logits, want) {
				t.Errorf("logits %v, the scorer has %v", logits, want)
			}
			for _, batch := range []int{1, 7, 48, 50} {
				part := rows.Slice(0, rows.Len())
				again, other := make([]float64, 0, len(x)), [][]float32{}
				for from := 0; from < len(x); from += batch {
					rows := part.Slice(from, min(from+batch, len(x)))
					l, s := slopes(g, &rows, x[from:from+rows.Len()], batch)
					again, other = append(again, l...), append(other, s...)
				}
				if !slices.Equal(logits, again) || !slices.EqualFunc(slope, other, slices.Equal) {
					t.Errorf("batches of %d change the bits", batch)
				}
			}
			baseline := make([]float32, m.Players())
			for i := range baseline {
				baseline[i] = 0.1 * float32(i%3)
			}
			p, empty := m.NewProbe(m.Book(model.Baseline{Values: baseline})), make([]float64, rows.Len())
			p.Empties(empty, rows)
			for r := range empty {
				if p.Reset(rows, r); p.Empty() != empty[r] {
					t.Fatalf("row %d: the logit with everything dropped is %v, alone %v", r, empty[r], p.Empty())
				}
			}
			if n := testing.AllocsPerRun(5, func() {
				for i := range logits {
					copy(g.Set(i, rows, i), x[i])
				}
				g.Slopes(logits)
				p.Empties(empty, rows)
			}); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

// The derivatives reach the players of tables of different widths.
func TestGraphSlopes(t *testing.T) {
	m := mixed(t)
	rows := &model.Rows{Width: 2, Inputs: 1, Number: []int64{0}, Label: []float32{0}, Features: []int32{0, 3}, Dense: []float32{2}}
	g := m.NewGradient()
	m.Embed(g.Set(0, rows, 0), rows.Row(0))
	logits := make([]float64, 1)
	g.Slopes(logits)
	if want := []float32{4, 4, 4, 20, 2, 4, 6}; logits[0] != 34 || !slices.Equal(g.Slope(0), want) {
		t.Errorf("logit %v with the derivatives %v, expected 34 and %v", logits[0], g.Slope(0), want)
	}
}

// A head that does not fit the architecture is an error that says what does not fit.
func TestGraphErrors(t *testing.T) {
	for name, test := range map[string]struct {
		change func(a *model.Architecture, w *model.Weights)
		want   string
	}{
		"no head":  {func(_ *model.Architecture, w *model.Weights) { w.Graph = nil }, "has no head"},
		"hidden":   {func(a *model.Architecture, _ *model.Weights) { a.Hidden = []int{3} }, "neither hidden"},
		"look-ups": {func(_ *model.Architecture, w *model.Weights) { w.Graph.LookUps = w.Graph.LookUps[1:] }, "inputs for 2 look-ups"},
		"dense":    {func(a *model.Architecture, _ *model.Weights) { a.Dense = nil }, "1 dense inputs, expected 3 and 0"},
		"twice":    {func(_ *model.Architecture, w *model.Weights) { w.Graph.Dense[0] = w.Graph.LookUps[0] }, "that nothing else has"},
		"width":    {func(_ *model.Architecture, w *model.Weights) { w.Graph.LookUps[0] = w.Graph.LookUps[1] }, "look-up 0 has 3 values"},
		"constant": {func(_ *model.Architecture, w *model.Weights) { w.Graph.Constants[0].Field = 0 }, "constant table first has 3 values"},
		"missing":  {func(_ *model.Architecture, w *model.Weights) { w.Graph.Constants = nil }, "the head has 5 inputs"},
		"infinite": {func(_ *model.Architecture, w *model.Weights) {
			w.Graph.Constants[0].Values = []float32{1, 2, float32(math.Inf(1))}
		}, "constant table first has the value +Inf at position 2"},
	} {
		t.Run(name, func(t *testing.T) {
			m := mixed(t)
			a, w := m.Architecture, m.Weights
			test.change(&a, &w)
			if _, err := model.New(a, w); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, expected %q", err, test.want)
			}
		})
	}
}
