package train

import (
	"fmt"
	"testing"

	"shaver/internal/kernel"
	"shaver/internal/model"
	"shaver/internal/random"
)

// BenchmarkStep trains a DeepFM 400-400-400 with batches of 2048 rows, at the shapes of
// flights and of Criteo. GFLOP/s counts the products only; peak is that of one core.
func BenchmarkStep(b *testing.B) {
	for _, shape := range []struct{ fields, features int }{{11, 700}, {39, 3700}} {
		b.Run(fmt.Sprintf("%dfields", shape.fields), func(b *testing.B) {
			a := model.Architecture{Kind: model.DeepFM, Dim: 16, Hidden: []int{400, 400, 400}}
			for range shape.fields {
				a.FieldDims = append(a.FieldDims, shape.features)
			}
			const batch = 2048
			p := Initial(&a, true, 1)
			t, err := New(a, p, Options{Optimizer: Adam, LearningRate: 1e-3, WeightDecay: 1e-6, Dropout: .5, Batch: batch})
			if err != nil {
				b.Fatal(err)
			}
			rows := &model.Rows{Width: shape.fields}
			stream := random.At(1, random.Initial, 0, 0)
			for i := range batch {
				rows.Number = append(rows.Number, int64(i))
				rows.Label = append(rows.Label, float32(stream.Below(2)))
				for j := range shape.fields {
					rows.Features = append(rows.Features, int32(j*shape.features+int(stream.Below(uint64(shape.features)))))
				}
			}
			width := a.Players()
			flop := 6 * float64(batch) * float64(width*400+2*400*400+400)
			b.ResetTimer()
			for i := range b.N {
				t.Step(rows, i)
			}
			seconds := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(batch/seconds, "rows/s")
			b.ReportMetric(flop/seconds/1e9, "GFLOP/s")
			const n = 1e9
			b.StopTimer()
			start := b.Elapsed()
			b.StartTimer()
			done := kernel.Peak(n)
			b.StopTimer()
			b.ReportMetric(float64(done)/(b.Elapsed()-start).Seconds()/1e9, "peakGFLOP/s")
		})
	}
}
