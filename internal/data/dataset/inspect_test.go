package dataset

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// The most frequent features are in the same order as after a stable sort by count.
func TestTop(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		counts, order := make([]int64, 1+random.IntN(30)), []int{}
		for id := range counts {
			if counts[id] = random.Int64N(6); counts[id] > 0 {
				order = append(order, id)
			}
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(counts[b], counts[a]) })
		for _, top := range []int{0, 1, 3, 40} {
			facts := fieldFacts(Field{Name: "f", Size: len(counts)}, counts, nil, 100, top)
			if facts.Seen != len(order) || len(facts.Top) != min(top, len(order)) {
				t.Fatalf("%v: %d features occur, and %d of the %d most frequent are listed", counts, facts.Seen, len(facts.Top), top)
			}
			for i, v := range facts.Top {
				if v.ID != order[i] || v.Rows != counts[v.ID] || v.Share != float64(v.Rows)/100 {
					t.Fatalf("%v: the most frequent are %+v, expected %v", counts, facts.Top, order)
				}
			}
		}
	}
}

// The number of features that cover each share is the least possible.
func TestConcentration(t *testing.T) {
	for _, c := range []struct {
		counts []int64
		want   []int
	}{
		{[]int64{7}, []int{1, 1, 1}}, {[]int64{0, 5, 0, 5}, []int{1, 2, 2}}, {[]int64{1, 1, 1, 1}, []int{2, 4, 4}}, {[]int64{9, 1, 989, 1}, []int{1, 1, 2}},
	} {
		rows := int64(0)
		for _, n := range c.counts {
			rows += n
		}
		for k, held := range concentration(slices.Clone(c.counts), rows) {
			if held.Share != Held[k] || held.Features != c.want[k] {
				t.Errorf("%v: %d features cover %v of the rows, expected %d", c.counts, held.Features, held.Share, c.want[k])
			}
		}
	}
}
