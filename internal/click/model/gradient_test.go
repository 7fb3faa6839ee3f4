package model_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// states returns embeddings between the rows' own and a baseline. The baseline is 0 for
// every second state.
func states(m *model.Model, rows *model.Rows, seed uint64) [][]float32 {
	r := rand.New(rand.NewPCG(seed, 3))
	x := make([][]float32, rows.Len())
	for i := range x {
		x[i] = make([]float32, m.Players())
		m.Embed(x[i], rows.Row(i))
		for p := range x[i] {
			if r.IntN(2) == 0 {
				x[i][p] = 0.1 * float32(i%2) * float32(p%4)
			}
		}
	}
	return x
}

// slopes evaluates the states in batches of the given size.
func slopes(g *model.Gradient, rows *model.Rows, x [][]float32, batch int) (logits []float64, slope [][]float32) {
	logits = make([]float64, len(x))
	for from := 0; from < len(x); from += batch {
		to := min(from+batch, len(x))
		for i := from; i < to; i++ {
			copy(g.Set(i-from, rows, i), x[i])
		}
		g.Slopes(logits[from:to])
		for i := range to - from {
			slope = append(slope, slices.Clone(g.Slope(i)))
		}
	}
	return logits, slope
}

// widths returns an architecture, and one of its kind that is wider than a panel and than a
// group of inputs.
func widths(a model.Architecture) []model.Architecture {
	wide := a
	wide.FieldDims, wide.Dim = slices.Repeat([]int{3}, 14), 5
	if a.Kind == model.NeuMF {
		wide.FieldDims, wide.Dim = []int{3, 3}, 36
	}
	if a.Hidden != nil {
		wide.Hidden = []int{37, 21, 19}
	}
	return []model.Architecture{a, wide}
}

// Derivatives agree with central differences of the papers' formulas in float64.
func TestSlopesAgainstDifferences(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		for i, a := range widths(a) {
			m := modeltest.Random(t, a, 9)
			rows := modeltest.Rows(a, 30, 4)
			x := states(m, rows, 1)
			logits, slope := slopes(m.NewGradient(), rows, x, 30)
			kinks, compared := 0, 0
			for i := range rows.Len() {
				row, at := rows.Row(i), make([]float64, len(x[i]))
				for p, v := range x[i] {
					at[p] = float64(v)
				}
				want := reference(m, row, at)
				if math.Abs(logits[i]-want) > 2e-5*(1+math.Abs(want)) {
					t.Fatalf("%s, row %d: logit %v, want %v", name, i, logits[i], want)
				}
				// The steepest slope sets the scale of the tolerance.
				found, steep := make([]float64, len(at)), 1.0
				for p, v := range at {
					const h = 1e-6
					at[p] = v + h
					up := reference(m, row, at)
					at[p] = v - h
					down := reference(m, row, at)
					at[p] = v
					found[p] = (up - down) / (2 * h)
					if math.Abs(up-2*want+down) > 1e-3*h*(1+math.Abs(found[p])) { // a unit switches on or off within the difference
						found[p] = math.NaN()
						kinks++
					} else {
						steep = max(steep, math.Abs(found[p]))
					}
				}
				for p, want := range found {
					compared++
					if got := float64(slope[i][p]); math.Abs(got-want) > 2e-5*steep {
						t.Fatalf("%s, row %d, player %d: derivative %v, want %v", name, i, p, got, want)
					}
				}
			}
			if kinks > compared/100 {
				t.Errorf("%s %d: %d of %d differences contain a kink", name, i, kinks, compared)
			}
		}
	}
}

// The results of a state depend only on that state, to the last bit. They do not depend
// on its slot or on the other slots. Logits equal those of a Scorer, except for FM's term
// in float64.
func TestSlopesDependOnTheStateAlone(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		m := modeltest.Random(t, a, 2)
		g := m.NewGradient()
		rows := modeltest.Rows(a, g.States(), 2)
		x := states(m, rows, 2)
		logits, slope := slopes(g, rows, x, g.States())
		for _, batch := range []int{1, 7, 29} {
			again, other := slopes(g, rows, x, batch)
			if !slices.Equal(logits, again) || !slices.EqualFunc(slope, other, slices.Equal) {
				t.Errorf("%s: batches of %d change the bits", name, batch)
			}
		}
		want := make([]float64, rows.Len())
		m.NewScorer().Logits(want, rows)
		for i := range want {
			m.Embed(g.Set(i, rows, i), rows.Row(i))
		}
		g.Logits(logits)
		if !slices.EqualFunc(logits, want, func(a, b float64) bool { return math.Abs(a-b) <= 1e-14*(1+math.Abs(b)) }) {
			t.Errorf("%s: the logits of a Gradient differ from those of a Scorer", name)
		}
	}
}

// The derivative with respect to an entry that the model does not read is exactly 0.
func TestSlopesOfNullPlayers(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		w := modeltest.Weights(a, 3)
		null := a.Dim // column 0 of field 1
		for i := range w.Embedding {
			if a.Kind == model.FM || a.Kind == model.DeepFM { // FM's pairs need two embeddings that are not 0
				if i%a.Dim == 0 && (i < a.FieldDims[0]*a.Dim || i >= (a.FieldDims[0]+a.FieldDims[1])*a.Dim) {
					w.Embedding[i] = 0
				}
			}
		}
		if w.Linear != nil {
			w.Linear[null] = 0
		}
		if len(w.Hidden) > 0 {
			for o := range w.Hidden[0].Out {
				w.Hidden[0].Weight[o*w.Hidden[0].In+null] = 0
			}
		}
		players := a.Players()
		for l := range w.Cross {
			for p := range players {
				w.Cross[l].Weight[p*players+null], w.Cross[l].Weight[null*players+p] = 0, 0
			}
			w.Cross[l].Bias[null] = 0
		}
		if a.Structure == model.Parallel {
			w.Output.Weight[null] = 0
		}
		for k := range a.Experts {
			w.Gates[k*players+null] = 0
			for l := range w.Mix {
				for r := range a.Rank {
					w.Mix[l].V[(k*players+null)*a.Rank+r] = 0
				}
			}
		}
		m, err := model.New(a, w)
		if err != nil {
			t.Fatal(err)
		}
		rows := modeltest.Rows(a, 20, 3)
		x := make([][]float32, rows.Len())
		for i := range x {
			x[i] = make([]float32, players)
			m.Embed(x[i], rows.Row(i))
		}
		_, slope := slopes(m.NewGradient(), rows, x, 20)
		moved := 0
		for i := range slope {
			if slope[i][null] != 0 {
				t.Errorf("%s: the derivative by a null player is %g", name, slope[i][null])
			}
			if slices.ContainsFunc(slope[i], func(v float32) bool { return v != 0 }) {
				moved++
			}
		}
		if moved < rows.Len()/2 { // some rows have no active unit
			t.Errorf("%s: only %d rows have a derivative that is not 0", name, moved)
		}
	}
}

func TestSlopesDoNotAllocate(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		m := modeltest.Random(t, a, 2)
		g := m.NewGradient()
		rows := modeltest.Rows(a, 10, 2)
		logits := make([]float64, 10)
		if n := testing.AllocsPerRun(5, func() {
			for i := range logits {
				m.Embed(g.Set(i, rows, i), rows.Row(i))
			}
			g.Slopes(logits)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
