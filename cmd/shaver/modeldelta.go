package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/click/checkpoint"
	"shaver/internal/prune/delta"
)

func modelDeltaCommand() *cobra.Command {
	var out string
	var output cli.Output
	var part checkpoint.Options
	c := &cobra.Command{
		Use:   "delta FILE",
		Short: "Export a pruned model as changes for an embedding store",
		Long:  help.Text("model-delta"),
		Example: `  shaver model delta pruned.safetensors --out delta
  shaver model delta pruned.onnx --out delta`,
		ValidArgsFunction: cli.FileArgs(cli.Checkpoints...),
		Args:              cli.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			if err := output.Check(); err != nil {
				return err
			}
			result, err := delta.Write(args[0], part, out)
			if err != nil {
				return err
			}
			return output.Print(c.OutOrStdout(), result, func(w io.Writer) {
				fmt.Fprintf(w, "delta\t%s\t%s\n", result.Out, cli.Size(result.Bytes))
				fmt.Fprintf(w, "kept\t%d of %d ids\t%d entries\n", result.Kept, result.Rows, result.Entries)
				fmt.Fprintf(w, "dropped\t%d of %d ids\n", result.Dropped, result.Rows)
				if result.Guessed {
					fmt.Fprintln(w, "counted\tby value\tthis file does not store what was dropped, so prune may count fewer kept ids")
				}
			})
		},
	}
	c.Flags().StringVar(&out, "out", "", "new `folder` to write")
	cli.Folder(c, "out")
	partFlags(c, &part)
	output.Flag(c)
	cli.MarkRequired(c, "out")
	return c
}
