package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/night"
	"shaver/internal/app/quickstart"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
)

type quickstartOptions struct {
	rows   int
	nights int
	train  bool
	seed   uint64
	out    string
	output cli.Output
}

func quickstartCommand() *cobra.Command {
	var o quickstartOptions
	c := &cobra.Command{
		Use:     "quickstart",
		Short:   "Run all steps on generated data, in about a minute",
		Long:    help.Text("quickstart") + "\n\n" + cli.ExitHelp,
		Example: help.Text("quickstart.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE:    cli.Run(o.run, o.output.Check),
	}
	f := c.Flags()
	f.IntVar(&o.rows, "rows", 200_000, "`number` of rows to generate, at least 100")
	f.IntVar(&o.nights, "nights", 0, "`number` of nights to simulate, at least 1 (default none)")
	f.BoolVar(&o.train, "train", false, "train the model on the rows, and tune it after pruning")
	flags.Seed(c, &o.seed)
	flags.Folder(c, &o.out, "out", "new `folder` for the files (default a temporary one, which is deleted)")
	o.output.Flag(c)
	return c
}

func (o *quickstartOptions) run(c *cobra.Command, _ []string) (err error) {
	if o.rows < 100 {
		return fault.Usagef("--rows %d: expected at least 100", o.rows)
	}
	if least := night.LeastRows(o.nights); c.Flags().Changed("nights") {
		if o.nights < 1 || o.nights > 1000 {
			return fault.Usagef("--nights %d: expected a number from 1 to 1000", o.nights)
		}
		if o.rows < least {
			return fault.Usagef("--rows %d: expected at least %d for %d nights", o.rows, least, o.nights)
		}
	}
	if o.train && o.nights > 0 {
		return fault.Usagef("--train and --nights exclude each other")
	}
	if c.Flags().Changed("out") && o.out == "" {
		return fault.Usagef(`--out "": expected the name of a new folder`)
	}
	dir := o.out
	if dir == "" {
		temporary, err := os.MkdirTemp("", "shaver-quickstart-*")
		if err != nil {
			return err
		}
		defer atomicfile.Track(temporary).Remove()
		dir = temporary
	} else {
		if err := os.Mkdir(dir, 0o777); err != nil {
			return fault.Usagef("--out: %w", err)
		}
		made := atomicfile.Track(dir)
		defer func() {
			if err != nil { // so that the same command can run again
				_ = made.Remove()
			} else {
				made.Keep()
			}
		}()
	}
	say := func(format string, args ...any) { fmt.Fprintf(c.ErrOrStderr(), format+"\n", args...) }
	start := time.Now()
	file := func(name string) string { return filepath.Join(dir, name) }
	if o.nights > 0 {
		return o.simulate(c, file)
	}
	steps := quickstart.Steps{Rows: o.rows, Train: o.train, Seed: o.seed, Folder: dir, Say: say}
	d, small, err := steps.Run(c.Context())
	if err != nil {
		return err
	}
	if err := o.output.Print(c.OutOrStdout(), d, func(w io.Writer) {
		d.WriteTable(w)
		fmt.Fprintln(w, "\nThe smallest file, by shaver compress along the path:")
		compressTable(w, small)
	}); err != nil {
		return err
	}
	say("done in %.0f s\n", time.Since(start).Seconds())
	if !o.train {
		say("Magnitude loses here by construction: half of the columns of this model carry all of\nits information, and the other half are as large but useless.\n")
	}
	if o.out == "" {
		say("The files were temporary. With --out DIR they stay.\n")
	} else {
		say("The files are in %s. Look at them:\n  shaver model inspect %s\n  shaver dataset inspect %s\n  shaver scores inspect %s\n  shaver scores inspect %s\n  shaver model inspect %s\n",
			dir, file("model.safetensors"), file("dataset"), file("order.arrow"), file("scores.arrow"), file("small.safetensors"))
	}
	say("Now do this with your model and rows:\n%s", ownSteps)
	return nil
}

// ownSteps are the commands that do what quickstart does with the user's own files.
const ownSteps = `  shaver dataset import csv --ids local --train train.csv --val val.csv \
      --test test.csv --model model.pth --out data
  shaver compress --model model.pth --dataset data --out small.safetensors`
