package window

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/jobs/paired"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/tally"
)

var (
	smaller = model.Architecture{FieldDims: []int{3, 2}, Tables: []model.Table{{Name: "x", Rows: 5, Dim: 2}, {Name: "y", Rows: 2, Dim: 3}},
		LookUps: []model.LookUp{{Field: 0, Table: 0}, {Field: 1, Table: 0, Offset: 3}, {Field: 1, Table: 1}}}
	larger = model.Architecture{FieldDims: []int{5, 3}, Tables: []model.Table{{Name: "x", Rows: 8, Dim: 2}, {Name: "y", Rows: 3, Dim: 3}},
		LookUps: []model.LookUp{{Field: 0, Table: 0}, {Field: 1, Table: 0, Offset: 5}, {Field: 1, Table: 1}}}
	within  = tally.Form{Within: true}
	example = Day{Dataset: strings.Repeat("a", 64), Model: strings.Repeat("b", 64), Rows: 6}
)

// partial returns a partial with the given features, whose sums nearly fill int64.
func partial(a *model.Architecture, features ...int32) *tally.Partial {
	p := &tally.Partial{Shape: a.Shape(), Rows: 3, LossFull: math.MaxInt64, LossEmpty: math.MaxInt64 - 1, ResidualSquare: math.MaxInt64, Features: features, Within: []int64{}}
	for _, f := range features {
		p.Count = append(p.Count, 2)
		from, to := p.Shape.Row(int(f))
		for c := range to - from {
			p.Sum = append(p.Sum, math.MinInt64+int64(f))
			p.Abs, p.Square, p.Within = append(p.Abs, math.MaxInt64-int64(c)), append(p.Square, math.MaxInt64), append(p.Within, int64(f)*7)
		}
	}
	return p
}

// sumsOf returns the sums of each partial merged twice.
func sumsOf(t testing.TB, a *model.Architecture, partials ...*tally.Partial) *tally.Accumulator {
	t.Helper()
	sums := tally.NewAccumulator(a.Shape(), within)
	for range 2 {
		for _, p := range partials {
			if err := sums.Merge(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	return sums
}

func encode(t testing.TB, d *Day, a *model.Architecture, sums *tally.Accumulator, v variances) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := writeSums(&out, d, a, sums, v); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// The sums of days, of smaller tables too, add up to those of one job, also where they leave
// int64.
func TestTotal(t *testing.T) {
	day := encode(t, &example, &smaller, sumsOf(t, &smaller, partial(&smaller, 0, 2, 4, 6)), variances{})
	other := encode(t, &example, &larger, sumsOf(t, &larger, partial(&larger, 0, 7, 10)), variances{})
	// Features 0 and 2 of field 0 stay; rows 4 and 6, of the second value of field 1 in both
	// tables, move to 6 and 9.
	want := sumsOf(t, &larger, partial(&larger, 0, 7, 10))
	moved := partial(&larger, 0, 2, 6, 9)
	old := partial(&smaller, 0, 2, 4, 6)
	moved.Sum, moved.Abs, moved.Square, moved.Within = old.Sum, old.Abs, old.Square, old.Within
	for range 2 {
		if err := want.Merge(moved); err != nil {
			t.Fatal(err)
		}
	}
	total := newTotal(&larger, within)
	for _, data := range [][]byte{day, other} {
		if err := total.add(bytes.NewReader(data), &example); err != nil {
			t.Fatal(err)
		}
	}
	got, err := total.finish()
	if err != nil || !reflect.DeepEqual(got.State(), want.State()) {
		t.Errorf("%+v, expected %+v: %v", got.State(), want.State(), err)
	}
	if len(want.State().Carries) < 10 {
		t.Error("few sums leave int64, so the test proves little")
	}
}

// The sums of days whose lists read shared rows add up, also where the tables have grown. The
// lists themselves must be the same.
func TestTotalOfLists(t *testing.T) {
	before, after := modeltest.Lists(), modeltest.Lists()
	before.Kind, after.Kind = "", ""
	after.FieldDims = []int{7, 3, 7, 4}
	after.Tables[0].Rows = 7
	day := encode(t, &example, &before, sumsOf(t, &before, partial(&before, 1, 4, 7, 11)), variances{})
	moved, old := partial(&after, 1, 4, 9, 13), partial(&before, 1, 4, 7, 11)
	moved.Sum, moved.Abs, moved.Square, moved.Within = old.Sum, old.Abs, old.Square, old.Within
	want, total := sumsOf(t, &after, moved), newTotal(&after, within)
	if err := total.add(bytes.NewReader(day), &example); err != nil {
		t.Fatal(err)
	}
	got, err := total.finish()
	if err != nil || !reflect.DeepEqual(got.State(), want.State()) {
		t.Errorf("%+v, expected %+v: %v", got.State(), want.State(), err)
	}
	after.Lists[0].Length = 4
	err = newTotal(&after, within).add(bytes.NewReader(day), &example)
	if other, ok := errors.AsType[*misfit](err); !ok || !strings.Contains(other.Error(), "field 2 has 3 positions") {
		t.Errorf("error %v for lists of another length", err)
	}
}

// The variances of sums add up.
func TestVariances(t *testing.T) {
	day, shape := example, smaller.Shape()
	day.Generation = 1
	v := newVariances(shape.Entries())
	for list := range v {
		for i := range v[list] {
			v[list][i] = float64(100*list + i)
		}
	}
	data := encode(t, &day, &smaller, sumsOf(t, &smaller, partial(&smaller, 0)), v)
	total := newTotal(&larger, within)
	for range 2 {
		if err := total.add(bytes.NewReader(data), &day); err != nil {
			t.Fatal(err)
		}
	}
	into := larger.Spans()
	for k, span := range smaller.Spans() {
		for i := range span.Rows * span.Dim {
			for list := range v {
				if got, want := total.variance[list][into[k].Entry+i], 2*36*v[list][span.Entry+i]; got != want {
					t.Errorf("list %d, span %d, entry %d: %v, expected %v", list, k, i, got, want)
				}
			}
		}
	}
	if last := total.variance[0][4*2]; last != 0 { // a new value of field 0
		t.Errorf("an entry that no day has has the variance %v", last)
	}
}

// Malformed sums, and those of another day, model or table, are bad input.
func TestMalformedSums(t *testing.T) {
	day := example
	day.Generation = 1
	shape := smaller.Shape()
	sums := sumsOf(t, &smaller, partial(&smaller, 0, 2))
	data := encode(t, &day, &smaller, sums, newVariances(shape.Entries()))
	read := func(data []byte, d Day, a *model.Architecture, form tally.Form) error {
		return newTotal(a, form).add(bytes.NewReader(data), &d)
	}
	if err := read(data, day, &larger, within); err != nil {
		t.Fatal(err)
	}
	for n := range data {
		if err := read(data[:n], day, &larger, within); !fault.IsInput(err) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
	}
	negative := newVariances(shape.Entries())
	negative[1][3] = -1
	rows, generation, other := day, day, smaller
	rows.Rows, generation.Generation = 7, 0
	other.Tables = []model.Table{{Name: "x", Rows: 5, Dim: 3}, {Name: "y", Rows: 2, Dim: 3}}
	for name, err := range map[string]error{
		"more bytes":      read(append(bytes.Clone(data), 0), day, &larger, within),
		"another day":     read(data, Day{Dataset: day.Model, Model: day.Model, Rows: 6, Generation: 1}, &larger, within),
		"other rows":      read(data, rows, &larger, within),
		"generation":      read(data, generation, &larger, within),
		"form":            read(data, day, &larger, tally.Form{}),
		"negative":        read(encode(t, &day, &smaller, sums, negative), day, &larger, within),
		"without numbers": read(encode(t, &day, &smaller, sums, variances{}), day, &larger, within),
	} {
		if !fault.IsInput(err) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"larger tables": read(encode(t, &day, &larger, sumsOf(t, &larger, partial(&larger, 0)), newVariances(40)), day, &smaller, within),
		"other columns": read(data, day, &other, within),
	} {
		if _, ok := errors.AsType[*misfit](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSplit(t *testing.T) {
	for _, x := range []float64{0, 1.4, -1.6, 1 << 62, 1 << 63, -1 << 63, 1.5 * (1 << 64), -1.5 * (1 << 64), 0x1p100 + 0x1p60, -0x1p100 + 0x1p60, 0x1.8p63} {
		carry, low := split(x)
		got := new(big.Int).Lsh(big.NewInt(carry), 64)
		got.Add(got, big.NewInt(low))
		want, _ := big.NewFloat(math.RoundToEven(x)).Int(nil)
		if got.Cmp(want) != 0 {
			t.Errorf("%v: %d*2^64%+d is %v, expected %v", x, carry, low, got, want)
		}
	}
}

// Whatever a file contains, reading it ends with its sums or with bad input.
func FuzzSums(f *testing.F) {
	day := example
	shape := smaller.Shape()
	sums := tally.NewAccumulator(smaller.Shape(), within)
	for range 2 {
		if err := sums.Merge(partial(&smaller, 0, 2, 6)); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(encode(f, &day, &smaller, sums, variances{}), 0)
	day.Generation = 1
	f.Add(encode(f, &day, &smaller, sums, newVariances(shape.Entries())), 1)
	f.Fuzz(func(t *testing.T, data []byte, generation int) {
		d := example
		d.Generation = generation
		total := newTotal(&larger, within)
		if err := total.add(bytes.NewReader(data), &d); err != nil {
			if _, ok := errors.AsType[*misfit](err); !ok && !fault.IsInput(err) {
				t.Fatal(err)
			}
			return
		}
		if _, err := total.finish(); err != nil && !fault.IsInput(err) {
			t.Fatal(err)
		}
	})
}

// Whatever an index contains, reading it ends with a valid index or an error of one line.
func FuzzIndex(f *testing.F) {
	x := &Index{Version: Version, Settings: Settings{Spec: 2, Fields: []string{"a"}, Splits: []string{"train"}, Baseline: "zero", Kernel: "k"},
		Games: []Game{{Model: strings.Repeat("b", 64), Baseline: []float32{0}}}, Days: []Day{{Dataset: strings.Repeat("a", 64), Rows: 3, Scored: 3, Model: strings.Repeat("b", 64), Sample: 1,
			Sums: File{Name: dayFile(strings.Repeat("a", 64), strings.Repeat("b", 64), 0), Bytes: 3, SHA256: strings.Repeat("c", 64)}}}}
	path := f.TempDir() + "/state.json"
	if err := x.write(path); err != nil {
		f.Fatal(err)
	}
	if _, err := readIndex(path); err != nil {
		f.Fatal(err)
	}
	f.Add(read(f, path))
	f.Fuzz(func(t *testing.T, data []byte) {
		if x, err := parseIndex("state.json", data); err == nil {
			if err := x.validate(); err != nil {
				t.Fatal(err)
			}
		} else if strings.Contains(err.Error(), "\n") {
			t.Fatalf("%q has more than one line", err)
		}
	})
}

// A day gives the errors back with which it was corrected, also those of entries whose root
// mean square is near 0.
func TestErrorsOfDay(t *testing.T) {
	shape, form := smaller.Shape(), tally.Form{}
	day, total := newTotal(&smaller, form), newTotal(&smaller, form)
	day.state.Rows = 1000
	roots, errs := []float32{0, 1e-6, .25, 2}, []float32{0, .125, .01, .001}
	at := func(feature, c int) int { return (feature + c) % 16 }
	f := &scores.File{Result: tally.Result{Rows: 1000, Scores: tally.Scores{Shape: shape, Count: make([]int64, shape.Rows())}}}
	v, err := day.correct(1, f, func(feature int, into tally.Values) {
		for c := range into.Phi {
			i := at(feature, c)
			root, se := roots[i%4], errs[i/4]
			into.Phi[c], into.Abs[c], into.RMS[c] = float64(root)/2, root/2, root
			into.PairedSE[c], into.AbsPairedSE[c], into.RMSPairedSE[c] = se, se/2, float32(paired.RootError(float64(se*se), float64(root)))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	sums, err := day.finish()
	if err != nil {
		t.Fatal(err)
	}
	d := Day{Dataset: example.Dataset, Model: example.Model, Rows: 1000, Generation: 1}
	if err := total.add(bytes.NewReader(encode(t, &d, &smaller, sums, v)), &d); err != nil {
		t.Fatal(err)
	}
	if _, err := total.finish(); err != nil {
		t.Fatal(err)
	}
	e := tally.Sampling{Passes: 1, Walks: 1, Rows: 1000}
	for feature := range shape.Rows() {
		from, to := shape.Row(feature)
		got := tally.NewPairedValues(to - from)
		total.values(feature, e, got)
		for c := range to - from {
			i := at(feature, c)
			se := errs[i/4]
			for name, pair := range map[string][2]float32{
				"sum": {got.PairedSE[c], se}, "abs": {got.AbsPairedSE[c], se / 2},
				"rms": {got.RMSPairedSE[c], float32(paired.RootError(float64(se*se), float64(roots[i%4])))},
			} {
				if math.Abs(float64(pair[0]-pair[1])) > 1e-4*float64(pair[1]) {
					t.Errorf("entry %d of feature %d, root mean square %v: the error of %s is %v, expected %v", c, feature, roots[i%4], name, pair[0], pair[1])
				}
			}
		}
	}
}
