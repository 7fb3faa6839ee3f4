package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
)

// The initialisations of "train".
const (
	initialDefault   = "zero-first"
	initialReference = "reference"
)

type trainOptions struct {
	trainingOptions
	model        string
	kind         string
	initial      string
	norm         bool
	budget       time.Duration
	architecture model.Architecture
}

// defaultTraining is the settings of "train", without those that other flags set.
var defaultTraining = training{Epochs: 15, Patience: 3, LearningRate: 1e-3, WeightDecay: 1e-5, Dropout: .5, Batch: 2048}

// The widths of the hidden layers without --hidden. Those of a NeuMF are the reference's.
var (
	defaultHidden = []int{400, 400, 400}
	neumfHidden   = []int{64, 32, 16}
)

const hiddenHelp = "400,400,400, or 64,32,16 for a neumf"

func trainCommand() *cobra.Command {
	o := trainOptions{trainingOptions: trainingOptions{training: defaultTraining}}
	c := &cobra.Command{
		Use:     "train",
		Short:   "Train a click model",
		Long:    help("train"),
		Example: help("train.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	modelFlag(c, &o.model, "checkpoint `file` to continue from (default random weights)")
	f.StringVar(&o.kind, "kind", string(model.DeepFM), "`kind` of the model: fm, deepfm, widedeep, dcn-mix, dcnv2 or neumf, which needs two fields, the user and the item")
	cli.OneOf(c, "kind", string(model.FM), string(model.DeepFM), string(model.WideDeep), string(model.DCNMix), string(model.DCNv2), string(model.NeuMF))
	f.IntVar(&o.architecture.Dim, "dim", 16, "`number` of columns of the embedding table; in a neumf, half of them are those of the MLP")
	f.IntSliceVar(&o.architecture.Hidden, "hidden", defaultHidden, "`widths` of the hidden layers, separated by commas; an fm has none")
	f.Lookup("hidden").DefValue = hiddenHelp
	f.BoolVar(&o.norm, "batch-norm", true, "put a BatchNorm after each hidden layer; a neumf has none")
	f.IntVar(&o.architecture.CrossLayers, "cross-layers", 3, "`number` of cross layers of a dcn-mix or dcnv2")
	f.IntVar(&o.architecture.Experts, "experts", 4, "`number` of experts of a dcn-mix")
	f.IntVar(&o.architecture.Rank, "rank", 64, "`rank` of the experts of a dcn-mix")
	f.StringVar(&o.architecture.Structure, "structure", model.Stacked, "`structure` of a dcnv2: stacked or parallel")
	cli.OneOf(c, "structure", model.Stacked, model.Parallel)
	f.StringVar(&o.initial, "initial", initialDefault, "`initialisation`: "+initialDefault+" or "+initialReference)
	cli.OneOf(c, "initial", initialDefault, initialReference)
	f.IntVar(&o.Search, "search", 0, "`number` of trials with random settings, of which the best is written (default no search)")
	f.DurationVar(&o.budget, "budget", 0, "`time` after which --search starts no more trials (default unlimited)")
	f.StringVar(&o.Table, "table", "", "`table` of embeddings: "+tableForms+" (default full)")
	f.Float64Var(&o.Sparsity, "sparsity", 0, "`portion` of the entries of the table that --table saves")
	f.IntVar(&o.WarmUp, "warm-up", defaultWarmUp, "`number` of epochs until the thresholds of --table pep or cerp have grown to the largest initial value")
	o.trainingOptions.flags(c)
	cli.Group(c, "Search", "search", "budget")
	cli.Group(c, "Files", "model", "dataset", "out", "force")
	cli.Group(c, "Model", "kind", "dim", "hidden", "batch-norm", "cross-layers", "experts", "rank", "structure", "initial", "table", "sparsity", "warm-up")
	cli.MarkRequired(c, "dataset", "out")
	return c
}

// modelFlags lists the flags that describe a new model, by the kinds that have them; "" stands
// for all kinds.
var modelFlags = map[string][]model.Kind{
	"kind": nil, "dim": nil, "initial": nil, "table": nil,
	"hidden":       {model.DeepFM, model.WideDeep, model.DCNMix, model.DCNv2, model.NeuMF},
	"batch-norm":   {model.DeepFM, model.WideDeep, model.DCNMix, model.DCNv2},
	"cross-layers": {model.DCNMix, model.DCNv2},
	"experts":      {model.DCNMix}, "rank": {model.DCNMix},
	"structure": {model.DCNv2},
}

func (o *trainOptions) run(c *cobra.Command) error {
	if o.model != "" {
		o.outputs.Inputs(checkpoint.Files(o.model)...)
	}
	if err := o.check(); err != nil {
		return err
	}
	if err := o.checkSearch(c); err != nil {
		return err
	}
	if err := o.checkFlags(c); err != nil {
		return err
	}
	if o.model != "" {
		for name := range modelFlags {
			if c.Flags().Changed(name) {
				return fault.Usagef("--%s describes a new model: leave out --model, or --%s", name, name)
			}
		}
		ck, err := checkpoint.Read(o.model)
		if err != nil {
			return err
		}
		if ck.Composed != nil {
			return fault.Usagef("%s has a table of scheme %s, whose training cannot continue: shaver model convert --dense writes an ordinary table", o.model, ck.Composed.Shape.Scheme)
		}
		if ck.Compact != nil {
			return fault.Usagef("%s is a pruned model: shaver tune trains it and keeps the dropped entries", o.model)
		}
		t := &course{trainingOptions: &o.trainingOptions, from: ck, budget: o.budget}
		o.Model = ck.Digest()
		if t.data, err = o.open(&ck.Architecture, ck.Fields); err != nil {
			return err
		}
		return t.run(c)
	}
	if err := o.describe(c); err != nil {
		return err
	}
	t, err := o.fresh(&o.architecture, o.norm, o.initial)
	if err != nil {
		return err
	}
	t.budget = o.budget
	return t.run(c)
}

// checkSearch checks the flags of a search.
func (o *trainOptions) checkSearch(c *cobra.Command) error {
	switch {
	case o.Search < 0 || c.Flags().Changed("search") && o.Search == 0:
		return fault.Usagef("--search %d: expected at least 1 trial", o.Search)
	case o.budget < 0:
		return fault.Usagef("--budget %s: expected a time of at least 0", o.budget)
	case o.Search == 0 && c.Flags().Changed("budget"):
		return fault.Usagef("--budget has no effect without --search")
	}
	for _, name := range []string{"learning-rate", "weight-decay", "dropout"} {
		if o.Search > 0 && c.Flags().Changed(name) {
			return fault.Usagef("--search draws --%s: leave one of them out", name)
		}
	}
	return nil
}

// checkFlags refuses flags that have no effect with the table. check must have passed before.
func (o *trainOptions) checkFlags(c *cobra.Command) error {
	m := o.method()
	switch {
	case c.Flags().Changed("sparsity") && o.Sparsity == 0:
		return fault.Usagef("--sparsity 0 has no effect: expected a portion above 0 and below 1")
	case c.Flags().Changed("warm-up") && m != train.PEP && m != train.CERP:
		return fault.Usagef("--warm-up has no effect without --table %s or %s", train.PEP, train.CERP)
	}
	return nil
}

// describes reports whether models of a kind have what a flag describes.
func describes(flag string, kind model.Kind) bool {
	kinds := modelFlags[flag]
	return kinds == nil || slices.Contains(kinds, kind)
}

// trim removes from an architecture what its kind does not have.
func trim(a *model.Architecture) {
	if !describes("hidden", a.Kind) {
		a.Hidden = nil
	}
	if !describes("cross-layers", a.Kind) {
		a.CrossLayers = 0
	}
	if !describes("experts", a.Kind) {
		a.Experts, a.Rank = 0, 0
	}
	if !describes("structure", a.Kind) {
		a.Structure = ""
	}
}

// describe completes the architecture of a new model.
func (o *trainOptions) describe(c *cobra.Command) error {
	a := &o.architecture
	a.Kind = model.Kind(o.kind)
	for name := range modelFlags {
		if c.Flags().Changed(name) && !describes(name, a.Kind) {
			return fault.Usagef("--%s has no effect with --kind %s", name, a.Kind)
		}
	}
	trim(a)
	if a.Kind == model.NeuMF && !c.Flags().Changed("hidden") {
		a.Hidden = neumfHidden
	}
	if !describes("batch-norm", a.Kind) {
		o.norm = false
	}
	if a.Dim < 1 {
		return fault.Usagef("--dim %d: expected at least 1", a.Dim)
	}
	return nil
}
