package baseline

import (
	"math"
	"slices"
	"testing"
)

// Decode accepts only finite values, and Encode reproduces the bytes.
func FuzzDecode(f *testing.F) {
	f.Add(Encode([]float32{1, -2.5, 0}), 3)
	f.Add(Encode([]float32{float32(math.NaN())}), 1)
	f.Add([]byte{1, 2, 3}, 1)
	f.Fuzz(func(t *testing.T, data []byte, players int) {
		values, err := Decode(data, players)
		if err != nil {
			return
		}
		if len(values) != players || !slices.Equal(Encode(values), data) {
			t.Fatalf("%d values decoded from %d bytes encode to different bytes", len(values), len(data))
		}
		for _, v := range values {
			if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
				t.Fatalf("Decode accepts the value %v", v)
			}
		}
	})
}
