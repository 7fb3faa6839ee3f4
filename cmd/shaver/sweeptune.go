package main

import (
	"context"
	"errors"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
	"shaver/internal/data/dataset"
)

// tuning returns the training that "sweep --tune" repeats for each table of the checkpoint.
func (o *sweepInput) tuning(ctx context.Context, ck *checkpoint.Checkpoint) (*course, error) {
	t := &course{trainingOptions: &trainingOptions{training: defaultTuning(), dataset: o.dataset}, from: ck}
	if _, err := ck.Parameters(); err != nil { // before anything is measured
		return nil, err
	}
	var err error
	if t.data, err = t.open(&ck.Architecture, ck.Fields); err != nil {
		return nil, err
	}
	if t.data.Rows(dataset.Val) == 0 {
		return nil, fault.Inputf("dataset %s has no rows in the split %s, by which --tune chooses", joined(o.dataset), dataset.Val)
	}
	t.all, err = t.rows(ctx)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// work returns the largest number of rows that one call of tuneTables reads.
func (o *course) work() int64 { return int64(o.all.Len()) * int64(o.Epochs) }

// tuneTables trains the model with the given tables, which it changes, except for the dropped
// entries. It returns the model of the best epoch and the number of this epoch. The model before
// the training is epoch 0. If the training diverges, the best epoch before that counts.
func (o *course) tuneTables(ctx context.Context, tables []float32, dropped []bool) (best *model.Model, epoch int, err error) {
	p, err := o.from.Parameters()
	if err != nil {
		return nil, 0, err
	}
	p.Embedding = tables
	trainer, err := train.New(o.from.Architecture, p, o.settings(dropped))
	if err != nil {
		return nil, 0, fault.Usagef("%w", err)
	}
	left := o.work()
	r := &train.Run{
		Trainer: trainer, Rows: o.all, Epochs: o.Epochs, Patience: o.Patience, Shuffle: o.Order == orderShuffle, Untrained: true, Measure: o.measure(),
		Stepped: func(rows int) {
			o.progress.Add(int64(rows))
			left -= int64(rows)
		},
	}
	r.Done = func(e train.Epoch, first bool) error {
		if !first {
			return nil
		}
		epoch = e.Number
		best, err = model.New(o.from.Architecture, trainer.Parameters().Clone().Weights())
		return err
	}
	err = r.Run(ctx)
	var diverged *train.Diverged
	if errors.As(err, &diverged) && best != nil {
		err = nil
	}
	o.progress.Add(left)
	return best, epoch, err
}
