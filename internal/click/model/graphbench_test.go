package model_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/kernel"
)

// Walks of heads as graphs, with the portion of the core's peak that their products of
// matrices reach.
func BenchmarkGraphWalk(b *testing.B) {
	a := model.Architecture{Kind: model.DCNv2, FieldDims: slices.Repeat([]int{50}, 39), Dim: 16, Hidden: []int{400, 400, 400}, CrossLayers: 2, Structure: model.Parallel}
	fm := model.Architecture{Kind: model.DeepFM, FieldDims: a.FieldDims, Dim: 16, Hidden: a.Hidden}
	for _, test := range []struct {
		name string
		m    *model.Model
	}{
		{"DeepFM", modeltest.Graph(fm, modeltest.Weights(fm, 1))}, {"DCNv2", modeltest.Graph(a, modeltest.Weights(a, 1))}, {"PNN", modeltest.PNN(39, 1)},
		{"DIN", modeltest.DIN(50, 6, 1)}, {"AutoInt", modeltest.AutoInt(39, 1)}, {"FiBiNET", modeltest.FiBiNET(39, 1)},
	} {
		b.Run(test.name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			players := test.m.Players()
			probe, rows := test.m.NewProbe(test.m.Book(model.Baseline{Values: make([]float32, players)})), modeltest.Rows(test.m.Architecture, 8, 1)
			order, logits := make([]int32, players), make([]float64, players+1)
			for k, p := range rand.New(rand.NewPCG(1, 1)).Perm(players) {
				order[k] = int32(p)
			}
			var took, peaks []float64
			for i := 0; b.Loop(); i++ {
				start := cpuTime()
				probe.Reset(rows, i%8)
				probe.Walk(order, logits)
				took = append(took, (cpuTime() - start).Seconds())
				start = cpuTime()
				done := kernel.Peak(2e7)
				peaks = append(peaks, float64(done)/(cpuTime()-start).Seconds())
			}
			slices.Sort(took)
			slices.Sort(peaks)
			rate := 1 / took[len(took)/2]
			b.ReportMetric(rate, "rows/s")
			b.ReportMetric(100*rate*float64(players*2*test.m.WalkProducts())/peaks[len(peaks)/2], "%peak")
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(test.m.Products())/1e6, "MMAC")
			b.ReportMetric(float64(test.m.WalkProducts())/1e6, "MMAC/step")
		})
	}
}
