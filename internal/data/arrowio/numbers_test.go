package arrowio

import (
	"math"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
)

// Rows whose labels are numbers are read as they were written, with row numbers and without.
// Labels that are not finite are refused.
func TestNumberRows(t *testing.T) {
	for _, numbered := range []bool{false, true} {
		rows := &model.Rows{Width: 1, Number: []int64{0, 1, 2}, Label: []float32{1.5, -2e30, 1}, Features: []int32{0, 2, 1}}
		var out strings.Builder
		w, err := NewRowWriter(&out, RowForm{Fields: []string{"a"}, Sizes: []int{3}, Numbers: true, Numbered: numbered}, 1)
		if err == nil {
			err = w.Append(rows)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewRowReader(strings.NewReader(out.String()))
		if err != nil {
			t.Fatal(err)
		}
		var found model.Rows
		if err := r.Next(&found); err != nil || !r.Form().Numbers || !slices.Equal(found.Label, rows.Label) || !slices.Equal(found.Features, rows.Features) {
			t.Errorf("read %+v, %v", found, err)
		}
		r.Close()
		rows.Label[1] = float32(math.Inf(-1))
		if w, err = NewRowWriter(&out, RowForm{Fields: []string{"a"}, Sizes: []int{3}, Numbers: true, Numbered: numbered}, 1); err != nil {
			t.Fatal(err)
		}
		if err := w.Append(rows); err == nil || !strings.Contains(err.Error(), "row 1: label is -Inf, expected a finite number") {
			t.Errorf("error %v", err)
		}
	}
}
