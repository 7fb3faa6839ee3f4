package main

import (
	"context"

	"github.com/spf13/cobra"

	"shaver/internal/checkpoint"
	"shaver/internal/cli"
	"shaver/internal/dataset"
	"shaver/internal/fault"
	"shaver/internal/ingest"
)

type csvOptions struct {
	run              importRun
	ids              string
	train, val, test []string
	sizes            []int
	files            []string
	raw              rawOptions
	columns          columnOptions
}

func importCSVCommand() *cobra.Command {
	var o csvOptions
	c := &cobra.Command{
		Use:   "csv",
		Short: "Make a dataset from CSV or TSV: encoded ids, or raw strings",
		Long: `Make a dataset from CSV or TSV files; .gz and .zst are accepted.

Encoded rows are a label (0 or 1) and one id per field; ids count from 0 within
their field (--ids local) or over all fields (--ids global). Name a file per
split, or one --train file and a --split ratio.

  shaver dataset import csv --ids local --train F [--val F] [--test F] [--model F | --field-sizes 2,2,3] --out DIR
  shaver dataset import csv --ids global --train F --split 8:1:1 --model F --out DIR

Raw strings are a label column and one column per field, with a header; the file
- is standard input.

  shaver dataset import csv --raw F --label NAME --min-count N --split 8:1:1 --seed N --out DIR
  shaver dataset import csv --raw F --vocabulary DIR --out DIR

` + rawHelp + cli.ExitHelp,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return o.importCSV(c) },
	}
	o.run.flags(c, "")
	o.raw.flags(c, 2, ingest.CountTrain)
	o.columns.flags(c)
	f := c.Flags()
	f.Lookup("split").Usage += " (--raw: default 8:1:1)"
	f.StringVar(&o.ids, "ids", dataset.LocalIDs, "how ids count: local or global")
	f.StringSliceVar(&o.train, "train", nil, "files of encoded rows of the train split")
	f.StringSliceVar(&o.val, "val", nil, "files of the val split")
	f.StringSliceVar(&o.test, "test", nil, "files of the test split")
	f.StringVar(&o.raw.model, "model", "", "checkpoint whose field sizes the rows must fit")
	f.IntSliceVar(&o.sizes, "field-sizes", nil, "features of each field (default the largest local id + 1, if that is plausible)")
	f.StringSliceVar(&o.files, "raw", nil, "files of raw strings")
	return c
}

func (o *csvOptions) importCSV(c *cobra.Command) error {
	if err := o.run.check(c); err != nil {
		return err
	}
	switch {
	case o.ids != dataset.LocalIDs && o.ids != dataset.GlobalIDs:
		return fault.Usagef("--ids %s: %s or %s", o.ids, dataset.LocalIDs, dataset.GlobalIDs)
	case (len(o.files) > 0) == (len(o.train) > 0):
		return fault.Usagef("%s needs --train (encoded rows) or --raw (strings), and not both", c.CommandPath())
	case len(o.sizes) > 0 && o.raw.model != "":
		return fault.Usagef("--model and --field-sizes both give the field sizes: give one")
	case o.raw.minCount < 1:
		return fault.Usagef("--min-count %d: at least 1", o.raw.minCount)
	}
	kind, others := "--train", []string{"label", "label-from", "columns", "min-count", "counted", "vocabulary", "oov", "memory"}
	if len(o.files) > 0 {
		kind, others = "--raw", []string{"ids", "val", "test", "field-sizes"}
	}
	for _, name := range others {
		if c.Flags().Changed(name) {
			return fault.Usagef("--%s does not go with %s", name, kind)
		}
	}
	if len(o.files) > 0 {
		format := ingest.Format{}
		if err := o.columns.set(&format); err != nil {
			return err
		}
		return o.raw.importRaw(c, &o.run, format, o.files)
	}
	return o.run.run(c, func(show ingest.Progress) (*ingest.Summary, error) { return o.importEncoded(c.Context(), show) })
}

func (o *csvOptions) importEncoded(ctx context.Context, show ingest.Progress) (*ingest.Summary, error) {
	config := ingest.EncodedConfig{
		Train: o.train, Val: o.val, Test: o.test, Split: o.run.split, Seed: o.run.seed, Sizes: o.sizes,
		Global: o.ids == dataset.GlobalIDs, OnBadRow: o.run.onBadRow, Out: o.run.out, Progress: show,
	}
	if o.raw.model != "" {
		ck, err := checkpoint.Read(o.raw.model)
		if err != nil {
			return nil, err
		}
		config.Sizes = ck.Architecture.FieldDims
	}
	summary, err := ingest.ImportEncoded(ctx, config)
	return summary, withFlags(err, "--model or --field-sizes")
}
