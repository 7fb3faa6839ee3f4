package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/compress"
	"shaver/internal/app/flags"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

func compressCommand() *cobra.Command {
	o := compress.Options{Recipe: compress.Recipe{Within: float64(sweep.DefaultBound)}}
	var output cli.Output
	c := &cobra.Command{
		Use:     "compress",
		Short:   "Make the smallest file of a model within a bound",
		Long:    help.Text("compress") + "\n\n" + cli.ExitHelp,
		Example: help.Text("compress.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE: cli.Run(func(c *cobra.Command, _ []string) error {
			o.Given = c.Flags().Changed
			o.Say = func(format string, args ...any) { fmt.Fprintf(c.ErrOrStderr(), format+"\n", args...) }
			r, err := o.Run(c.Context())
			if err != nil && !errors.Is(err, cli.ErrGate) {
				return err
			}
			if printing := output.Print(c.OutOrStdout(), r, func(w io.Writer) { compressTable(w, r) }); printing != nil {
				return printing
			}
			return err
		}, output.Check),
	}
	f := c.Flags()
	flags.Model(c, &o.Model, "checkpoint `file`: .pth, safetensors or .onnx")
	flags.ModelOutput(c, &o.ModelOutput)
	flags.Dataset(c, &o.Folders, "dataset `folder`")
	flags.Out(c, &o.Out, "file to write, .safetensors; the page has its name with .html", "safetensors")
	flags.File(c, &o.Scores, "scores", "`file` with scores of the model (default they are computed)", "arrow")
	f.Float64Var(&o.Within, "within", o.Within, "`bound`: the smallest file whose AUC is certainly at most so much lower, and LogLoss so much higher, than that of the model")
	flags.Group(c, &o.Group)
	f.Int64Var(&o.Bytes, mask.Bytes, 0, "size of the file in `bytes`, in place of a bound")
	f.Float64Var(&o.Sparsity, mask.Sparsity, 0, "`portion` of the entries to drop, in place of a bound")
	flags.File(c, &o.From, "recipe", "`file` of an earlier compress, whose bound, bytes or sparsity is taken again", "safetensors")
	o.Outputs.Flag(c, "a file at --out that was not pruned, and a page that shaver did not write")
	output.Flag(c)
	cli.Group(c, "Files", "model", "model-output", "dataset", "scores", "out", "force")
	cli.Group(c, "Size", "within", "group", mask.Bytes, mask.Sparsity, "recipe")
	cli.MarkRequired(c, "model", "dataset", "out")
	return c
}

// compressTable writes which table was chosen, and what the check says about its file.
func compressTable(w io.Writer, r *compress.Result) {
	fmt.Fprintf(w, "%s\n\n", strings.Join(r.Answer.Text, "\n"))
	if r.Out != "" {
		fmt.Fprintf(w, "file\t%s\t%s\n", r.Out, cli.Change(r.Pruned.DenseBytes, r.Pruned.Bytes))
		fmt.Fprintf(w, "dropped\t%d of %d entries\n", r.Pruned.Dropped, r.Pruned.Entries)
		for i, rung := range r.Check.Answer.Rungs {
			if r.Recipe.Within == 0 || rung.Within == r.Recipe.Within {
				fmt.Fprintf(w, "check\t%s\n", r.Check.Answer.Text[i+1])
			}
		}
	}
	fmt.Fprintf(w, "page\t%s\n", r.Page)
}
