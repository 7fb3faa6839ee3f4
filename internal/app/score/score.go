// Package score has the commands that run a job: shaver score, shaver nightly score and
// coordinator. They differ in their flags. The package also has the flags of a job, which
// commands that plan a job share.
package score

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"shaver/internal/app/cli"
	"shaver/internal/app/launch"
	"shaver/internal/app/merge"
	"shaver/internal/app/places"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/value/estimator"
)

// scoreOptions are the settings of a command that runs a job.
type scoreOptions struct {
	JobFlags
	job     launch.Job
	state   string
	output  cli.Output
	log     string
	verbose bool
	quiet   bool

	waitInputs time.Duration
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
	c := new(scoreOptions).command(alone, &cobra.Command{
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
	return new(scoreOptions).command(nights, &cobra.Command{
		Use:     "score",
		Short:   "Score tonight's model from the scores of an earlier one",
		Long:    help("nightly-score", "previous"),
		Example: help("nightly-score.example"),
	})
}

// CoordinatorCommand returns the program that a cluster runs as coordinator. It runs the
// jobs of NightCommand on --nats.
func CoordinatorCommand() *cobra.Command {
	c := new(scoreOptions).command(cluster, &cobra.Command{
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
func (o *scoreOptions) command(form form, c *cobra.Command) *cobra.Command {
	o.job.Config = coordinator.Config{Queue: bus.DefaultQueue, SaveEvery: 30 * time.Second}
	c.Long += "\n\n" + cli.ExitHelp
	c.Args = cli.Args(cobra.NoArgs)
	f := c.Flags()
	place := "score"
	if form == nights {
		cli.Group(c, previousGroup) // the first one in the help
	}
	defaults := Recorded
	switch form {
	case alone:
		defaults = Advised
	case nights:
		defaults.Splits = Advised.Splits // the check of a night measures on others
	}
	o.job.Request.Note = cli.NoteOnce
	o.JobFlags.Add(c, &o.job.Request, defaults)
	if form != alone {
		place = "nightly score"
		o.AddPrevious(c)
		o.addState(c)
	}
	if form != nights {
		o.AddPlayers(c)
	}
	f.StringVar(&o.job.Out, "out", "", "scores `file` to write, .arrow")
	without, wait := " (default a server inside this process)", cli.AtTerminal
	if form == cluster {
		without, wait = "", 0
	}
	o.job.Connection.Flags(c, without, wait)
	f.StringVar(&o.job.Page, "page", "", "`address` HOST:PORT of a page that shows the job in a browser while it runs, and of /healthz, /readyz and /metrics; :PORT means 127.0.0.1:PORT, and port 0 is a free one (default none)")
	cli.Group(c, cli.OutputFlags, "page")
	if form == cluster {
		cli.MetricsFlag(c, &o.job.Metrics)
		cli.Group(c, cli.OutputFlags, "metrics")
	} else {
		cli.Renamed(c, "metrics", "--page, which also serves /healthz, /readyz and /metrics")
	}
	f.StringVar(&o.job.Store, "store", "", "`folder`, as dir:PATH, that holds the dataset; workers with the same flag read rows from it, so rows are not sent (default rows are sent)")
	f.IntVar(&o.job.Workers, "workers", 0, "number of workers in this process, which share its cores (default 1, or 0 with --nats)")
	f.BoolVar(&o.job.AllowQuarantined, "allow-quarantined", false, "finish without the shards that cannot be computed, with exit code 4")
	o.job.Outputs.Flag(c, "the scores or the progress of another job, or a file that is not scores")
	cli.Files(c, "out", "arrow")
	cli.LogFlags(c, &o.log, &o.verbose)
	f.BoolVar(&o.quiet, "quiet", false, "log only warnings and errors") // for commands that run this one
	_ = f.MarkHidden("quiet")                                           // fails only if there is no such flag
	o.output.Flag(c)
	cli.Group(c, "Job", "out", "force")
	cli.Group(c, "Workers", "workers", "store", "allow-quarantined")
	if form != alone {
		f.DurationVar(&o.waitInputs, "wait-inputs", 0, "how long to wait for a missing model or dataset, such as 30m or 6h (default no wait)")
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
func (o *scoreOptions) addQueue(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&o.job.Queue.Replicas, "replicas", bus.DefaultQueue.Replicas, "number of servers of --nats that store each message: 1, or 3 in a cluster; streams that already have more replicas keep them")
	f.DurationVar(&o.job.Queue.Lease, "lease", bus.DefaultQueue.Lease, "time after which the shard of a silent worker on --nats goes to another worker")
	f.StringVar(&o.job.RunID, "run", "", "`id` that all tries of this run have, such as the pods of a Kubernetes Job; if the job is cancelled, other tries of the run exit with code 6 (default none)")
	f.DurationVar(&o.job.SaveEvery, "checkpoint-every", o.job.SaveEvery, "time between two checkpoints of the sums")
	f.IntVar(&o.job.Ranges, "ranges", 0, "`number` of processes \"coordinator merge\" on --nats that keep the sums, each for a range of the features, if the table exceeds the memory of one process (default this process keeps them)")
	cli.Choices(c, "replicas", "1", "3")
	cli.Group(c, "Workers", "lease", "checkpoint-every")
	cli.Group(c, cli.NATSFlags, "replicas", "run", "ranges")
}

// serve begins to serve health, metrics and the page.
func (o *scoreOptions) serve() (stop func(), err error) {
	if o.job.Metrics != "" && o.job.Page != "" {
		return func() {}, fault.Usagef("--metrics and --page exclude each other, because --page also serves the metrics")
	}
	if o.job.Log, err = o.logger(); err != nil {
		return func() {}, err
	}
	stop, err = o.job.Serve()
	if err == nil {
		o.job.Busy("waiting for inputs")
	}
	return stop, err
}

func (o *scoreOptions) logger() (*zap.Logger, error) {
	log, err := cli.Logger(o.log, o.verbose)
	if err == nil && o.quiet {
		log = log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))
	}
	return log, err
}

func (o *scoreOptions) run(c *cobra.Command, _ []string) error {
	if o.job.Workers < 0 {
		return fault.Usagef("--workers %d: must not be negative", o.job.Workers)
	}
	if err := o.job.Connection.Check(); err != nil {
		return err
	}
	if r := o.job.Queue.Replicas; r != 1 && r != 3 {
		return fault.Usagef("--replicas %d: must be 1 or 3", r)
	} else if r > 1 && o.job.NATS == "" {
		return fault.Usagef("--replicas 3 needs --nats")
	}
	if n := o.job.Ranges; n < 0 || n > job.MaxRanges {
		return fault.Usagef("--ranges %d: must be from 0 to %d", n, job.MaxRanges)
	} else if n > 0 && o.job.NATS == "" {
		return fault.Usagef("--ranges needs --nats")
	} else if n > 0 && c.Flags().Changed("state") {
		return fault.Usagef("--ranges and --state exclude each other, because a state needs all sums in one process")
	}
	if o.waitInputs < 0 {
		return fault.Usagef("--wait-inputs %v: must not be negative", o.waitInputs)
	}
	if o.job.SaveEvery <= 0 {
		return fault.Usagef("--checkpoint-every %v: must be above 0", o.job.SaveEvery)
	}
	if o.job.Queue.Lease < 100*time.Millisecond {
		return fault.Usagef("--lease %v: must be at least 100ms", o.job.Queue.Lease)
	} else if c.Flags().Changed("lease") && o.job.NATS == "" {
		return fault.Usagef("--lease needs --nats: workers in this process have no leases")
	}
	o.job.Outputs.Inputs(checkpoint.Files(o.model)...)
	o.job.Outputs.Inputs(dataset.Files(o.dataset...)...)
	o.job.Outputs.Inputs(o.previous.files()...)
	o.job.Outputs.Inputs(o.job.Connection.Files()...)
	if o.log == cli.JSONLog {
		o.job.LogProgress = true
		o.output.OneLine()
	}
	if err := o.awaitInputs(c.Context()); err != nil {
		return err
	}
	o.job.Busy("reading the model and the dataset")
	o.job.AnyKernel = o.kernel.Auto()
	o.job.Publish, o.job.Local = places.Written(c.Context()), places.Local(c.Context())
	o.job.Place = places.URL(c.Context(), o.job.Out)
	run := func() (*launch.JobReport, error) { return o.job.Run(c.Context()) }
	if o.previous.state = c.Flags().Changed("state"); o.previous.state {
		if err := o.checkState(c); err != nil {
			return err
		}
		run = func() (*launch.JobReport, error) {
			n := o.night()
			n.OnCommit, n.Publish = places.Committed(c.Context()), nil
			return n.Run(c.Context())
		}
	}
	if err := o.Open(); err != nil {
		return err
	}
	if o.job.Full = o.Full; o.Full != "" {
		o.job.Log.Info("scoring all rows", zap.String("because", o.Full))
	}
	o.Notices(o.job.Log)
	report, err := run()
	if err != nil {
		return err
	}
	if err := o.output.Print(c.OutOrStdout(), report, func(w io.Writer) { report.Table(w, o.job.Out, o.job.Until) }); err != nil {
		return err
	}
	if report.QuarantinedRows > 0 {
		return fmt.Errorf("%w: %d rows are missing", cli.ErrIncomplete, report.QuarantinedRows)
	}
	if s := report.Stopped; s != nil && !s.Converged {
		return fmt.Errorf("%w: %s", cli.ErrUnconverged, s.Text(o.job.Until))
	}
	return nil
}

// awaitInputs waits for the inputs that are late.
func (o *scoreOptions) awaitInputs(ctx context.Context) error {
	if o.waitInputs == 0 {
		return nil
	}
	inputs := []cli.Input{cli.FileInput(o.model)}
	for _, dir := range o.dataset {
		inputs = append(inputs, cli.FileInput(filepath.Join(dir, dataset.ManifestName)))
	}
	return cli.AwaitInputs(ctx, o.waitInputs, o.job.Log, inputs...)
}
