package cut

import (
	"slices"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// What is left of a baseline with several words has, for each row of the fields that stay, the word of that row without the columns that go.
// If no field of several words stays, it has one for each field.
func TestColumnsOfWords(t *testing.T) {
	t.Parallel()
	a := model.Architecture{Kind: model.FM, FieldDims: []int{5, 4, 6}, Dim: 3}
	b := modeltest.Words(&a, 4, 2)
	b.Values = slices.Delete(b.Values, a.BaselineSize()+(b.Words[0]-1)*3, a.BaselineSize()+(b.Words[0]+b.Words[1]-2)*3) // field 1 has one word
	b.Words[1] = 1
	clear(b.Numbers[5:9])
	if err := a.CheckBaseline(&b); err != nil || b.Words[0] == 1 || b.Words[2] == 1 {
		t.Fatal(b.Words, err)
	}
	for _, fields := range [][]int{{0, 2}, {1, 2}, {1}} {
		keep := &checkpoint.Slice{Fields: fields, Columns: []int{0, 2}}
		small := model.Architecture{Kind: model.FM, Dim: 2}
		for _, j := range fields {
			small.FieldDims = append(small.FieldDims, a.FieldDims[j])
		}
		got := columns(a.Book(b), keep)
		if err := small.CheckBaseline(&got); err != nil {
			t.Fatalf("%v: %v", fields, err)
		}
		if several := got.Words != nil; several != slices.Contains(fields, 2) {
			t.Errorf("%v has the words %v", fields, got.Words)
		}
		for at, j := range fields {
			for i := range a.FieldDims[j] {
				whole := a.Book(b).Of(j, i)
				if word := small.Book(got).Of(at, i); !slices.Equal(word, []float32{whole[0], whole[2]}) {
					t.Errorf("%v: row %d of field %d reads %v, expected columns 0 and 2 of %v", fields, i, j, word, whole)
				}
			}
		}
	}
}
