package prune

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/model"
)

// The paper's Criteo table: 1,086,810 features of 39 fields, 16 columns. At 95%
// 869,448 parameters stay, 870,072 with the codebook.
func TestParameterCountsOfThePaper(t *testing.T) {
	a := model.Architecture{FieldDims: make([]int, 39), Dim: 16}
	a.FieldDims[0] = 1_086_810
	drop, err := Dropped(a.Parameters(), 0.95)
	if err != nil {
		t.Fatal(err)
	}
	if kept := Parameters(&a, drop, Zero); kept != 869_448 {
		t.Errorf("zero keeps %d", kept)
	}
	if kept := Parameters(&a, drop, Codebook); kept != 870_072 {
		t.Errorf("codebook keeps %d", kept)
	}
}

func TestDroppedIsExactInDecimal(t *testing.T) {
	for _, c := range []struct {
		entries  int
		sparsity float64
		want     int
	}{{10, 0.7, 7}, {100, 0.29, 29}, {1000, 0.999, 999}, {3, 0.5, 1}, {7, 0, 0}, {7, 1, 7}, {100_000_000, 0.57, 57_000_000}} {
		if got, err := Dropped(c.entries, c.sparsity); err != nil || got != c.want {
			t.Errorf("%d at %v: %d, %v", c.entries, c.sparsity, got, err)
		}
	}
	for _, bad := range []float64{-0.1, 1.1, math.NaN()} {
		if _, err := Dropped(10, bad); err == nil {
			t.Errorf("sparsity %v accepted", bad)
		}
	}
}

// Paper, the codebook: the mean of a field's rows, weighted by occurrence.
func TestCodebookFormula(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{2, 2}, Dim: 2}
	table := []float32{1, 2, 3, 4, 5, 6, 7, 9}
	book, unseen, err := Baseline(Codebook, a, table, []int64{1, 3, 0, 0})
	if err != nil {
		t.Fatal(err)
	}
	// Field 0: (1*1 + 3*3)/4, (1*2 + 3*4)/4; field 1 never occurs: the plain mean.
	if want := []float32{2.5, 3.5, 6, 7.5}; !slices.Equal(book, want) {
		t.Errorf("codebook %v, want %v", book, want)
	}
	if !slices.Equal(unseen, []int{1}) {
		t.Errorf("unseen fields %v", unseen)
	}
	if _, _, err := Baseline("mean", a, table, nil); err == nil || !strings.Contains(err.Error(), "zero and codebook") {
		t.Errorf("unknown baseline: %v", err)
	}
}

func TestOrderBreaksTies(t *testing.T) {
	scores := []float64{0, -2, 0, 1, 0}
	weights := []float32{3, 1, -1, 1, 1}
	for rank, want := range map[string][]int32{Abs: {2, 4, 0, 3, 1}, Signed: {1, 2, 4, 0, 3}} {
		if got, err := Order(rank, scores, weights); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", rank, got, err, want)
		}
	}
	if _, err := Order("best", scores, weights); err == nil {
		t.Error("unknown rank accepted")
	}
}

// Nothing kept scores less than anything dropped, the count is as asked, and
// masks nest.
func TestMasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scores := rapid.SliceOfN(rapid.Float64Range(-1, 1), 1, 50).Draw(t, "scores")
		order, err := Order(Abs, scores, make([]float32, len(scores)))
		if err != nil {
			t.Fatal(err)
		}
		drop := rapid.IntRange(0, len(scores)).Draw(t, "drop")
		mask := Mask(order, drop)
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
			t.Fatalf("dropped %d of %d; best dropped %v, worst kept %v", dropped, drop, best, worst)
		}
		for i, more := range Mask(order, min(drop+1, len(scores))) {
			if mask[i] && !more {
				t.Fatal("a larger budget of drops keeps what a smaller one drops")
			}
		}
	})
}

func TestTable(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{2, 1}, Dim: 2}
	table := []float32{1, 2, 3, 4, 5, 6}
	got := Table(a, table, []bool{true, false, false, true, true, true}, []float32{10, 20, 30, 40})
	if want := []float32{10, 2, 3, 20, 30, 40}; !slices.Equal(got, want) {
		t.Errorf("table %v, want %v", got, want)
	}
	if table[0] != 1 {
		t.Error("the input was changed")
	}
}
