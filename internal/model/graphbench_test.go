package model_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"shaver/internal/kernel"
	"shaver/internal/model"
	"shaver/internal/model/modeltest"
)

// Walks of heads as graphs, with the portion of the core's peak that their products of
// matrices reach.
func BenchmarkGraphWalk(b *testing.B) {
	a := model.Architecture{Kind: model.DCNv2, FieldDims: slices.Repeat([]int{50}, 39), Dim: 16, Hidden: []int{400, 400, 400}, CrossLayers: 2, Structure: model.Parallel}
	for _, test := range []struct {
		name string
		m    *model.Model
	}{{"DCNv2", modeltest.Graph(b, a, modeltest.Weights(a, 1))}, {"AutoInt", modeltest.AutoInt(b, 39, 1)}} {
		b.Run(test.name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			players := test.m.Players()
			probe, rows := test.m.NewProbe(make([]float32, players)), modeltest.Rows(test.m.Architecture, 8, 1)
			order, logits := make([]int32, players), make([]float64, players+1)
			for k, p := range rand.New(rand.NewPCG(1, 1)).Perm(players) {
				order[k] = int32(p)
			}
			start, walks, peak := cpuTime(), 0, 0.0
			for i := 0; b.Loop(); i++ {
				probe.Reset(rows, i%8)
				probe.Walk(order, logits)
				walks++
			}
			rate := float64(walks*players*2*test.m.Products()) / (cpuTime() - start).Seconds()
			start = cpuTime()
			if done := kernel.Peak(2e9); done > 0 {
				peak = float64(done) / (cpuTime() - start).Seconds()
				b.ReportMetric(100*rate/peak, "%peak")
			}
			b.ReportMetric(float64(test.m.Products())/1e6, "MMAC")
		})
	}
}
