// Package flags adds flags that several commands share, with their completion.
package flags

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/prune/keep"
	"shaver/internal/value/mask"
)

// File adds a flag that names a file with one of the extensions, or any file without them.
func File(c *cobra.Command, to *string, name, usage string, extensions ...string) {
	c.Flags().StringVar(to, name, "", usage)
	cli.Files(c, name, extensions...)
}

// Folder adds a flag that names a folder.
func Folder(c *cobra.Command, to *string, name, usage string) {
	c.Flags().StringVar(to, name, "", usage)
	cli.Folder(c, name)
}

// Choice adds a flag with values that are completed.
func Choice(c *cobra.Command, to *string, name, value, usage string, values ...string) {
	c.Flags().StringVar(to, name, value, usage)
	cli.Choices(c, name, values...)
}

// OneOf adds a flag that takes no other than the values.
func OneOf(c *cobra.Command, to *string, name, value, usage string, values ...string) {
	c.Flags().StringVar(to, name, value, usage)
	cli.OneOf(c, name, values...)
}

// Model adds --model, the file of a model.
func Model(c *cobra.Command, to *string, usage string) {
	File(c, to, "model", usage, cli.Checkpoints...)
}

// ModelOutput adds --model-output, which chooses an output of --model.
func ModelOutput(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "model-output", "", "`name` of the output of --model, if it is an .onnx file with several (default the only one)")
}

// Tasks adds --task, the labels that --model predicts.
func Tasks(c *cobra.Command, to *[]string) { c.Flags().StringSliceVar(to, "task", nil, cli.TaskHelp) }

// Dataset adds --dataset, the folder of a dataset or those of a window's days.
func Dataset(c *cobra.Command, to *[]string, usage string) {
	c.Flags().StringSliceVar(to, "dataset", nil, usage+"; or "+cli.DaysHelp)
	cli.Folder(c, "dataset")
}

// Scores adds --scores, the file with the scores of a model.
func Scores(c *cobra.Command, to *string) {
	File(c, to, "scores", "`file` with the scores of the model", "arrow")
}

// Split adds --split, the split to measure on.
func Split(c *cobra.Command, to *string) {
	Choice(c, to, "split", dataset.Test, "`split` to measure on", dataset.SplitNames...)
}

// Group adds --group, a field within whose values rows are ranked.
func Group(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "group", "", "`field` such as the user: GAUC, the mean AUC within its values, takes the place of AUC, and its values are the sample of the intervals (default none)")
}

// Aggregate adds --aggregate, by which scores rank. With rank, which is set too, it may be mask.Signed: the sum by its value and not by
// its magnitude.
func Aggregate(c *cobra.Command, to, rank *string) {
	names, usage := scores.Aggregates(), "`aggregate` of the scores to rank by: "+scores.AggregateHelp()
	*to = scores.DefaultAggregate
	if rank == nil {
		c.Flags().StringVar(to, "aggregate", *to, usage)
	} else {
		*rank = mask.Abs
		names, usage = append(names, mask.Signed), usage+"; or "+mask.Signed+", the sum by its value and not by its magnitude"
		c.Flags().Var(&scores.Ranking{Name: to, Rank: rank}, "aggregate", usage)
		cli.Renamed(c, "rank", "--aggregate "+mask.Signed)
	}
	cli.OneOf(c, "aggregate", names...)
}

// Seed adds --seed.
func Seed(c *cobra.Command, to *uint64) {
	c.Flags().Uint64Var(to, "seed", 1, "seed of all random numbers")
}

// Keep adds --protect and --field-minimum, the entries that stay.
func Keep(c *cobra.Command, k *keep.Rules) {
	c.Flags().StringSliceVar(&k.Fields, "protect", nil, "`fields` that keep all entries, separated by commas")
	c.Flags().Float64Var(&k.Minimum, "field-minimum", 0, "smallest `portion` of its entries that each field keeps")
}

// Portions adds a flag that takes several portions. Its help shows the default as
// people type it.
func Portions(c *cobra.Command, to *[]float64, name string, portions []float64, usage string) {
	c.Flags().Float64SliceVar(to, name, portions, usage)
	text := make([]string, len(portions))
	for i, portion := range portions {
		text[i] = strconv.FormatFloat(portion, 'g', -1, 64)
	}
	c.Flags().Lookup(name).DefValue = strings.Join(text, ",")
}

// Out adds --out, a file with one of the extensions.
func Out(c *cobra.Command, to *string, usage string, extensions ...string) {
	File(c, to, "out", usage, extensions...)
}

// Loss adds --loss, which chooses the metrics.
func Loss(c *cobra.Command, to *string) {
	Choice(c, to, "loss", "", "`loss`: "+strings.Join(loss.Names(), " or ")+" (default squared if labels are numbers, else logistic)", loss.Names()...)
}

// Bytes is the value of a flag in bytes, such as 4GiB.
type Bytes int64

var byteUnits = []struct {
	name string
	size int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}}

func (b *Bytes) Set(text string) error {
	for _, unit := range byteUnits {
		if digits, ok := strings.CutSuffix(text, unit.name); ok {
			n, err := strconv.ParseInt(digits, 10, 64)
			if err == nil && n > 0 && n < 1<<62/unit.size {
				*b = Bytes(n * unit.size)
				return nil
			}
		}
	}
	return errors.New("expected a size, such as 512MiB or 4GiB")
}

func (b *Bytes) String() string {
	for _, unit := range byteUnits {
		if n := int64(*b); n > 0 && n%unit.size == 0 {
			return strconv.FormatInt(n/unit.size, 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(*b), 10)
}

func (b *Bytes) Type() string { return "SIZE" }
