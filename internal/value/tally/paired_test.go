package tally

import (
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/num/layout"
)

var pairedForm = Form{Paired: true, Fields: 2}

// pairRow is a row of a paired job over two fields, whose features have 2 entries and 1
// entry.
type pairRow struct {
	features          []int32
	current, previous Played
}

var pairShape = layout.Of(3, 2).And(2, 1)

// randomPairs returns n rows whose sums satisfy the efficiency identity with 2 walks.
func randomPairs(r *rand.Rand, n int) []pairRow {
	played := func() Played {
		p := Played{LossFull: 1 << 45, LossEmpty: 1 << 45, Sum: make([]int64, 3)}
		for i := range p.Sum {
			p.Sum[i] = 2 * (r.Int64N(1<<40) - 1<<39)
			p.LossEmpty += p.Sum[i] / 2
		}
		return p
	}
	rows := make([]pairRow, n)
	for i := range rows {
		rows[i] = pairRow{[]int32{r.Int32N(3), 3 + r.Int32N(2)}, played(), played()}
	}
	return rows
}

// pairs returns the partial of rows.
func pairs(t testing.TB, rows []pairRow) *Partial {
	t.Helper()
	b := NewBuilder(pairShape, 2, pairedForm)
	for _, row := range rows {
		if err := b.AddPair(row.features, []int{0, 1}, &row.current, &row.previous); err != nil {
			t.Fatal(err)
		}
	}
	p := b.Partial()
	return p
}

// The sums of each model in a paired partial are those of an ordinary job. The sums of
// differences and fourth powers are exact.
func TestPairedSums(t *testing.T) {
	const walks = 2
	rows := randomPairs(rand.New(rand.NewPCG(5, 5)), 50)
	p := pairs(t, rows)
	var single [2]*Partial
	for model := range single {
		b := NewBuilder(pairShape, walks, Form{})
		for _, row := range rows {
			played := []*Played{&row.current, &row.previous}[model]
			if err := b.AddRow(played.LossFull, played.LossEmpty, row.features, played.Sum, nil); err != nil {
				t.Fatal(err)
			}
		}
		single[model] = b.Partial()
	}
	current := *p
	current.Check = single[0].Check
	current.PreviousLossFull, current.PreviousLossEmpty, current.PreviousResidualSquare = 0, 0, 0
	current.PreviousSum, current.PreviousAbs, current.PreviousSquare, current.DifferenceSquare, current.AbsDifferenceSquare, current.Fourths = nil, nil, nil, nil, nil, nil
	if !reflect.DeepEqual(&current, single[0]) {
		t.Errorf("the new model has the sums %+v, expected %+v", &current, single[0])
	}
	previous := current
	previous.Check = single[1].Check
	previous.LossFull, previous.LossEmpty, previous.ResidualSquare = p.PreviousLossFull, p.PreviousLossEmpty, p.PreviousResidualSquare
	previous.Sum, previous.Abs, previous.Square = p.PreviousSum, p.PreviousAbs, p.PreviousSquare
	if !reflect.DeepEqual(&previous, single[1]) {
		t.Errorf("the previous model has the sums %+v, expected %+v", &previous, single[1])
	}

	difference, absDifference := make([]int64, pairShape.Entries()), make([]int64, pairShape.Entries())
	var fourths [2][3]*big.Int
	for field := range fourths {
		for k := range fourths[field] {
			fourths[field][k] = new(big.Int)
		}
	}
	for _, row := range rows {
		at := 0
		for field, f := range row.features {
			from, to := pairShape.Row(int(f))
			for e := from; e < to; e++ {
				x, y := row.current.Sum[at], row.previous.Sum[at]
				at++
				difference[e] += square(x-y, 1./walks)
				absDifference[e] += square(max(x, -x)-max(y, -y), 1./walks)
				q, r := square(x, 1./walks), square(y, 1./walks)
				for k, v := range []int64{q, r, q - r} {
					v := big.NewInt(v)
					fourths[field][k].Add(fourths[field][k], v.Mul(v, v))
				}
			}
		}
	}
	at := 0
	for _, f := range p.Features {
		from, to := pairShape.Row(int(f))
		for e := from; e < to; e++ {
			if p.DifferenceSquare[at] != difference[e] || p.AbsDifferenceSquare[at] != absDifference[e] || difference[e] == absDifference[e] {
				t.Errorf("entry %d has the squared differences %d and %d, expected %d and %d", e, p.DifferenceSquare[at], p.AbsDifferenceSquare[at], difference[e], absDifference[e])
			}
			at++
		}
	}
	for field := range fourths {
		for k, got := range p.Fourths[field].all() {
			if want := fourths[field][k].String(); got.String() != want {
				t.Errorf("field %d has the fourth powers %v in sum %d, expected %s", field, got, k, want)
			}
		}
		if p.Fourths[field].New.High == 0 {
			t.Error("no sum of fourth powers exceeds 64 bits")
		}
	}
}

// Two models that are the same have no differences.
func TestPairOfEqualModels(t *testing.T) {
	rows := randomPairs(rand.New(rand.NewPCG(6, 6)), 20)
	for i := range rows {
		rows[i].previous = rows[i].current
	}
	p := pairs(t, rows)
	for i := range p.Sum {
		if p.DifferenceSquare[i] != 0 || p.AbsDifferenceSquare[i] != 0 || p.Sum[i] != p.PreviousSum[i] || p.Square[i] != p.PreviousSquare[i] {
			t.Fatalf("entry %d differs", i)
		}
	}
	for field := range p.Fourths {
		if f := p.Fourths[field]; f.Difference != (Uint192{}) || f.New != f.Previous || f.New == (Uint192{}) {
			t.Errorf("field %d has the fourth powers %v", field, f)
		}
	}
}

// Paired sums do not depend on how rows are divided among goroutines and shards, or on the
// order of arrival.
func TestPairedSumsDoNotDependOnShards(t *testing.T) {
	rows := randomPairs(rand.New(rand.NewPCG(7, 7)), 60)
	e := Sampling{Passes: 2, Walks: 2, Rows: 100, Efficient: true, Paired: true}
	accumulate := func(parts ...*Partial) *Accumulator {
		a := NewAccumulator(pairShape, e.Form(2))
		for _, p := range parts {
			for range 3 { // so that sums leave int64
				if err := a.Merge(p); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := a.Check(e); err != nil {
			t.Fatal(err)
		}
		return a
	}
	want := accumulate(pairs(t, rows))
	for _, got := range []*Accumulator{
		accumulate(pairs(t, rows[:7]), pairs(t, rows[7:8]), pairs(t, rows[8:])),
		accumulate(pairs(t, rows[30:]), pairs(t, rows[:30])),
	} {
		if !reflect.DeepEqual(got, want) {
			t.Error("the division into shards changes the sums")
		}
	}
	one, other := NewBuilder(pairShape, 2, pairedForm), NewBuilder(pairShape, 2, pairedForm)
	for i, row := range rows {
		if err := []*Builder{one, other}[i%2].AddPair(row.features, []int{0, 1}, &row.current, &row.previous); err != nil {
			t.Fatal(err)
		}
	}
	one.Join(other)
	if p := one.Partial(); !reflect.DeepEqual(p, pairs(t, rows)) {
		t.Error("joined builders give another partial")
	}
}

// The means of an accumulator follow from its exact sums, and a copy does not change with
// the original.
func TestPairedAccessors(t *testing.T) {
	const one = 1 << 36 // nat
	b := NewBuilder(pairShape, 2, pairedForm)
	current := Played{LossFull: one, LossEmpty: 2 * one, Sum: []int64{2 * one, -one, one}}
	previous := Played{LossFull: 3 * one, LossEmpty: 4 * one, Sum: []int64{-one, one, 2 * one}}
	if err := b.AddPair([]int32{1, 4}, []int{0, 1}, &current, &previous); err != nil {
		t.Fatal(err)
	}
	p := b.Partial()
	a := NewAccumulator(pairShape, pairedForm)
	merge := func() {
		if err := a.Merge(p); err != nil {
			t.Fatal(err)
		}
	}
	merge()
	clone := a.Clone()
	merge()
	e := Sampling{Passes: 2, Walks: 2, Rows: 100, Efficient: true, Paired: true}
	for rows, a := range map[float64]*Accumulator{1: clone, 2: a} {
		got := make([]Paired, 2)
		a.Paired(1, e, got)
		want := []Paired{
			{Sum: 1, Abs: 1, Square: 1, PreviousSum: -.5, PreviousAbs: .5, PreviousSquare: .25, DifferenceSquare: 2.25, AbsDifferenceSquare: .25},
			{Sum: -.5, Abs: .5, Square: .25, PreviousSum: .5, PreviousAbs: .5, PreviousSquare: .25, DifferenceSquare: 1},
		}
		for i, w := range want {
			if got[i] != (Paired{w.Sum * rows, w.Abs * rows, w.Square * rows, w.PreviousSum * rows, w.PreviousAbs * rows, w.PreviousSquare * rows, w.DifferenceSquare * rows, w.AbsDifferenceSquare * rows, w.Square * rows, w.PreviousSquare * rows}) {
				t.Errorf("after %v rows, entry %d has %+v", rows, i, got[i])
			}
		}
		if f := a.Fourths(0); f != (Fourths{1.0625 * rows, .125 * rows, .5625 * rows}) {
			t.Errorf("after %v rows, the fourth powers are %+v", rows, f)
		}
		if full, empty := a.PreviousLosses(); full != 3 || empty != 4 {
			t.Errorf("the previous losses are %v and %v", full, empty)
		}
		if a.Rows() != int64(rows) || a.Count(4) != int64(rows) || a.Count(0) != 0 {
			t.Errorf("%d rows and counts %v, expected %v", a.Rows(), a.count, rows)
		}
		state := a.State()
		b := NewAccumulator(pairShape, pairedForm)
		copy(b.State().Count, state.Count)
		copy(b.State().Cells, state.Cells)
		if err := b.Restore(state); err != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("restored %+v, error %v", b, err)
		}
	}
}

// The sums of each entry are those of a few products: of the contributions x and y under the new and the previous model, and of
// those with corrections.
func TestPairedOfRows(t *testing.T) {
	const walks, unit = 2, 1 << 34 // of which 4 are a nat, so that all squares are exact
	rapid.Check(t, func(t *rapid.T) {
		form := Form{Paired: true, Fields: 2, Corrected: rapid.Bool().Draw(t, "corrected")}
		b, want := NewBuilder(pairShape, walks, form), make([]Paired, pairShape.Entries())
		for range rapid.IntRange(1, 6).Draw(t, "rows") {
			features := []int32{rapid.Int32Range(0, 2).Draw(t, "first"), rapid.Int32Range(3, 4).Draw(t, "second")}
			quarters := func(name string) []int64 { return rapid.SliceOfN(rapid.Int64Range(-40, 40), 3, 3).Draw(t, name) }
			x, y, z, w := quarters("x"), quarters("y"), make([]int64, 3), make([]int64, 3)
			played := func(x, z []int64) *Played {
				p := &Played{LossFull: 1 << 40, LossEmpty: 1 << 40}
				for i := range x {
					p.Sum = append(p.Sum, x[i]*unit)
					if form.Corrected {
						p.Correction = append(p.Correction, z[i]*unit)
					}
				}
				return p
			}
			if form.Corrected {
				z, w = quarters("z"), quarters("w")
			}
			if err := b.AddPair(features, []int{0, 1}, played(x, z), played(y, w)); err != nil {
				t.Fatal(err)
			}
			i := 0
			for _, f := range features {
				from, to := pairShape.Row(int(f))
				for entry := from; entry < to; entry++ {
					mean := func(quarters int64) float64 { return float64(quarters) / 4 / walks }
					x, y, z, w, p := mean(x[i]), mean(y[i]), mean(z[i]), mean(w[i]), &want[entry]
					i++
					p.Sum, p.Abs, p.Square = p.Sum+x+z, p.Abs+math.Abs(x), p.Square+x*x
					p.PreviousSum, p.PreviousAbs, p.PreviousSquare = p.PreviousSum+y+w, p.PreviousAbs+math.Abs(y), p.PreviousSquare+y*y
					p.DifferenceSquare += (x + z - y - w) * (x + z - y - w)
					p.AbsDifferenceSquare += (math.Abs(x) - math.Abs(y)) * (math.Abs(x) - math.Abs(y))
					p.SumSquare, p.PreviousSumSquare = p.SumSquare+(x+z)*(x+z), p.PreviousSumSquare+(y+w)*(y+w)
				}
			}
		}
		a := NewAccumulator(pairShape, form)
		if err := a.Merge(b.Partial()); err != nil {
			t.Fatal(err)
		}
		for f := range pairShape.Rows() {
			from, to := pairShape.Row(f)
			got := make([]Paired, to-from)
			a.Paired(f, Sampling{Passes: 2, Walks: walks, Rows: 100, Paired: true, Corrected: form.Corrected}, got)
			if !reflect.DeepEqual(got, want[from:to]) {
				t.Fatalf("feature %d has %+v, expected %+v", f, got, want[from:to])
			}
		}
	})
}

// A wrong sum of either model violates its efficiency identity.
func TestEfficiencyOfBothModels(t *testing.T) {
	e := Sampling{Passes: 2, Walks: 2, Rows: 100, Efficient: true, Paired: true}
	for list, want := range map[int]string{sumList: "efficiency", previousList: "previous model: efficiency"} {
		p := pairs(t, randomPairs(rand.New(rand.NewPCG(8, 8)), 10))
		(*p.AllLists()[list])[3] += int64(100 * EfficiencyTolerance * 4000 * 10 / LossUnit) // losses are about 1,000 nat
		a := NewAccumulator(pairShape, pairedForm)
		if err := a.Merge(p); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Check(e); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("list %d: error %v", list, err)
		}
	}
}

func TestPairedOverflows(t *testing.T) {
	const large = 700 << 36 // the square still fits
	add := func(b *Builder, x, y int64) error {
		return b.AddPair([]int32{4}, []int{1}, &Played{LossEmpty: x, Sum: []int64{x}}, &Played{LossEmpty: y, Sum: []int64{y}})
	}
	for want, row := range map[string][2]int64{
		"player 0 is 1024 nat":           {1 << 46, 0},
		"previous model: the mean":       {0, -1 << 46},
		"player 0 differs by 1400 nat":   {large, -large},
		"player 0 is 1.34217728e+08 nat": {1<<63 - 1, 0},
	} {
		if err := add(NewBuilder(pairShape, 1, pairedForm), row[0], row[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, expected %q", row, err, want)
		}
	}
	walks := NewBuilder(pairShape, math.MaxInt64, pairedForm) // a difference of int64 overflows
	if err := walks.AddPair([]int32{4}, []int{1}, &Played{Sum: []int64{math.MaxInt64 - maxContribution}}, &Played{Sum: []int64{maxContribution - math.MaxInt64}}); err == nil {
		t.Error("no error for a difference that overflows int64")
	}
}

func TestValidateRefusesPairs(t *testing.T) {
	for name, spoil := range map[string]func(*Partial){
		"one model":      func(p *Partial) { p.Fourths = nil },
		"fields":         func(p *Partial) { p.Fourths = p.Fourths[:1] },
		"within":         func(p *Partial) { p.Within = p.Abs },
		"loss":           func(p *Partial) { p.PreviousLossFull = -1 },
		"residual":       func(p *Partial) { p.PreviousResidualSquare = -1 },
		"lengths":        func(p *Partial) { p.PreviousSum = p.PreviousSum[1:] },
		"abs":            func(p *Partial) { p.PreviousAbs[2] = -1 },
		"square":         func(p *Partial) { p.PreviousSquare[2] = -1 },
		"difference":     func(p *Partial) { p.DifferenceSquare[2] = -1 },
		"abs difference": func(p *Partial) { p.AbsDifferenceSquare[2] = -1 },
		"fourths":        func(p *Partial) { p.Fourths[1].Difference.Top = math.MaxUint64 },
	} {
		p := pairs(t, randomPairs(rand.New(rand.NewPCG(10, 10)), 20))
		spoil(p)
		a := NewAccumulator(pairShape, pairedForm)
		if err := a.Merge(p); err == nil {
			t.Errorf("%s: Merge returned no error", name)
		}
		if a.Rows() != 0 || a.Fourths(0) != (Fourths{}) {
			t.Errorf("%s: Merge changed the sums", name)
		}
	}
	if err := NewAccumulator(pairShape, Form{}).Merge(pairs(t, randomPairs(rand.New(rand.NewPCG(10, 10)), 1))); err == nil {
		t.Error("an ordinary job accepts the partial of a paired job")
	}
}

// The text form of a 192-bit integer is decimal, and only its canonical form is read.
func TestUint192(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := Uint192{rapid.Uint64().Draw(t, "top"), rapid.Uint64().Draw(t, "high"), rapid.Uint64().Draw(t, "low")}
		var got Uint192
		if err := got.UnmarshalText([]byte(u.String())); err != nil || got != u {
			t.Fatalf("%v became %v, error %v", u, got, err)
		}
	})
	if s := (Uint192{0, 1, 5}).String(); s != "18446744073709551621" {
		t.Errorf("2^64 + 5 is %s", s)
	}
	if s := (Uint192{1, 0, 5}).String(); s != "340282366920938463463374607431768211461" {
		t.Errorf("2^128 + 5 is %s", s)
	}
	for _, text := range []string{"", "-1", "+1", "01", "1 ", "0x1", "1_0", "6277101735386680763835789423207666416102355444464034512896", strings.Repeat("9", 100)} {
		if err := new(Uint192).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// BenchmarkAddPair adds rows like those of BenchmarkAddRow under two models.
func BenchmarkAddPair(b *testing.B) {
	const fields, dim = 39, 16
	features, of, sum, previous := make([]int32, fields), make([]int, fields), make([]int64, fields*dim), make([]int64, fields*dim)
	for i := range sum {
		features[i/dim], of[i/dim] = int32(i/dim), i/dim
		sum[i], previous[i] = int64(i-300)<<20, int64(i-290)<<20
	}
	builder := NewBuilder(layout.Of(fields, dim), 1, Form{Paired: true, Fields: fields})
	current, earlier := &Played{LossFull: 1 << 34, LossEmpty: 1 << 35, Sum: sum}, &Played{LossFull: 1 << 34, LossEmpty: 1 << 35, Sum: previous}
	for b.Loop() {
		if err := builder.AddPair(features, of, current, earlier); err != nil {
			b.Fatal(err)
		}
	}
}
