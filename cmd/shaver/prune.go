package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/steps"
	"shaver/internal/click/checkpoint"
	"shaver/internal/prune/cut"
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
			required := []string{"model", "scores", "out"}
			cuts := slices.ContainsFunc(steps.SliceSettings, given) && !(given("max-rise") && given("scores"))
			if cuts || o.Previous != "" && !given("scores") {
				required = []string{"model", "out"}
			}
			if err := cli.Required(c, required...); err != nil {
				return err
			}
			if err := output.Check(); err != nil {
				return err
			}
			o.Given = given
			if cuts {
				r, err := o.Slice(c.Context())
				if err != nil {
					return err
				}
				return output.Print(c.OutOrStdout(), r, func(w io.Writer) { sliceTable(w, r) })
			}
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
	f.StringVar(&o.From, "from", "", "`file` written by shaver sweep --select --out, which says how to prune (default none)")
	cli.Files(c, "from", "json")
	flags.Out(c, &o.Out, "pruned model `file` to write, .safetensors, or .onnx if --model is one", "safetensors", "onnx")
	f.Float64Var(&o.Sparsity, "sparsity", 0, "budget: `portion` of the entries to drop")
	f.Int64Var(&o.Parameters, "parameters", 0, "budget: `number` of parameters to keep")
	f.Int64Var(&o.Bytes, "bytes", 0, "budget: size of the compact file in `bytes`")
	f.Float64Var(&o.Slicing.MostRise, "max-rise", 0, "budget: `rise` of the loss, over the whole model, that may cost fields and columns, and with --scores entries and bits (default none)")
	f.StringSliceVar(&o.Slicing.Fields, "drop-fields", nil, "`names` of fields to remove from the model, in place of a budget; needs no scores")
	f.IntVar(&o.Slicing.KeepFields, "fields", 0, "`number` of fields to keep; a path over the validation split of --dataset chooses them, without scores (default all)")
	f.IntVar(&o.Slicing.KeepColumns, "columns", 0, "`number` of columns of the table to keep, as --fields (default all)")
	f.StringVar(&o.Slicing.Path, "path", "", "`file` that keeps the path of --fields and --columns: its steps are followed, and new ones are added (default none)")
	cli.Files(c, "path", "json")
	flags.Aggregate(c, &o.Aggregate)
	flags.Rank(c, &o.Rank)
	flags.Keep(c, &o.Keep)
	previousFlags(c, &o.Options)
	f.BoolVar(&o.Calibrate, "calibrate", false, "fit a*logit + b to the validation split of --dataset, and fold a and b into the weights")
	f.BoolVar(&o.Tune, "tune", false, "train the kept entries and the head on the training split of --dataset")
	flags.Dataset(c, &o.Dataset, "dataset `folder`, for --calibrate, --tune and --values auto, for --from with the method frequency, for a codebook without --scores, for the names of --drop-fields, and for --fields and --columns")
	formFlags(c, &o.Form, &o.Values, sweep.AutoValues)
	f.Lookup("values").Usage += ", for bits that differ from row to row"
	f.Float64Var(&o.Rounding, "rounding", cut.DefaultRounding, "with --values auto, `rise` of the loss that rounding the network, and without --bytes also the table, may cause")
	o.Outputs.Flag(c, "a file at --out that was not pruned from this model, any .onnx file, or a file at --path that is not the path of this model and these rows")
	output.Flag(c)
	cli.Group(c, "Files", "model", "model-output", "scores", "from", "previous", "dataset", "out", "force")
	cli.Group(c, "Budget", "sparsity", "parameters", "bytes", "max-rise")
	cli.Group(c, "Fields and columns", "drop-fields", "fields", "columns", "path")
	cli.Group(c, "Choice of entries", "aggregate", "rank", "protect", "field-minimum", "hysteresis")
	cli.Group(c, "Pruned model", "values", "rounding", "dense", "compact-onnx", "calibrate", "tune")
	cli.MarkRequired(c, "model", "scores", "out")
	cli.Needed(c, "dataset", "sparsity", "parameters", "bytes", "max-rise", "values", "calibrate")
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
	if r.Rounding != nil {
		fmt.Fprintf(w, "table\t%s\n", cli.Change(r.DenseTableBytes, r.TableBytes))
		fmt.Fprintf(w, "file\t%s\n", cli.Change(r.DenseBytes, r.Bytes))
	} else {
		sizes(w, dense, r.DenseTableBytes, r.TableBytes, r.DenseBytes, r.Bytes)
	}
	distinctRowsLine(w, &r.ONNXTables)
	fmt.Fprintf(w, "pruned\t%s\n", r.Out)
	fmt.Fprintf(w, "method\t%s\n", r.Method)
	fmt.Fprintf(w, "dropped\t%d of %d entries\treplaced by %s\n", r.Dropped, r.Entries, r.Baseline)
	fmt.Fprintf(w, "parameters\t%d\n", r.Parameters)
	if k := r.Rounding; k != nil {
		fmt.Fprintf(w, "rows\t%s\tthe loss changes by %s\n", cut.Text(k.Rows), riseText(k.TableRise))
		fmt.Fprintf(w, "network\t%s\tthe loss changes by %s\n", cut.Text(k.Tensors), riseText(k.NetworkRise))
	}
	fmt.Fprintf(w, "features\t%d of %d keep an entry\n", r.Features-r.EmptyFeatures, r.Features)
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
	if r.Stages != nil {
		removalTable(w, r.Path, r.Beyond)
		stageTable(w, r.Stages, r.Calibration != nil)
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
