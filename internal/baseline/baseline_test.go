package baseline

import (
	"slices"
	"strings"
	"testing"

	"shaver/internal/model"
	"shaver/internal/model/modeltest"
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
	if want := []float32{2.5, 3.5, 6, 7.5}; !slices.Equal(book, want) {
		t.Errorf("codebook %v, want %v", book, want)
	}
	if !slices.Equal(unseen, []int{1}) {
		t.Errorf("unseen fields %v, want [1]", unseen)
	}
	if _, _, err := Of("mean", a, table, nil); err == nil || !strings.Contains(err.Error(), "zero and codebook") {
		t.Errorf("error for an unknown baseline: %v", err)
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
	if want := []float32{6, 7, 19, 20, 21, 22, 12.5, 13.5, 1}; !slices.Equal(book, want) {
		t.Errorf("codebook %v, want %v", book, want)
	}
	if !slices.Equal(unseen, []int{1}) {
		t.Errorf("unseen fields %v, want [1]", unseen)
	}
}
