//go:build !race

package shapley

import (
	"testing"

	"shaver/internal/model/modeltest"
)

// Rows of the multilinear estimator cost no allocation (under the race detector,
// sync.Pool forgets some of what it holds).
func TestMultilinearDoesNotAllocate(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		for _, o := range []Options{{Draws: 2, Endpoints: Plain}, {Draws: 4, Endpoints: Balanced}} {
			game := Game{Model: modeltest.Random(t, a, 2), Baseline: make([]float32, a.Players())}
			m := newMultilinear(game, o)
			rows, phi := modeltest.Rows(a, m.rows(), 2), make([]int64, a.Players())
			full := make([]float64, m.rows())
			if n := testing.AllocsPerRun(3, func() {
				if err := m.play(t.Context(), full, rows); err != nil {
					t.Fatal(err)
				}
				for r := range rows.Len() {
					if err := m.values(phi, r); err != nil {
						t.Fatal(err)
					}
				}
			}); n != 0 {
				t.Errorf("%s, %s: %v allocations", name, o.Endpoints, n)
			}
		}
	}
}
