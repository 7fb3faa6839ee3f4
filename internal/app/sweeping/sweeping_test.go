package sweeping_test

import (
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/app/quickstart"
	"shaver/internal/app/sweeping"
	"shaver/internal/base/long"
	"shaver/internal/click/compact"
	"shaver/internal/data/dataset"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

// files makes a model, its scores and a dataset, and returns the comparison of its magnitudes with
// the given aggregates.
func files(t *testing.T) func(aggregates ...string) *sweeping.Input {
	t.Helper()
	dir := t.TempDir()
	steps := quickstart.Steps{Rows: 3000, Seed: 1, Folder: dir, Say: func(string, ...any) {}}
	if _, _, err := steps.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return func(aggregates ...string) *sweeping.Input {
		return &sweeping.Input{
			Model: filepath.Join(dir, "model.safetensors"), Scores: []string{filepath.Join(dir, "scores.arrow")}, Folders: []string{filepath.Join(dir, "dataset")}, Split: dataset.Test,
			Aggregates: aggregates, Given: true, Rank: mask.Abs, Rivals: []string{sweep.Magnitude}, Values: []compact.Encoding{compact.Float32}, Seed: 1, Budgets: mask.Budgets(mask.Sparsity, .9, .99),
		}
	}
}

// Tables of mixed values are smaller than those of int8 at the same sparsity, have nearly the loss of
// float32 values, and make the document one of bytes.
func TestMixed(t *testing.T) {
	long.Test(t)
	t.Parallel()
	o := files(t)("rms")
	o.Rivals, o.Values, o.Budgets, o.Calibrate = nil, []compact.Encoding{compact.Float32, compact.Int8, compact.Mixed}, mask.Budgets(mask.Sparsity, .9), true
	d, err := o.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Points) != 4 || d.Points[3].Method != sweep.Nothing || !d.InBytes() {
		t.Fatalf("%+v", d.Points)
	}
	whole, fixed, mixed := &d.Points[0], &d.Points[1], &d.Points[2]
	if mixed.Values != string(compact.Mixed) || mixed.Bits < 1 || mixed.Bits > 16 || *mixed.TableBytes >= *fixed.TableBytes || *mixed.Bytes <= *mixed.TableBytes || *mixed.MemoryBytes <= 0 || mixed.Parameters != whole.Parameters {
		t.Errorf("%+v after %+v", mixed, fixed)
	}
	if mixed.LogLoss == whole.LogLoss || *mixed.CalibratedLogLoss > *whole.CalibratedLogLoss+.005 {
		t.Errorf("a LogLoss of %v, and %v of float32 values", *mixed.CalibratedLogLoss, *whole.CalibratedLogLoss)
	}
	if words := strings.Join(d.Flags(mixed, "rms"), " "); !strings.Contains(words, "--values auto") {
		t.Errorf("flags %s", words)
	}
}
