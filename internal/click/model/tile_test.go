package model_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/kernel"
)

// The logit of a row does not depend on its batch. A Probe's Coalition of all players
// equals the result of a Scorer to the last bit.
func TestLogitsDependOnTheRowAlone(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		m := modeltest.Random(t, a, 2)
		rows := modeltest.Rows(a, 41, 2)
		together, alone := make([]float64, rows.Len()), make([]float64, 1)
		scorer := m.NewScorer()
		scorer.Logits(together, rows)
		probe := m.NewProbe(m.Book(model.Baseline{Values: make([]float32, m.Players())}))
		all := slices.Repeat([]bool{true}, m.Players())
		for i, want := range together {
			one := rows.Slice(i, i+1)
			scorer.Logits(alone, &one)
			probe.Reset(rows, i)
			if alone[0] != want || probe.Coalition(all) != want {
				t.Errorf("%s: row %d: %v in the batch, %v alone, %v by a probe", name, i, want, alone[0], probe.Coalition(all))
			}
		}
	}
}

// Null players equal their baseline or are read by no layer. Their steps leave the logit
// unchanged to the last bit, wherever the tiles begin. A walk of null players only stays
// at Empty.
func TestNullPlayersOfAWalk(t *testing.T) {
	a := model.Architecture{Kind: model.DCNv2, FieldDims: slices.Repeat([]int{3}, 13), Dim: 5, Hidden: []int{37, 21}, CrossLayers: 1, Structure: model.Parallel}
	stacked, mix := a, a
	stacked.Structure = model.Stacked
	mix.Kind, mix.Structure, mix.CrossLayers, mix.Experts, mix.Rank = model.DCNMix, "", 2, 2, 7
	for _, a := range []model.Architecture{a, stacked, mix, {Kind: model.DeepFM, FieldDims: a.FieldDims, Dim: 5, Hidden: a.Hidden}} {
		w := modeltest.Weights(a, 3)
		players := a.Players()
		unread := func(p int) bool { return p%a.Dim == 2 }
		for i := range w.Embedding { // FM reads these columns even if the network does not
			if a.Kind == model.DeepFM && i%a.Dim == 2 {
				w.Embedding[i] = 0
			}
		}
		layers := []*model.Linear{&w.Hidden[0]}
		for l := range w.Cross {
			layers = append(layers, &w.Cross[l])
		}
		for _, l := range layers {
			for i := range l.Weight {
				if unread(i % l.In) {
					l.Weight[i] = 0
				}
			}
		}
		for l := range w.Cross { // x0*(Wx+b) is 0 if W's row and b are; the output layer does not read x0 itself
			for i := range w.Cross[l].Weight {
				if unread(i / players) {
					w.Cross[l].Weight[i] = 0
				}
			}
			for o := range players {
				if unread(o) {
					w.Cross[l].Bias[o] = 0
				}
				if unread(o) && a.Structure == model.Parallel {
					w.Output.Weight[o] = 0
				}
			}
		}
		for i := range w.Gates {
			if unread(i % players) {
				w.Gates[i] = 0
			}
		}
		for l := range w.Mix {
			for i := range w.Mix[l].V {
				if unread(i / a.Rank % players) {
					w.Mix[l].V[i] = 0
				}
			}
		}
		m, err := model.New(a, w)
		if err != nil {
			t.Fatal(err)
		}
		baseline := make([]float32, players)
		rows := modeltest.Rows(a, 10, 3)
		for p := range baseline {
			if baseline[p] = 0.1; p%7 == 0 {
				baseline[p] = m.Weights.Embedding[int(rows.Row(0)[p/a.Dim])*a.Dim+p%a.Dim]
			}
			if a.Kind == model.DeepFM && unread(p) {
				baseline[p] = 0
			}
		}
		probe := m.NewProbe(m.Book(model.Baseline{Values: baseline}))
		r := rand.New(rand.NewPCG(8, 9))
		order, logits, x := make([]int32, players), make([]float64, players+1), make([]float32, players)
		for i := range rows.Len() {
			probe.Reset(rows, i)
			m.Embed(x, rows.Row(i))
			for k, p := range r.Perm(players) {
				order[k] = int32(p)
			}
			probe.Walk(order, logits)
			moved := 0
			for k, p := range order {
				switch null := unread(int(p)) || x[p] == baseline[p]; {
				case null && logits[k+1] != logits[k]:
					t.Errorf("%s row %d step %d: null player %d moved the logit by %g", a.Kind, i, k, p, logits[k+1]-logits[k])
				case logits[k+1] != logits[k]:
					moved++
				}
			}
			if moved < players/2 {
				t.Errorf("%s row %d: only %d of %d players moved the logit", a.Kind, i, moved, players)
			}
		}
		m.Embed(x, rows.Row(1))
		probe = m.NewProbe(m.Book(model.Baseline{Values: x}))
		probe.Reset(rows, 1)
		probe.Walk(order, logits)
		all := slices.Repeat([]bool{true}, players)
		for k, v := range logits {
			if full := probe.Coalition(all); v != probe.Empty() || v != full && (kernel.Lists() || math.Abs(v-full) > 1e-6*max(1, math.Abs(v))) { // at levels that use digits, steps and Coalition differ by rounding
				t.Fatalf("%s: step %d of a walk of null players: %v, Empty %v, all present %v", a.Kind, k, v, probe.Empty(), full)
			}
		}
	}
}

// deepFM returns a DeepFM of 16 columns and three hidden layers of 400, some rows, and a
// baseline. The hidden units are active with the given frequency over the states of walks
// from the baseline.
func deepFM(fields int, active float64) (*model.Model, *model.Rows, []float32) {
	a := model.Architecture{Kind: model.DeepFM, FieldDims: slices.Repeat([]int{50}, fields), Dim: 16, Hidden: []int{400, 400, 400}}
	m, baseline := modeltest.Calibrated(a, active, false)
	return m, modeltest.Rows(a, 64, 1), baseline.Values
}

// crossModel returns a model with cross layers, two for DCNv2 or three for DCN-Mix, some
// rows, and a baseline.
func crossModel(kind string, fields int, zero bool) (*model.Model, *model.Rows, []float32) {
	a := model.Architecture{Kind: model.DCNv2, FieldDims: slices.Repeat([]int{50}, fields), Dim: 16, Hidden: []int{400, 400, 400}, CrossLayers: 2}
	switch kind {
	case "dcn-mix":
		a.Kind, a.CrossLayers, a.Experts, a.Rank = model.DCNMix, 3, 4, 64
	case "dcnv2-stacked":
		a.Structure = model.Stacked
	default:
		a.Structure = model.Parallel
	}
	m, baseline := modeltest.Calibrated(a, .4, zero)
	return m, modeltest.Rows(a, 64, 1), baseline.Values
}

// Steps of walks agree with float64 at full size as well.
func TestWalkAtFullSize(t *testing.T) {
	long.Test(t)
	m, rows, baseline := deepFM(39, .4)
	checkWalk(t, m, rows, baseline, 3, 20)
	for _, kind := range []string{"dcn-mix", "dcnv2-stacked", "dcnv2-parallel"} {
		for _, zero := range []bool{false, true} {
			m, rows, baseline := crossModel(kind, 39, zero)
			checkWalk(t, m, rows, baseline, 1, 60)
		}
	}
}

// Every step of a walk over several blocks of cross layers, the last of them short,
// agrees with float64. In the baselines, no entries, some entries or all entries are 0.
// In one more baseline, only the entries that are 0 in the row differ from 0.
func TestCrossWalkInBlocks(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		if a.CrossLayers == 0 {
			continue
		}
		a.FieldDims, a.Dim, a.Hidden[0] = slices.Repeat([]int{3}, 13), 9, 37
		w := modeltest.Weights(a, 4)
		for i := range w.Embedding {
			w.Embedding[i] *= .5
		}
		for l := range w.Cross {
			for i := range w.Cross[l].Weight {
				w.Cross[l].Weight[i] *= .3
			}
		}
		for i := range w.Gates {
			w.Gates[i] *= .3
		}
		for i := 4; i < len(w.Embedding); i += 11 {
			w.Embedding[i] = 0
		}
		m, err := model.New(a, w)
		if err != nil {
			t.Fatal(err)
		}
		for _, zeros := range []int{0, 1, 2, 3} {
			baseline := make([]float32, m.Players())
			for p := range baseline {
				if zeros < 3 && p%3 >= zeros {
					baseline[p] = float32(p%5-2) * .1
				}
			}
			t.Run(fmt.Sprintf("%s/%d", name, zeros), func(t *testing.T) {
				checkWalk(t, m, modeltest.Rows(a, 8, 3), baseline, 8, 1)
			})
		}
	}
}

// checkWalk walks the first n rows. It compares the logits with float64 after the steps k
// with k%every at most 1.
func checkWalk(t *testing.T, m *model.Model, rows *model.Rows, baseline []float32, n, every int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	probe := m.NewProbe(m.Book(model.Baseline{Values: baseline}))
	order, logits := make([]int32, m.Players()), make([]float64, m.Players()+1)
	all := slices.Repeat([]bool{true}, m.Players())
	worst, worstDifference := 0.0, 0.0
	for i := range n {
		probe.Reset(rows, i)
		for k, p := range r.Perm(m.Players()) {
			order[k] = int32(p)
		}
		probe.Walk(order, logits)
		if i%2 == 0 { // the result must not depend on what the probe did before
			if end, full := logits[len(order)], probe.Coalition(all); math.Abs(full-end) > 5e-6*max(1, math.Abs(end)) {
				t.Errorf("the walk ends at %v, with all present it is %v", end, full)
			}
		}
		entries := embed(m, rows.Row(i))
		x := make([]float64, len(baseline))
		for p, b := range baseline {
			x[p] = float64(b)
		}
		before := 0.0
		for k := range logits {
			if k > 0 {
				x[order[k-1]] = entries[order[k-1]]
			}
			if k%every > 1 {
				continue
			}
			want := reference(m, rows.Row(i), x)
			size := max(1, math.Abs(want))
			worst = max(worst, math.Abs(logits[k]-want)/size)
			if k > 0 && (k%every == 1 || every == 1) {
				worstDifference = max(worstDifference, math.Abs(logits[k]-logits[k-1]-(want-before))/size)
			}
			before = want
		}
	}
	t.Logf("%s: logits from %.1f to %.1f off by at most %.2g, differences by %.2g", kernel.Name(), logits[0], logits[len(order)], worst, worstDifference)
	if worst > 5e-6 || worstDifference > 5e-6 {
		t.Errorf("logits off by %g, their differences by %g", worst, worstDifference)
	}
}
