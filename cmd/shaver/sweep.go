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
	"shaver/internal/app/sweeping"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

// sweepFlags are the flags of "sweep" that "study" has too.
type sweepFlags struct {
	sweeping.Input
	methods    []string
	values     []string // names of encodings
	sparsities []float64
	outputs    cli.Outputs
	output     cli.Output
}

type sweepOptions struct {
	sweepFlags
	bytes []int64
	out   string
}

func sweepCommand() *cobra.Command {
	o := sweepOptions{sweepFlags: sweepFlags{Input: sweeping.Input{Seed: 1}}}
	c := &cobra.Command{
		Use:     "sweep",
		Short:   "Compare pruning methods at several budgets",
		Long:    help.Text("sweep"),
		Example: help.Text("sweep.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE: cli.Run(func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("scores") && !c.Flags().Changed("models") {
				return fault.Usagef("%s needs --scores or --models", c.CommandPath())
			}
			given := c.Flags().Changed
			if !given("within") && (given("sparsities") || len(o.bytes) > 0) {
				o.Within = nil
			}
			o.Given = given("aggregate")
			if given("sparsities") && len(o.bytes) > 0 {
				return fault.Usagef("--sparsities and --bytes are both budgets: give only one")
			}
			if slices.Contains(o.values, sweep.AutoValues) && len(o.bytes) > 0 {
				return fault.Usagef("--values auto is measured at numbers of entries: expected --sparsities, not --bytes")
			}
			return o.run(c)
		}, o.output.Check),
	}
	f := c.Flags()
	flags.Model(c, &o.Model, "checkpoint `file` that was scored")
	flags.ModelOutput(c, &o.ModelOutput)
	f.StringSliceVar(&o.Scores, "scores", nil, "`files` with scores of the model, separated by commas; several are compared, also those of the model before its training (required without --models)")
	cli.Files(c, "scores", "arrow")
	f.StringSliceVar(&o.Models, "models", nil, "`files` of models to measure as they are, separated by commas (default none)")
	cli.Files(c, "models", cli.Checkpoints...)
	flags.Dataset(c, &o.Folders, "dataset `folder`")
	o.add(c, "a sweep of another model or dataset at --out, and files that shaver did not write")
	f.StringSliceVar(&o.values, "values", []string{string(compact.Float32)}, "`encodings` of the kept entries in the compact file to compare: "+strings.Join(sweepValues(), ", ")+", for bits that differ from row to row")
	f.Lookup("values").DefValue = string(compact.Float32)
	cli.Choices(c, "values", sweepValues()...)
	f.Int64SliceVar(&o.bytes, "bytes", nil, "`budgets` in bytes of the compact file, instead of --sparsities")
	f.Lookup("bytes").DefValue = "" // not "[]"
	f.StringSliceVar(&o.Aggregates, "aggregate", []string{scores.DefaultAggregate}, "`aggregates` of the scores to compare: "+scores.AggregateHelp()+"; or signed alone, the sum with its sign")
	f.Lookup("aggregate").DefValue = scores.DefaultAggregate
	cli.OneOf(c, "aggregate", append(scores.Aggregates(), mask.Signed)...)
	flags.Portions(c, &o.Within, "within", slices.Clone(sweep.Rungs), "`bounds` of AUC and LogLoss for which the smallest tables are found along the orders of --scores; with budgets, only if given")
	flags.Group(c, &o.Group)
	flags.Keep(c, &o.Keep)
	flags.Out(c, &o.out, "`file` for the result, .json (default none)", "json")
	cli.Group(c, "Files", "model", "model-output", "scores", "models", "dataset", "out", "force")
	cli.Group(c, "Budgets", "within", "sparsities", "bytes")
	cli.Group(c, "Methods", "methods", "aggregate", "protect", "field-minimum", "values")
	cli.Group(c, "Measurement", "split", "group", "calibrate")
	cli.Needed(c, "scores", "within", "sparsities", "methods", "group", "out")
	cli.MarkRequired(c, "model", "dataset")
	for name, now := range map[string]string{
		"snip": "--scores, which also takes scores of the model before its training", "picture": "--pictures of shaver report", "seed": "--seed of shaver study",
		"parameters": "--sparsities", "rank": "--aggregate signed", "select": "the answer below the table, which accounts for the number of orders", "tune": "shaver tune, and --models with its file",
	} {
		cli.Renamed(c, name, now)
	}
	return c
}

// add adds the flags to c. force is what --force replaces.
func (o *sweepFlags) add(c *cobra.Command, force string) {
	f := c.Flags()
	flags.Split(c, &o.Split)
	flags.Portions(c, &o.sparsities, "sparsities", sweeping.DefaultSparsities, "`portions` of the entries to drop")
	f.StringSliceVar(&o.methods, "methods", []string{sweep.Magnitude}, "`methods` to compare with: all, or some of "+strings.Join(methods(), ", "))
	f.Lookup("methods").DefValue = sweep.Magnitude
	cli.Choices(c, "methods", append([]string{"all"}, methods()...)...)
	f.BoolVar(&o.Calibrate, "calibrate", true, "also measure LogLoss with logits that are calibrated on the validation split")
	f.Lookup("calibrate").DefValue = "true if its rows were not scored"
	o.outputs.Flag(c, force)
	o.output.Flag(c)
}

// check checks the flags before anything is computed, and sets the rivals and the
// budgets that they name.
func (o *sweepFlags) check(c *cobra.Command) (err error) {
	o.Optional, o.Unnamed = !c.Flags().Changed("calibrate"), !c.Flags().Changed("sparsities")
	o.outputs.Inputs(checkpoint.Files(o.Model)...)
	o.outputs.Inputs(dataset.Files(o.Folders...)...)
	o.outputs.Inputs(o.Scores...)
	for _, file := range o.Models {
		o.outputs.Inputs(checkpoint.Files(file)...)
	}
	if o.Rivals, err = rivalsOf(o.methods); err != nil {
		return err
	}
	o.Budgets, err = sparsities(o.sparsities)
	return err
}

func (o *sweepOptions) run(c *cobra.Command) error {
	if err := o.check(c); err != nil {
		return err
	}
	if len(o.bytes) > 0 {
		o.Budgets = mask.Budgets(mask.Bytes, o.bytes...)
	}
	if c.Flags().Changed("out") {
		if err := o.outputs.Check("--out", o.out, cli.Unless(sweep.Written, "the result of a sweep"), ".json"); err != nil {
			return err
		}
	}
	if err := o.usage(); err != nil {
		return err
	}
	o.Rank = mask.Abs
	if slices.Equal(o.Aggregates, []string{mask.Signed}) {
		o.Aggregates, o.Rank = []string{scores.Sum}, mask.Signed
	}
	if o.out != "" {
		o.Accept = o.checkReplaced
	}
	d, err := o.Run(c.Context())
	if err != nil {
		return err
	}
	if o.out != "" {
		if err := atomicfile.Write(o.out, func(w io.Writer) error { return cli.WriteJSON(w, d) }); err != nil {
			return err
		}
	}
	return o.output.Print(c.OutOrStdout(), d, d.WriteTable)
}

// checkReplaced checks that the file at --out, if there is one, is the result of a sweep of the same
// model and dataset.
func (o *sweepOptions) checkReplaced(model, dataset string) error {
	return o.outputs.Check("--out", o.out, func(path string) string {
		switch d, err := sweep.Read(path); {
		case err != nil:
			return "is not the result of a sweep that this program reads"
		case d.Model != model:
			return fmt.Sprintf("is the sweep of another model, with the digest %.12s", d.Model)
		case d.Dataset != dataset:
			return fmt.Sprintf("is the sweep of another dataset, with the digest %.12s", d.Dataset)
		}
		return ""
	})
}

// usage returns wrong usage for flags of the sweep that contradict each other. It sets the encodings.
func (o *sweepOptions) usage() error {
	switch {
	case slices.Contains(o.Aggregates, mask.Signed) && len(o.Aggregates) > 1:
		return fault.Usagef("--aggregate signed is the only rank with a sign: expected no other aggregate")
	case len(o.Scores) == 0 && len(o.Models) == 0:
		return fault.Usagef("--scores is empty: expected at least one file, or --models")
	case sweep.CheckBounds(o.Within...) != nil:
		return fault.Usagef("--within %v", sweep.CheckBounds(o.Within...))
	case len(o.values) == 0:
		return fault.Usagef("--values is empty: expected some of %s", strings.Join(sweepValues(), ", "))
	case len(o.Rivals) == 0 && len(o.Aggregates) == 0 && len(o.Scores) < 2 && len(o.Models) == 0:
		return fault.Usagef("--methods and --aggregate are both empty: there is nothing to compare")
	}
	o.Values = nil
	for _, name := range o.values {
		v := compact.Encoding(name)
		switch {
		case name == sweep.AutoValues && o.Split == dataset.Val:
			return fault.Usagef("--values auto chooses the bits on the split %s: --split %s would measure the rows that it uses", dataset.Val, o.Split)
		case name == sweep.AutoValues:
			v = compact.Mixed
		case v.Size() == 0:
			return fault.Usagef("--values %q: expected some of %s", name, strings.Join(sweepValues(), ", "))
		}
		o.Values = append(o.Values, v)
	}
	return nil
}

// sweepValues returns the names of encodings that --values takes.
func sweepValues() []string { return append(compact.EncodingNames(), sweep.AutoValues) }

// sparsities returns budgets that drop portions of the entries.
func sparsities(portions []float64) ([]mask.Budget, error) {
	for _, t := range portions {
		if !(t >= 0 && t <= 1) {
			return nil, fault.Usagef("--sparsities: sparsity %v is outside [0, 1]", t)
		}
	}
	return mask.Budgets(mask.Sparsity, portions...), nil
}

// methods returns the names that --methods takes besides all.
func methods() []string { return append(sweep.Rivals(), sweep.SSEDS) }

// rivalsOf returns the methods that names stand for.
func rivalsOf(names []string) ([]string, error) {
	if len(names) == 1 && names[0] == "all" {
		return sweep.Rivals(), nil
	}
	all := methods()
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, fault.Usagef("--methods %q: expected all, or some of %s; other rankings, such as path, are files of shaver score for --scores", name, strings.Join(all, ", "))
		}
	}
	return names, nil
}
