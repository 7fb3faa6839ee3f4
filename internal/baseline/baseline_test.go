package baseline

import (
	"slices"
	"strings"
	"testing"

	"shaver/internal/model"
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
