package rivals_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/app/rivals"
	"shaver/internal/app/training/trainingtest"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/num/kernel"
	"shaver/internal/prune/benchmark"
)

// tiny returns a benchmark that takes little time.
func tiny(data, out string, methods ...string) *rivals.Options {
	return &rivals.Options{
		Out: out, Folders: []string{data}, Kinds: []string{"deepfm"}, Methods: methods, Sparsities: []float64{.5, .95}, Seeds: 1, Say: io.Discard,
		Settings: benchmark.Settings{Kernel: kernel.Name(), Dim: 4, Hidden: []int{16, 8}, BatchNorm: true, CrossLayers: 3, Experts: 4, Rank: 64, Epochs: 4, Patience: 3, Batch: 256, WarmUp: 1},
	}
}

// Without a model with the full table, the results that need it say so, and all others are computed.
// Force tries again.
func TestWithoutFullTable(t *testing.T) {
	dir := t.TempDir()
	data, out := trainingtest.Clicks(t, dir, 2000), filepath.Join(dir, "out")
	d, err := tiny(data, out, benchmark.QR).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.Results = []benchmark.Result{{Line: benchmark.Line{Kind: "deepfm", Method: benchmark.Full}, Seed: 1, Failed: "it diverged"}}
	text, err := json.Marshal(d)
	if err == nil {
		err = os.WriteFile(filepath.Join(out, "benchmark.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	after, err := tiny(data, out, benchmark.Shapley, benchmark.SNIP, benchmark.SSEDS, benchmark.QR).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range after.Results {
		r := &after.Results[i]
		failed := r.Method == benchmark.Full || r.Method == benchmark.Shapley || r.Method == benchmark.SSEDS
		if failed != (r.Failed != "") {
			t.Errorf("%s at %v: failed %q", &r.Line, r.Sparsity, r.Failed)
		}
	}
	if n := len(after.Results); n != 1+2*(4+3) {
		t.Errorf("%d results, expected 15", n)
	}
	again := tiny(data, out, benchmark.Shapley)
	again.Outputs.Force = true
	forced, err := again.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r := forced.Find(benchmark.Line{Kind: "deepfm", Method: benchmark.Shapley, Baseline: "zero", Sparsity: .5}, 1); r == nil || r.Failed != "" {
		t.Errorf("Force did not try again: %+v", r)
	}
}

// Results of other settings are wrong usage, and nothing of them changes.
func TestOtherSettings(t *testing.T) {
	dir := t.TempDir()
	data, out := trainingtest.Clicks(t, dir, 1000), filepath.Join(dir, "out")
	if _, err := tiny(data, out, benchmark.QR).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(out, "benchmark.json"))
	if err != nil {
		t.Fatal(err)
	}
	o := tiny(data, out, benchmark.QR)
	o.Settings.Patience = 1
	if _, err := o.Run(t.Context()); !fault.IsUsage(err) || !strings.Contains(err.Error(), "other settings") {
		t.Error(err)
	}
	after, err := os.ReadFile(filepath.Join(out, "benchmark.json"))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the results changed: %v", err)
	}
}

// SSEDS drops the least number of whole columns of fields that have at least the portion of the entries.
func TestWholeColumns(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	if _, err := tiny(trainingtest.Clicks(t, dir, 2000), out, benchmark.SSEDS).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	ck, err := checkpoint.Read(filepath.Join(out, "deepfm", "sseds-0.5-seed1.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	gone, _, err := ck.Pruned()
	if err != nil {
		t.Fatal(err)
	}
	a, row, count, largest := &ck.Architecture, 0, 0, 0
	for _, size := range a.FieldDims {
		for column := range a.Dim {
			first := gone[row*a.Dim+column]
			for i := range size {
				if gone[(row+i)*a.Dim+column] != first {
					t.Fatalf("column %d of the field that begins at row %d is cut", column, row)
				}
			}
			if first {
				count, largest = count+size, max(largest, size)
			}
		}
		row += size
	}
	if half := len(gone) / 2; count < half || count-largest >= half {
		t.Errorf("%d of %d entries are dropped, the largest column has %d", count, len(gone), largest)
	}
}
