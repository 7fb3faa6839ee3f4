package mask

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Lowest returns the beginning of what Sort returns, also among ties and next to NaN, and leaves
// the numbers as they are.
func TestLowest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1, 2, 100, 5000} {
		keys, weights := make([]float64, 2*size), make([]float32, 2*size)
		var numbers []int32
		for i := range keys {
			keys[i], weights[i] = r.NormFloat64(), float32(r.IntN(5)-2)
			switch r.IntN(4) {
			case 0:
				keys[i] = 0
			case 1: // differs from others in the low bits only
				keys[i] = 1 + float64(r.IntN(8))*0x1p-52
			case 2:
				keys[i] = []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1)}[r.IntN(4)]
			}
			if i%2 == 0 {
				numbers = append(numbers, int32(i))
			}
		}
		key := func(i int32) float64 { return keys[i] }
		sorted, before := slices.Clone(numbers), slices.Clone(numbers)
		Sort(sorted, weights, key)
		for n := 0; n <= size; n += 1 + size/50 {
			if got := Lowest(numbers, n, weights, key); !slices.Equal(got, sorted[:n]) {
				t.Fatalf("the lowest %d of %d differ from the first ones in order", n, size)
			}
		}
		if got := Lowest(numbers, size, weights, key); !slices.Equal(got, sorted) || !slices.Equal(numbers, before) {
			t.Fatalf("all %d numbers, or the numbers themselves, are out of order", size)
		}
	}
}

// The integers of numbers are ordered as the numbers, rounded to float32, are. NaN comes first, and -0 is 0.
func TestRounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(-2, 2), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 1, 1 + 0x1p-30, 1 + 0x1p-23}))
		x, y := number.Draw(t, "x"), number.Draw(t, "y")
		if got, want := cmp.Compare(rounded(x), rounded(y)), cmp.Compare(float32(x), float32(y)); got != want {
			t.Fatalf("the integers of %v and %v compare as %d, expected %d", x, y, got, want)
		}
	})
}

// It takes n of many numbers, as in a round of a path through a large table.
func BenchmarkLowest(b *testing.B) {
	const size = 1 << 22
	r := rand.New(rand.NewPCG(1, 2))
	keys, weights, numbers := make([]float64, size), make([]float32, size), make([]int32, size)
	for i := range numbers {
		numbers[i], weights[i] = int32(i), r.Float32()
		if i%2 == 0 { // of features that occur in no row, the key is 0
			keys[i] = r.NormFloat64()
		}
	}
	key := func(i int32) float64 { return keys[i] }
	b.Run("lowest", func(b *testing.B) {
		for range b.N {
			Lowest(numbers, size/5, weights, key)
		}
	})
	b.Run("equal", func(b *testing.B) { // all of the first are among those with the key 0
		for range b.N {
			Lowest(numbers, size/5, weights, func(i int32) float64 { return math.Abs(keys[i]) })
		}
	})
	b.Run("sort", func(b *testing.B) {
		for range b.N {
			sorted := slices.Clone(numbers)
			Sort(sorted, weights, key)
		}
	})
}
