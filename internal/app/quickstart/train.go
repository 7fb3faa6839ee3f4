package quickstart

import (
	"context"

	"shaver/internal/app/steps"
	"shaver/internal/app/training"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/mask"
)

// training returns a training of the quickstart that writes to out.
func (o *Steps) training(out string) *training.Options {
	return &training.Options{Out: o.file(out), Folders: []string{o.file("dataset")}, Settings: training.Settings{
		Epochs: 10, Patience: 2, LearningRate: 2e-3, WeightDecay: 1e-5, Dropout: .2, Batch: 512, Optimizer: train.Adam, Order: training.OrderShuffle, Seed: o.Seed,
	}}
}

// fit trains the model of the quickstart and writes it to model.safetensors.
func (o *Steps) fit(ctx context.Context) error {
	options := o.training("model.safetensors")
	if err := options.Check(); err != nil {
		return err
	}
	t, err := options.Fresh(&model.Architecture{Kind: model.DeepFM, Dim: 8, Hidden: []int{64, 32}}, true, training.InitialDefault)
	if err != nil {
		return err
	}
	_, err = t.Train(ctx)
	return err
}

// tuned is the result of tuning in the quickstart.
type tuned struct {
	Before, After *float64 // AUC on the test split, nil if all labels are the same
	Epochs        int      // number of the best epoch
}

// tune prunes the trained model, tunes it, and measures both on the test split.
func (o *Steps) tune(ctx context.Context) (*tuned, error) {
	prune := steps.NewPrune()
	prune.Model, prune.Scores, prune.Out, prune.Warn = o.file("model.safetensors"), o.file("order.arrow"), o.file("pruned.safetensors"), nil
	prune.Budget = &mask.Budget{Unit: mask.Sparsity, Amount: .95}
	if _, err := prune.Run(ctx); err != nil {
		return nil, err
	}
	options := o.training("tuned.safetensors")
	options.Tune, options.LearningRate, options.Dropout = true, 2e-4, 0
	t, err := options.Tuning(o.file("pruned.safetensors"))
	if err != nil {
		return nil, err
	}
	result, err := t.Train(ctx)
	if err != nil {
		return nil, err
	}
	found := &tuned{Epochs: result.Best}
	for name, auc := range map[string]**float64{"pruned.safetensors": &found.Before, "tuned.safetensors": &found.After} {
		_, predictions, err := steps.Measure(ctx, o.file(name), []string{o.file("dataset")}, dataset.Test)
		if err != nil {
			return nil, err
		}
		*auc = scores.Figure(predictions.Metrics().AUC)
	}
	return found, nil
}
