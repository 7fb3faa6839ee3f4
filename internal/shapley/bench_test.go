package shapley_test

import (
	"context"
	"runtime"
	"slices"
	"testing"

	"shaver/internal/model"
	"shaver/internal/model/modeltest"
	"shaver/internal/shapley"
)

// The whole estimator at the shape of KDD, where what is not the network's shows
// most: orders, losses, sums.
func BenchmarkEstimate(b *testing.B) {
	a := model.Architecture{Kind: model.DeepFM, FieldDims: slices.Repeat([]int{50}, 11), Dim: 16, Hidden: []int{400, 400, 400}}
	m := modeltest.Random(b, a, 1)
	game := shapley.Game{Model: m, Baseline: baseline(m)}
	rows := modeltest.Rows(a, 240, 1)
	options := shapley.Options{Estimator: shapley.Permutation, Passes: 1, Seed: 1}
	for _, threads := range slices.Compact([]int{1, runtime.NumCPU()}) {
		b.Run(map[bool]string{true: "one", false: "all"}[threads == 1], func(b *testing.B) {
			for b.Loop() {
				if _, err := shapley.Estimate(context.Background(), game, options, options.Spread(false), rows, threads, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*rows.Len())/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
