package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/launch"
	"shaver/internal/app/night"
	"shaver/internal/app/sweeping"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/planted"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
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
		Long:    help("quickstart") + "\n\n" + cli.ExitHelp,
		Example: help("quickstart.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.IntVar(&o.rows, "rows", 200_000, "`number` of rows to generate, at least 100")
	f.IntVar(&o.nights, "nights", 0, "`number` of nights to simulate, at least 1 (default none)")
	f.BoolVar(&o.train, "train", false, "train the model on the rows, and tune it after pruning")
	flags.Seed(c, &o.seed)
	f.StringVar(&o.out, "out", "", "new `folder` for the files (default a temporary one, which is deleted)")
	cli.Folder(c, "out")
	o.output.Flag(c)
	return c
}

func (o *quickstartOptions) run(c *cobra.Command) (err error) {
	if err := o.output.Check(); err != nil {
		return err
	}
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
		if err := os.Mkdir(dir, 0o755); err != nil {
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
	step := 0
	next := func(format string, args ...any) {
		step++
		say("%d. "+format, append([]any{step}, args...)...)
	}

	next("make a click model and %d rows from it", o.rows)
	config := planted.Default
	config.Seed = o.seed
	p, err := planted.New(config)
	if err != nil {
		return err
	}
	if !o.train {
		if _, err := checkpoint.WriteDense(file("model.safetensors"), p.Checkpoint); err != nil {
			return err
		}
	}
	if err := atomicfile.Write(file("rows.csv"), func(w io.Writer) error { return p.WriteCSV(w, o.rows) }); err != nil {
		return err
	}

	next("import the rows, split 8:1:1")
	if _, err := ingest.ImportEncoded(c.Context(), ingest.EncodedConfig{
		Train: []string{file("rows.csv")}, Split: "8:1:1", Seed: o.seed, Sizes: config.FieldDims, Out: file("dataset"),
	}); err != nil {
		return err
	}

	if o.train {
		next("train a DeepFM on the rows")
		if err := o.fit(c.Context(), file); err != nil {
			return err
		}
	}

	next("find the order in which entries are dropped: a path, to prune")
	report, err := o.score(c.Context(), file, file("order.arrow"), estimator.Path)
	if err != nil {
		return err
	}
	say("   %d rounds in %.1f s", len(report.Path.Rounds), report.Seconds)

	next("compute the Shapley value of each entry, to quote")
	report, err = o.score(c.Context(), file, file("scores.arrow"), estimator.Debiased)
	if err != nil {
		return err
	}
	say("   %d rows in %.1f s, efficiency error %.2g, standard error %.2g", report.Rows, report.Seconds, *report.EfficiencyError, report.EfficiencySE)

	next("prune and measure on the test split")
	compared := sweeping.Input{
		Model: file("model.safetensors"), Scores: []string{file("order.arrow"), file("scores.arrow")}, Folders: []string{file("dataset")}, Split: dataset.Test,
		Aggregates: []string{scores.DefaultAggregate}, Rank: mask.Abs, Budgets: mask.Budgets(mask.Sparsity, .5, .8, .9, .95),
		Rivals: []string{sweep.Magnitude}, Values: []compact.Encoding{compact.Float32},
	}
	found, err := compared.Run(c.Context())
	if err != nil {
		return err
	}
	if err := o.output.Print(c.OutOrStdout(), found, found.WriteTable); err != nil {
		return err
	}
	if o.train {
		next("prune to a sparsity of 0.95, and tune the model")
		found, err := o.tune(c.Context(), file)
		if err != nil {
			return err
		}
		say("   %d epochs: AUC %s -> %s", found.Epochs, cli.Metric(found.Before), cli.Metric(found.After))
	}
	say("done in %.0f s\n", time.Since(start).Seconds())
	if !o.train {
		say("Magnitude loses here by construction: half of the columns of this model carry all of\nits information, and the other half are as large but useless.\n")
	}
	if o.out == "" {
		say("The files were temporary. With --out DIR they stay.\n")
	} else {
		say("The files are in %s. Look at them:\n  shaver model inspect %s\n  shaver dataset inspect %s\n  shaver scores inspect %s\n  shaver scores inspect %s\n",
			dir, file("model.safetensors"), file("dataset"), file("order.arrow"), file("scores.arrow"))
	}
	say("Now do this with your model and rows:\n%s", ownSteps)
	return nil
}

// ownSteps are the commands that do what quickstart does with the user's own files.
const ownSteps = `  shaver dataset import csv --ids local --train train.csv --val val.csv \
      --test test.csv --model model.pth --out data
  shaver score --model model.pth --dataset data --splits train \
      --baseline codebook --estimator path --out order.arrow
  shaver sweep --model model.pth --scores order.arrow --dataset data \
      --out sweep.json
  shaver prune --model model.pth --scores order.arrow --sparsity 0.9 \
      --out pruned.safetensors
  shaver evaluate --model pruned.safetensors --against model.pth --dataset data`

// score runs a job of an estimator with its defaults, and writes its scores to out.
func (o *quickstartOptions) score(ctx context.Context, file func(string) string, out, by string) (*launch.JobReport, error) {
	log, err := cli.Logger("text", false)
	if err != nil {
		return nil, err
	}
	d, err := dataset.Open(file("dataset"))
	if err != nil {
		return nil, err
	}
	options := estimator.Options{Estimator: by, Passes: 1}
	options.SetDefaults()
	job := launch.Job{Config: coordinator.Config{
		Request: prepare.Request{
			Open: func() (*checkpoint.Checkpoint, error) { return checkpoint.Read(file("model.safetensors")) }, Dataset: d, Splits: []string{dataset.Train, dataset.Val}, Sample: 1, Baseline: baseline.Codebook,
			Options: options, Seed: o.seed,
		},
		Out: out, Queue: bus.DefaultQueue, Log: log,
	}, AnyKernel: true, Once: true}
	return job.Run(ctx)
}
