package forecast

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"shaver/internal/base/long"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/prepare/preparetest"
	"shaver/internal/num/kernel"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

// Rates measures every kernel of a long job, and none of a short one. The kernel in use stays
// the same. It computes with the bits of its own level, so the models of two levels do not
// mix.
func TestRates(t *testing.T) {
	was, names := kernel.Name(), kernel.Names()
	r, _ := preparetest.Request(t)
	rates := func(passes int, names ...string) []Rate {
		t.Helper()
		r.Options.Passes = passes
		rates, err := Rates(t.Context(), r, names, 2)
		if err != nil || kernel.Name() != was {
			t.Fatalf("%v; the kernel in use is %s, expected %s", err, kernel.Name(), was)
		}
		return rates
	}
	if got := rates(1, names...); got != nil {
		t.Errorf("a short job: %v", got)
	}
	const long = 1 << 20
	if got := rates(long, names[0]); got != nil {
		t.Errorf("one kernel: %v", got)
	}
	if len(names) == 1 {
		t.Skip("this machine has one kernel")
	}
	var order []string
	for _, rate := range rates(long, names...) {
		order = append(order, rate.Kernel)
		if !(rate.RowsPerCore > 1) || math.IsInf(rate.RowsPerCore, 0) {
			t.Errorf("%+v", rate)
		}
	}
	if !slices.Equal(order, names) {
		t.Errorf("rates of %v, expected %v", order, names)
	}
	if _, err := Rates(t.Context(), r, []string{names[0], "abacus"}, 1); err == nil || kernel.Name() != was {
		t.Errorf("an unknown kernel: %v, then %s is in use", err, kernel.Name())
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Rates(cancelled, r, names, 1); !errors.Is(err, context.Canceled) || kernel.Name() != was {
		t.Errorf("cancelled: %v, then %s is in use", err, kernel.Name())
	}
}

// A single row of many passes, or of exact values, does not make the measurement long.
func TestRatesOfSlowRows(t *testing.T) {
	if !long.All() || len(kernel.Names()) == 1 {
		t.Skip("it takes time, or this machine has one kernel")
	}
	for _, o := range []estimator.Options{{Estimator: estimator.Antithetic, Passes: 1 << 20}, {Estimator: estimator.Exact, Passes: 1}} {
		r, _ := preparetest.Request(t)
		r.Options = o
		p, err := prepare.New(r, zap.NewNop())
		if o.Estimator == estimator.Exact && err != nil {
			continue // too many players
		}
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if _, err := Rates(t.Context(), r, kernel.Candidates(), 1); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 20*ratesWithin {
			t.Errorf("%s with %d players took %v", o.Estimator, p.Model.Players(), took)
		}
	}
}

// Fastest prefers the earlier of two kernels that are nearly as fast.
func TestFastest(t *testing.T) {
	for _, c := range []struct {
		rates []float64
		want  int
	}{
		{[]float64{1}, 0}, {[]float64{1, 2}, 1}, {[]float64{2, 1}, 0}, {[]float64{98, 100}, 0}, {[]float64{96, 100, 99}, 1}, {[]float64{90, 98, 100}, 1},
	} {
		var rates []Rate
		for i, v := range c.rates {
			rates = append(rates, Rate{fmt.Sprint(i), v})
		}
		if got := Fastest(rates); got != fmt.Sprint(c.want) {
			t.Errorf("rates %v: %s, expected %d", c.rates, got, c.want)
		}
	}
}

// BenchmarkChoice compares the kernel that Rates chooses with the best one. The reference has
// the rates of all kernels on the same rows, in alternating runs of several seconds. The
// kernels take part in both orders, because Fastest prefers the first. The benchmark fails if
// the chosen kernel is more than 5% slower than the best one.
func BenchmarkChoice(b *testing.B) {
	defer kernel.Use(kernel.Name())
	forward := kernel.Candidates()
	backward := slices.Clone(forward)
	slices.Reverse(backward)
	if len(forward) == 1 {
		b.Skip("there is nothing to choose")
	}
	for _, kind := range []model.Kind{model.DeepFM, model.DCNMix} {
		for _, fields := range []int{11, 39} {
			a := model.Architecture{Kind: kind, FieldDims: slices.Repeat([]int{50}, fields), Dim: 16, Hidden: []int{400, 400, 400}}
			if kind == model.DCNMix {
				a.CrossLayers, a.Experts, a.Rank = 3, 4, 64
			}
			for _, name := range []string{estimator.Permutation, estimator.Multilinear, estimator.Debiased} {
				b.Run(fmt.Sprintf("%s/P=%d/%s", kind, a.Players(), name), func(b *testing.B) {
					o := shapley.Options{Options: estimator.Options{Estimator: name, Passes: 1}, Seed: 1}
					o.SetDefaults()
					kernel.Use(forward[0])
					m, values := modeltest.Calibrated(a, .4, false)
					var took time.Duration
					worst := 1.0
					for b.Loop() {
						for _, names := range [][]string{forward, backward} {
							kernel.Use(names[0])
							packed, err := m.Repack()
							if err != nil {
								b.Fatal(err)
							}
							game := shapley.Game{Model: packed, Baseline: values}
							c := &contest{options: o, rows: modeltest.Rows(a, mostRateRows, 1), threads: runtime.NumCPU()}
							begun := time.Now()
							rates, err := c.rates(b.Context(), game, names, math.Inf(1))
							if err != nil {
								b.Fatal(err)
							}
							took += time.Since(begun) / 2
							truth, err := c.reference(b.Context(), game, names, 4*time.Second)
							if err != nil {
								b.Fatal(err)
							}
							best, own := 0.0, 0.0
							for _, r := range truth {
								if best = max(best, r.RowsPerCore); r.Kernel == Fastest(rates) {
									own = r.RowsPerCore
								}
							}
							worst = min(worst, own/best)
							b.Logf("chose %s by the rates %v; reference %v", Fastest(rates), rates, truth)
						}
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(took.Seconds()/float64(b.N), "choosing-s")
					b.ReportMetric(worst, "of-best")
					if worst < .95 {
						b.Errorf("the chosen kernel has %.3f of the best rate", worst)
					}
				})
			}
		}
	}
}

// reference returns the median rates of the kernels in alternating runs that take the given
// time.
func (c *contest) reference(ctx context.Context, game shapley.Game, names []string, within time.Duration) (rates []Rate, err error) {
	var all []*runner
	for _, name := range names {
		kernel.Use(name)
		if game.Model, err = game.Model.Repack(); err != nil {
			return nil, err
		}
		one, err := c.enter(name, game)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	took := make([][]time.Duration, len(all))
	for begun := time.Now(); time.Since(begun) < within; {
		for i, one := range all {
			d, err := c.run(ctx, one)
			if err != nil {
				return nil, err
			}
			took[i] = append(took[i], d)
		}
	}
	for i, one := range all {
		slices.Sort(took[i])
		rates = append(rates, Rate{one.kernel, float64(c.n) / took[i][len(took[i])/2].Seconds()})
	}
	return rates, nil
}
