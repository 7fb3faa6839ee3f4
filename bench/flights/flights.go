// Package flights reads the flights checkpoints with their rows, for the programs that measure
// estimators.
package flights

import (
	"context"
	"os"
	"path/filepath"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
)

// Set is a model with rows for it.
type Set struct {
	Name   string
	Model  *model.Model
	Rows   *model.Rows
	Counts []int64 // counts of the features in train and val, [n], for the codebook
}

// Read returns the checkpoints deepfm.pth and dcn-mix.pth in dir, with every fifth row of
// train.csv.gz. Both share the rows.
func Read(ctx context.Context, dir string) ([]Set, error) {
	temporary, err := os.MkdirTemp("", "shaver-flights-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temporary)
	file := func(name string) string { return filepath.Join(dir, name) }
	var sets []Set
	for _, m := range []struct{ file, name string }{{"deepfm.pth", "DeepFM"}, {"dcn-mix.pth", "DCN-Mix"}} {
		ck, err := checkpoint.Read(file(m.file))
		if err != nil {
			return nil, err
		}
		s := Set{Name: m.name}
		if s.Model, err = ck.Model(); err != nil {
			return nil, err
		}
		sets = append(sets, s)
	}
	config := ingest.EncodedConfig{Train: []string{file("train.csv.gz")}, Val: []string{file("val.csv.gz")}, Sizes: sets[0].Model.FieldDims, Out: filepath.Join(temporary, "rows")}
	if _, err := ingest.ImportEncoded(ctx, config); err != nil {
		return nil, err
	}
	d, err := dataset.Open(config.Out)
	if err != nil {
		return nil, err
	}
	rows, err := every(ctx, d, 5)
	if err != nil {
		return nil, err
	}
	counts, err := d.Frequencies(dataset.Train, dataset.Val)
	for i := range sets {
		sets[i].Rows, sets[i].Counts = rows, counts
	}
	return sets, err
}

// every returns every n-th row of train.
func every(ctx context.Context, d *dataset.Dataset, n int64) (*model.Rows, error) {
	all := &model.Rows{}
	err := d.Scan(ctx, []string{dataset.Train}, 4096, func(rows *model.Rows) error {
		for i := range rows.Len() {
			if rows.Number[i]%n == 0 {
				all.Append(rows, i)
			}
		}
		return nil
	})
	return all, err
}
