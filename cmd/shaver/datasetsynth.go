package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/atomicfile"
	"shaver/internal/cli"
	"shaver/internal/fault"
	"shaver/internal/synth"
)

type synthOptions struct {
	config synth.Config
	out    string
	output cli.Output
}

func datasetSynthCommand() *cobra.Command {
	o := synthOptions{config: synth.Config{Threads: runtime.GOMAXPROCS(0)}}
	c := &cobra.Command{
		Use:   "synth",
		Short: "Write a raw click log in the form of Criteo, Avazu or KDD Cup 2012 track 2",
		Long: `Write a raw click log of any size in the form of one of three public ones, for
tests, benchmarks and demonstrations.

  criteo  tabs, no header: label, 13 integers, 26 hexadecimal strings, some empty
  avazu   commas, a header: id, click, hour and 21 more columns, in order of time
  kdd     tabs, no header: clicks, impressions and 10 identifiers (KDD Cup 2012, track 2)

Values follow Zipf's law over the cardinalities of the real logs; labels are
drawn from a planted logistic model with the real logs' share of clicks. The same
--shape, --rows and --seed give the same bytes on any number of cores. A name
that ends in .gz or .zst is compressed.

` + cli.ExitHelp,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c, "shape", "rows", "out"); err != nil {
				return err
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	f.StringVar(&o.config.Shape, "shape", "", "form of the log: "+strings.Join(synth.Shapes(), ", "))
	f.Int64Var(&o.config.Rows, "rows", 0, "rows to write")
	f.Uint64Var(&o.config.Seed, "seed", 1, "seed of everything random")
	f.StringVar(&o.out, "out", "", "file to write")
	o.output.Flag(c)
	return c
}

func (o *synthOptions) run(c *cobra.Command) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	if o.config.Rows < 1 {
		return fault.Usagef("--rows %d: at least 1", o.config.Rows)
	}
	if !slices.Contains(synth.Shapes(), o.config.Shape) {
		return fault.Usagef("--shape %s: one of %s", o.config.Shape, strings.Join(synth.Shapes(), ", "))
	}
	switch {
	case strings.HasSuffix(o.out, ".gz"):
		o.config.Compression = synth.Gzip
	case strings.HasSuffix(o.out, ".zst"):
		o.config.Compression = synth.Zstd
	}
	if err := cli.CheckOut(o.out); err != nil {
		return err
	}
	facts, err := o.write(c.Context())
	if err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), facts, func(w io.Writer) {
		fmt.Fprintf(w, "rows\t%d\t%.2f%% with a click\n", facts.Rows, 100*float64(facts.Positives)/float64(facts.Rows))
		fmt.Fprintf(w, "bytes\t%d\t%.1f a row, uncompressed\n", facts.Bytes, float64(facts.Bytes)/float64(facts.Rows))
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
