package compact

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
)

// lists returns a layout with two lists, one of which shares the rows of another field, and
// tables of it with dropped entries.
func lists(dim int) *sample {
	s := &sample{layout: &model.Architecture{
		FieldDims: []int{5, 40, 40, 7},
		Tables:    []model.Table{{Name: "item", Rows: 40, Dim: dim}, {Name: "user", Rows: 5, Dim: 3}, {Name: "tag", Rows: 7, Dim: 1}},
		LookUps:   []model.LookUp{{Field: 1, Table: 0}, {Field: 3, Table: 2}, {Field: 2, Table: 0}, {Field: 0, Table: 1}},
		Lists:     []model.List{{Field: 2, Length: 6, Pad: 0}, {Field: 3, Length: 2, Pad: -1}},
	}}
	r := rand.New(rand.NewPCG(1, 2))
	for range s.layout.Parameters() {
		s.table, s.dropped = append(s.table, r.Float32()), append(s.dropped, r.IntN(2) == 0)
	}
	clear(s.dropped[:dim]) // the pad row
	s.baseline = s.layout.Zero()
	for i := range s.baseline.Values {
		s.baseline.Values[i] = r.Float32()
	}
	copy(s.baseline.Values[dim+1:2*dim+1], s.baseline.Values[:dim])
	return s
}

// Embed reads a row for each position of a list, also from rows that two fields share.
func TestLists(t *testing.T) {
	for _, dim := range []int{2, 20} { // narrow and wide tables
		s := lists(dim)
		if err := s.layout.ValidateLayout(); err != nil {
			t.Fatal(err)
		}
		_, table := s.encode(t, Float32)
		var whole []float32
		table.Rows(func(x []float32, _ []bool) { whole = append(whole, x...) })
		user, tag := 40*dim, 40*dim+15 // first entries of the tables
		var features []int32
		var want []float32
		r := rand.New(rand.NewPCG(3, 4))
		for range 50 {
			ids := []int{r.IntN(5), r.IntN(40)}
			for range 6 {
				ids = append(ids, r.IntN(40))
			}
			ids = append(ids, r.IntN(7), r.IntN(7))
			for i, first := range []int{0, 5, 45, 45, 45, 45, 45, 45, 85, 85} {
				features = append(features, int32(first+ids[i]))
			}
			want = append(want, whole[ids[1]*dim:(ids[1]+1)*dim]...)
			want = append(want, whole[tag+ids[8]], whole[tag+ids[9]])
			for _, id := range ids[2:8] {
				want = append(want, whole[id*dim:(id+1)*dim]...)
			}
			want = append(want, whole[user+ids[0]*3:user+ids[0]*3+3]...)
		}
		x := make([]float32, len(want))
		if table.Embed(x, features); !slices.Equal(x, want) {
			t.Errorf("%d columns: Embed gives %v, expected %v", dim, x, want)
		}
	}
}

// A file whose look-ups have different values for the dropped entries of the same rows, or
// more entries in a row than a model can have, is refused.
func TestHostileLists(t *testing.T) {
	s := lists(2)
	parts, _ := s.encode(t, Float32)
	parts.Baseline = parts.Baseline.Scaled(1)
	parts.Baseline.Values[3]++
	if _, err := New(s.layout, Float32, parts); err == nil || !strings.Contains(err.Error(), "look-up 2 than for look-up 0") {
		t.Errorf("error %v, expected one about look-ups 0 and 2", err)
	}
	s = lists(2000)
	parts, _ = s.encode(t, Float32)
	s.layout.Lists[0].Length = model.MaxLength
	if _, err := New(s.layout, Float32, parts); err == nil || !strings.Contains(err.Error(), "expected at most 16777216") {
		t.Errorf("error %v, expected a limit", err)
	}
}
