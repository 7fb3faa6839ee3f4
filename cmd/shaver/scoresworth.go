package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/data/columnfile"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/worth"
)

// worthResult is what scores worth prints.
type worthResult struct {
	Out       string           `json:"out"`
	Kind      string           `json:"kind"` // path, or the aggregate
	IDs       int              `json:"ids"`
	Threshold *worth.Threshold `json:"threshold,omitempty"`
}

func scoresWorthCommand() *cobra.Command {
	var out, store, aggregate string
	var ids, bytes int64
	var folders []string
	var outputs cli.Outputs
	var output cli.Output
	c := &cobra.Command{
		Use:   "worth FILE",
		Short: "Write what each id is worth, for a store that evicts by scores",
		Long:  help.Text("scores-worth"),
		Example: `  shaver scores worth order.arrow --out worth.parquet --ids 1000000
  shaver scores worth order.arrow --store dynamicemb --dataset data \
      --out scores`,
		ValidArgsFunction: cli.FileArgs("arrow"),
		Args:              cli.Args(cobra.ExactArgs(1)),
		RunE: cli.Run(func(c *cobra.Command, args []string) error {
			if ids < 0 || bytes < 0 || ids > 0 && bytes > 0 {
				return fault.Usagef("--ids %d, --bytes %d: expected one of them, and a number of at least 1", ids, bytes)
			}
			if store == "" {
				outputs.Inputs(args[0])
				ours := func(path string) bool { return files.Is(path, columnfile.IsWorthParquet) }
				if err := outputs.Check("--out", out, cli.Unless(ours, "the worth of ids"), ".parquet"); err != nil {
					return err
				}
			}
			f, err := scores.Read(args[0])
			if err != nil {
				return err
			}
			kind := aggregate
			if f.Path != nil {
				if c.Flags().Changed("aggregate") {
					return fault.Usagef("%s has the order of a path and no values: leave out --aggregate", args[0])
				}
				kind = scores.ByPath
			}
			all, err := worth.IDs(f, kind)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if folders != nil {
				if all, err = worth.Keyed(f, all, folders); err != nil {
					return err
				}
			}
			result := &worthResult{Out: out, Kind: kind, IDs: len(all)}
			if ids > 0 || bytes > 0 {
				if result.Threshold, err = worth.Cut(all, ids, bytes); err != nil {
					return err
				}
			}
			if store != "" {
				err = worth.WriteStore(store, all, out)
			} else {
				err = atomicfile.Write(out, func(w io.Writer) error { return columnfile.WriteWorth(w, all, kind, f.Spec.ID()) })
			}
			if err != nil {
				return err
			}
			return output.Print(c.OutOrStdout(), result, func(w io.Writer) {
				fmt.Fprintf(w, "worth\t%s\t%d ids, by %s\n", result.Out, result.IDs, result.Kind)
				if t := result.Threshold; t != nil {
					fmt.Fprintf(w, "threshold\tscore %d\tworth %.6g, keeps %d ids, %s\n", t.Score, t.Worth, t.IDs, cli.Size(t.Bytes))
				}
			})
		}, output.Check),
	}
	flags.File(c, &out, "out", "`file` to write, Parquet; with --store, a new folder", "parquet")
	flags.Choice(c, &store, "store", "", "`store` in whose form to write: hierarchicalkv, tfra, dynamicemb or torchrec (default Parquet)", worth.Stores()...)
	c.Flags().Int64Var(&ids, "ids", 0, "print the threshold that keeps at most this `number` of ids")
	c.Flags().Int64Var(&bytes, "bytes", 0, "print the threshold that keeps rows of at most this `number` of bytes as float32")
	flags.OneOf(c, &aggregate, "aggregate", scores.Sum, "`aggregate` of values to add up over the entries of an id: "+scores.AggregateHelp(), scores.Aggregates()...)
	flags.Dataset(c, &folders, "dataset `folder` that was scored: the keys are its values, which are integers of 64 bits, in place of numbers of rows")
	output.Flag(c)
	outputs.Flag(c, "a file at --out that is not the worth of ids")
	cli.MarkRequired(c, "out")
	return c
}
