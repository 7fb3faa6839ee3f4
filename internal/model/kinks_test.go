package model

import (
	"math"
	"testing"
)

func TestRectify(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	x := []float32{1, -1, 0, float32(math.Copysign(0, -1)), inf, -inf, nan, -nan, 1e-45, -1e-45}
	want := []float32{1, 0, 0, 0, inf, 0, nan, -nan, 1e-45, 0}
	got := make([]float32, len(x))
	rectify(got, x)
	for i := range x {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Errorf("rectify of %v is %v, expected %v", x[i], got[i], want[i])
		}
	}
}
