package launch

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/baseline"
	"shaver/internal/bus"
	"shaver/internal/checkpoint"
	"shaver/internal/cli"
	"shaver/internal/coordinator"
	"shaver/internal/dataset"
	"shaver/internal/estimator"
	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/prepare"
)

// scoreOptions are the settings of ScoreCommand.
type scoreOptions struct {
	JobFlags
	job     Job
	output  cli.Output
	log     string
	verbose bool
}

// JobFlags are the flags that say which job to run. Commands that run or plan a job
// share them. They are bound to the request passed to Add.
type JobFlags struct {
	model, dataset string
	request        *prepare.Request
	until          job.Until // becomes the request's Until if one of its flags is given
	maxTime        time.Duration
}

// Add adds the flags to c, and binds them to request.
func (o *JobFlags) Add(c *cobra.Command, request *prepare.Request) {
	o.request = request
	f := c.Flags()
	f.StringVar(&o.model, "model", "", "checkpoint `file`: .pth or safetensors")
	f.StringVar(&o.dataset, "dataset", "", "dataset `folder`, made by shaver dataset import")
	f.StringVar(&o.request.Baseline, "baseline", baseline.Zero, "value that replaces a dropped entry: "+strings.Join(baseline.Names(), " or "))
	request.Options = estimator.Options{Estimator: estimator.Permutation, Passes: 1}
	var settings []string
	for _, s := range request.Options.Settings() {
		settings = append(settings, s.Name)
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
	f.Uint64Var(&o.request.Seed, "seed", 1, "seed of all random numbers")
	f.StringSliceVar(&o.request.Splits, "splits", []string{dataset.Train, dataset.Val}, "`splits` to score, separated by commas")
	f.Lookup("splits").DefValue = dataset.Train + "," + dataset.Val
	f.Float64Var(&o.request.Sample, "sample", 1, "`portion` of the rows to score, drawn without replacement")
	f.Int64Var(&o.request.MaxRows, "max-rows", 0, "largest number of `rows` to score, instead of --sample (default no limit)")
	f.StringVar(&o.until.Rule, "until", "", fmt.Sprintf("stop `rule`: %s or %s, which shaver score --help explains (default none)", job.Paper, job.Overlap))
	f.Float64Var(&o.until.Bound, "bound", 0, fmt.Sprintf("bound for --until (default %g for %s, %g for %s)", job.PaperBound, job.Paper, job.OverlapBound, job.Overlap))
	f.Float64Var(&o.until.Sparsity, "sparsity", 0, fmt.Sprintf("for --until %s: `portion` of the entries that pruning will drop (default %g)", job.Overlap, job.AtSparsity))
	f.DurationVar(&o.maxTime, "max-time", 0, "time limit, such as 90m or 2h; a round does not start if it would exceed the limit at the rate so far (default no limit)")
	f.Float64Var(&o.request.Audit, "audit", 0, fmt.Sprintf("for %s: compare the values with full walks on this `portion` of the scored rows, such as 0.01, and write the result into the scores (default no audit)", estimator.Multilinear))
	f.Int64Var(&o.request.RowsPerShard, "rows-per-shard", 0, "`rows` in a task (default about a minute of work; see shaver plan)")
	cli.Files(c, "model", cli.Checkpoints...)
	cli.Folder(c, "dataset")
	cli.Choices(c, "baseline", baseline.Names()...)
	cli.Choices(c, "splits", dataset.Train, dataset.Val, dataset.Test)
	cli.Choices(c, "until", job.Rules()...)
	cli.KernelFlag(c)
	cli.Group(c, "Job", "model", "dataset", "baseline", "splits", "sample", "max-rows", "seed")
	cli.Group(c, "Estimator", append(settings, "audit")...)
	cli.Group(c, "Stop rule", "until", "bound", "sparsity", "max-time")
	cli.Group(c, "Workers", "kernel", "rows-per-shard")
}

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
	r.Options.SetDefaults()
	if o.until.Seconds = o.maxTime.Seconds(); o.until != (job.Until{}) {
		o.until.SetDefaults()
		r.Until = &o.until
	}
	first, err := checkpoint.Read(o.model)
	if err != nil {
		return err
	}
	r.Open = func() (ck *checkpoint.Checkpoint, err error) {
		if ck, first = first, nil; ck == nil {
			return checkpoint.Read(o.model)
		}
		return ck, nil
	}
	r.Dataset, err = dataset.Open(o.dataset)
	return err
}

// ScoreCommand returns the command "shaver score" or, if cluster is true, the program
// that a cluster runs as coordinator. The two are the same, except that the program
// needs --nats.
func ScoreCommand(use string, cluster bool) *cobra.Command {
	o := scoreOptions{job: Job{Config: coordinator.Config{Queue: bus.DefaultQueue}}}
	c := &cobra.Command{
		Use:   use,
		Short: "Compute the Shapley value of every entry of the embedding table",
		Long: `Run a job: compute the Shapley value of every entry of the embedding table of
--model on the rows of --dataset, and write the values to --out. The report of
the job is written next to them, to NAME.job.json.

Estimators:
` + estimator.Help() + `

The scores file of a job always has the same bytes, whatever the number of
workers and --rows-per-shard are, and even if workers or coordinators die. The
same command resumes a job that was interrupted. Without --nats, the state of an
unfinished job is kept in the folder .NAME.job next to --out, which is
NAME.arrow. If the scores of the job are already at --out, the command returns
at once. It replaces the scores or the progress of another job, or a file that
is not scores, only with --force. If a second coordinator starts the same job,
it takes over and the first one exits.

If a shard cannot be computed, it is set aside and the job continues. At the end
the job fails and its state is kept. "shaver job quarantine" lists the reasons.
With --retry it puts the shards back, and running the job again computes them.
Without --nats, running the job again does both. With --allow-quarantined the
job finishes without these shards.

With --until or --max-time the job runs in rounds. Each round does as much work
as all earlier rounds together. The early rounds score portions of the rows.
Later rounds are further passes over all rows, up to --passes. The job ends
after a round if the rule is met:
  paper    the largest standard error is below --bound times the range of values
  overlap  two halves of the work agree on more than --bound of the entries to
           keep at --sparsity
Otherwise it ends when all work is done, or before a round that would exceed
--max-time. If the rule was not met or work was left, the scores are written and
marked as not converged, and the exit code is 3.

` + cli.ExitHelp,
		Example: scoreExample(cluster),
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	o.JobFlags.Add(c, &o.job.Request)
	f.StringVar(&o.job.Out, "out", "", "scores `file` to write, .arrow")
	without, wait := " (default a server inside this process)", cli.AtTerminal
	if cluster {
		without, wait = "", 0
	}
	o.job.Connection.Flags(c, without, wait)
	cli.MetricsFlag(c, &o.job.Metrics)
	f.IntVar(&o.job.Queue.Replicas, "replicas", bus.DefaultQueue.Replicas, "number of servers of --nats that store each message: 1, or 3 in a cluster; streams that already have more replicas keep them")
	f.StringVar(&o.job.Store, "store", "", "`folder`, as dir:PATH, that holds the dataset; workers with the same flag read rows from it, so rows are not sent (default rows are sent)")
	f.IntVar(&o.job.Workers, "workers", 0, "number of workers in this process, which share its cores (default 1, or 0 with --nats)")
	f.DurationVar(&o.job.Queue.Lease, "lease", bus.DefaultQueue.Lease, "time after which the shard of a silent worker on --nats goes to another worker")
	f.BoolVar(&o.job.AllowQuarantined, "allow-quarantined", false, "finish without the shards that cannot be computed, with exit code 4")
	f.DurationVar(&o.job.SaveEvery, "checkpoint-every", 30*time.Second, "time between two checkpoints of the sums")
	o.job.Outputs.Flag(c, "the scores or the progress of another job, or a file that is not scores")
	cli.Files(c, "out", "arrow")
	cli.Choices(c, "replicas", "1", "3")
	cli.LogFlags(c, &o.log, &o.verbose)
	o.output.Flag(c)
	cli.Group(c, "Job", "out", "force")
	cli.Group(c, "Workers", "workers", "store", "lease", "allow-quarantined", "checkpoint-every")
	cli.Group(c, cli.NATSFlags, "replicas")
	cli.Group(c, cli.OutputFlags, "metrics")
	required := []string{"model", "dataset", "out"}
	if cluster {
		required = append(required, "nats")
	}
	cli.MarkRequired(c, required...)
	return c
}

// scoreExample returns the examples of ScoreCommand.
func scoreExample(cluster bool) string {
	if cluster {
		return `  coordinator --nats nats://nats:4222 --model model.pth --dataset data \
      --baseline codebook --out scores.arrow
  coordinator --nats tls://nats:4222 --creds shaver.creds --replicas 3 \
      --model model.pth --dataset data --out scores.arrow --metrics :9090`
	}
	return `  shaver score --model model.pth --dataset data --baseline codebook \
      --out scores.arrow
  shaver score --model model.pth --dataset data --estimator multilinear \
      --audit 0.01 --out scores.arrow
  shaver score --model model.pth --dataset data --sample 0.1 --passes 4 \
      --until overlap --sparsity 0.9 --max-time 2h --out scores.arrow`
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
	if o.job.SaveEvery <= 0 {
		return fault.Usagef("--checkpoint-every %v: must be above 0", o.job.SaveEvery)
	}
	if o.job.Queue.Lease < 100*time.Millisecond {
		return fault.Usagef("--lease %v: must be at least 100ms", o.job.Queue.Lease)
	} else if c.Flags().Changed("lease") && o.job.NATS == "" {
		return fault.Usagef("--lease needs --nats: workers in this process have no leases")
	}
	o.job.Outputs.Inputs(checkpoint.Files(o.model)...)
	o.job.Outputs.Inputs(dataset.Files(o.dataset)...)
	o.job.Outputs.Inputs(o.job.Connection.Files()...)
	var err error
	if o.job.Log, err = cli.Logger(o.log, o.verbose); err != nil {
		return err
	}
	if err := o.Open(); err != nil {
		return err
	}
	report, err := o.job.Run(c.Context())
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
