package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
	"shaver/internal/prune/slice"
	"shaver/internal/value/mask"
)

// entryFlags are the flags of prune that choose entries or store those that are kept.
var entryFlags = []string{
	"scores", "from", "previous", mask.Sparsity, mask.Kept, mask.Bytes, "aggregate", "rank", "protect", "field-minimum",
	"hysteresis", "values", "rounding", "dense", "compact-onnx", "calibrate", "tune",
}

// sliceFlags are the flags of prune that remove fields and columns.
var sliceFlags = []string{"drop-fields", "fields", "columns", "path"}

// slice runs prune with one of sliceFlags.
func (o *pruneOptions) slice(c *cobra.Command) error {
	for _, name := range entryFlags {
		if c.Flags().Changed(name) {
			return fault.Usagef("--%s has no effect with --drop-fields, --fields and --columns, which remove whole fields and columns: prune the entries of what is left in a second step", name)
		}
	}
	s := &o.slicing
	for name, number := range map[string]int{"fields": s.KeepFields, "columns": s.KeepColumns} {
		switch {
		case !c.Flags().Changed(name):
		case number < 1:
			return fault.Usagef("--%s %d: expected at least 1", name, number)
		case len(o.Dataset) == 0:
			return fault.Usagef("--%s chooses by the loss on the validation split of --dataset: give it", name)
		}
	}
	walks := c.Flags().Changed("fields") || c.Flags().Changed("columns")
	if c.Flags().Changed("path") && !walks {
		return fault.Usagef("--path keeps the path of --fields and --columns: give one of them")
	}
	if checkpoint.NamedONNX(o.Out) {
		return fault.Usagef("--drop-fields, --fields and --columns write a safetensors file: expected --out with another extension than .onnx")
	}
	if err := o.output.Check(); err != nil {
		return err
	}
	o.outputs.Inputs(checkpoint.Files(o.Model)...)
	o.outputs.Inputs(dataset.Files(o.Dataset...)...)
	if c.Flags().Changed("path") {
		if err := o.outputs.Check("--path", s.Path, cli.Unless(slice.Written, "a path")); err != nil {
			return err
		}
		o.outputs.Inputs(s.Path)
	}
	if err := checkModelOutput(&o.outputs, "--out", o.Out, o.Model); err != nil {
		return err
	}
	s.Model, s.ModelOutput, s.Dataset, s.Out, s.Rows, s.Restart = o.Model, o.ModelOutput, o.Dataset, o.Out, slice.Rows, o.outputs.Force
	r, err := s.Write(c.Context())
	if err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), r, func(w io.Writer) { sliceTable(w, r) })
}

// sliceTable writes what was removed and what it costs, and then the path.
func sliceTable(w io.Writer, r *slice.Result) {
	fmt.Fprintf(w, "sliced\t%s\n", r.Out)
	fmt.Fprintf(w, "removed\t%s\n", strings.Join(r.Removed, ", "))
	numbers := func(what string, before, after int) { fmt.Fprintf(w, "%s\t%d -> %d\n", what, before, after) }
	numbers("fields", r.Before.Fields, r.After.Fields)
	numbers("columns", r.Before.Columns, r.After.Columns)
	numbers("look-ups", r.Before.LookUps, r.After.LookUps)
	numbers("entries", r.Before.Entries, r.After.Entries)
	numbers("products", r.Before.Multiplications, r.After.Multiplications)
	fmt.Fprintf(w, "file\t%s\n", cli.Change(r.Before.Bytes, r.After.Bytes))
	if r.Loss == nil {
		return
	}
	fmt.Fprintf(w, "\nloss %s on %d rows\n", cli.Metric(r.Loss), r.Rows)
	fmt.Fprintf(w, "WITHOUT\tFIELDS\tCOLUMNS\tPRODUCTS\tAUC\tRISE OF THE LOSS\t95%% INTERVAL\n")
	for _, s := range r.Path {
		what := s.Field
		if what == "" {
			what = "column " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(s.Gone)), " and "), "[]")
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\n", what, s.Fields, s.Columns, s.Multiplications, cli.Metric(s.AUC), differenceText(s.Rise))
	}
}
