package compare

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/num/layout"
)

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

func TestRelativeRMS(t *testing.T) {
	if got := RelativeRMS([]float64{3, 4, 1}, []float64{3, 4, 0}); !near(got, .2, 1e-15) {
		t.Errorf("relative RMS %g", got)
	}
	if got := RelativeRMS([]float64{1, 0}, []float64{0, 0}); !math.IsNaN(got) {
		t.Errorf("with a reference of 0: %g", got)
	}
}

// RelativeBias excludes noise. The noise of two estimates of 10,000 values is ten times
// their bias of 20%.
func TestRelativeBiasIsWithoutNoise(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var values, reference [2][]float64
	for range 10_000 {
		truth := r.NormFloat64()
		for half := range 2 {
			values[half] = append(values[half], 1.2*truth+2*r.NormFloat64())
			reference[half] = append(reference[half], truth+2*r.NormFloat64())
		}
	}
	if bias, noise := RelativeBias(values, reference); !near(bias*bias, .2*.2, noise*noise) || noise > .5 {
		t.Errorf("bias %g, noise %g, expected .2", bias, noise)
	}
	if got := RelativeRMS(values[0], reference[0]); got < 1 {
		t.Errorf("RelativeRMS with noise is %g", got)
	}
	if bias, noise := RelativeBias(reference, reference); bias != 0 || noise != 0 {
		t.Errorf("the references themselves have bias %g, noise %g", bias, noise)
	}
}

func TestSpearman(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want float64
	}{
		{[]float64{1, -2, 3}, []float64{-10, 20, 30}, 1},
		{[]float64{1, 2, 3}, []float64{3, 2, -1}, -1},
		{[]float64{0, 0, 1}, []float64{0, 0, 5}, 1},
		{[]float64{1, 1, 2, 3}, []float64{1, 2, 2, 3}, pearson([]float64{.5, .5, 2, 3}, []float64{0, 1.5, 1.5, 3})},
	} {
		if got := Spearman(c.a, c.b); !near(got, c.want, 1e-14) {
			t.Errorf("Spearman of %v and %v is %g, expected %g", c.a, c.b, got, c.want)
		}
	}
}

func pearson(a, b []float64) float64 {
	var ab, aa, bb float64
	for i := range a {
		x, y := a[i]-1.5, b[i]-1.5
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	return ab / math.Sqrt(aa*bb)
}

// Overlap agrees with sets built by sorting.
func TestOverlapEqualsSortedSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "n")
		value := rapid.OneOf(rapid.SampledFrom([]float64{0, 1, -1, 2, math.Copysign(0, -1)}), rapid.Float64())
		a, b := rapid.SliceOfN(value, n, n).Draw(t, "a"), rapid.SliceOfN(value, n, n).Draw(t, "b")
		at := rapid.Float64Range(0, 1).Draw(t, "sparsity")
		drop, err := layout.Dropped(n, at)
		if err != nil {
			t.Fatal(err)
		}
		keep := n - drop
		inA, inB := kept(a, keep), kept(b, keep)
		both := 0
		for i := range inA {
			if inB[i] {
				both++
			}
		}
		want := 1.
		if len(inA)+len(inB) > 0 {
			want = float64(both) / float64(max(len(inA), len(inB)))
		}
		if got := Overlap(a, b, len(a), at); got != want {
			t.Fatalf("overlap %g, expected %g", got, want)
		}
	})
}

// Overlap keeps 71 of 100 entries at a sparsity of .29, as pruning does. In binary, 100 *
// 0.29 is less than 29, and rounding down would keep 72.
func TestOverlapKeepsWhatPruningKeeps(t *testing.T) {
	a, b := make([]float64, 100), make([]float64, 100)
	for i := range a {
		a[i], b[i] = float64(i+1), float64(i+1)
	}
	a[28] = 30.5 // replaces the next entry in the kept set
	if got := Overlap(a, b, len(a), .29); got != 70./71 {
		t.Errorf("overlap %g", got)
	}
}

func kept(values []float64, keep int) map[int]bool {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if x, y := math.Abs(values[i]), math.Abs(values[j]); x != y {
			return map[bool]int{true: -1, false: 1}[x < y]
		}
		return i - j
	})
	set := map[int]bool{}
	for _, i := range order[len(order)-keep:] {
		if values[i] != 0 {
			set[i] = true
		}
	}
	return set
}
