package model_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// kinkTerms computes the kink terms of a state from their definition in float64. x is the
// embedding. size is the sum of the magnitudes that are added for an entry. The terms are nil
// if a unit is too close to its kink for float32.
func kinkTerms(m *model.Model, x, change []float64) (terms, size []float64) {
	a, w := &m.Architecture, &m.Weights
	in, factor := modeltest.Crossed(a, w, x), slices.Repeat([]float64{1}, len(x))
	output := w.Output.Weight
	if a.Structure == model.Parallel {
		in, output = x, output[len(x):]
	} else {
		for i := range x {
			factor[i] = in[i] / x[i] // 1 + the sum of z
			if x[i] == 0 {
				factor[i] = 1 // exact only without cross layers; such entries do not change below
			}
		}
	}
	var pre [][]float64
	for l := range w.Hidden {
		layer := &w.Hidden[l]
		next := make([]float64, layer.Out)
		for o := range next {
			next[o] = float64(layer.Bias[o])
			for i, v := range in {
				next[o] += v * float64(layer.Weight[o*layer.In+i])
			}
		}
		pre = append(pre, next)
		in = make([]float64, layer.Out)
		for o, v := range next {
			in[o] = max(v, 0)
			if math.Abs(v) < 1e-5 {
				return nil, nil
			}
		}
	}
	slope := make([]float64, len(output))
	for o, v := range output {
		slope[o] = float64(v)
	}
	for l := len(w.Hidden) - 1; l > 0; l-- {
		layer := &w.Hidden[l]
		next := make([]float64, layer.In)
		for o, d := range slope {
			if pre[l][o] > 0 {
				for i := range next {
					next[i] += d * float64(layer.Weight[o*layer.In+i])
				}
			}
		}
		slope = next
	}
	terms, size = make([]float64, len(x)), make([]float64, len(x))
	for i := range x {
		for h, g := range slope {
			v, move := pre[0][h], factor[i]*change[i]*float64(w.Hidden[0].Weight[h*len(x)+i])
			bent := max(v+move, 0) - max(v, 0)
			if v > 0 {
				bent -= move
			}
			terms[i] += g * bent
			size[i] += math.Abs(g) * (math.Abs(v) + math.Abs(move))
		}
	}
	return terms, size
}

// Kink terms agree with their definition in float64, for small architectures and for some
// that are wider than a panel and than a group of inputs. The last bit does not depend on the
// other slots, and what Slopes computes does not depend on KeepKinks.
func TestKinksAgainstDefinition(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		for _, a := range widths(a) {
			m := modeltest.Random(t, a, 9)
			g, plain := m.NewGradient(), m.NewGradient()
			if g.KeepKinks() != (a.Kind != model.FM) {
				t.Fatalf("%s: KeepKinks is %t", name, a.Kind == model.FM)
			}
			if a.Kind == model.FM {
				continue
			}
			rows := modeltest.Rows(a, 30, 4)
			x := states(m, rows, 1)
			logits, slope := slopes(g, rows, x, 30)
			want, wantSlope := slopes(plain, rows, x, 30)
			if !slices.Equal(logits, want) || !slices.EqualFunc(slope, wantSlope, slices.Equal) {
				t.Errorf("%s: KeepKinks changes the bits of the slopes", name)
			}
			r := rand.New(rand.NewPCG(3, 4))
			changes := make([][]float64, rows.Len())
			set := func(i, slot int) {
				for p := range x[i] {
					g.Change(slot)[p] = float32(changes[i][p])
				}
			}
			for i := range changes {
				changes[i] = make([]float64, len(x[i]))
				for p := range changes[i] {
					if x[i][p] != 0 || a.CrossLayers == 0 || a.Structure == model.Parallel {
						changes[i][p] = float64(float32(r.NormFloat64()))
					}
				}
				set(i, i)
			}
			g.Kinks(rows.Len())
			compared, bent := 0, 0
			first := slices.Clone(g.Kink(7))
			for i := range changes {
				at := make([]float64, len(x[i]))
				for p, v := range x[i] {
					at[p] = float64(v)
				}
				terms, size := kinkTerms(m, at, changes[i])
				for p, want := range terms {
					compared++
					if want != 0 {
						bent++
					}
					if got := float64(g.Kink(i)[p]); math.Abs(got-want) > 3e-5*(1+size[p]) {
						t.Fatalf("%s, %d players, row %d, player %d: kink term %v, want %v", name, len(at), i, p, got, want)
					}
				}
			}
			if bent < compared/10 || compared < len(x[0])*rows.Len()/2 {
				t.Errorf("%s: only %d of %d terms are not 0", name, bent, compared)
			}
			copy(g.Set(0, rows, 7), x[7])
			g.Slopes(make([]float64, 1))
			set(7, 0)
			g.Kinks(1)
			if !slices.Equal(first, g.Kink(0)) {
				t.Errorf("%s: the kink terms of a state depend on other slots", name)
			}
		}
	}
}

// With one hidden layer, the derivatives and the kink terms of DeepFM and WideDeep predict the
// logit after the change of any single entry exactly.
func TestKinksOfOneLayerAreExact(t *testing.T) {
	for _, kind := range []model.Kind{model.DeepFM, model.WideDeep} {
		a := model.Architecture{Kind: kind, FieldDims: []int{4, 3, 5}, Dim: 3, Hidden: []int{23}}
		m := modeltest.Random(t, a, 5)
		g := m.NewGradient()
		g.KeepKinks()
		rows := modeltest.Rows(a, 20, 4)
		x := states(m, rows, 1)
		logits, slope := slopes(g, rows, x, 20)
		for i := range x {
			for p := range x[i] {
				g.Change(i)[p] = float32(p%3) - 1.2
			}
		}
		g.Kinks(len(x))
		for i := range x {
			at := make([]float64, len(x[i]))
			for p, v := range x[i] {
				at[p] = float64(v)
			}
			for p := range at {
				change := float64(float32(p%3) - 1.2)
				at[p] += change
				want := reference(m, rows.Row(i), at)
				at[p] = float64(x[i][p])
				if got := logits[i] + float64(slope[i][p])*change + float64(g.Kink(i)[p]); math.Abs(got-want) > 3e-5*(1+math.Abs(want)) {
					t.Errorf("%s, row %d, player %d: predicted %v, the logit is %v", kind, i, p, got, want)
				}
			}
		}
	}
}

func TestColumnNorms(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		m := modeltest.Random(t, a, 5)
		norms := m.ColumnNorms()
		if a.Kind == model.FM {
			if norms != nil {
				t.Errorf("%s: norms %v, expected none", name, norms)
			}
			continue
		}
		layer := &m.Weights.Hidden[0]
		for i := range m.Players() {
			want := 0.0
			for o := range layer.Out {
				want += math.Pow(float64(layer.Weight[o*layer.In+i]), 2)
			}
			if math.Abs(norms[i]-want) > 1e-12*want {
				t.Errorf("%s: the norm of column %d is %v, expected %v", name, i, norms[i], want)
			}
		}
	}
}

// A graph has the kink terms and the norms of the model from which it was made, unless its
// network reads cross layers. It then has none.
func TestKinksOfGraphs(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		if a.Kind != model.DeepFM && a.Kind != model.DCNv2 { // modeltest has no graphs of the others
			continue
		}
		w := modeltest.Weights(a, 9)
		native, err := model.New(a, w)
		if err != nil {
			t.Fatal(err)
		}
		m := modeltest.Graph(a, w)
		g, want := m.NewGradient(), native.NewGradient()
		direct := a.Kind == model.DeepFM || a.Structure == model.Parallel
		if got := g.KeepKinks(); got != direct {
			t.Errorf("%s: the graph has kink terms: %t", name, got)
		}
		if (m.ColumnNorms() != nil) != direct {
			t.Errorf("%s: the graph has norms: %t", name, !direct)
		}
		if !direct {
			continue
		}
		for i, n := range native.ColumnNorms() {
			if got := m.ColumnNorms()[i]; math.Abs(got-n) > 1e-5*n {
				t.Errorf("%s: the norm of element %d is %v, expected %v", name, i, got, n)
			}
		}
		want.KeepKinks()
		r := rand.New(rand.NewPCG(5, 6))
		slots := min(g.States(), want.States())
		rows := modeltest.Rows(a, slots, 4)
		for i := range slots {
			for _, g := range []*model.Gradient{g, want} {
				native.Embed(g.Set(i, rows, i), rows.Row(i))
			}
			for p := range g.Change(i) {
				c := float32(r.NormFloat64())
				g.Change(i)[p], want.Change(i)[p] = c, c
			}
		}
		logits := make([]float64, slots)
		for _, g := range []*model.Gradient{g, want} {
			g.Slopes(logits)
			g.Kinks(slots)
		}
		bent := 0
		for i := range slots {
			for p, v := range want.Kink(i) {
				if bent += map[bool]int{true: 1}[v != 0]; math.Abs(float64(g.Kink(i)[p]-v)) > 1e-4*(1+math.Abs(float64(v))) {
					t.Errorf("%s: slot %d, element %d: the kink term is %v, expected %v", name, i, p, g.Kink(i)[p], v)
				}
			}
		}
		if bent == 0 {
			t.Errorf("%s: all kink terms are 0", name)
		}
	}
}
