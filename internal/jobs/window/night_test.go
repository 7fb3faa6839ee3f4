package window

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/modelfile"
	"shaver/internal/click/planted"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
)

var walks = estimator.Options{Estimator: estimator.Permutation, Passes: 1}

// distance returns the root mean square of the differences between the values of a and b,
// and the mean over the entries of their squares in units of a's errors. Entries without an
// error must be equal.
func distance(t *testing.T, a, b *scores.File) (rms, z float64) {
	t.Helper()
	n := 0
	for i, phi := range a.Phi {
		off := phi - b.Phi[i]
		rms += off * off
		if se := float64(a.PairedSE[i]); se > 0 {
			z += off * off / (se * se)
			n++
		} else if math.Abs(off) > 1e-12 {
			t.Errorf("entry %d has no error, but its value is %v, not %v", i, phi, b.Phi[i])
		}
	}
	return math.Sqrt(rms / float64(len(a.Phi))), z / float64(n)
}

// After a retraining, a night corrects the days that stay by paired jobs, and its values are
// those of a full job within the errors that it states. Errors accumulate over the nights,
// and each night draws another sample.
func TestPairedNights(t *testing.T) {
	long.Test(t)
	for _, c := range []struct {
		estimator.Options
		loss string
	}{
		{walks, ""}, {estimator.Options{Estimator: estimator.Antithetic, Passes: 2}, ""}, {estimator.Options{Estimator: estimator.Multilinear, Passes: 1}, ""},
		{estimator.Options{Estimator: estimator.Debiased, Passes: 1}, ""}, {estimator.Options{Estimator: estimator.Debiased, Passes: 2, Draws: 4}, ""},
		{estimator.Options{Estimator: estimator.Antithetic, Passes: 2}, "squared"},
	} {
		t.Run(strings.TrimSpace(c.Estimator+" "+c.loss), func(t *testing.T) {
			o, request := c.Options, func(t testing.TB, ck *checkpoint.Checkpoint, o estimator.Options, baseline string, days ...string) prepare.Request {
				r := request(t, ck, o, baseline, days...)
				r.Loss = c.loss
				return r
			}
			b, p := newBench(t), plantedModel(t, 9, 5, 7)
			days := make([]string, 6)
			for i := range days {
				days[i] = importDay(t, p, i)
			}
			ck := p.Checkpoint
			b.night("s", Night{Request: request(t, ck, o, baseline.Codebook, days[:3]...)}, "fff")
			var samples []string
			for night := 1; night <= 3; night++ {
				ck = retrained(t, ck, .1, uint64(night))
				r := request(t, ck, o, baseline.Codebook, days[night:night+3]...)
				r.Sample = .3
				data, steps := b.night("s", Night{Request: r}, "ppf")
				f := parse(t, data)
				r.Sample = 1
				full := parse(t, b.fullJob(r))
				rms, z := distance(t, f, full)
				scale := 0.0
				for _, phi := range full.Phi {
					scale += phi * phi
				}
				scale = math.Sqrt(scale / float64(len(full.Phi)))
				t.Logf("night %d: distance %.4f, stated %.4f, mean square %.2f, plain %.3f, reduction %.1f", night, rms/scale, f.Lineage.Error, z, f.Lineage.Plain, f.Lineage.Reduction)
				most := 2.5
				if o.Traits().Flips { // an unlikely flip has a large weight, and few rows do not show how large the weights may be
					most = 5
				}
				if z < .3 || z > most {
					t.Errorf("night %d: the mean square of the errors is %.2f of what the file states", night, z)
				}
				largest := 1.7
				if c.loss != "" { // a few rows with large differences dominate a squared loss
					largest = 2.5
				}
				if ratio := rms / scale / f.Lineage.Error; ratio < .5 || ratio > largest {
					t.Errorf("night %d: the error is %.2f of the lineage's", night, ratio)
				}
				if l := f.Lineage; l.Generation != min(night, 2) || len(l.Models) != l.Generation+1 || l.Models[l.Generation] != ck.Digest() || 2*l.Rows != steps[0].Evaluations+steps[1].Evaluations || !(l.Reduction > 1) || l.Fields[1].Field != "b" {
					t.Errorf("night %d: lineage %+v", night, l)
				}
				if f.Spec.Previous.Generation != f.Lineage.Generation || f.Spec.Sample != .3 || f.Rows != full.Rows || !slices.Equal(f.Count, full.Count) {
					t.Errorf("night %d: specification %+v, %d rows", night, f.Spec, f.Rows)
				}
				if math.Abs(float64(steps[0].Evaluations)-.6*float64(steps[0].Rows)) > 1 {
					t.Errorf("night %d: %d evaluations of %d rows", night, steps[0].Evaluations, steps[0].Rows)
				}
				above, base, size := 0, 0.0, 0.0
				for i, v := range f.Abs {
					if o.Traits().Flips && math.Abs(f.Phi[i]) > float64(v) { // absolute values are those of the base
						above++
					} else if float64(v) < math.Abs(f.Phi[i])-1e-7 || f.RMS[i] < v {
						t.Errorf("night %d, entry %d: phi %v, abs %v, rms %v", night, i, f.Phi[i], v, f.RMS[i])
					}
					base += float64(v - full.Abs[i])
					size += float64(full.Abs[i])
				}
				if o.Traits().Flips && above == 0 {
					t.Errorf("night %d: no value is above its mean absolute value", night)
				}
				if math.Abs(base/size) > .05 {
					t.Errorf("night %d: the mean absolute values are %.3f of those of a full job", night, 1+base/size)
				}
				samples = append(samples, fmt.Sprint(steps[0].Generation, steps[1].Generation, steps[2].Generation))
				again, _ := b.night("s", Night{Request: r}, "kkk") // the sample has no effect on what is kept
				if !bytes.Equal(again, data) {
					t.Errorf("night %d: the same night again has other bytes", night)
				}
			}
			if want := []string{"1 1 0", "2 1 0", "2 1 0"}; !slices.Equal(samples, want) {
				t.Errorf("generations %q, expected %q", samples, want)
			}
		})
	}
}

// If a new model computes the same as the previous one, a paired night returns the values that the state has.
func TestPairedWithItself(t *testing.T) {
	b, p := newBench(t), plantedModel(t, 9, 5, 7)
	days := []string{importDay(t, p, 0), importDay(t, p, 1)}
	first, _ := b.night("s", Night{Request: request(t, p.Checkpoint, walks, baseline.Zero, days...)}, "ff")
	table, err := p.Checkpoint.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	moved := slices.Clone(table)
	for i := 3; i < len(moved); i += 4 { // the column that the network does not read
		moved[i]++
	}
	other := p.Checkpoint.WithEmbedding(moved)
	r := request(t, other, walks, baseline.Zero, days...)
	r.Sample = .2
	second, _ := b.night("s", Night{Request: r}, "pp")
	a, c := parse(t, first), parse(t, second)
	if !slices.Equal(a.Phi, c.Phi) {
		t.Error("the values changed, although the models compute the same")
	}
}

// Fields may grow. Days keep their ids, new ids are scored directly, and the ids of a day
// vanish with it.
func TestGrown(t *testing.T) {
	b, small, large := newBench(t), plantedModel(t, 9, 5, 7), plantedModel(t, 40, 5, 9)
	days := []string{importDay(t, small, 0), importDay(t, small, 1), importDay(t, large, 2)}
	ck := small.Checkpoint
	b.night("s", Night{Request: request(t, ck, walks, baseline.Zero, days[:2]...)}, "ff")
	ck = grown(t, retrained(t, ck, .1, 1), 40, 5, 9)
	r := request(t, ck, walks, baseline.Zero, days...)
	r.Sample = .3
	data, _ := b.night("s", Night{Request: r}, "ppf")
	r.Sample = 1
	f, full := parse(t, data), parse(t, b.fullJob(r))
	if _, z := distance(t, f, full); z < .3 || z > 3 {
		t.Errorf("the mean square of the errors is %.2f of what the file states", z)
	}
	direct := 0
	for _, feature := range []int{9, 10, 15, 39, 45 + 7, 45 + 8} { // new ids of a and c
		direct += int(full.Count[feature])
		for c := range 4 {
			i := feature*4 + c
			if f.Count[feature] != full.Count[feature] || f.Phi[i] != full.Phi[i] || f.RMS[i] != full.RMS[i] || f.PairedSE[i] != 0 {
				t.Errorf("the new feature %d has the value %v +- %v, expected %v", feature, f.Phi[i], f.PairedSE[i], full.Phi[i])
			}
		}
	}
	if direct < 20 {
		t.Errorf("new ids occur in %d rows, so the test proves little", direct)
	}
	// The last day alone is a window that has the ids of the grown model, but nothing of the
	// earlier days.
	r = request(t, ck, walks, baseline.Zero, days[2])
	data, _ = b.night("s", Night{Request: r}, "k")
	if !bytes.Equal(data, b.fullJob(r)) {
		t.Error("after the earlier days left, the window differs from a full job over the last day")
	}
	// Sums of smaller tables and of larger ones add up exactly.
	b.night("t", Night{Request: request(t, small.Checkpoint, walks, baseline.Zero, days[:2]...)}, "ff")
	r = request(t, ck, walks, baseline.Zero, days...)
	data, _ = b.night("t", Night{Request: r, FullEvery: 1}, "fff")
	if !bytes.Equal(data, b.fullJob(r)) {
		t.Error("the window of a grown model differs from a full job")
	}
}

// A night scores a day in full if a bound requires it or if a model is missing.
func TestBounds(t *testing.T) {
	b, p := newBench(t), plantedModel(t, 9, 5, 7)
	days := []string{importDay(t, p, 0), importDay(t, p, 1)}
	models := []*checkpoint.Checkpoint{p.Checkpoint}
	for i := range 3 {
		models = append(models, retrained(t, models[i], .1, uint64(i)))
	}
	night := func(state string, model int, sample float64, every int, inherited float64, want string) {
		t.Helper()
		r := request(t, models[model], walks, baseline.Zero, days...)
		r.Sample = sample
		_, steps := b.night(state, Night{Request: r, FullEvery: every, MaxInheritedError: inherited}, want)
		for _, s := range steps {
			if s.Why == "" {
				t.Errorf("a step without a reason: %+v", s)
			}
		}
	}
	night("every", 0, .2, 3, 0, "ff")
	night("every", 1, .2, 3, 0, "pp")
	night("every", 2, .2, 3, 0, "pp")
	night("every", 3, .2, 3, 0, "ff")
	night("inherited", 0, .2, 0, 1e-9, "ff")
	night("inherited", 1, .2, 0, 1e-9, "pp")
	night("inherited", 2, .2, 0, 1e-9, "ff")
	night("sample", 0, .2, 0, 0, "ff")
	night("sample", 1, .5, 0, 0, "ff")
	night("copy", 0, .2, 0, 0, "ff")
	names, err := filepath.Glob(filepath.Join(b.states, "copy", "model-*"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	if err := os.Remove(names[0]); err != nil {
		t.Fatal(err)
	}
	night("copy", 1, .2, 0, 0, "ff")
	night("copy", 2, .2, 0, 0, "pp")
}

// A night that is killed at any step continues, and ends with the same bytes and the same
// files as one that is not.
func TestKilled(t *testing.T) {
	b, p := newBench(t), plantedModel(t, 9, 5, 7)
	days := []string{importDay(t, p, 0), importDay(t, p, 1), importDay(t, p, 2), importDay(t, p, 3)}
	first := request(t, p.Checkpoint, walks, baseline.Zero, days[:3]...)
	second := request(t, retrained(t, p.Checkpoint, .1, 1), walks, baseline.Zero, days[1:]...)
	second.Sample = .2
	b.night("s", Night{Request: first}, "fff")
	want, _ := b.night("s", Night{Request: second}, "ppf")
	files := func(state string) (names []string) {
		entries, err := os.ReadDir(filepath.Join(b.states, state))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if n := files("s"); len(n) != 5 {
		t.Errorf("files %q, expected the index, the model and three days", n)
	}
	normal := operation
	t.Cleanup(func() { operation = normal })
	killed := errors.New("killed")
	for _, night := range []int{1, 2} {
		for at := 1; ; at++ {
			state := fmt.Sprint("killed ", night, at)
			r, seen := first, 0
			if night == 2 {
				b.night(state, Night{Request: first}, "fff")
				r = second
			}
			dead := false
			operation = func(string, string) error {
				if seen++; seen == at || dead {
					dead = true
					return killed
				}
				return nil
			}
			_, _, err := b.tryNight(state, Night{Request: r})
			operation = normal
			if err == nil {
				if at < 8 {
					t.Errorf("night %d has only %d steps", night, at-1)
				}
				break
			}
			if !errors.Is(err, killed) {
				t.Fatalf("step %d: %v", at, err)
			}
			for _, leftover := range []string{".state.json.1.tmp", ".day-1.sums.1.tmp", "day-0123456789abcdef-0123456789abcdef-7.sums", "model-0123456789abcdef.safetensors"} {
				if err := os.WriteFile(filepath.Join(b.states, state, leftover), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if night == 1 {
				if _, _, err := b.tryNight(state, Night{Request: first}); err != nil {
					t.Fatalf("after step %d: %v", at, err)
				}
			}
			data, _, err := b.tryNight(state, Night{Request: second})
			if err != nil {
				t.Fatalf("after step %d: %v", at, err)
			}
			if !bytes.Equal(data, want) || !slices.Equal(files(state), files("s")) {
				t.Errorf("killed at step %d of night %d: other bytes, or the files %q", at, night, files(state))
			}
		}
	}
}

// Wrong settings, wrong models and damaged files give one line that says what to do.
func TestRefusals(t *testing.T) {
	b, p := newBench(t), plantedModel(t, 9, 5, 7)
	days := []string{importDay(t, p, 0), importDay(t, p, 1)}
	newest := retrained(t, p.Checkpoint, .1, 1)
	base := request(t, newest, walks, baseline.Zero, days...)
	base.Sample = .2
	dir := filepath.Join(b.states, "s")
	restore := func() {
		t.Helper()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		b.night("s", Night{Request: request(t, p.Checkpoint, walks, baseline.Zero, days...)}, "ff")
	}
	with := func(change func(*Night)) func() error {
		return func() error {
			n := Night{Request: base}
			change(&n)
			_, _, err := b.tryNight("s", n)
			return err
		}
	}
	files := func(pattern string, change func(path string)) func() error {
		return func() error {
			names, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil || len(names) == 0 {
				t.Fatal(pattern, err)
			}
			change(names[0])
			return with(func(*Night) {})()
		}
	}
	flip := func(path string) {
		data := read(t, path)
		data[len(data)-9] ^= 1
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		try   func() error
		usage bool
		want  string
	}{
		"seed":      {with(func(n *Night) { n.Seed = 2 }), true, "was made with --seed 1, not 2: give the same settings, or another --state"},
		"loss":      {with(func(n *Night) { n.Loss = "squared" }), true, "was made with --loss logistic, not squared"},
		"splits":    {with(func(n *Night) { n.Splits = []string{"train"} }), true, "was made with --splits train,val, not train"},
		"estimator": {with(func(n *Night) { n.Options.Estimator = estimator.Antithetic }), true, "was made with --estimator permutation, not antithetic"},
		"baseline":  {with(func(n *Night) { n.Baseline = baseline.Codebook }), true, "was made with --baseline zero, not codebook"},
		"previous model": {with(func(n *Night) {
			n.Previous = func() (modelfile.Source, error) { return retrained(t, newest, .1, 7), nil }
		}), false, fmt.Sprintf("have the sums of the model with the digest %.12s: give that model", p.Checkpoint.Digest())},
		"other dim": {with(func(n *Night) {
			other, err := planted.New(planted.Config{Fields: []string{"a", "b", "c"}, FieldDims: []int{9, 5, 7}, Informative: 1, Silent: 1, Seed: 3})
			if err != nil {
				t.Fatal(err)
			}
			n.Open = func() (modelfile.Source, error) { return other.Checkpoint, nil }
		}), false, "table 0 of the previous model has 4 columns, expected 2: name another --state"},
		"index": {files("state.json", func(path string) {
			os.WriteFile(path, bytes.Replace(read(t, path), []byte(`"seed": 1`), []byte(`"seed": 2`), 1), 0o600)
		}), false, "state.json is damaged: its content does not match its digest: delete the folder"},
		"no index":      {files("state.json", func(path string) { os.Rename(path, path+"x") }), false, "is not a state: it has the file state.jsonx but no state.json"},
		"not JSON":      {files("state.json", func(path string) { os.WriteFile(path, []byte("x"), 0o600) }), false, "is not the index of a state: not JSON"},
		"other version": {files("state.json", func(path string) { os.WriteFile(path, []byte(`{"version":"shaver.state/9"}`), 0o600) }), false, `has the version "shaver.state/9", this program reads "shaver.state/1"`},
		"sums":          {files("day-*", flip), false, "does not match its digest in state.json: delete the file and run the command again; its day is then scored in full"},
		"short sums":    {files("day-*", func(path string) { os.Truncate(path, 100) }), false, "is damaged: it has 100 bytes, expected"},
		"model":         {files("model-*", flip), false, "is damaged"},
	} {
		restore()
		err := test.try()
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, expected %q", name, err, test.want)
		}
		if fault.IsUsage(err) != test.usage || fault.IsInput(err) == test.usage {
			t.Errorf("%s: %v is of the wrong kind", name, err)
		}
	}
	restore()
	s, err := Open(dir, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, zap.NewNop()); err == nil || fault.IsUsage(err) || !strings.Contains(err.Error(), "another process uses the state") {
		t.Errorf("a second process: %v", err)
	}
	s.Close()
	missing := files("day-*", func(path string) { os.Remove(path) })
	if err := missing(); err != nil || len(b.jobs) != 2 {
		t.Errorf("a missing file: %v, %d jobs", err, len(b.jobs))
	}
}
