package shapley_test

import (
	"math"
	"math/bits"
	"testing"

	"gonum.org/v1/gonum/stat"

	"shaver/internal/estimator"
	"shaver/internal/loss"
	"shaver/internal/model"
	"shaver/internal/model/modeltest"
	"shaver/internal/shapley"
)

// expectation computes the expected value of the multilinear estimator on one row. It works
// in float64, enumerates all coalitions, and takes numerical derivatives of the reference
// formula. weight returns the weight of a player for q in (0, 1/2), depending on whether the
// player is in S.
func expectation(g shapley.Game, row []int32, label float32, weight func(q float64, in bool) float64) []float64 {
	m, players := g.Model, g.Model.Players()
	entries, x := make([]float32, players), make([]float64, players)
	m.Embed(entries, row)
	logit := func() float64 { return modeltest.Logit(&m.Architecture, &m.Weights, row, x) }
	contribution := make([][]float64, 1<<players) // by coalition and player
	for set := range contribution {
		for i := range x {
			if x[i] = float64(g.Baseline[i]); set>>i&1 == 1 {
				x[i] = float64(entries[i])
			}
		}
		f := logit()
		contribution[set] = make([]float64, players)
		for i := range x {
			const h = 1e-6
			v := x[i]
			x[i] = v + h
			up := logit()
			x[i] = v - h
			u := (up - logit()) / (2 * h) * float64(entries[i]-g.Baseline[i])
			x[i] = v
			if set>>i&1 == 1 {
				contribution[set][i] = g.Loss.Of(f-u, label) - g.Loss.Of(f, label)
			} else {
				contribution[set][i] = g.Loss.Of(f, label) - g.Loss.Of(f+u, label)
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
	return phi
}

// For plain and balanced end points and several numbers of draws, the mean of the estimates
// over many seeds is within 4.5 standard errors of the expected value.
func TestMultilinearCentresOnItsExpectation(t *testing.T) {
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
		a.FieldDims, a.Dim = []int{2, 2, 2}, 2
		m := modeltest.Random(t, a, 6)
		game := shapley.Game{Model: m, Baseline: baseline(m)}
		rows := modeltest.Rows(a, 1, 6)
		if name == "deepfm" || name == "dcnv2" {
			game.Loss, rows.Label[0] = loss.Squared, 2.5
		}
		for _, o := range []shapley.Options{{Options: estimator.Options{Draws: 2, Endpoints: estimator.Plain}}, {Options: estimator.Options{Draws: 6, Endpoints: estimator.Plain}}, {Options: estimator.Options{Draws: 4, Endpoints: estimator.Balanced}}, {Options: estimator.Options{Draws: 8, Endpoints: estimator.Balanced}}} {
			o.Estimator, o.Passes = estimator.Multilinear, 1
			want := expectation(game, rows.Row(0), rows.Label[0], weights[o.Endpoints])
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

// For an estimator that is not efficient, EfficiencyError is the difference from the
// efficiency identity. EfficiencySE is the size of this difference that an unbiased
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
		if want := math.Abs(sum - (r.LossEmpty - r.LossFull)); math.Abs(r.EfficiencyError-want) > 1e-9 {
			t.Fatalf("efficiency error %g, expected %g", r.EfficiencyError, want)
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
