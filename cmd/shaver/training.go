package main

import (
	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/training"
	"shaver/internal/click/train"
)

// trainingFlags are the flags that "train" and "tune" share.
type trainingFlags struct {
	training.Options
	output cli.Output
}

// add adds the flags to c. The settings have the defaults.
func (o *trainingFlags) add(c *cobra.Command) {
	f := c.Flags()
	flags.Dataset(c, &o.Folders, "dataset `folder`, whose splits train and val are read")
	flags.Out(c, &o.Out, "model `file` to write, .safetensors", "safetensors")
	f.IntVar(&o.Epochs, "epochs", o.Epochs, "largest `number` of times to read the training rows")
	f.IntVar(&o.Patience, "patience", o.Patience, "`number` of epochs without a better one after which to stop; 0 = never")
	f.Float64Var(&o.LearningRate, "learning-rate", o.LearningRate, "learning `rate`")
	f.Float64Var(&o.WeightDecay, "weight-decay", o.WeightDecay, "`factor` of each weight that is added to its gradient")
	f.Float64Var(&o.Dropout, "dropout", o.Dropout, "`probability` of dropping a unit of a hidden layer")
	f.IntVar(&o.Batch, "batch", o.Batch, "`number` of rows of a step")
	flags.OneOf(c, (*string)(&o.Optimizer), "optimizer", string(train.Adam), "`rule` that moves the weights: "+string(train.Adam)+", or "+string(train.SparseAdam)+", which moves only the embeddings of a step's rows, without decay", string(train.Adam), string(train.SparseAdam))
	flags.OneOf(c, &o.Order, "order", training.OrderShuffle, "`order` of the rows: "+training.OrderShuffle+", another one in each epoch, or "+training.OrderFile, training.OrderShuffle, training.OrderFile)
	flags.Seed(c, &o.Seed)
	cli.KernelFlag(c, "`name` of the float32 kernel, such as avx2; others give slightly different weights; auto is the one with the widest vectors of this machine")
	o.Outputs.Flag(c, "a file at --out that is not the model of this training, and the state of another training")
	o.output.Flag(c)
	cli.Group(c, "Training", "epochs", "patience", "learning-rate", "weight-decay", "dropout", "batch", "optimizer", "order", "seed", "kernel")
}

// run trains, writes the best epoch, and prints the history.
func (o *trainingFlags) run(c *cobra.Command, t *training.Course) error {
	t.Warn = cli.Warn
	cli.Note(t.Unknown)
	if t.Unread != "" {
		cli.Log().Info(t.Unread)
	}
	result, err := t.Train(c.Context())
	if err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), result, result.WriteTable)
}
