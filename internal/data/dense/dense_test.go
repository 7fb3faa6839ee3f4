package dense

import (
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

func pointer(x float64) *float64 { return &x }

// Each rule gives what its definition says, rounded to float32.
func TestValue(t *testing.T) {
	z := Input{Rule: ZScore, Mean: pointer(10), Deviation: pointer(4)}
	for _, c := range []struct {
		in   Input
		x    float64
		want float32
	}{
		{Input{Rule: None}, -2.5, -2.5},
		{Input{Rule: None}, 0.1, 0.1},
		{Input{Rule: Log1p}, 0, 0},
		{Input{Rule: Log1p}, -0.5, float32(math.Log(0.5))},
		{Input{Rule: Log1p}, math.E - 1, 1},
		{Input{Rule: ClippedLog1p}, math.E - 1, 1},
		{Input{Rule: ClippedLog1p}, -3, 0},
		{z, 10, 0},
		{z, 4, -1.5},
	} {
		if err := c.in.Check(c.x); err != nil {
			t.Errorf("%s of %v: %v", c.in.Rule, c.x, err)
		}
		if got, err := c.in.Value(c.x); err != nil || got != c.want {
			t.Errorf("%s of %v is %v, %v; want %v", c.in.Rule, c.x, got, err, c.want)
		}
	}
	for _, c := range []struct {
		in   Input
		x    float64
		want string
	}{
		{Input{Rule: None}, math.NaN(), "not a finite number"},
		{Input{Rule: None}, math.Inf(-1), "not a finite number"},
		{Input{Rule: ClippedLog1p}, 1e39, "range of float32"},
		{Input{Rule: Log1p}, -1, "expected a number above -1"},
	} {
		if err := c.in.Check(c.x); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %v: error %v, want %q", c.in.Rule, c.x, err, c.want)
		}
	}
	z.Deviation = pointer(1e-300)
	if _, err := z.Value(11); err == nil || !strings.Contains(err.Error(), "outside the range of float32") {
		t.Errorf("a result that is too large: %v", err)
	}
}

func TestValidate(t *testing.T) {
	good := Input{Name: "a", Rule: ZScore, Mean: pointer(1), Deviation: pointer(2), Missing: pointer(0), Filled: 1, Values: Values{-1, 0, 1}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		change func(in *Input)
		want   string
	}{
		{func(in *Input) { in.Rule = "log" }, "the rule is"},
		{func(in *Input) { in.Rule = Log1p }, "only zscore"},
		{func(in *Input) { in.Mean = nil }, "no mean or no deviation"},
		{func(in *Input) { in.Deviation = pointer(0) }, "a deviation above 0"},
		{func(in *Input) { in.Mean = pointer(math.Inf(1)) }, "expected numbers"},
		{func(in *Input) { in.Missing = pointer(1e300) }, "missing numbers"},
		{func(in *Input) { in.Filled = -1 }, "-1 missing"},
		{func(in *Input) { in.Values.Mean = 2 }, "in ascending order"},
		{func(in *Input) { in.Values.Min = math.NaN() }, "in ascending order"},
	} {
		in := good
		c.change(&in)
		if err := in.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		cell string
		want float64
	}{{"0", 0}, {"-0", 0}, {"-0.0", 0}, {"007", 7}, {"999999999", 999999999}, {"1234567890123", 1234567890123}, {"2.5", 2.5}, {"+3", 3}, {"1e-3", 1e-3}, {".5", .5}, {"-1E3", -1000}} {
		if got, err := Parse([]byte(c.cell)); err != nil || got != c.want || math.Signbit(got) != math.Signbit(c.want) {
			t.Errorf("%q is %v, %v; want %v", c.cell, got, err, c.want)
		}
	}
	for _, cell := range []string{"", "nan", "NaN", "-nan"} {
		if _, err := Parse([]byte(cell)); !IsMissing(err) {
			t.Errorf("%q is not missing: %v", cell, err)
		}
	}
	for _, cell := range []string{"inf", "-Infinity", "1e999", "abc", " 1", "1 ", "0x10", "1_000", "1,5", "e", "-", "man", "2024-01-02", strings.Repeat("9", 400)} {
		if x, err := Parse([]byte(cell)); err == nil || IsMissing(err) {
			t.Errorf("%.20q is %v, %v", cell, x, err)
		}
	}
}

// A cell either is refused, or has a finite number that has the same text again.
func FuzzParse(f *testing.F) {
	for _, cell := range []string{"", "1", "-2.5e3", "nan", "inf", "0x1p-2", "1_0", "18446744073709551616"} {
		f.Add([]byte(cell))
	}
	f.Fuzz(func(t *testing.T, cell []byte) {
		x, err := Parse(cell)
		if err != nil {
			return
		}
		if !finite(x) {
			t.Fatalf("%q is %v", cell, x)
		}
		text, _ := json.Marshal(x)
		if again, err := Parse(text); err != nil || again != x {
			t.Fatalf("%q is %v, but %s is %v, %v", cell, x, text, again, err)
		}
	})
}

// numbers returns numbers of very different sizes.
func numbers(n int) []float64 {
	r := rand.New(rand.NewPCG(3, 4))
	all := []float64{0, math.SmallestNonzeroFloat64, -math.SmallestNonzeroFloat64, math.MaxFloat32, -math.MaxFloat32, 0x1p-1022, 0x1.fffffffffffffp-1023, 1, -1}
	for len(all) < n {
		all = append(all, math.Ldexp(r.NormFloat64(), r.IntN(200)-100))
	}
	return all[:n]
}

// A sum is exact: it equals the sum of rational numbers.
func TestSumIsExact(t *testing.T) {
	var s Sum
	want := new(big.Rat)
	for _, x := range append(numbers(2000), math.MaxFloat64, math.MaxFloat64, -math.MaxFloat64) {
		s.Add(x)
		want.Add(want, new(big.Rat).SetFloat64(x))
		if s.exact().Cmp(want) != 0 {
			t.Fatalf("after %v the sum is %v, want %v", x, s.exact(), want)
		}
	}
	s.carry()
	if s.exact().Cmp(want) != 0 {
		t.Error("carries change the sum")
	}
}

// Moments do not depend on the order of the numbers, nor on how they are divided into
// parts, nor on a part that was stored in between.
func TestMomentsDoNotDependOnTheOrder(t *testing.T) {
	all := append(numbers(500), math.NaN(), math.NaN())
	var want Moments
	for _, x := range all {
		want.Add(x)
	}
	mean, deviation := want.Statistics(3)
	r := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		r.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		parts := make([]Moments, 1+r.IntN(7))
		for _, x := range all {
			parts[r.IntN(len(parts))].Add(x)
		}
		var got Moments
		for i := range parts {
			text, err := json.Marshal(&parts[i])
			if err != nil {
				t.Fatal(err)
			}
			var back Moments
			if err := json.Unmarshal(text, &back); err != nil {
				t.Fatal(err)
			}
			got.Merge(&back)
		}
		a, b := got.Statistics(3)
		if a != mean || b != deviation || got.Mean() != want.Mean() || got.Missing != 2 || got.Present != 500 {
			t.Fatalf("mean %v and deviation %v, want %v and %v", a, b, mean, deviation)
		}
	}
}

// The statistics are those of the definition, even if the mean is much larger than the
// deviation.
func TestStatistics(t *testing.T) {
	var m Moments
	for _, x := range []float64{1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 4} {
		m.Add(x)
	}
	if mean, deviation := m.Statistics(0); mean != 1e9+2.5 || deviation != math.Sqrt(1.25) {
		t.Errorf("mean %v, deviation %v", mean, deviation)
	}
	m.Add(math.NaN())
	if mean, deviation := m.Statistics(1e9 + 5); mean != 1e9+3 || deviation != math.Sqrt2 {
		t.Errorf("with a missing number: mean %v, deviation %v", mean, deviation)
	}
	if m.Mean() != 1e9+2.5 {
		t.Errorf("mean of the numbers that are present: %v", m.Mean())
	}
}

// Measure replaces missing numbers before it computes the statistics, and refuses numbers
// without a deviation.
func TestMeasure(t *testing.T) {
	moments := func(all ...float64) *Moments {
		m := &Moments{}
		for _, x := range all {
			m.Add(x)
		}
		return m
	}
	in := Input{Rule: ZScore}
	if err := in.Measure(moments(1, 3, math.NaN(), math.NaN()), true); err != nil || *in.Missing != 2 || *in.Mean != 2 || *in.Deviation != math.Sqrt(.5) {
		t.Errorf("%v: %+v", err, in)
	}
	in = Input{Rule: Log1p}
	if err := in.Measure(moments(1, 3), true); err != nil || *in.Missing != 2 || in.Mean != nil {
		t.Errorf("%v: %+v", err, in)
	}
	in = Input{Rule: ZScore, Mean: pointer(7), Deviation: pointer(1), Missing: pointer(5)}
	if err := in.Measure(moments(1, 3), true); err != nil || *in.Mean != 7 || *in.Missing != 5 {
		t.Errorf("statistics that are given: %v: %+v", err, in)
	}
	in = Input{Rule: ZScore}
	if err := in.Measure(moments(.1, .1, .1), false); err == nil || !strings.Contains(err.Error(), "are equal") {
		t.Errorf("equal numbers: %v", err)
	}
	if err := in.Measure(moments(math.NaN()), true); err == nil || !strings.Contains(err.Error(), "no numbers") {
		t.Errorf("no numbers: %v", err)
	}
}

func TestSummary(t *testing.T) {
	parts := make([]Summary, 3)
	for i, x := range []float64{4, -2, 7, 1} {
		parts[i%2].Add(x)
	}
	var all Summary
	for _, i := range []int{2, 1, 0} {
		all.Merge(&parts[i])
	}
	if got := all.Values(); got != (Values{-2, 2.5, 7}) || all.Rows != 4 {
		t.Errorf("%+v of %d rows", got, all.Rows)
	}
}

// A sum in a damaged record is refused.
func TestSumRefuses(t *testing.T) {
	for _, text := range []string{"", "xyz", "1.5", strings.Repeat("f", 10000)} {
		if err := new(Sum).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%.10q is accepted", text)
		}
	}
}

func BenchmarkMoments(b *testing.B) {
	all := numbers(1000)
	var m Moments
	for b.Loop() {
		for _, x := range all {
			m.Add(x)
		}
	}
}
