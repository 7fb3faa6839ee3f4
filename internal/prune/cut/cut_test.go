package cut_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/prune/cut"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
	"shaver/internal/value/tally"
)

var golden = filepath.Join("..", "..", "..", "testdata", "golden")

// files has a model with weights of bfloat16, scores of it that grow from entry to entry, and a
// dataset.
type files struct {
	dir, model, scores, rows string
	size                     int64 // of the model as a dense file
	entries                  int
}

func newFiles(t *testing.T) *files {
	t.Helper()
	dir := t.TempDir()
	f := &files{dir: dir, model: filepath.Join(dir, "model.safetensors"), scores: filepath.Join(dir, "scores.arrow"), rows: filepath.Join(dir, "rows")}
	ck, err := checkpoint.Read(filepath.Join(golden, "deepfm.pth"))
	if err != nil {
		t.Fatal(err)
	}
	for key, tensor := range ck.Tensors {
		if tensor.DType == checkpoint.F32 {
			ck.Tensors[key] = bfloat16(tensor)
		}
	}
	if f.size, err = checkpoint.WriteDense(f.model, ck); err != nil {
		t.Fatal(err)
	}
	if ck, err = checkpoint.Read(f.model); err != nil {
		t.Fatal(err)
	}
	a := &ck.Architecture
	f.entries = a.Parameters()
	s := &scores.File{
		Layout: scores.LayoutOf(a), Baseline: a.Zero(), DatasetRows: 8,
		Spec:   job.Spec{Version: job.SpecVersion, Model: ck.Digest(), Splits: []string{"train"}, Sample: 1, Baseline: baseline.Zero, Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}},
		Result: tally.Result{Rows: 8, Scores: tally.Scores{Shape: a.Shape(), Count: slices.Repeat([]int64{3}, a.Features()), Values: tally.NewValues(f.entries)}},
	}
	for j := range a.FieldDims {
		s.Fields = append(s.Fields, string(rune('a'+j)))
	}
	for i := range s.Phi {
		s.Phi[i], s.RMS[i] = float64(i), float32(i)
	}
	if err := scores.Write(f.scores, s); err != nil {
		t.Fatal(err)
	}
	encoded := []string{filepath.Join(golden, "deepfm.rows.csv")}
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: encoded, Val: encoded, Global: true, OnBadRow: ingest.Fail, Sizes: a.FieldDims, Out: f.rows}); err != nil {
		t.Fatal(err)
	}
	return f
}

// bfloat16 truncates float32 values to bfloat16.
func bfloat16(t checkpoint.Tensor) checkpoint.Tensor {
	short := checkpoint.Tensor{DType: checkpoint.BF16, Shape: t.Shape}
	for i := 0; i < len(t.Data); i += 4 {
		short.Data = append(short.Data, t.Data[i+2:i+4]...)
	}
	return short
}

func (f *files) options(out, unit string, amount float64) *cut.Options {
	return &cut.Options{
		Model: f.model, Scores: f.scores, Dataset: []string{f.rows}, Out: filepath.Join(f.dir, out), Rank: mask.Abs,
		Budget: &mask.Budget{Unit: unit, Amount: amount}, Form: cut.Form{Values: compact.Float32},
	}
}

// prune writes the model that the options describe.
func prune(t *testing.T, o *cut.Options) (*cut.Choice, cut.Sizes) {
	t.Helper()
	c, err := o.Choose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var k *loss.Calibration
	if o.Calibrate {
		if k, err = c.Calibration(t.Context(), func(int64, int64) {}); err != nil {
			t.Fatal(err)
		}
	}
	sizes, err := c.Write(o.Out, k)
	if err != nil {
		t.Fatal(err)
	}
	return c, sizes
}

// The entries with the lowest scores are dropped, as many as the budget says, in each form.
func TestPrune(t *testing.T) {
	f := newFiles(t)
	half := f.entries / 2
	c, sizes := prune(t, f.options("half.safetensors", mask.Kept, float64(half)))
	if c.Kept != half || c.Dropped != f.entries-half || c.Method != "shapley-rms" || c.Aggregate != scores.RMS || c.Previous != nil {
		t.Errorf("%+v", c)
	}
	ck, err := checkpoint.Read(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	dropped, _, err := ck.Pruned()
	if err != nil {
		t.Fatal(err)
	}
	for i, gone := range dropped {
		if gone != (i < f.entries-half) {
			t.Errorf("entry %d: dropped is %v", i, gone)
		}
	}
	if info, err := os.Stat(c.Out); err != nil || info.Size() != sizes.Bytes || sizes.DenseTableBytes != int64(2*f.entries) || sizes.DenseBytes != f.size {
		t.Errorf("%+v: %v", sizes, err)
	}
	dense := f.options("dense.safetensors", mask.Kept, float64(half))
	dense.Form.Dense = true
	_, sizes = prune(t, dense)
	if info, err := os.Stat(dense.Out); err != nil || info.Size() != sizes.Bytes || sizes.TableBytes != sizes.DenseTableBytes || sizes.DenseBytes != f.size {
		t.Errorf("%+v: %v", sizes, err)
	}
}

// A calibrated model keeps to its budget in bytes, although calibration stores the weights
// that it changes as float32.
func TestCalibratedBudget(t *testing.T) {
	f := newFiles(t)
	bytes := func(budget int64) int64 {
		o := f.options("out.safetensors", mask.Bytes, float64(budget))
		o.Calibrate = true
		_, sizes := prune(t, o)
		return sizes.Bytes
	}
	budget := bytes(10*f.size) - 1 // 10*size is enough for all entries
	if got := bytes(budget); got > budget {
		t.Errorf("%d bytes exceed the budget of %d", got, budget)
	}
}

// Labels that are the opposite of what the model predicts cause a warning, because their calibration is
// constant. Those of the golden rows are.
func TestInvertedLabels(t *testing.T) {
	f := newFiles(t)
	text, err := os.ReadFile(filepath.Join(golden, "deepfm.rows.csv"))
	if err != nil {
		t.Fatal(err)
	}
	for name, invert := range map[string]bool{"opposite": false, "predicted": true} {
		lines := strings.SplitAfter(string(text), "\n")
		for i, line := range lines[1:] {
			if label, rest, ok := strings.Cut(line, ","); ok && invert {
				lines[1+i] = map[string]string{"0": "1", "1": "0"}[label] + "," + rest
			}
		}
		rows := filepath.Join(f.dir, name+".csv")
		if err := os.WriteFile(rows, []byte(strings.Join(lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		ck, err := checkpoint.Read(f.model)
		if err != nil {
			t.Fatal(err)
		}
		o := f.options("out.safetensors", mask.Kept, float64(f.entries))
		o.Calibrate, o.Dataset = true, []string{filepath.Join(f.dir, name)}
		if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{rows}, Val: []string{rows}, Global: true, OnBadRow: ingest.Fail, Sizes: ck.Architecture.FieldDims, Out: o.Dataset[0]}); err != nil {
			t.Fatal(err)
		}
		warning := ""
		o.Warn = func(text string) { warning = text }
		c, err := o.Choose(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		warning = "" // not one about the scores
		if _, err := c.Calibration(t.Context(), func(int64, int64) {}); err != nil {
			t.Fatal(err)
		}
		if (warning == "") != invert || warning != "" && !strings.Contains(warning, "do not rise with the output") {
			t.Errorf("%s labels: %q", name, warning)
		}
	}
}

// Without hysteresis a previous file changes nothing. Of the same scores it has no churn.
func TestPreviousFile(t *testing.T) {
	f := newFiles(t)
	before, _ := prune(t, f.options("before.safetensors", mask.Sparsity, .5))
	o := f.options("after.safetensors", mask.Sparsity, .5)
	o.Previous = before.Out
	after, _ := prune(t, o)
	if p := after.Previous; p == nil || p.File != before.Out || p.Churn.Portion != 0 || p.Churn != p.Plain || len(p.Fields) != 5 {
		t.Errorf("%+v", after.Previous)
	}
	was, err := os.ReadFile(before.Out)
	if err != nil {
		t.Fatal(err)
	}
	if is, err := os.ReadFile(after.Out); err != nil || !bytes.Equal(was, is) {
		t.Errorf("the files differ: %v", err)
	}
}

// The choices of a previous file are kept without scores. What dropped entries read is 0 or, if the file has a codebook, the mean of the
// model's rows in the dataset. The rows that chose the entries are noted, but not those that calibrated the other model.
func TestKept(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	f.scores = ""
	ck, err := checkpoint.Read(f.model)
	if err != nil {
		t.Fatal(err)
	}
	a, dropped := ck.Architecture, make([]bool, f.entries)
	for i := range dropped {
		dropped[i] = i*i%5 == 1
	}
	o := f.options("after.safetensors", "", 0)
	o.Previous, o.Budget = filepath.Join(f.dir, "before.safetensors"), nil
	table, err := ck.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(golden, "deepfm.rows.csv"))
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Fields(string(text))[1:] // the label and the ids
	chose := checkpoint.Scored{Dataset: "d", Splits: []string{"train"}}
	ck.AddScored(chose, checkpoint.Scored{Dataset: "e", Splits: []string{"val"}, Did: checkpoint.Calibrate})
	book := model.Baseline{Values: slices.Repeat([]float32{1}, a.BaselineSize())}
	for name, b := range map[string]model.Baseline{baseline.Zero: a.Zero(), baseline.Codebook: book} {
		if _, err := checkpoint.WriteCompact(o.Previous, ck, dropped, b, compact.Float32); err != nil {
			t.Fatal(err)
		}
		if c, _ := prune(t, o); c.Baseline != name || c.Method != cut.ByPrevious {
			t.Errorf("%s: the baseline is %s, the method %s", name, c.Baseline, c.Method)
		}
		after, err := checkpoint.Read(o.Out)
		if err != nil {
			t.Fatal(err)
		}
		kept, got, err := after.Pruned()
		if err != nil || !slices.Equal(kept, dropped) || !reflect.DeepEqual(after.Scored, []checkpoint.Scored{chose}) {
			t.Errorf("%s: %v: other entries are dropped, or the rows %+v are noted", name, err, after.Scored)
		}
		for j, s := range a.Spans() {
			for c := range s.Dim {
				want := 0.0
				for _, row := range rows {
					id, err := strconv.Atoi(strings.Split(row, ",")[1+j])
					if err != nil {
						t.Fatal(err)
					}
					if name == baseline.Codebook {
						want += float64(table[id*s.Dim+c]) / float64(len(rows))
					}
				}
				if x := float64(got.Values[j*s.Dim+c]); math.Abs(x-want) > 1e-6 {
					t.Errorf("%s: dropped entries of column %d of field %d read %g, expected %g", name, c, j, x, want)
				}
			}
		}
		rowless := *o
		rowless.Dataset = nil
		if _, err := rowless.Choose(t.Context()); (err != nil) != (name == baseline.Codebook) || err != nil && !strings.Contains(err.Error(), "has a codebook, and that of "+f.model+" is computed from the rows") {
			t.Errorf("%s without rows: %v", name, err)
		}
	}
}

// Messages name the settings as the user writes them.
func TestMessages(t *testing.T) {
	f := newFiles(t)
	for name, c := range map[string]struct {
		change func(o *cut.Options)
		want   string
	}{
		"budget": {func(o *cut.Options) { o.Keep.Minimum = .8 }, "sparsity 0.5 drops "},
		"limits": {func(o *cut.Options) { o.Keep.Minimum = .8 }, ", but protect and field-minimum allow at most "},
		"field":  {func(o *cut.Options) { o.Keep.Fields = []string{"none"} }, "protect, field-minimum: "},
		"range":  {func(o *cut.Options) { o.Budget.Amount = 2 }, "budget: "},
	} {
		o := f.options("out.safetensors", mask.Sparsity, .5)
		c.change(o)
		_, err := o.Choose(t.Context())
		if !fault.IsUsage(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, expected %q", name, err, c.want)
		}
		o.Name = func(setting string) string { return "<" + setting + ">" }
		marked := strings.NewReplacer("sparsity 0", "<sparsity> 0", "protect", "<protect>", "field-minimum", "<field-minimum>").Replace(c.want)
		if _, err := o.Choose(t.Context()); err == nil || !strings.Contains(err.Error(), marked) {
			t.Errorf("%s: %v, expected %q", name, err, marked)
		}
	}
}

// Scores whose efficiency error exceeds what their values share are pruned by, with a warning.
func TestWarning(t *testing.T) {
	f := newFiles(t)
	s, err := scores.Read(f.scores)
	if err != nil {
		t.Fatal(err)
	}
	s.Spec.Options = estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 2, Endpoints: estimator.Plain}
	s.LossFull, s.LossEmpty, s.EfficiencySE = .5, .581, .1
	for _, off := range []float64{.08, 6.2} {
		s.EfficiencyError = off
		if err := scores.Write(f.scores, s); err != nil {
			t.Fatal(err)
		}
		var warned []string
		o := f.options("out.safetensors", mask.Sparsity, .5)
		o.Warn = func(text string) { warned = append(warned, text) }
		if _, err := o.Choose(t.Context()); err != nil {
			t.Fatal(err)
		}
		if off < 1 && warned != nil || off > 1 && (len(warned) != 1 || warned[0] != f.scores+": "+s.Warning()) {
			t.Errorf("an efficiency error of %v: warnings %q", off, warned)
		}
	}
}

// The order of a path drops its first entries. It comes with a note if its calibration of the whole model is steep, unless the pruned model
// is calibrated or trained, or a bound of the loss chose how much is dropped.
func TestOrderOfAPath(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	s, err := scores.Read(f.scores)
	if err != nil {
		t.Fatal(err)
	}
	s.Spec.Options = estimator.Options{Estimator: estimator.Path, Passes: 1}
	s.Spec.SetDefaults()
	s.Rows, s.DatasetRows = 4096, 4096
	s.Values = tally.NewRanks(f.entries)
	for i := range s.Rank {
		s.Rank[i] = int32((i * 5) % f.entries) // 5 and 28 have no common divisor
	}
	s.Path = &scores.Path{Reach: .9, Rounds: []scores.Round{{Rows: 4096, Kept: int64(f.entries), Loss: .5, Scale: 2}}}
	if err := scores.Write(f.scores, s); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(o *cut.Options)
		noted  bool
	}{
		"plain":      {func(*cut.Options) {}, true},
		"calibrated": {func(o *cut.Options) { o.Calibrate = true }, false},
		"trained":    {func(o *cut.Options) { o.Tune = true }, false},
		"bound": {func(o *cut.Options) {
			o.Budget, o.Slicing = nil, cut.Slicing{MostRise: 10, KeepFields: 5, KeepColumns: 2}
		}, false},
	} {
		o := f.options("out.safetensors", mask.Sparsity, .5)
		c.change(o)
		chosen, err := o.Choose(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if noted := chosen.Uncalibrated != ""; noted != c.noted || !chosen.ByPath {
			t.Errorf("%s: by a path: %t, note %q, expected one: %t", name, chosen.ByPath, chosen.Uncalibrated, c.noted)
		}
		if o.Budget == nil {
			continue
		}
		if _, err := chosen.Write(o.Out, nil); err != nil {
			t.Fatal(err)
		}
		ck, err := checkpoint.Read(o.Out)
		if err != nil {
			t.Fatal(err)
		}
		dropped, _, err := ck.Pruned()
		for i, rank := range s.Rank {
			if err != nil || dropped[i] != (int(rank) < f.entries/2) {
				t.Fatalf("%s: %v: entry %d with the rank %d of %d is dropped: %t", name, err, i, rank, f.entries, dropped[i])
			}
		}
	}
}

// Convert gives back the file that it compacted.
func TestConvert(t *testing.T) {
	f := newFiles(t)
	small, back := filepath.Join(f.dir, "small.safetensors"), filepath.Join(f.dir, "back.safetensors")
	c, err := (&cut.Form{Values: compact.Float32}).Convert(f.model, checkpoint.Options{}, small)
	if err != nil || c.Kept != f.entries || c.Entries != f.entries {
		t.Fatalf("%+v: %v", c, err)
	}
	if c, err = (&cut.Form{Dense: true, Values: compact.Float32}).Convert(small, checkpoint.Options{}, back); err != nil || c.DenseBytes != c.Bytes {
		t.Fatalf("%+v: %v", c, err)
	}
	want, err := checkpoint.Read(f.model)
	if err != nil {
		t.Fatal(err)
	}
	found, err := checkpoint.Read(back)
	if err != nil {
		t.Fatal(err)
	}
	x, errX := want.Embedding()
	y, errY := found.Embedding()
	if errX != nil || errY != nil || !slices.Equal(x, y) {
		t.Errorf("another table: %v, %v", errX, errY)
	}
}
