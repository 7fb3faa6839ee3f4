package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/data/synth"
)

type synthOptions struct {
	config  synth.Config
	out     string
	outputs cli.Outputs
	output  cli.Output
}

func datasetSynthCommand() *cobra.Command {
	o := synthOptions{config: synth.Config{Threads: runtime.GOMAXPROCS(0)}}
	c := &cobra.Command{
		Use:   "synth",
		Short: "Generate a raw log of clicks or ratings",
		Long:  help.Text("dataset-synth"),
		Example: `  shaver dataset synth --shape criteo --rows 10000000 --out log.tsv.zst
  shaver dataset synth --shape ratings --rows 100000 --out ratings.csv`,
		Args: cli.Args(cobra.NoArgs),
		RunE: cli.Run(o.run, o.output.Check),
	}
	f := c.Flags()
	flags.Choice(c, &o.config.Shape, "shape", "", "`format` of the log: "+strings.Join(synth.Shapes(), ", "), synth.Shapes()...)
	f.Int64Var(&o.config.Rows, "rows", 0, "`number` of rows")
	flags.Seed(c, &o.config.Seed)
	f.StringVar(&o.out, "out", "", "`file` to write; .gz and .zst are compressed")
	o.outputs.Flag(c, "any file at --out")
	cli.Files(c, "out")
	o.output.Flag(c)
	cli.MarkRequired(c, "shape", "rows", "out")
	return c
}

func (o *synthOptions) run(c *cobra.Command, _ []string) error {
	if o.config.Rows < 1 {
		return fault.Usagef("--rows %d: expected at least 1", o.config.Rows)
	}
	if !slices.Contains(synth.Shapes(), o.config.Shape) {
		return fault.Usagef("--shape %s: expected one of %s", o.config.Shape, strings.Join(synth.Shapes(), ", "))
	}
	switch {
	case strings.HasSuffix(o.out, ".gz"):
		o.config.Compression = synth.Gzip
	case strings.HasSuffix(o.out, ".zst"):
		o.config.Compression = synth.Zstd
	}
	if err := o.outputs.Check("--out", o.out, cli.Any); err != nil {
		return err
	}
	facts, err := o.write(c.Context())
	if err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), facts, func(w io.Writer) {
		fmt.Fprintf(w, "rows\t%d\t%.2f%% with the label 1\n", facts.Rows, 100*float64(facts.Positives)/float64(facts.Rows))
		fmt.Fprintf(w, "bytes\t%d\t%.1f per row, uncompressed\n", facts.Bytes, float64(facts.Bytes)/float64(facts.Rows))
		fmt.Fprintf(w, "auc\t%s\tof the model that drew the labels\n", cli.Metric(facts.AUC))
	})
}

func (o *synthOptions) write(ctx context.Context) (facts synth.Facts, err error) {
	progress := cli.NewProgress("synth", "rows", o.config.Rows)
	defer progress.End()
	o.config.OnRows = func(n int) { progress.Add(int64(n)) }
	err = atomicfile.Write(o.out, func(w io.Writer) error {
		facts, err = synth.Write(ctx, w, o.config)
		return err
	})
	return facts, err
}
