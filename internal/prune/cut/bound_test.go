package cut_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/keep"
	"shaver/internal/prune/slice"
	"shaver/internal/value/baseline"
)

// Entries are dropped from the fields and columns that are left, in the order of the scores of the whole model, and read
// the values that the whole model's codebook has for them.
func TestBoundOfAPart(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	s, err := scores.Read(f.scores)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Baseline.Values {
		s.Baseline.Values[i] = .01 * float32(i+1)
	}
	s.Spec.Baseline = baseline.Codebook
	whole, err := checkpoint.Read(f.model)
	if err != nil {
		t.Fatal(err)
	}
	table, err := whole.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	a := &whole.Architecture
	o := f.options("part.safetensors", "", 0)
	o.Scores, o.Budget, o.Slicing = filepath.Join(f.dir, "codebook.arrow"), nil, cut.Slicing{MostRise: 1e6, Fields: []string{"f1", "f4"}, KeepFields: 3}
	o.Keep = keep.Rules{Fields: []string{"c"}}
	if err := scores.Write(o.Scores, s); err != nil {
		t.Fatal(err)
	}
	c, sizes := prune(t, o)
	if c.Entries != a.FieldDims[0]+a.FieldDims[2]+a.FieldDims[3] || c.Kept != a.FieldDims[2] || len(c.Path) != 2 || c.Path[1].Rise == nil || sizes.DenseBytes != f.size {
		t.Fatalf("%+v, %+v, %+v", c, c.Sliced, sizes)
	}
	column := 1 - c.Path[0].Gone[0]
	small, err := checkpoint.Read(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	found, err := small.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	var want []float32
	for _, j := range []int{0, 2, 3} {
		for row := range a.FieldDims[j] {
			value := s.Baseline.Values[j*a.Dim+column]
			if j == 2 {
				value = table[(int(a.Offsets()[j])+row)*a.Dim+column]
			}
			want = append(want, value)
		}
	}
	if !slices.Equal(found, want) {
		t.Errorf("the table is %v, expected %v", found, want)
	}

	// As many entries as the bound allows: the most that are below it, in the order of the scores.
	o.Keep = keep.Rules{}
	all, _ := prune(t, o)
	o.MostRise = *all.Path[1].Rise.High - .01
	c, _ = prune(t, o)
	if last := c.Path[len(c.Path)-1]; last.Without != slice.Entries || *last.Rise.High > o.MostRise || c.Dropped == 0 || c.Dropped == c.Entries {
		t.Errorf("%d of %d entries are dropped, in the step %+v, expected a rise of at most %v", c.Dropped, c.Entries, last, o.MostRise)
	}
	if small, err = checkpoint.Read(o.Out); err != nil {
		t.Fatal(err)
	}
	dropped, _, err := small.Pruned()
	if err != nil || !slices.IsSortedFunc(dropped, func(a, b bool) int {
		switch {
		case a == b:
			return 0
		case a:
			return -1
		}
		return 1
	}) {
		t.Errorf("dropped %v, expected the first ones, whose scores are the lowest: %v", dropped, err)
	}
}

// If the bound lets few entries go, a warning says what stops it: the calibration, which then lets more go, or the bound.
func TestBoundLetsFewGo(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	s, err := scores.Read(f.scores)
	if err != nil {
		t.Fatal(err)
	}
	s.Spec.Baseline = baseline.Codebook
	for i := range s.Baseline.Values {
		s.Baseline.Values[i] = 50 // which shifts the logits of all rows
	}
	shifting := filepath.Join(f.dir, "shifting.arrow")
	if err := scores.Write(shifting, s); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		most            float64
		calibrate, tune bool
		want            string // "" for no warning
	}{
		"uncalibrated": {most: 1, want: "shifting.arrow: 0 of 28 entries go within --max-rise 1, but at least 13 if the logits are calibrated: prune with --calibrate"},
		"calibrated":   {most: 1, calibrate: true},
		"tuned":        {most: 1, tune: true, want: "0 of 28 entries go within --max-rise 1, because without 1 the 95% interval of the rise ends at +"},
		"enough":       {most: 1e9},
	} {
		t.Run(name, func(t *testing.T) {
			o := f.options("few.safetensors", "", 0)
			o.Scores, o.Budget, o.Calibrate, o.Tune = shifting, nil, c.calibrate, c.tune
			o.Slicing = cut.Slicing{MostRise: c.most, KeepFields: 5, KeepColumns: 2}
			o.Name = func(setting string) string { return "--" + setting }
			warned := ""
			o.Warn = func(text string) { warned += text }
			found, err := o.Choose(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(warned, c.want) || c.want == "" && warned != "" {
				t.Errorf("%d entries are dropped; warned %q, expected %q", found.Dropped, warned, c.want)
			}
		})
	}
}

// A bound with Calibrate compares calibrated models, so it drops the same entries of a model whose logits are scaled and shifted.
// What the calibration of such a model gains is no room for more.
func TestBoundOfAnUncalibratedModel(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	s, err := scores.Read(f.scores)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := checkpoint.Read(f.model)
	if err != nil {
		t.Fatal(err)
	}
	m, err := whole.Model()
	if err != nil {
		t.Fatal(err)
	}
	rows, logits := modeltest.Rows(whole.Architecture, 2000, 1), make([]float64, 2000)
	m.NewScorer().Logits(logits, rows)
	var text strings.Builder
	text.WriteString("label,a,b,c,d,e\n")
	random := rand.New(rand.NewPCG(1, 2))
	for r, x := range logits { // the labels follow logits of a larger scale
		label := 0
		if random.Float64() < 1/(1+math.Exp(-4*x)) {
			label = 1
		}
		fmt.Fprint(&text, label)
		for _, id := range rows.Row(r) {
			fmt.Fprint(&text, ",", id)
		}
		text.WriteByte('\n')
	}
	file, data := filepath.Join(f.dir, "follow.csv"), filepath.Join(f.dir, "follow")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Val: []string{file}, Train: []string{file}, Global: true, OnBadRow: ingest.Fail, Sizes: whole.Architecture.FieldDims, Out: data}); err != nil {
		t.Fatal(err)
	}
	dropped := map[float64]int{}
	for _, scale := range []float64{1, 40} {
		ck, _, err := whole.Calibrated(scale, scale-1)
		if err != nil {
			t.Fatal(err)
		}
		o := f.options("bounded.safetensors", "", 0)
		o.Model, o.Scores = filepath.Join(f.dir, "scaled.safetensors"), filepath.Join(f.dir, "scaled.arrow")
		if _, err := checkpoint.WriteDense(o.Model, ck); err != nil {
			t.Fatal(err)
		}
		if ck, err = checkpoint.Read(o.Model); err != nil {
			t.Fatal(err)
		}
		s.Spec.Model = ck.Digest()
		if err := scores.Write(o.Scores, s); err != nil {
			t.Fatal(err)
		}
		o.Calibrate, o.Budget, o.Dataset = true, nil, []string{data}
		o.Slicing = cut.Slicing{MostRise: .01, KeepFields: 5, KeepColumns: 2}
		c, err := o.Choose(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		dropped[scale] = f.entries - c.Kept
	}
	if dropped[1] == f.entries || dropped[40] != dropped[1] {
		t.Errorf("%v of %d entries are dropped, by the scale of the logits", dropped, f.entries)
	}
}
