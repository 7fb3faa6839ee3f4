package shapley

import (
	"math"
	"math/rand/v2"
	"testing"

	"shaver/internal/model"
	"shaver/internal/tally"
)

// A contribution equals the difference of two losses for small and large
// moves of the logit. The error is at most a sixteenth of a LossUnit per nat of the losses.
// The contribution is exactly 0 if the logit does not move.
func TestContribution(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	worst := 0.0
	for range 200_000 {
		f, label := r.NormFloat64()*math.Exp(3*r.NormFloat64()), float32(r.IntN(2))
		u := r.NormFloat64() * math.Exp(2*r.NormFloat64()-3)
		c := newCurve(f, label)
		for _, sign := range []float64{-1, 1} {
			want := sign * (model.Loss(f-sign*u, label) - model.Loss(f, label))
			size := 1 + math.Abs(f) + math.Abs(u) // magnitude of the losses that are subtracted
			worst = max(worst, math.Abs(c.contribution(u, sign)*tally.LossUnit-want)/size)
			if zero := c.contribution(0, sign); zero != 0 {
				t.Fatalf("f = %g: the contribution is %g although the logit does not move", f, zero)
			}
		}
	}
	if t.Logf("largest relative error %.2g nat", worst); worst > tally.LossUnit/16 {
		t.Errorf("the largest relative error is %.2g nat, expected at most %.2g", worst, tally.LossUnit/16)
	}
	for _, f := range []float64{math.NaN(), math.Inf(1)} {
		if c := newCurve(0, 1); !math.IsNaN(c.contribution(f, 1)) && !math.IsInf(c.contribution(f, 1), 0) {
			t.Errorf("the contribution for a move by %g is %g, expected NaN or infinity", f, c.contribution(f, 1))
		}
	}
}
