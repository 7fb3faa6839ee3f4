package shapley_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"shaver/internal/base/cputime"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

// BenchmarkCost reports the processor time that multilinear and debiased take for a row, at
// the shapes of Criteo and of the flights. The ratio of the two is the price of values without
// bias.
func BenchmarkCost(b *testing.B) {
	for _, fields := range []int{39, 11} {
		a := model.Architecture{Kind: model.DeepFM, FieldDims: slices.Repeat([]int{50}, fields), Dim: 16, Hidden: []int{400, 400, 400}}
		m, base := gentle(b, a)
		game := shapley.Game{Model: m, Baseline: model.Baseline{Values: base}}
		rows := modeltest.Rows(a, 96*48, 1)
		for _, o := range []estimator.Options{
			{Estimator: estimator.Multilinear, Passes: 1, Draws: 2, Endpoints: estimator.Plain},
			{Estimator: estimator.Debiased, Passes: 1, Draws: 2, Endpoints: estimator.Plain, Flips: 8},
		} {
			b.Run(fmt.Sprintf("P=%d/%s", a.Players(), o.Estimator), func(b *testing.B) {
				var times []float64
				for b.Loop() {
					start := cputime.Process()
					if _, err := shapley.Estimate(context.Background(), game, shapley.Options{Options: o, Seed: 1}, rows, 1, nil); err != nil {
						b.Fatal(err)
					}
					end := cputime.Process()
					times = append(times, (end-start).Seconds()*1e6/float64(rows.Len()))
				}
				slices.Sort(times)
				b.ReportMetric(times[len(times)/2], "us/row")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
