package train

import (
	"math"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/composed"
	"shaver/internal/click/model"
)

// composedOptions are trainings of the golden DeepFM with composed tables.
func composedOptions() map[string]Options {
	base := Options{Optimizer: Adam, LearningRate: 1e-2, WeightDecay: 1e-3, Dropout: .2, Batch: 50, Seed: 7}
	with := func(s composed.Shape, change func(o *Options)) Options {
		o := base
		o.Composed = InitialTable(s, 7)
		change(&o)
		return o
	}
	return map[string]Options{
		"qr":       with(composed.ForDivider(19, 5, 4), func(*Options) {}),
		"tt":       with(composed.ForRanks(19, 5, []int{3, 2}, 0), func(*Options) {}),
		"tt-cache": with(composed.ForRanks(19, 5, []int{3, 2}, 3), func(o *Options) { o.Cached = []int32{1, 9, 18} }),
		"cerp": with(composed.ForBuckets(19, 5, 8), func(o *Options) {
			o.Find = &Find{Method: CERP, Keep: 20, WarmUp: 8, Rate: .2}
		}),
		"cerp-kept": with(composed.ForBuckets(19, 5, 8), func(o *Options) {
			mask := make([]bool, 80)
			for i := range mask {
				mask[i] = i%3 != 0
			}
			o.Composed.Keep(mask)
		}),
	}
}

// composedRun returns a run of 5 epochs with a composed table.
func composedRun(t *testing.T, name string) *Run {
	t.Helper()
	rows := goldenRows(t)
	return &Run{Trainer: newTrainer(t, goldenModel(t, "deepfm", 0), composedOptions()[name]), Rows: rows, Epochs: 5, Shuffle: true, Measure: measureOn(rows)}
}

// bits returns the state of a trainer and the embeddings.
func bitsOf(t *Trainer) (all []uint32) {
	for _, v := range append(t.State(), Vector{Values: t.Parameters().Embedding}) {
		for _, x := range v.Values {
			all = append(all, math.Float32bits(x))
		}
	}
	return all
}

// A training of a composed table learns. It has the same bytes on any number of cores, and if it
// continues after any epoch. The small form gives the embeddings that evaluation reads.
func TestComposedRuns(t *testing.T) {
	for name := range composedOptions() {
		var want []uint32
		for _, cores := range []int{1, 2, 7} {
			setCores(t, cores)
			r := composedRun(t, name)
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r.Best < 1 || !(*r.History[4].Loss < *r.History[0].Loss) {
				t.Errorf("%s: the loss goes from %v to %v", name, *r.History[0].Loss, *r.History[4].Loss)
			}
			got := bitsOf(r.Trainer)
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: other bytes on %d cores", name, cores)
			}
			if c := r.Trainer.Composed(); c != nil {
				e := make([]float32, 19*5)
				if c.All(e); c.Check() != nil || !slices.Equal(e, r.Trainer.Parameters().Embedding) {
					t.Errorf("%s: the small form has other embeddings (%v)", name, c.Check())
				}
			} else if name != "cerp" {
				t.Errorf("%s has no small form", name)
			}
		}
		for stop := 1; stop < 5; stop++ {
			short, second := composedRun(t, name), composedRun(t, name)
			short.Epochs = stop
			if err := short.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			state := short.Trainer.State()
			for i, v := range second.Trainer.State() {
				copy(v.Values, state[i].Values)
			}
			second.Trainer.Resume(short.Trainer.Steps())
			second.History, second.Best = short.History, short.Best
			if err := second.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(bitsOf(second.Trainer), want) {
				t.Errorf("%s: other bytes after a stop in epoch %d", name, stop)
			}
		}
	}
}

// The cache is not in use in the first epoch. Its end changes no embedding, and after it the cached
// features have rows that the cores do not give them. A table that is written before has the cache.
func TestCacheIsFilledOnce(t *testing.T) {
	r := composedRun(t, "tt-cache")
	table := r.Trainer.table.(*composedTable)
	rows := goldenRows(t).Slice(0, 50)
	r.Trainer.Step(&rows, 1)
	before := slices.Clone(r.Trainer.Parameters().Embedding)
	if c := r.Trainer.Composed(); table.table.Cache != nil || !slices.Equal(c.Cache, []int32{1, 9, 18}) || c.Check() != nil {
		t.Errorf("in the first epoch the cache is %v, and the small form has %v (%v)", table.table.Cache, c.Cache, c.Check())
	}
	for _, x := range table.tensors[3].values {
		if x != 0 {
			t.Fatalf("the cache has the value %v before it is in use", x)
		}
	}
	r.Trainer.firstEnded(false)
	if !slices.Equal(r.Trainer.Parameters().Embedding, before) {
		t.Error("the end of the first epoch changes embeddings")
	}
	filled := slices.Clone(table.tensors[3].values)
	r.Trainer.Step(&rows, 2)
	after := slices.Clone(r.Trainer.Parameters().Embedding)
	cores := *table.table
	cores.Cache = nil
	plain := make([]float32, len(after))
	cores.All(plain)
	for f := range 19 {
		cached := slices.Contains([]int{1, 9, 18}, f)
		if same := slices.Equal(plain[f*5:f*5+5], after[f*5:f*5+5]); same == cached {
			t.Errorf("feature %d has the row of the cores: %v", f, same)
		}
	}
	if slices.Equal(filled, table.tensors[3].values) {
		t.Error("the rows of the cache do not move")
	}
}

// While the thresholds of CERP are 0, the table is the sum of both tables to the bit. When they have
// grown, exactly Keep entries are kept. These include all that the thresholds leave, and none that no
// embedding reads.
func TestCERPFinds(t *testing.T) {
	o := composedOptions()["cerp"]
	o.Find = &Find{Method: CERP, Keep: 20, WarmUp: 5000, Rate: .2}
	trainer := newTrainer(t, goldenModel(t, "deepfm", 0), o)
	want := make([]float32, 19*5)
	o.Composed.All(want)
	if !slices.Equal(trainer.Parameters().Embedding, want) {
		t.Error("with thresholds of 0 the embeddings are not P + Q")
	}
	if n := trainer.Remaining(); n != (8+o.Composed.Shape.ReadRows())*5 {
		t.Errorf("%d entries remain at the start", n)
	}
	for _, keep := range []int{20, 54} { // fewer and more than the read entries of P
		o := composedOptions()["cerp"]
		o.Find.Keep = keep
		trainer = newTrainer(t, goldenModel(t, "deepfm", 0), o)
		r := &Run{Trainer: trainer, Rows: goldenRows(t), Epochs: 100, Until: func() bool { return trainer.Remaining() <= keep }}
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if trainer.Remaining() > keep {
			t.Fatalf("%d entries remain after %d epochs, expected at most %d", trainer.Remaining(), len(r.History), keep)
		}
		table := trainer.table.(*cerpTable)
		table.soften()
		kept, count, alive := trainer.Kept(), 0, 0
		read := slices.Concat(table.read()[0], table.read()[1])
		for i, in := range kept {
			if in {
				count++
			}
			reads := i < 40+table.readEntries()
			if reads && read[i] != 0 {
				alive++
			}
			if in && !reads || reads && read[i] != 0 && !in {
				t.Errorf("entry %d, which reads %v, is kept: %v", i, read[i], in)
			}
		}
		if count != keep || alive != trainer.Remaining() {
			t.Errorf("%d entries are kept and %d remain, expected %d and %d", count, alive, keep, trainer.Remaining())
		}
	}
}

// The entries that PEP and CERP drop read 0 after any step of the second training, in which the others
// start from their initial values.
func TestDroppedReadZero(t *testing.T) {
	r := composedRun(t, "cerp-kept")
	c := r.Trainer.Composed()
	initial := InitialTable(c.Shape, 7)
	for k := range 2 {
		for i, in := range c.Kept[k] {
			if v := c.Tensors[k].Values[i]; in && v != initial.Tensors[k].Values[i] || !in && v != 0 {
				t.Fatalf("table %d starts with %v at %d, kept: %v", k, v, i, in)
			}
		}
	}
	r.Done = func(Epoch, bool) error { return r.Trainer.Composed().Check() }
	if err := r.Run(t.Context()); err != nil {
		t.Error(err)
	}
	golden := goldenModel(t, "deepfm", 0)
	finder := newTrainer(t, golden, Options{Optimizer: Adam, LearningRate: 1e-2, WeightDecay: 1e-3, Batch: 50, Seed: 7, Find: &Find{Method: PEP, Keep: 30, WarmUp: 8, Rate: .2}})
	rows := goldenRows(t)
	find := &Run{Trainer: finder, Rows: rows, Epochs: 100, Until: func() bool { return finder.Remaining() <= 30 }}
	if err := find.Run(t.Context()); err != nil || finder.Remaining() > 30 {
		t.Fatalf("%d entries remain (%v)", finder.Remaining(), err)
	}
	p, err := golden.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	kept := finder.Kept()
	dropped := make([]bool, len(kept))
	for i, in := range kept {
		if dropped[i] = !in; !in {
			p.Embedding[i] = 0
		}
	}
	trainer, err := New(golden.Architecture, p, Options{Optimizer: Adam, LearningRate: 1e-2, WeightDecay: 1e-3, Batch: 50, Seed: 7, Dropped: dropped})
	if err != nil {
		t.Fatal(err)
	}
	again := &Run{Trainer: trainer, Rows: rows, Epochs: 5, Done: func(Epoch, bool) error {
		for i, x := range trainer.Parameters().Embedding {
			if dropped[i] && x != 0 {
				t.Errorf("the dropped entry %d reads %v", i, x)
			}
		}
		return nil
	}}
	if err := again.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

// If the thresholds of OptEmbed are below 0 and each row reads all columns, it trains as without it,
// to the bit.
func TestOptEmbedWithoutThresholds(t *testing.T) {
	o := Options{Optimizer: Adam, LearningRate: 1e-2, WeightDecay: 1e-3, Batch: 50, Seed: 7}
	plain := newTrainer(t, goldenModel(t, "deepfm", 0), o)
	o.Find = &Find{Method: OptEmbed}
	opt := newTrainer(t, goldenModel(t, "deepfm", 0), o)
	table := opt.table.(*optTable)
	table.draw = func(columns []int32, _ int64, _ int) {
		for j := range columns {
			columns[j] = int32(table.dim)
		}
	}
	for j := range table.gate.values {
		table.gate.values[j] = -1
	}
	if slices.Contains(opt.Kept(), false) {
		t.Error("a threshold of -1 drops a feature")
	}
	for step := range 4 {
		rows := goldenRows(t).Slice(50*step, 50*step+50)
		plain.Step(&rows, 1)
		opt.Step(&rows, 1)
		if !slices.Equal(plain.Parameters().Embedding, opt.Parameters().Embedding) {
			t.Fatalf("the embeddings differ after step %d", step+1)
		}
	}
}

// Rows read up to all columns of a table with more than 256.
func TestOptEmbedWideTable(t *testing.T) {
	const dim, rows = 300, 2000
	a := model.Architecture{Kind: model.FM, FieldDims: []int{2, 2}, Dim: dim}
	table := newOptTable(&a, make([]float32, a.Parameters()), rows, 1)
	seen := map[int32]bool{}
	for row := range rows {
		columns := table.columns(row)
		table.draw(columns, int64(row), 1)
		for _, c := range columns {
			seen[c] = true
		}
	}
	for c := range seen {
		if c < 1 || c > dim {
			t.Errorf("a row reads %d columns of %d", c, dim)
		}
	}
	if !seen[dim] || !seen[1] {
		t.Errorf("no row in %d reads all columns, or none reads one: %d numbers are seen", rows, len(seen))
	}
}

// The initial tables have the distributions of the reference, and the numbers of their seed alone.
func TestInitialTable(t *testing.T) {
	const n, d = 4000, 6
	moments := func(values []float32) (mean, square, least, most float64) {
		least = math.Inf(1)
		for _, v := range values {
			x := float64(v)
			mean += x / float64(len(values))
			square += x * x / float64(len(values))
			least, most = math.Min(least, math.Abs(x)), math.Max(most, math.Abs(x))
		}
		return mean, square, least, most
	}
	for _, s := range []composed.Shape{composed.ForDivider(n, d, 40), composed.ForRanks(n, d, []int{20, 20}, 5), composed.ForBuckets(n, d, 500)} {
		table := InitialTable(s, 3)
		if err := table.Check(); err != nil {
			t.Error(err)
		}
		for k, w := range table.Tensors {
			if w.Name == "cache_weight" {
				continue
			}
			mean, square, least, most := moments(w.Values)
			off := 4 / math.Sqrt(float64(len(w.Values)))
			bad := false
			switch scale := math.Pow(3*n, -1./6); s.Scheme {
			case composed.QR:
				low := math.Sqrt(1. / n)
				bad = least < low || most > 1 || math.Abs(mean-(1+low)/2) > .3*off
			case composed.CERP:
				limit := xavier(500, d)
				bad = most > limit || math.Abs(mean) > limit*off || math.Abs(square-limit*limit/3) > limit*limit*off
			case composed.TT: // the mean square of a normal number above 2 in magnitude is 5.746
				bad = least < 2*scale*(1-1e-6) || math.Abs(mean) > 2.4*scale*off || math.Abs(square/scale/scale-5.746) > 2.5*off
			}
			if bad {
				t.Errorf("%s: %s has the mean %v, the mean square %v and magnitudes from %v to %v", s.Scheme, w.Name, mean, square, least, most)
			}
			if again := InitialTable(s, 3); !slices.Equal(again.Tensors[k].Values, w.Values) {
				t.Errorf("%s: %s differs with the same seed", s.Scheme, w.Name)
			}
			if other := InitialTable(s, 4); slices.Equal(other.Tensors[k].Values, w.Values) || k > 0 && w.Values[0] == table.Tensors[0].Values[0] {
				t.Errorf("%s: %s has the numbers of another seed or tensor", s.Scheme, w.Name)
			}
		}
	}
}

// A composed table that does not fit the model or the other options is refused.
func TestComposedOptionsAreValidated(t *testing.T) {
	golden := goldenModel(t, "deepfm", 0)
	for want, change := range map[string]func(o *Options){
		"19 with 5":          func(o *Options) { o.Composed = InitialTable(composed.ForDivider(20, 5, 4), 1) },
		"optimizer adam":     func(o *Options) { o.Optimizer = SparseAdam },
		"no dropped entries": func(o *Options) { o.Dropped = make([]bool, 95) },
		"expected 0 and 3":   func(o *Options) { o.Cached = o.Cached[:2] },
		"below 19":           func(o *Options) { o.Cached = []int32{3, 3, 4} },
		"cached without":     func(o *Options) { o.Composed = nil },
		"needs cerp":         func(o *Options) { o.Find = &Find{Method: CERP, Keep: 1, Rate: 1} },
		"expected finite":    func(o *Options) { o.Composed.Tensors[0].Values[0] = float32(math.NaN()) },
		"finds the entries of": func(o *Options) {
			o.Composed, o.Cached = InitialTable(composed.ForBuckets(19, 5, 4), 1), nil
			o.Find = &Find{Method: PEP, Keep: 1, Rate: 1}
		},
		"fewer than the 40 that": func(o *Options) {
			o.Composed, o.Cached = InitialTable(composed.ForBuckets(19, 5, 4), 1), nil
			o.Find = &Find{Method: CERP, Keep: 40, Rate: 1}
		},
	} {
		o := composedOptions()["tt-cache"]
		change(&o)
		p, err := golden.Parameters()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(golden.Architecture, p, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
