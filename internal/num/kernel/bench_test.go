package kernel

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

// benchEveryLevel runs a benchmark at each level of this machine. It alternates between
// runs of the benchmark and runs of FMAs in registers, and compares the medians of their
// processor times. Other load on the machine affects both, so the ratio "of-peak" is
// stable.
func benchEveryLevel(b *testing.B, bench func(b *testing.B) (flop int, run func())) {
	chosen := current
	defer func() { current = chosen }()
	for _, l := range levels() {
		b.Run(l.name, func(b *testing.B) {
			current = l
			flop, run := bench(b)
			times := max(1, 1e7/flop)
			var kernels, peaks []float64 // GFLOP/s
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for b.Loop() {
				start := cpuTime()
				for range times {
					run()
				}
				kernels = append(kernels, float64(times*flop)/float64(cpuTime()-start))
				start = cpuTime()
				done := Peak(1e7)
				peaks = append(peaks, float64(done)/float64(cpuTime()-start))
			}
			slices.Sort(kernels)
			slices.Sort(peaks)
			rate, peak := kernels[len(kernels)/2], peaks[len(peaks)/2]
			b.ReportMetric(float64(flop)/rate, "ns/call")
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(rate, "GFLOP/s")
			if peak > 0 {
				b.ReportMetric(rate/peak, "of-peak")
				b.ReportMetric(peak, "peak-GFLOP/s")
			}
		})
	}
}

// BenchmarkLayer400 measures Layer on one tile, with lists of 100, 43 and 10% of 400
// inputs.
func BenchmarkLayer400(b *testing.B) {
	for _, active := range []float64{1, .43, .1} {
		b.Run(fmt.Sprintf("active=%g", active), func(b *testing.B) {
			benchEveryLevel(b, func(b *testing.B) (int, func()) {
				r := rand.New(rand.NewPCG(1, 2))
				rows := TileRows()
				m := NewMatrix(normal(r, 400*400), normal(r, 400), 400, 400)
				x, _ := guarded(r, rows, 400, 0)
				y, mask := NewTile(rows, 400), NewMask(400)
				var list []int32
				for k := range 400 {
					if r.Float64() < active {
						list = append(list, int32(k))
					}
				}
				return 2 * rows * len(list) * 400, func() { m.Layer(y, x, rows, list, true, mask) }
			})
		})
	}
}

// BenchmarkLayerBlock measures Layer on 48 rows with the matrices of cross layers, which
// are larger than a core's cache.
func BenchmarkLayerBlock(b *testing.B) {
	for _, shape := range [][2]int{{624, 624}, {257, 624}, {624, 260}} {
		b.Run(fmt.Sprintf("%dx%d", shape[0], shape[1]), func(b *testing.B) {
			benchEveryLevel(b, func(b *testing.B) (int, func()) {
				r := rand.New(rand.NewPCG(1, 2))
				const rows = 48
				in, out := shape[0], shape[1]
				m := NewMatrix(normal(r, in*out), nil, in, out)
				x, _ := guarded(r, rows, in, 0)
				y := NewTile(rows, out)
				return 2 * rows * in * out, func() { m.Layer(y, x, rows, nil, false, nil) }
			})
		})
	}
}

func BenchmarkSteps400(b *testing.B) {
	benchEveryLevel(b, func(b *testing.B) (int, func()) {
		r := rand.New(rand.NewPCG(1, 2))
		n := TileRows()
		m := NewRowMatrix(normal(r, 624*400), 624, 400)
		y, mask, pre := NewTile(n, 400), NewMask(400), make([]float32, 400)
		row, change := make([]int32, n), make([]float32, n)
		order, next := r.Perm(624), 0
		return 2 * n * 400, func() {
			for i := range row {
				next = (next + 1) % len(order)
				row[i] = int32(order[next])
			}
			m.Steps(y, pre, row, change, true, mask)
		}
	})
}

func BenchmarkDot400(b *testing.B) {
	benchEveryLevel(b, func(b *testing.B) (int, func()) {
		r := rand.New(rand.NewPCG(1, 2))
		x, y := normal(r, 400), normal(r, 400)
		return 800, func() { sink = Dot(x, y) }
	})
}

func BenchmarkList400(b *testing.B) {
	benchEveryLevel(b, func(b *testing.B) (int, func()) {
		r := rand.New(rand.NewPCG(1, 2))
		mask, list := NewMask(400), NewList(400)
		for i := range 400 {
			if r.Float64() < .43 {
				mask[i/64] |= 1 << (i % 64)
			}
		}
		return 400, func() { list = mask.List(list[:0]) }
	})
}

var sink float64
