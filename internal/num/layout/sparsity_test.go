package layout

import (
	"math"
	"testing"
)

// Dropped rounds down in decimal, and inverts the division of two numbers of entries.
func TestDroppedIsExactInDecimal(t *testing.T) {
	for _, c := range []struct {
		entries  int
		sparsity float64
		want     int
	}{{10, 0.7, 7}, {100, 0.29, 29}, {1000, 0.999, 999}, {3, 0.5, 1}, {7, 0, 0}, {7, 1, 7}, {100_000_000, 0.57, 57_000_000}} {
		if got, err := Dropped(c.entries, c.sparsity); err != nil || got != c.want {
			t.Errorf("sparsity %v drops %d of %d entries, want %d; error %v", c.sparsity, got, c.entries, c.want, err)
		}
	}
	for drop := range 12_509 {
		if got, err := Dropped(12_508, float64(drop)/12_508); err != nil || got != drop {
			t.Fatalf("the sparsity of %d dropped entries of 12508 drops %d; error %v", drop, got, err)
		}
	}
	for _, bad := range []float64{-0.1, 1.1, math.NaN()} {
		if _, err := Dropped(10, bad); err == nil {
			t.Errorf("Dropped accepts the sparsity %v", bad)
		}
	}
}
