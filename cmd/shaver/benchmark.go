package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/rivals"
	"shaver/internal/app/training"
	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
	"shaver/internal/prune/benchmark"
)

type benchmarkOptions struct {
	rivals.Options
	output cli.Output
}

func benchmarkCommand() *cobra.Command {
	var o benchmarkOptions
	c := &cobra.Command{
		Use:   "benchmark",
		Short: "Compare single-shot pruning with trained small tables",
		Long:  help.Text("benchmark"),
		Example: `  shaver benchmark --dataset data --out benchmark
  shaver benchmark --dataset data --kinds dcn-mix --search 10 --budget 30m \
      --out benchmark`,
		Args: cli.Args(cobra.NoArgs),
		RunE: cli.Run(o.run, o.output.Check, o.check),
	}
	f := c.Flags()
	flags.Dataset(c, &o.Folders, "dataset `folder`, with the splits train, val and test")
	flags.Folder(c, &o.Out, "out", "`folder` for the models and the results")
	f.StringSliceVar(&o.Kinds, "kinds", []string{string(model.DeepFM)}, "`kinds` of models, separated by commas; shaver train --help-all lists them")
	f.Lookup("kinds").DefValue = string(model.DeepFM)
	f.StringSliceVar(&o.Methods, "methods", []string{"all"}, "`methods`, separated by commas")
	f.Lookup("methods").DefValue = "all"
	flags.Portions(c, &o.Sparsities, "sparsities", []float64{.5, .8, .95}, "`portions` of the entries to drop, separated by commas")
	f.IntVar(&o.Seeds, "seeds", 3, "`number` of seeds, from 1 on, with which each model is trained")
	s := &o.Settings
	f.IntVar(&s.Search, "search", 10, "`number` of trials of each search; 0 = no search, but the settings of shaver train")
	f.DurationVar(&o.Budget, "budget", 0, "`time` after which a search starts no more trials (default unlimited)")
	f.IntVar(&s.Dim, "dim", 16, "`number` of columns of the embedding table")
	f.IntSliceVar(&s.Hidden, "hidden", training.DefaultHidden, "`widths` of the hidden layers, separated by commas")
	f.Lookup("hidden").DefValue = hiddenHelp
	f.BoolVar(&s.BatchNorm, "batch-norm", true, "put a BatchNorm after each hidden layer")
	f.IntVar(&s.CrossLayers, "cross-layers", 3, "`number` of cross layers of a dcn-mix or dcnv2")
	f.IntVar(&s.Experts, "experts", 4, "`number` of experts of a dcn-mix")
	f.IntVar(&s.Rank, "rank", 64, "`rank` of the experts of a dcn-mix")
	f.IntVar(&s.Epochs, "epochs", 15, "largest `number` of epochs of a training")
	f.IntVar(&s.Patience, "patience", 3, "`number` of epochs without a better one after which a training stops; 0 = never")
	f.IntVar(&s.Batch, "batch", 2048, "`number` of rows of a step")
	f.IntVar(&s.WarmUp, "warm-up", training.DefaultWarmUp, "`number` of epochs until the thresholds of pep and cerp have grown to the largest initial value")
	cli.KernelFlag(c, "`name` of the float32 kernel, such as avx2; others give slightly different weights; auto is the one with the widest vectors of this machine")
	o.Outputs.Flag(c, "the results of a benchmark with other settings in --out")
	o.output.Flag(c)
	cli.Group(c, "Files", "dataset", "out", "force")
	cli.Group(c, "Comparison", "kinds", "methods", "sparsities", "seeds", "search", "budget")
	cli.Group(c, "Training", "dim", "hidden", "batch-norm", "cross-layers", "experts", "rank", "epochs", "patience", "batch", "warm-up", "kernel")
	cli.MarkRequired(c, "dataset", "out")
	cli.Needed(c, "kinds", "methods", "sparsities", "search")
	return c
}

// check checks the flags.
func (o *benchmarkOptions) check() error {
	if len(o.Methods) == 1 && o.Methods[0] == "all" {
		o.Methods = benchmark.Methods()
	}
	for _, name := range o.Methods {
		if !slices.Contains(benchmark.Methods(), name) {
			return fault.Usagef("--methods %q: expected all, or some of %s", name, strings.Join(benchmark.Methods(), ", "))
		}
	}
	for _, t := range o.Sparsities {
		if !(t > 0 && t < 1) {
			return fault.Usagef("--sparsities: %v is outside (0, 1)", t)
		}
	}
	switch s := &o.Settings; {
	case len(o.Kinds) == 0 || len(o.Sparsities) == 0 || len(o.Methods) == 0:
		return fault.Usagef("--kinds, --methods and --sparsities need at least one value each")
	case o.Seeds < 1:
		return fault.Usagef("--seeds %d: expected at least 1", o.Seeds)
	case s.Search < 0 || o.Budget < 0:
		return fault.Usagef("--search %d and --budget %s: expected at least 0", s.Search, o.Budget)
	case s.Search == 0 && o.Budget > 0:
		return fault.Usagef("--budget has no effect without a search")
	case s.Epochs < 1 || s.Patience < 0:
		return fault.Usagef("--epochs %d and --patience %d: expected at least 1 epoch and a patience of at least 0", s.Epochs, s.Patience)
	case s.WarmUp < 0 || s.WarmUp >= s.Epochs:
		return fault.Usagef("--warm-up %d: expected at least 0 and fewer epochs than --epochs %d", s.WarmUp, s.Epochs)
	}
	o.Settings.Kernel = kernel.Name()
	if o.Budget > 0 {
		o.Settings.Budget = o.Budget.String()
	}
	slices.Sort(o.Sparsities)
	return nil
}

func (o *benchmarkOptions) run(c *cobra.Command, _ []string) error {
	o.Say = c.ErrOrStderr()
	d, err := o.Run(c.Context())
	if err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), d, d.WriteTable)
}
