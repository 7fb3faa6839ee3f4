package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/places"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/prune/delta"
)

func modelDeltaCommand() *cobra.Command {
	var out string
	var options delta.Options
	var output cli.Output
	var part checkpoint.Options
	c := &cobra.Command{
		Use:   "delta FILE",
		Short: "Export a pruned model, or what changed, for an embedding store",
		Long:  help.Text("model-delta"),
		Example: `  shaver model delta pruned.safetensors --out delta
  shaver model delta b.safetensors --from a.safetensors --generation 8 --out d8
  shaver model delta pruned.onnx --out delta`,
		ValidArgsFunction: cli.FileArgs(cli.Checkpoints...),
		Args:              cli.Args(cobra.ExactArgs(1)),
		RunE: cli.Run(func(c *cobra.Command, args []string) error {
			options.Part = part
			if options.From == "" && c.Flags().Changed("generation") && options.Generation < 1 {
				return fault.Usagef("--generation %d: expected a number of at least 1", options.Generation)
			}
			result, err := delta.Write(args[0], options, out)
			if err != nil {
				return err
			}
			places.PublishLast(c.Context(), delta.Last(out))
			return output.Print(c.OutOrStdout(), result, func(w io.Writer) {
				fmt.Fprintf(w, "delta\t%s\t%s\n", result.Out, cli.Size(result.Bytes))
				if result.Generation > 0 {
					fmt.Fprintf(w, "generation\t%d\t%d new ids\n", result.Generation, result.New)
				}
				fmt.Fprintf(w, "kept\t%d of %d ids\t%d entries\n", result.Kept, result.Rows, result.Entries)
				fmt.Fprintf(w, "dropped\t%d of %d ids\n", result.Dropped, result.Rows)
				if result.Guessed {
					fmt.Fprintln(w, "counted\tby value\tthis file does not store what was dropped, so prune may count fewer kept ids")
				}
			})
		}, output.Check),
	}
	flags.Folder(c, &out, "out", "new `folder` to write")
	flags.File(c, &options.From, "from", "compact `file` of the earlier model: write only the rows that differ from it", "safetensors")
	c.Flags().Int64Var(&options.Generation, "generation", 0, "`number` of FILE in its series; with --from, one more than that of the earlier model (default 1)")
	partFlags(c, &part)
	output.Flag(c)
	cli.MarkRequired(c, "out")
	return c
}
