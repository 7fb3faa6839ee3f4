package train

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
	"shaver/internal/num/random"
)

// BenchmarkStep trains a DeepFM 400-400-400 with batches of 2048 rows, at the shapes of
// flights and of Criteo. GFLOP/s counts the
// operations of the products only.
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
		})
	}
}

// BenchmarkProducts computes the three products of a layer of 400 units for 2048 rows, with
// the packing of the weights and of the batch. peak is that of all cores in registers.
func BenchmarkProducts(b *testing.B) {
	const rows, width = 2048, 400
	l := newLinear("layer", model.Linear{In: width, Out: width, Weight: make([]float32, width*width), Bias: make([]float32, width)}, rows)
	x, y, dx := newTile(rows, width), newTile(rows, width), newTile(rows, width)
	for b.Loop() {
		l.pack()
		l.forward(y, x, rows)
		l.backward(dx, y, x, rows)
	}
	flop := 6 * float64(rows*width*width)
	cores := runtime.GOMAXPROCS(0)
	reached := flop * float64(b.N) / b.Elapsed().Seconds() / 1e9
	start := time.Now()
	done := make([]int, cores)
	each(cores, func(i int) { done[i] = kernel.Peak(1e10) })
	peak := float64(done[0]*cores) / time.Since(start).Seconds() / 1e9
	b.ReportMetric(reached, "GFLOP/s")
	b.ReportMetric(peak, "peakGFLOP/s")
	if peak > 0 {
		b.ReportMetric(100*reached/peak, "%")
	}
}
