package paired

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/jobs/scores"
	"shaver/internal/value/tally"
)

var _ Sums = (*tally.Accumulator)(nil)

// changes are retrainings: what is kept of the contributions, and how much is new.
var changes = map[string]struct{ keep, change float64 }{"light": {.99, .05}, "heavy": {.7, .6}, "unrelated": {0, 1}}

// between fails the test unless v is in [least, most].
func between(t *testing.T, what string, v, least, most float64) {
	t.Helper()
	if !(v >= least && v <= most) {
		t.Errorf("%s is %.4f, expected %g to %g", what, v, least, most)
	}
}

// Over many samples, the values are those of a full job on average, the errors have the
// predicted size, and 95% intervals of phi and abs hold. The intervals of rms are a little
// less exact, because the variance of squares is known only for whole fields. Pairing is
// never worse than a plain sample of the same rows.
func TestSamples(t *testing.T) {
	const repeats = 200
	for name, c := range changes {
		w := newWorld(8000, 5)
		w.retrain(c.keep, c.change)
		previous := w.job(w.allRows(), 0)
		for a, q := range w.measure(func() *scores.File { return previous }, 800, 1, repeats) {
			name := name + ", " + []string{"sum", "abs", "rms"}[a]
			if a == square {
				between(t, name+": portion of covering intervals", float64(q.covered)/float64(q.intervals), .92, .97)
				between(t, name+": root mean square error over the predicted one", math.Sqrt(q.square/q.predicted), .5, 1.15)
			} else {
				between(t, name+": portion of covering intervals", float64(q.covered)/float64(q.intervals), .93, .97)
				between(t, name+": root mean square error over the predicted one", math.Sqrt(q.square/q.predicted), .9, 1.1)
				between(t, name+": mean squared bias over what chance explains", q.bias*repeats/q.square, .4, 1.6)
			}
			between(t, name+": error in rare features over the predicted one", math.Sqrt(q.rareSquare/q.rarePredict), .3, 1.25)
			most := map[string]float64{"light": .01, "heavy": .6, "unrelated": 1.03}[name[:len(name)-5]]
			between(t, name+": variance over that of a plain sample", q.square/q.plain, 0, most)
		}
	}
}

// The error of a previous job that scored a sample, and those of several paired jobs in a
// row, accumulate as predicted.
func TestInheritedErrors(t *testing.T) {
	const repeats = 150
	w := newWorld(8000, 6)
	for range 3 {
		w.retrain(.9, .3)
	}
	full := w.job(w.allRows(), 0)
	for name, c := range map[string]struct {
		previous func() *scores.File
		model    int
	}{
		"sample":          {func() *scores.File { return w.job(w.allRows()[:1600], 0) }, 1},
		"two paired jobs": {func() *scores.File { f := w.paired1(full, 800, 1); return w.paired1(f, 800, 2) }, 3},
	} {
		for a, q := range w.measure(c.previous, 800, c.model, repeats) {
			name := name + ", " + []string{"sum", "abs", "rms"}[a]
			between(t, name+": root mean square error over the predicted one", math.Sqrt(q.square/q.predicted), .88, 1.15)
			if a != square {
				between(t, name+": portion of covering intervals", float64(q.covered)/float64(q.intervals), .93, .97)
			}
			between(t, name+": variance over that of a plain sample", q.square/q.plain, 0, .6)
		}
	}
}

// A previous value with an error counts less. If the model has not changed and the previous
// job scored as many rows as this one, both count about the same.
func TestCoefficientOfUncertainValues(t *testing.T) {
	w := newWorld(8000, 13)
	w.models = append(w.models, w.models[0])
	for _, c := range []struct{ rows, want float64 }{{8000, 1}, {800, .5}, {2400, .79}} {
		_, f, _ := w.paired(w.job(w.allRows()[:int(c.rows)], 0), 800, 1)
		for _, g := range f.Lineage.Fields {
			for _, b := range []float64{g.Sum, g.Abs, g.RMS} {
				between(t, "coefficient in field "+g.Field, b, c.want-.05, c.want+.05)
			}
		}
	}
}

// Without what pairing adds, the standard errors are those of a full job with the new model,
// whose contributions are three times as large.
func TestErrorsOfFullJob(t *testing.T) {
	w := newWorld(8000, 14)
	w.retrain(3, .5)
	_, f, _ := w.paired(w.job(w.allRows(), 0), 1600, 1)
	truth := w.job(w.allRows(), 1)
	var dataset, population, want float64
	for i := range f.SE {
		added := squared(f.PairedSE[i])
		dataset, population, want = dataset+squared(f.SE[i])-added, population+squared(f.PopulationSE[i])-added, want+squared(truth.SE[i])
	}
	between(t, "variance on the dataset over that of a full job", dataset/want, .93, 1.07)
	between(t, "variance in the population over that of a full job", population/want, .93, 1.07)
}

// paired1 returns only the file of a paired job.
func (w *world) paired1(previous *scores.File, n, m int) *scores.File {
	_, f, _ := w.paired(previous, n, m)
	return f
}

// same reports whether two files have the same values, ignoring PairedSE and its like.
func same(a, b *scores.File) bool {
	return slices.Equal(a.Phi, b.Phi) && slices.Equal(a.Abs, b.Abs) && slices.Equal(a.RMS, b.RMS) && slices.Equal(a.SE, b.SE) && slices.Equal(a.PopulationSE, b.PopulationSE)
}

// If the model has not changed, the values equal the previous ones bit for bit, and nothing
// is added to their errors.
func TestUnchangedModel(t *testing.T) {
	w := newWorld(1003, 7)
	w.models = append(w.models, w.models[0])
	previous := w.job(w.allRows(), 0)
	for i := range previous.SE { // as after several passes
		previous.SE[i] *= .7
	}
	_, f, _ := w.paired(previous, 101, 1)
	if !same(f, previous) || f.LossFull != previous.LossFull+(.41-.4) {
		t.Error("the values of an unchanged model differ from the previous ones")
	}
	for _, se := range [][]float32{f.PairedSE, f.AbsPairedSE, f.RMSPairedSE} {
		if slices.Max(se) != 0 {
			t.Errorf("pairing adds the error %v, expected 0", slices.Max(se))
		}
	}
	l := f.Lineage
	want := scores.PairedField{Field: "many", Reduction: scores.MaxReduction, Sum: 1, Abs: 1, RMS: 1}
	if l.Error != 0 || l.Reduction != scores.MaxReduction || l.Fields[1] != want || l.Doubt(1003) != "" {
		t.Errorf("lineage %+v", l)
	}
}

// A paired job on all rows has the values and counts of a full job bit for bit, whatever the
// previous values are.
func TestAllRows(t *testing.T) {
	w := newWorld(1003, 8)
	w.retrain(.7, .6)
	w.retrain(.7, .6)
	inOrder := make([]int, w.rows)
	for r := range inOrder {
		inOrder[r] = r
	}
	earlier, count := w.job(w.allRows(), 0), w.add(inOrder, 2).count
	for name, previous := range map[string]*scores.File{"full": w.job(inOrder, 1), "sample": w.job(inOrder[:300], 1), "paired": w.paired1(earlier, 100, 1)} {
		e := New(w.add(inOrder, 2), w.add(inOrder[:500], 2), w.sampling(), previous)
		f := *previous
		f.Values = tally.NewPairedValues(w.entries())
		for feature := range w.of {
			e.Values(feature, f.Part(f.Shape.Row(feature)))
		}
		if !same(&f, w.job(inOrder, 2)) {
			t.Errorf("after a %s job, the values of a paired job on all rows differ from those of a full job", name)
		}
		r := e.Result(&tally.Result{Rows: 1003, Scores: tally.Scores{Count: count}})
		if r.Rows != 1003 || !slices.Equal(r.Count, count) {
			t.Errorf("after a %s job: %d rows with the counts %v", name, r.Rows, r.Count)
		}
		if l := e.Lineage("c"); l.Error != 0 || l.Fields[0].Sum != 0 || l.Doubt(int64(w.rows)) == "" {
			t.Errorf("after a %s job: lineage %+v", name, l)
		}
	}
}

// For unrelated models b is near 0, and the lineage says that pairing did not pay. After a
// light change b is near what was kept, and pairing paid.
func TestLineage(t *testing.T) {
	for name, c := range changes {
		w := newWorld(8000, 9)
		w.retrain(c.keep, c.change)
		_, f, _ := w.paired(w.job(w.allRows(), 0), 1600, 1)
		l := f.Lineage
		for _, g := range l.Fields {
			between(t, name+": coefficient of field "+g.Field, g.Sum, c.keep-.1, c.keep+.1)
		}
		if paid := l.Doubt(8000) == ""; paid != (name == "light") && name != "heavy" {
			t.Errorf("%s: %q, lineage %+v", name, l.Doubt(8000), l)
		}
		if l.Generation != 1 || !slices.Equal(l.Models, []string{"a", "b"}) || l.Rows != 1600 {
			t.Errorf("%s: lineage %+v", name, l)
		}
		if name != "light" {
			continue
		}
		between(t, "reduction", l.Reduction, 200, 600)
		between(t, "portion of a plain sample's error", l.Error/l.Plain, .03, .15)
		_, again, _ := w.paired(f, 400, 1)
		if m := again.Lineage; m.Generation != 2 || !slices.Equal(m.Models, []string{"a", "b", "b"}) {
			t.Errorf("lineage of a second paired job %+v", m)
		}
	}
}

// An entry in none of the sampled rows has an error, unless it never occurs. A feature that
// the previous model lacks has the value of a plain sample.
func TestFewRows(t *testing.T) {
	w := newWorld(8000, 10)
	w.retrain(.9, .3)
	previous := w.job(w.allRows(), 0)
	frequent := slices.Index(previous.Count, slices.Max(previous.Count[8:158]))
	never := slices.Index(previous.Count, slices.Min(previous.Count[8:158]))
	previous.Count[frequent] = 0
	for c := range dim {
		i := frequent*dim + c
		previous.Phi[i], previous.Abs[i], previous.RMS[i], previous.SE[i], previous.PopulationSE[i] = 0, 0, 0, 0, 0
		for _, m := range w.models[:1] {
			for at := range m {
				if w.entry(at) == i {
					m[at] = 0
				}
			}
		}
	}
	e, f, count := w.paired(previous, 200, 1)
	unsampled := 0
	for feature, k := range count {
		if k > 0 {
			continue
		}
		unsampled++
		for c := range dim {
			for _, se := range [][]float32{f.PairedSE, f.AbsPairedSE, f.RMSPairedSE, f.SE, f.PopulationSE} {
				if !(se[feature*dim+c] > 0) {
					t.Errorf("feature %d occurs in %d rows and in no sampled one, and has the error %v", feature, previous.Count[feature], se[feature*dim+c])
				}
			}
		}
	}
	if unsampled == 0 {
		t.Error("all features are in the sample: the test proves nothing")
	}
	// Earlier values of 0 say nothing about the new model.
	zero, hidden := *previous, slices.IndexFunc(count[8:158], func(k int64) bool { return k == 0 })+8
	zero.Values = tally.NewValues(w.entries())
	for _, lists := range [][2][]float32{{zero.Abs, previous.Abs}, {zero.RMS, previous.RMS}, {zero.SE, previous.SE}, {zero.PopulationSE, previous.PopulationSE}} {
		copy(lists[0], lists[1])
		clear(lists[0][hidden*dim : (hidden+1)*dim])
	}
	errs := tally.NewPairedValues(dim)
	New(e.all, e.first, w.sampling(), &zero).Values(hidden, errs)
	for c := range dim {
		if previous.Count[hidden] == 0 || errs.RMS[c] != 0 || !(errs.PairedSE[c] > 0) || !(errs.AbsPairedSE[c] > 0) || !(errs.RMSPairedSE[c] > 0) {
			t.Errorf("feature %d occurs in %d rows and in no sampled one; its values were 0, and its errors are %+v", hidden, previous.Count[hidden], errs)
		}
	}
	sums := w.add([]int{}, 1)
	for c := range dim {
		e.all.Paired(frequent, w.sampling(), sums.pairs[frequent*dim:])
		i := frequent*dim + c
		if want := sums.pairs[i].Sum / 200; f.Phi[i] != want || want == 0 || f.PairedSE[i] == 0 || f.SE[i] < f.PairedSE[i] {
			t.Errorf("a new feature has the value %v and the errors %v and %v, expected %v and errors above 0", f.Phi[i], f.PairedSE[i], f.SE[i], want)
		}
	}
	absent := *previous
	absent.Count, absent.Values = slices.Clone(previous.Count), tally.NewValues(w.entries())
	for i := range absent.Phi {
		absent.Phi[i], absent.Abs[i], absent.RMS[i] = previous.Phi[i], previous.Abs[i], previous.RMS[i]
	}
	absent.Count[never] = 0
	for c := range dim {
		absent.Phi[never*dim+c], absent.Abs[never*dim+c], absent.RMS[never*dim+c] = 0, 0, 0
	}
	without := make([]int, 0, 300)
	for r := range w.rows {
		if w.features[1][r] != never && len(without) < cap(without) {
			without = append(without, r)
		}
	}
	v := tally.NewPairedValues(dim)
	New(w.add(without, 1), w.add(without[:100], 1), w.sampling(), &absent).Values(never, v)
	if !reflect.DeepEqual(v, tally.NewPairedValues(dim)) {
		t.Errorf("a feature that never occurs has the values %+v", v)
	}
}

// Without two halves, all coefficients are 1. A job with a single row has finite values and
// errors.
func TestNoHalves(t *testing.T) {
	w := newWorld(1000, 11)
	w.retrain(.7, .6)
	previous := w.job(w.allRows(), 0)
	rows := w.allRows()
	all := w.add(rows[:100], 1)
	for name, first := range map[string]Sums{"none": nil, "empty": w.add(nil, 1), "all": all} {
		e := New(all, first, w.sampling(), previous)
		for _, g := range e.Lineage("b").Fields {
			if g.Sum != 1 || g.Abs != 1 || g.RMS != 1 {
				t.Errorf("%s: coefficients %+v, expected 1", name, g)
			}
		}
		if e.Halves(0, make([]float64, dim), make([]float64, dim)) {
			t.Errorf("%s: there are halves", name)
		}
		v := tally.NewPairedValues(dim)
		e.Values(3, v)
		p := all.pairs[3*dim]
		between(t, name+": value", v.Phi[0]-(previous.Phi[3*dim]+(p.Sum-p.PreviousSum)/100), -1e-15, 1e-15)
	}
	e := New(w.add(rows[:1], 1), nil, w.sampling(), previous)
	for feature := range w.of {
		v := tally.NewPairedValues(dim)
		e.Values(feature, v)
		for c := range dim {
			for _, x := range []float64{v.Phi[c], float64(v.Abs[c]), float64(v.RMS[c]), float64(v.SE[c]), float64(v.PairedSE[c]), float64(v.AbsPairedSE[c]), float64(v.RMSPairedSE[c])} {
				if math.IsNaN(x) || math.IsInf(x, 0) {
					t.Fatalf("one row: feature %d has the values %+v", feature, v)
				}
			}
			if v.RMS[c] < v.Abs[c] || float64(v.Abs[c]) < math.Abs(v.Phi[c])*(1-1e-6) {
				t.Errorf("one row: feature %d has rms %v, abs %v and phi %v", feature, v.RMS[c], v.Abs[c], v.Phi[c])
			}
		}
	}
}

// The halves average to the value, the error of the lineage is that of the values, and nil
// slices are skipped.
func TestFigures(t *testing.T) {
	w := newWorld(4000, 12)
	w.retrain(.9, .3)
	e, f, _ := w.paired(w.job(w.allRows(), 0), 401, 1)
	a, b := make([]float64, dim), make([]float64, dim)
	for feature := range w.of {
		if !e.Halves(feature, a, b) {
			t.Fatal("no halves")
		}
		for c := range dim {
			if got, want := (200*a[c]+201*b[c])/401, f.Phi[feature*dim+c]; math.Abs(got-want) > 1e-12 {
				t.Errorf("the halves of feature %d average to %v, expected %v", feature, got, want)
			}
		}
	}
	var variance, phi2 float64
	for i, phi := range f.Phi {
		phi2, variance = phi2+phi*phi, variance+squared(f.PairedSE[i])
	}
	between(t, "relative error over that of the lineage", math.Sqrt(variance/phi2)/f.Lineage.Error, 1-1e-6, 1+1e-6)
	only := tally.Values{Phi: make([]float64, dim)}
	if e.Values(2, only); only.Phi[0] != f.Phi[2*dim] {
		t.Errorf("Values with only Phi gives %v, expected %v", only.Phi[0], f.Phi[2*dim])
	}
	r := e.Result(&tally.Result{LossFull: .1, LossEmpty: .2, EfficiencyError: 3})
	between(t, "loss", r.LossFull-(.5+.1-.4), -1e-12, 1e-12)
	between(t, "loss with everything dropped", r.LossEmpty-(.7+.2-.6), -1e-12, 1e-12)
	if r.Rows != 4000 || r.EfficiencyError != 3 || r.Phi != nil || &r.Count[0] != &f.Count[0] {
		t.Errorf("result %+v", r)
	}
}

// RootVariance is the inverse of RootError.
func TestRootError(t *testing.T) {
	for _, variance := range []float64{0, 1e-9, 1e-3, 1, 50} {
		for _, root := range []float64{0, 1e-6, .3, 2} {
			if got := RootVariance(RootError(variance, root), root); math.Abs(got-variance) > 1e-12*variance {
				t.Errorf("variance %v of the square of %v becomes %v", variance, root, got)
			}
		}
	}
}

// If a retraining changes the contributions of rows at random, their means hardly change, and the noise of a
// small sample is larger than the change. The lineage then says that the previous values are
// closer. It does not say so after a change that the sample can see.
func TestPreviousValuesAreCloser(t *testing.T) {
	const worlds = 40
	said, wrong := 0, 0
	for seed := range uint64(worlds) {
		w := newWorld(8000, seed)
		next := slices.Clone(w.models[0])
		for i := range next {
			next[i] += .003 * w.random.NormFloat64()
		}
		w.models = append(w.models, next)
		previous, truth := w.job(w.allRows(), 0), w.job(w.allRows(), 1)
		_, f, _ := w.paired(previous, 400, 1)
		relative := func(f *scores.File) float64 {
			off, all := 0.0, 0.0
			for i, v := range truth.Phi {
				off, all = off+(f.Phi[i]-v)*(f.Phi[i]-v), all+v*v
			}
			return math.Sqrt(off / all)
		}
		if f.Lineage.Previous == nil {
			continue
		}
		said++
		if relative(previous) >= relative(f) || *f.Lineage.Previous >= f.Lineage.Error || !strings.HasPrefix(f.Lineage.Doubt(8000), "the previous values are closer") {
			wrong++
		}
	}
	if said < worlds*9/10 || wrong > worlds/20 {
		t.Errorf("in %d of %d worlds the previous values are said to be closer, %d times wrongly", said, worlds, wrong)
	}
	for name, c := range changes {
		w := newWorld(8000, 11)
		w.retrain(c.keep, c.change)
		if _, f, _ := w.paired(w.job(w.allRows(), 0), 1600, 1); f.Lineage.Previous != nil {
			t.Errorf("%s: the previous values are said to be closer: %+v", name, f.Lineage)
		}
	}
}
