package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/checkpoint"
	"shaver/internal/cli"
	"shaver/internal/compact"
	"shaver/internal/dataset"
	"shaver/internal/evaluate"
	"shaver/internal/fault"
	"shaver/internal/model"
	"shaver/internal/picture"
	"shaver/internal/prune"
	"shaver/internal/scores"
	"shaver/internal/sweep"
)

// sweepInput is what a sweep is over.
type sweepInput struct {
	model, dataset, split string
	scores                []string // files
	aggregates            []string // of the scores
	rank                  string
	rivals                []string // methods without scores
	values                []string // how kept values are stored
	seed                  uint64
	keep                  prune.Keep
	budgets               []prune.Budget
	calibrate, choose     bool
}

// sweepFlags are the flags of sweep that "study" has too.
type sweepFlags struct {
	sweepInput
	methods    []string
	sparsities []float64
	picture    string
	output     cli.Output
}

type sweepOptions struct {
	sweepFlags
	parameters, bytes []int64
}

func sweepCommand() *cobra.Command {
	var o sweepOptions
	c := &cobra.Command{
		Use:   "sweep",
		Short: "Prune to several budgets by several methods, and measure each",
		Long: `Prune to several budgets, by several methods, and measure each on --split.

Each file of --scores is a method for each --aggregate: shapley, shapley-abs,
shapley-rms; or taylor, taylor-abs, taylor-rms for the estimator of that name.
Files that differ in their seed alone are repeats: the table and the picture have
their mean, and how far the farthest of them is from it. Beside them stand the
--methods that need no scores:
  magnitude    drops the least |weight| (MagPrune)
  random       drops in an order drawn by --seed: the floor
  frequency    drops the least |weight - baseline| * sqrt(occurrences)
  ptq4, 8, 16  keeps all entries in so many bits, which counts as a sparsity of
               1 - bits/32; one grid a table, a field (ptq8-field) or a row (ptq8-row)
A dropped entry reads what it read in the scores' job; with scores of both
baselines, the other methods are measured with each.

With --select the methods are measured on the validation split, and only the one
that has the highest AUC there is measured on --split, at each budget. (LogLoss
can be repaired by calibrating the logits again; AUC cannot.) Use scores of the
training split alone: those of validation rows know their labels.

With -o json the result is one document of the form sweep.v1.json.

` + cli.ExitHelp,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c, "model", "scores", "dataset"); err != nil {
				return err
			}
			if !c.Flags().Changed("aggregate") && o.choose && o.rank == prune.Abs {
				o.aggregates = scores.Aggregates()
			}
			if c.Flags().Changed("sparsities") && len(o.parameters)+len(o.bytes) > 0 {
				return fault.Usagef("--sparsities, --parameters and --bytes are all budgets: give one")
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	f.StringVar(&o.model, "model", "", "the checkpoint that was scored")
	f.StringSliceVar(&o.scores, "scores", nil, "its scores; several files are compared")
	f.StringVar(&o.dataset, "dataset", "", "dataset folder")
	o.add(c)
	f.StringSliceVar(&o.values, "values", []string{string(compact.Float32)}, "how the compact file stores kept values: "+valuesHelp()+"; several are compared")
	f.Int64SliceVar(&o.parameters, "parameters", nil, "`budgets` in parameters to keep, in place of --sparsities")
	f.Int64SliceVar(&o.bytes, "bytes", nil, "`budgets` in bytes of the compact file, in place of --sparsities")
	f.Lookup("parameters").DefValue, f.Lookup("bytes").DefValue = "", "" // "[]" is no default to show
	f.StringVar(&o.rank, "rank", prune.Abs, rankHelp())
	f.StringSliceVar(&o.aggregates, "aggregate", []string{scores.Sum}, "aggregates of the scores to compare: "+scores.AggregateHelp()+"; with --select all, unless given")
	f.BoolVar(&o.choose, "select", false, "at each budget, measure only the method that is best on the validation split")
	keepFlags(c, &o.keep)
	return c
}

// portionsFlag adds a flag of several portions, whose default is shown as people type
// it.
func portionsFlag(c *cobra.Command, to *[]float64, name string, portions []float64, usage string) {
	c.Flags().Float64SliceVar(to, name, portions, usage)
	text := make([]string, len(portions))
	for i, portion := range portions {
		text[i] = strconv.FormatFloat(portion, 'g', -1, 64)
	}
	c.Flags().Lookup(name).DefValue = strings.Join(text, ",")
}

// add adds the flags to c.
func (o *sweepFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.split, "split", dataset.Test, "split to measure on")
	portionsFlag(c, &o.sparsities, "sparsities", []float64{.5, .8, .9, .95, .99}, "`portions` of the entries to drop")
	f.StringSliceVar(&o.methods, "methods", []string{sweep.Magnitude}, "what to compare with: all, or any of "+strings.Join(sweep.Rivals(), ", "))
	f.Uint64Var(&o.seed, "seed", 1, "seed of everything random")
	f.BoolVar(&o.calibrate, "calibrate", false, "also measure LogLoss with logits calibrated on the validation split")
	f.StringVar(&o.picture, "picture", "", "file to draw AUC and LogLoss in: "+strings.Join(picture.Formats(), ", "))
	o.output.Flag(c)
}

func keepFlags(c *cobra.Command, k *prune.Keep) {
	c.Flags().StringSliceVar(&k.Fields, "protect", nil, "fields of which nothing is dropped")
	c.Flags().Float64Var(&k.Minimum, "field-minimum", 0, "portion of each field's entries to keep at least, its best")
}

// check checks the flags before anything is computed, and sets the rivals and the
// budgets that they name.
func (o *sweepFlags) check() (err error) {
	if err := o.output.Check(); err != nil {
		return err
	}
	if err := picture.Check(o.picture); err != nil {
		return err
	}
	if o.picture != "" {
		if err := cli.CheckOut(o.picture); err != nil {
			return err
		}
	}
	if o.rivals, err = rivals(o.methods); err != nil {
		return err
	}
	o.budgets, err = sparsities(o.sparsities)
	return err
}

func (o *sweepOptions) run(c *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	switch {
	case len(o.parameters) > 0 && len(o.bytes) > 0:
		return fault.Usagef("--parameters and --bytes are budgets both: give one")
	case len(o.parameters) > 0:
		o.budgets = budgets(prune.Kept, o.parameters)
	case len(o.bytes) > 0:
		o.budgets = budgets(prune.Bytes, o.bytes)
	}
	return o.show(c)
}

// show sweeps, prints what was found and draws it.
func (o *sweepFlags) show(c *cobra.Command) error {
	d, err := sweepMethods(c.Context(), &o.sweepInput)
	if err != nil {
		return err
	}
	if err := o.output.Print(c.OutOrStdout(), d, d.WriteTable); err != nil || o.picture == "" {
		return err
	}
	return picture.Sweep(d).Write(o.picture)
}

// sweepMethods measures every method at every budget.
func sweepMethods(ctx context.Context, o *sweepInput) (*sweep.Document, error) {
	switch {
	case len(o.scores) == 0:
		return nil, fault.Usagef("--scores is empty: it names at least one file")
	case len(o.values) == 0:
		return nil, fault.Usagef("--values is empty: expected any of %s", valuesHelp())
	case len(o.rivals) == 0 && len(o.aggregates) == 0:
		return nil, fault.Usagef("--methods and --aggregate are both empty: there is nothing to compare")
	}
	p, err := openPruner(o.model, o.scores...)
	if err != nil {
		return nil, err
	}
	m, err := p.checkpoint.Model()
	if err != nil {
		return nil, err
	}
	b, err := openBench(o.dataset, o.split, m)
	if err != nil {
		return nil, err
	}
	document := &sweep.Document{
		Version: sweep.Version, Model: p.checkpoint.Digest(), Dataset: b.dataset.Digest(), Kind: string(m.Kind), Split: o.split, Rows: b.rows,
		Features: m.Features(), Entries: m.Parameters(), Points: []sweep.Point{},
		Settings: &sweep.Settings{Rank: o.rank, Protect: o.keep.Fields, FieldMinimum: o.keep.Minimum, Seed: o.seed},
	}
	for _, s := range p.scores {
		document.Sources = append(document.Sources, sweep.NewScoresFile(s))
	}
	methods, err := o.compared(p, b.dataset)
	if err != nil {
		return nil, err
	}
	config := sweep.Config{Model: m, Methods: methods, Budgets: o.budgets, Calibrate: o.calibrate, Select: o.choose}
	validation, err := o.validation(p.scores, m)
	if err != nil {
		return nil, err
	}
	measured, validated := config.Work()
	progress := cli.NewProgress("sweep", "rows", int64(measured)*b.rows+int64(validated)*validation.rows)
	defer progress.End()
	on := func(b *bench) func(context.Context, *model.Model) (*evaluate.Predictions, error) {
		return func(ctx context.Context, m *model.Model) (*evaluate.Predictions, error) {
			return b.predict(ctx, m, progress)
		}
	}
	config.Predict, config.Validate = on(b), on(validation)
	return document, config.Run(ctx, document)
}

// validation opens the split to choose and calibrate on, if that is asked for.
func (o *sweepInput) validation(by []*scores.File, m *model.Model) (*bench, error) {
	if !o.choose && !o.calibrate {
		return &bench{}, nil
	}
	if o.split == dataset.Val {
		return nil, fault.Usagef("--select chooses on the split %s, and --calibrate fits to it: --split %s would measure what it was chosen for", dataset.Val, o.split)
	}
	if o.choose && slices.ContainsFunc(by, func(s *scores.File) bool { return slices.Contains(s.Spec.Splits, dataset.Val) }) {
		log, err := cli.Logger("text", false)
		if err != nil {
			return nil, err
		}
		log.Warn("the scores know the labels of the validation rows, which flatters the aggregate sum: to select, score with --splits train")
	}
	return openBench(o.dataset, dataset.Val, m)
}

// sparsities returns budgets that drop portions of the entries.
func sparsities(portions []float64) ([]prune.Budget, error) {
	for _, t := range portions {
		if !(t >= 0 && t <= 1) {
			return nil, fault.Usagef("--sparsities: sparsity %v is outside [0, 1]", t)
		}
	}
	return budgets(prune.Sparsity, portions), nil
}

// budgets returns budgets of a unit.
func budgets[T int64 | float64](unit string, amounts []T) (all []prune.Budget) {
	for _, amount := range amounts {
		all = append(all, prune.Budget{Unit: unit, Amount: float64(amount)})
	}
	return all
}

// rivals returns the methods that names stand for, of those that need no scores.
func rivals(names []string) ([]string, error) {
	all := sweep.Rivals()
	if len(names) == 1 && names[0] == "all" {
		return all, nil
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, fault.Usagef("--methods: %q is none: they are all, or any of %s", name, strings.Join(all, ", "))
		}
	}
	return names, nil
}

// compared returns the methods to compare.
func (o *sweepInput) compared(p *pruner, d *dataset.Dataset) (all []sweep.Method, err error) {
	add := func(m sweep.Method, failed error) {
		if err == nil {
			all, err = append(all, m), failed
		}
	}
	for at, values := range o.values {
		t, failed := p.tableOf(d, o.keep, values)
		if failed != nil {
			return nil, failed
		}
		for source, s := range p.scores {
			for _, aggregate := range o.aggregates {
				add(t.ByScores(s, source, aggregate, o.rank))
			}
		}
		seen := map[string]bool{} // baselines
		for _, s := range p.scores {
			for _, name := range o.rivals {
				if ptq := strings.HasPrefix(name, "ptq"); !seen[s.Spec.Baseline] && !(ptq && (at > 0 || len(seen) > 0)) {
					add(t.Rival(name, s.Spec.Baseline, s.Baseline, o.seed))
				}
			}
			seen[s.Spec.Baseline] = true
		}
	}
	return all, err
}

// tableOf returns what methods start from; dropped entries are those that keep
// allows.
func (p *pruner) tableOf(d *dataset.Dataset, keep prune.Keep, values string) (*sweep.Unpruned, error) {
	v := compact.Encoding(values)
	if v.Size() == 0 {
		return nil, fault.Usagef("--values %q: expected any of %s", values, valuesHelp())
	}
	return &sweep.Unpruned{
		Architecture: &p.checkpoint.Architecture, Names: p.scores[0].Fields, Entries: p.table, Keep: keep, Values: v,
		Counts: func() ([]int64, error) { return occurrences(d) },
		Fit:    func(order []int32, bytes int64) (int, error) { return p.checkpoint.CompactDrop(order, v, bytes) },
	}, nil
}

// occurrences returns those of each feature in train and val, as far as there are.
func occurrences(d *dataset.Dataset) ([]int64, error) {
	var splits []string
	for _, name := range d.SplitNames() {
		if name != dataset.Test {
			splits = append(splits, name)
		}
	}
	if len(splits) == 0 {
		return nil, fault.Inputf("the dataset has no split %s or %s whose occurrences count", dataset.Train, dataset.Val)
	}
	return d.Frequencies(splits...)
}

// pruner is a model and the scores that were computed for it.
type pruner struct {
	checkpoint *checkpoint.Checkpoint
	scores     []*scores.File
	table      []float32 // [n, d]
}

// openPruner reads them and checks that they belong together.
func openPruner(modelFile string, scoresFiles ...string) (*pruner, error) {
	ck, err := checkpoint.Read(modelFile)
	if err != nil {
		return nil, err
	}
	p := &pruner{checkpoint: ck}
	digest := ck.Digest()
	for _, file := range scoresFiles {
		s, err := scores.Read(file)
		if err != nil {
			return nil, err
		}
		if err := s.CheckModel(&ck.Architecture, digest); err != nil {
			return nil, fmt.Errorf("%s and %s: %w", file, modelFile, err)
		}
		p.scores = append(p.scores, s)
	}
	p.table, err = ck.Embedding()
	return p, err
}
