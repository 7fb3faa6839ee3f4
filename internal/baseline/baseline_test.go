package baseline

import (
	"slices"
	"strings"
	"testing"

	"shaver/internal/model"
)

// Paper, the codebook: the mean of a field's rows, weighted by occurrence.
func TestCodebookFormula(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{2, 2}, Dim: 2}
	table := []float32{1, 2, 3, 4, 5, 6, 7, 9}
	book, unseen, err := Of(Codebook, a, table, []int64{1, 3, 0, 0})
	if err != nil {
		t.Fatal(err)
	}
	// Field 0: (1*1 + 3*3)/4, (1*2 + 3*4)/4; field 1 never occurs: the plain mean.
	if want := []float32{2.5, 3.5, 6, 7.5}; !slices.Equal(book, want) {
		t.Errorf("codebook %v, want %v", book, want)
	}
	if !slices.Equal(unseen, []int{1}) {
		t.Errorf("unseen fields %v", unseen)
	}
	if _, _, err := Of("mean", a, table, nil); err == nil || !strings.Contains(err.Error(), "zero and codebook") {
		t.Errorf("unknown baseline: %v", err)
	}
}
