package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/prune/sweep"
)

type csvOptions struct {
	run     importRun
	ids     string
	train   []string
	sizes   []int
	files   []string
	raw     rawOptions
	columns columnOptions
	dense   denseOptions
	lists   listOptions
}

func importCSVCommand() *cobra.Command {
	var o csvOptions
	c := &cobra.Command{
		Use:     "csv",
		Short:   "Import CSV or TSV files of encoded ids or raw strings",
		Long:    help.Text("dataset-import-csv", "import-dense", "import-lists", "import-ids"),
		Example: help.Text("dataset-import-csv.example"),
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			for _, flag := range []string{"raw", "train", "val", "test", "fresh"} {
				if c.Flags().Changed(flag) {
					return fault.Usagef("unexpected argument %q: files of one flag are separated by commas, as in --%s A,B, and a folder stands for all its files", args[0], flag)
				}
			}
			return fault.Usagef("unexpected argument %q: expected --raw with files of raw values, or --train with files of ids", args[0])
		},
		RunE: func(c *cobra.Command, _ []string) error { return o.importCSV(c) },
	}
	o.run.flags(c, "")
	o.raw.flags(c, 2, ingest.CountTrain)
	o.columns.flags(c)
	o.dense.flags(c)
	o.lists.flags(c)
	o.lists.shareFlag(c)
	o.raw.lists, o.run.lists = &o.lists, &o.lists
	f := c.Flags()
	f.Lookup("split").Usage += " (default none, or 8:1:1 with --raw alone)"
	flags.Choice(c, &o.ids, "ids", dataset.LocalIDs, "`scope` of ids: local (ids of each field count from 0) or global (from 0 over all fields)", dataset.LocalIDs, dataset.GlobalIDs)
	f.StringSliceVar(&o.train, "train", nil, "`files` of encoded rows for the train split, separated by commas")
	o.raw.splitFlags(c)
	flags.Model(c, &o.raw.model, "checkpoint `file` whose field sizes the rows must have (default any sizes)")
	flags.ModelOutput(c, &o.raw.output)
	f.IntSliceVar(&o.sizes, "field-sizes", nil, "`numbers` of features, one for each field, separated by commas (default one more than the largest local id, if that is plausible)")
	f.StringSliceVar(&o.files, "raw", nil, "`files` of raw strings, separated by commas; those of train if another split has files")
	cli.Group(c, rowFlags, "train", "raw")
	cli.Group(c, idFlags, "ids", "field-sizes", "model", "model-output")
	for _, name := range []string{"train", "raw"} {
		cli.Files(c, name)
	}
	cli.Needed(c, "raw", "train", "label", "split", "min-count", "model")
	return c
}

func (o *csvOptions) importCSV(c *cobra.Command) error {
	if err := o.run.check(c); err != nil {
		return err
	}
	switch {
	case o.ids != dataset.LocalIDs && o.ids != dataset.GlobalIDs:
		return fault.Usagef("--ids %s: expected %s or %s", o.ids, dataset.LocalIDs, dataset.GlobalIDs)
	case len(o.files)+len(o.train) == 0 && len(o.raw.test) == 1:
		file := sweep.ShellWord(o.raw.test[0])
		return fault.Usagef("--test %s needs --train or --raw: if all rows are for the split test, write --train %s (encoded rows) or --raw %s (raw strings, with --vocabulary) and --split 0:0:1", file, file, file)
	case (len(o.files) > 0) == (len(o.train) > 0):
		return fault.Usagef("%s needs either --train (encoded rows) or --raw (raw strings)", c.CommandPath())
	case len(o.sizes) > 0 && o.raw.model != "":
		return fault.Usagef("--model and --field-sizes both set the field sizes: give only one")
	case o.raw.minCount < 1:
		return fault.Usagef("--min-count %d: expected at least 1", o.raw.minCount)
	}
	kind, others := "--train", []string{"label", "label-from", "positive", "columns", "min-count", "counted", "vocabulary", "grow", "oov", "memory", "share"}
	if len(o.files) > 0 {
		kind, others = "--raw", []string{"ids", "field-sizes"}
	}
	for _, name := range others {
		if c.Flags().Changed(name) && (name != "label" || !strings.Contains(o.columns.label, ",")) {
			remedy := ""
			if name == "label" {
				remedy = ": the label of encoded rows is the first column, and --label names it only among several"
			}
			return fault.Usagef("--%s does not go with %s%s", name, kind, remedy)
		}
	}
	numbers, err := o.dense.set()
	if err != nil {
		return err
	}
	if len(o.files) > 0 {
		format := ingest.Format{Dense: numbers}
		if err := o.columns.set(&format); err != nil {
			return err
		}
		return o.raw.importRaw(c, &o.run, format, o.files)
	}
	var format ingest.Format
	if err := o.columns.set(&format); err != nil {
		return err
	}
	format.Dense = numbers
	lists, err := o.lists.set()
	if err != nil {
		return err
	}
	return o.run.run(c, func(show ingest.Progress) (*ingest.Summary, error) {
		return o.importEncoded(c.Context(), format, lists, show)
	})
}

func (o *csvOptions) importEncoded(ctx context.Context, format ingest.Format, lists ingest.Lists, show ingest.Progress) (*ingest.Summary, error) {
	config := ingest.EncodedConfig{
		Train: o.train, Val: o.raw.val, Test: o.raw.test, Fresh: o.raw.fresh, Split: o.run.split, Seed: o.run.seed, Sizes: o.sizes,
		Global: o.ids == dataset.GlobalIDs, Dense: format.Dense, Lists: lists, Numbers: format.Numbers,
		Label: format.Label, Others: format.Others, Weight: format.Weight, OnBadRow: o.run.onBadRow, Out: o.run.out, Progress: show,
	}
	if o.raw.model != "" {
		ck, err := checkpoint.ReadOutput(o.raw.model, o.raw.output)
		if err != nil {
			return nil, err
		}
		config.Sizes, config.Names = ck.Architecture.FieldDims, ck.Known().FieldNames()
		if config.Computed, err = computedFields(ck); err != nil {
			return nil, err
		}
		if err := o.lists.adopt(&config.Lists, ck); err != nil {
			return nil, err
		}
		if err := adoptModel(ck.Known(), &config.Dense); err != nil {
			return nil, err
		}
	}
	summary, err := ingest.ImportEncoded(ctx, config)
	return summary, withFlags(err, "--model or --field-sizes")
}
