package mask

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// tables draws ordinary and extreme tables. The extreme ones are constant, have values of
// any magnitude from the least denormal to the greatest float32, or have a range that is
// small compared with their distance from 0.
func tables(t *rapid.T) []float32 {
	number := rapid.Custom(func(t *rapid.T) float32 {
		v := math.Float32frombits(rapid.Uint32().Draw(t, "bits"))
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return 0
		}
		return v
	})
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return slices.Repeat([]float32{number.Draw(t, "constant")}, rapid.IntRange(1, 5).Draw(t, "n"))
	case 1: // denormals
		return rapid.SliceOfN(rapid.Map(rapid.Uint32Range(0, 1<<23), math.Float32frombits), 1, 20).Draw(t, "table")
	case 2: // adjacent floats
		first := math.Float32bits(number.Draw(t, "first"))
		return rapid.SliceOfN(rapid.Map(rapid.Uint32Range(0, 300), func(d uint32) float32 {
			if v := math.Float32frombits(first + d); !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) {
				return v
			}
			return math.Float32frombits(first)
		}), 1, 20).Draw(t, "table")
	case 3:
		return rapid.SliceOfN(rapid.Float32Range(-1, 1), 1, 50).Draw(t, "table")
	}
	return rapid.SliceOfN(number, 1, 20).Draw(t, "table")
}

// On any table the error of PTQ is at most half a step plus the rounding of float32 and
// float64.
func TestErrorIsHalfAStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values, bits := tables(t), rapid.IntRange(1, 16).Draw(t, "bits")
		g := newGrid(values, bits)
		width := float64(slices.Max(values)) - float64(slices.Min(values))
		if want := width / float64(int(1)<<bits-1); math.Abs(g.Step-want) > 1e-12*want {
			t.Fatalf("step %g, expected %g", g.Step, want)
		}
		for _, v := range values {
			level := g.Level(v)
			if level < 0 || level >= 1<<bits {
				t.Fatalf("%g has level %d, expected one of %d levels", v, level, 1<<bits)
			}
			rounding := math.Abs(float64(v)) * 0x1p-51
			if off := math.Abs(g.Number(level) - float64(v)); off > g.Step/2*(1+1e-12)+rounding {
				t.Fatalf("%d bits, step %g: %g becomes %g, an error of %g steps", bits, g.Step, v, g.Number(level), off/g.Step)
			}
			ulp := float64(math.Nextafter32(float32(math.Abs(float64(v))+g.Step), math.MaxFloat32)) - (math.Abs(float64(v)) + g.Step)
			if off := math.Abs(float64(g.Round(v)) - float64(v)); off > g.Step/2*(1+1e-12)+max(ulp, 0x1p-149)+rounding {
				t.Fatalf("%d bits, step %g: %g becomes %g in float32", bits, g.Step, v, g.Round(v))
			}
			if again := g.Round(g.Round(v)); g.Step > 1e3*ulp && again != g.Round(v) {
				t.Fatalf("%g becomes %g, which becomes %g", v, g.Round(v), again)
			}
		}
	})
}

// A table of one value keeps it exactly.
func TestConstantsStay(t *testing.T) {
	for _, v := range []float32{0, 5, -3e38, 1e-45} {
		if got := newGrid([]float32{v, v}, 4).Round(v); got != v {
			t.Errorf("%g becomes %g, expected no change", v, got)
		}
	}
}
