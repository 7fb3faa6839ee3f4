package training

import (
	"context"
	"errors"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
)

// Tables trains a model with one table after another, as "shaver sweep --tune" does.
type Tables struct {
	Read func(rows int64) // takes numbers of rows that were read
	*Course
}

// NewTables returns the training of the model of ck with the default settings. It reads the rows.
// what says what the validation rows are for, as for Course.NeedValidation.
func NewTables(ctx context.Context, ck *checkpoint.Checkpoint, folders []string, what string) (*Tables, error) {
	t := &Course{Options: &Options{Settings: DefaultTuning(), Folders: folders}, from: ck}
	if _, err := ck.Parameters(); err != nil { // before anything is measured
		return nil, err
	}
	var err error
	if t.data, err = t.open(ck); err != nil {
		return nil, err
	}
	if err := t.NeedValidation(what); err != nil {
		return nil, err
	}
	t.all, err = t.rows(ctx)
	if err != nil {
		return nil, err
	}
	return &Tables{Read: func(int64) {}, Course: t}, nil
}

// Work returns the largest number of rows that one call of Tune reads.
func (o *Tables) Work() int64 { return int64(o.all.Len()) * int64(o.Epochs) }

// Tune trains the model with the given tables, which it changes, except for the dropped
// entries. It returns the model of the best epoch and the number of this epoch. The model before
// the training is epoch 0. If the training diverges, the best epoch before that counts.
func (o *Tables) Tune(ctx context.Context, tables []float32, dropped []bool) (best *model.Model, epoch int, err error) {
	p, err := o.from.Parameters()
	if err != nil {
		return nil, 0, err
	}
	p.Embedding = tables
	trainer, err := train.New(o.from.Architecture, p, o.settings(dropped))
	if err != nil {
		return nil, 0, fault.Usagef("%w", err)
	}
	left := o.Work()
	r := &train.Run{
		Trainer: trainer, Rows: o.all, Epochs: o.Epochs, Patience: o.Patience, Shuffle: o.Order == OrderShuffle, Untrained: true, Measure: o.measure(),
		Stepped: func(rows int) {
			o.Read(int64(rows))
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
	o.Read(left)
	return best, epoch, err
}
