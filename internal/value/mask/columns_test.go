package mask

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// ColumnOrder sorts columns by the absolute values of their sums, of any layout, and
// WholeColumns never cuts one.
func TestColumnOrder(t *testing.T) {
	layouts := []model.Architecture{{FieldDims: []int{3, 1, 2}, Dim: 2}, modeltest.LookUps(), modeltest.Lists()}
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SampledFrom(layouts).Draw(t, "layout")
		n := a.Parameters()
		scores := rapid.SliceOfN(rapid.SampledFrom([]float64{-2, -1, 0, 1, 3}), n, n).Draw(t, "scores")
		column, sums := make([]int, n), map[int]float64{} // by the first entry of a column
		for _, s := range a.Spans() {
			for i := range s.Rows * s.Dim {
				column[s.Entry+i] = s.Entry + i%s.Dim
				sums[s.Entry+i%s.Dim] += scores[s.Entry+i]
			}
		}
		want := make([]int32, n)
		for i := range want {
			want[i] = int32(i)
		}
		slices.SortFunc(want, func(i, j int32) int {
			x, y := column[i], column[j]
			return cmp.Or(cmp.Compare(math.Abs(sums[x]), math.Abs(sums[y])), cmp.Compare(x, y), cmp.Compare(i, j))
		})
		order, err := ColumnOrder(&a, scores)
		if err != nil || !slices.Equal(order, want) {
			t.Fatalf("order %v, expected %v; error %v", order, want, err)
		}
		for drop := range n + 1 {
			got, expected := WholeColumns(&a, order, drop), drop
			for expected > 0 && expected < n && column[order[expected]] == column[order[expected-1]] {
				expected++
			}
			if got != expected {
				t.Fatalf("%d whole columns for %d entries, expected %d", got, drop, expected)
			}
		}
	})
}
