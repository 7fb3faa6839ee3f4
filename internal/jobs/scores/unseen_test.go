package scores

import (
	"math"
	"slices"
	"testing"
)

// In a sample, the error of an entry without rows is what one row of its field would give.
func TestRaiseUnseen(t *testing.T) {
	f := example()
	f.Count, f.RMS = []int64{3, 0, 4}, []float32{2, 3, 0, 0, 4, 5}
	q := math.Sqrt((4*4 + 4*9) / 6.) // of two entries in three rows each, with mean squares over four rows
	for aggregate, once := range map[string]float64{RMS: q / 2, Abs: q / 4, Sum: q / 4} {
		errors := []float64{1, 2, 0, 100, .3, .4}
		f.RaiseUnseen(aggregate, errors)
		if math.Abs(errors[2]-once) > 1e-12 || !slices.Equal(slices.Delete(errors, 2, 3), []float64{1, 2, 100, .3, .4}) {
			t.Errorf("%s: errors %v, expected %v for entry 2", aggregate, errors, once)
		}
	}
	errors := make([]float64, 6)
	f.DatasetRows = f.Rows
	if f.RaiseUnseen(RMS, errors); slices.Max(errors) != 0 {
		t.Errorf("without a sample the errors become %v", errors)
	}
	f.DatasetRows, f.Count = 8, []int64{0, 0, 4}
	if f.RaiseUnseen(RMS, errors); slices.Max(errors) != 0 {
		t.Errorf("in a field without rows the errors become %v", errors)
	}
}
