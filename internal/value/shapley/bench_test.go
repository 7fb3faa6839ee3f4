package shapley_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"shaver/internal/base/cputime"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/kernel"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

// BenchmarkEstimate runs the whole estimator at the shape of KDD. There the network is
// small, so the cost of orders, losses and sums is most visible.
func BenchmarkEstimate(b *testing.B) {
	a := model.Architecture{Kind: model.DeepFM, FieldDims: slices.Repeat([]int{50}, 11), Dim: 16, Hidden: []int{400, 400, 400}}
	m := modeltest.Random(b, a, 1)
	game := shapley.Game{Model: m, Baseline: baseline(m)}
	rows := modeltest.Rows(a, 240, 1)
	options := shapley.Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}, Seed: 1}
	for _, threads := range slices.Compact([]int{1, runtime.NumCPU()}) {
		b.Run(map[bool]string{true: "one", false: "all"}[threads == 1], func(b *testing.B) {
			for b.Loop() {
				if _, err := shapley.Estimate(context.Background(), game, options, rows, threads, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*rows.Len())/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkMultilinear compares the rows per second of walks and of the multilinear
// estimator on one thread, at the shape of Criteo with 40% of the units active. It
// alternates with measurements of the FMA peak. A DeepFM row takes 1.14 MFLOP forwards
// and as many backwards.
func BenchmarkMultilinear(b *testing.B) {
	a := model.Architecture{Kind: model.DeepFM, FieldDims: slices.Repeat([]int{50}, 39), Dim: 16, Hidden: []int{400, 400, 400}}
	mix := a
	mix.Kind, mix.CrossLayers, mix.Experts, mix.Rank = model.DCNMix, 3, 4, 64
	for _, a := range []model.Architecture{a, mix} {
		m, base := gentle(b, a)
		game := shapley.Game{Model: m, Baseline: model.Baseline{Values: base}}
		for _, o := range []shapley.Options{
			{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}, Seed: 1},
			{Options: estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 2, Endpoints: estimator.Plain}, Seed: 1},
			{Options: estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 8, Endpoints: estimator.Balanced}, Seed: 1},
		} {
			n := 96 * 48
			if o.Estimator == estimator.Permutation {
				n = 96
			}
			rows := modeltest.Rows(a, n, 1)
			b.Run(fmt.Sprintf("%s/P=%d/%s%d/%s", a.Kind, a.Players(), o.Estimator, o.Draws, kernel.Name()), func(b *testing.B) {
				var rates, peaks []float64
				for b.Loop() {
					start := time.Now()
					if _, err := shapley.Estimate(context.Background(), game, o, rows, 1, nil); err != nil {
						b.Fatal(err)
					}
					rates = append(rates, float64(n)/time.Since(start).Seconds())
					start = time.Now()
					done := kernel.Peak(2e8)
					peaks = append(peaks, float64(done)/float64(time.Since(start)))
				}
				slices.Sort(rates)
				b.ReportMetric(rates[len(rates)/2], "rows/s")
				slices.Sort(peaks)
				b.ReportMetric(peaks[len(peaks)/2], "peak-GFLOP/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// gentle returns a model and its baseline. As in trained models, a single entry moves the
// logit by a few hundredths. 40% of the units are active.
func gentle(b *testing.B, a model.Architecture) (*model.Model, []float32) {
	b.Helper()
	m, base := modeltest.Calibrated(a, .4, false)
	w := m.Weights
	if a.Kind == model.DeepFM {
		const less = 1.0 / 8
		for _, entries := range [][]float32{w.Embedding, base.Values} {
			for i := range entries {
				entries[i] *= less
			}
		}
		for i := range w.Hidden[0].Weight {
			w.Hidden[0].Weight[i] /= less
		}
	}
	for i := range w.Output.Weight {
		w.Output.Weight[i] /= 16
	}
	m, err := model.New(a, w)
	if err != nil {
		b.Fatal(err)
	}
	return m, base.Values
}

// BenchmarkGraphMultilinear runs the multilinear estimator with two draws on heads that are
// graphs, on one thread. It reports the portion of the core's peak that their products of
// matrices reach: of one state forwards, and of two forwards and backwards.
func BenchmarkGraphMultilinear(b *testing.B) {
	for _, test := range []struct {
		name string
		m    *model.Model
	}{{"AutoInt", modeltest.AutoInt(39, 1)}, {"FiBiNET", modeltest.FiBiNET(39, 1)}} {
		b.Run(test.name+"/"+kernel.Name(), func(b *testing.B) {
			game := shapley.Game{Model: test.m, Baseline: baseline(test.m)}
			rows := modeltest.Rows(test.m.Architecture, 48*4, 1)
			options := shapley.Options{Options: estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 2, Endpoints: estimator.Plain}, Seed: 1}
			var rates, peaks []float64
			for b.Loop() {
				start := cputime.Process()
				if _, err := shapley.Estimate(context.Background(), game, options, rows, 1, nil); err != nil {
					b.Fatal(err)
				}
				rates = append(rates, float64(rows.Len())/(cputime.Process()-start).Seconds())
				start = cputime.Process()
				done := kernel.Peak(2e7)
				peaks = append(peaks, float64(done)/(cputime.Process()-start).Seconds())
			}
			slices.Sort(rates)
			slices.Sort(peaks)
			rate := rates[len(rates)/2]
			b.ReportMetric(rate, "rows/s")
			b.ReportMetric(100*rate*2*float64(test.m.Products()+2*test.m.SlopeProducts())/peaks[len(peaks)/2], "%peak")
			b.ReportMetric(0, "ns/op")
		})
	}
}
