package shapley

import (
	"math"
	"math/rand/v2"
	"testing"

	"shaver/internal/model"
	"shaver/internal/tally"
)

// Contributions are the loss's own differences, to a LossUnit, near and far, and 0
// to the bit where the logit does not move.
func TestContribution(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	worst := 0.0
	for range 200_000 {
		f, label := r.NormFloat64()*math.Exp(3*r.NormFloat64()), uint8(r.IntN(2))
		u := r.NormFloat64() * math.Exp(2*r.NormFloat64()-3)
		c := newCurve(f, label)
		for _, sign := range []float64{-1, 1} {
			want := sign * (model.Loss(f-sign*u, label) - model.Loss(f, label))
			size := 1 + math.Abs(f) + math.Abs(u) // of the losses that are subtracted
			worst = max(worst, math.Abs(c.contribution(u, sign)*tally.LossUnit-want)/size)
			if zero := c.contribution(0, sign); zero != 0 {
				t.Fatalf("f = %g: nobody's contribution is %g", f, zero)
			}
		}
	}
	if t.Logf("off by at most %.2g nat", worst); worst > tally.LossUnit/16 {
		t.Errorf("more than a sixteenth of %g", tally.LossUnit)
	}
	for _, f := range []float64{math.NaN(), math.Inf(1)} {
		if c := newCurve(0, 1); !math.IsNaN(c.contribution(f, 1)) && !math.IsInf(c.contribution(f, 1), 0) {
			t.Errorf("%g gives %g", f, c.contribution(f, 1))
		}
	}
}
