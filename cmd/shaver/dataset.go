package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/checkpoint"
	"shaver/internal/cli"
	"shaver/internal/dataset"
	"shaver/internal/fault"
)

type importOptions struct {
	ids              string
	train, val, test []string
	model            string
	sizes            []int
	raw              []string
	label            string
	minCount         int64
	split            string
	seed             uint64
	onBadRow, out    string
	output           cli.Output
}

func importCSVCommand() *cobra.Command {
	var o importOptions
	c := &cobra.Command{
		Use:   "csv",
		Short: "Make a dataset from CSV or TSV: encoded ids, or raw strings",
		Long: `Make a dataset from CSV or TSV files; .gz and .zst are accepted.

Encoded rows are a label (0 or 1) and one id per field; ids count from 0 within
their field (--ids local) or over all fields (--ids global). Name a file per
split, or one --train file and a --split ratio.

  shaver dataset import csv --ids local --train F [--val F] [--test F] [--model F | --field-sizes 2,2,3] --out DIR
  shaver dataset import csv --ids global --train F --split 8:1:1 --model F --out DIR

Raw strings are a label column and one column per field, with a header. Values
with at least --min-count rows of the train split get ids in byte order; the
last id of a field stands for all others.

  shaver dataset import csv --raw F --label NAME --min-count N --split 8:1:1 --seed N --out DIR

` + cli.ExitHelp,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c, "out"); err != nil {
				return err
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	f.StringVar(&o.ids, "ids", dataset.LocalIDs, "how ids count: local or global")
	f.StringSliceVar(&o.train, "train", nil, "files of encoded rows of the train split")
	f.StringSliceVar(&o.val, "val", nil, "files of the val split")
	f.StringSliceVar(&o.test, "test", nil, "files of the test split")
	f.StringVar(&o.model, "model", "", "checkpoint whose field sizes the rows must fit")
	f.IntSliceVar(&o.sizes, "field-sizes", nil, "features of each field (default the largest local id + 1)")
	f.StringSliceVar(&o.raw, "raw", nil, "files of raw strings")
	f.StringVar(&o.label, "label", "label", "name of the label column of --raw")
	f.Int64Var(&o.minCount, "min-count", 2, "rows of the train split that a raw value needs to get an id of its own")
	f.StringVar(&o.split, "split", "", "draw rows into train:val:test (--raw: default 8:1:1)")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the draw")
	f.StringVar(&o.onBadRow, "on-bad-row", dataset.Fail, "what a row that is none does: fail, or skip it and count")
	f.StringVar(&o.out, "out", "", "folder to make")
	o.output.Flag(c)
	return c
}

func (o *importOptions) run(c *cobra.Command) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	switch {
	case o.onBadRow != dataset.Fail && o.onBadRow != dataset.Skip:
		return fault.Usagef("--on-bad-row %s: %s or %s", o.onBadRow, dataset.Fail, dataset.Skip)
	case o.ids != dataset.LocalIDs && o.ids != dataset.GlobalIDs:
		return fault.Usagef("--ids %s: %s or %s", o.ids, dataset.LocalIDs, dataset.GlobalIDs)
	case (len(o.raw) > 0) == (len(o.train) > 0):
		return fault.Usagef("%s needs --train (encoded rows) or --raw (strings), and not both", c.CommandPath())
	case len(o.sizes) > 0 && o.model != "":
		return fault.Usagef("--model and --field-sizes both give the field sizes: give one")
	case o.minCount < 1:
		return fault.Usagef("--min-count %d: at least 1", o.minCount)
	}
	kind, others := "--train", []string{"label", "min-count"}
	if len(o.raw) > 0 {
		kind, others = "--raw", []string{"ids", "val", "test", "model", "field-sizes"}
	}
	for _, name := range others {
		if c.Flags().Changed(name) {
			return fault.Usagef("--%s does not go with %s", name, kind)
		}
	}
	progress := cli.NewProgress("import", "bytes", 1)
	show := func(_, read, total int64) { progress.SetOf(read, total) }
	summary, err := o.importRows(c.Context(), show)
	progress.End()
	if err != nil {
		return err
	}
	for _, message := range summary.Bad {
		fmt.Fprintln(c.ErrOrStderr(), "skipped:", message)
	}
	if summary.Skipped > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "skipped %d bad rows in all\n", summary.Skipped)
	}
	facts, err := dataset.Inspect(o.out, 0)
	if err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), facts, func(w io.Writer) { datasetTable(w, facts) })
}

func (o *importOptions) importRows(ctx context.Context, show dataset.Progress) (*dataset.Summary, error) {
	if len(o.raw) > 0 {
		return dataset.ImportRaw(ctx, dataset.RawConfig{
			Files: o.raw, Label: o.label, MinCount: o.minCount, Split: o.split, Seed: o.seed, OnBadRow: o.onBadRow, Out: o.out, Progress: show,
		})
	}
	config := dataset.EncodedConfig{
		Train: o.train, Val: o.val, Test: o.test, Split: o.split, Seed: o.seed, Sizes: o.sizes,
		Global: o.ids == dataset.GlobalIDs, OnBadRow: o.onBadRow, Out: o.out, Progress: show,
	}
	if o.model != "" {
		ck, err := checkpoint.Read(o.model)
		if err != nil {
			return nil, err
		}
		config.Sizes = ck.Architecture.FieldDims
	}
	return dataset.ImportEncoded(ctx, config)
}

func datasetInspectCommand() *cobra.Command {
	var out cli.Output
	var top int
	c := &cobra.Command{
		Use:   "inspect DIR",
		Short: "Say what a dataset holds: rows, label rate, fields and their most frequent values",
		Args:  cli.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if top < 0 {
				return fault.Usagef("--top %d: not negative", top)
			}
			facts, err := dataset.Inspect(args[0], top)
			if err != nil {
				return err
			}
			return out.Print(c.OutOrStdout(), facts, func(w io.Writer) { datasetTable(w, facts) })
		},
	}
	c.Flags().IntVar(&top, "top", 3, "most frequent values of each field to show")
	out.Flag(c)
	return c
}

func datasetTable(w io.Writer, facts *dataset.Inspection) {
	fmt.Fprintf(w, "fields\t%d\t%d features\n", len(facts.Fields), facts.Features)
	fmt.Fprintf(w, "rows\t%d\t%.2f%% positive\n", facts.Rows, 100*facts.LabelRate)
	for _, s := range facts.Splits {
		fmt.Fprintf(w, "%s\t%d\t%.2f%% positive\n", s.Name, s.Rows, 100*s.LabelRate)
	}
	if facts.Skipped > 0 {
		fmt.Fprintf(w, "skipped\t%d\n", facts.Skipped)
	}
	fmt.Fprintf(w, "digest\t%s\n\nFIELD\tSIZE\tSEEN\tOOV\tMOST FREQUENT\n", facts.Digest)
	for _, f := range facts.Fields {
		oov := "-"
		if f.OOV != nil {
			oov = fmt.Sprintf("%.2f%%", 100**f.OOV)
		}
		var most []string
		for _, v := range f.Top {
			name := fmt.Sprint(v.ID)
			if v.Value != nil {
				name = *v.Value
			}
			most = append(most, fmt.Sprintf("%q %.1f%%", name, 100*v.Share))
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", f.Name, f.Size, f.Seen, oov, strings.Join(most, ", "))
	}
}
