package launch

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
	"shaver/internal/app/merge"
	"shaver/internal/app/places"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/num/loss"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
)

// scoreOptions are the settings of a command that runs a job.
type scoreOptions struct {
	JobFlags
	job     Job
	state   string
	output  cli.Output
	log     string
	verbose bool
	quiet   bool

	waitInputs time.Duration
}

// JobFlags are the flags that say which job to run. Commands that run or plan a job
// share them. They are bound to the request passed to Add.
type JobFlags struct {
	model    string
	ofModel  string   // output of the model, if it is an .onnx file with several
	dataset  []string // folder of the dataset, or those of a window's days
	request  *prepare.Request
	kernel   *cli.Kernel
	until    job.Until // becomes the request's Until if one of its flags is given
	maxTime  time.Duration
	sparsity float64 // belongs to until or to the estimator's options
	previous previousFlags
	// Full says why Open made the job score all rows although previous scores are given;
	// "" = it did not.
	Full string
}

// Add adds the flags to c, except those of previous scores, and binds them to request.
func (o *JobFlags) Add(c *cobra.Command, request *prepare.Request) {
	o.request, o.previous.command = request, c
	f := c.Flags()
	f.StringVar(&o.model, "model", "", "checkpoint `file`: .pth or safetensors")
	f.StringVar(&o.ofModel, "model-output", "", "`name` of the output of --model, if it is an .onnx file with several (default the only one)")
	f.StringSliceVar(&o.dataset, "dataset", nil, "dataset `folder`, made by shaver dataset import; or "+cli.DaysHelp)
	f.StringVar(&o.request.Baseline, "baseline", baseline.Zero, "value that replaces a dropped entry: "+strings.Join(baseline.Names(), " or "))
	request.Options = estimator.Options{Estimator: estimator.Permutation, Passes: 1}
	var settings []string
	for _, s := range request.Options.Settings() {
		settings = append(settings, s.Name)
		if s.Target == &request.Options.Sparsity { // Open decides which of the two it sets
			f.Float64Var(&o.sparsity, s.Name, 0, fmt.Sprintf("`portion` of the entries that pruning will drop: the largest one for %s (default %g), and for --until %s that at which halves are compared (default %g)", estimator.Path, estimator.DefaultSparsity, job.Overlap, job.AtSparsity))
			continue
		}
		switch v := s.Target.(type) {
		case *string:
			f.StringVar(v, s.Name, *v, s.Help)
			cli.Choices(c, s.Name, s.Choices...)
		case *int:
			f.IntVar(v, s.Name, *v, s.Help)
		case *float64:
			f.Float64Var(v, s.Name, *v, s.Help)
		default:
			panic("launch: no flag for option " + s.Name)
		}
	}
	f.StringVar(&o.request.Loss, "loss", "", "`loss` of a row: "+strings.Join(loss.Names(), " or ")+" (default squared if labels are numbers, else logistic)")
	cli.Choices(c, "loss", loss.Names()...)
	f.Uint64Var(&o.request.Seed, "seed", 1, "seed of all random numbers")
	f.StringSliceVar(&o.request.Splits, "splits", []string{dataset.Train, dataset.Val}, "`splits` to score, separated by commas")
	f.Lookup("splits").DefValue = dataset.Train + "," + dataset.Val
	f.Float64Var(&o.request.Sample, "sample", 1, "`portion` of the rows to score, drawn without replacement")
	f.Int64Var(&o.request.MaxRows, "max-rows", 0, "largest number of `rows`, instead of --sample (default no limit)")
	f.StringVar(&o.until.Rule, "until", "", fmt.Sprintf("stop `rule`: %s, %s or %s, which shaver score --help-all explains (default none)", job.Paper, job.Overlap, job.Error))
	f.Float64Var(&o.until.Bound, "bound", 0, fmt.Sprintf("bound for --until (default %g for %s, %g for %s, %g for %s)", job.PaperBound, job.Paper, job.OverlapBound, job.Overlap, job.ErrorBound, job.Error))
	f.DurationVar(&o.maxTime, "max-time", 0, "time limit, such as 90m or 2h; a round does not start if it would exceed the limit at the rate so far (default no limit)")
	f.Float64Var(&o.request.Audit, "audit", 0, fmt.Sprintf("for %s: compare the values with debiased ones on this `portion` of the scored rows, such as 0.1, and write the result into the scores (default no audit)", estimator.Multilinear))
	f.Int64Var(&o.request.RowsPerShard, "rows-per-shard", 0, "`rows` in a task (default about a minute of work; see shaver plan)")
	cli.Files(c, "model", cli.Checkpoints...)
	cli.Folder(c, "dataset")
	cli.Choices(c, "baseline", baseline.Names()...)
	cli.Choices(c, "splits", dataset.Train, dataset.Val, dataset.Test)
	cli.Choices(c, "until", job.Rules()...)
	o.kernel = cli.KernelFlag(c, "`name` of the float32 kernel that computes the job, such as avx2; auto keeps that of the job's progress, or measures which one is fastest")
	cli.Group(c, "Job", "model", "model-output", "dataset", "baseline", "loss", "splits", "sample", "max-rows", "seed")
	cli.Group(c, "Estimator", append(settings, "audit")...)
	cli.Group(c, "Stop rule", "until", "bound", "max-time")
	cli.Group(c, "Workers", "kernel", "rows-per-shard")
}

// AddPrevious adds the flags of previous scores to c. Add must be called before.
func (o *JobFlags) AddPrevious(c *cobra.Command) { o.previous.add(c) }

// Open checks the flags and opens the model and the dataset that they name. It sets
// both in the request.
func (o *JobFlags) Open() error {
	r := o.request
	if r.RowsPerShard < 0 {
		return fault.Usagef("--rows-per-shard %d: must not be negative", r.RowsPerShard)
	}
	if r.MaxRows < 0 {
		return fault.Usagef("--max-rows %d: must not be negative", r.MaxRows)
	}
	if r.MaxRows > 0 && r.Sample != 1 {
		return fault.Usagef("--max-rows and --sample exclude each other")
	}
	if err := o.setSparsity(); err != nil {
		return err
	}
	if o.until.Seconds = o.maxTime.Seconds(); o.until != (job.Until{}) {
		o.until.SetDefaults()
		r.Until = &o.until
	}
	var err error
	if o.Full, err = o.previous.open(r); err != nil {
		return err
	}
	r.Options.SetDefaults()
	first, err := checkpoint.ReadOutput(o.model, o.ofModel)
	if err != nil {
		return err
	}
	r.Open = func() (ck *checkpoint.Checkpoint, err error) {
		if ck, first = first, nil; ck == nil {
			return checkpoint.ReadOutput(o.model, o.ofModel)
		}
		return ck, nil
	}
	r.Dataset, err = openDataset(o.dataset, o.previous.state)
	return err
}

// setSparsity sets the sparsity of the stop rule, or that of the estimator.
func (o *JobFlags) setSparsity() error {
	options := &o.request.Options
	path := options.Traits().Ranks
	switch {
	case path && o.until.Rule != "":
		return fault.Usagef("--until needs an estimator of values, such as %s, not %s", estimator.Debiased, options.Estimator)
	case !o.previous.changed("sparsity"):
	case path:
		options.Sparsity = o.sparsity
	case o.until.Rule == job.Overlap:
		o.until.Sparsity = o.sparsity
	default:
		return fault.Usagef("--sparsity needs --until %s or --estimator %s", job.Overlap, estimator.Path)
	}
	return nil
}

// form is one of the commands that run a job.
type form int

const (
	alone   form = iota // shaver score: a job without previous scores
	nights              // shaver nightly score: also paired jobs and windows of days
	cluster             // coordinator: as nights, and it needs --nats
)

// ScoreCommand returns the command "shaver score", which runs a job without previous scores.
func ScoreCommand() *cobra.Command {
	c := new(scoreOptions).command(alone, &cobra.Command{
		Use:     "score",
		Short:   "Compute the Shapley value of every entry of the embedding table",
		Long:    scoreHelp(),
		Example: help("score.example"),
	})
	cli.Moved(c, "shaver nightly score", "full-every", "max-inherited-error", "previous", "previous-model", "state")
	cli.Moved(c, "coordinator, which otherwise takes the same flags", "checkpoint-every", "lease", "ranges", "replicas", "run")
	return c
}

// NightCommand returns the command "score" below "shaver nightly". It runs all jobs that
// ScoreCommand runs, and those that correct previous scores.
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
	run := func(c *cobra.Command, _ []string) error {
		if err := cli.Required(c); err != nil {
			return err
		}
		return o.run(c)
	}
	f := c.Flags()
	place := "score"
	if form == nights {
		cli.Group(c, previousGroup) // the first one in the help
	}
	o.JobFlags.Add(c, &o.job.Request)
	if form != alone {
		place = "nightly score"
		o.AddPrevious(c)
		o.addState(c)
	}
	f.StringVar(&o.job.Out, "out", "", "scores `file` to write, .arrow")
	without, wait := " (default a server inside this process)", cli.AtTerminal
	if form == cluster {
		without, wait = "", 0
	}
	o.job.Connection.Flags(c, without, wait)
	cli.MetricsFlag(c, &o.job.Metrics)
	f.StringVar(&o.job.Store, "store", "", "`folder`, as dir:PATH, that holds the dataset; workers with the same flag read rows from it, so rows are not sent (default rows are sent)")
	f.IntVar(&o.job.Workers, "workers", 0, "number of workers in this process, which share its cores (default 1, or 0 with --nats)")
	f.BoolVar(&o.job.AllowQuarantined, "allow-quarantined", false, "finish without the shards that cannot be computed, with exit code 4")
	f.DurationVar(&o.waitInputs, "wait-inputs", 0, "how long to wait for a missing model or dataset, such as 30m or 6h (default no wait)")
	o.job.Outputs.Flag(c, "the scores or the progress of another job, or a file that is not scores")
	cli.Files(c, "out", "arrow")
	cli.LogFlags(c, &o.log, &o.verbose)
	f.BoolVar(&o.quiet, "quiet", false, "log only warnings and errors") // for commands that run this one
	_ = f.MarkHidden("quiet")                                           // fails only if there is no such flag
	o.output.Flag(c)
	cli.Group(c, "Job", "out", "force", "wait-inputs")
	cli.Group(c, "Workers", "workers", "store", "allow-quarantined")
	if form != alone {
		o.addQueue(c)
	}
	cli.Group(c, cli.OutputFlags, "metrics")
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
	c.RunE = run
	places.Wrap(c, place)
	run = c.RunE
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

// serve begins to serve health and metrics.
func (o *scoreOptions) serve() (stop func(), err error) {
	if o.job.Log, err = o.logger(); err != nil {
		return func() {}, err
	}
	stop, err = o.job.serve()
	if err == nil {
		o.job.telemetry.Busy("waiting for inputs")
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

func (o *scoreOptions) run(c *cobra.Command) error {
	if err := o.output.Check(); err != nil {
		return err
	}
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
	o.job.telemetry.Busy("reading the model and the dataset")
	o.job.AnyKernel = o.kernel.Auto()
	o.job.Publish, o.job.Local = places.Written(c.Context()), places.Local(c.Context())
	o.job.Place = places.URL(c.Context(), o.job.Out)
	run := func() (*JobReport, error) { return o.job.Run(c.Context()) }
	if o.previous.state = c.Flags().Changed("state"); o.previous.state {
		if err := o.checkState(c); err != nil {
			return err
		}
		run = func() (*JobReport, error) {
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
	report, err := run()
	if err != nil {
		return err
	}
	if err := o.output.Print(c.OutOrStdout(), report, func(w io.Writer) { report.table(w, o.job.Out, o.job.Until) }); err != nil {
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
