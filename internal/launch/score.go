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
	f.StringVar(&o.model, "model", "", "checkpoint: .pth or safetensors")
	f.StringVar(&o.dataset, "dataset", "", "dataset folder, made by shaver dataset import")
	f.StringVar(&o.request.Baseline, "baseline", baseline.Zero, "what a dropped entry reads: "+strings.Join(baseline.Names(), " or "))
	request.Options = estimator.Options{Estimator: estimator.Permutation, Passes: 1}
	for _, s := range request.Options.Settings() {
		switch v := s.Target.(type) {
		case *string:
			f.StringVar(v, s.Name, *v, s.Help)
		case *int:
			f.IntVar(v, s.Name, *v, s.Help)
		case *float64:
			f.Float64Var(v, s.Name, *v, s.Help)
		default:
			panic("launch: no flag for option " + s.Name)
		}
	}
	f.Uint64Var(&o.request.Seed, "seed", 1, "seed of everything random")
	f.StringSliceVar(&o.request.Splits, "splits", []string{dataset.Train, dataset.Val}, "splits to score")
	f.Float64Var(&o.request.Sample, "sample", 1, "portion of the rows to score, drawn without replacement")
	f.Int64Var(&o.request.MaxRows, "max-rows", 0, "in place of --sample: so many rows at most")
	f.StringVar(&o.until.Rule, "until", "", fmt.Sprintf("end when a rule is met: %s (largest standard error / range of the values below --bound) or %s (of the entries kept at --sparsity, by two halves of the work, above --bound)", job.Paper, job.Overlap))
	f.Float64Var(&o.until.Bound, "bound", 0, fmt.Sprintf("of --until (default %g for %s, %g for %s)", job.PaperBound, job.Paper, job.OverlapBound, job.Overlap))
	f.Float64Var(&o.until.Sparsity, "sparsity", 0, fmt.Sprintf("of --until %s: the portion of the entries that pruning drops (default %g)", job.Overlap, job.AtSparsity))
	f.DurationVar(&o.maxTime, "max-time", 0, "begin no round that would end later, by the rate so far (default no bound)")
	f.Float64Var(&o.request.Audit, "audit", 0, fmt.Sprintf("for %s: hold it against full walks, and %s end points against %s, on as many rows of the splits as this portion (0.01, say) of those scored, and write that into the scores", estimator.Multilinear, estimator.Plain, estimator.Balanced))
	f.Int64Var(&o.request.RowsPerShard, "rows-per-shard", 0, "rows a task (default about a minute of work; see shaver plan)")
	cli.KernelFlag(c)
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
		Short: "Run a job: the Shapley value of every entry of a model's embedding table",
		Long: `Run a job: compute the Shapley value of every entry of the embedding table of
--model on the rows of --dataset, and write them to --out. Beside it,
NAME.job.json tells what the run took.

The scores file of a job has the same bytes for any number of workers, any
--rows-per-shard, and any number of workers and coordinators that die. The same
command resumes a job that was cut off, from what its server holds; that of shaver
score without --nats is in the folder .NAME.job beside --out, until the job's end.
A job whose scores are at --out already returns at once. Of two coordinators of a
job the newer one leads, and the older one leaves.

A shard that cannot be computed is set aside, and the job goes on. At its end it
fails, and its state is kept: "shaver job quarantine" tells why and puts shards
back, and submitting the job again computes them; shaver score without --nats does
both when it is run again. Or --allow-quarantined finishes without them.

With --until or --max-time the job runs in rounds, each as much work as all
before together: portions of the rows, then further passes over all of them, up to
--passes. After a round it ends if the rule is met, or the next one would take too
long. If it ends otherwise, it has not converged: the scores are written and say
so, and the exit code is 3.

` + cli.ExitHelp,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			required := []string{"model", "dataset", "out"}
			if cluster {
				required = append(required, "nats")
			}
			if err := cli.Required(c, required...); err != nil {
				return err
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	o.JobFlags.Add(c, &o.job.Request)
	f.StringVar(&o.job.Out, "out", "", "scores file to write")
	without := " (default one inside this process)"
	if cluster {
		without = ""
	}
	o.job.Connection.Flags(c, without)
	cli.MetricsFlag(c, &o.job.Metrics)
	f.IntVar(&o.job.Queue.Replicas, "replicas", bus.DefaultQueue.Replicas, "servers of --nats that hold each message: 1, or 3 in a cluster; streams that have more keep them")
	f.StringVar(&o.job.Store, "store", "", "dir:PATH = workers have --dataset too, there or in a folder of it, with the same flag: shards do not travel (default they do)")
	f.IntVar(&o.job.Workers, "workers", 0, "workers in this process, which share its cores (default 1, with --nats 0)")
	f.DurationVar(&o.job.Queue.Lease, "lease", bus.DefaultQueue.Lease, "how long a worker may be silent before its shard goes to another")
	f.BoolVar(&o.job.AllowQuarantined, "allow-quarantined", false, "finish without the shards that cannot be computed, with exit code 4")
	f.DurationVar(&o.job.SaveEvery, "checkpoint-every", 30*time.Second, "time between checkpoints of the sums")
	f.StringVar(&o.log, "log", "text", "form of the log on stderr: text or json")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log more")
	o.output.Flag(c)
	return c
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
	}
	if err := cli.CheckOut(o.job.Out, o.model); err != nil {
		return err
	}
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
