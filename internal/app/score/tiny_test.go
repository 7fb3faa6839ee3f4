package score

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap/zaptest"

	"shaver/internal/app/launch"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/click/planted"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/prepare"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
)

// tiny returns a job of a small model, and the folder of its dataset.
func tiny(t *testing.T) (j launch.Job, folder string) {
	t.Helper()
	p, err := planted.New(planted.Config{Fields: []string{"a", "b"}, FieldDims: []int{9, 5}, Informative: 2, Silent: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	var rows model.Rows
	p.Rows(&rows, 0, 60)
	csv := "label,a,b\n"
	for i := range rows.Len() {
		csv += fmt.Sprintf("%v,%d,%d\n", rows.Label[i], rows.Row(i)[0], rows.Row(i)[1])
	}
	dir := t.TempDir()
	file, folder := filepath.Join(dir, "rows.csv"), filepath.Join(dir, "dataset")
	if err := os.WriteFile(file, []byte(csv), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Sizes: p.FieldDims, Global: true, Out: folder}); err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	return launch.Job{Config: coordinator.Config{
		Request: prepare.Request{
			Open: func() (modelfile.Source, error) { return p.Checkpoint, nil }, Dataset: d, Splits: []string{dataset.Train}, Sample: 1, Baseline: baseline.Codebook,
			Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}, Seed: 1,
		},
		Out: filepath.Join(t.TempDir(), "s.arrow"), Queue: bus.DefaultQueue, Log: zaptest.NewLogger(t),
	}}, folder
}
