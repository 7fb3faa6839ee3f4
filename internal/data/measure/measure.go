// Package measure measures models on one split of a dataset, and writes their predictions.
package measure

import (
	"context"
	"runtime"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/num/loss"
)

// Bench measures models on one split of a dataset.
type Bench struct {
	Dataset *dataset.Dataset
	Split   string
	Rows    int64 // number of rows in the split
	Loss    loss.Kind
	Without []int64 // numbers of rows that are not measured, ascending
}

// Open opens a split of the dataset in the folders for measuring m and other models with the same
// fields. name is that of the loss, or "" for that of the dataset's labels. k is what the model knows of its
// fields, or nil. If these are only some of those of the dataset, the bench reads only these.
func Open(folders []string, split, name string, m *model.Model, k *model.Known) (*Bench, error) {
	d, err := dataset.OpenAll(folders)
	if err != nil {
		return nil, err
	}
	if d, err = d.For(&m.Architecture, k); err != nil {
		return nil, err
	}
	rows := d.Rows(split)
	if rows == 0 {
		return nil, fault.Inputf("dataset %s has no split %q: it has %v", strings.Join(folders, ", "), split, d.SplitNames())
	}
	kind, err := d.ChooseLoss(name, k)
	if err != nil {
		return nil, err
	}
	return &Bench{Dataset: d, Split: split, Rows: rows, Loss: kind}, nil
}

// Predict predicts the labels of the split on all cores. It calls read with the number of rows of
// each batch that it reads, unless read is nil.
func (b *Bench) Predict(ctx context.Context, m *model.Model, read func(rows int)) (*evaluate.Predictions, error) {
	source := func(ctx context.Context, each func(*model.Rows) error) error {
		return b.Dataset.Scan(ctx, []string{b.Split}, 4096, func(rows *model.Rows) error {
			if read != nil {
				read(rows.Len())
			}
			if b.Without != nil {
				rows = b.measured(rows)
			}
			return each(rows)
		})
	}
	return evaluate.Predict(ctx, m, b.Loss, source, runtime.GOMAXPROCS(0))
}

// measured returns the rows that are measured.
func (b *Bench) measured(rows *model.Rows) *model.Rows {
	part := &model.Rows{Width: rows.Width, Inputs: rows.Inputs}
	for i, number := range rows.Number {
		if _, out := slices.BinarySearch(b.Without, number); !out {
			part.Append(rows, i)
		}
	}
	return part
}
