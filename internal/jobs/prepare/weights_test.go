package prepare

import (
	"slices"
	"testing"

	"shaver/internal/click/model"
)

// The rows that absent fields read are as many as were drawn, each about as often as its weight says. Rows that all count once stay as they are.
func TestByWeight(t *testing.T) {
	rows := &model.Rows{Number: []int64{0, 1, 2, 3}, Label: make([]float32, 4)}
	if got := byWeight(rows).Number; !slices.Equal(got, rows.Number) {
		t.Errorf("rows %v without weights", got)
	}
	rows.Weight = []int32{1, 4, 1, 2}
	if got := byWeight(rows).Number; !slices.Equal(got, []int64{1, 1, 2, 3}) {
		t.Errorf("rows %v with the weights %v", got, rows.Weight)
	}
}
