package tally

import (
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestLoss(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1e-9, MaxLoss + 1} {
		if _, ok := Loss(bad); ok {
			t.Errorf("loss %v accepted", bad)
		}
	}
	if units, ok := Loss(0.75); !ok || float64(units)*LossUnit != 0.75 {
		t.Errorf("0.75 is %d units", units)
	}
}

// Square agrees with big integers: (x^2 + 2^27) >> 28.
func TestSquareIsRoundedHalfUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Int64Range(-1<<57, 1<<57).Draw(t, "x")
		want := new(big.Int).Mul(big.NewInt(x), big.NewInt(x))
		want.Add(want, big.NewInt(1<<27)).Rsh(want, 28)
		got, ok := Square(x)
		if ok != want.IsInt64() || ok && got != want.Int64() {
			t.Fatalf("square of %d: %d %v, want %s", x, got, ok, want)
		}
	})
}

// Sums that leave int64 and come back are exact, in any order.
func TestWideSumsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := rapid.SliceOf(rapid.Int64()).Draw(t, "terms")
		want := new(big.Int)
		var w wide
		sums, carries := []int64{0}, map[int]int64{}
		for _, x := range terms {
			want.Add(want, big.NewInt(x))
			w.add(x)
			if addAll(sums, []int64{x}) {
				carry(carries, 0, sums, []int64{x})
			}
		}
		if w.big().Cmp(want) != 0 || (wide{carries[0], sums[0]}) != w {
			t.Fatalf("sum %s and %v, want %s", w.big(), wide{carries[0], sums[0]}, want)
		}
	})
}

// random builds the partial of n random rows over 3 fields of 4 features, d = 2.
func random(r *rand.Rand, n int) *Partial {
	b := NewBuilder(12, 2)
	for range n {
		features := []int32{r.Int32N(4), 4 + r.Int32N(4), 8 + r.Int32N(4)}
		sum, square := make([]int64, 6), make([]int64, 6)
		total := int64(0)
		for i := range sum {
			sum[i] = r.Int64N(1<<40) - 1<<39
			square[i], _ = Square(sum[i])
			total += sum[i]
		}
		b.AddRow(1<<45, 1<<45+total, features, sum, square)
	}
	p, err := b.Partial()
	if err != nil {
		panic(err)
	}
	return p
}

func TestMergeDoesNotDependOnOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	parts := []*Partial{random(r, 5), random(r, 1), random(r, 30)}
	var first *Result
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		a := NewAccumulator(12, 2)
		for _, i := range order {
			if err := a.Merge(parts[i]); err != nil {
				t.Fatal(err)
			}
		}
		result, err := a.Result(Estimate{1, RowToRow, true})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = result
		} else if !reflect.DeepEqual(first, result) {
			t.Errorf("order %v gives another result", order)
		}
	}
}

// A lost or doubled partial breaks the identity.
func TestEfficiencyCatchesWrongSums(t *testing.T) {
	p := random(rand.New(rand.NewPCG(1, 2)), 10)
	p.Sum[3] += int64(100 * EfficiencyTolerance * 4000 * 10 / LossUnit) // losses are some 1,000 nat
	a := NewAccumulator(12, 2)
	if err := a.Merge(p); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Result(Estimate{1, RowToRow, true}); err == nil || !strings.Contains(err.Error(), "efficiency identity violated") {
		t.Errorf("error %v", err)
	}
}

func TestResultNormalises(t *testing.T) {
	b := NewBuilder(2, 1)
	one := int64(1 << 36) // 1 nat
	square, _ := Square(one)
	b.AddRow(one, 2*one, []int32{0}, []int64{one}, []int64{square})
	b.AddRow(one, one, []int32{1}, []int64{0}, []int64{0})
	p, err := b.Partial()
	if err != nil {
		t.Fatal(err)
	}
	a := NewAccumulator(2, 1)
	if err := a.Merge(p); err != nil {
		t.Fatal(err)
	}
	r, err := a.Result(Estimate{1, RowToRow, true})
	if err != nil {
		t.Fatal(err)
	}
	// Contributions 1 and 0: mean .5, variance of one .25, of the mean .125.
	if r.Phi[0] != 0.5 || math.Abs(r.SE[0]-math.Sqrt(.125)) > 1e-12 || r.Phi[1] != 0 || r.SE[1] != 0 {
		t.Errorf("phi %v, se %v", r.Phi, r.SE)
	}
	if r.LossFull != 1 || r.LossEmpty != 1.5 || r.EfficiencyError != 0 || r.Rows != 2 {
		t.Errorf("%+v", r)
	}
}

func TestPartialOverflowIsAnError(t *testing.T) {
	b := NewBuilder(1, 1)
	for range 3 {
		b.AddRow(0, 0, []int32{0}, []int64{0}, []int64{math.MaxInt64 / 2})
	}
	if _, err := b.Partial(); err != ErrOverflow {
		t.Errorf("error %v", err)
	}
}

func TestValidateRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*Partial){
		"columns":         func(p *Partial) { p.Dim = 3 },
		"no rows":         func(p *Partial) { p.Rows = 0 },
		"loss":            func(p *Partial) { p.LossEmpty = -1 },
		"lengths":         func(p *Partial) { p.Sum = p.Sum[1:] },
		"order":           func(p *Partial) { p.Features[1] = p.Features[0] },
		"range":           func(p *Partial) { p.Features[len(p.Features)-1] = 12 },
		"count":           func(p *Partial) { p.Count[0] = p.Rows + 1 },
		"negative square": func(p *Partial) { p.Square[2] = -1 },
	} {
		p := random(rand.New(rand.NewPCG(4, 4)), 20)
		spoil(p)
		a := NewAccumulator(12, 2)
		if err := a.Merge(p); err == nil {
			t.Errorf("%s: merged", name)
		}
		if a.Rows() != 0 {
			t.Errorf("%s: something was added", name)
		}
	}
}

func BenchmarkMerge(b *testing.B) {
	const features, dim = 50_000, 16
	p := &Partial{Dim: dim, Rows: 1, Features: make([]int32, features), Count: make([]int64, features), Sum: make([]int64, features*dim), Square: make([]int64, features*dim)}
	for i := range p.Features {
		p.Features[i], p.Count[i] = int32(2*i), 1
	}
	a := NewAccumulator(2*features, dim)
	b.SetBytes(features * (4 + 8 + 16*dim))
	for b.Loop() {
		if err := a.Merge(p); err != nil {
			b.Fatal(err)
		}
	}
}
