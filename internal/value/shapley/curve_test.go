package shapley

import (
	"math"
	"math/rand/v2"
	"testing"

	"shaver/internal/num/loss"
	"shaver/internal/value/tally"
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
		c := newCurve(loss.Logistic, f, label)
		for _, sign := range []float64{-1, 1} {
			want := sign * (loss.Logistic.Of(f-sign*u, label) - loss.Logistic.Of(f, label))
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
		if c := newCurve(loss.Logistic, 0, 1); !math.IsNaN(c.contribution(f, 1)) && !math.IsInf(c.contribution(f, 1), 0) {
			t.Errorf("the contribution for a move by %g is %g, expected NaN or infinity", f, c.contribution(f, 1))
		}
	}
}

// With the squared loss, a contribution equals the difference of two losses for all moves of
// the output, up to rounding in float64.
func TestSquaredContribution(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		f, label := 10*r.NormFloat64(), float32(10*r.NormFloat64())
		u := r.NormFloat64() * math.Exp(2*r.NormFloat64()-1)
		c := newCurve(loss.Squared, f, label)
		for _, sign := range []float64{-1, 1} {
			want := sign * (loss.Squared.Of(f-sign*u, label) - loss.Squared.Of(f, label))
			size := 1 + f*f + u*u + float64(label)*float64(label)
			if got := c.contribution(u, sign) * tally.LossUnit; math.Abs(got-want) > 1e-14*size {
				t.Fatalf("output %g, label %g, move %g, sign %g: the contribution is %g, expected %g", f, label, u, sign, got, want)
			}
		}
	}
	for _, u := range []float64{math.NaN(), math.Inf(1)} {
		c := newCurve(loss.Squared, 0, 1)
		if x := c.contribution(u, 1); !math.IsNaN(x) && !math.IsInf(x, 0) {
			t.Errorf("the contribution for a move by %g is %g, expected NaN or infinity", u, x)
		}
	}
}
