package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/steps"
	"shaver/internal/click/checkpoint"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/slice"
	"shaver/internal/prune/sweep"
)

func pruneCommand() *cobra.Command {
	o := steps.NewPrune()
	var output cli.Output
	c := &cobra.Command{
		Use:     "prune",
		Short:   "Prune the embedding table to a budget",
		Long:    help.Text("prune"),
		Example: help.Text("prune.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			given := c.Flags().Changed
			required := []string{"model", "out"}
			if o.Previous == "" && !slices.ContainsFunc(steps.SliceSettings, given) {
				required = append(required, "scores")
			}
			if err := cli.Required(c, required...); err != nil {
				return err
			}
			if err := output.Check(); err != nil {
				return err
			}
			o.Given = given
			if !given("aggregate") {
				o.Aggregate = "" // that of the scores
			}
			r, err := o.Run(c.Context())
			if err != nil {
				return err
			}
			return output.Print(c.OutOrStdout(), r, func(w io.Writer) { pruningTable(w, r, o.Form.Full(o.Out)) })
		},
	}
	f := c.Flags()
	flags.Model(c, &o.Model, "checkpoint `file` that was scored")
	flags.ModelOutput(c, &o.ModelOutput)
	flags.Scores(c, &o.Scores)
	f.Lookup("scores").Usage += ", unless only fields and columns go, or --previous says what stays"
	flags.Out(c, &o.Out, "pruned model `file` to write, .safetensors, or .onnx if --model is one", "safetensors", "onnx")
	f.Float64Var(&o.Sparsity, "sparsity", 0, "budget: `portion` of the entries to drop")
	f.Int64Var(&o.Parameters, "parameters", 0, "budget: `number` of parameters to keep")
	f.Int64Var(&o.Bytes, "bytes", 0, "budget: size of the compact file in `bytes`")
	flags.Portions(c, &o.Layers, "layers", nil, "budget: `sparsities` of several models in one file; its beginning through any of them is that model, for devices of different sizes (default one model)")
	f.Float64Var(&o.MostRise, "max-rise", 0, "budget: `rise` of the loss, over the whole model, that may cost fields and columns, and with --scores entries and bits (default none)")
	f.StringSliceVar(&o.Slicing.Fields, "drop-fields", nil, "`names` of fields to remove from the model; needs no scores")
	f.IntVar(&o.KeepFields, "fields", 0, "`number` of fields to keep; a path over the validation split of --dataset chooses them, without scores (default all)")
	f.IntVar(&o.KeepColumns, "columns", 0, "`number` of columns of the table to keep, as --fields (default all)")
	cli.Renamed(c, "from", "--aggregate with the scores of the order that the answer of the sweep names, and shaver compress for the whole way")
	cli.Renamed(c, "path", "the file "+checkpoint.PathFile("OUT")+" next to --out, which is always written")
	flags.Aggregate(c, &o.Aggregate, &o.Rank)
	flags.Keep(c, &o.Keep)
	f.Var(&o.Keep.Tables, "table-budget", "`list` of how much tables or fields keep, such as item=.2..,user=.1...5,ad=..50MiB: at least and at most a portion or a number of entries, or at most bytes (default none)")
	flags.File(c, &o.Previous, "previous", "compact `file` of the previous night, whose choice of entries stays unless the evidence exceeds --hysteresis (default none)", "safetensors")
	f.Float64Var(&o.Hysteresis, "hysteresis", o.Hysteresis, "standard `errors`, or rounds of a path, that the evidence against a choice of --previous must exceed; 0 ignores the choices")
	f.BoolVar(&o.Calibrate, "calibrate", false, "fit a*logit + b to the validation split of --dataset, and fold a and b into the weights")
	f.BoolVar(&o.Tune, "tune", false, "train the kept entries and the head on the training split of --dataset")
	flags.Dataset(c, &o.Dataset, "dataset `folder`, for --calibrate, --tune and --values auto, for a codebook without --scores, for the names of --drop-fields, and for --fields and --columns")
	formFlags(c, &o.Form, &o.Values, sweep.AutoValues)
	f.Lookup("values").Usage += ", for bits that differ from row to row"
	cli.Renamed(c, "rounding", fmt.Sprintf("%g, and at most a tenth of --max-rise", cut.DefaultRounding))
	o.Outputs.Flag(c, "a file at --out that was not pruned from this model, or any .onnx file")
	output.Flag(c)
	cli.Group(c, "Files", "model", "model-output", "scores", "previous", "dataset", "out", "force")
	cli.Group(c, "Budget", "sparsity", "parameters", "bytes", "layers", "max-rise")
	cli.Group(c, "Fields and columns", "drop-fields", "fields", "columns")
	cli.Group(c, "Choice of entries", "aggregate", "protect", "field-minimum", "table-budget", "hysteresis")
	cli.Group(c, "Pruned model", "values", "dense", "calibrate", "tune")
	cli.MarkRequired(c, "model", "out")
	cli.Needed(c, "dataset", "sparsity", "parameters", "bytes", "layers", "max-rise", "values", "calibrate")
	return c
}

// riseText describes a rise by rounding, which may be much smaller than what other figures show.
func riseText(i *sweep.Interval) string {
	if i == nil || i.Low == nil || i.High == nil {
		return "an unknown amount"
	}
	return fmt.Sprintf("%+.1g [%+.1g, %+.1g]", i.Value, *i.Low, *i.High)
}

// pruningTable writes what was pruned.
func pruningTable(w io.Writer, r *steps.Pruning, dense bool) {
	switch {
	case r.Rounding != nil || r.Method == "":
		fmt.Fprintf(w, "table\t%s\nfile\t%s\n", cli.Change(r.DenseTableBytes, r.TableBytes), cli.Change(r.DenseBytes, r.Bytes))
	default:
		sizes(w, dense, r.DenseTableBytes, r.TableBytes, r.DenseBytes, r.Bytes)
	}
	compactLine(w, &r.ONNXTables)
	for i, l := range r.Layers {
		fmt.Fprintf(w, "layer %d\tsparsity %v\t%s\tthe first %d bytes of the file\n", i+1, l.Sparsity, cli.Size(l.Bytes), l.Bytes)
	}
	fmt.Fprintf(w, "pruned\t%s\n", r.Out)
	if r.Sliced != nil {
		slicedTable(w, r.Sliced)
	}
	if r.Method != "" {
		fmt.Fprintf(w, "method\t%s\n", r.Method)
		fmt.Fprintf(w, "dropped\t%d of %d entries\treplaced by %s\n", r.Dropped, r.Entries, r.Baseline)
		if r.Words != "" {
			fmt.Fprintf(w, "words\t%s\n", cli.Printable(r.Words))
		}
		fmt.Fprintf(w, "parameters\t%d\n", r.Parameters)
		if k := r.Rounding; k != nil {
			fmt.Fprintf(w, "rows\t%s\tthe loss changes by %s\n", cut.Text(k.Rows), riseText(k.TableRise))
			fmt.Fprintf(w, "network\t%s\tthe loss changes by %s\n", cut.Text(k.Tensors), riseText(k.NetworkRise))
		}
		fmt.Fprintf(w, "features\t%d of %d keep an entry\n", r.Features-r.EmptyFeatures, r.Features)
	}
	if k := r.Calibration; k != nil {
		where := "folded into the weights"
		if checkpoint.NamedONNX(r.Out) {
			where = "by two nodes at the end of the graph"
		}
		fmt.Fprintf(w, "calibrated\tlogit * %.4f %+.4f\t%s\n", k.Scale, k.Offset, where)
	}
	if r.Previous != nil {
		previousTable(w, r)
	}
	if r.Sliced != nil && r.Loss != nil {
		stepTable(w, r.Sliced, r.Calibration != nil)
	}
	if r.Tuned != nil {
		before, after := r.Tuned.History[0].Validation, r.Tuned.BestEpoch().Validation
		fmt.Fprintf(w, "tuned\t%d epochs\tvalidation AUC %s -> %s, LogLoss %s -> %s\n", r.Tuned.Best, cli.Metric(before.AUC), cli.Metric(after.AUC), cli.Metric(&before.LogLoss), cli.Metric(&after.LogLoss))
	}
}

// sizes writes the bytes of a model's table and file, before and after a command that writes
// it in dense or in compact form.
func sizes(w io.Writer, dense bool, table, tableAfter, file, fileAfter int64) {
	if dense {
		fmt.Fprintf(w, "table\t%s\ta dense file stores dropped entries too\n", cli.Size(tableAfter))
		fmt.Fprintf(w, "file\t%s\n", cli.Size(fileAfter))
		return
	}
	fmt.Fprintf(w, "table\t%s\n", cli.Change(table, tableAfter))
	note := ""
	if tableAfter < table {
		note = "\tonly the table is pruned, not the rest of the model"
	}
	fmt.Fprintf(w, "file\t%s%s\n", cli.Change(file, fileAfter), note)
}

// slicedTable writes which fields and columns went, and what that saves.
func slicedTable(w io.Writer, r *cut.Sliced) {
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
}

// stepTable writes the steps that were taken, and those that the bound did not allow. If calibrated, those of entries and bits
// were compared after a calibration of both models.
func stepTable(w io.Writer, r *cut.Sliced, calibrated bool) {
	fmt.Fprintf(w, "\nloss %s on %d rows\n", cli.Metric(r.Loss), r.Rows)
	fmt.Fprintf(w, "\nWITHOUT\tFIELDS\tCOLUMNS\tPRODUCTS\tENTRIES\tFILE\tAUC\tRISE OF THE LOSS\t95%% INTERVAL\n")
	line := func(s *slice.Step, mark string) {
		fmt.Fprintf(w, "%s%s\t%d\t%s\t%d\t%d\t%s\t%s\t%s\n", s.Text(), mark, s.Fields, s.ColumnsText(), s.Multiplications, s.Entries, cli.Size(s.Bytes), cli.Metric(s.AUC), differenceText(s.Rise))
	}
	for i := range r.Path {
		mark := ""
		if calibrated && r.Path[i].Without != "" {
			mark = ", both calibrated"
		}
		line(&r.Path[i], mark)
	}
	for i := range r.Beyond {
		line(&r.Beyond[i], " (stays)")
	}
}

// previousTable writes how the mask differs from the previous one.
func previousTable(w io.Writer, r *steps.Pruning) {
	s, unit := r.Previous, "standard errors"
	if r.Method == cut.ByPrevious {
		fmt.Fprintf(w, "previous\t%s\tall of its choices are kept\n", s.File)
		return
	}
	if r.ByPath {
		unit = "rounds of a path"
	}
	c, percent := &s.Churn, func(c *cut.Churn) string { return fmt.Sprintf("%.2f%%", 100*c.Portion) }
	fmt.Fprintf(w, "previous\t%s\thysteresis of %v %s\n", s.File, s.Hysteresis, unit)
	fmt.Fprintf(w, "churn\t%s\t%d entries added, %d removed, %d kept by both\n", percent(c), c.Added, c.Removed, c.KeptBefore-c.Removed)
	if c.Absent > 0 {
		fmt.Fprintf(w, "new\t%d\tkept entries of features that the previous model lacks\n", c.Absent)
	}
	fmt.Fprintf(w, "without\t%s\tchurn if the scores alone decided: %d added, %d removed\n", percent(&s.Plain), s.Plain.Added, s.Plain.Removed)
	fmt.Fprintln(w, "\nFIELD\tKEPT BEFORE\tKEPT\tADDED\tREMOVED\tCHURN\tWITHOUT")
	for _, f := range s.Fields {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%s\n", cli.Printable(f.Field), f.Churn.KeptBefore, f.Churn.Kept, f.Churn.Added, f.Churn.Removed, percent(&f.Churn), percent(&f.Plain))
	}
}
