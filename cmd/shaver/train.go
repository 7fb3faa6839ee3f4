package main

import (
	"time"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/training"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
)

type trainOptions struct {
	trainingFlags
	model        string
	initial      string
	norm         bool
	budget       time.Duration
	architecture model.Architecture
}

const hiddenHelp = "400,400,400, or 64,32,16 for a neumf"

func trainCommand() *cobra.Command {
	o := trainOptions{trainingFlags: trainingFlags{Options: training.Options{Settings: training.Default()}}}
	c := &cobra.Command{
		Use:     "train",
		Short:   "Train a click model",
		Long:    help.Text("train"),
		Example: help.Text("train.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE:    cli.Run(o.run, o.output.Check),
	}
	f := c.Flags()
	flags.Model(c, &o.model, "checkpoint `file` to continue from (default random weights)")
	flags.OneOf(c, (*string)(&o.architecture.Kind), "kind", string(model.DeepFM), "`kind` of the model: fm, deepfm, widedeep, dcn-mix, dcnv2 or neumf, which needs two fields, the user and the item", string(model.FM), string(model.DeepFM), string(model.WideDeep), string(model.DCNMix), string(model.DCNv2), string(model.NeuMF))
	f.IntVar(&o.architecture.Dim, "dim", 16, "`number` of columns of the embedding table; in a neumf, half of them are those of the MLP")
	f.IntSliceVar(&o.architecture.Hidden, "hidden", training.DefaultHidden, "`widths` of the hidden layers, separated by commas; an fm has none")
	f.Lookup("hidden").DefValue = hiddenHelp
	f.BoolVar(&o.norm, "batch-norm", true, "put a BatchNorm after each hidden layer; a neumf has none")
	f.IntVar(&o.architecture.CrossLayers, "cross-layers", 3, "`number` of cross layers of a dcn-mix or dcnv2")
	f.IntVar(&o.architecture.Experts, "experts", 4, "`number` of experts of a dcn-mix")
	f.IntVar(&o.architecture.Rank, "rank", 64, "`rank` of the experts of a dcn-mix")
	flags.OneOf(c, &o.architecture.Structure, "structure", model.Stacked, "`structure` of a dcnv2: stacked or parallel", model.Stacked, model.Parallel)
	flags.OneOf(c, &o.initial, "initial", training.InitialDefault, "`initialisation`: "+training.InitialDefault+" or "+training.InitialReference, training.InitialDefault, training.InitialReference)
	f.IntVar(&o.Search, "search", 0, "`number` of trials with random settings, of which the best is written (default no search)")
	f.DurationVar(&o.budget, "budget", 0, "`time` after which --search starts no more trials (default unlimited)")
	f.StringVar(&o.Table, "table", "", "`table` of embeddings: "+training.TableForms+" (default full)")
	f.Float64Var(&o.Sparsity, "sparsity", 0, "`portion` of the entries of the table that --table saves")
	f.IntVar(&o.WarmUp, "warm-up", training.DefaultWarmUp, "`number` of epochs until the thresholds of --table pep or cerp have grown to the largest initial value")
	o.trainingFlags.add(c)
	cli.Group(c, "Search", "search", "budget")
	cli.Group(c, "Files", "model", "dataset", "out", "force")
	cli.Group(c, "Model", "kind", "dim", "hidden", "batch-norm", "cross-layers", "experts", "rank", "structure", "initial", "table", "sparsity", "warm-up")
	cli.MarkRequired(c, "dataset", "out")
	cli.Needed(c, "kind", "dim", "hidden", "search", "budget")
	return c
}

// modelFlags are the flags that describe a new model.
var modelFlags = []string{"kind", "dim", "initial", "table", "hidden", "batch-norm", "cross-layers", "experts", "rank", "structure"}

func (o *trainOptions) run(c *cobra.Command, _ []string) error {
	if o.model != "" {
		o.Outputs.Inputs(checkpoint.Files(o.model)...)
	}
	if err := o.Check(); err != nil {
		return err
	}
	if err := o.checkSearch(c); err != nil {
		return err
	}
	if err := o.checkFlags(c); err != nil {
		return err
	}
	if o.model != "" {
		for _, name := range modelFlags {
			if c.Flags().Changed(name) {
				return fault.Usagef("--%s describes a new model: leave out --model, or --%s", name, name)
			}
		}
		t, err := o.Continued(o.model)
		if err != nil {
			return err
		}
		t.Budget = o.budget
		return o.trainingFlags.run(c, t)
	}
	if err := o.describe(c); err != nil {
		return err
	}
	t, err := o.Fresh(&o.architecture, o.norm, o.initial)
	if err != nil {
		return err
	}
	t.Budget = o.budget
	return o.trainingFlags.run(c, t)
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

// checkFlags refuses flags that have no effect with the table. Check must have passed before.
func (o *trainOptions) checkFlags(c *cobra.Command) error {
	m := o.Method()
	switch {
	case c.Flags().Changed("sparsity") && o.Sparsity == 0:
		return fault.Usagef("--sparsity 0 has no effect: expected a portion above 0 and below 1")
	case c.Flags().Changed("warm-up") && m != train.PEP && m != train.CERP:
		return fault.Usagef("--warm-up has no effect without --table %s or %s", train.PEP, train.CERP)
	}
	return nil
}

// describe completes the architecture of a new model.
func (o *trainOptions) describe(c *cobra.Command) error {
	a := &o.architecture
	for _, name := range modelFlags {
		if c.Flags().Changed(name) && !training.Has(a.Kind, name) {
			return fault.Usagef("--%s has no effect with --kind %s", name, a.Kind)
		}
	}
	training.Trim(a)
	if a.Kind == model.NeuMF && !c.Flags().Changed("hidden") {
		a.Hidden = training.NeuMFHidden
	}
	if !training.Has(a.Kind, "batch-norm") {
		o.norm = false
	}
	if a.Dim < 1 {
		return fault.Usagef("--dim %d: expected at least 1", a.Dim)
	}
	return nil
}
