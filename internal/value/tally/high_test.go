package tally

import (
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/num/layout"
)

// huge is a row whose sums leave int64 after a few rows like it.
type huge struct {
	features          []int32
	fields            []int
	current, previous Played
	within            []int64
	terms             Terms
}

const (
	hugeWalks = 1 << 14
	nat       = 1 << 36
)

// hugeRow returns a random row. The features 0 to 2 are of field 0, and the others of field 1.
func hugeRow(random *rand.Rand, shape *layout.Shape, form Form) *huge {
	r := &huge{features: []int32{random.Int32N(3), 3 + random.Int32N(2)}, fields: []int{0, 1}}
	var signs []int64
	for _, f := range r.features {
		from, to := shape.Row(int(f))
		for at := range to - from {
			signs = append(signs, int64(1-(int(f)+at)%2*2))
		}
	}
	upTo := func(most int64) int64 { return random.Int64N(most * nat * hugeWalks) }
	for _, p := range []*Played{&r.current, &r.previous} {
		total := int64(0)
		for _, sign := range signs {
			x := sign * upTo(700)
			p.Sum = append(p.Sum, x)
			total += x
			if form.Corrected {
				z := -x - sign*upTo(700)
				p.Correction = append(p.Correction, z)
				total += z
			}
		}
		p.LossFull = 1<<55 + random.Int64N(1<<55)
		worth := random.Int64N(500 * nat)
		p.LossEmpty = p.LossFull + worth
		p.Shared = total - worth*hugeWalks - upTo(700)
	}
	for range signs {
		if form.Within {
			r.within = append(r.within, random.Int64N(math.MaxInt64))
		}
		r.terms.Change = append(r.terms.Change, -32-8*random.Float64())
	}
	r.terms.LossFull, r.terms.First, r.terms.Second = r.current.LossFull, random.Float64(), 1
	return r
}

// exact are sums of big integers.
type exact struct {
	form   Form
	heads  [8]big.Int
	lists  [maxLists]map[int]*big.Int // by entry of the tables
	powers [2][3]big.Int              // by field
}

func plusInt(sum *big.Int, x int64) { sum.Add(sum, big.NewInt(x)) }

func (e *exact) list(l, entry int, x int64) {
	if e.lists[l] == nil {
		e.lists[l] = map[int]*big.Int{}
	}
	if e.lists[l][entry] == nil {
		e.lists[l][entry] = new(big.Int)
	}
	plusInt(e.lists[l][entry], x)
}

func (e *exact) add(r *huge, shape *layout.Shape) {
	games := []*Played{&r.current}
	if e.form.Paired {
		games = append(games, &r.previous)
	}
	if e.form.Path {
		plusInt(&e.heads[0], r.terms.LossFull)
		games = nil
	}
	for k, p := range games {
		total := -p.Shared - (p.LossEmpty-p.LossFull)*hugeWalks
		for i, x := range p.Sum {
			total += x
			if p.Correction != nil {
				total += p.Correction[i]
			}
		}
		for i, x := range []int64{p.LossFull, p.LossEmpty, square(total, 1./hugeWalks), p.Shared} {
			plusInt(&e.heads[4*k+i], x)
		}
	}
	c := 0
	for i, f := range r.features {
		from, to := shape.Row(int(f))
		for entry := from; entry < to; entry++ {
			sq := func(x int64) int64 { return square(x, 1./hugeWalks) }
			x, y, z, w := r.current.Sum[c], r.previous.Sum[c], int64(0), int64(0)
			if e.form.Corrected {
				z, w = r.current.Correction[c], r.previous.Correction[c]
			}
			var addends []int64
			switch {
			case e.form.Path:
				v := r.terms.Change[c]
				addends = []int64{
					int64(math.RoundToEven(max(-32, r.terms.First*v) * (1 << 36))),
					int64(math.RoundToEven(min(1024, r.terms.Second*v*v) * (1 << 44))),
				}
			case e.form.Paired:
				addends = []int64{x + z, magnitude(x), sq(x), y + w, magnitude(y), sq(y), sq(x + z - y - w), sq(magnitude(x) - magnitude(y)), sq(x + z), sq(y + w)}
				s, t := big.NewInt(sq(x)), big.NewInt(sq(y))
				for k, v := range []*big.Int{s, t, new(big.Int).Sub(s, t)} {
					sum := &e.powers[r.fields[i]][k]
					sum.Add(sum, v.Mul(v, v))
				}
			default:
				addends = []int64{x, magnitude(x), sq(x)}
				if e.form.Within {
					addends = append(addends, r.within[c])
				}
				addends = append(addends, z, sq(x+z))
			}
			for l := range Lists(e.form) {
				e.list(l, entry, addends[l])
			}
			c++
		}
	}
}

// hugeBuilder returns a builder with the given rows.
func hugeBuilder(t *testing.T, shape layout.Shape, form Form, rows []*huge) *Builder {
	b := NewBuilder(shape, hugeWalks, form)
	if form.Path {
		b = NewTermsBuilder(shape, layout.NewMask(shape.Entries()))
	}
	for _, r := range rows {
		var err error
		switch {
		case form.Path:
			err = b.AddTerms(r.features, &r.terms)
		case form.Paired:
			err = b.AddPair(r.features, r.fields, &r.current, &r.previous)
		default:
			err = b.Add(r.features, &r.current, r.within)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

var hugeForms = map[string]Form{
	"": {}, "within": {Within: true}, "corrected": {Corrected: true}, "both": {Within: true, Corrected: true},
	"paired": {Paired: true, Fields: 2}, "corrected pair": {Paired: true, Corrected: true, Fields: 2}, "path": {Path: true},
}

// Sums that leave int64 are those of big integers, however the rows are divided among builders, partials,
// combined partials and ranges, and in any order.
func TestSumsBeyondInt64(t *testing.T) {
	t.Parallel()
	for name, form := range hugeForms {
		for _, shape := range []layout.Shape{layout.Of(5, 2), layout.Of(3, 2).And(2, 1)} {
			random := rand.New(rand.NewPCG(3, 4))
			rows := make([]*huge, 600)
			if form.Path { // terms are smaller
				rows = make([]*huge, 1800)
			}
			want := &exact{form: form}
			for i := range rows {
				rows[i] = hugeRow(random, &shape, form)
				want.add(rows[i], &shape)
			}
			p := hugeBuilder(t, shape, form, rows).Partial()
			want.compare(t, name, p)
			all := NewAccumulator(shape, form)
			if err := all.Merge(p); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !form.Path {
				if got := p.Summary(); !reflect.DeepEqual(got, all.Summary()) {
					t.Errorf("%s: the partial has the summary %+v, in an accumulator %+v", name, got, all.Summary())
				}
			}
			random.Shuffle(len(rows), func(i, k int) { rows[i], rows[k] = rows[k], rows[i] })
			joined := hugeBuilder(t, shape, form, rows[:1]) // without any large sum
			joined.Join(hugeBuilder(t, shape, form, rows[1:250]))
			joined.Join(hugeBuilder(t, shape, form, rows[250:]))
			want.compare(t, name+", joined", joined.Partial())

			var parts []*Partial
			for part := range slices.Chunk(rows, len(rows)/9) {
				parts = append(parts, hugeBuilder(t, shape, form, part).Partial())
			}
			same := func(what string, parts []*Partial) {
				t.Helper()
				a := NewAccumulator(shape, form)
				for _, p := range parts {
					if err := a.Merge(p); err != nil {
						t.Fatalf("%s, %s: %v", name, what, err)
					}
				}
				if got, want := stateOf(a), stateOf(all); !reflect.DeepEqual(got, want) {
					t.Errorf("%s, %s: sums\n%+v, expected\n%+v", name, what, got, want)
				}
			}
			same("in parts", parts)
			slices.Reverse(parts)
			same("in another order", parts)
			if form.Paired {
				continue
			}
			before := *parts[0]
			combined := parts[0]
			for _, p := range parts[1:4] {
				combined = Combine(combined, p)
			}
			if !reflect.DeepEqual(&before, parts[0]) {
				t.Errorf("%s: Combine changed a partial", name)
			}
			same("combined", append([]*Partial{combined}, parts[4:]...))
			for from := range shape.Rows() {
				ranged, part := NewAccumulator(shape.Part(from, from+1), form), NewAccumulator(shape.Part(from, from+1), form)
				if err := ranged.Merge(p.Part(from, from+1)); err != nil {
					t.Fatalf("%s: feature %d: %v", name, from, err)
				}
				for _, p := range parts {
					if err := part.Merge(p.Part(from, from+1)); err != nil {
						t.Fatalf("%s: feature %d: %v", name, from, err)
					}
				}
				first, end := shape.Row(from)
				for at := range all.lists * (end - first) {
					cell := all.lists*first + at
					want := wide{all.carries[cell], all.cells[cell]}
					for _, a := range []*Accumulator{ranged, part} {
						if got := (wide{a.carries[at], a.cells[at]}); got != want {
							t.Errorf("%s: feature %d: cell %d is %v alone, %v with the others", name, from, at, got, want)
						}
					}
				}
			}
		}
	}
}

// stateOf returns the content of a without carries of 0.
func stateOf(a *Accumulator) State {
	s := a.State()
	s.Carries = maps.Clone(s.Carries)
	maps.DeleteFunc(s.Carries, func(_ int, carry int64) bool { return carry == 0 })
	return s
}

// compare compares p with e. All kinds of sums must have left int64.
func (e *exact) compare(t *testing.T, name string, p *Partial) {
	t.Helper()
	if err := p.Validate(&p.Shape, e.form); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if p.High == nil {
		t.Fatalf("%s: no sum left int64", name)
	}
	value := func(high, low int64) *big.Int {
		v := new(big.Int).Lsh(big.NewInt(high), 63)
		return v.Add(v, big.NewInt(low))
	}
	check := func(what string, got, want *big.Int) {
		t.Helper()
		if got.Cmp(want) != 0 {
			t.Errorf("%s: %s is %v, expected %v", name, what, got, want)
		}
	}
	for k, sum := range p.heads() {
		check("a loss, residual or shared part", value(*p.High.heads()[k], *sum), &e.heads[k])
		if e.heads[k].IsInt64() && e.heads[k].Sign() != 0 {
			t.Errorf("%s: number %d of the losses, residuals and shared parts is small", name, k)
		}
	}
	lists := p.AllLists()
	for l := range Lists(e.form) {
		at, large := 0, false
		for _, f := range p.Features {
			from, to := p.Shape.Row(int(f))
			for entry := from; entry < to; entry++ {
				check("a sum", value((*lists[Lists(e.form)+l])[at], (*lists[l])[at]), e.lists[l][entry])
				large = large || !e.lists[l][entry].IsInt64()
				at++
			}
		}
		if !large && (l > 0 || !e.form.Path) { // see TestTermsBeyondInt64
			t.Errorf("%s: no sum of list %d is large", name, l)
		}
	}
	for field := range p.Fourths {
		for k, sum := range p.Fourths[field].all() {
			got, _ := new(big.Int).SetString(sum.String(), 10)
			check("a sum of fourth powers", got, &e.powers[field][k])
			if sum.Top == 0 {
				t.Errorf("%s: a sum of fourth powers has fewer than 128 bits", name)
			}
		}
	}
}

// First-order terms of a path also leave int64, which takes millions of rows.
func TestTermsBeyondInt64(t *testing.T) {
	t.Parallel()
	for _, shape := range []layout.Shape{layout.Of(2, 2), layout.Of(1, 2).And(1, 3)} {
		for _, sign := range []float64{-1, 1} {
			b := NewTermsBuilder(shape, layout.NewMask(shape.Entries()))
			d := 0
			for _, f := range []int32{0, 1} {
				from, to := shape.Row(int(f))
				b.at(f, to-from)
				d += to - from
			}
			start := make([]int64, len(b.cells))
			for i := range start {
				start[i] = int64(sign * (1<<63 - 1<<43)) // four addends of 32 nat
			}
			for f := range 2 {
				copy(b.entries(f, b.width(int32(f))), start)
				clear(b.entries(f, b.width(int32(f)))[b.width(int32(f)):])
			}
			change := make([]float64, d)
			for i := range change {
				change[i] = sign * 50
			}
			for range 9 {
				if err := b.AddTerms([]int32{0, 1}, &Terms{Change: change, First: 1, Second: 1}); err != nil {
					t.Fatal(err)
				}
			}
			p := b.Partial()
			for i, low := range p.Sum {
				got := new(big.Int).Lsh(big.NewInt(p.High.Sum[i]), 63)
				plusInt(got, low)
				want := big.NewInt(start[0])
				for range 9 {
					plusInt(want, int64(sign*32*nat))
				}
				if got.Cmp(want) != 0 || want.IsInt64() {
					t.Errorf("entry %d: %v, expected %v", i, got, want)
				}
			}
		}
	}
}

// SetTerms rounds terms to their units, also those beyond int64, and partials are added to them.
func TestSetTerms(t *testing.T) {
	const beyond = 1 << 63 * LossUnit
	for _, shape := range []layout.Shape{layout.Of(2, 4), layout.Of(1, 4).And(1, 3)} {
		a := NewAccumulator(shape, Form{Path: true})
		first, second := []float64{-3 * beyond, beyond, 1.7 * LossUnit, -beyond}, []float64{5 << 64 * SquareUnit, 0, 2.5 * SquareUnit, 1}
		want := []float64{-3 * beyond, beyond, 2 * LossUnit, -beyond}
		wantSecond := []float64{5 << 64 * SquareUnit, 0, 2 * SquareUnit, 1}
		for range 2 { // the second time it replaces what the first time left in the carries
			a.SetTerms(0, first, second)
		}
		b := NewTermsBuilder(shape, layout.NewMask(shape.Entries()))
		if err := b.AddTerms([]int32{0}, &Terms{Change: []float64{0, 1, 0, -1}, First: 8, Second: 2}); err != nil {
			t.Fatal(err)
		}
		if err := a.Merge(b.Partial()); err != nil {
			t.Fatal(err)
		}
		want[1], want[3], wantSecond[1], wantSecond[3] = want[1]+8, want[3]-8, 2, 3
		for i := range 4 {
			if g, d := a.Term(i); g != want[i] || d != wantSecond[i] {
				t.Errorf("entry %d has the terms %v and %v, expected %v and %v", i, g, d, want[i], wantSecond[i])
			}
		}
		if g, d := a.Term(5); g != 0 || d != 0 {
			t.Errorf("an entry of another feature has the terms %v and %v", g, d)
		}
		if len(a.carries) == 0 {
			t.Error("no sum has left int64")
		}
		a.SetTerms(0, make([]float64, 4), make([]float64, 4))
		if len(a.carries) != 0 {
			t.Errorf("carries %v of sums that are 0", a.carries)
		}
	}
}

// A partial whose multiples of 2^63 cannot be those of its rows is refused, and nothing of it is merged.
func TestValidateHigh(t *testing.T) {
	t.Parallel()
	shape := layout.Of(5, 2)
	for name, c := range map[string]struct {
		form  Form
		spoil func(p *Partial)
		want  string
	}{
		"abs":            {Form{}, func(p *Partial) { p.High.Abs[2] = -1 }, "negative sum in list 4 at position 2"},
		"square":         {Form{Path: true}, func(p *Partial) { p.High.Square[3] = -1 }, "negative sum in list 3 at position 3"},
		"loss":           {Form{}, func(p *Partial) { p.High.LossEmpty = -1 }, "negative loss or sum of squared residuals"},
		"previous":       {Form{Paired: true, Fields: 2}, func(p *Partial) { p.High.PreviousResidualSquare = -1 }, "negative loss or sum of squared residuals"},
		"large loss":     {Form{}, func(p *Partial) { p.High.LossFull = 81 }, "a sum of 81 times 2^63 over 40 rows"},
		"shared":         {Form{}, func(p *Partial) { p.High.Shared = math.MinInt64 }, "a sum of -9223372036854775808 times 2^63 over 40 rows"},
		"sum":            {Form{}, func(p *Partial) { p.High.Sum[1] = -81 }, "the sum of -81 times 2^63 over 40 rows in list 0 at position 1"},
		"many rows":      {Form{}, func(p *Partial) { p.Rows, p.High.Sum[1] = math.MaxInt64, math.MinInt64 }, "in list 0 at position 1"},
		"short":          {Form{Within: true}, func(p *Partial) { p.High.Within = p.High.Within[1:] }, "10 entries and 9 sums in list 7"},
		"no lists":       {Form{}, func(p *Partial) { p.High = &Partial{} }, "10 entries and 0 sums in list 3"},
		"low part":       {Form{}, func(p *Partial) { p.Square[0] = -1 }, "negative sum in list 2 at position 0"},
		"low loss":       {Form{}, func(p *Partial) { p.LossFull, p.High.LossFull = -1, 5 }, "negative loss"},
		"correction":     {Form{Corrected: true}, func(p *Partial) { p.High.Correction[0] = 90 }, "in list 3 at position 0"},
		"previous sum":   {Form{Paired: true, Fields: 2}, func(p *Partial) { p.High.PreviousSum[0] = 90 }, "in list 3 at position 0"},
		"previous loss":  {Form{Paired: true, Fields: 2}, func(p *Partial) { p.High.PreviousLossFull = 90 }, "a sum of 90 times"},
		"absent feature": {Form{}, func(p *Partial) { p.Features = p.Features[1:] }, "5 counts"},
	} {
		random := rand.New(rand.NewPCG(5, 6))
		var rows []*huge
		for range 40 {
			rows = append(rows, hugeRow(random, &shape, c.form))
		}
		p := hugeBuilder(t, shape, c.form, rows).Partial()
		a := NewAccumulator(shape, c.form)
		if c.form.Path { // the sums of so few rows are small
			p.needHigh()
			p.High.Sum, p.High.Square = make([]int64, len(p.Sum)), make([]int64, len(p.Sum))
		}
		if err := p.Validate(&shape, c.form); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c.spoil(p)
		if err := a.Merge(p); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, expected %q", name, err, c.want)
		}
		if !reflect.DeepEqual(a, NewAccumulator(shape, c.form)) {
			t.Errorf("%s: a partial that was refused changed the sums", name)
		}
	}
}
