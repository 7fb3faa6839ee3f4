package baseline

import (
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// Paper, codebook: the mean of the embeddings of a field's features, weighted by their
// occurrences.
func TestCodebookFormula(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{2, 2}, Dim: 2}
	table := []float32{1, 2, 3, 4, 5, 6, 7, 9}
	book, unseen, err := Of(Codebook, a, table, []int64{1, 3, 0, 0})
	if err != nil {
		t.Fatal(err)
	}
	// Field 0 has (1*1 + 3*3)/4 and (1*2 + 3*4)/4. No feature of field 1 occurs, so its
	// codebook is the unweighted mean.
	if want := []float32{2.5, 3.5, 6, 7.5}; !slices.Equal(book.Values, want) {
		t.Errorf("codebook %v, want %v", book, want)
	}
	if !slices.Equal(unseen, []int{1}) {
		t.Errorf("unseen fields %v, want [1]", unseen)
	}
	if _, _, err := Of("mean", a, table, nil); err == nil || !strings.Contains(err.Error(), "zero and codebook") {
		t.Errorf("error for an unknown baseline: %v", err)
	}
}

// Look-ups that read the same rows have one codebook, which is weighted by the occurrences
// of all their fields. Pad rows are left out of it.
func TestCodebookOfLists(t *testing.T) {
	a := modeltest.Lists()
	table := make([]float32, a.Parameters())
	for i := range table {
		table[i] = float32(i)
	}
	// item occurs 4, 0, 1, 0, 0 times and history 100, 2, 0, 1, 0. The entries of items are
	// (0, 1), (2, 3), (4, 5), (6, 7), (8, 9), of which the first is that of the pad id.
	counts := []int64{4, 0, 1, 0, 0, 1, 3, 0, 100, 2, 0, 1, 0, 0, 0, 0, 0}
	book, unseen, err := Of(Codebook, &a, table, counts)
	if err != nil {
		t.Fatal(err)
	}
	item := float32(2*2+4+6) / 4
	if want := []float32{item, item + 1, item, item + 1, 10.75, 14.5}; !slices.Equal(book.Values, want) {
		t.Errorf("codebook %v, expected %v", book, want)
	}
	if !slices.Equal(unseen, []int{3}) {
		t.Errorf("unseen fields %v, expected [3]", unseen)
	}
	clear(counts)
	if book, unseen, _ = Of(Codebook, &a, table, counts); !slices.Equal(book.Values[:4], []float32{5, 6, 5, 6}) || !slices.Equal(unseen, []int{0, 1, 3}) {
		t.Errorf("codebook %v, unseen fields %v, expected means over all rows but the pad row", book, unseen)
	}
	if zero, _, err := Of(Zero, &a, table, nil); err != nil || !slices.Equal(zero.Values, make([]float32, 6)) {
		t.Errorf("baseline %v, %v", zero, err)
	}
}

// Each look-up has a codebook, which is the mean of the rows that it reads.
func TestCodebookOfLookUps(t *testing.T) {
	a := modeltest.LookUps()
	table := make([]float32, a.Parameters())
	for i := range table {
		table[i] = float32(i)
	}
	book, unseen, err := Of(Codebook, &a, table, []int64{1, 3, 0, 0, 0, 2, 0, 0, 2})
	if err != nil {
		t.Fatal(err)
	}
	// Look-up 0 reads the rows (3, 4), (5, 6), (7, 8), (9, 10) of field 2, look-up 1 the
	// rows 15 to 18, 19 to 22, 23 to 26 of field 1, look-up 2 the rows (11, 12), (13, 14) of
	// field 0, and look-up 3 the rows 0, 1, 2 of field 1.
	if want := []float32{6, 7, 19, 20, 21, 22, 12.5, 13.5, 1}; !slices.Equal(book.Values, want) {
		t.Errorf("codebook %v, want %v", book, want)
	}
	if !slices.Equal(unseen, []int{1}) {
		t.Errorf("unseen fields %v, want [1]", unseen)
	}
}
