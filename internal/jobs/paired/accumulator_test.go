package paired

import (
	"testing"

	"shaver/internal/jobs/scores"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

// walks is the number of walks of each row in the test with accumulators. Division by it is
// not exact.
const walks = 3

// units returns the contributions of a row under a model, in LossUnits, summed over walks. If
// corrected is set, they are a base and a correction.
func (w *world) units(row, m int, corrected bool) *tally.Played {
	p := &tally.Played{}
	n := len(w.dims) * dim
	total := int64(0)
	for _, c := range w.models[m][row*n : (row+1)*n] {
		x := int64(c / tally.LossUnit * walks)
		if corrected {
			z := x/3 + int64(row%7-3)<<30
			p.Correction, total = append(p.Correction, z), total+z
		}
		p.Sum, total = append(p.Sum, x), total+x
	}
	p.LossFull = 10 / tally.LossUnit
	p.LossEmpty = p.LossFull + total/walks
	return p
}

// accumulate returns the sums of model m over rows, and those of a paired job if e is one.
func (w *world) accumulate(t *testing.T, rows []int, m int, e tally.Sampling) *tally.Accumulator {
	t.Helper()
	shape := layout.Of(len(w.of), dim)
	form := e.Form(len(w.dims))
	a, b := tally.NewAccumulator(shape, form), tally.NewBuilder(shape, walks, form)
	for _, r := range rows {
		features := []int32{int32(w.features[0][r]), int32(w.features[1][r]), int32(w.features[2][r])}
		now := w.units(r, m, e.Corrected)
		var err error
		if e.Paired {
			err = b.AddPair(features, []int{0, 1, 2}, now, w.units(r, m-1, e.Corrected))
		} else {
			err = b.Add(features, now, nil)
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

// With the integer sums of an accumulator, too, an unchanged model keeps all values, and a
// job on all rows has the values of a full job, bit for bit.
func TestAccumulators(t *testing.T) {
	w := newWorld(503, 15)
	w.retrain(.7, .6)
	w.models = append(w.models, w.models[1])
	all := w.allRows()
	for _, corrected := range []bool{false, true} {
		e := tally.Sampling{Passes: 1, Walks: walks, Rows: int64(w.rows), Corrected: corrected}
		pair := e
		pair.Paired = true
		full := func(m int) *scores.File {
			f := w.job(all, m)
			a := w.accumulate(t, all, m, e)
			for feature := range w.of {
				a.Values(feature, e, f.Part(f.Shape.Row(feature)))
			}
			return f
		}
		for name, c := range map[string]struct{ rows, model int }{"unchanged": {97, 2}, "all rows": {503, 1}, "all rows, unchanged": {503, 2}} {
			previous := full(c.model - 1)
			s := New(w.accumulate(t, all[:c.rows], c.model, pair), w.accumulate(t, all[:c.rows/2], c.model, pair), pair, previous)
			f := *previous
			f.Values = tally.NewPairedValues(w.entries())
			for feature := range w.of {
				s.Values(feature, f.Part(f.Shape.Row(feature)))
			}
			if !same(&f, full(c.model)) {
				t.Errorf("%s, corrected %t: the values differ from those of a full job", name, corrected)
			}
			if l := s.Lineage("x"); l.Error != 0 {
				t.Errorf("%s, corrected %t: lineage %+v", name, corrected, l)
			}
		}
	}
}
