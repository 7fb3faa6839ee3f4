package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/evaluate"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

type pruneOptions struct {
	model, scores, from, out, aggregate, rank string
	sparsity                                  float64
	parameters, bytes                         int64
	keep                                      mask.Keep
	stable                                    stableOptions
	calibrate, tune                           bool
	dataset                                   []string
	modelOutput                               string // output of the model, if it is an .onnx file with several
	form                                      formOptions
	seed                                      uint64 // seed of the method random; only --from sets it
	outputs                                   cli.Outputs
	output                                    cli.Output
}

// pruning is what "prune" prints.
type pruning struct {
	Out             string            `json:"out"`
	Method          string            `json:"method"` // name of the method in a sweep
	Baseline        string            `json:"baseline"`
	Aggregate       string            `json:"aggregate,omitempty"` // empty if the method does not rank by scores
	Rank            string            `json:"rank,omitempty"`      // how the method ranks by the scores
	Sparsity        float64           `json:"sparsity"`            // dropped / entries
	Entries         int               `json:"entries"`
	Dropped         int               `json:"dropped"`
	Kept            int               `json:"kept"`
	Parameters      int               `json:"parameters"` // kept entries, and those of the codebook if there is one
	Features        int               `json:"features"`
	EmptyFeatures   int               `json:"empty_features"`     // features that keep no entry
	Previous        *stability        `json:"previous,omitempty"` // with --previous
	Calibration     *loss.Calibration `json:"calibration,omitempty"`
	Tuned           *trainingResult   `json:"tuned,omitempty"` // with --tune
	TableBytes      int64             `json:"table_bytes"`     // values, positions and codebook
	DenseTableBytes int64             `json:"dense_table_bytes"`
	Bytes           int64             `json:"bytes"`
	DenseBytes      int64             `json:"dense_bytes"` // size of the unpruned model as safetensors; of the .onnx file if --out is one
	onnxTables
}

func pruneCommand() *cobra.Command {
	var o pruneOptions
	c := &cobra.Command{
		Use:     "prune",
		Short:   "Prune the embedding table to a budget",
		Long:    help("prune"),
		Example: help("prune.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	modelFlag(c, &o.model, "checkpoint `file` that was scored")
	modelOutputFlag(c, &o.modelOutput)
	scoresFlag(c, &o.scores)
	f.StringVar(&o.from, "from", "", "`file` written by shaver sweep --select --out, which says how to prune (default none)")
	cli.Files(c, "from", "json")
	outFlag(c, &o.out, "pruned model `file` to write, .safetensors, or .onnx if --model is one", "safetensors", "onnx")
	f.Float64Var(&o.sparsity, "sparsity", 0, "budget: `portion` of the entries to drop")
	f.Int64Var(&o.parameters, "parameters", 0, "budget: `number` of parameters to keep")
	f.Int64Var(&o.bytes, "bytes", 0, "budget: size of the compact file in `bytes`")
	aggregateFlag(c, &o.aggregate)
	rankFlag(c, &o.rank)
	keepFlags(c, &o.keep)
	o.stable.flags(c)
	f.BoolVar(&o.calibrate, "calibrate", false, "fit a*logit + b to the validation split of --dataset, and fold a and b into the weights")
	f.BoolVar(&o.tune, "tune", false, "train the kept entries and the head on the training split of --dataset")
	datasetFlag(c, &o.dataset, "dataset `folder`, for --calibrate and --tune, and for --from with the method frequency")
	o.form.flags(c)
	o.outputs.Flag(c, "a file at --out that is not a model written by shaver, or any .onnx file")
	o.output.Flag(c)
	cli.Group(c, "Files", "model", "model-output", "scores", "from", "previous", "dataset", "out", "force")
	cli.Group(c, "Budget", "sparsity", "parameters", "bytes")
	cli.Group(c, "Choice of entries", "aggregate", "rank", "protect", "field-minimum", "hysteresis")
	cli.Group(c, "Pruned model", "values", "dense", "compact-onnx", "calibrate", "tune")
	cli.MarkRequired(c, "model", "scores", "out")
	return c
}

// check checks the flags before any file is read, and returns the budget or nil.
func (o *pruneOptions) check(c *cobra.Command) (*mask.Budget, error) {
	var given []mask.Budget
	for _, b := range []mask.Budget{{Unit: mask.Sparsity, Amount: o.sparsity}, {Unit: mask.Kept, Amount: float64(o.parameters)}, {Unit: mask.Bytes, Amount: float64(o.bytes)}} {
		if c.Flags().Changed(b.Unit) {
			given = append(given, b)
		}
	}
	switch {
	case o.from != "":
		for _, name := range []string{mask.Bytes, "aggregate", "rank", "protect", "field-minimum", "values"} {
			if c.Flags().Changed(name) {
				return nil, fault.Usagef("--from already sets --%s: leave one of them out", name)
			}
		}
		if len(given) > 1 {
			return nil, fault.Usagef("--sparsity and --parameters both name a budget of --from: give only one")
		}
	case len(given) != 1:
		return nil, fault.Usagef("shaver prune needs one of --sparsity, --parameters and --bytes, or --from")
	}
	if err := o.form.check(c, o.out); err != nil {
		return nil, err
	}
	if err := o.stable.check(c); err != nil {
		return nil, err
	}
	switch {
	case o.form.dense && c.Flags().Changed("bytes"):
		return nil, fault.Usagef("--bytes is a budget for the compact file; a dense file is as large as the model")
	case isONNX(o.out) && c.Flags().Changed("bytes"):
		return nil, fault.Usagef("--bytes is a budget for the compact safetensors file: give --sparsity or --parameters for an .onnx file")
	}
	if o.calibrate && len(o.dataset) == 0 {
		return nil, fault.Usagef("--calibrate needs --dataset")
	}
	switch {
	case o.tune && len(o.dataset) == 0:
		return nil, fault.Usagef("--tune needs --dataset")
	case o.tune && (o.form.dense || isONNX(o.out)):
		return nil, fault.Usagef("--tune writes a compact file: expected --out with another extension than .onnx, and no --dense")
	case o.tune && o.calibrate:
		return nil, fault.Usagef("--tune and --calibrate exclude each other: training changes the scale and the offset of the logits anyway")
	case !o.calibrate && !o.tune && o.from == "" && c.Flags().Changed("dataset"):
		return nil, fault.Usagef("--dataset has no effect without --calibrate, --tune or --from")
	}
	if err := o.output.Check(); err != nil {
		return nil, err
	}
	if given == nil {
		return nil, nil
	}
	return &given[0], nil
}

func (o *pruneOptions) run(c *cobra.Command) error {
	budget, err := o.check(c)
	if err != nil {
		return err
	}
	o.outputs.Inputs(checkpoint.Files(o.model)...)
	o.outputs.Inputs(o.scores, o.from)
	if o.stable.previous != "" {
		o.outputs.Inputs(checkpoint.Files(o.stable.previous)...)
	}
	if len(o.dataset) > 0 {
		o.outputs.Inputs(dataset.Files(o.dataset...)...)
	}
	if err := checkModelOutput(&o.outputs, "--out", o.out, o.model); err != nil {
		return err
	}
	p, err := o.open()
	if err != nil {
		return err
	}
	if o.calibrate && isONNX(o.out) {
		if err := p.checkpoint.CheckCalibration(); err != nil {
			return err
		}
	}
	if !c.Flags().Changed("aggregate") {
		o.aggregate = p.scores[0].DefaultAggregate()
	}
	method := sweep.Name(&p.scores[0].Spec.Options, o.aggregate)
	if o.from != "" {
		if method, budget, err = o.take(p, budget); err != nil {
			return fmt.Errorf("%s: %w", o.from, err)
		}
	}
	dropped, stable, err := o.choose(p, method, budget)
	if err != nil {
		return err
	}
	if o.aggregate == scores.ByPath {
		if _, err := warnDeep(p.scores[0], dropped, o.scores); err != nil {
			return err
		}
	}
	a, baseline := &p.checkpoint.Architecture, p.scores[0].Spec.Baseline
	result := pruning{
		Out: o.out, Method: method, Baseline: baseline, Aggregate: o.aggregate, Rank: o.rank, Entries: a.Parameters(), Features: a.Features(), EmptyFeatures: mask.EmptyFeatures(a, dropped), Previous: stable,
		DenseTableBytes: p.checkpoint.Footprint().Table, TableBytes: p.checkpoint.Footprint().Table, DenseBytes: p.checkpoint.Size(),
	}
	if !o.form.full(o.out) && !isONNX(o.out) {
		result.TableBytes = p.checkpoint.CompactFootprint(dropped, o.form.stored()).Table
	}
	for _, gone := range dropped {
		if gone {
			result.Dropped++
		}
	}
	result.Kept = result.Entries - result.Dropped
	result.Sparsity = float64(result.Dropped) / float64(result.Entries)
	result.Parameters = mask.Parameters(a, result.Dropped, baseline)
	write := o.write
	if o.tune {
		write = o.writeTuned
	}
	if err := write(c, p, dropped, &result); err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), result, func(w io.Writer) { result.table(w, o.form.full(o.out)) })
}

func (r *pruning) table(w io.Writer, dense bool) {
	sizes(w, dense, r.DenseTableBytes, r.TableBytes, r.DenseBytes, r.Bytes)
	r.onnxTables.table(w)
	fmt.Fprintf(w, "pruned\t%s\n", r.Out)
	fmt.Fprintf(w, "method\t%s\n", r.Method)
	fmt.Fprintf(w, "dropped\t%d of %d entries\treplaced by %s\n", r.Dropped, r.Entries, r.Baseline)
	fmt.Fprintf(w, "parameters\t%d\n", r.Parameters)
	fmt.Fprintf(w, "features\t%d of %d keep an entry\n", r.Features-r.EmptyFeatures, r.Features)
	if k := r.Calibration; k != nil {
		where := "folded into the weights"
		if isONNX(r.Out) {
			where = "by two nodes at the end of the graph"
		}
		fmt.Fprintf(w, "calibrated\tlogit * %.4f %+.4f\t%s\n", k.Scale, k.Offset, where)
	}
	if r.Previous != nil {
		r.Previous.table(w)
	}
	if r.Tuned != nil {
		before, after := r.Tuned.History[0].Validation, bestOf(r.Tuned.History, r.Tuned.Best).Validation
		fmt.Fprintf(w, "tuned\t%d epochs\tvalidation AUC %s -> %s, LogLoss %s -> %s\n", r.Tuned.Best, metric(before.AUC), metric(after.AUC), metric(&before.LogLoss), metric(&after.LogLoss))
	}
}

// sizes writes the bytes of a model's table and file, before and after a command that writes
// it in dense or in compact form.
func sizes(w io.Writer, dense bool, table, tableAfter, file, fileAfter int64) {
	if dense {
		fmt.Fprintf(w, "table\t%s\ta dense file stores dropped entries too\n", size(tableAfter))
		fmt.Fprintf(w, "file\t%s\n", size(fileAfter))
		return
	}
	fmt.Fprintf(w, "table\t%s\n", change(table, tableAfter))
	fmt.Fprintf(w, "file\t%s\tonly the table is pruned, not the rest of the model\n", change(file, fileAfter))
}

// change says how a size in bytes changed.
func change(before, after int64) string {
	percent := 100 * (float64(after)/float64(before) - 1)
	word := "larger"
	if percent < 0 {
		percent, word = -percent, "smaller"
	}
	return fmt.Sprintf("%s -> %s, %.0f%% %s", size(before), size(after), percent, word)
}

// open opens the model and its scores. With --from they may also be those of the method SNIP,
// which are of the model before its training.
func (o *pruneOptions) open() (*pruner, error) {
	if o.from == "" {
		return openPruner(o.model, o.modelOutput, o.scores)
	}
	head, err := scores.ReadHead(o.scores)
	if err != nil {
		return nil, err
	}
	d, err := readSweep(o.from)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.from, err)
	}
	if !slices.ContainsFunc(d.Sources, func(s sweep.ScoresFile) bool { return s.Model != "" && s.Job == head.Spec.ID() }) {
		return openPruner(o.model, o.modelOutput, o.scores)
	}
	p, err := openPruner(o.model, o.modelOutput)
	if err != nil {
		return nil, err
	}
	s, err := p.readInitial(o.scores)
	p.scores = []*scores.File{s}
	return p, err
}

// take sets the options that the sweep in o.from says, and returns the method and the
// budget that the sweep chose at a budget, which may be nil.
func (o *pruneOptions) take(p *pruner, at *mask.Budget) (method string, budget *mask.Budget, err error) {
	d, err := readSweep(o.from)
	if err != nil {
		return "", nil, err
	}
	s := p.scores[0]
	if digest := p.checkpoint.Digest(); d.Model != digest {
		return "", nil, fault.Inputf("the sweep measured another model, with digest %.12s; %s has %.12s", d.Model, o.model, digest)
	}
	if len(o.dataset) > 0 {
		data, err := dataset.OpenAll(o.dataset)
		if err != nil {
			return "", nil, err
		}
		if digest := data.Digest(); d.Dataset != digest {
			return "", nil, fault.Inputf("the sweep measured another dataset, with digest %.12s; %s has %.12s", d.Dataset, joined(o.dataset), digest)
		}
	}
	if d.Settings == nil {
		return "", nil, fault.Inputf("the sweep has no settings: an older program wrote it; run shaver sweep again")
	}
	chosen, err := d.ChosenAt(at)
	if err != nil {
		return "", nil, err
	}
	source, err := d.ScoresOf(chosen)
	if err != nil {
		return "", nil, err
	}
	if job := d.Sources[source].Job; job != s.Spec.ID() {
		return "", nil, fault.Inputf("the sweep chose %s with the scores of job %s, but %s has those of job %s", chosen.Method, job, o.scores, s.Spec.ID())
	}
	if o.aggregate, err = d.AggregateOf(chosen); err != nil {
		return "", nil, err
	}
	o.rank = d.Settings.Rank
	if o.aggregate == "" {
		o.rank = ""
	}
	if chosen.Method == sweep.Frequency && len(o.dataset) == 0 {
		return "", nil, fault.Usagef("the sweep chose %s, which needs --dataset", chosen.Method)
	}
	o.keep, o.seed = mask.Keep{Fields: d.Settings.Protect, Minimum: d.Settings.FieldMinimum}, d.Settings.Seed
	o.form.values = chosen.Values
	if o.form.stored().Size() == 0 {
		return "", nil, fault.Inputf("the sweep stores values as %q: expected one of %s", chosen.Values, strings.Join(valueNames(), ", "))
	}
	if o.form.stored() != compact.Float32 && (o.form.dense || isONNX(o.out)) {
		return "", nil, fault.Usagef("the sweep chose values of %s, which only the compact safetensors file has", chosen.Values)
	}
	return chosen.Method, &mask.Budget{Unit: mask.Kept, Amount: float64(chosen.Parameters)}, nil
}

// order returns the entries in the order in which the method drops them.
func (o *pruneOptions) order(p *pruner, method string) ([]int32, error) {
	s := p.scores[0]
	if o.aggregate != "" {
		return sweep.Order(s, o.aggregate, o.rank, p.table)
	}
	switch method {
	case sweep.SSEDS:
		return sweep.SSEDSOrder(s)
	case sweep.SNIP:
		return sweep.SNIPOrder(s, p.table)
	}
	var d *dataset.Dataset
	if len(o.dataset) > 0 {
		var err error
		if d, err = dataset.OpenAll(o.dataset); err != nil {
			return nil, err
		}
	}
	t, err := p.tableOf(d, o.keep, o.form.values)
	if err != nil {
		return nil, err
	}
	return t.RivalOrder(method, s.Baseline, o.seed)
}

// choose returns which entries to drop, [n, d], and with --previous how that differs from
// the previous mask.
func (o *pruneOptions) choose(p *pruner, method string, budget *mask.Budget) (dropped []bool, stable *stability, err error) {
	choices, err := o.stable.choices(p)
	if err != nil {
		return nil, nil, err
	}
	order, err := o.order(p, method)
	if err != nil {
		return nil, nil, err
	}
	plain, err := o.mask(p, order, budget)
	if err != nil || choices == nil {
		return plain, nil, err
	}
	if o.aggregate == "" {
		return nil, nil, fault.Usagef("the sweep chose %s, which has no standard errors: --previous needs a method that ranks entries by scores", method)
	}
	if order, err = sweep.StableOrder(p.scores[0], o.aggregate, o.rank, p.table, choices, o.stable.hysteresis); err != nil {
		return nil, nil, err
	}
	if dropped, err = o.mask(p, order, budget); err != nil {
		return nil, nil, err
	}
	return dropped, o.stable.compare(p, choices, dropped, plain), nil
}

// mask returns the mask, [n, d], that meets the budget by dropping entries in the given
// order.
func (o *pruneOptions) mask(p *pruner, order []int32, budget *mask.Budget) ([]bool, error) {
	a, s := &p.checkpoint.Architecture, p.scores[0]
	order, most, err := o.keep.Apply(a, s.Fields, order)
	if err != nil {
		return nil, fault.Usagef("--protect, --field-minimum: %w", err)
	}
	written := p.checkpoint
	if o.calibrate { // the calibrated weights are float32, which may make the file larger
		if written, _, err = written.Calibrated(1, 0); err != nil {
			return nil, err
		}
	}
	fit := func(bytes int64) (int, error) { return written.CompactDrop(order, o.form.stored(), bytes) }
	drop, err := budget.Drop(a, s.Spec.Baseline, fit)
	if err != nil {
		return nil, fault.Usagef("budget: %w", err)
	}
	if drop > most {
		limits := "--protect and --field-minimum"
		if len(a.PadRows()) > 0 {
			limits = "--protect, --field-minimum and the rows of pad ids"
		}
		return nil, fault.Usagef("--%s %v drops %d entries, but %s allow at most %d of %d", budget.Unit, budget.Amount, drop, limits, most, len(order))
	}
	return mask.Of(order, drop), nil
}

// write writes the pruned model. It sets the sizes of the file and its calibration in r.
func (o *pruneOptions) write(c *cobra.Command, p *pruner, dropped []bool, r *pruning) (err error) {
	ck, baseline := p.checkpoint, p.scores[0].Baseline
	form := checkpoint.ONNXOptions{Compact: o.form.compactONNX}
	if o.calibrate {
		if r.Calibration, err = o.calibration(c, p, dropped); err != nil {
			return err
		}
		form.Scale, form.Offset = r.Calibration.Scale, r.Calibration.Offset
	}
	if o.calibrate && !isONNX(o.out) {
		calibrated, factor, err := ck.Calibrated(r.Calibration.Scale, r.Calibration.Offset)
		if err != nil {
			return err
		}
		ck, baseline = calibrated, slices.Clone(baseline)
		for i := range baseline {
			baseline[i] *= factor
		}
	}
	if !o.form.dense && !isONNX(o.out) {
		r.Bytes, err = checkpoint.WriteCompact(o.out, ck, dropped, baseline, o.form.stored())
		return err
	}
	table, err := ck.Embedding()
	if err != nil {
		return err
	}
	pruned := ck.WithEmbedding(mask.Apply(&ck.Architecture, table, dropped, baseline))
	if !isONNX(o.out) {
		r.Bytes, err = checkpoint.WriteDense(o.out, pruned)
		return err
	}
	size, err := checkpoint.WriteONNX(o.out, pruned, form)
	if err != nil {
		return err
	}
	r.TableBytes, r.Bytes, r.DenseBytes, r.onnxTables = size.TableBytes, size.Bytes, size.Before, onnxTables{size.Tables, size.Compact}
	return nil
}

// calibration fits the calibration of the pruned model on the validation split, with
// the values that the file stores.
func (o *pruneOptions) calibration(c *cobra.Command, p *pruner, dropped []bool) (*loss.Calibration, error) {
	m, err := p.checkpoint.Model()
	if err != nil {
		return nil, err
	}
	table, err := sweep.Pruned(&m.Architecture, p.table, dropped, p.scores[0].Baseline, o.form.stored())
	if err != nil {
		return nil, err
	}
	b, err := openBench(o.dataset, dataset.Val, p.scores[0].Spec.Loss.Name(), m)
	if err != nil {
		return nil, err
	}
	progress := cli.NewProgress("calibrate", "rows", b.rows)
	defer progress.End()
	predictions, err := b.predict(c.Context(), m.WithEmbedding(table), progress)
	if err != nil {
		return nil, err
	}
	if predictions.OneKind() {
		return nil, fault.Inputf("the labels of the validation split are all the same: calibration needs both")
	}
	calibration := evaluate.Calibrate(predictions)
	return &calibration, nil
}
