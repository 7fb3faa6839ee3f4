package shapley

import (
	"math"
	"slices"
	"testing"
)

func FuzzDecodeBaseline(f *testing.F) {
	f.Add(EncodeBaseline([]float32{1, -2.5, 0}), 3)
	f.Add(EncodeBaseline([]float32{float32(math.NaN())}), 1)
	f.Add([]byte{1, 2, 3}, 1)
	f.Fuzz(func(t *testing.T, data []byte, players int) {
		baseline, err := DecodeBaseline(data, players)
		if err != nil {
			return
		}
		if len(baseline) != players || !slices.Equal(EncodeBaseline(baseline), data) {
			t.Fatalf("%d values of %d bytes do not encode back", len(baseline), len(data))
		}
		for _, v := range baseline {
			if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
				t.Fatalf("value %v", v)
			}
		}
	})
}
