package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"shaver/internal/checkpoint"
	"shaver/internal/cli"
	"shaver/internal/dataset"
	"shaver/internal/evaluate"
	"shaver/internal/fault"
	"shaver/internal/prune"
	"shaver/internal/sweep"
)

type pruneOptions struct {
	model, scores, out, aggregate, rank string
	sparsity                            float64
	parameters, bytes                   int64
	keep                                prune.Keep
	calibrate                           bool
	dataset                             string
	form                                formOptions
	output                              cli.Output
}

// pruning is what "prune" prints.
type pruning struct {
	Out           string                `json:"out"`
	Baseline      string                `json:"baseline"`
	Aggregate     string                `json:"aggregate"`
	Rank          string                `json:"rank"`
	Sparsity      float64               `json:"sparsity"` // dropped / entries
	Entries       int                   `json:"entries"`
	Dropped       int                   `json:"dropped"`
	Kept          int                   `json:"kept"`
	Parameters    int                   `json:"parameters"` // kept entries, and those of the codebook if there is one
	Features      int                   `json:"features"`
	EmptyFeatures int                   `json:"empty_features"` // features that keep no entry
	Calibration   *evaluate.Calibration `json:"calibration,omitempty"`
	Bytes         int64                 `json:"bytes"`
	DenseBytes    int64                 `json:"dense_bytes"` // of the unpruned model as safetensors
}

func pruneCommand() *cobra.Command {
	var o pruneOptions
	c := &cobra.Command{
		Use:   "prune",
		Short: "Prune the embedding table to a budget",
		Long: `Drop the entries of --model with the lowest --scores to meet one budget:
  --sparsity    portion of the entries to drop
  --parameters  parameters to keep, including the codebook
  --bytes       size of the compact file; as few entries as possible are dropped

A dropped entry reads what it read when it was scored: zero, or the codebook
value of its field.

The file is compact: it has the kept entries and their positions. --values says
in how many bits each entry is stored. With --dense the file is an ordinary
state dict with the original keys, which load_state_dict accepts.

Pruning shifts and scales the logits. --calibrate corrects this with two
numbers, so that LogLoss falls and AUC stays the same. The numbers are folded
into the weights, so a program that loads the file need not know them. In FM and
DeepFM the embedding table is scaled too.`,
		Example: `  shaver prune --model model.pth --scores scores.arrow --sparsity 0.9 \
      --out pruned.safetensors
  shaver prune --model model.pth --scores scores.arrow --bytes 5000000 \
      --values int8 --calibrate --dataset data --out pruned.safetensors`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	modelFlag(c, &o.model, "checkpoint `file` that was scored")
	scoresFlag(c, &o.scores)
	outFlag(c, &o.out, "pruned model `file` to write, .safetensors", "safetensors")
	f.Float64Var(&o.sparsity, "sparsity", 0, "budget: `portion` of the entries to drop")
	f.Int64Var(&o.parameters, "parameters", 0, "budget: `number` of parameters to keep")
	f.Int64Var(&o.bytes, "bytes", 0, "budget: size of the compact file in `bytes`")
	aggregateFlag(c, &o.aggregate)
	rankFlag(c, &o.rank)
	keepFlags(c, &o.keep)
	f.BoolVar(&o.calibrate, "calibrate", false, "fit a*logit + b to the validation split of --dataset, and fold a and b into the weights")
	datasetFlag(c, &o.dataset, "dataset `folder`, for --calibrate")
	o.form.flags(c)
	o.output.Flag(c)
	cli.MarkRequired(c, "model", "scores", "out")
	return c
}

func (o *pruneOptions) run(c *cobra.Command) error {
	budgets := 0
	for _, name := range []string{prune.Sparsity, prune.Kept, prune.Bytes} {
		if c.Flags().Changed(name) {
			budgets++
		}
	}
	if budgets != 1 {
		return fault.Usagef("shaver prune needs one of --sparsity, --parameters and --bytes")
	}
	if err := o.form.check(c); err != nil {
		return err
	}
	if o.form.dense && c.Flags().Changed("bytes") {
		return fault.Usagef("--bytes is a budget for the compact file; a dense file is as large as the model")
	}
	if o.calibrate != c.Flags().Changed("dataset") {
		return fault.Usagef("--calibrate and --dataset need each other")
	}
	if err := o.output.Check(); err != nil {
		return err
	}
	if err := cli.CheckOut(o.out, o.model, o.scores); err != nil {
		return err
	}
	p, err := openPruner(o.model, o.scores)
	if err != nil {
		return err
	}
	mask, err := o.mask(c, p)
	if err != nil {
		return err
	}
	a, baseline := &p.checkpoint.Architecture, p.scores[0].Spec.Baseline
	result := pruning{
		Out: o.out, Baseline: baseline, Aggregate: o.aggregate, Rank: o.rank,
		Entries: a.Parameters(), Features: a.Features(), EmptyFeatures: prune.EmptyFeatures(a, mask), DenseBytes: p.checkpoint.Size(),
	}
	for _, gone := range mask {
		if gone {
			result.Dropped++
		}
	}
	result.Kept = result.Entries - result.Dropped
	result.Sparsity = float64(result.Dropped) / float64(result.Entries)
	result.Parameters = prune.Parameters(a, result.Dropped, baseline)
	if result.Bytes, result.Calibration, err = o.write(c, p, mask); err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), result, func(w io.Writer) {
		fmt.Fprintf(w, "pruned\t%s\n", result.Out)
		fmt.Fprintf(w, "dropped\t%d of %d entries\treplaced by %s\n", result.Dropped, result.Entries, result.Baseline)
		fmt.Fprintf(w, "parameters\t%d\n", result.Parameters)
		fmt.Fprintf(w, "empty features\t%d of %d\tkeep no entry\n", result.EmptyFeatures, result.Features)
		if k := result.Calibration; k != nil {
			fmt.Fprintf(w, "calibrated\tlogit * %.4f %+.4f\tfolded into the weights\n", k.Scale, k.Offset)
		}
		fmt.Fprintf(w, "bytes\t%d\t%.1f%% of the dense model\n", result.Bytes, 100*float64(result.Bytes)/float64(result.DenseBytes))
	})
}

// mask returns which entries to drop, [n, d].
func (o *pruneOptions) mask(c *cobra.Command, p *pruner) ([]bool, error) {
	budget := prune.Budget{Unit: prune.Sparsity, Amount: o.sparsity}
	switch {
	case c.Flags().Changed(prune.Kept):
		budget = prune.Budget{Unit: prune.Kept, Amount: float64(o.parameters)}
	case c.Flags().Changed(prune.Bytes):
		budget = prune.Budget{Unit: prune.Bytes, Amount: float64(o.bytes)}
	}
	a, s := &p.checkpoint.Architecture, p.scores[0]
	order, err := sweep.Order(s, o.aggregate, o.rank, p.table)
	if err != nil {
		return nil, err
	}
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
		return nil, fault.Usagef("--%s %v drops %d entries, but --protect and --field-minimum allow at most %d of %d", budget.Unit, budget.Amount, drop, most, len(order))
	}
	return prune.Mask(order, drop), nil
}

// write writes the pruned model and returns its size in bytes, and its calibration or
// nil.
func (o *pruneOptions) write(c *cobra.Command, p *pruner, mask []bool) (bytes int64, calibration *evaluate.Calibration, err error) {
	ck, baseline := p.checkpoint, p.scores[0].Baseline
	if o.calibrate {
		if calibration, err = o.calibration(c, p, mask); err != nil {
			return 0, nil, err
		}
		calibrated, factor, err := ck.Calibrated(calibration.Scale, calibration.Offset)
		if err != nil {
			return 0, nil, err
		}
		ck, baseline = calibrated, slices.Clone(baseline)
		for i := range baseline {
			baseline[i] *= factor
		}
	}
	if !o.form.dense {
		bytes, err = checkpoint.WriteCompact(o.out, ck, mask, baseline, o.form.stored())
		return bytes, calibration, err
	}
	table, err := ck.Embedding()
	if err != nil {
		return 0, nil, err
	}
	bytes, err = checkpoint.WriteDense(o.out, ck.WithEmbedding(prune.Apply(&ck.Architecture, table, mask, baseline)))
	return bytes, calibration, err
}

// calibration fits the calibration of the pruned model on the validation split, with
// the values that the file stores.
func (o *pruneOptions) calibration(c *cobra.Command, p *pruner, mask []bool) (*evaluate.Calibration, error) {
	m, err := p.checkpoint.Model()
	if err != nil {
		return nil, err
	}
	table, err := sweep.Pruned(&m.Architecture, p.table, mask, p.scores[0].Baseline, o.form.stored())
	if err != nil {
		return nil, err
	}
	b, err := openBench(o.dataset, dataset.Val, m)
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
