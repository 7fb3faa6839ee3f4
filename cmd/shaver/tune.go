package main

import (
	"github.com/spf13/cobra"

	"shaver/internal/checkpoint"
	"shaver/internal/cli"
	"shaver/internal/fault"
)

type tuneOptions struct {
	trainingOptions
	model string
}

func tuneCommand() *cobra.Command {
	o := tuneOptions{trainingOptions: trainingOptions{training: training{
		Tune: true, Epochs: 15, Patience: 2, LearningRate: 2e-4, WeightDecay: 1e-5, Batch: 2048,
	}}}
	c := &cobra.Command{
		Use:   "tune",
		Short: "Train the kept entries and the head of a pruned model",
		Long: `Train a pruned model on the split train of a dataset. Dropped entries stay
dropped and keep the baseline. The kept entries, the first-order weights, the
head and its BatchNorm are trained. After each epoch the command measures the
AUC on the split val, and --out always has the best model so far. The model
before training is a candidate too, so the AUC on this split never falls.

--model and --out are compact files with the same mask and the same --values.
The AUC of the epochs is that of float32 values. shaver train continues models
that are not pruned.

The command continues after an interruption as shaver train does. It inflates
the table, so it needs the memory of the training of the whole model.`,
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
