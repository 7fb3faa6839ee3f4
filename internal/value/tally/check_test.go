package tally

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"shaver/internal/num/layout"
)

// checkOf returns the check of rows by its definition, without Fourths.
func checkOf(rows []*huge, shape *layout.Shape, form Form, walked, fresh int64) uint64 {
	sums, total := &exact{form: form}, new(big.Int)
	plusInt(total, int64(len(rows))+walked+fresh)
	add := func(feature int, x *big.Int, weights ...uint64) {
		x = new(big.Int).Mul(x, new(big.Int).SetUint64(weightOf(int32(feature))))
		for _, w := range weights {
			x.Mul(x, new(big.Int).SetUint64(w))
		}
		total.Add(total, x)
	}
	for _, r := range rows {
		sums.add(r, shape)
		for _, f := range r.features {
			add(int(f), big.NewInt(1)) // the count
		}
	}
	for k := range sums.heads {
		total.Add(total, &sums.heads[k])
	}
	list := uint64(1)
	for l := range Lists(form) {
		for f := range shape.Rows() {
			from, to := shape.Row(f)
			for entry := from; entry < to; entry++ {
				if x := sums.lists[l][entry]; x != nil {
					add(f, x, list, uint64(2*(to-entry)-1))
				}
			}
		}
		list *= mix
	}
	return total.And(total, new(big.Int).SetUint64(1<<64-1)).Uint64()
}

// The check of a partial is the weighted sum of what its rows add, in all forms, also if sums leave int64. It is that
// of the sums, and remains it if rows are joined, combined, or cut into ranges.
func TestCheck(t *testing.T) {
	for name, form := range hugeForms {
		for _, shape := range []layout.Shape{layout.Of(5, 3), layout.Of(3, 2).And(2, 1)} {
			random := rand.New(rand.NewPCG(3, 4))
			rows := make([]*huge, 400)
			for i := range rows {
				rows[i] = hugeRow(random, &shape, form)
			}
			b := hugeBuilder(t, shape, form, rows[:150])
			b.Join(hugeBuilder(t, shape, form, rows[150:]))
			b.AddWalked()
			partials := map[string]*Partial{"joined": b.Partial()}
			if !form.Paired {
				one, two := hugeBuilder(t, shape, form, rows[:150]).Partial(), hugeBuilder(t, shape, form, rows[150:])
				two.AddWalked()
				partials["combined"] = Combine(one, two.Partial())
			}
			for how, p := range partials {
				if p.High == nil && !form.Path {
					t.Fatalf("%s: all sums fit", name)
				}
				if want := checkOf(rows, &shape, form, 1, 0) + fourthsCheck(p.Fourths); p.Check != want {
					t.Errorf("%s, %s: check %d, expected %d", name, how, p.Check, want)
				}
				if err := p.Validate(&shape, p.Form()); err != nil {
					t.Errorf("%s, %s: %v", name, how, err)
				}
				if form.Paired || form.Path {
					continue
				}
				part := p.Part(1, 4)
				if err := part.Validate(&part.Shape, part.Form()); err != nil {
					t.Errorf("%s, %s: a range: %v", name, how, err)
				}
			}
		}
	}
}

// A fresh row counts in the check as its multiples count in the sums.
func TestCheckOfFreshRows(t *testing.T) {
	shape := layout.Of(5, 2)
	for name, form := range hugeForms {
		if form.Paired {
			continue
		}
		r := hugeRow(rand.New(rand.NewPCG(1, 1)), &shape, form)
		for i := range r.current.Sum {
			r.current.Sum[i] >>= 8
			if form.Corrected {
				r.current.Correction[i] >>= 8
			}
			if form.Within {
				r.within[i] >>= 8
			}
		}
		r.current.LossEmpty, r.current.Shared = r.current.LossFull, 0
		r.current.Weight, r.terms.Weight = 3, 3
		p := hugeBuilder(t, shape, form, []*huge{r}).Partial()
		if err := p.Validate(&shape, form); err != nil || p.Fresh != 1 {
			t.Errorf("%s: %d fresh rows: %v", name, p.Fresh, err)
		}
	}
}

// A path leaves out the features that have no other entries.
func TestCheckOfDroppedFeatures(t *testing.T) {
	shape := layout.Of(3, 2)
	dropped := layout.NewMask(6)
	dropped.Drop(0)
	dropped.Drop(1)
	dropped.Drop(2)
	b := NewTermsBuilder(shape, dropped)
	if err := b.AddTerms([]int32{0, 1, 2}, &Terms{LossFull: 5, Change: []float64{0, 0, 0, 1, -1, .5}, First: .3, Second: .2}); err != nil {
		t.Fatal(err)
	}
	p := b.Partial()
	if err := p.Validate(&shape, Form{Path: true}); err != nil || len(p.Features) != 2 {
		t.Errorf("features %v: %v", p.Features, err)
	}
}

// words returns pointers to the sums of p, and others to its other numbers.
func words(p *Partial) (sums, others []*int64) {
	for _, list := range p.AllLists() {
		for i := range *list {
			sums = append(sums, &(*list)[i])
		}
	}
	for i := range p.Count {
		others = append(others, &p.Count[i])
	}
	heads := p.heads()
	return sums, append(append(others, heads[:]...), &p.Rows, &p.Walked, &p.Fresh)
}

// Validate refuses a partial of which a bit is flipped, and one of which two sums have changed places or an amount
// has moved from one to another. A count or the sum of a row's losses is no exception.
func TestDamagedPartials(t *testing.T) {
	for name, form := range hugeForms {
		shape := layout.Of(3, 2).And(2, 3)
		random := rand.New(rand.NewPCG(5, 6))
		var rows []*huge
		for range 3 {
			r := hugeRow(random, &shape, form)
			for _, game := range []*Played{&r.current, &r.previous} { // as after a walk, so that all sums fit
				for i := range game.Sum {
					game.Sum[i] >>= 9
					if form.Corrected {
						game.Correction[i] >>= 9
					}
				}
				game.LossEmpty, game.Shared = game.LossFull, 0
			}
			for i := range r.within {
				r.within[i] >>= 9
			}
			rows = append(rows, r)
		}
		p := hugeBuilder(t, shape, form, rows).Partial()
		form = p.Form()
		if err := p.Validate(&shape, form); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		refused := func(what string, arguments ...any) {
			t.Helper()
			if p.Validate(&shape, form) == nil {
				t.Fatalf(name+": "+what, arguments...)
			}
		}
		sums, others := words(p)
		for i, word := range append(others, sums...) {
			for bit := range 64 {
				*word ^= 1 << bit
				refused("bit %d of number %d is flipped", bit, i)
				*word ^= 1 << bit
			}
		}
		for i := range p.Features {
			for bit := range 31 {
				p.Features[i] ^= 1 << bit
				refused("bit %d of feature %d is flipped", bit, i)
				p.Features[i] ^= 1 << bit
			}
		}
		for i := range p.Fourths {
			for k, sum := range p.Fourths[i].all() {
				for _, word := range []*uint64{&sum.Top, &sum.High, &sum.Low} {
					for bit := range 64 {
						*word ^= 1 << bit
						refused("bit %d of fourth powers %d of field %d is flipped", bit, k, i)
						*word ^= 1 << bit
					}
				}
			}
		}
		for i, a := range sums {
			for _, b := range sums[:i] {
				if *a != *b {
					*a, *b = *b, *a
					refused("two sums have changed places")
					*a, *b = *b, *a
				}
				*a, *b = *a+nat, *b-nat
				refused("1 nat has moved from a sum to another")
				*a, *b = *a-nat, *b+nat
			}
		}
		if err := p.Validate(&shape, form); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// A partial whose identity is off by more than rounding explains is refused, and one of an estimator without the identity is not.
func TestCheckIdentity(t *testing.T) {
	p := random(rand.New(rand.NewPCG(1, 2)), 10)
	for off, refused := range map[float64]bool{0: false, 50: false, 500: true} {
		p.Sum[3] += int64(off * EfficiencyTolerance * 2 * 10 * 2000 / LossUnit) // two walks, ten rows, losses of about 1,000 nat
		for _, e := range []Sampling{twoPasses, {Passes: 2, Walks: 2, Rows: 100}} {
			if err := p.CheckIdentity(e); (err != nil) != (refused && e.Efficient) {
				t.Errorf("%v times the tolerance, efficient %t: %v", off, e.Efficient, err)
			}
		}
		p.Sum[3] -= int64(off * EfficiencyTolerance * 2 * 10 * 2000 / LossUnit)
	}
}
