package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Sparse computes the same bits as Layer, whether few, many or all inputs are 0, and also for every
// second row of a tile. It writes no more than Layer, and allocates nothing.
func TestSparse(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		for _, in := range lengths {
			for _, out := range []int{1, 16, 17, 65, 130, 400} {
				m := NewMatrix(normal(r, in*out), normal(r, out), in, out)
				lists := NewTileLists(48, 130)
				for _, zeros := range []float64{0, .3, .7, .95, 1} {
					rows, relu := 1+r.IntN(24), r.IntN(2) == 0
					x, whole := guarded(r, 48, in, zeros)
					x.Stride *= 1 + r.IntN(2)
					want, _ := guarded(r, 48, out, 0)
					got, around := guarded(r, 48, out, 0)
					m.Layer(want, x, rows, nil, relu, nil)
					if n := testing.AllocsPerRun(1, func() { m.Sparse(got, x, rows, relu, lists) }); n > 0 {
						t.Errorf("%v allocations", n)
					}
					for i := range rows {
						if !slices.Equal(got.Row(i)[:Pad(out)], want.Row(i)[:Pad(out)]) {
							t.Fatalf("in %d, out %d, row %d of %d, zeros %v: got %v, expected %v", in, out, i, rows, zeros, got.Row(i), want.Row(i))
						}
					}
					guardsHold(t, whole)
					guardsHold(t, around)
				}
			}
		}
	})
}

// An input that is NaN in one row is NaN in the outputs of this row alone.
func TestSparseNaN(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		const rows, in, out = 24, 100, 40
		r := rand.New(rand.NewPCG(1, 2))
		m := NewMatrix(normal(r, in*out), nil, in, out)
		x, y := NewTile(rows, in), NewTile(rows, out)
		x.Row(10)[7] = float32(math.NaN())
		m.Sparse(y, x, rows, false, NewTileLists(rows, in))
		for i := range rows {
			for _, v := range y.Row(i)[:out] {
				if (v != v) != (i == 10) {
					t.Fatalf("row %d has %v", i, v)
				}
			}
		}
	})
}

// BenchmarkSparse400 compares Sparse with Layer for 48 rows and 400 units, of which a portion is
// active in each row, independently of the other rows.
func BenchmarkSparse400(b *testing.B) {
	for _, active := range []float64{.5, .4, .25, .1} {
		for _, name := range []string{"Layer", "Sparse"} {
			b.Run(fmt.Sprintf("active=%g/%s", active, name), func(b *testing.B) {
				benchEveryLevel(b, func(b *testing.B) (int, func()) {
					const rows = 48
					r := rand.New(rand.NewPCG(1, 2))
					m := NewMatrix(normal(r, 400*400), nil, 400, 400)
					x, _ := guarded(r, rows, 400, 1-active)
					y, lists := NewTile(rows, 400), NewTileLists(rows, 400)
					work := func() { m.Layer(y, x, rows, nil, true, nil) }
					if name == "Sparse" {
						work = func() { m.Sparse(y, x, rows, true, lists) }
					}
					return 2 * rows * 400 * 400, work
				})
			})
		}
	}
}
