package random

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Consecutive gives the first numbers of the streams for any order of the indices, also where they wrap around and
// where a number is rejected.
func TestConsecutive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed, j := rapid.Uint64().Draw(t, "seed"), rapid.Uint64().Draw(t, "j")
		c := NewConsecutive(seed, Sample, j)
		for _, i := range rapid.SliceOfN(rapid.Uint64(), 1, 4).Draw(t, "i") {
			for k := range rapid.Uint64Range(1, 150).Draw(t, "calls") {
				n := rapid.OneOf(rapid.Uint64Range(1, 100), rapid.Uint64Range(math.MaxUint64/2, math.MaxUint64)).Draw(t, "n")
				stream := At(seed, Sample, i+k, j)
				if got, want := c.Below(i+k, n), stream.Below(n); got != want {
					t.Fatalf("number %d below %d is %d, expected %d", i+k, n, got, want)
				}
			}
		}
	})
}

func BenchmarkConsecutive(b *testing.B) {
	c := NewConsecutive(1, Sample, 0)
	for i := range b.N {
		c.Below(uint64(i), 1e9)
	}
}
