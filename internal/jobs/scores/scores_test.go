package scores

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/base/long"
	"shaver/internal/click/model"
	"shaver/internal/jobs/job"
	"shaver/internal/num/layout"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

func example() *File {
	return &File{
		Fields: []string{"a", "b"}, Layout: model.Architecture{FieldDims: []int{2, 1}, Dim: 2},
		Spec: job.Spec{
			Version: job.SpecVersion, Model: "m", Dataset: "d", Splits: []string{"train"}, Sample: 0.5,
			Baseline: "codebook", Options: estimator.Options{Estimator: "permutation", Passes: 2}, Seed: 7, Kernel: "k",
		},
		Baseline:    model.Baseline{Values: []float32{0.1, -2, 3e-9, 4}},
		DatasetRows: 8,
		Result: tally.Result{
			Scores: tally.Scores{Shape: layout.Of(3, 2), Count: []int64{3, 0, 4}, Values: tally.Values{
				Phi: []float64{0.1, -2e-9, 0, 0, 1. / 3, 5}, Abs: []float32{1, 2, 0, 0, 3, 4}, RMS: []float32{2, 3, 0, 0, 4, 5},
				SE: []float32{.1, .2, 0, 0, .3, .4}, PopulationSE: []float32{.2, .3, 0, 0, .4, .5},
			}},
			Rows: 4, LossFull: 0.4, LossEmpty: 0.7, EfficiencyError: 1e-10, EfficiencySE: 2e-3,
		},
	}
}

// factorsAt returns the factors of the intervals of a feature of f if it occurs in count rows.
func factorsAt(f *File, count int64) (dataset, population float64) {
	f.Count[0] = count
	return f.Intervals()(0)
}

// pairedExample is the result of a second paired job.
func pairedExample() *File {
	f := example()
	f.Spec.Previous = &job.Previous{Model: "l", Baseline: "b", Values: "v", Generation: 2}
	f.PairedSE, f.AbsPairedSE, f.RMSPairedSE = []float32{.1, .2, 0, 0, .3, .4}, []float32{1, 2, 0, 0, 3, 4}, []float32{5, 6, 0, 0, 7, 8}
	f.Lineage = &Lineage{
		Generation: 2, Models: []string{"k", "l", "m"}, Rows: 2, Error: .1, Plain: .2, Reduction: 5, RMSReduction: 5,
		Fields: []PairedField{{"a", 6, .9, .8, .7}, {"b", 3, 1, 1, 1}},
	}
	return f
}

// The file of a paired job has the version 4, and Read and ReadHead return what was written.
// Files that are not paired keep their version.
func TestPairedRoundTrip(t *testing.T) {
	dir := t.TempDir()
	for version, want := range map[string]*File{"shaver.scores/4": pairedExample(), "shaver.scores/3": example()} {
		path := filepath.Join(dir, filepath.Base(version))
		if err := Write(path, want); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(data, []byte(version)) {
			t.Errorf("the file has not the version %s, %v", version, err)
		}
		if err := Verify(path); err != nil {
			t.Error(err)
		}
		got, err := Read(path)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Read returns %+v, want %+v; error %v", got, want, err)
		}
		head, err := ReadHead(path)
		want.Count, want.Values = nil, tally.Values{}
		if err != nil || !reflect.DeepEqual(head, want) {
			t.Errorf("ReadHead returns %+v, want %+v; error %v", head, want, err)
		}
	}
}

// Read refuses a lineage that does not fit the job.
func TestLineageRefusals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.arrow")
	for want, change := range map[string]func(*File){
		"the generation is 1, expected 2":                        func(f *File) { f.Lineage.Generation = 1 },
		"2 models, expected 3 for generation 2":                  func(f *File) { f.Lineage.Models = f.Lineage.Models[1:] },
		"the models do not end with l and m":                     func(f *File) { f.Lineage.Models[1] = "x" },
		"the models do not end with l and other":                 func(f *File) { f.Spec.Model = "other" },
		"the generation is -1, expected at least 1":              func(f *File) { f.Lineage.Generation, f.Spec.Previous.Generation = -1, -1 },
		`the model "\x1b]0;k", expected a digest`:                func(f *File) { f.Lineage.Models[0] = "\x1b]0;k" },
		"metadata shaver.loss_full is NaN, expected a finite":    func(f *File) { f.LossFull = math.NaN() },
		"metadata shaver.loss_empty is -1, expected a finite":    func(f *File) { f.LossEmpty = -1 },
		"9 rows, expected 1 to 8":                                func(f *File) { f.Lineage.Rows = 9 },
		"0 rows, expected 1 to 8":                                func(f *File) { f.Lineage.Rows = 0 },
		"the fields are not those of the file":                   func(f *File) { f.Lineage.Fields[1].Field = "c" },
		"the figure -1":                                          func(f *File) { f.Lineage.Fields[1].Abs = -1 },
		"the figure -0.1":                                        func(f *File) { f.Lineage.Error = -.1 },
		"the metadata shaver.lineage is set, but the job is not": func(f *File) { f.Spec.Previous = nil },
		"the job is paired, but the metadata shaver.lineage":     func(f *File) { f.Lineage = nil },
	} {
		f := pairedExample()
		change(f)
		if err := Write(path, f); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
		if _, err := ReadHead(path); !fault.IsInput(err) {
			t.Errorf("%q: ReadHead: %v", want, err)
		}
	}
	f := pairedExample()
	f.SE[0] = -1
	if err := Write(path, f); !fault.IsInput(err) {
		t.Error(err)
	}
}

// The intervals of a paired job are those of a full job, except that a feature with few
// expected rows in the sample has none. A job that found nothing to correct has them all.
func TestPairedInterval(t *testing.T) {
	f := pairedExample()
	f.Rows, f.DatasetRows, f.Lineage.Rows = 1000, 1000, 100
	if dataset, population := factorsAt(f, 80); dataset != population || math.Abs(dataset-1.9905) > 1e-4 {
		t.Errorf("intervals %v and %v for 80 rows, 8 of them sampled, want Student's t with 79 degrees of freedom", dataset, population)
	}
	if dataset, population := factorsAt(f, 49); !math.IsNaN(dataset) || !math.IsNaN(population) {
		t.Errorf("intervals %v and %v for 4.9 expected rows, want NaN", dataset, population)
	}
	f.Lineage.Error = 0
	full := example()
	full.Rows, full.DatasetRows = 1000, 1000
	wantDataset, wantPopulation := factorsAt(full, 49)
	if dataset, population := factorsAt(f, 49); dataset != wantDataset || population != wantPopulation {
		t.Errorf("intervals %v and %v without a difference, want %v and %v", dataset, population, wantDataset, wantPopulation)
	}
}

// Doubt says that pairing did not pay, or which fields do not use the previous values.
func TestDoubt(t *testing.T) {
	for want, l := range map[string]Lineage{
		"pairing did not pay for the aggregate rms: a plain sample of the same cost would give it with a smaller error": {Rows: 5, Error: .1, Plain: .2, Reduction: 5, RMSReduction: 1.9},
		"": {Rows: 5, Error: .1, Plain: .2, Reduction: 5, RMSReduction: 5, Fields: []PairedField{{Field: "a", Sum: 1}}},
		"pairing did not pay: the relative error is 0.3, and a plain sample of the same cost would have 0.2":                                                                                                   {Rows: 5, Error: .3, Plain: .2, Reduction: 5},
		"pairing did not pay: the relative error is 0.1, and a plain sample of the same cost would have 0.09":                                                                                                  {Rows: 5, Error: .1, Plain: .09, Reduction: 1.5},
		"the previous values are closer to those of a full job: their relative error is about 0.21, and that of the paired ones 0.356; keep using the previous scores, or score all rows or a larger --sample": {Rows: 5, Error: .356, Previous: Figure(.213), Plain: .5, Reduction: 5},
		"the job scored all rows, so it did not need the previous values":                                                                                                                                      {Rows: 9},
		"the previous values of field \"b\" are of no use to this model, so its values come from the sample alone":                                                                                             {Rows: 5, Error: .1, Plain: .2, Reduction: 5, RMSReduction: 5, Fields: []PairedField{{Field: "a", Sum: 1}, {Field: "b"}}},
		"the previous values of 2 fields are of no use to this model, so their values come from the sample alone: \"a\", \"b\"":                                                                                {Rows: 5, Error: .1, Plain: .2, Reduction: 5, RMSReduction: 5, Fields: []PairedField{{Field: "a"}, {Field: "b"}}},
	} {
		if got := l.Doubt(9); got != want {
			t.Errorf("%+v: %q, expected %q", l, got, want)
		}
	}
}

// A file that is written twice has the same bytes, and Read and ReadHead return what was
// written.
func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	want := example()
	for _, name := range []string{"one", "two"} {
		if err := Write(filepath.Join(dir, name), want); err != nil {
			t.Fatal(err)
		}
	}
	one, err := os.ReadFile(filepath.Join(dir, "one"))
	if err != nil {
		t.Fatal(err)
	}
	if two, _ := os.ReadFile(filepath.Join(dir, "two")); string(one) != string(two) {
		t.Error("two files of the same scores differ")
	}
	got, err := Read(filepath.Join(dir, "one"))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Read returns %+v, want %+v", got, want)
	}
	if strings.Contains(string(one), keyWalked) {
		t.Error("a file without rows by walks counts them")
	}
	want.QuarantinedRows, want.Walked = 3, 2
	want.Spec.Until, want.Stopped = &job.Until{Rule: job.Paper, Bound: .1}, &Stopped{Rounds: 2, Passes: 2, Reason: AllDone, Figure: Figure(.2)}
	want.Audit = &Audit{Reference: "debiased", Rows: 3, Entries: 4, RelativeRMS: Figure(.1), Spearman: Figure(math.NaN()), Overlaps: []Overlap{{.5, .6, .7}}}
	if err := Write(filepath.Join(dir, "three"), want); err != nil {
		t.Fatal(err)
	}
	head, err := ReadHead(filepath.Join(dir, "three"))
	want.Count, want.Values = nil, tally.Values{}
	if err != nil || !reflect.DeepEqual(head, want) {
		t.Errorf("ReadHead returns %+v, want %+v; error %v", head, want, err)
	}
}

// Read returns bad input for files that are malformed.
func TestReadRefusals(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	if err := Write(good, example()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	version := example()
	version.Spec.Version++
	portion := example()
	portion.DatasetRows = 3
	short := example()
	short.Baseline.Values = short.Baseline.Values[1:]
	players, layout, ranked := example(), pairsExample(), pairsExample()
	players.Spec.Players, layout.Spec.Players, ranked.Spec.Options = "rows", estimator.Fields, estimator.Options{Estimator: estimator.Path, Passes: 1}
	for name, f := range map[string]*File{"version": version, "baseline": short, "portion": portion, "players": players, "layout": layout, "ranked": ranked} {
		if err := Write(filepath.Join(dir, name), f); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string][]byte{"truncated": data[:len(data)-40], "empty": {}, "other": []byte("field,id\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"players": `the players are "rows"`, "layout": "the values of fields are for 9 entries, expected 3 for 3 fields", "ranked": "the estimator path gives no values of pairs",
		"version": "specification has version 3", "portion": `shaver.dataset_rows is "3", expected a number of rows, at least 4`, "baseline": "baseline has 3 values", "truncated": "truncated is damaged",
		"empty": "empty is not a scores file", "other": "other is not a scores file", "missing": "missing",
	} {
		if _, err := Read(filepath.Join(dir, name)); !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("error for the file %s: %v", name, err)
		}
	}
}

// A flipped bit in any byte of a scores file is refused; SHAVER_LONG=2 flips all bits. Only
// a file of the older version may lack the digest.
func TestDigest(t *testing.T) {
	long.Test(t)
	path := filepath.Join(t.TempDir(), "s.arrow")
	if err := Write(path, example()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read := func(data []byte) (*File, error) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return Read(path)
	}
	damaged, step := 0, 7 // each byte has a bit that is a multiple of 7
	if long.Hours() {
		step = 1
	}
	for flip := 0; flip < 8*len(data); flip += step {
		data[flip/8] ^= 1 << (flip % 8)
		_, err := read(data)
		if !fault.IsInput(err) || strings.Contains(err.Error(), "runtime error") {
			t.Fatalf("byte %d, bit %d: %v", flip/8, flip%8, err)
		}
		if strings.Contains(err.Error(), "s.arrow is damaged: its content does not match its digest") {
			if damaged++; damaged == 1 && !fault.IsInput(Verify(path)) {
				t.Errorf("Verify: %v", Verify(path))
			}
		}
		data[flip/8] ^= 1 << (flip % 8)
	}
	if damaged < 8*len(data)/step/2 {
		t.Errorf("only %d of %d flipped bits are called damage", damaged, 8*len(data)/step)
	}
	if f, err := read(data); err != nil || !reflect.DeepEqual(f, example()) {
		t.Errorf("the file itself: %+v, %v", f, err)
	}
	if err := Verify(path); err != nil {
		t.Error(err)
	}
	_, err = read(bytes.ReplaceAll(data, []byte("shaver.scores/3"), []byte("shaver.scores/2")))
	if err == nil || !strings.Contains(err.Error(), "damaged: files of version shaver.scores/2 have no digest") {
		t.Error(err)
	}
	none := bytes.ReplaceAll(data, []byte("shaver.digest"), []byte("shaver.nothing")[:13])
	if _, err = read(none); err == nil || !strings.Contains(err.Error(), "damaged: its digest is missing") {
		t.Error(err)
	}
	if f, err := read(bytes.ReplaceAll(none, []byte("shaver.scores/3"), []byte("shaver.scores/2"))); err != nil || !reflect.DeepEqual(f, example()) {
		t.Errorf("a file of the older version: %+v, %v", f, err)
	}
}

// CheckModel returns bad input for another model or another table.
func TestCheckModel(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{2, 1}, Dim: 2}
	if err := example().CheckModel(a, "m"); err != nil {
		t.Error(err)
	}
	if err := example().CheckModel(a, "other"); !fault.IsInput(err) || !strings.Contains(err.Error(), "another model") {
		t.Errorf("error for another model: %v", err)
	}
	if err := example().CheckModel(&model.Architecture{FieldDims: []int{2, 2}, Dim: 2}, "m"); !fault.IsInput(err) {
		t.Errorf("error for another table: %v", err)
	}
}

// Aggregate returns the values of each aggregate.
func TestAggregates(t *testing.T) {
	f := example()
	if all := Aggregates(); all[0] != DefaultAggregate {
		t.Errorf("aggregates %v, expected %s first", all, DefaultAggregate)
	}
	for name, want := range map[string][]float64{Sum: f.Phi, Abs: {1, 2, 0, 0, 3, 4}, RMS: {2, 3, 0, 0, 4, 5}} {
		if got, err := f.Aggregate(name); err != nil || !slices.Equal(got, want) {
			t.Errorf("aggregate %s is %v, want %v; error %v", name, got, want, err)
		}
	}
	if _, err := f.Aggregate("max"); err == nil || !strings.Contains(err.Error(), `aggregate "max": the aggregates are rms, sum, abs`) {
		t.Error(err)
	}
}

// The kind of the standard errors depends on the job's estimator and passes.
func TestStandardErrors(t *testing.T) {
	f := example()
	if got := f.StandardError(); got != Estimated {
		t.Errorf("with two passes the standard errors are: %s", got)
	}
	if dataset, population := factorsAt(f, 8); dataset != population || math.Abs(dataset-2.3646) > 1e-4 {
		t.Errorf("intervals for 8 rows of a sample: %v and %v, expected Student's t with 7 degrees of freedom", dataset, population)
	}
	f.Spec.Passes = 1
	if got := f.StandardError(); got != UpperBound {
		t.Errorf("with one pass the standard errors are: %s", got)
	}
	f.Spec.Estimator = "exact"
	if got := f.StandardError(); got != Estimated {
		t.Errorf("with exact the standard errors are: %s", got)
	}
	if dataset, population := factorsAt(f, tally.LeastRows-1); !math.IsNaN(dataset) || !math.IsNaN(population) {
		t.Errorf("intervals for too few rows: %v and %v, expected NaN", dataset, population)
	}
}

// Audits of earlier programs, whose reference was walks, can still be read.
func TestEarlierAudit(t *testing.T) {
	var a Audit
	if err := json.Unmarshal([]byte(`{"rows": 3, "entries": 4, "relative_bias": 0.2, "walks_spearman": 0.5, "overlaps": [{"sparsity": 0.9, "overlap": 0.75, "walks": 0.6}], "endpoints": 0.1}`), &a); err != nil {
		t.Fatal(err)
	}
	want := Audit{Reference: "permutation", Rows: 3, Entries: 4, RelativeBias: Figure(.2), ReferenceSpearman: Figure(.5), Overlaps: []Overlap{{.9, .75, .6}}}
	if !reflect.DeepEqual(a, want) {
		t.Errorf("read %+v, expected %+v", a, want)
	}
}

// Copy writes the bytes that it has checked, even if another file gets the name meanwhile. It
// writes nothing of a file that is refused or damaged.
func TestCopy(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "s.arrow"), filepath.Join(dir, "other.arrow")
	if err := errors.Join(Write(path, example()), Write(other, pairedExample())); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	err = Copy(&got, path, func(head *File) error {
		if head.Spec.ID() != example().Spec.ID() {
			t.Errorf("the head is %+v", head)
		}
		return os.Rename(other, path)
	})
	if err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes, expected %d others (%v)", got.Len(), len(want), err)
	}
	got.Reset()
	refusal := errors.New("refused")
	if err := Copy(&got, path, func(*File) error { return refusal }); !errors.Is(err, refusal) || got.Len() > 0 {
		t.Errorf("a file that is refused: %d bytes, %v", got.Len(), err)
	}
	want[len(want)/2] ^= 1
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Copy(&got, path, func(*File) error { return nil }); !fault.IsInput(err) || got.Len() > 0 {
		t.Errorf("a damaged file: %d bytes, %v", got.Len(), err)
	}
}

// A value whose squares were all rounded to 0 has no interval, because an interval of the width 0 would claim that it is
// known exactly. A value that is 0 in all rows has one.
func TestVanishedSquares(t *testing.T) {
	f := example()
	f.Rows, f.Count[0] = 1000, 50
	from, to := f.Shape.Row(0)
	for i := from; i < to; i++ {
		f.Phi[i], f.RMS[i], f.SE[i], f.PopulationSE[i] = 0, 0, 0, 0
	}
	if _, population := f.Intervals()(0); math.IsNaN(population) {
		t.Error("values that are 0 in all rows have no interval")
	}
	f.Phi[from] = 1e-8
	if dataset, population := f.Intervals()(0); !math.IsNaN(dataset) || !math.IsNaN(population) {
		t.Errorf("the interval has the half-width %g times 0", population)
	}
	var csv strings.Builder
	if err := WriteCSV(&csv, f); err != nil {
		t.Fatal(err)
	}
	if line := strings.Split(csv.String(), "\n")[1]; !strings.Contains(line, ",0,50,,,1e-08") {
		t.Errorf("the line of the feature is %s", line)
	}
	f.RMS[from] = 1e-8
	if _, population := f.Intervals()(0); math.IsNaN(population) {
		t.Error("a value with squares has no interval")
	}
}
