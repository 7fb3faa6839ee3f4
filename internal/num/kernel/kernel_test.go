package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// fill returns n values, a third of them 0, surrounded by NaN that no primitive may read
// or overwrite.
func fill(r *rand.Rand, n int) (whole, inner []float32) {
	whole = make([]float32, n+8)
	for i := range whole {
		whole[i] = float32(math.NaN())
	}
	inner = whole[4 : 4+n : 4+n]
	for i := range inner {
		inner[i] = float32(r.NormFloat64()) * float32(r.IntN(3))
	}
	return whole, inner
}

func intact(t *testing.T, whole []float32) {
	t.Helper()
	for i := range 4 {
		if whole[i] == whole[i] || whole[len(whole)-1-i] == whole[len(whole)-1-i] {
			t.Fatal("wrote outside the slice")
		}
	}
}

func TestPackTransposes(t *testing.T) {
	packed := Pack([]float32{1, 2, 3, 4, 5, 6}, 3, 2)
	for i, want := range []float32{1, 4, 2, 5, 3, 6} {
		if packed[i] != want {
			t.Fatalf("Pack returned %v", packed)
		}
	}
}
