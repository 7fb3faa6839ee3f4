package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/launch"
	"shaver/internal/app/sweeping"
	"shaver/internal/base/chart"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/modelfile"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/picture"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
)

type studyOptions struct {
	sweepFlags
	baseline, out string
	picture       string
	options       estimator.Options
	portions      []float64
	parts         []int // of a path; nil for other estimators
	seeds         []uint64
}

func studyCommand() *cobra.Command {
	o := studyOptions{sweepFlags: sweepFlags{Input: sweeping.Input{Values: []compact.Encoding{compact.Float32}, Aggregates: []string{scores.DefaultAggregate}, Rank: mask.Abs}}}
	var seeds []uint
	c := &cobra.Command{
		Use:     "study",
		Short:   "Find out how many rows the ranking needs",
		Long:    help.Text("study") + "\n\n" + cli.ExitHelp,
		Example: help.Text("study.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE: cli.Run(func(c *cobra.Command, _ []string) error {
			for _, seed := range seeds {
				o.seeds = append(o.seeds, uint64(seed))
			}
			return o.run(c)
		}, o.output.Check),
	}
	f := c.Flags()
	flags.Model(c, &o.Model, "checkpoint `file`: .pth, safetensors or .onnx")
	flags.Dataset(c, &o.Folders, "dataset `folder`")
	flags.Folder(c, &o.out, "out", "`folder` for the scores")
	flags.Portions(c, &o.portions, "portions", []float64{.001, .01, .1, 1}, "`portions` of the rows to score, separated by commas")
	f.IntSliceVar(&o.parts, "parts", nil, fmt.Sprintf("for %s: numbers of `parts` of the rows, separated by commas (default %d)", estimator.Path, estimator.DefaultParts))
	f.UintSliceVar(&seeds, "seeds", []uint{1}, "`seeds` of the jobs, separated by commas")
	f.Lookup("seeds").DefValue = "1"
	flags.Choice(c, &o.baseline, "baseline", baseline.Codebook, "value that replaces a dropped entry: "+strings.Join(baseline.Names(), " or "), baseline.Names()...)
	flags.Choice(c, &o.options.Estimator, "estimator", estimator.Multilinear, "`name` of the estimator; shaver score --help-all lists all", estimator.Names()...)
	flags.Seed(c, &o.Seed)
	flags.File(c, &o.picture, "picture", "`file` for a picture of AUC and LogLoss: "+chart.Extension+" (default none)", "svg")
	o.add(c, "the scores and the progress of other jobs in --out, files there that are not scores, and a file at --picture that is not a picture")
	cli.Group(c, "Files", "model", "dataset", "out", "picture", "force")
	cli.Group(c, "Jobs", "portions", "seeds", "baseline", "estimator", "parts")
	cli.Group(c, "Comparison", "split", "sparsities", "methods", "seed", "calibrate")
	cli.MarkRequired(c, "model", "dataset", "out")
	return c
}

func (o *studyOptions) run(c *cobra.Command) error {
	if err := o.check(c); err != nil {
		return err
	}
	if c.Flags().Changed("picture") {
		if err := o.outputs.Check("--picture", o.picture, cli.Unless(chart.Written, "a picture")); err != nil {
			return err
		}
	}
	if err := chart.Check(o.picture); err != nil {
		return err
	}
	if len(o.portions) == 0 || len(o.seeds) == 0 {
		return fault.Usagef("--portions and --seeds need at least one value each")
	}
	for _, portion := range o.portions {
		if !(portion > 0 && portion <= 1) {
			return fault.Usagef("--portions: %v is outside (0, 1]", portion)
		}
	}
	o.options.Passes = 1
	o.options.SetDefaults()
	if len(o.parts) == 0 {
		o.parts = []int{o.options.Parts}
	}
	for _, parts := range o.parts {
		options := o.options
		options.Parts = parts
		if err := options.Validate(1); err != nil {
			return fault.Usagef("--parts: %w", err)
		}
	}
	if err := o.sweepable(); err != nil {
		return err
	}
	if o.out == "" {
		return fault.Usagef(`--out "": expected the name of a folder`)
	}
	if err := os.MkdirAll(o.out, 0o777); err != nil {
		return fault.Usagef("--out: %w", err)
	}
	jobs, err := o.jobs()
	if err != nil {
		return err
	}
	for i := range jobs { // all of them, before the first one runs
		if err := jobs[i].CheckOut(); err != nil {
			return err
		}
		o.Scores = append(o.Scores, jobs[i].Out)
	}
	for i := range jobs {
		if _, err := jobs[i].Run(c.Context()); err != nil {
			return err
		}
	}
	d, err := o.Run(c.Context())
	if err != nil {
		return err
	}
	if err := o.output.Print(c.OutOrStdout(), d, d.WriteTable); err != nil || o.picture == "" {
		return err
	}
	return picture.Sweep(d).Write(o.picture)
}

// sweepable returns the error with which the sweep at the end would fail. It is called
// before any job runs.
func (o *studyOptions) sweepable() error {
	if slices.Contains(o.Rivals, sweep.SSEDS) {
		if err := sweep.CheckSSEDS(&o.options, o.baseline); err != nil {
			return fault.Usagef("--methods: %v", err)
		}
	}
	ck, err := checkpoint.Read(o.Model)
	if err != nil {
		return err
	}
	m, err := ck.Model()
	if err != nil {
		return err
	}
	return o.CheckSplits(m, ck.Known())
}

// jobs returns the jobs of the study. If the scores of a job exist, its Run returns at once.
func (o *studyOptions) jobs() (all []launch.Job, err error) {
	d, err := dataset.OpenAll(o.Folders)
	if err != nil {
		return nil, err
	}
	for _, portion := range o.portions {
		for k := range len(o.parts) * len(o.seeds) {
			options, seed := o.options, o.seeds[k%len(o.seeds)]
			options.Parts = o.parts[k/len(o.seeds)]
			name := o.options.Estimator
			if options.Parts != o.options.Parts {
				name += fmt.Sprint(options.Parts)
			}
			all = append(all, launch.Job{AnyKernel: true, Outputs: o.outputs, Config: coordinator.Config{
				Request: prepare.Request{
					Open: func() (modelfile.Source, error) { return checkpoint.Read(o.Model) }, Dataset: d, Splits: []string{dataset.Train, dataset.Val},
					Sample: portion, Baseline: o.baseline, Options: options, Seed: seed,
				},
				Out: filepath.Join(o.out, fmt.Sprintf("%s-%s-%g-%d.arrow", name, o.baseline, portion, seed)), Queue: bus.DefaultQueue, Log: cli.Log(),
			}})
		}
	}
	return all, nil
}
