// Package score has the commands that run a job: shaver score, shaver nightly score and
// coordinator. They differ in their flags. The package also has the flags of a job, which
// commands that plan a job share.
package score

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/merge"
	"shaver/internal/app/places"
	"shaver/internal/base/fault"
	"shaver/internal/jobs/bus"
	"shaver/internal/value/estimator"
)

// scoreCommand is a command that runs a job.
type scoreCommand struct {
	*Options
	output  cli.Output
	log     string
	verbose bool
}

// form is one of the commands that run a job.
type form int

const (
	alone   form = iota // shaver score: a job without previous scores
	nights              // shaver nightly score: also paired jobs and windows of days
	cluster             // coordinator: as nights, and it needs --nats
)

// Command returns the command "shaver score", which runs a job without previous scores.
func Command() *cobra.Command {
	c := new(scoreCommand).command(alone, &cobra.Command{
		Use:     "score",
		Short:   "Find the order in which to drop entries, or Shapley values",
		Long:    scoreHelp(),
		Example: help("score.example"),
	})
	cli.Moved(c, "shaver nightly score", "full-every", "max-inherited-error", "previous", "previous-model", "state")
	cli.Moved(c, "coordinator, which otherwise takes the same flags", "checkpoint-every", "lease", "ranges", "replicas", "run", "wait-inputs")
	return c
}

// NightCommand returns the command "score" below "shaver nightly". It runs all jobs that
// Command runs, and those that correct previous scores.
func NightCommand() *cobra.Command {
	return new(scoreCommand).command(nights, &cobra.Command{
		Use:     "score",
		Short:   "Score tonight's model from the scores of an earlier one",
		Long:    help("nightly-score", "previous"),
		Example: help("nightly-score.example"),
	})
}

// CoordinatorCommand returns the program that a cluster runs as coordinator. It runs the
// jobs of NightCommand on --nats.
func CoordinatorCommand() *cobra.Command {
	c := new(scoreCommand).command(cluster, &cobra.Command{
		Use:     "coordinator",
		Short:   "Compute the Shapley value of every entry of the embedding table",
		Long:    scoreHelp() + "\n\n" + help("previous"),
		Example: help("coordinator.example"),
	})
	c.AddCommand(merge.Command())
	return c
}

// scoreHelp returns the text about jobs without previous scores.
func scoreHelp() string { return strings.Replace(help("score"), "ESTIMATORS", estimator.Help(), 1) }

// command completes c, which has its texts, to a command of the given form.
func (o *scoreCommand) command(form form, c *cobra.Command) *cobra.Command {
	c.Long += "\n\n" + cli.ExitHelp
	c.Args = cli.Args(cobra.NoArgs)
	f := c.Flags()
	place := "score"
	if form == nights {
		cli.Group(c, previousGroup) // the first one in the help
	}
	defaults := [...]Defaults{alone: Advised, nights: Nightly, cluster: Recorded}[form]
	o.Options = NewOptions(defaults)
	o.Add(c, &o.Job.Request, defaults)
	if form != alone {
		place = "nightly score"
		o.AddPrevious(c)
		o.addState(c)
	}
	if form != nights {
		o.AddPlayers(c)
	}
	f.StringVar(&o.Job.Out, "out", "", "scores `file` to write, .arrow")
	without, wait := " (default a server inside this process)", cli.AtTerminal
	if form == cluster {
		without, wait = "", 0
	}
	o.Job.Connection.Flags(c, without, wait)
	f.StringVar(&o.Job.Page, "page", "", "`address` HOST:PORT of a page that shows the job in a browser while it runs, and of /healthz, /readyz and /metrics; :PORT means 127.0.0.1:PORT, and port 0 is a free one (default none)")
	cli.Group(c, cli.OutputFlags, "page")
	if form == cluster {
		cli.MetricsFlag(c, &o.Job.Metrics)
		cli.Group(c, cli.OutputFlags, "metrics")
	} else {
		cli.Renamed(c, "metrics", "--page, which also serves /healthz, /readyz and /metrics")
	}
	f.StringVar(&o.Job.Store, "store", "", "`folder`, as dir:PATH, that holds the dataset; workers with the same flag read rows from it, so rows are not sent (default rows are sent)")
	f.IntVar(&o.Job.Workers, "workers", 0, "number of workers in this process, which share its cores (default 1, or 0 with --nats)")
	f.Float64Var(&o.Job.Verify, "verify", 0, "`portion` of the shards that a second worker computes again, from 0 to 1; a worker whose results differ from those of two others gets no more shards, and what it computed is computed again; workers must have different names")
	f.BoolVar(&o.Job.AllowQuarantined, "allow-quarantined", false, "finish without the shards that cannot be computed, with exit code 4")
	o.Job.Outputs.Flag(c, "the scores or the progress of another job, or a file that is not scores")
	cli.Files(c, "out", "arrow")
	cli.LogFlags(c, &o.log, &o.verbose)
	o.output.Flag(c)
	cli.Group(c, "Job", "out", "force")
	cli.Group(c, "Workers", "workers", "store", "verify", "allow-quarantined")
	if form != alone {
		f.DurationVar(&o.WaitInputs, "wait-inputs", 0, "how long to wait for a missing model or dataset, such as 30m or 6h (default no wait)")
		cli.Group(c, "Job", "wait-inputs")
		o.addQueue(c)
	}
	required := []string{"model", "dataset", "out"}
	if form == cluster {
		required = append(required, "nats")
	}
	cli.MarkRequired(c, required...)
	needed := []string{"estimator", "baseline"}
	switch form {
	case alone:
		needed = append(needed, "nats")
	case nights:
		needed = []string{"previous", "previous-model", "state", "full-every"}
	}
	cli.Needed(c, needed...)
	c.RunE = cli.Run(o.run, o.output.Check)
	places.Wrap(c, place)
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		// The port is open while slow inputs are copied and awaited, so that nobody takes the
		// process for dead.
		stop, err := o.serve()
		defer stop()
		if err != nil {
			return err
		}
		return run(c, args)
	}
	return c
}

// addQueue adds the flags that decide how a server keeps the job, for which the defaults
// suit a job that a person runs.
func (o *scoreCommand) addQueue(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&o.Job.Queue.Replicas, "replicas", bus.DefaultQueue.Replicas, "number of servers of --nats that store each message: 1, or 3 in a cluster; streams that already have more replicas keep them")
	f.DurationVar(&o.Job.Queue.Lease, "lease", bus.DefaultQueue.Lease, "time after which the shard of a silent worker on --nats goes to another worker")
	f.StringVar(&o.Job.RunID, "run", "", "`id` that all tries of this run have, such as the pods of a Kubernetes Job; if the job is cancelled, other tries of the run exit with code 6 (default none)")
	f.DurationVar(&o.Job.SaveEvery, "checkpoint-every", o.Job.SaveEvery, "time between two checkpoints of the sums")
	f.IntVar(&o.Job.Ranges, "ranges", 0, "`number` of processes \"coordinator merge\" on --nats that keep the sums, each for a range of the features, if the table exceeds the memory of one process (default this process keeps them)")
	cli.Choices(c, "replicas", "1", "3")
	cli.Group(c, "Workers", "lease", "checkpoint-every")
	cli.Group(c, cli.NATSFlags, "replicas", "run", "ranges")
}

// serve begins to serve health, metrics and the page.
func (o *scoreCommand) serve() (stop func(), err error) {
	if o.Job.Metrics != "" && o.Job.Page != "" {
		return func() {}, fault.Usagef("--metrics and --page exclude each other, because --page also serves the metrics")
	}
	if o.Job.Log, err = cli.Logger(o.log, o.verbose); err != nil {
		return func() {}, err
	}
	return o.Options.serve()
}

func (o *scoreCommand) run(c *cobra.Command, _ []string) error {
	if o.log == cli.JSONLog {
		o.Job.LogProgress = true
		o.output.OneLine()
	}
	report, err := o.Run(c.Context())
	if report == nil {
		return err
	}
	if printing := o.output.Print(c.OutOrStdout(), report, func(w io.Writer) { report.Table(w, o.Job.Out, o.Job.Until) }); printing != nil {
		return printing
	}
	return err
}
