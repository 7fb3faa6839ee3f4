package rate

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/num/random"
)

// sample returns tables of one field with rows of two scales. Every third entry is dropped.
func sample(t *testing.T, codebook float32) *Tables {
	t.Helper()
	a := &model.Architecture{Kind: model.FM, FieldDims: []int{120, 40}, Dim: 8}
	n := a.Parameters()
	s := &Tables{Architecture: a, Entries: make([]float32, n), Dropped: make([]bool, n), Baseline: a.Zero(), Curvature: make([]float64, n), BaselineCurvature: make([]float64, a.BaselineSize())}
	for i := range s.Entries {
		u := random.At(1, random.Order, uint64(i), 3)
		s.Entries[i] = float32(u.Float64()*2 - 1)
		if i/8%2 == 0 {
			s.Entries[i] *= .1
		}
		s.Curvature[i] = u.Float64() * 1e-3
		s.Dropped[i] = i%3 == 0
	}
	for i := range s.Baseline.Values {
		s.Baseline.Values[i] = codebook * float32(i%5)
		s.BaselineCurvature[i] = .01
	}
	return s
}

// values returns the values that a reader of a choice gets.
func values(t *testing.T, s *Tables, c *Choice) (all []float32) {
	t.Helper()
	parts, err := compact.EncodeMixed(s.Architecture, s.Entries, s.Dropped, c.Baseline, c.Palette)
	if err != nil {
		t.Fatal(err)
	}
	table, err := compact.New(s.Architecture, compact.Mixed, parts)
	if err != nil {
		t.Fatal(err)
	}
	table.Rows(func(x []float32, _ []bool) { all = append(all, x...) })
	return all
}

// The rise that a choice states is that of the values that a reader gets. The higher the price of a
// bit, the fewer bytes and the more rise.
func TestPrices(t *testing.T) {
	t.Parallel()
	for _, codebook := range []float32{0, .25} {
		s := sample(t, codebook)
		c := NewChooser(s)
		var last *Choice
		for _, price := range []float64{1e-12, 1e-9, 1e-7, 1e-6, 1e-3} {
			found, err := c.Choose(price)
			if err != nil {
				t.Fatal(err)
			}
			rise := 0.0
			got := values(t, s, found)
			for i, v := range got {
				if e := float64(v) - float64(s.Entries[i]); !s.Dropped[i] {
					rise += s.Curvature[i] / 2 * e * e
				} else if e := float64(v) - float64(s.Baseline.Values[i/960*8+i%8]); math.Abs(e) > .3 && price < 1e-5 {
					t.Fatalf("dropped entry %d reads %v", i, v)
				}
			}
			if codebook == 0 && math.Abs(rise-found.Rise) > 1e-9+1e-6*rise {
				t.Errorf("price %g: rise %g, expected %g", price, found.Rise, rise)
			}
			if last != nil && (found.Bytes > last.Bytes || found.Rise < last.Rise) {
				t.Errorf("price %g: %d bytes and rise %g, but %d and %g for less", price, found.Bytes, found.Rise, last.Bytes, last.Rise)
			}
			last = found
		}
		if bits := last.Palette.Quantizers[0].Bits; bits != 2 {
			t.Errorf("the dearest bits are %d", bits)
		}
	}
}

// A palette that fits the rows costs less than one quantizer of as many bits for all of them.
func TestPaletteFits(t *testing.T) {
	t.Parallel()
	s := sample(t, 0)
	c := NewChooser(s)
	found, err := c.Choose(3e-7)
	if err != nil {
		t.Fatal(err)
	}
	least := math.Inf(1) // rise of the best even grid of 4 bits for all values
	for _, reach := range []float64{.6, .7, .8, .9, 1} {
		q := level{bits: 4, origin: -reach, step: 2 * reach / 15}
		least = min(least, q.rise(c.values, c.weights))
	}
	plain := &compact.Palette{Quantizers: []compact.Quantizer{{Bits: 4, Origin: -1, Step: 2. / 15}}, Rows: make([]uint8, 160)}
	parts, err := compact.EncodeMixed(s.Architecture, s.Entries, s.Dropped, s.Baseline, plain)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Bytes(parts.Bytes()); err != nil || got == nil || got.Rise > .7*least {
		t.Errorf("%+v: %v, expected much less rise than %g in %d bytes", got, err, least, parts.Bytes())
	}
	if len(found.Palette.Quantizers) < 2 {
		t.Errorf("rows of two scales share %v", found.Palette.Quantizers)
	}
}

// Bytes keeps to the budget and uses it. Rise keeps to its bound.
func TestBounds(t *testing.T) {
	t.Parallel()
	s := sample(t, .25)
	c := NewChooser(s)
	for _, bytes := range []int{500, 800, 1600, 1e6} {
		found, err := c.Bytes(bytes)
		if err != nil || found == nil || found.Bytes > bytes || bytes < 2000 && found.Bytes < bytes*8/10 {
			t.Errorf("%d bytes: %+v: %v", bytes, found, err)
		}
	}
	if found, err := c.Bytes(120); found != nil || err != nil {
		t.Errorf("120 bytes: %+v, %v", found, err)
	}
	var last *Choice
	for _, rise := range []float64{1e-9, 1e-4, 1e-2} {
		found, err := c.Rise(rise)
		if err != nil || found.Rise > rise || last != nil && found.Bytes > last.Bytes {
			t.Errorf("rise %g: %+v: %v", rise, found, err)
		}
		last = found
	}
}

// If tables have a Size, choices have its bytes, and keep to them.
func TestSizeOfTables(t *testing.T) {
	t.Parallel()
	const more = 1000
	s := sample(t, 0)
	own := func(dropped []bool, baseline model.Baseline, p *compact.Palette) (int, error) {
		parts, err := compact.EncodeMixed(s.Architecture, s.Entries, dropped, baseline, p)
		if err != nil {
			return 0, err
		}
		return parts.Bytes() + more, nil
	}
	plain, err := NewChooser(s).Bytes(800)
	if err != nil {
		t.Fatal(err)
	}
	s.Size = own
	if found, err := NewChooser(s).Bytes(800 + more); err != nil || found == nil || found.Bytes != plain.Bytes+more || found.Rise != plain.Rise {
		t.Errorf("%+v, %v, expected %d bytes and the rise %g", found, err, plain.Bytes+more, plain.Rise)
	}
	if found, err := NewChooser(s).Bytes(800); found != nil || err != nil {
		t.Errorf("%+v, %v, but no choice has so few bytes", found, err)
	}
}

// Entries without curvature, and tables without kept entries, do not disturb a choice.
func TestEmpty(t *testing.T) {
	t.Parallel()
	s := sample(t, .25)
	clear(s.Curvature)
	if found, err := NewChooser(s).Choose(1e-6); err != nil || found.Bytes == 0 {
		t.Error(found, err)
	}
	for name, clearOne := range map[string]func(s *Tables){"curvatures": func(s *Tables) { clear(s.Curvature) }, "entries": func(s *Tables) { clear(s.Entries) }} {
		plain := sample(t, 0)
		clearOne(plain) // no rounding raises the loss
		c := NewChooser(plain)
		few, err := c.Choose(1e9)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := c.Bytes(few.Bytes); err != nil || found == nil || found.Bytes != few.Bytes || found.Rise != 0 {
			t.Errorf("no %s: %+v, %v, expected %d bytes", name, found, err, few.Bytes)
		}
	}
	for i := range s.Dropped {
		s.Dropped[i] = true
	}
	for _, codebook := range []float32{0, 1} {
		s.Baseline.Values[3] = codebook
		if found, err := NewChooser(s).Choose(1e-6); err != nil || found.Rise > 1e-3 {
			t.Error(found, err)
		}
	}
}

// The row of a pad keeps its exact values.
func TestPads(t *testing.T) {
	t.Parallel()
	a := &model.Architecture{
		Kind: model.Graph, FieldDims: []int{5000}, Tables: []model.Table{{Name: "t", Rows: 5000, Dim: 2}},
		LookUps: []model.LookUp{{Field: 0, Table: 0}}, Lists: []model.List{{Length: 3, Pad: 7}},
	}
	if err := a.ValidateLayout(); err != nil {
		t.Fatal(err)
	}
	n := a.Parameters()
	s := &Tables{Architecture: a, Entries: make([]float32, n), Dropped: make([]bool, n), Baseline: a.Zero(), Curvature: make([]float64, n), BaselineCurvature: make([]float64, a.BaselineSize())}
	for i := range s.Entries {
		s.Entries[i], s.Curvature[i] = float32(math.Sin(float64(i))), 1e-6
	}
	found, err := NewChooser(s).Choose(1)
	if err != nil {
		t.Fatal(err)
	}
	if got := values(t, s, found); got[14] != s.Entries[14] || got[15] != s.Entries[15] || got[16] == s.Entries[16] {
		t.Errorf("the pad row reads %v, expected %v; the next %v", got[14:16], s.Entries[14:16], got[16:18])
	}
}

// Search finds the number of entries and the bits that together give the least loss, and keeps
// to its budget.
func TestSearch(t *testing.T) {
	t.Parallel()
	s := sample(t, .25)
	n := len(s.Entries)
	measured := 0
	search := &Search{Architecture: s.Architecture, Entries: s.Entries, Baseline: s.Baseline, Order: make([]int32, n), Most: n}
	for i := range search.Order {
		search.Order[i] = int32(i * 7 % n)
	}
	search.Measure = func(_ context.Context, dropped []bool) (*Measured, error) {
		measured++
		kept := 0
		for _, gone := range dropped {
			if !gone {
				kept++
			}
		}
		return &Measured{Loss: .5 + .1*math.Exp(-float64(kept)/160), Curvature: s.Curvature, BaselineCurvature: s.BaselineCurvature}, nil
	}
	search.Risen = func(_ context.Context, f *Found) (float64, error) { return 2 * f.Rise, nil }
	found, err := search.Bytes(t.Context(), 400)
	if err != nil || found == nil || found.Bytes > 400 {
		t.Fatalf("%v: %v", found, err)
	}
	for _, drop := range Ladder(n, 0, search.Most) { // no number that it could have chosen is better
		c, other, err := search.chooser(t.Context(), drop)
		if err != nil {
			t.Fatal(err)
		}
		if other.Choice, err = c.Bytes(400); err != nil {
			t.Fatal(err)
		}
		if other.Choice != nil && other.Loss+2*other.Rise < found.Loss+found.Risen-1e-4 {
			t.Errorf("%d dropped: a loss of %g, which is better than %g", drop, other.Loss+2*other.Rise, found.Loss+found.Risen)
		}
	}
	if found, err := search.Bytes(t.Context(), 10); found != nil || err != nil {
		t.Errorf("10 bytes: %v, %v", found, err)
	}
	kept, err := search.Kept(t.Context(), n/2, 1e-3)
	if err != nil || kept.Risen > 1e-3 || kept.Rise < 2e-4 || math.Abs(kept.Risen-2*kept.Rise) > 1e-9 || slices.Index(kept.Dropped, true) < 0 {
		t.Errorf("%v, which rises by %g as measured: %v", kept, kept.Risen, err)
	}
	times := 0 // if every choice rises by too much, it is the one that rises least
	search.Risen = func(_ context.Context, f *Found) (float64, error) {
		times++
		return 1e-2 + f.Rise, nil
	}
	if found, err := search.Kept(t.Context(), n/2, 1e-3); err != nil || times != attempts || found.Rise >= kept.Rise {
		t.Errorf("%v after %d attempts: %v", found, times, err)
	}
	broken := errors.New("broken")
	search.Risen = func(context.Context, *Found) (float64, error) { return 0, broken }
	if _, err := search.Kept(t.Context(), n/2, 1e-3); !errors.Is(err, broken) {
		t.Error(err)
	}
	search.Measure = func(context.Context, []bool) (*Measured, error) { return nil, broken }
	if _, err := search.Kept(t.Context(), n/2, 1e-3); !errors.Is(err, broken) {
		t.Error(err)
	}
}
