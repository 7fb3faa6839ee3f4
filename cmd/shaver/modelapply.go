package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/prune/delta"
)

func modelApplyCommand() *cobra.Command {
	var model, out string
	var outputs cli.Outputs
	var output cli.Output
	c := &cobra.Command{
		Use:   "apply DELTA...",
		Short: "Apply deltas to a pruned model",
		Long:  help.Text("model-apply"),
		Example: `  shaver model apply delta2 delta3 --model night1.safetensors --out night3.safetensors`,
		ValidArgsFunction: cli.FileArgs(),
		Args:              cli.Args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			if err := output.Check(); err != nil {
				return err
			}
			if checkpoint.NamedONNX(out) {
				return fault.Usagef("--out %s: the result is a compact model: expected a name that ends in .safetensors", out)
			}
			outputs.Inputs(model)
			if err := outputs.Check("--out", out, cli.Unless(checkpoint.Written, "a model that shaver wrote")); err != nil {
				return err
			}
			result, err := delta.Apply(model, args, out)
			if err != nil {
				return err
			}
			return output.Print(c.OutOrStdout(), result, func(w io.Writer) {
				fmt.Fprintf(w, "model\t%s\t%s\n", result.Out, cli.Size(result.Bytes))
				fmt.Fprintf(w, "generation\t%d\t%d rows of %d deltas\n", result.Generation, result.Rows, result.Deltas)
			})
		},
	}
	c.Flags().StringVar(&model, "model", "", "compact `file` to which the first delta belongs (default none, if it is whole)")
	c.Flags().StringVar(&out, "out", "", "`file` to write, a compact model")
	cli.Files(c, "model", "safetensors")
	cli.Files(c, "out", "safetensors")
	output.Flag(c)
	outputs.Flag(c, "a file at --out that shaver did not write")
	cli.MarkRequired(c, "out")
	return c
}
