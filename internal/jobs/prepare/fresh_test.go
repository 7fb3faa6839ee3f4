package prepare

import (
	"math"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/data/dataset"
	"shaver/internal/value/estimator"
)

// The weight of a fresh row is the square root of the number of other rows for each, in whole numbers from 1 on.
func TestFreshWeight(t *testing.T) {
	for fresh, want := range map[int64]float64{1: estimator.MaxWeight, 40: math.Round(math.Sqrt(960. / 40)), 500: 1, 900: 1} {
		f := &estimator.Fresh{Rows: [][2]int64{{0, 1}, {1, fresh}}[:min(fresh, 2)]}
		if got := freshWeight(1000, f); float64(got) != want {
			t.Errorf("%d of 1000 rows have the weight %d, expected %v", fresh, got, want)
		}
	}
}

// Settings of fresh rows without such rows are wrong usage.
func TestFreshWithoutRows(t *testing.T) {
	for _, r := range []Request{{FreshWeight: 2}, {FreshDays: 1}, {FreshDays: -1}} {
		r.Dataset = &dataset.Dataset{}
		if _, err := r.fresh([]string{dataset.Train}); !fault.IsUsage(err) {
			t.Errorf("weight %d and %d days: %v, expected wrong usage", r.FreshWeight, r.FreshDays, err)
		}
	}
	if f, err := (&Request{Dataset: &dataset.Dataset{}}).fresh([]string{dataset.Train}); f != nil || err != nil {
		t.Errorf("%v and %v without fresh rows", f, err)
	}
}
