package model_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// reference computes the logit of one row in float64 from the formulas of the papers. It
// shares no code with the package.
func reference(m *model.Model, row []int32, x []float64) float64 {
	return modeltest.Logit(&m.Architecture, &m.Weights, row, x)
}

func embed(m *model.Model, row []int32) []float64 {
	x := make([]float64, 0, m.Players())
	for _, f := range row {
		for c := range m.Dim {
			x = append(x, float64(m.Weights.Embedding[int(f)*m.Dim+c]))
		}
	}
	return x
}

func TestScorerAgainstFormulas(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(5) {
				m := modeltest.Random(t, a, seed)
				rows := modeltest.Rows(a, 40, seed)
				logits := make([]float64, rows.Len())
				m.NewScorer().Logits(logits, rows)
				for i, got := range logits {
					if want := reference(m, rows.Row(i), embed(m, rows.Row(i))); math.Abs(got-want) > 1e-5*(1+math.Abs(want)) {
						t.Fatalf("seed %d row %d: logit %v, want %v", seed, i, got, want)
					}
				}
			}
		})
	}
}

// At every step of a walk, the incremental logit equals a full recomputation: in float64
// by the formulas and in float32 by the package.
func TestWalkAgainstRecomputation(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(5, 6))
			m := modeltest.Random(t, a, 9)
			baseline := make([]float32, m.Players())
			for i := range baseline {
				baseline[i] = float32(i%3) * 0.1
			}
			baseline[1] = m.Weights.Embedding[1] // a null player for rows with feature 0
			probe := m.NewProbe(m.Book(model.Baseline{Values: baseline}))
			rows := modeltest.Rows(a, 20, 4)
			order := make([]int32, m.Players())
			logits := make([]float64, m.Players()+1)
			for i := range rows.Len() {
				row := rows.Row(i)
				probe.Reset(rows, i)
				for k, p := range r.Perm(m.Players()) {
					order[k] = int32(p)
				}
				probe.Walk(order, logits)
				if logits[0] != probe.Empty() {
					t.Fatalf("row %d: the walk begins at %v, Empty is %v", i, logits[0], probe.Empty())
				}
				x := make([]float64, len(baseline))
				for p, b := range baseline {
					x[p] = float64(b)
				}
				entries := embed(m, row)
				present := make([]bool, m.Players())
				for k := range logits {
					if k > 0 {
						p := order[k-1]
						if x[p] == entries[p] && logits[k] != logits[k-1] {
							t.Fatalf("row %d step %d: a null player moved the logit", i, k)
						}
						x[p], present[p] = entries[p], true
					}
					want := reference(m, row, x)
					if math.Abs(logits[k]-want) > 1e-5*(1+math.Abs(want)) {
						t.Fatalf("row %d step %d: logit %v, want %v", i, k, logits[k], want)
					}
					if got := probe.Coalition(present); math.Abs(got-want) > 1e-5*(1+math.Abs(want)) {
						t.Fatalf("row %d step %d: coalition %v, want %v", i, k, got, want)
					}
				}
			}
		})
	}
}

func TestWalkDoesNotAllocate(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		m := modeltest.Random(t, a, 1)
		probe := m.NewProbe(m.Book(model.Baseline{Values: make([]float32, m.Players())}))
		rows := modeltest.Rows(a, 1, 1)
		order, logits := make([]int32, m.Players()), make([]float64, m.Players()+1)
		for i := range order {
			order[i] = int32(i)
		}
		if n := testing.AllocsPerRun(10, func() { probe.Reset(rows, 0); probe.Walk(order, logits) }); n > 0 {
			t.Errorf("%s: %v allocations per walk", name, n)
		}
	}
}

func TestNewRefusesWhatDoesNotFit(t *testing.T) {
	architectures := modeltest.Architectures()
	for name, c := range map[string]struct {
		kind   string
		spoil  func(*model.Architecture, *model.Weights)
		expect string
	}{
		"nan":         {"deepfm", func(_ *model.Architecture, w *model.Weights) { w.Hidden[1].Bias[2] = float32(math.NaN()) }, "hidden layer 1 bias has the value NaN at position 2"},
		"infinity":    {"fm", func(_ *model.Architecture, w *model.Weights) { w.Embedding[5] = float32(math.Inf(1)) }, "embedding has the value +Inf at position 5"},
		"short":       {"dcn-mix", func(_ *model.Architecture, w *model.Weights) { w.Mix[1].V = w.Mix[1].V[1:] }, "cross layer 1 V has 35 values"},
		"layers":      {"dcnv2-stacked", func(_ *model.Architecture, w *model.Weights) { w.Cross = w.Cross[1:] }, "2 hidden and 1 cross layers"},
		"structure":   {"dcnv2-stacked", func(a *model.Architecture, _ *model.Weights) { a.Structure = "Stack" }, "structure is"},
		"empty field": {"fm", func(a *model.Architecture, _ *model.Weights) { a.FieldDims = []int{2, 0} }, "field_dims: field 1 has size 0"},
		"too many":    {"fm", func(a *model.Architecture, _ *model.Weights) { a.FieldDims = []int{math.MaxInt32, 1} }, "less than 2^31"},
		"rank":        {"deepfm", func(a *model.Architecture, _ *model.Weights) { a.Rank = 3 }, "no cross layers"},
		"no rank":     {"dcn-mix", func(a *model.Architecture, _ *model.Weights) { a.Rank = 0 }, "experts and a rank"},
		"negative":    {"dcn-mix", func(a *model.Architecture, _ *model.Weights) { a.Experts = -1 }, "must not be negative"},
		"kind":        {"fm", func(a *model.Architecture, _ *model.Weights) { a.Kind = "xdeepfm" }, "kind is"},
	} {
		a := architectures[c.kind]
		w := modeltest.Weights(a, 1)
		c.spoil(&a, &w)
		if _, err := model.New(a, w); err == nil || !strings.Contains(err.Error(), c.expect) {
			t.Errorf("%s: error %v, want %q", name, err, c.expect)
		}
	}
}

func TestCheckRow(t *testing.T) {
	m := modeltest.Random(t, modeltest.Architectures()["fm"], 1)
	if err := m.CheckRow([]int32{3, 4, 11}); err != nil {
		t.Error(err)
	}
	for _, row := range [][]int32{{4, 4, 11}, {3, 3, 11}, {3, 4, 12}, {3, 4}, {-1, 4, 8}} {
		if m.CheckRow(row) == nil {
			t.Errorf("CheckRow accepts row %v", row)
		}
	}
}

func TestFoldBatchNorm(t *testing.T) {
	l := model.Linear{In: 1, Out: 1, Weight: []float32{2}, Bias: []float32{3}}
	f := model.FoldBatchNorm(l, []float32{4}, []float32{5}, []float32{6}, []float32{8})
	// 4 * (2x + 3 - 6) / sqrt(8 + 1e-5) + 5
	scale := 4 / math.Sqrt(8+1e-5)
	if math.Abs(float64(f.Weight[0])-2*scale) > 1e-6 || math.Abs(float64(f.Bias[0])-(5-3*scale)) > 1e-6 {
		t.Errorf("FoldBatchNorm returned %+v", f)
	}
}

// TestFirstOrderOfCross proves that a DCNv2 may have first-order weights and a bias, which
// shift each row's logit and change no player's worth.
func TestFirstOrderOfCross(t *testing.T) {
	a := modeltest.Architectures()["dcnv2-parallel"]
	plain := modeltest.Weights(a, 1)
	wide := plain
	wide.Bias, wide.FirstOrder = 0.5, make([]float32, a.Features())
	for f := range wide.FirstOrder {
		wide.FirstOrder[f] = float32(f) / 8
	}
	rows := modeltest.Rows(a, 20, 2)
	var got [2][]float64
	for i, w := range []model.Weights{plain, wide} {
		m, err := model.New(a, w)
		if err != nil {
			t.Fatal(err)
		}
		got[i] = make([]float64, rows.Len())
		m.NewScorer().Logits(got[i], rows)
	}
	for i := range rows.Len() {
		shift := 0.5
		for _, f := range rows.Row(i) {
			shift += float64(f) / 8
		}
		if d := got[1][i] - got[0][i] - shift; math.Abs(d) > 1e-9 {
			t.Errorf("row %d: first-order weights shift the logit by %v, expected %v", i, d+shift, shift)
		}
	}
	wide.FirstOrder = wide.FirstOrder[1:]
	if _, err := model.New(a, wide); err == nil {
		t.Error("accepted first-order weights of the wrong length")
	}
}
