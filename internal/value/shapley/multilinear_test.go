package shapley_test

import (
	"math"
	"math/bits"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"shaver/internal/base/long"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

// expectation computes the expected value of the multilinear estimator on one row. It
// enumerates all coalitions. The logits, derivatives and kink terms are those of a Gradient. A
// row has its residual shared out by formulas in float64. weight returns the weight of a player
// for q in (0, 1/2), depending on whether the player is in S.
func expectation(g shapley.Game, rows *model.Rows, weight func(q float64, in bool) float64) []float64 {
	m, players := g.Model, g.Model.Players()
	label := rows.Label[0]
	entries := make([]float32, players)
	m.Embed(entries, rows.Row(0))
	gradient := m.NewGradient()
	kinks := gradient.KeepKinks()
	delta := func(i int) float64 { return float64(entries[i] - g.Baseline.Values[i]) }
	contribution := make([][]float64, 1<<players) // by coalition and player
	for set := range contribution {
		x := gradient.Set(0, rows, 0)
		for i := range x {
			if x[i] = g.Baseline.Values[i]; set>>i&1 == 1 {
				x[i] = entries[i]
			}
			if kinks {
				gradient.Change(0)[i] = float32(delta(i) * (1 - 2*float64(set>>i&1)))
			}
		}
		f := make([]float64, 1)
		gradient.Slopes(f)
		bend := make([]float32, players)
		if kinks {
			gradient.Kinks(1)
			bend = gradient.Kink(0)
		}
		contribution[set] = make([]float64, players)
		for i := range contribution[set] {
			u, k := float64(gradient.Slope(0)[i])*delta(i), float64(bend[i])
			if set>>i&1 == 1 {
				contribution[set][i] = g.Loss.Of(f[0]-u+k, label) - g.Loss.Of(f[0], label)
			} else {
				contribution[set][i] = g.Loss.Of(f[0], label) - g.Loss.Of(f[0]+u+k, label)
			}
		}
	}
	const steps = 400 // number of steps of the midpoint rule
	phi := make([]float64, players)
	for step := range steps {
		q := (float64(step) + .5) / (2 * steps)
		for set := range contribution {
			size := bits.OnesCount(uint(set))
			p := math.Pow(q, float64(size)) * math.Pow(1-q, float64(players-size)) / steps
			for i := range phi {
				pair := (contribution[set][i] + contribution[len(contribution)-1-set][i]) / 2
				phi[i] += p * weight(q, set>>i&1 == 1) * pair
			}
		}
	}
	norms := m.ColumnNorms()
	if norms == nil {
		norms = slices.Repeat([]float64{1}, players)
	}
	mean := floats.Sum(norms) / float64(players)
	score := make([]float64, players)
	for i, n := range norms {
		score[i] = delta(i) * delta(i) * (n + .001*mean)
	}
	logits := make([]float64, 1)
	copy(gradient.Set(0, rows, 0), entries)
	gradient.Logits(logits)
	full := g.Loss.Of(logits[0], label)
	copy(gradient.Set(0, rows, 0), g.Baseline.Values)
	gradient.Logits(logits)
	residual := g.Loss.Of(logits[0], label) - full - floats.Sum(phi)
	floats.AddScaled(phi, residual/floats.Sum(score), score)
	return phi
}

// For plain and balanced end points and several numbers of draws, the mean of the estimates
// over many seeds is within 4.5 standard errors of the expected value.
func TestMultilinearCentresOnItsExpectation(t *testing.T) {
	long.Heavy(t)
	weights := map[string]func(q float64, in bool) float64{
		estimator.Plain: func(float64, bool) float64 { return 1 },
		estimator.Balanced: func(q float64, in bool) float64 {
			if in {
				return 1 / (2 * max(q, .06))
			}
			return (1 - q/(2*max(q, .06))) / (1 - q)
		},
	}
	for name, a := range modeltest.Architectures() {
		a.FieldDims, a.Dim = []int{2, 2, 2}[:a.Fields()], 2
		m := modeltest.Random(t, a, 6)
		game := shapley.Game{Model: m, Baseline: baseline(m)}
		rows := modeltest.Rows(a, 1, 6)
		if name == "deepfm" || name == "dcnv2" {
			game.Loss, rows.Label[0] = loss.Squared, 2.5
		}
		for _, o := range []shapley.Options{{Options: estimator.Options{Draws: 2, Endpoints: estimator.Plain}}, {Options: estimator.Options{Draws: 6, Endpoints: estimator.Plain}}, {Options: estimator.Options{Draws: 4, Endpoints: estimator.Balanced}}, {Options: estimator.Options{Draws: 8, Endpoints: estimator.Balanced}}} {
			o.Estimator, o.Passes = estimator.Multilinear, 1
			want := expectation(game, rows, weights[o.Endpoints])
			const seeds = 600
			found := make([][]float64, len(want))
			for o.Seed = range uint64(seeds) {
				r := play(t, game, o, rows)
				for i := range want {
					found[i] = append(found[i], r.Phi[int(rows.Row(0)[i/2])*2+i%2])
				}
			}
			for i, v := range found {
				mean, sd := stat.MeanStdDev(v, nil)
				if off := math.Abs(mean - want[i]); off > 4.5*sd/math.Sqrt(seeds)+2e-5 {
					t.Errorf("%s, %d draws, %s: player %d is %g on average, expected %g; spread %g", name, o.Draws, o.Endpoints, i, mean, want[i], sd)
				}
			}
		}
	}
}

// In an FM the logit is linear in every entry, so the estimator has no bias. The mean over
// seeds agrees with the exact values.
func TestMultilinearIsUnbiasedForFM(t *testing.T) {
	a := modeltest.Architectures()["fm"]
	m := modeltest.Random(t, a, 6)
	game := shapley.Game{Model: m, Baseline: baseline(m)}
	rows := modeltest.Rows(a, 6, 6)
	exact := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, rows)
	for _, o := range []shapley.Options{{Options: estimator.Options{Draws: 2, Endpoints: estimator.Plain}}, {Options: estimator.Options{Draws: 8, Endpoints: estimator.Balanced}}} {
		o.Estimator, o.Passes = estimator.Multilinear, 1
		centres(t, game, o, rows, exact.Phi, 400)
	}
}

// The estimates from a walk and its reverse have the exact values as their mean, and a
// lower variance than those from two independent walks.
func TestAntithetic(t *testing.T) {
	game, rows := small(t, 6)
	exact := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, rows)
	pairs := centres(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Antithetic, Passes: 1}}, rows, exact.Phi, 500)
	walks := centres(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 2}}, rows, exact.Phi, 500)
	t.Logf("the variance of two walks is %.2f times that of a walk and its reverse", walks/pairs)
	if pairs > walks {
		t.Errorf("the variance of a walk and its reverse is %g, that of two walks is %g", pairs, walks)
	}
}

// centres checks that the mean of the estimates over seeds agrees with want. It returns the
// sum of the variances of all entries.
func centres(t *testing.T, game shapley.Game, o shapley.Options, rows *model.Rows, want []float64, seeds int) float64 {
	t.Helper()
	found := make([][]float64, len(want))
	for seed := range seeds {
		o.Seed = uint64(seed)
		for i, phi := range play(t, game, o, rows).Phi {
			found[i] = append(found[i], phi)
		}
	}
	variance := 0.0
	for i, v := range found {
		mean, sd := stat.MeanStdDev(v, nil)
		variance += sd * sd
		if off := math.Abs(mean - want[i]); off > 4*sd/math.Sqrt(float64(seeds))+1e-7 {
			t.Errorf("%s, %d draws: entry %d is %g on average, expected %g; spread %g", o.Estimator, o.Draws, i, mean, want[i], sd)
		}
	}
	return variance
}

// For an estimator that shares residuals out, EfficiencyError is the difference from the
// efficiency identity before that. EfficiencySE is the size of this difference that an unbiased
// estimator would have. The multilinear estimates of an FM have no bias, so over seeds the
// two agree.
func TestResidual(t *testing.T) {
	a := modeltest.Architectures()["fm"]
	m := modeltest.Random(t, a, 6)
	game := shapley.Game{Model: m, Baseline: baseline(m)}
	rows := modeltest.Rows(a, 200, 6)
	const seeds = 300
	errors, said := 0.0, 0.0
	for seed := range uint64(seeds) {
		r := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 2, Endpoints: estimator.Plain}, Seed: seed}, rows)
		sum := 0.0
		for _, phi := range r.Phi {
			sum += phi
		}
		if off := math.Abs(sum - (r.LossEmpty - r.LossFull)); off > 1e-12 || r.EfficiencyError == 0 {
			t.Fatalf("the values are off by %g and the efficiency error is %g, expected 0 and another value", off, r.EfficiencyError)
		}
		errors += r.EfficiencyError * r.EfficiencyError / seeds
		said += r.EfficiencySE * r.EfficiencySE / seeds
	}
	if ratio := math.Sqrt(errors / said); ratio < .85 || ratio > 1.15 {
		t.Errorf("the root mean square of the efficiency error is %.3g, that of its standard error %.3g", math.Sqrt(errors), math.Sqrt(said))
	}
	game, rows = small(t, 6)
	if r := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 2}, Seed: 1}, rows); r.EfficiencySE != 0 {
		t.Errorf("the efficiency standard error of walks is %g, expected 0", r.EfficiencySE)
	}
}
