package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/train"
	"shaver/internal/data/dataset"
)

type tuneOptions struct {
	trainingOptions
	model string
}

// tuning is the default settings of "tune", without those that other flags set.
var tuning = training{Tune: true, Epochs: 15, Patience: 2, LearningRate: 2e-4, WeightDecay: 1e-5, Batch: 2048}

// defaultTuning returns the settings with which other commands tune.
func defaultTuning() training {
	t := tuning
	t.Optimizer, t.Order, t.Seed = train.Adam, orderShuffle, 1
	return t
}

func tuneCommand() *cobra.Command {
	o := tuneOptions{trainingOptions: trainingOptions{training: tuning}}
	c := &cobra.Command{
		Use:     "tune",
		Short:   "Train the kept entries and the head of a pruned model",
		Long:    help("tune"),
		Example: `  shaver tune --model pruned.safetensors --dataset data --out tuned.safetensors`,
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			return o.run(c)
		},
	}
	modelFlag(c, &o.model, "pruned model `file`, in compact form")
	o.trainingOptions.flags(c)
	cli.Group(c, "Files", "model", "dataset", "out", "force")
	cli.MarkRequired(c, "model", "dataset", "out")
	return c
}

func (o *tuneOptions) run(c *cobra.Command) error {
	t, err := o.course()
	if err != nil {
		return err
	}
	return t.run(c)
}

// course checks the flags and the files, and returns the training.
func (o *tuneOptions) course() (*course, error) {
	o.outputs.Inputs(checkpoint.Files(o.model)...)
	if err := o.check(); err != nil {
		return nil, err
	}
	ck, err := checkpoint.Read(o.model)
	if err != nil {
		return nil, err
	}
	if ck.Compact == nil {
		return nil, fault.Usagef("%s is not in compact form: expected a file of shaver prune; shaver train --model continues other models", o.model)
	}
	t := &course{trainingOptions: &o.trainingOptions, from: ck, compact: true}
	if t.dropped, t.baseline, err = ck.Pruned(); err != nil {
		return nil, err
	}
	if o.Model, err = digestOf(o.model); err != nil {
		return nil, err
	}
	t.data, err = o.open(&ck.Architecture, ck.Fields)
	return t, err
}

// writeTuned writes the model that "prune --tune" prunes and tunes. The pruned model is in a
// hidden file next to --out while the command runs. If the command is interrupted, it writes the same
// file again and continues the training.
func (o *pruneOptions) writeTuned(ctx context.Context, r *pruning) (err error) {
	hidden := filepath.Join(filepath.Dir(o.Out), "."+filepath.Base(o.Out)+".pruned")
	defer atomicfile.Track(hidden).Remove()
	if r.Sizes, err = r.Write(hidden, nil); err != nil {
		return err
	}
	t := &tuneOptions{model: hidden, trainingOptions: trainingOptions{
		training: defaultTuning(), out: o.Out, dataset: o.Dataset, optimizer: string(train.Adam), outputs: o.outputs, output: o.output,
	}}
	course, err := t.course()
	if err != nil {
		return err
	}
	if course.data.Rows(dataset.Val) == 0 {
		return fault.Inputf("dataset %s has no rows in the split %s, by which --tune chooses", joined(o.Dataset), dataset.Val)
	}
	if r.Tuned, err = course.train(ctx); err != nil {
		return err
	}
	info, err := os.Stat(o.Out)
	if err != nil {
		return err
	}
	r.Bytes = info.Size()
	return nil
}
