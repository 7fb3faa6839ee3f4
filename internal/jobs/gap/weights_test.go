package gap

import (
	"math"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/jobs/job"
)

// A mean counts a row as often as its weight says, and its standard error is that of a ratio of sums, whatever the unit of weights.
func TestMeanOfWeightedRows(t *testing.T) {
	rises := []float64{1, 5, 2, 2}
	weighted := &model.Rows{Weight: []int32{3, 1, 2, 2}}
	d := mean(rises, weighted, &job.Spec{})
	if want := 2.; d.Value != want {
		t.Errorf("the mean is %v, expected %v", d.Value, want)
	}
	if want := math.Sqrt((9*1+1*9)*4./3) / 8; math.Abs(d.SE-want) > 1e-12 {
		t.Errorf("the standard error is %v, expected %v", d.SE, want)
	}
	same := mean(rises, &model.Rows{Weight: []int32{7, 7, 7, 7}}, &job.Spec{})
	if plain := mean(rises, &model.Rows{}, &job.Spec{}); math.Abs(same.SE-plain.SE) > 1e-12 || same.Value != plain.Value {
		t.Errorf("equal weights give %+v, none give %+v", same, plain)
	}
	// Four tasks with the same label say no more than one.
	n, four := float64(len(rises)), &job.Spec{Tasks: make([]model.Task, 4)}
	one, copies := mean(rises, &model.Rows{}, &job.Spec{}), mean(slices.Repeat(rises, 4), &model.Rows{}, four)
	if want := one.SE * math.Sqrt(4*(n-1)/(4*n-1)); math.Abs(copies.SE-want) > 1e-12 { // of 4n-1 in place of n-1 degrees
		t.Errorf("the standard error of four equal tasks is %v, expected %v", copies.SE, want)
	}
}
