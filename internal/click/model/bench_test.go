package model_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
)

// BenchmarkDeepFMWalk measures Reset and Walk of DeepFM on one thread, at the shapes of
// Criteo, Avazu and KDD. Orders are random and the baseline differs from the entries.
func BenchmarkDeepFMWalk(b *testing.B) {
	for _, fields := range []int{39, 22, 11} {
		for _, active := range []float64{.2, .4, .6} {
			b.Run(fmt.Sprintf("P=%d/active=%g/%s", fields*16, active, kernel.Name()), func(b *testing.B) {
				m, rows, baseline := deepFM(fields, active)
				benchWalk(b, m, rows, baseline)
			})
		}
	}
}

// benchWalk measures walks of rows in random orders. It alternates between walks and the
// processor's FMA peak, and reports rates from the median processor times.
func benchWalk(b *testing.B, m *model.Model, rows *model.Rows, baseline []float32) {
	b.Helper()
	probe := m.NewProbe(m.Book(model.Baseline{Values: baseline}))
	r := rand.New(rand.NewPCG(1, 1))
	orders := make([][]int32, 16)
	for i := range orders {
		for _, p := range r.Perm(m.Players()) {
			orders[i] = append(orders[i], int32(p))
		}
	}
	logits := make([]float64, m.Players()+1)
	var walks, peaks []float64
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := 0; b.Loop(); i++ {
		start := cpuTime()
		probe.Reset(rows, i%rows.Len())
		probe.Walk(orders[i%len(orders)], logits)
		walks = append(walks, (cpuTime() - start).Seconds())
		start = cpuTime()
		done := kernel.Peak(2e7)
		peaks = append(peaks, float64(done)/float64(cpuTime()-start))
	}
	slices.Sort(walks)
	slices.Sort(peaks)
	b.ReportMetric(1/walks[len(walks)/2], "rows/s")
	b.ReportMetric(peaks[len(peaks)/2], "peak-GFLOP/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkCrossWalk measures cross layers at the same shapes with 40% active units. The
// baseline is either unlike the entries ("codebook"), or 0, where absent players need no
// multiplication.
func BenchmarkCrossWalk(b *testing.B) {
	for _, kind := range []string{"dcn-mix", "dcnv2-stacked", "dcnv2-parallel"} {
		for _, fields := range []int{39, 22, 11} {
			for _, zero := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/P=%d/zero=%t/%s", kind, fields*16, zero, kernel.Name()), func(b *testing.B) {
					m, rows, baseline := crossModel(kind, fields, zero)
					benchWalk(b, m, rows, baseline)
				})
			}
		}
	}
}
