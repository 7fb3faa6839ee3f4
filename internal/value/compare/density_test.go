package compare

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Every pair is in one cell, whose bounds contain both magnitudes if they are on the axes.
func TestDensity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, cells := rapid.IntRange(1, 30).Draw(t, "n"), rapid.IntRange(1, 20).Draw(t, "cells")
		value := rapid.OneOf(rapid.SampledFrom([]float64{0, 1, -1, 10, 1e-9, 1e300, -5e-324}), rapid.Float64Range(-5, 5))
		a, b := rapid.SliceOfN(value, n, n).Draw(t, "a"), rapid.SliceOfN(value, n, n).Draw(t, "b")
		d := NewDensity(a, b, cells)
		if d.High-d.Low > decades || d.High <= d.Low || d.High != math.Trunc(d.High) || d.Low != math.Trunc(d.Low) {
			t.Fatalf("the axes are from %v to %v", d.Low, d.High)
		}
		total := 0
		for _, column := range d.Count {
			for _, count := range column {
				total += count
			}
		}
		if total != n || len(d.Count) != cells {
			t.Fatalf("%d pairs in %d columns, expected %d in %d", total, len(d.Count), n, cells)
		}
		for i := range a {
			for _, v := range []float64{a[i], b[i]} {
				if math.Log10(math.Abs(v)) > d.High+1e-9 {
					t.Fatalf("%v is beyond 1e%v", v, d.High)
				}
			}
		}
	})
	d := NewDensity([]float64{-.5, 0, 5}, []float64{.05, 5, 5}, 4) // from .01 to 10 in steps of .75 powers of ten
	if d.Low != -2 || d.High != 1 || d.Count[0][2] != 1 || d.Count[3][0] != 1 || d.Count[3][3] != 1 {
		t.Errorf("%+v", d)
	}
}

func TestShift(t *testing.T) {
	if got := Shift([]float64{-1, 4}, []float64{-3, 1}); got != 1.25 {
		t.Errorf("shift %v, expected 1.25", got)
	}
	if got := Shift([]float64{1}, []float64{0}); !math.IsNaN(got) {
		t.Errorf("shift %v from 0", got)
	}
}
