// Package measure measures models on one split of a dataset, and writes their predictions.
package measure

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
	"shaver/internal/num/loss"
)

// Bench measures models on one split of a dataset.
type Bench struct {
	Dataset *dataset.Dataset
	Split   string
	Rows    int64 // number of rows in the split
	Loss    loss.Kind
	Without []int64 // numbers of rows that are not measured, ascending

	whole  *dataset.Dataset // with the same rows, and fields that the model does not read
	groups []int32          // of GroupBy; nil without groups
	top    int
}

// Open opens a split of the dataset in the folders for measuring m and other models with the same
// fields. name is that of the loss, or "" for that of the dataset's labels. k is what the model knows of its
// fields, or nil. If these are only some of those of the dataset, the bench reads only these.
func Open(folders []string, split, name string, m *model.Model, k *model.Known) (*Bench, error) {
	d, err := dataset.OpenAll(folders)
	if err != nil {
		return nil, err
	}
	whole := d
	if k != nil && k.Tasks != nil {
		if whole, err = d.ForTasks(k.Tasks); err != nil {
			return nil, err
		}
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
	return &Bench{Dataset: d, Split: split, Rows: rows, Loss: kind, whole: whole}, nil
}

// GroupBy makes Predict set the groups of the rows, and Top. A group has the rows with one value
// of a field, or of a dense input that the import did not change. The model need not read it. A row whose value has no id of its own is in no group. An
// empty name does nothing.
func (b *Bench) GroupBy(ctx context.Context, name string, top int) error {
	if name == "" {
		return nil
	}
	if b.Loss == loss.Squared {
		return fault.Usagef("--group %s: groups need labels 0 and 1, and the loss is %s", name, b.Loss.Name())
	}
	column, err := b.whole.Column(name)
	if err != nil {
		return fmt.Errorf("--group: %w", err)
	}
	none := int64(-1) // the id of all values without an id of their own
	for _, f := range column.Manifest.Fields {
		switch {
		case f.Length > 0:
			return fault.Inputf("--group: the field %s is a list: expected a field with one value in each row", name)
		case column.HasVocabulary():
			none = int64(f.OOVID())
		}
	}
	for _, in := range column.Standards() {
		if in.Rule != dense.None {
			return fault.Inputf("--group: the dense input %s has the rule %s, which may give two values one number: expected %s=%s:%s in the import", name, in.Rule, name, name, dense.None)
		}
	}
	groups, of := map[int64]int32{}, make([]int32, 0, b.Rows)
	err = column.Scan(ctx, []string{b.Split}, 4096, func(rows *model.Rows) error {
		if b.Without != nil {
			rows = b.measured(rows)
		}
		for i := range rows.Len() {
			key := int64(0)
			if rows.Inputs == 1 {
				if key = int64(math.Float32bits(rows.Dense[i] + 0)); math.Abs(float64(rows.Dense[i])) >= 1<<24 { // +0: not -0
					return fault.Inputf("--group: %s has the value %v, and float32 does not tell whole numbers from 2^24 on apart: import %s as a field", name, rows.Dense[i], name)
				}
			} else if key = int64(rows.Features[i]); key == none {
				of = append(of, -1)
				continue
			}
			g, ok := groups[key]
			if !ok {
				g = int32(len(groups))
				groups[key] = g
			}
			of = append(of, g)
		}
		return nil
	})
	b.groups, b.top = of, top
	return err
}

// Predict predicts the labels of the split on all cores. It calls read with the number of rows of
// each batch that it reads, unless read is nil.
func (b *Bench) Predict(ctx context.Context, m *model.Model, read func(rows int)) (*evaluate.Predictions, error) {
	p, err := evaluate.Predict(ctx, m, b.Loss, b.Source(read), runtime.GOMAXPROCS(0))
	if err == nil {
		p.Groups, p.Top = b.groups, b.top
	}
	return p, err
}

// Source reads the rows that are measured. read is as for Predict.
func (b *Bench) Source(read func(rows int)) model.RowSource {
	return func(ctx context.Context, each func(*model.Rows) error) error {
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
