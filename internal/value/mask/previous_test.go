package mask

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// night is a table with a previous mask.
type night struct {
	rank    string
	scores  []float64
	weights []float32
	errors  []float64
	choices []Choice
}

// nights draws tables in which equal scores, scores of 0 and errors of 0 are common.
var nights = rapid.Custom(func(t *rapid.T) *night {
	n := rapid.IntRange(1, 60).Draw(t, "n")
	score := rapid.OneOf(rapid.SampledFrom([]float64{0, 1, -1, .5}), rapid.Float64Range(-1, 1))
	weight := rapid.SampledFrom([]float32{0, .5, 1})
	size := rapid.OneOf(rapid.SampledFrom([]float64{0, .5}), rapid.Float64Range(0, 1))
	return &night{
		rapid.SampledFrom(Ranks()).Draw(t, "rank"),
		rapid.SliceOfN(score, n, n).Draw(t, "scores"), rapid.SliceOfN(weight, n, n).Draw(t, "weights"), rapid.SliceOfN(size, n, n).Draw(t, "errors"),
		rapid.SliceOfN(rapid.SampledFrom([]Choice{WasDropped, WasAbsent, WasKept}), n, n).Draw(t, "choices"),
	}
})

// mask returns the mask of Stable that drops the given number of entries.
func (n *night) mask(t *rapid.T, z float64, drop int) []bool {
	order, err := Stable(n.rank, n.scores, n.weights, n.errors, n.choices, z)
	if err != nil {
		t.Fatal(err)
	}
	return Of(order, drop)
}

// changed returns the number of choices that a mask changes.
func (n *night) changed(mask []bool) (count int) {
	for i, gone := range mask {
		if gone && n.choices[i] == WasKept || !gone && n.choices[i] == WasDropped {
			count++
		}
	}
	return count
}

// with returns the number of entries with a choice.
func (n *night) with(c Choice) (count int) {
	for _, choice := range n.choices {
		if choice == c {
			count++
		}
	}
	return count
}

// With the order of a path, an entry that was dropped replaces one that was kept only if it
// outlasts that entry by more than 2*z rounds. Without hysteresis the order is that of the path.
func TestOutlasted(t *testing.T) {
	const n, drop = 200, 150
	ranks, weights, choices := make([]float64, n), make([]float32, n), make([]Choice, n)
	for i, rank := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		ranks[i] = float64(rank)
	}
	for i := range choices { // last night most of the same entries
		if choices[i] = WasDropped; ranks[i] >= 170 || i%5 == 0 {
			choices[i] = WasKept
		}
	}
	left := func(i int) float64 { return 1 - ranks[i]/n }
	replaced := n
	for _, z := range []float64{0, .5, 1, 2, 50} {
		rounds, deviations := Outlasted(ranks)
		order, err := Stable(Abs, rounds, weights, deviations, choices, z)
		if err != nil {
			t.Fatal(err)
		}
		mask, count := Of(order, drop), 0
		for i, gone := range mask {
			if z == 0 && gone != (ranks[i] < drop) {
				t.Errorf("entry %d with rank %v: dropped is %t", i, ranks[i], gone)
			}
			if gone || choices[i] != WasDropped {
				continue
			}
			count++
			for k, gone := range mask {
				if gone && choices[k] == WasKept && !(left(i) < left(k)*math.Pow(.8, 2*z)*(1+1e-12)) {
					t.Errorf("z %v: an entry that %v of the table outlast replaces one that %v outlast", z, left(i), left(k))
				}
			}
		}
		if count > replaced || z == 50 && count > max(0, n-drop-n/5) {
			t.Errorf("z %v keeps %d entries that were dropped, and a smaller one %d", z, count, replaced)
		}
		replaced = count
	}
}

// Without hysteresis the order is the usual one.
func TestStableWithoutHysteresis(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := nights.Draw(t, "night")
		want, err := Order(n.rank, n.scores, n.weights)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Stable(n.rank, n.scores, n.weights, n.errors, n.choices, 0); err != nil || !slices.Equal(got, want) {
			t.Fatalf("order %v, expected %v; error %v", got, want, err)
		}
	})
	if _, err := Stable("best", nil, nil, nil, nil, 1); err == nil {
		t.Error("Stable accepts an unknown rank")
	}
}

// Stable sorts by the bound of the worth, then by the choice, the worth, |weight| and the position.
func TestStableOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := nights.Draw(t, "night")
		z := rapid.SampledFrom([]float64{.5, 1, 3}).Draw(t, "z")
		keys := make([][5]float64, len(n.scores))
		want := make([]int32, len(n.scores))
		for i, score := range n.scores {
			worth, least := score, math.Inf(-1)
			if n.rank == Abs {
				worth, least = math.Abs(score), 0
			}
			bound := worth
			switch n.choices[i] {
			case WasKept:
				bound = worth + z*n.errors[i]
			case WasDropped:
				bound = worth - z*n.errors[i]
			}
			keys[i] = [5]float64{max(bound, least), float64(n.choices[i]), worth, math.Abs(float64(n.weights[i])), float64(i)}
			want[i] = int32(i)
		}
		slices.SortFunc(want, func(i, j int32) int { return slices.Compare(keys[i][:], keys[j][:]) })
		if got, err := Stable(n.rank, n.scores, n.weights, n.errors, n.choices, z); err != nil || !slices.Equal(got, want) {
			t.Fatalf("order %v, expected %v; error %v", got, want, err)
		}
	})
}

// An entry outlasts k rounds if .8^k of the table is left when it goes.
func TestOutlastedRounds(t *testing.T) {
	rounds, deviations := Outlasted([]float64{0, 1, 2, 3, 4})
	for rank, k := range rounds {
		if left := math.Pow(.8, k); math.Abs(left-(1-float64(rank)/5)) > 1e-12 || deviations[rank] != 1 {
			t.Errorf("rank %d of 5: %v rounds, of which %v of the table are left; deviation %v", rank, k, left, deviations[rank])
		}
	}
}

// Slices of different lengths are a mistake of the caller.
func TestLengths(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{2}, Dim: 1}
	for k := range 4 {
		n := []int{2, 2, 2, 2}
		n[k]--
		for name, f := range map[string]func(){
			"Stable": func() {
				_, _ = Stable(Abs, make([]float64, n[0]), make([]float32, n[1]), make([]float64, n[2]), make([]Choice, n[3]), 1)
			},
			"ChurnOf":  func() { ChurnOf(a, make([]Choice, n[k]), make([]bool, n[(k+1)%4])) },
			"Previous": func() { _, _ = Previous(a, a, make([]bool, n[k])) },
		} {
			func() {
				defer func() {
					if text, _ := recover().(string); !strings.Contains(text, "prune: "+name) {
						t.Errorf("%s of slices of the lengths %d: %q", name, n, text)
					}
				}()
				f()
			}()
		}
	}
}

// At every budget the number of dropped entries is exact, and a larger z changes no more
// choices than a smaller one.
func TestStableIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := nights.Draw(t, "night")
		drop := rapid.IntRange(0, len(n.scores)).Draw(t, "drop")
		z := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom([]float64{0, 1, 1e6}), rapid.Float64Range(0, 4)), 2, 5).Draw(t, "z")
		slices.Sort(z)
		least := math.MaxInt
		for _, z := range z {
			mask := n.mask(t, z, drop)
			dropped := 0
			for _, gone := range mask {
				if gone {
					dropped++
				}
			}
			if dropped != drop {
				t.Fatalf("z = %v drops %d entries, expected %d", z, dropped, drop)
			}
			changed := n.changed(mask)
			if changed > least {
				t.Fatalf("z = %v changes %d choices, a smaller z %d", z, changed, least)
			}
			least = changed
		}
	})
}

// An entry that was dropped replaces one that was kept only if their intervals do not
// overlap.
func TestStableNeedsEvidence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := nights.Draw(t, "night")
		z := rapid.Float64Range(1e-3, 4).Draw(t, "z")
		mask := n.mask(t, z, rapid.IntRange(0, len(n.scores)).Draw(t, "drop"))
		worth := func(i int) float64 {
			if n.rank == Abs {
				return math.Abs(n.scores[i])
			}
			return n.scores[i]
		}
		for i := range mask {
			for j := range mask {
				if mask[i] && n.choices[i] == WasKept && !mask[j] && n.choices[j] == WasDropped &&
					worth(j)-z*n.errors[j] < worth(i)+z*n.errors[i]-1e-12 {
					t.Fatalf("entry %d of worth %v replaces entry %d of worth %v, with errors %v and %v", j, worth(j), i, worth(i), n.errors[j], n.errors[i])
				}
			}
		}
	})
}

// With many standard errors, the same budget gives the same mask, and other budgets change
// no more than they must.
func TestStableKeepsTheMask(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := nights.Draw(t, "night")
		for i := range n.errors {
			n.errors[i] = max(n.errors[i], 1e-3)
		}
		drop := rapid.IntRange(0, len(n.scores)).Draw(t, "drop")
		kept, wasKept, wasDropped := len(n.scores)-drop, n.with(WasKept), n.with(WasDropped)
		if got, want := n.changed(n.mask(t, 1e9, drop)), max(0, wasKept-kept)+max(0, wasDropped-drop); got != want {
			t.Fatalf("%d choices changed, expected %d", got, want)
		}
		if n.with(WasAbsent) == 0 {
			mask := n.mask(t, 1e9, wasDropped)
			for i, gone := range mask {
				if gone != (n.choices[i] == WasDropped) {
					t.Fatalf("entry %d has changed", i)
				}
			}
		}
	})
}

// The ids of a field stay and new ones follow them.
func TestPrevious(t *testing.T) {
	before := &model.Architecture{FieldDims: []int{2, 1}, Dim: 2}
	after := &model.Architecture{FieldDims: []int{3, 2}, Dim: 2}
	dropped := []bool{true, false, false, true, true, true}
	got, err := Previous(after, before, dropped)
	if want := []Choice{-1, 1, 1, -1, 0, 0, -1, -1, 0, 0}; err != nil || !slices.Equal(got, want) {
		t.Errorf("choices %v, expected %v; error %v", got, want, err)
	}
	if got, err = Previous(before, before, dropped); err != nil || !slices.Equal(got, []Choice{-1, 1, 1, -1, -1, -1}) {
		t.Errorf("choices %v, error %v", got, err)
	}
	tables := modeltest.LookUps()
	grown := &model.Architecture{ // every field has one more feature
		FieldDims: []int{3, 4, 5},
		Tables:    []model.Table{{Name: "narrow", Rows: 4, Dim: 1}, {Name: "joint", Rows: 8, Dim: 2}, {Name: "wide", Rows: 4, Dim: 4}},
		LookUps:   []model.LookUp{{Field: 2, Table: 1}, {Field: 1, Table: 2}, {Field: 0, Table: 1, Offset: 5}, {Field: 1, Table: 0}},
	}
	mask := make([]bool, tables.Parameters())
	for i := range mask {
		mask[i] = i%3 == 0
	}
	if got, err = Previous(grown, &tables, mask); err != nil {
		t.Fatal(err)
	}
	old := map[int]model.Span{}
	for _, s := range tables.Spans() {
		old[s.LookUp] = s
	}
	for _, s := range grown.Spans() {
		for i := range s.Rows * s.Dim {
			want, was := WasAbsent, old[s.LookUp]
			if i < was.Rows*was.Dim {
				if want = WasKept; mask[was.Entry+i] {
					want = WasDropped
				}
			}
			if got[s.Entry+i] != want {
				t.Fatalf("look-up %d, entry %d: choice %d, expected %d", s.LookUp, i, got[s.Entry+i], want)
			}
		}
	}
	if _, err := Previous(&tables, grown, make([]bool, grown.Parameters())); err == nil || !strings.Contains(err.Error(), "features, expected at most") {
		t.Error(err)
	}
	other := tables
	other.Tables = slices.Clone(tables.Tables)
	other.Tables[0].Name = "other"
	if _, err := Previous(&other, &tables, mask); err == nil || !strings.Contains(err.Error(), "expected table other for field") {
		t.Error(err)
	}
	for want, a := range map[string]*model.Architecture{
		"field 0 has 2 features, expected at most 1": {FieldDims: []int{1, 2}, Dim: 2},
		"2 columns for field 0, expected 3":          {FieldDims: []int{2, 1}, Dim: 3},
		"2 fields, expected 3":                       {FieldDims: []int{2, 1, 1}, Dim: 2},
	} {
		if _, err := Previous(a, before, dropped); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", a.FieldDims, err)
		}
	}
}

// Churn counts the entries of every table of a field.
func TestChurn(t *testing.T) {
	a := modeltest.LookUps()
	entries := entriesOf(&a)
	choices, mask := make([]Choice, len(entries)), make([]bool, len(entries))
	want, total := make([]Churn, a.Fields()), Churn{}
	for i, e := range entries {
		choices[i], mask[i] = Choice(i%3-1), i%5 < 2
		for _, c := range []*Churn{&want[e.field], &total} {
			c.Entries++
			add := func(to *int, is bool) {
				if is {
					*to++
				}
			}
			add(&c.KeptBefore, i%3 == 2)
			add(&c.Kept, i%5 >= 2)
			add(&c.Absent, i%3 == 1 && i%5 >= 2)
			add(&c.Added, i%3 == 0 && i%5 >= 2)
			add(&c.Removed, i%3 == 2 && i%5 < 2)
		}
	}
	all, fields := ChurnOf(&a, choices, mask)
	if all != total || !slices.Equal(fields, want) {
		t.Errorf("churn %+v %+v, expected %+v %+v", all, fields, total, want)
	}
	// Of 8 kept entries 2 were replaced.
	c := Churn{Entries: 50, KeptBefore: 8, Kept: 9, Absent: 1, Added: 2, Removed: 2}
	if got := c.Portion(); got != .25 {
		t.Errorf("portion %v, expected 0.25", got)
	}
	if got := (&Churn{Entries: 5}).Portion(); got != 0 {
		t.Errorf("portion %v without changes, expected 0", got)
	}
}
