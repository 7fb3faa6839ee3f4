package model_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"shaver/internal/kernel"
)

// Whole walks of DeepFM on one thread, at the shapes of Criteo, Avazu and KDD:
// Reset and Walk in random orders, from a baseline unlike the entries. Walks take
// turns with the processor's FMA peak; rates are of the median processor time.
func BenchmarkDeepFMWalk(b *testing.B) {
	for _, fields := range []int{39, 22, 11} {
		for _, active := range []float64{.2, .4, .6} {
			b.Run(fmt.Sprintf("P=%d/active=%g/%s", fields*16, active, kernel.Name()), func(b *testing.B) {
				m, rows, baseline := deepFM(fields, active)
				probe := m.NewProbe(baseline)
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
					probe.Reset(rows.Row(i % rows.Len()))
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
			})
		}
	}
}
