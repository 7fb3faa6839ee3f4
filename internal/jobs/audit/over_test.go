package audit

import (
	"slices"
	"testing"

	"shaver/internal/jobs/scores"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

// The values of two jobs over the same features are as long as the rows of the tables, with
// 0 for the features that a job lacks.
func TestOverTables(t *testing.T) {
	shape := layout.Of(2, 3).And(3, 1).And(2, 2)
	f := &scores.File{Result: tally.Result{Rows: 9, Scores: tally.Scores{Shape: shape, Count: []int64{0, 2, 1, 0, 0, 0, 4}}}}
	var r result
	err := r.take(f, func(feature int, into tally.Values) {
		for c := range into.Phi {
			into.Phi[c] = float64(10*feature + c)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []float64{10, 11, 12, 20, 60, 61}; !slices.Equal(r.phi, want) || !slices.Equal(r.features, []int32{1, 2, 6}) {
		t.Errorf("features %v have the values %v, expected %v", r.features, r.phi, want)
	}
	if got, want := r.over([]int32{0, 1, 2, 3, 5, 6}, &shape), []float64{0, 0, 0, 10, 11, 12, 20, 0, 0, 0, 60, 61}; !slices.Equal(got, want) {
		t.Errorf("values %v, expected %v", got, want)
	}
}
