package mask

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/click/model"
	"shaver/internal/num/layout"
)

// The paper's Criteo table has 1,086,810 features of 39 fields and 16 columns. At a sparsity
// of 95% it keeps 869,448 parameters, or 870,072 with the codebook.
func TestParameterCountsOfThePaper(t *testing.T) {
	a := model.Architecture{FieldDims: make([]int, 39), Dim: 16}
	a.FieldDims[0] = 1_086_810
	drop, err := layout.Dropped(a.Parameters(), 0.95)
	if err != nil {
		t.Fatal(err)
	}
	zero, codebook := a.Zero(), a.Zero()
	codebook.Values[7] = 1
	if kept := Parameters(&a, drop, &zero); kept != 869_448 {
		t.Errorf("with the zero baseline %d parameters are kept, expected 869448", kept)
	}
	if kept := Parameters(&a, drop, &codebook); kept != 870_072 {
		t.Errorf("with the codebook %d parameters are kept, expected 870072", kept)
	}
}

// Ties are broken by |weight|, then by position.
func TestOrderBreaksTies(t *testing.T) {
	scores := []float64{0, -2, 0, 1, 0}
	weights := []float32{3, 1, -1, 1, 1}
	for rank, want := range map[string][]int32{Abs: {2, 4, 0, 3, 1}, Signed: {1, 2, 4, 0, 3}} {
		if got, err := Order(rank, scores, weights); err != nil || !slices.Equal(got, want) {
			t.Errorf("rank %s: order %v, want %v; error %v", rank, got, want, err)
		}
	}
	if _, err := Order("best", scores, weights); err == nil {
		t.Error("Order accepts an unknown rank")
	}
}

// Order agrees with a sort by comparison, even if many scores are equal or nearly equal, or
// are NaN or infinite.
func TestOrderIsByComparison(t *testing.T) {
	odd := []float64{0, math.Copysign(0, -1), 1, math.Nextafter(1, 2), -1, math.Nextafter(-1, 0), math.SmallestNonzeroFloat64, -math.SmallestNonzeroFloat64,
		math.MaxFloat64, -math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN(), math.Copysign(math.NaN(), -1)}
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.SampledFrom(odd), rapid.Float64(), rapid.Float64Range(1, 1+0x1p-18))
		scores := rapid.SliceOfN(value, 0, 200).Draw(t, "scores")
		weights := rapid.SliceOfN(rapid.SampledFrom([]float32{0, 1, -1, 2}), len(scores), len(scores)).Draw(t, "weights")
		for rank, worth := range map[string]func(x float64) float64{Abs: math.Abs, Signed: func(x float64) float64 { return x }} {
			want := make([]int32, len(scores))
			for i := range want {
				want[i] = int32(i)
			}
			slices.SortStableFunc(want, func(i, j int32) int {
				return cmp.Or(cmp.Compare(worth(scores[i]), worth(scores[j])), cmp.Compare(math.Abs(float64(weights[i])), math.Abs(float64(weights[j]))))
			})
			if got, err := Order(rank, scores, weights); err != nil || !slices.Equal(got, want) {
				t.Fatalf("rank %s: order %v, want %v; error %v", rank, got, want, err)
			}
		}
	})
}

func BenchmarkOrder(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	scores, weights := make([]float64, 1<<20), make([]float32, 1<<20)
	for i := range scores {
		if weights[i] = r.Float32(); r.IntN(4) > 0 {
			scores[i] = math.Exp(3*r.NormFloat64()) * r.NormFloat64()
		}
	}
	for b.Loop() {
		if _, err := Order(Abs, scores, weights); err != nil {
			b.Fatal(err)
		}
	}
}

// No kept entry has a lower score than a dropped one, the number of dropped entries is as
// requested, and a mask contains every mask that drops fewer entries.
func TestMasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scores := rapid.SliceOfN(rapid.Float64Range(-1, 1), 1, 50).Draw(t, "scores")
		order, err := Order(Abs, scores, make([]float32, len(scores)))
		if err != nil {
			t.Fatal(err)
		}
		drop := rapid.IntRange(0, len(scores)).Draw(t, "drop")
		mask := Of(order, drop)
		worst, best, dropped := math.Inf(1), 0.0, 0
		for i, s := range scores {
			if mask[i] {
				dropped++
				best = max(best, math.Abs(s))
			} else {
				worst = min(worst, math.Abs(s))
			}
		}
		if dropped != drop || dropped > 0 && best > worst {
			t.Fatalf("dropped %d entries, expected %d; best dropped score %v, worst kept score %v", dropped, drop, best, worst)
		}
		for i, more := range Of(order, min(drop+1, len(scores))) {
			if mask[i] && !more {
				t.Fatal("an entry is dropped, but a mask that drops one more entry keeps it")
			}
		}
	})
}

// Apply replaces dropped entries by their baselines in a copy.
func TestTable(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{2, 1}, Dim: 2}
	table := []float32{1, 2, 3, 4, 5, 6}
	got := Apply(a, table, []bool{true, false, false, true, true, true}, model.Baseline{Values: []float32{10, 20, 30, 40}})
	if want := []float32{10, 2, 3, 20, 30, 40}; !slices.Equal(got, want) {
		t.Errorf("table %v, want %v", got, want)
	}
	if table[0] != 1 {
		t.Error("Apply changed its input")
	}
}

// Drop drops just enough entries to meet a budget in any unit.
func TestBudgets(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{30, 20}, Dim: 4}
	fit := func(bytes int64) (int, error) {
		if bytes < 100 {
			return 0, errors.New("nothing fits")
		}
		return max(0, 200-int((bytes-100)/5)), nil
	}
	zero, codebook := a.Zero(), a.Zero()
	codebook.Values[0] = 1
	for _, c := range []struct {
		budget   Budget
		baseline *model.Baseline
		want     int
	}{
		{Budget{Sparsity, .5}, &zero, 100}, {Budget{Kept, 60}, &zero, 140}, {Budget{Kept, 60}, &codebook, 148},
		{Budget{Kept, 1e9}, &codebook, 0}, {Budget{Kept, 8}, &codebook, 200}, {Budget{Kept, 0}, &zero, 200},
		{Budget{Bytes, 604}, &zero, 100}, {Budget{Bytes, 605}, &zero, 99}, {Budget{Bytes, 1e12}, &zero, 0},
	} {
		if got, err := c.budget.Drop(a, c.baseline, fit); err != nil || got != c.want {
			t.Errorf("budget %+v with baseline %v drops %d entries, expected %d; error %v", c.budget, c.baseline, got, c.want, err)
		}
	}
	for want, b := range map[string]Budget{"outside [0, 1]": {Sparsity, 2}, "codebook alone has 8": {Kept, 7}, "bytes 99: nothing fits": {Bytes, 99}} {
		if _, err := b.Drop(a, &codebook, fit); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error for budget %+v: %v", b, err)
		}
	}
}

func TestEmptyFeatures(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{2, 1}, Dim: 2}
	if got := EmptyFeatures(a, []bool{true, true, false, true, true, true}); got != 2 {
		t.Errorf("%d features without kept entries, expected 2", got)
	}
}

func TestFrequency(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{2, 1}, Dim: 1}
	got := Frequency(a, []float32{3, -1, 2}, model.Baseline{Values: []float32{1, 4}}, []int64{4, 9, 0})
	if want := []float64{4, 6, 0}; !slices.Equal(got, want) {
		t.Errorf("scores %v, expected %v", got, want)
	}
}

func TestRandomIsSeeded(t *testing.T) {
	a, b := Random(1000, 1), Random(1000, 2)
	if slices.Equal(a, b) || !slices.Equal(a, Random(1000, 1)) || slices.Min(a) < 0 || slices.Max(a) >= 1 {
		t.Error("random scores do not depend on the seed alone, or are outside [0, 1)")
	}
}

// The error of PTQ is at most half a step of the entry's grid, for one grid per table, field
// or row.
func TestQuantize(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{2, 1}, Dim: 2}
	table := []float32{0, 1, 100, 103, -7, 9000}
	for per, steps := range map[string][]float64{PerTable: {9007, 9007, 9007}, PerField: {103, 103, 9007}, PerRow: {1, 3, 9007}} {
		for i, v := range Quantize(a, table, 4, per) {
			if off := math.Abs(float64(v - table[i])); off > steps[i/2]/15/2*(1+1e-6) {
				t.Errorf("a grid per %s, entry %d: error %g, expected at most half a step of %g", per, i, off, steps[i/2]/15)
			}
		}
	}
}

// Paper, RQ5: bins of equal numbers of features by frequency, and the entries that each bin
// keeps.
func TestBins(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{5, 2}, Dim: 2}
	counts := []int64{9, 1, 5, 1, 0, 7, 8}
	mask := make([]bool, 14)
	mask[0], mask[2], mask[3], mask[8], mask[13] = true, true, true, true, true // drops entries of features 0, 1, 1, 4, 6
	got := Bins(a, counts, mask, 3)
	// Rarest first, field 0 has the features 4 | 1, 3 | 2, 0, and field 1 has 5 | 6.
	want := [][]Bin{
		{{1, 0, 0, 1, 1}, {2, 1, 1, 2, 1}, {2, 5, 9, 3, 1.5}},
		{{1, 7, 7, 2, 2}, {1, 8, 8, 1, 1}},
	}
	for j := range want {
		if !slices.Equal(got[j], want[j]) {
			t.Errorf("bins of field %d: %+v, expected %+v", j, got[j], want[j])
		}
	}
}

// Integers with ascending low halves are sorted, however many there are and however few differ.
func TestSortPacked(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 1<<14 - 1, 1 << 14, 100_003} {
		for _, most := range []uint32{1, 3, 1 << 9, math.MaxUint32} {
			all := make([]uint64, n)
			for i := range all {
				all[i] = uint64(r.Uint32N(most))<<32 | uint64(i)
			}
			want := slices.Sorted(slices.Values(all))
			if sortPacked(all); !slices.Equal(all, want) {
				t.Errorf("%d integers of %d kinds are not sorted", n, most)
			}
		}
	}
}
