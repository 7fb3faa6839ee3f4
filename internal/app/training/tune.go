package training

import (
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/train"
	"shaver/internal/data/dataset"
)

// Default returns the settings of "shaver train", without the files.
func Default() Settings {
	return Settings{Epochs: 15, Patience: 3, LearningRate: 1e-3, WeightDecay: 1e-5, Dropout: .5, Batch: 2048, Optimizer: train.Adam, Order: OrderShuffle, Seed: 1}
}

// DefaultTuning returns the settings of "shaver tune", with which other commands tune too.
func DefaultTuning() Settings {
	return Settings{Tune: true, Epochs: 15, Patience: 2, LearningRate: 2e-4, WeightDecay: 1e-5, Batch: 2048, Optimizer: train.Adam, Order: OrderShuffle, Seed: 1}
}

// Tuning checks the settings and the files, and returns the training of the pruned model in a
// file, whose dropped entries stay dropped.
func (o *Options) Tuning(file string) (*Course, error) {
	o.Outputs.Inputs(checkpoint.Files(file)...)
	if err := o.Check(); err != nil {
		return nil, err
	}
	ck, err := checkpoint.Read(file)
	if err != nil {
		return nil, err
	}
	if ck.Compact == nil {
		return nil, fault.Usagef("%s is not in compact form: expected a compact file of shaver prune with a budget; shaver train --model trains all entries of any other model, such as one that has lost fields or columns", file)
	}
	t := &Course{Options: o, from: ck, compact: true}
	if t.dropped, t.baseline, err = ck.Pruned(); err != nil {
		return nil, err
	}
	if o.Model, err = files.Digest(file); err != nil {
		return nil, err
	}
	if err := t.begin(); err != nil || t.data.Rows(dataset.Val) == 0 {
		return t, err
	}
	return t, ck.Chosen(t.data.Digest(), checkpoint.Choose)
}

// Continued returns a training that begins with the model in a file, which is not pruned.
func (o *Options) Continued(file string) (*Course, error) {
	ck, err := checkpoint.Read(file)
	if err != nil {
		return nil, err
	}
	if ck.Composed != nil {
		return nil, fault.Usagef("%s has a table of scheme %s, whose training cannot continue: shaver model convert --dense writes an ordinary table", file, ck.Composed.Shape.Scheme)
	}
	if ck.Compact != nil {
		return nil, fault.Usagef("%s is a pruned model: shaver tune trains it and keeps the dropped entries", file)
	}
	ck.Origins, ck.Scored = nil, nil // dropped entries are trained too
	t := &Course{Options: o, from: ck}
	o.Model = ck.Digest()
	return t, t.begin()
}

// begin opens the dataset for the model with which the training begins. The model that the training
// writes has the fields, vocabularies and rules of dense inputs of the dataset.
func (o *Course) begin() (err error) {
	if o.data, err = o.open(o.from); err != nil {
		return err
	}
	o.Unknown = o.from.Known().Unknown()
	o.from.Identities, o.from.Standards = o.data.Identities(), o.data.Standards()
	return nil
}
