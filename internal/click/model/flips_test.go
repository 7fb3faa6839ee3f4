package model_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// The logits after flips are those of the changed embeddings, up to rounding. To the last bit,
// they do not depend on the other flips.
func TestFlips(t *testing.T) {
	tested := 0
	for name, a := range modeltest.Architectures() {
		for _, a := range widths(a) {
			m := modeltest.Random(t, a, 9)
			g, plain := m.NewGradient(), m.NewGradient()
			g.KeepKinks()
			if able := g.KeepFlips(); able != slices.Contains([]model.Kind{model.DeepFM, model.WideDeep, model.NeuMF}, a.Kind) {
				t.Errorf("%s: KeepFlips is %t", name, able)
			} else if !able {
				continue
			}
			tested++
			rows := modeltest.Rows(a, 20, 4)
			x := states(m, rows, 1)
			logits, _ := slopes(g, rows, x, 20)
			r := rand.New(rand.NewPCG(3, 4))
			flips, want := make([]model.Flip, 50), make([]float64, 50)
			for k := range flips {
				f := model.Flip{Slot: r.IntN(20), Player: r.IntN(m.Players()), Change: float32(r.NormFloat64())}
				if k == 0 {
					f.Change = 0
				}
				e := plain.Set(0, rows, f.Slot)
				copy(e, x[f.Slot])
				e[f.Player] += f.Change
				plain.Logits(want[k : k+1])
				flips[k] = f
			}
			got, alone := make([]float64, len(flips)), make([]float64, 1)
			g.Flips(got, flips)
			for k, f := range flips {
				if math.Abs(got[k]-want[k]) > 1e-5*(1+math.Abs(want[k])) {
					t.Errorf("%s: flip %d (%+v) gives %v, expected %v", name, k, f, got[k], want[k])
				}
				if g.Flips(alone, flips[k:k+1]); alone[0] != got[k] {
					t.Errorf("%s: flip %d gives %v alone, and %v with the others", name, k, alone[0], got[k])
				}
			}
			if math.Abs(got[0]-logits[flips[0].Slot]) > 1e-6*(1+math.Abs(got[0])) {
				t.Errorf("%s: a change of 0 gives %v, expected %v", name, got[0], logits[flips[0].Slot])
			}
		}
	}
	if tested < 4 {
		t.Errorf("%d models were tested", tested)
	}
}
