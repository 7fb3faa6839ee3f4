package shapley_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"shaver/internal/cputime"
	"shaver/internal/estimator"
	"shaver/internal/model"
	"shaver/internal/model/modeltest"
	"shaver/internal/shapley"
)

func BenchmarkCost(b *testing.B) {
	for _, fields := range []int{39, 11} {
		a := model.Architecture{Kind: model.DeepFM, FieldDims: slices.Repeat([]int{50}, fields), Dim: 16, Hidden: []int{400, 400, 400}}
		m, base := gentle(b, a)
		game := shapley.Game{Model: m, Baseline: base}
		rows := modeltest.Rows(a, 96*48, 1)
		for _, o := range costed {
			b.Run(fmt.Sprintf("P=%d/%s", a.Players(), o.Estimator), func(b *testing.B) {
				var times []float64
				for b.Loop() {
					start := cputime.Process()
					if _, err := shapley.Estimate(context.Background(), game, o, rows, 1, nil); err != nil {
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

var _ = estimator.Multilinear
var costed = []shapley.Options{
	{Options: estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 2, Endpoints: estimator.Plain}, Seed: 1},
	{Options: estimator.Options{Estimator: estimator.Debiased, Passes: 1, Draws: 2, Endpoints: estimator.Plain, Flips: 8}, Seed: 1},
}
