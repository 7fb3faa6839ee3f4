package main

import (
	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/training"
)

type tuneOptions struct {
	trainingFlags
	model string
}

func tuneCommand() *cobra.Command {
	o := tuneOptions{trainingFlags: trainingFlags{Options: training.Options{Settings: training.DefaultTuning()}}}
	c := &cobra.Command{
		Use:     "tune",
		Short:   "Train the kept entries and the head of a pruned model",
		Long:    help.Text("tune"),
		Example: `  shaver tune --model pruned.safetensors --dataset data --out tuned.safetensors`,
		Args:    cli.Args(cobra.NoArgs),
		RunE:    cli.Run(o.run, o.output.Check),
	}
	flags.Model(c, &o.model, "pruned model `file`, in compact form")
	o.trainingFlags.add(c)
	cli.Group(c, "Files", "model", "dataset", "out", "force")
	cli.MarkRequired(c, "model", "dataset", "out")
	return c
}

func (o *tuneOptions) run(c *cobra.Command, _ []string) error {
	t, err := o.Tuning(o.model)
	if err != nil {
		return err
	}
	return o.trainingFlags.run(c, t)
}
