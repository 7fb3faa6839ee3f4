// Package preparetest makes a small request, with its model and dataset folder, for tests.
package preparetest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/click/planted"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// Request returns a request for a planted model with two fields and 14 features. The
// dataset has 300 rows in the splits train and val, which are cut into shards of 25.
// folder holds the dataset, and is deleted when the test ends.
func Request(tb testing.TB) (r prepare.Request, folder string) {
	tb.Helper()
	return RequestOf(tb, 300)
}

// RequestOf is Request for a dataset with the given number of rows.
func RequestOf(tb testing.TB, n int) (r prepare.Request, folder string) {
	tb.Helper()
	return request(tb, n, 1)
}

// Wide is Request for a model whose table has 308 entries, so that a path through it adds entries at its end.
func Wide(tb testing.TB) prepare.Request {
	tb.Helper()
	r, _ := request(tb, 300, 20)
	return r
}

// request is RequestOf for a model with a number of useless columns.
func request(tb testing.TB, n, silent int) (r prepare.Request, folder string) {
	tb.Helper()
	p, err := planted.New(planted.Config{Fields: []string{"a", "b"}, FieldDims: []int{9, 5}, Informative: 2, Silent: silent, Seed: 3})
	if err != nil {
		tb.Fatal(err)
	}
	var rows model.Rows
	p.Rows(&rows, 0, n)
	var csv strings.Builder
	csv.WriteString("label,a,b\n")
	for i := range rows.Len() {
		fmt.Fprintf(&csv, "%v,%d,%d\n", rows.Label[i], rows.Row(i)[0], rows.Row(i)[1])
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
		Open:    func() (modelfile.Source, error) { return p.Checkpoint, nil },
		Dataset: d, Splits: []string{dataset.Train, dataset.Val}, Sample: 1, Baseline: baseline.Codebook,
		Options: estimator.Options{Estimator: estimator.Permutation, Passes: 3}, Seed: 1, RowsPerShard: 25,
	}, config.Out
}

// Paired returns a request like that of Request for a paired job on a fifth of the rows. Its
// previous model is the model of Request, and its model a slightly changed copy. The previous
// values are all 0, so the values of the job are meaningless.
func Paired(tb testing.TB) prepare.Request {
	tb.Helper()
	r, _ := Request(tb)
	was, err := prepare.New(r, zap.NewNop())
	if err != nil {
		tb.Fatal(err)
	}
	shape := was.Architecture.Shape()
	f := &scores.File{
		Fields: r.Dataset.Fields(), Layout: scores.LayoutOf(&was.Architecture), Spec: was.Spec, Baseline: was.Baseline, DatasetRows: was.Sample.Rows,
		Result: tally.Result{Rows: was.Sample.Rows, Scores: tally.Scores{Shape: shape, Count: make([]int64, shape.Rows()), Values: tally.NewValues(shape.Entries())}},
	}
	r.Previous = &prepare.Previous{Open: r.Open, Scores: f, Digest: strings.Repeat("5", 64)}
	r.Open, r.Sample = Changed(tb, r.Open), .2
	return r
}

// Changed returns the checkpoint that open reads with every embedding made larger by a
// tenth.
func Changed(tb testing.TB, open func() (modelfile.Source, error)) func() (modelfile.Source, error) {
	tb.Helper()
	source, err := open()
	if err != nil {
		tb.Fatal(err)
	}
	ck := source.(*checkpoint.Checkpoint)
	table, err := ck.Embedding()
	if err != nil {
		tb.Fatal(err)
	}
	table = slices.Clone(table)
	for i := range table {
		table[i] *= 1.1
	}
	changed := ck.WithEmbedding(table)
	return func() (modelfile.Source, error) { return changed, nil }
}
