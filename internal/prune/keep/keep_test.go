package keep

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/value/mask"
)

// The entries that Rules select are kept for every allowed number of dropped entries. The
// other entries are dropped in their original order.
func TestKeep(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{3, 2, 4}, Dim: 2}
	names := []string{"x", "y", "z"}
	rapid.Check(t, func(t *rapid.T) {
		scores := rapid.SliceOfN(rapid.Float64Range(0, 1), 18, 18).Draw(t, "scores")
		order, err := mask.Order(mask.Abs, scores, make([]float32, 18))
		if err != nil {
			t.Fatal(err)
		}
		k := Rules{Minimum: rapid.Float64Range(0, 1).Draw(t, "minimum")}
		if rapid.Bool().Draw(t, "protect") {
			k.Fields = []string{"y"}
		}
		got, _, most, err := k.Apply(a, names, compact.Float32, order)
		if err != nil {
			t.Fatal(err)
		}
		least := []int{int(math.Ceil(6 * k.Minimum)), int(math.Ceil(4 * k.Minimum)), int(math.Ceil(8 * k.Minimum))}
		if k.Fields != nil {
			least[1] = 4
		}
		if want := 18 - least[0] - least[1] - least[2]; most != want {
			t.Fatalf("%d entries may be dropped, expected %d", most, want)
		}
		drop := rapid.IntRange(0, most).Draw(t, "drop")
		dropped := mask.Of(got, drop)
		for j, part := range [][]bool{dropped[:6], dropped[6:10], dropped[10:]} {
			kept := 0
			for _, gone := range part {
				if !gone {
					kept++
				}
			}
			if kept < least[j] {
				t.Fatalf("field %d keeps %d entries, expected at least %d", j, kept, least[j])
			}
		}
		for k := 1; k < most; k++ {
			if slices.Index(order, got[k-1]) > slices.Index(order, got[k]) {
				t.Fatal("the order of the entries that may be dropped has changed")
			}
		}
		sorted := slices.Clone(got)
		if slices.Sort(sorted); sorted[0] != 0 || sorted[17] != 17 || len(slices.Compact(sorted)) != 18 {
			t.Fatalf("%v is not an order of all entries", got)
		}
	})
	if _, _, _, err := (Rules{Fields: []string{"w"}}).Apply(a, names, compact.Float32, nil); err == nil || !strings.Contains(err.Error(), "x, y, z") {
		t.Error(err)
	}
	if _, _, _, err := (Rules{Minimum: 1.5}).Apply(a, names, compact.Float32, nil); err == nil {
		t.Error("Apply accepts the minimum 1.5")
	}
}

// Rules count the entries of a field in all its tables.
func TestKeepOfLookUps(t *testing.T) {
	a := modeltest.LookUps()
	order := make([]int32, a.Parameters())
	for i := range order {
		order[i] = int32(i)
	}
	constrained, _, most, err := Rules{Fields: []string{"y"}, Minimum: .5}.Apply(&a, []string{"x", "y", "z"}, compact.Float32, order)
	if err != nil {
		t.Fatal(err)
	}
	kept := make([]int, 3)
	for _, i := range constrained[most:] {
		kept[spanOf(&a, i).Field]++
	}
	if want := []int{2, 15, 4}; !slices.Equal(kept, want) { // of 4, 15 and 8
		t.Errorf("the fields keep %v entries, expected %v", kept, want)
	}
}

// Nothing drops the entries of a pad row. They count as kept in the minimum of a field.
func TestPads(t *testing.T) {
	a := modeltest.Lists()
	entries := a.Parameters()
	scores := make([]float64, entries) // pads have the value 0, and all other entries are better
	for i := range scores {
		scores[i] = float64(max(0, i-1))
	}
	order, err := mask.Order(mask.Abs, scores, make([]float32, entries))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		keep Rules
		most int
		last []int32
	}{
		"pads":    {Rules{}, entries - 2, []int32{0, 1}},
		"field":   {Rules{Fields: []string{"user"}}, entries - 5, []int32{10, 11, 12, 0, 1}},
		"minimum": {Rules{Minimum: .3}, 17 - (3 + 1 + 2), []int32{9, 12, 15, 16, 0, 1}}, // item keeps 3 of 10, with the pads
		"items":   {Rules{Fields: []string{"item"}}, 7, []int32{2, 3, 4, 5, 6, 7, 8, 9, 0, 1}},
	} {
		got, _, most, err := c.keep.Apply(&a, []string{"item", "user", "history", "tags"}, compact.Float32, order)
		if err != nil || most != c.most || !slices.Equal(got[most:], c.last) {
			t.Errorf("%s: %d may be dropped, then %v, expected %d, then %v; error %v", name, most, got[most:], c.most, c.last, err)
		}
		if all := slices.Sorted(slices.Values(got)); len(all) != entries || all[0] != 0 || int(all[entries-1]) != entries-1 {
			t.Errorf("%s: the order is %v", name, got)
		}
	}
}

// spanOf returns the span of an entry.
func spanOf(a *model.Architecture, i int32) model.Span {
	spans := a.Spans()
	return spans[slices.IndexFunc(spans, func(s model.Span) bool { from, to := s.Entries(); return from <= int(i) && int(i) < to })]
}
