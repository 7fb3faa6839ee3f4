package model_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"shaver/internal/kernel"
)

// Whole walks of DeepFM on one thread, at the shapes of Criteo, Avazu and KDD:
// Reset and Walk in random orders, from a baseline unlike the entries. Every walk
// is timed on its own and takes turns with the processor's FMA peak; "rows/s" is
// the median's, which a busy machine's preemptions do not move.
func BenchmarkDeepFMWalk(b *testing.B) {
	for _, fields := range []int{39, 22, 11} {
		for _, active := range []float64{.2, .4, .6} {
			b.Run(fmt.Sprintf("P=%d/active=%g/%s", fields*16, active, kernel.Name()), func(b *testing.B) {
				m, rows := deepFM(b, fields, active)
				probe := m.NewProbe(make([]float32, m.Players()))
				r := rand.New(rand.NewPCG(1, 1))
				orders := make([][]int32, 16)
				for i := range orders {
					for _, p := range r.Perm(m.Players()) {
						orders[i] = append(orders[i], int32(p))
					}
				}
				logits := make([]float64, m.Players()+1)
				var walks, peaks []float64
				for i := 0; b.Loop(); i++ {
					start := time.Now()
					probe.Reset(rows.Row(i % rows.Len()))
					probe.Walk(orders[i%len(orders)], logits)
					walks = append(walks, time.Since(start).Seconds())
					start = time.Now()
					done := kernel.Peak(2e6)
					peaks = append(peaks, float64(done)/float64(time.Since(start)))
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
