package scores

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/model"
	"shaver/internal/tally"
)

func example() *File {
	return &File{
		Fields: []string{"a", "b"}, FieldDims: []int{2, 1},
		Spec: job.Spec{
			Version: job.SpecVersion, Model: "m", Dataset: "d", Splits: []string{"train"}, Sample: 0.5,
			Baseline: "codebook", Estimator: "permutation", Passes: 2, Seed: 7, Kernel: "k",
		},
		Baseline: []float32{0.1, -2, 3e-9, 4},
		Spread:   tally.RowToRow,
		Result: tally.Result{
			Scores: tally.Scores{Dim: 2, Count: []int64{3, 0, 4}, Phi: []float64{0.1, -2e-9, 0, 0, 1. / 3, 5}, SE: []float64{1, 2, 0, 0, 3, 4}},
			Rows:   4, LossFull: 0.4, LossEmpty: 0.7, EfficiencyError: 1e-10, EfficiencyExpected: 2e-3,
		},
	}
}

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
		t.Error("the same scores have two forms")
	}
	got, err := Read(filepath.Join(dir, "one"))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, want %+v", got, want)
	}
	want.QuarantinedRows = 3
	if err := Write(filepath.Join(dir, "three"), want); err != nil {
		t.Fatal(err)
	}
	head, err := ReadHead(filepath.Join(dir, "three"))
	want.Count, want.Phi, want.SE = nil, nil, nil
	if err != nil || !reflect.DeepEqual(head, want) {
		t.Errorf("head %+v, want %+v, %v", head, want, err)
	}
}

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
	short := example()
	short.Baseline = short.Baseline[1:]
	for name, f := range map[string]*File{"version": version, "baseline": short} {
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
		"version": "has version 2", "baseline": "baseline has 3 values", "truncated": "truncated is not a scores file",
		"empty": "empty is not a scores file", "other": "other is not a scores file", "missing": "missing",
	} {
		if _, err := Read(filepath.Join(dir, name)); !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckModel(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{2, 1}, Dim: 2}
	if err := example().CheckModel(a, "m"); err != nil {
		t.Error(err)
	}
	if err := example().CheckModel(a, "other"); !fault.IsInput(err) || !strings.Contains(err.Error(), "another model") {
		t.Errorf("another model: %v", err)
	}
	if err := example().CheckModel(&model.Architecture{FieldDims: []int{2, 2}, Dim: 2}, "m"); !fault.IsInput(err) {
		t.Errorf("another table: %v", err)
	}
}
