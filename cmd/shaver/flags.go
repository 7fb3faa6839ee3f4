package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/value/mask"
)

// The functions below add flags that several commands share, with their completion.

func modelFlag(c *cobra.Command, to *string, usage string) {
	c.Flags().StringVar(to, "model", "", usage)
	cli.Files(c, "model", cli.Checkpoints...)
}

// modelOutputFlag adds --model-output, which chooses an output of --model.
func modelOutputFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "model-output", "", "`name` of the output of --model, if it is an .onnx file with several (default the only one)")
}

// datasetFlag adds --dataset, the folder of a dataset or those of a window's days.
func datasetFlag(c *cobra.Command, to *[]string, usage string) {
	c.Flags().StringSliceVar(to, "dataset", nil, usage+"; or "+cli.DaysHelp)
	cli.Folder(c, "dataset")
}

// joined returns the folders as text for messages.
func joined(folders []string) string { return strings.Join(folders, ", ") }

func scoresFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "scores", "", "`file` with the scores of the model")
	cli.Files(c, "scores", "arrow")
}

func splitFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "split", dataset.Test, "`split` to measure on")
	cli.Choices(c, "split", dataset.Train, dataset.Val, dataset.Test)
}

func aggregateFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "aggregate", scores.DefaultAggregate, "`aggregate` of the scores to rank by: "+scores.AggregateHelp())
	cli.OneOf(c, "aggregate", scores.Aggregates()...)
}

func rankFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "rank", mask.Abs, "`order` of the entries for --aggregate sum: "+mask.Abs+" (by magnitude) or "+mask.Signed+" (by value)")
	cli.Choices(c, "rank", mask.Ranks()...)
}

func seedFlag(c *cobra.Command, to *uint64) {
	c.Flags().Uint64Var(to, "seed", 1, "seed of all random numbers")
}

func keepFlags(c *cobra.Command, k *mask.Keep) {
	c.Flags().StringSliceVar(&k.Fields, "protect", nil, "`fields` that keep all entries, separated by commas")
	c.Flags().Float64Var(&k.Minimum, "field-minimum", 0, "smallest `portion` of its entries that each field keeps")
}

// portionsFlag adds a flag that takes several portions. Its help shows the default as
// people type it.
func portionsFlag(c *cobra.Command, to *[]float64, name string, portions []float64, usage string) {
	c.Flags().Float64SliceVar(to, name, portions, usage)
	text := make([]string, len(portions))
	for i, portion := range portions {
		text[i] = strconv.FormatFloat(portion, 'g', -1, 64)
	}
	c.Flags().Lookup(name).DefValue = strings.Join(text, ",")
}

// outFlag adds --out, a file with one of the extensions.
func outFlag(c *cobra.Command, to *string, usage string, extensions ...string) {
	c.Flags().StringVar(to, "out", "", usage)
	cli.Files(c, "out", extensions...)
}

// lossFlag adds --loss, which chooses the metrics.
func lossFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "loss", "", "`loss`: "+strings.Join(loss.Names(), " or ")+" (default squared if labels are numbers, else logistic)")
	cli.Choices(c, "loss", loss.Names()...)
}
