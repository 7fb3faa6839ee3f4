package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/slice"
	"shaver/internal/value/mask"
)

// entryFlags are the flags of prune that choose entries or store those that are kept.
var entryFlags = []string{
	"scores", "from", "previous", mask.Sparsity, mask.Kept, mask.Bytes, "aggregate", "rank", "protect", "field-minimum",
	"hysteresis", "values", "rounding", "dense", "compact-onnx", "calibrate", "tune",
}

// sliceFlags are the flags of prune that remove fields and columns.
var sliceFlags = []string{"drop-fields", "fields", "columns", "path", "max-rise"}

// slice runs prune with one of sliceFlags.
func (o *pruneOptions) slice(c *cobra.Command) error {
	for _, name := range entryFlags {
		if c.Flags().Changed(name) {
			return fault.Usagef("--%s has no effect with --drop-fields, --fields and --columns, which remove whole fields and columns: prune the entries of what is left in a second step, or give --scores and --max-rise", name)
		}
	}
	if err := o.checkSlice(c); err != nil {
		return err
	}
	if err := o.output.Check(); err != nil {
		return err
	}
	o.outputs.Inputs(checkpoint.Files(o.Model)...)
	o.outputs.Inputs(dataset.Files(o.Dataset...)...)
	if err := o.checkPath(c); err != nil {
		return err
	}
	if err := checkModelOutput(&o.outputs, "--out", o.Out, o.Model); err != nil {
		return err
	}
	o.slicing.Warn = cli.Warn
	r, err := o.sliceOptions().Write(c.Context())
	if err != nil {
		return err
	}
	cli.Note(r.Unknown)
	if len(r.Path) == 0 && len(r.Beyond) > 0 {
		first := &r.Beyond[0]
		cli.Warn(fmt.Sprintf("no field and no column goes within --max-rise %v, because without %s the rise is %v: allow more, give more validation rows, which narrow the interval, or --scores, by which entries go", o.slicing.MostRise, stepText(first), first.Rise))
	}
	return o.output.Print(c.OutOrStdout(), r, func(w io.Writer) { sliceTable(w, r) })
}

// checkSlice checks the flags that say what is removed.
func (o *pruneOptions) checkSlice(c *cobra.Command) error {
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
	bounds := c.Flags().Changed("max-rise")
	switch {
	case bounds && !(s.MostRise > 0 && s.MostRise <= math.MaxFloat64):
		return fault.Usagef("--max-rise %v: expected a finite number above 0", s.MostRise)
	case bounds && len(o.Dataset) == 0:
		return fault.Usagef("--max-rise bounds the loss on the validation split of --dataset: give it")
	case c.Flags().Changed("path") && !bounds && !c.Flags().Changed("fields") && !c.Flags().Changed("columns"):
		return fault.Usagef("--path keeps the path of --fields, --columns and --max-rise: give one of them")
	}
	return nil
}

// checkPath checks that the command may write --path, which it also reads.
func (o *pruneOptions) checkPath(c *cobra.Command) error {
	if !c.Flags().Changed("path") {
		return nil
	}
	if err := o.outputs.Check("--path", o.slicing.Path, cli.Unless(slice.Written, "a path"), ".json"); err != nil {
		return err
	}
	o.outputs.Inputs(o.slicing.Path)
	return nil
}

// sliceOptions returns the options of what is removed.
func (o *pruneOptions) sliceOptions() *slice.Options {
	s := &o.slicing
	s.Model, s.ModelOutput, s.Dataset, s.Out, s.Rows, s.Restart = o.Model, o.ModelOutput, o.Dataset, o.Out, slice.Rows, o.outputs.Force
	return s
}

// bounded reports whether the loss bounds everything that is removed: fields, columns, entries and bits.
func (o *pruneOptions) bounded(c *cobra.Command) bool {
	return c.Flags().Changed("max-rise") && c.Flags().Changed("scores")
}

// checkBound checks the flags of a bound on everything.
func (o *pruneOptions) checkBound(c *cobra.Command) error {
	for _, name := range []string{"from", "previous"} {
		if c.Flags().Changed(name) {
			return fault.Usagef("--%s and --max-rise both decide which entries stay: give only one", name)
		}
	}
	if checkpoint.NamedONNX(o.Out) {
		return fault.Usagef("--max-rise writes a safetensors file: expected --out with another extension than .onnx")
	}
	return o.checkSlice(c)
}

// slicedFirst chooses the fields and columns that go within the bound, before entries are chosen.
func (o *pruneOptions) slicedFirst(ctx context.Context, r *pruning) error {
	s, most := o.sliceOptions(), o.slicing.MostRise
	if o.Form.Values == compact.Mixed {
		o.Rounding = min(o.Rounding, most/10)
		s.MostRise -= 2 * o.Rounding // what the network and the tables may take
	}
	s.Warn = o.Warn
	if head, err := scores.ReadHead(o.Scores); err != nil {
		return err
	} else if len(head.Spec.Freeze) > 0 { // they keep their columns
		return fault.Usagef("--max-rise removes fields and columns first, but the scores of %s freeze fields: give --sparsity, --parameters or --bytes", o.Scores)
	}
	first, err := s.Choose(ctx)
	if err != nil {
		return err
	}
	cli.Note(first.Unknown)
	o.Bound = &cut.Bound{Most: most, Kept: first.Kept, Compared: first.Compared}
	r.Removed, r.Path, r.Beyond, r.Stages = first.Removed, first.Path, first.Beyond, first.Stages
	return nil
}

// Names of the stages that addStages adds.
const (
	entriesStage = "entries"
	bitsStage    = "bits"
)

// addStages adds what the entries and the bits saved.
func (r *pruning) addStages(values compact.Encoding) {
	entries := slice.Stage{Without: entriesStage, Rise: r.Bounded.Entries, Cost: r.Stages[len(r.Stages)-1].Cost}
	entries.Entries, entries.Bytes = r.Kept, r.Bytes
	if values != compact.Mixed {
		r.Stages = append(r.Stages, entries)
		return
	}
	entries.Bytes = r.Bounded.Bytes
	bits := slice.Stage{Without: bitsStage, Rise: r.Bounded.Rise, Cost: entries.Cost}
	bits.Bytes = r.Bytes
	r.Stages = append(r.Stages, entries, bits)
}

// stageTable writes what each stage saved. If calibrated, entries and bits were compared after a calibration of both models.
func stageTable(w io.Writer, stages []slice.Stage, calibrated bool) {
	fmt.Fprintf(w, "\nWITHOUT\tLOOK-UPS\tPRODUCTS\tENTRIES\tFILE\tBATCH\tRISE OF THE LOSS\t95%% INTERVAL\n")
	for i := range stages {
		s := &stages[i]
		without, time := s.Without, "-"
		if without == "" {
			without = "-"
		}
		if calibrated && (s.Without == entriesStage || s.Without == bitsStage) {
			without += ", both calibrated"
		}
		if s.Batch > 0 {
			time = fmt.Sprintf("%.3g ms", 1000*s.Batch)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\n", without, s.LookUps, s.Multiplications, s.Entries, cli.Size(s.Bytes), time, differenceText(s.Rise))
	}
}

// sliceTable writes what was removed and what it costs, and then the path.
func sliceTable(w io.Writer, r *slice.Result) {
	fmt.Fprintf(w, "sliced\t%s\n", r.Out)
	if len(r.Removed) > 0 {
		fmt.Fprintf(w, "removed\t%s\n", strings.Join(r.Removed, ", "))
	}
	numbers := func(what string, before, after int) { fmt.Fprintf(w, "%s\t%d -> %d\n", what, before, after) }
	numbers("fields", r.Before.Fields, r.After.Fields)
	if r.Before.Columns > 0 || r.After.Columns > 0 {
		fmt.Fprintf(w, "columns\t%s -> %s\n", r.Before.ColumnsText(), r.After.ColumnsText())
	}
	numbers("look-ups", r.Before.LookUps, r.After.LookUps)
	numbers("entries", r.Before.Entries, r.After.Entries)
	numbers("products", r.Before.Multiplications, r.After.Multiplications)
	fmt.Fprintf(w, "file\t%s\n", cli.Change(r.Before.Bytes, r.After.Bytes))
	if r.Loss == nil {
		return
	}
	fmt.Fprintf(w, "\nloss %s on %d rows\n", cli.Metric(r.Loss), r.Rows)
	removalTable(w, r.Path, r.Beyond)
	stageTable(w, r.Stages, false)
}

// stepText returns what a step removes.
func stepText(s *slice.Step) string {
	if s.Field != "" {
		return s.Field
	}
	return "column " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(s.Gone)), " and "), "[]")
}

// removalTable writes the steps of a path, and those that the bound did not allow.
func removalTable(w io.Writer, steps, beyond []slice.Step) {
	fmt.Fprintf(w, "\nWITHOUT\tFIELDS\tCOLUMNS\tPRODUCTS\tAUC\tRISE OF THE LOSS\t95%% INTERVAL\n")
	line := func(s *slice.Step, mark string) {
		fmt.Fprintf(w, "%s%s\t%d\t%s\t%d\t%s\t%s\n", stepText(s), mark, s.Fields, s.ColumnsText(), s.Multiplications, cli.Metric(s.AUC), differenceText(s.Rise))
	}
	for i := range steps {
		line(&steps[i], "")
	}
	for i := range beyond {
		line(&beyond[i], " (stays)")
	}
}
