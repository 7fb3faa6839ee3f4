package evaluate

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

// Of n widened intervals, all contain their values in 95% of samples or more, also if there are few rows.
func TestWider(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ n, rows int }{{1, 20}, {12, 8}, {120, 40}} {
		wider, quantile := Wider(c.n, float64(c.rows-1)), distuv.StudentsT{Sigma: 1, Nu: float64(c.rows - 1)}.Quantile(.975)
		const samples = 1500
		missed := 0
		for range samples {
			out := false
			for range c.n {
				var of moments
				for range c.rows {
					of.add(rng.NormFloat64())
				}
				out = out || math.Abs(of.mean) > wider*quantile*math.Sqrt(of.variance())
			}
			if out {
				missed++
			}
		}
		// 95% of samples, and three standard errors of this number.
		if rate := float64(missed) / samples; rate > .05+3*math.Sqrt(.05*.95/samples) || rate < .02 {
			t.Errorf("%d values on %d rows: a value is outside in %.3f of the samples", c.n, c.rows, rate)
		}
	}
	if Wider(1, 50) != 1 || Wider(0, -1) != 1 {
		t.Error("one interval is widened")
	}
}

// All n intervals of rates contain the rates in 95% of samples or more. The probabilities of the tails are those
// of the definition.
func TestRateInterval(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const samples, n, rows = 2000, 20, 60
	missed := 0
	for range samples {
		out := false
		for k := range n {
			rate, positives := float64(k)/n, int64(0)
			for range rows {
				if rng.Float64() < rate {
					positives++
				}
			}
			low, high := RateInterval(positives, rows, n)
			out = out || rate < low || rate > high
		}
		if out {
			missed++
		}
	}
	if rate := float64(missed) / samples; rate > .05 {
		t.Errorf("a rate is outside in %.3f of the samples", rate)
	}
	low, high := RateInterval(7, 50, 4)
	of := func(p float64) distuv.Binomial { return distuv.Binomial{N: 50, P: p} }
	if least, most := 1-of(low).CDF(6), of(high).CDF(7); math.Abs(least-.025/4) > 1e-9 || math.Abs(most-.025/4) > 1e-9 {
		t.Errorf("the tails are %g and %g", least, most)
	}
	if low, high := RateInterval(0, 9, 1); low != 0 || high >= 1 {
		t.Error("no positives: ", low, high)
	}
	if low, high := RateInterval(9, 9, 1); low <= 0 || high != 1 {
		t.Error("no negatives: ", low, high)
	}
}
