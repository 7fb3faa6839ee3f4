package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/training"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/data/dataset"
	"shaver/internal/num/loss"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/slice"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

type pruneOptions struct {
	cut.Options
	sparsity          float64
	parameters, bytes int64
	values            string
	slicing           slice.Options // with one of sliceFlags
	outputs           cli.Outputs
	output            cli.Output
}

// pruning is what "prune" prints.
type pruning struct {
	*cut.Choice
	Calibration *loss.Calibration `json:"calibration,omitempty"`
	Tuned       *training.Result  `json:"tuned,omitempty"` // with --tune
	cut.Sizes
	Removed []string      `json:"removed,omitempty"` // names of fields, with --max-rise
	Path    []slice.Step  `json:"path,omitempty"`
	Beyond  []slice.Step  `json:"beyond,omitempty"`
	Stages  []slice.Stage `json:"stages,omitempty"`
}

func pruneCommand() *cobra.Command {
	var o pruneOptions
	c := &cobra.Command{
		Use:     "prune",
		Short:   "Prune the embedding table to a budget",
		Long:    help.Text("prune"),
		Example: help.Text("prune.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			required := []string{"model", "scores", "out"}
			cuts := slices.ContainsFunc(sliceFlags, c.Flags().Changed) && !o.bounded(c)
			switch {
			case cuts:
				required = []string{"model", "out"}
			case o.Previous != "" && !c.Flags().Changed("scores"):
				required = []string{"model", "out"}
			}
			if err := cli.Required(c, required...); err != nil {
				return err
			}
			if cuts {
				return o.slice(c)
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	flags.Model(c, &o.Model, "checkpoint `file` that was scored")
	flags.ModelOutput(c, &o.ModelOutput)
	flags.Scores(c, &o.Scores)
	f.StringVar(&o.From, "from", "", "`file` written by shaver sweep --select --out, which says how to prune (default none)")
	cli.Files(c, "from", "json")
	flags.Out(c, &o.Out, "pruned model `file` to write, .safetensors, or .onnx if --model is one", "safetensors", "onnx")
	f.Float64Var(&o.sparsity, "sparsity", 0, "budget: `portion` of the entries to drop")
	f.Int64Var(&o.parameters, "parameters", 0, "budget: `number` of parameters to keep")
	f.Int64Var(&o.bytes, "bytes", 0, "budget: size of the compact file in `bytes`")
	f.Float64Var(&o.slicing.MostRise, "max-rise", 0, "budget: `rise` of the loss, over the whole model, that may cost fields and columns, and with --scores entries and bits (default none)")
	f.StringSliceVar(&o.slicing.Fields, "drop-fields", nil, "`names` of fields to remove from the model, in place of a budget; needs no scores")
	f.IntVar(&o.slicing.KeepFields, "fields", 0, "`number` of fields to keep; a path over the validation split of --dataset chooses them, without scores (default all)")
	f.IntVar(&o.slicing.KeepColumns, "columns", 0, "`number` of columns of the table to keep, as --fields (default all)")
	f.StringVar(&o.slicing.Path, "path", "", "`file` that keeps the path of --fields and --columns: its steps are followed, and new ones are added (default none)")
	cli.Files(c, "path", "json")
	flags.Aggregate(c, &o.Aggregate)
	flags.Rank(c, &o.Rank)
	flags.Keep(c, &o.Keep)
	previousFlags(c, &o.Options)
	f.BoolVar(&o.Calibrate, "calibrate", false, "fit a*logit + b to the validation split of --dataset, and fold a and b into the weights")
	f.BoolVar(&o.Tune, "tune", false, "train the kept entries and the head on the training split of --dataset")
	flags.Dataset(c, &o.Dataset, "dataset `folder`, for --calibrate, --tune and --values auto, for --from with the method frequency, for a codebook without --scores, for the names of --drop-fields, and for --fields and --columns")
	formFlags(c, &o.Form, &o.values, sweep.AutoValues)
	f.Lookup("values").Usage += ", for bits that differ from row to row"
	f.Float64Var(&o.Rounding, "rounding", cut.DefaultRounding, "with --values auto, `rise` of the loss that rounding the network, and without --bytes also the table, may cause")
	o.outputs.Flag(c, "a file at --out that was not pruned from this model, any .onnx file, or a file at --path that is not the path of this model and these rows")
	o.output.Flag(c)
	cli.Group(c, "Files", "model", "model-output", "scores", "from", "previous", "dataset", "out", "force")
	cli.Group(c, "Budget", "sparsity", "parameters", "bytes", "max-rise")
	cli.Group(c, "Fields and columns", "drop-fields", "fields", "columns", "path")
	cli.Group(c, "Choice of entries", "aggregate", "rank", "protect", "field-minimum", "hysteresis")
	cli.Group(c, "Pruned model", "values", "rounding", "dense", "compact-onnx", "calibrate", "tune")
	cli.MarkRequired(c, "model", "scores", "out")
	cli.Needed(c, "dataset", "sparsity", "parameters", "bytes", "max-rise", "values", "calibrate")
	return c
}

// check checks the flags before any file is read, and sets the budget if they name one.
func (o *pruneOptions) check(c *cobra.Command) error {
	var given []mask.Budget
	for _, b := range []mask.Budget{{Unit: mask.Sparsity, Amount: o.sparsity}, {Unit: mask.Kept, Amount: float64(o.parameters)}, {Unit: mask.Bytes, Amount: float64(o.bytes)}} {
		if c.Flags().Changed(b.Unit) {
			given = append(given, b)
		}
	}
	switch {
	case o.Scores == "":
		for _, name := range []string{"from", mask.Sparsity, mask.Kept, mask.Bytes, "aggregate", "rank", "protect", "field-minimum", "hysteresis"} {
			if c.Flags().Changed(name) {
				return fault.Usagef("--previous without --scores keeps all choices of that file, so --%s has no effect: give --scores, or leave it out", name)
			}
		}
	case o.From != "":
		for _, name := range []string{mask.Bytes, "aggregate", "rank", "protect", "field-minimum", "values"} {
			if c.Flags().Changed(name) {
				return fault.Usagef("--from already sets --%s: leave one of them out", name)
			}
		}
		if len(given) > 1 {
			return fault.Usagef("--sparsity and --parameters both name a budget of --from: give only one")
		}
	case o.bounded(c) && len(given) > 0:
		return fault.Usagef("--%s and --max-rise both name a budget: give only one", given[0].Unit)
	case o.bounded(c):
	case len(given) > 1:
		return fault.Usagef("--sparsity, --parameters and --bytes are one budget: give only one of them")
	case len(given) == 0:
		return fault.Usagef("shaver prune needs one of --sparsity, --parameters, --bytes and --max-rise, or --from")
	}
	if err := checkForm(c, &o.Form, o.values, o.Out, sweep.AutoValues); err != nil {
		return err
	}
	auto := o.values == sweep.AutoValues
	if auto {
		o.Form.Values = compact.Mixed
	}
	switch {
	case auto && len(o.Dataset) == 0:
		return fault.Usagef("--values auto chooses the bits by the loss on the rows of --dataset: give it")
	case auto && o.Previous != "":
		return fault.Usagef("--values auto and --previous exclude each other: the number of kept entries depends on the bits")
	case auto && o.Tune:
		return fault.Usagef("--values auto and --tune exclude each other: training changes the values after their rounding")
	case !auto && c.Flags().Changed("rounding"):
		return fault.Usagef("--rounding has no effect without --values auto")
	}
	if err := checkPrevious(c, &o.Options); err != nil {
		return err
	}
	switch {
	case o.Form.Dense && c.Flags().Changed("bytes"):
		return fault.Usagef("--bytes is a budget for the compact file; a dense file is as large as the model")
	case checkpoint.NamedONNX(o.Out) && c.Flags().Changed("bytes"):
		return fault.Usagef("--bytes is a budget for the compact safetensors file: give --sparsity or --parameters for an .onnx file")
	}
	if o.Calibrate && len(o.Dataset) == 0 {
		return fault.Usagef("--calibrate needs --dataset")
	}
	switch {
	case o.Tune && len(o.Dataset) == 0:
		return fault.Usagef("--tune needs --dataset")
	case o.Tune && (o.Form.Dense || checkpoint.NamedONNX(o.Out)):
		return fault.Usagef("--tune writes a compact file: expected --out with another extension than .onnx, and no --dense")
	case o.Tune && o.Calibrate:
		return fault.Usagef("--tune and --calibrate exclude each other: training changes the scale and the offset of the logits anyway")
	case !o.Calibrate && !o.Tune && !auto && o.From == "" && !o.bounded(c) && o.Scores != "" && c.Flags().Changed("dataset"):
		return fault.Usagef("--dataset has no effect without --calibrate, --tune, --values auto, --from or --max-rise")
	}
	if err := o.output.Check(); err != nil {
		return err
	}
	if !c.Flags().Changed("aggregate") {
		o.Aggregate = "" // that of the scores
	}
	if given != nil {
		o.Budget = &given[0]
	}
	if o.bounded(c) {
		return o.checkBound(c)
	}
	return nil
}

func (o *pruneOptions) run(c *cobra.Command) (err error) {
	if err := o.check(c); err != nil {
		return err
	}
	o.outputs.Inputs(checkpoint.Files(o.Model)...)
	o.outputs.Inputs(o.Scores, o.From)
	if o.Previous != "" {
		o.outputs.Inputs(checkpoint.Files(o.Previous)...)
	}
	if len(o.Dataset) > 0 {
		o.outputs.Inputs(dataset.Files(o.Dataset...)...)
	}
	if err := o.checkPath(c); err != nil {
		return err
	}
	if err := checkModelOutput(&o.outputs, "--out", o.Out, o.Model); err != nil {
		return err
	}
	o.Name = func(setting string) string { return "--" + setting }
	o.Warn = cli.Warn
	r := &pruning{}
	if o.bounded(c) {
		if err := o.slicedFirst(c.Context(), r); err != nil {
			return err
		}
	}
	if r.Choice, err = o.Choose(c.Context()); err != nil {
		return err
	}
	if err := o.checkReplaced(r.Model()); err != nil {
		return err
	}
	if r.Calibration, err = calibrate(c.Context(), r.Choice); err != nil {
		return err
	}
	if o.Tune {
		err = o.writeTuned(c.Context(), r)
	} else {
		r.Sizes, err = r.Write(o.Out, r.Calibration)
	}
	if err != nil {
		return err
	}
	if r.Bounded != nil {
		r.addStages(o.Form.Values)
	}
	cli.Note(r.Unknown)
	if r.Uncalibrated != "" {
		cli.Log().Info(o.Scores + ": " + r.Uncalibrated)
	}
	return o.output.Print(c.OutOrStdout(), r, func(w io.Writer) { r.table(w, o.Form.Full(o.Out)) })
}

// checkReplaced checks that the file at --out, if there is one, was pruned from the model with the
// digest. Files of earlier versions do not say from which model they were pruned.
func (o *pruneOptions) checkReplaced(model string) error {
	if checkpoint.NamedONNX(o.Out) {
		return nil // only --force replaces one
	}
	return o.outputs.Check("--out", o.Out, func(path string) string {
		origins, pruned := checkpoint.OriginsOf(path)
		switch {
		case !pruned:
			return "is not a model that shaver prune wrote"
		case origins != nil && origins[len(origins)-1] != model:
			return fmt.Sprintf("was pruned from another model, with the digest %.12s", origins[len(origins)-1])
		}
		return ""
	})
}

// calibrate fits the calibration of a choice, with progress.
func calibrate(ctx context.Context, choice *cut.Choice) (*loss.Calibration, error) {
	var progress *cli.Progress
	defer func() {
		if progress != nil {
			progress.End()
		}
	}()
	return choice.Calibration(ctx, func(rows int64) func(int) {
		progress = cli.NewProgress("calibrate", "rows", rows)
		return func(rows int) { progress.Add(int64(rows)) }
	})
}

// writeTuned writes the model that "prune --tune" prunes and tunes. The pruned model is in a
// hidden file next to --out while the command runs. If the command is interrupted, it writes the same
// file again and continues the training.
func (o *pruneOptions) writeTuned(ctx context.Context, r *pruning) (err error) {
	hidden := filepath.Join(filepath.Dir(o.Out), "."+filepath.Base(o.Out)+".pruned")
	defer atomicfile.Track(hidden).Remove()
	if r.Sizes, err = r.Write(hidden, nil); err != nil {
		return err
	}
	t, err := (&training.Options{Settings: training.DefaultTuning(), Out: o.Out, Folders: o.Dataset, Outputs: o.outputs, Replace: true, Warn: o.Warn}).Tuning(hidden)
	if err != nil {
		return err
	}
	if err := t.NeedValidation("--tune chooses"); err != nil {
		return err
	}
	if r.Tuned, err = t.Train(ctx); err != nil {
		return err
	}
	info, err := os.Stat(o.Out)
	if err != nil {
		return err
	}
	r.Bytes = info.Size()
	return nil
}

// riseText describes a rise by rounding, which may be much smaller than what other figures show.
func riseText(i *sweep.Interval) string {
	if i == nil || i.Low == nil || i.High == nil {
		return "an unknown amount"
	}
	return fmt.Sprintf("%+.1g [%+.1g, %+.1g]", i.Value, *i.Low, *i.High)
}

func (r *pruning) table(w io.Writer, dense bool) {
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
		r.previousTable(w)
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
