package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/baseline"
	"shaver/internal/bus"
	"shaver/internal/checkpoint"
	"shaver/internal/cli"
	"shaver/internal/compact"
	"shaver/internal/coordinator"
	"shaver/internal/dataset"
	"shaver/internal/estimator"
	"shaver/internal/fault"
	"shaver/internal/launch"
	"shaver/internal/prepare"
	"shaver/internal/prune"
	"shaver/internal/scores"
)

type studyOptions struct {
	sweepFlags
	baseline, out string
	options       estimator.Options
	portions      []float64
	seeds         []uint64
}

func studyCommand() *cobra.Command {
	o := studyOptions{sweepFlags: sweepFlags{sweepInput: sweepInput{values: []string{string(compact.Float32)}, aggregates: []string{scores.Sum}, rank: prune.Abs}}}
	var seeds []uint
	c := &cobra.Command{
		Use:   "study",
		Short: "Find out how many rows the ranking needs",
		Long: `Score each of --portions of the train and val rows on a server inside this
process, and compare the results in a sweep. The scores are kept in --out. If a
study is interrupted, the same command reuses the jobs that finished.

With several --seeds, each job is repeated with each seed, and so with another
sample of the rows. The table and the picture then show the mean and the largest
deviation from it.

` + cli.ExitHelp,
		Example: `  shaver study --model model.pth --dataset data --out study
  shaver study --model model.pth --dataset data --portions 0.01,0.1,1 \
      --seeds 1,2,3 --picture study.svg --out study`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			for _, seed := range seeds {
				o.seeds = append(o.seeds, uint64(seed))
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	modelFlag(c, &o.model, "checkpoint `file`: .pth or safetensors")
	datasetFlag(c, &o.dataset, "dataset `folder`")
	f.StringVar(&o.out, "out", "", "`folder` for the scores")
	cli.Folder(c, "out")
	portionsFlag(c, &o.portions, "portions", []float64{.001, .01, .1, 1}, "`portions` of the rows to score, separated by commas")
	f.UintSliceVar(&seeds, "seeds", []uint{1}, "`seeds` of the jobs, separated by commas")
	f.Lookup("seeds").DefValue = "1"
	f.StringVar(&o.baseline, "baseline", baseline.Codebook, "value that replaces a dropped entry: "+strings.Join(baseline.Names(), " or "))
	cli.Choices(c, "baseline", baseline.Names()...)
	f.StringVar(&o.options.Estimator, "estimator", estimator.Multilinear, "`name` of the estimator; shaver score --help lists all")
	cli.Choices(c, "estimator", estimator.Names()...)
	o.add(c)
	cli.MarkRequired(c, "model", "dataset", "out")
	return c
}

func (o *studyOptions) run(c *cobra.Command) error {
	if err := o.check(); err != nil {
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
	if err := o.sweepable(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fault.Usagef("--out: %w", err)
	}
	for _, portion := range o.portions {
		for _, seed := range o.seeds {
			file := filepath.Join(o.out, fmt.Sprintf("%s-%s-%g-%d.arrow", o.options.Estimator, o.baseline, portion, seed))
			if err := o.score(c.Context(), file, portion, seed); err != nil {
				return err
			}
			o.scores = append(o.scores, file)
		}
	}
	return o.show(c)
}

// sweepable returns the error with which the sweep at the end would fail. It is called
// before any job runs.
func (o *studyOptions) sweepable() error {
	ck, err := checkpoint.Read(o.model)
	if err != nil {
		return err
	}
	m, err := ck.Model()
	if err != nil {
		return err
	}
	if _, err := openBench(o.dataset, o.split, m); err != nil {
		return err
	}
	_, err = o.validation(nil, m)
	return err
}

// score runs one job. If its scores exist already, it returns at once.
func (o *studyOptions) score(ctx context.Context, file string, portion float64, seed uint64) error {
	log, err := cli.Logger("text", false)
	if err != nil {
		return err
	}
	d, err := dataset.Open(o.dataset)
	if err != nil {
		return err
	}
	job := launch.Job{Config: coordinator.Config{
		Request: prepare.Request{
			Open: func() (*checkpoint.Checkpoint, error) { return checkpoint.Read(o.model) }, Dataset: d, Splits: []string{dataset.Train, dataset.Val},
			Sample: portion, Baseline: o.baseline, Options: o.options, Seed: seed,
		},
		Out: file, Queue: bus.DefaultQueue, Log: log,
	}}
	_, err = job.Run(ctx)
	return err
}
