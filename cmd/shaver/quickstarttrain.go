package main

import (
	"context"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/prune/cut"
	"shaver/internal/value/mask"
)

// quickstartTraining is the settings with which the quickstart trains and tunes.
var quickstartTraining = training{
	Epochs: 10, Patience: 2, LearningRate: 2e-3, WeightDecay: 1e-5, Dropout: .2, Batch: 512, Order: orderShuffle,
}

// course returns a training of the quickstart that writes to out.
func (o *quickstartOptions) course(file func(string) string, out string) *course {
	options := &trainingOptions{training: quickstartTraining, out: file(out), dataset: []string{file("dataset")}, optimizer: string(train.Adam), output: o.output}
	options.Seed = o.seed
	return &course{trainingOptions: options}
}

// fit trains the model of the quickstart and writes it to model.safetensors.
func (o *quickstartOptions) fit(ctx context.Context, file func(string) string) error {
	options := o.course(file, "model.safetensors").trainingOptions
	if err := options.check(); err != nil {
		return err
	}
	t, err := options.fresh(&model.Architecture{Kind: model.DeepFM, Dim: 8, Hidden: []int{64, 32}}, true, initialDefault)
	if err != nil {
		return err
	}
	_, err = t.train(ctx)
	return err
}

// tuned is the result of tuning in the quickstart.
type tuned struct {
	Before, After *float64 // AUC on the test split, nil if all labels are the same
	Epochs        int      // number of the best epoch
}

// tune prunes the trained model, tunes it, and measures both on the test split.
func (o *quickstartOptions) tune(ctx context.Context, file func(string) string) (*tuned, error) {
	choice, err := (&cut.Options{
		Model: file("model.safetensors"), Scores: file("order.arrow"), Out: file("pruned.safetensors"), Rank: mask.Abs,
		Budget: &mask.Budget{Unit: mask.Sparsity, Amount: .95}, Form: cut.Form{Values: compact.Float32},
	}).Choose()
	if err != nil {
		return nil, err
	}
	if _, err := choice.Write(file("pruned.safetensors"), nil); err != nil {
		return nil, err
	}
	t := &tuneOptions{model: file("pruned.safetensors"), trainingOptions: *o.course(file, "tuned.safetensors").trainingOptions}
	t.Tune, t.LearningRate, t.Dropout = true, 2e-4, 0
	course, err := t.course()
	if err != nil {
		return nil, err
	}
	result, err := course.train(ctx)
	if err != nil {
		return nil, err
	}
	found := &tuned{Epochs: result.Best}
	for name, auc := range map[string]**float64{"pruned.safetensors": &found.Before, "tuned.safetensors": &found.After} {
		ck, m, err := checkpoint.ReadModel(file(name), "")
		if err != nil {
			return nil, err
		}
		b, err := measure.Open([]string{file("dataset")}, dataset.Test, "", m)
		if err != nil {
			return nil, err
		}
		if err := b.Dataset.CheckNames(ck.Fields); err != nil {
			return nil, err
		}
		predictions, err := b.Predict(ctx, m, nil)
		if err != nil {
			return nil, err
		}
		*auc = figuresOf(predictions).AUC
	}
	return found, nil
}
