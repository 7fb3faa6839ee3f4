// Package preparetest makes a small request, with its model and dataset folder, for tests.
package preparetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/baseline"
	"shaver/internal/checkpoint"
	"shaver/internal/dataset"
	"shaver/internal/estimator"
	"shaver/internal/ingest"
	"shaver/internal/model"
	"shaver/internal/planted"
	"shaver/internal/prepare"
)

// Request returns a request for a planted model with two fields and 14 features. The
// dataset has 300 rows in the splits train and val, which are cut into shards of 25.
// folder holds the dataset, and is deleted when the test ends.
func Request(tb testing.TB) (r prepare.Request, folder string) {
	tb.Helper()
	p, err := planted.New(planted.Config{Fields: []string{"a", "b"}, FieldDims: []int{9, 5}, Informative: 2, Silent: 1, Seed: 3})
	if err != nil {
		tb.Fatal(err)
	}
	var rows model.Rows
	p.Rows(&rows, 0, 300)
	var csv strings.Builder
	csv.WriteString("label,a,b\n")
	for i := range rows.Len() {
		fmt.Fprintf(&csv, "%d,%d,%d\n", rows.Label[i], rows.Row(i)[0], rows.Row(i)[1])
	}
	dir := tb.TempDir()
	file := filepath.Join(dir, "rows.csv")
	if err := os.WriteFile(file, []byte(csv.String()), 0o600); err != nil {
		tb.Fatal(err)
	}
	config := ingest.EncodedConfig{Train: []string{file}, Sizes: p.FieldDims, Global: true, Out: filepath.Join(dir, "dataset")}
	if _, err := ingest.ImportEncoded(tb.Context(), config); err != nil {
		tb.Fatal(err)
	}
	d, err := dataset.Open(config.Out)
	if err != nil {
		tb.Fatal(err)
	}
	return prepare.Request{
		Open:    func() (*checkpoint.Checkpoint, error) { return p.Checkpoint, nil },
		Dataset: d, Splits: []string{dataset.Train, dataset.Val}, Sample: 1, Baseline: baseline.Codebook,
		Options: estimator.Options{Estimator: estimator.Permutation, Passes: 3}, Seed: 1, RowsPerShard: 25,
	}, config.Out
}
