package tally

import (
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
	"pgregory.net/rapid"

	"shaver/internal/num/layout"
)

func TestLoss(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1e-9, MaxLoss + 1} {
		if _, ok := Loss(bad); ok {
			t.Errorf("Loss accepts %v", bad)
		}
	}
	if units, ok := Loss(0.75); !ok || float64(units)*LossUnit != 0.75 {
		t.Errorf("Loss(0.75) is %d units", units)
	}
}

// The error of a square is at most half a unit plus the rounding of float64.
func TestSquare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		walks := rapid.Int64Range(1, 1000).Draw(t, "walks")
		limit := maxContribution * walks
		x := rapid.Int64Range(-limit, limit).Draw(t, "x")
		want := new(big.Rat).SetFrac(big.NewInt(x), big.NewInt(walks))
		want.Mul(want, want).Mul(want, big.NewRat(1, 1<<28))
		off, _ := new(big.Rat).Sub(want, new(big.Rat).SetInt64(square(x, 1/float64(walks)))).Float64()
		exact, _ := want.Float64()
		if math.Abs(off) > .5+exact*0x1p-50 {
			t.Fatalf("the square of %d / %d has an error of %g in %g units", x, walks, off, exact)
		}
	})
}

// Sums that overflow int64 and return are exact, in any order.
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

var twoPasses = Sampling{Passes: 2, Walks: 2, Rows: 36, Efficient: true}

// random builds the partial of n random rows over 3 fields of 4 features, d = 2.
func random(r *rand.Rand, n int) *Partial {
	b := NewBuilder(layout.Of(12, 2), 2, Form{Within: true})
	for range n {
		features := []int32{r.Int32N(4), 4 + r.Int32N(4), 8 + r.Int32N(4)}
		sum, within := make([]int64, 6), make([]int64, 6)
		total := int64(0)
		for i := range sum {
			sum[i] = 2 * (r.Int64N(1<<40) - 1<<39)
			within[i] = r.Int64N(1 << 40)
			total += sum[i]
		}
		if err := b.AddRow(1<<45, 1<<45+total/2, features, sum, within); err != nil {
			panic(err)
		}
	}
	p := b.Partial()
	return p
}

func TestMergeDoesNotDependOnOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	parts := []*Partial{random(r, 5), random(r, 1), random(r, 30)}
	var first *Result
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		a := NewAccumulator(layout.Of(12, 2), Form{Within: true})
		for _, i := range order {
			if err := a.Merge(parts[i]); err != nil {
				t.Fatal(err)
			}
		}
		result, err := a.Result(twoPasses)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = result
		} else if !reflect.DeepEqual(first, result) {
			t.Errorf("order %v changes the result", order)
		}
	}
}

// The sum of the scores may differ from what the losses say by 1e-5 nat for each nat of 1 + LossFull + LossEmpty, and by no more.
func TestEfficiencyTolerance(t *testing.T) {
	const nat = 1 << 36
	e := Sampling{Passes: 1, Walks: 1, Rows: 4, Efficient: true}
	for off, fits := range map[float64]bool{.999e-5: true, -.999e-5: true, 1.001e-5: false, -1.001e-5: false} {
		b, a := NewBuilder(layout.Of(1, 1), 1, Form{}), NewAccumulator(layout.Of(1, 1), Form{})
		for full := range int64(4) { // a mean of 1.5 with nothing dropped, and of 3.5 with everything dropped
			if err := b.AddRow(full*nat, (full+2)*nat, []int32{0}, []int64{2*nat + int64(off*(1+1.5+3.5)*nat)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Merge(b.Partial()); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Result(e); (err == nil) != fits {
			t.Errorf("a sum that is off by %g of the losses: %v", off, err)
		}
	}
}

// A lost or duplicated partial violates the efficiency identity.
func TestEfficiencyCatchesWrongSums(t *testing.T) {
	p := random(rand.New(rand.NewPCG(1, 2)), 10)
	p.Sum[3] += int64(100 * EfficiencyTolerance * 4000 * 10 / LossUnit) // losses are about 1,000 nat
	a := NewAccumulator(layout.Of(12, 2), Form{Within: true})
	if err := a.Merge(p); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Result(twoPasses); err == nil || !strings.Contains(err.Error(), "efficiency identity violated") {
		t.Errorf("error %v", err)
	}
}

// For any rows, the builder's lists are the sums that they are documented to be, and
// joining two builders gives the same partial as one builder.
func TestBuilderSums(t *testing.T) {
	const walks = 3
	rapid.Check(t, func(t *rapid.T) {
		one, other, all := NewBuilder(layout.Of(4, 1), walks, Form{Within: true}), NewBuilder(layout.Of(4, 1), walks, Form{Within: true}), NewBuilder(layout.Of(4, 1), walks, Form{Within: true})
		var want [4][4]int64
		residuals := int64(0)
		rows := rapid.IntRange(1, 20).Draw(t, "rows")
		for i := range rows {
			f := []int32{rapid.Int32Range(0, 1).Draw(t, "a"), rapid.Int32Range(2, 3).Draw(t, "b")}
			x := rapid.SliceOfN(rapid.Int64Range(-1<<40, 1<<40), 2, 2).Draw(t, "x")
			within := rapid.SliceOfN(rapid.Int64Range(0, 1<<40), 2, 2).Draw(t, "within")
			full, empty := rapid.Int64Range(0, 1<<38).Draw(t, "full"), rapid.Int64Range(0, 1<<38).Draw(t, "empty")
			for j, f := range f {
				for list, v := range []int64{x[j], max(x[j], -x[j]), square(x[j], 1./walks), within[j]} {
					want[list][f] += v
				}
			}
			residuals += square(x[0]+x[1]-walks*(empty-full), 1./walks)
			part := one
			if i%3 == 1 {
				part = other
			}
			for _, b := range []*Builder{part, all} {
				if err := b.AddRow(full, empty, f, x, within); err != nil {
					t.Fatal(err)
				}
			}
		}
		one.Join(other)
		p := one.Partial()
		if q := all.Partial(); !reflect.DeepEqual(p, q) {
			t.Fatalf("joined %+v, one builder %+v", p, q)
		}
		for list, values := range p.AllLists() {
			for i, f := range p.Features {
				if values := *values; values[i] != want[list][f] {
					t.Fatalf("list %d of feature %d is %d, expected %d", list, f, values[i], want[list][f])
				}
			}
		}
		if p.ResidualSquare != residuals || p.Rows != int64(rows) {
			t.Fatalf("%d rows and squared residuals %d, expected %d and %d", p.Rows, p.ResidualSquare, rows, residuals)
		}
	})
}

// If rows have different numbers of entries, each entry has the same values as in a table
// whose rows are all as wide as the widest, and whose other entries contribute nothing.
func TestRowsOfDifferentWidths(t *testing.T) {
	const widest = 5
	narrow, wide := layout.Of(2, 3).And(3, 1).And(4, widest), layout.Of(9, widest)
	sampling := Sampling{Passes: 2, Walks: 2, Rows: 100}
	var results []*Result
	for _, shape := range []layout.Shape{narrow, wide} {
		r := rand.New(rand.NewPCG(3, 3))
		a := NewAccumulator(shape, Form{Within: true})
		for range 4 { // four partials, each of two goroutines
			one, other := NewBuilder(shape, 2, Form{Within: true}), NewBuilder(shape, 2, Form{Within: true})
			for i := range 20 {
				features := []int32{2 + r.Int32N(3), r.Int32N(2), 5 + r.Int32N(4)}
				var sum, within []int64
				for _, f := range features {
					from, to := narrow.Row(int(f))
					for range to - from {
						sum, within = append(sum, 2*(r.Int64N(1<<40)-1<<39)), append(within, r.Int64N(1<<57))
					}
					if shape.Dim() > 0 { // fills the row up
						padding := make([]int64, widest-(to-from))
						sum, within = append(sum, padding...), append(within, padding...)
					}
				}
				if err := []*Builder{one, other}[i%2].AddRow(1<<45, 1<<45, features, sum, within); err != nil {
					t.Fatal(err)
				}
			}
			one.Join(other)
			p := one.Partial()
			for range 6 { // so that sums leave int64
				if err := a.Merge(p); err != nil {
					t.Fatal(err)
				}
			}
		}
		if shape.Dim() == 0 && len(a.carries) == 0 {
			t.Error("no sum has left int64, so no carry is tested")
		}
		result, err := a.Result(sampling)
		if err != nil {
			t.Fatal(err)
		}
		totals := make([]float64, widest)
		from, to := shape.Row(7)
		if a.Totals(7, sampling, totals[:to-from]); totals[4] == 0 || math.Abs(totals[4]-result.Phi[from+4]*float64(result.Rows)) > 1e-9 {
			t.Errorf("a total of %v, but phi is %v", totals[4], result.Phi[from+4])
		}
		results = append(results, result)
	}
	got, want := results[0], results[1]
	if !slices.Equal(got.Count, want.Count) || got.EfficiencyError != want.EfficiencyError || got.EfficiencySE != want.EfficiencySE || got.Rows != want.Rows {
		t.Errorf("%+v, expected %+v", got, want)
	}
	for row := range narrow.Rows() {
		from, to := narrow.Row(row)
		v, w := got.Part(from, to), want.Part(row*widest, row*widest+to-from)
		if !reflect.DeepEqual(v, w) || w.Phi[0] == 0 {
			t.Errorf("row %d has the values %+v, expected %+v", row, v, w)
		}
	}
}

// Result normalises two rows of 10. One contributes 1 nat and the other 0, so the mean is
// .5 and the variance between rows .5. The variance within rows is .2 in the first and 0
// in the second.
func TestResultNormalises(t *testing.T) {
	const one = 1 << 36 // nat
	within := math.RoundToEven(4 * .2 / SquareUnit)
	for _, c := range []struct {
		within            bool
		estimate          Sampling
		variance, between float64 // of the mean: about the dataset's own value, and about the population's
	}{
		{false, Sampling{Passes: 1, Walks: 1, Rows: 10, Efficient: true}, .25, .25},
		{false, Sampling{Passes: 1, Walks: 1, Rows: 10, Efficient: true, Exact: true}, .25 * .8, .25},
		{false, Sampling{Passes: 1, Walks: 1, Rows: 2, Efficient: true, Exact: true}, 0, .25},
		{true, Sampling{Passes: 2, Walks: 2, Rows: 10, Efficient: true}, .25*.8 + .2*.1/2, .25},
		{true, Sampling{Passes: 2, Walks: 2, Rows: 2, Efficient: true}, .1 / 2, .25},
	} {
		walks := int64(c.estimate.Walks)
		b := NewBuilder(layout.Of(2, 1), c.estimate.Walks, Form{Within: c.within})
		var first, second []int64
		if c.within {
			first, second = []int64{int64(within)}, []int64{0}
		}
		for _, err := range []error{b.AddRow(one, 2*one, []int32{0}, []int64{walks * one}, first), b.AddRow(one, one, []int32{1}, []int64{0}, second)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		p := b.Partial()
		a := NewAccumulator(layout.Of(2, 1), Form{Within: c.within})
		if err := a.Merge(p); err != nil {
			t.Fatal(err)
		}
		r, err := a.Result(c.estimate)
		if err != nil {
			t.Fatal(err)
		}
		near := func(got float32, want float64) bool { return math.Abs(float64(got)-want) < 1e-7 }
		if r.Phi[0] != .5 || !near(r.Abs[0], .5) || !near(r.RMS[0], math.Sqrt(.5)) || !near(r.SE[0], math.Sqrt(c.variance)) || !near(r.PopulationSE[0], math.Sqrt(c.between)) {
			t.Errorf("%+v: %+v, expected variances %v and %v", c.estimate, r.Values, c.variance, c.between)
		}
		if r.Phi[1] != 0 || r.Abs[1] != 0 || r.RMS[1] != 0 || r.SE[1] != 0 || r.PopulationSE[1] != 0 {
			t.Errorf("%+v: a feature that contributes nothing has %+v", c.estimate, r.Values)
		}
		phi := make([]float64, 1)
		if a.Values(0, c.estimate, Values{Phi: phi}); phi[0] != .5 {
			t.Errorf("%+v: with the other slices nil, phi is %v", c.estimate, phi)
		}
		if r.LossFull != 1 || r.LossEmpty != 1.5 || r.EfficiencyError != 0 || r.EfficiencySE != 0 || r.Rows != 2 {
			t.Errorf("%+v", r)
		}
	}
}

// One scored row of 10 does not show how rows differ, so its standard errors are not 0.
func TestOneRow(t *testing.T) {
	const one = 1 << 36 // nat
	for _, c := range []struct {
		estimate            Sampling
		dataset, population float64
	}{
		{Sampling{Passes: 1, Walks: 1, Rows: 10}, 3, 3},
		{Sampling{Passes: 1, Walks: 1, Rows: 10, Exact: true}, 3 * math.Sqrt(.9), 3},
		{Sampling{Passes: 1, Walks: 1, Rows: 1, Exact: true}, 0, 3}, // this row is the whole dataset
	} {
		b := NewBuilder(layout.Of(1, 1), 1, Form{})
		if err := b.AddRow(one, 2*one, []int32{0}, []int64{-3 * one}, nil); err != nil {
			t.Fatal(err)
		}
		p := b.Partial()
		a := NewAccumulator(layout.Of(1, 1), Form{})
		if err := a.Merge(p); err != nil {
			t.Fatal(err)
		}
		r, err := a.Result(c.estimate)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(float64(r.SE[0])-c.dataset) > 1e-6 || math.Abs(float64(r.PopulationSE[0])-c.population) > 1e-6 {
			t.Errorf("%+v: the standard errors are %v and %v, expected %v and %v", c.estimate, r.SE[0], r.PopulationSE[0], c.dataset, c.population)
		}
		if r.EfficiencySE < r.EfficiencyError {
			t.Errorf("%+v: efficiency error %v, standard error %v", c.estimate, r.EfficiencyError, r.EfficiencySE)
		}
	}
}

// Rows with residuals of 1 and 3 nat have a mean residual of 2, with a variance of 2.
func TestResidual(t *testing.T) {
	const one = 1 << 36
	b := NewBuilder(layout.Of(1, 1), 1, Form{})
	for _, x := range []int64{2 * one, 4 * one} {
		if err := b.AddRow(one, 2*one, []int32{0}, []int64{x}, nil); err != nil {
			t.Fatal(err)
		}
	}
	p := b.Partial()
	a := NewAccumulator(layout.Of(1, 1), Form{})
	if err := a.Merge(p); err != nil {
		t.Fatal(err)
	}
	r, err := a.Result(Sampling{Passes: 1, Walks: 1, Rows: 2})
	if err != nil || r.EfficiencyError != 2 || math.Abs(r.EfficiencySE-1) > 1e-12 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestIntervals(t *testing.T) {
	e := Sampling{Passes: 4, Walks: 8, Rows: 100}
	for _, c := range []struct {
		count, rows         int64
		dataset, population float64
	}{
		{4, 100, math.NaN(), math.NaN()},
		{5, 100, 2.5706, 2.7764},       // 5 and 4 degrees of freedom
		{5, 99, 2.7764, 2.7764},        // a sample of the rows
		{1 << 40, 100, 1.9600, 1.9600}, // like a normal distribution
	} {
		dataset, population := e.Interval(c.count, c.rows)
		near := func(got, want float64) bool { return math.Abs(got-want) < 5e-5 || math.IsNaN(got) && math.IsNaN(want) }
		if !near(dataset, c.dataset) || !near(population, c.population) {
			t.Errorf("%d of %d rows: %v and %v, expected %v and %v", c.count, c.rows, dataset, population, c.dataset, c.population)
		}
	}
}

// The quantiles are those of gonum's package distuv, to the last bit.
func TestQuantiles(t *testing.T) {
	for degrees := 0.75; degrees < 3e6; degrees *= 1.37 {
		for _, d := range []float64{degrees, math.Round(degrees) + 1} {
			if got, want := quantile(d), (distuv.StudentsT{Mu: 0, Sigma: 1, Nu: min(d, 1e6)}).Quantile(0.975); got != want {
				t.Errorf("%v degrees of freedom: quantile %v, expected %v", d, got, want)
			}
		}
	}
	for n := 2.; n <= 1000; n++ {
		if got, want := bound(n), -(distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}).Quantile(distuv.UnitNormal.CDF(-mostOff)); got != want {
			t.Errorf("%v rows: bound %v, expected %v", n, got, want)
		}
	}
}

// Interval handles any number of passes, because files may claim any number.
func TestIntervalOfManyPasses(t *testing.T) {
	e := Sampling{Passes: 1 << 62, Walks: 1, Rows: 100}
	if dataset, _ := e.Interval(7, 100); math.Abs(dataset-1.96) > 5e-5 {
		t.Errorf("%v standard errors, expected the normal quantile", dataset)
	}
}

func TestOverflows(t *testing.T) {
	if err := NewBuilder(layout.Of(2, 1), 1, Form{}).AddRow(0, 0, []int32{0, 1}, []int64{1, -1 << 46}, nil); err == nil || !strings.Contains(err.Error(), "player 1 is 1024 nat") {
		t.Errorf("error for a square that overflows: %v", err)
	}
	if err := NewBuilder(layout.Of(1, 1), 1, Form{}).AddRow(0, 1<<46, []int32{0}, []int64{0}, nil); err == nil || !strings.Contains(err.Error(), "differs by -1024 nat") {
		t.Errorf("error for a residual that is too large: %v", err)
	}
	if err := NewBuilder(layout.Of(1, 1), 1<<20, Form{}).AddRow(0, 1<<56, []int32{0}, []int64{0}, nil); err == nil || !strings.Contains(err.Error(), "overflows") {
		t.Errorf("error for walks that are worth too much: %v", err)
	}
}

// A contribution, a corrected one and a difference between two models may be 724 nat in magnitude, and no more. Fits and FitsPair
// agree with Add and AddPair, and a row that fits is added. A row without players fits.
func TestLargestContribution(t *testing.T) {
	shape := layout.Of(1, 1)
	rapid.Check(t, func(t *rapid.T) {
		walks := rapid.Int64Range(1, 50).Draw(t, "walks")
		most := 724 << 36 * walks
		value := rapid.OneOf(rapid.SampledFrom([]int64{0, most, most + 1, most - 1, -most, -most - 1}), rapid.Int64Range(-most, most))
		played := func(corrected bool) *Played {
			p := &Played{LossFull: 800 << 36, LossEmpty: 800 << 36, Sum: []int64{value.Draw(t, "value")}}
			p.Shared = p.Sum[0]
			if corrected {
				p.Correction = []int64{value.Draw(t, "corrected") - p.Sum[0]}
				p.Shared += p.Correction[0]
			}
			return p
		}
		fits := func(x int64) bool { return -most <= x && x <= most }
		for _, corrected := range []bool{false, true} {
			x, y := played(corrected), played(corrected)
			single, pair := fits(x.Sum[0]), fits(x.Sum[0]) && fits(y.Sum[0]) && fits(x.Sum[0]-y.Sum[0])
			a, b := x.Sum[0], y.Sum[0]
			if corrected {
				a, b = a+x.Correction[0], b+y.Correction[0]
				single, pair = single && fits(a), pair && fits(a) && fits(b) && fits(a-b)
			}
			one, two := NewBuilder(shape, int(walks), Form{Corrected: corrected}), NewBuilder(shape, int(walks), Form{Corrected: corrected, Paired: true, Fields: 1})
			if one.Fits(x) != single || two.FitsPair(x, y) != pair {
				t.Fatalf("%d walks: %+v fits: %t, and with %+v: %t, expected %t and %t", walks, x, !single, y, !pair, single, pair)
			}
			if err := one.Add([]int32{0}, x, nil); (err == nil) != single {
				t.Fatalf("%d walks: %+v: %v, expected an error: %t", walks, x, err, !single)
			}
			if err := two.AddPair([]int32{0}, []int{0}, x, y); (err == nil) != pair {
				t.Fatalf("%d walks: %+v and %+v: %v, expected an error: %t", walks, x, y, err, !pair)
			}
			if p := one.Partial(); single && p.Sum[0] != x.Sum[0] || single && corrected && p.Correction[0] != x.Correction[0] {
				t.Fatalf("%d walks: %+v has the sums %v and %v", walks, x, p.Sum, p.Correction)
			}
			if p := two.Partial(); pair && (p.Sum[0] != a || p.PreviousSum[0] != b) {
				t.Fatalf("%d walks: %+v and %+v have the sums %v and %v", walks, x, y, p.Sum, p.PreviousSum)
			}
		}
	})
	if b := NewBuilder(shape, 1, Form{Paired: true, Fields: 1}); !b.Fits(new(Played)) || !b.FitsPair(new(Played), new(Played)) {
		t.Error("a row without players does not fit")
	}
}

func TestValidateRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*Partial){
		"columns":         func(p *Partial) { p.Shape = layout.Of(12, 3) },
		"no rows":         func(p *Partial) { p.Rows = 0 },
		"loss":            func(p *Partial) { p.LossEmpty = -1 },
		"lengths":         func(p *Partial) { p.Sum = p.Sum[1:] },
		"order":           func(p *Partial) { p.Features[1] = p.Features[0] },
		"range":           func(p *Partial) { p.Features[len(p.Features)-1] = 12 },
		"negative":        func(p *Partial) { p.Features[0] = -1 },
		"count":           func(p *Partial) { p.Count[0] = p.Rows + 1 },
		"negative abs":    func(p *Partial) { p.Abs[2] = -1 },
		"negative square": func(p *Partial) { p.Square[2] = -1 },
		"negative within": func(p *Partial) { p.Within[2] = -1 },
		"one pass":        func(p *Partial) { p.Within = nil },
		"residual":        func(p *Partial) { p.ResidualSquare = -1 },
		"walked":          func(p *Partial) { p.Walked = p.Rows + 1 },
		"fresh":           func(p *Partial) { p.Fresh = p.Rows + 1 },
		"negative walked": func(p *Partial) { p.Walked = -1 },
		"negative fresh":  func(p *Partial) { p.Fresh = -1 },
	} {
		p := random(rand.New(rand.NewPCG(4, 4)), 20)
		spoil(p)
		a := NewAccumulator(layout.Of(12, 2), Form{Within: true})
		if err := a.Merge(p); err == nil {
			t.Errorf("%s: Merge returned no error", name)
		}
		if a.Rows() != 0 {
			t.Errorf("%s: Merge changed the sums", name)
		}
	}
	p := random(rand.New(rand.NewPCG(4, 4)), 20)
	p.Walked, p.Fresh = p.Rows, p.Rows
	if err := NewAccumulator(layout.Of(12, 2), Form{Within: true}).Merge(p); err != nil {
		t.Errorf("a partial whose rows are all walked and fresh: %v", err)
	}
}

func BenchmarkMerge(b *testing.B) {
	const features, dim = 50_000, 16
	zero := make([]int64, features*dim)
	p := &Partial{Shape: layout.Of(2*features, dim), Rows: 1, Features: make([]int32, features), Count: make([]int64, features), Sum: zero, Abs: slices.Clone(zero), Square: slices.Clone(zero)}
	for i := range p.Features {
		p.Features[i], p.Count[i] = int32(2*i), 1
	}
	a := NewAccumulator(layout.Of(2*features, dim), Form{})
	b.SetBytes(features * (4 + 8 + 24*dim))
	for b.Loop() {
		if err := a.Merge(p); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAddRow adds rows of 39 fields and 16 columns whose features the builder
// already has.
func BenchmarkAddRow(b *testing.B) {
	const fields, dim = 39, 16
	features, sum := make([]int32, fields), make([]int64, fields*dim)
	for i := range sum {
		features[i/dim], sum[i] = int32(i/dim), int64(i-300)<<20
	}
	builder := NewBuilder(layout.Of(fields, dim), 1, Form{})
	for b.Loop() {
		if err := builder.AddRow(1<<34, 1<<35, features, sum, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAddTerms adds the terms of rows like those of BenchmarkAddRow.
func BenchmarkAddTerms(b *testing.B) {
	const fields, dim = 39, 16
	features, change := make([]int32, fields), make([]float64, fields*dim)
	for i := range change {
		features[i/dim], change[i] = int32(i/dim), float64(i-300)/1e4
	}
	builder := NewTermsBuilder(layout.Of(fields, dim), layout.NewMask(fields*dim))
	row := &Terms{LossFull: 1 << 34, Change: change, First: .2, Second: .1}
	for b.Loop() {
		if err := builder.AddTerms(features, row); err != nil {
			b.Fatal(err)
		}
	}
}

// biased returns the sums of rows whose residuals, in nat, were shared out, under both models of
// a paired job if previous is not nil.
func biased(t *testing.T, residuals, previous []float64) *Accumulator {
	t.Helper()
	const one = 1 << 36
	form := Form{Corrected: true, Paired: previous != nil, Fields: 1}
	played := func(residual float64) *Played {
		shared := int64(residual * one)
		return &Played{LossFull: one, LossEmpty: 4 * one, Sum: []int64{one, one}, Correction: []int64{one - shared, shared}, Shared: shared}
	}
	b, a := NewBuilder(layout.Of(2, 2), 1, form), NewAccumulator(layout.Of(2, 2), form)
	for i, residual := range residuals {
		var err error
		if previous == nil {
			err = b.Add([]int32{int32(i % 2)}, played(residual), nil)
		} else {
			err = b.AddPair([]int32{int32(i % 2)}, []int{0}, played(residual), played(previous[i]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p := b.Partial()
	if err := a.Merge(p); err != nil {
		t.Fatal(err)
	}
	return a
}

// A job with corrections fails if the mean residual before sharing is too far from 0. The
// standard error of few rows is often too small, so they need more than 5 of them.
func TestUnbiased(t *testing.T) {
	e := Sampling{Passes: 1, Walks: 1, Rows: 5000, Shares: true, Corrected: true}
	r := rand.New(rand.NewPCG(5, 6))
	draw := func(n int, mean float64) []float64 {
		residuals := make([]float64, n)
		for i := range residuals {
			residuals[i] = mean + r.NormFloat64()
		}
		return residuals
	}
	for name, c := range map[string]struct {
		residuals, previous []float64
		want                string
	}{
		"unbiased":       {draw(2000, 0), nil, ""},
		"biased":         {draw(2000, .3), nil, "the estimator is biased: over 2000 rows"},
		"little bias":    {draw(2000, .05), nil, ""},
		"paired":         {draw(2000, 0), draw(2000, 0), ""},
		"paired, biased": {draw(2000, -.3), draw(2000, 0), "the estimator is biased"},
		"previous model": {draw(2000, 0), draw(2000, .3), "previous model: the estimator is biased"},
		"one row":        {[]float64{1}, nil, ""},
		"two rows":       {[]float64{.35, .43}, nil, ""},                                                               // 9.75 standard errors
		"equal rows":     {[]float64{252. / (1 << 22), 252. / (1 << 22)}, nil, "the estimator is biased: over 2 rows"}, // a standard error of 0, and more than 6e-5
		"rounding":       {[]float64{251. / (1 << 22), 251. / (1 << 22)}, nil, ""},
		"twenty rows":    {draw(20, 3), nil, "which is more than 7.353 times"},
	} {
		e.Paired = c.previous != nil
		result, err := biased(t, c.residuals, c.previous).Check(e)
		if c.want == "" && err != nil || c.want != "" && (result != nil || err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %+v, %v, want %q", name, result, err, c.want)
		}
	}
	e.Corrected, e.Paired = false, false
	if result, err := biased(t, draw(2000, .3), nil).Check(e); err != nil || result.EfficiencyError < 5*result.EfficiencySE {
		t.Errorf("without corrections: %+v, %v", result, err)
	}
	for n, want := range map[float64]float64{2: 1.11e6, 100: 5.35, 1000: 5.03, 1001: mostOff} {
		if got := bound(n); math.Abs(got/want-1) > .005 {
			t.Errorf("bound of %v rows: %v, expected %v", n, got, want)
		}
	}
}

// A builder that knows in how many rows each feature occurs does not move its sums, nor does one that gets
// half of the rows move them more than once or keep room for all features.
func TestExpect(t *testing.T) {
	for _, shape := range []layout.Shape{layout.Of(600, 4), layout.Of(200, 3).And(400, 5)} {
		r := rand.New(rand.NewPCG(1, 1))
		var features []int32
		occurrences := make([]int32, shape.Rows())
		for range 500 {
			f := r.Int32N(int32(shape.Rows())) / (1 + r.Int32N(3))
			features = append(features, f)
			occurrences[f]++
		}
		add := func(b *Builder, some []int32) *Partial {
			for _, f := range some {
				from, to := shape.Row(int(f))
				sum := make([]int64, to-from)
				sum[0] = int64(f)
				if err := b.AddRow(1<<45, 1<<45, []int32{f}, sum, nil); err != nil {
					t.Fatal(err)
				}
			}
			return b.Partial()
		}
		plain, b, half := NewBuilder(shape, 1, Form{}), NewBuilder(shape, 1, Form{}), NewBuilder(shape, 1, Form{})
		b.Expect(occurrences, 1)
		at, room := &b.cells[:1][0], cap(b.cells)
		want, got := add(plain, features), add(b, features)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, expected %+v", got, want)
		}
		if &b.cells[0] != at || room > len(b.cells)*5/4 {
			t.Errorf("room for %d cells, expected %d", room, len(b.cells))
		}
		half.Expect(occurrences, 2)
		room = cap(half.cells)
		if add(half, features[:250]); room < len(half.cells)*3/4 || room > len(half.cells)*5/4 {
			t.Errorf("half of the rows have room for %d cells, expected %d", room, len(half.cells))
		}
	}
}
