package launch

import (
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"shaver/internal/app/cli"
	"shaver/internal/base/cputime"
	"shaver/internal/base/fault"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/worker"
	"shaver/internal/num/kernel"
)

// workOptions are the settings of WorkCommand.
type workOptions struct {
	connection cli.Connection
	kernel     *cli.Kernel
	metrics    string
	name, log  string
	threads    int
	cache      string
	cacheSize  int64
	hold       time.Duration
	store      string
	verbose    bool
}

// WorkCommand returns the program that a cluster runs as worker.
func WorkCommand(use string) *cobra.Command {
	var o workOptions
	c := &cobra.Command{
		Use:   use,
		Short: "Compute the tasks of shaver jobs",
		Long:  help("worker") + "\n\n" + cli.ExitHelp,
		Example: `  worker --nats nats://nats:4222
  worker --nats tls://nats:4222 --creds worker.creds --cache /var/cache/shaver \
      --metrics :9090 --log json`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	o.connection.Flags(c, "", 0)
	cli.MetricsFlag(c, &o.metrics)
	o.kernel = cli.KernelFlag(c, "`name` of the float32 kernel whose tasks to compute, such as avx2; auto computes those of all fast kernels of this machine")
	f.StringVar(&o.name, "name", "", "`name` of this worker in results and logs (default the host and the process id)")
	f.IntVar(&o.threads, "threads", runtime.GOMAXPROCS(0), "number of threads that compute a task")
	f.Lookup("threads").DefValue = "all cores"
	f.StringVar(&o.cache, "cache", "", "`folder` in which to keep models, which several workers may share (default none)")
	f.Int64Var(&o.cacheSize, "cache-size", 16, "largest size of --cache in `GiB`; the least recently used models are deleted")
	f.StringVar(&o.store, "store", "", "dir:PATH of a `folder` with datasets; if the coordinator has --store too, rows are read from there (default the coordinator sends the rows)")
	f.DurationVar(&o.hold, "hold", worker.DefaultHold, "`time` for which the worker adds up its tasks before it stores their results, at most --lease of the coordinator; 0 = it stores each task, which causes more traffic but loses less if the worker dies")
	cli.LogFlags(c, &o.log, &o.verbose)
	cli.Folder(c, "cache")
	cli.Group(c, "Worker", "name", "threads", "kernel", "cache", "cache-size", "store", "hold")
	cli.Group(c, cli.OutputFlags, "metrics")
	cli.MarkRequired(c, "nats")
	return c
}

func (o *workOptions) run(ctx context.Context) error {
	if o.threads < 1 {
		return fault.Usagef("--threads %d: must be at least 1", o.threads)
	}
	if o.hold < 0 {
		return fault.Usagef("--hold %v: must be at least 0", o.hold)
	}
	if err := o.connection.Check(); err != nil {
		return err
	}
	if o.cacheSize < 1 || o.cacheSize > 1<<20 {
		return fault.Usagef("--cache-size %d: must be from 1 to %d", o.cacheSize, 1<<20)
	}
	log, err := cli.Logger(o.log, o.verbose)
	if err != nil {
		return err
	}
	models := new(worker.Models)
	if o.cache != "" {
		models.Cache = &worker.Cache{Dir: o.cache, Bytes: o.cacheSize << 30, Log: log}
	}
	var store *worker.Store
	if o.store != "" {
		if store, err = worker.OpenStore(o.store); err != nil {
			return err
		}
		defer store.Close()
	}
	if o.name == "" {
		o.name = processName("worker")
	}
	var telemetry telemetry
	defer telemetry.stop()
	if err := telemetry.start(o.metrics, log); err != nil {
		return err
	}
	o.connection.OnBlob = telemetry.onBlob()
	b, err := o.connection.Connect(ctx, cli.RoleWorker, o.name, log)
	switch {
	case err != nil && ctx.Err() != nil: // interrupted before it had a task
		return cli.ErrDrained
	case err != nil:
		return err
	}
	defer b.Close()
	telemetry.connected(b)
	kernels := []string{kernel.Name()}
	if o.kernel.Auto() {
		kernels = kernel.Candidates()
	}
	build := job.Build{Name: o.name, Kernel: kernels[0], Protocol: job.Protocol, Program: cli.Program()}
	if len(kernels) > 1 {
		build.Kernels = strings.Join(kernels, ",")
	}
	if err := b.Announce(build); err != nil {
		return err
	}
	log.Info("worker ready", zap.String("name", o.name), zap.Int("threads", o.threads), zap.String("kernel", build.AllKernels()), zap.Int("protocol", build.Protocol), zap.String("program", build.Program))
	// The first signal ends ctx, which only drains the worker. The second signal ends
	// the process.
	cli.Drain(ctx)
	config := worker.Config{Bus: b, Name: o.name, Kernels: kernels, Threads: o.threads, Models: models, Store: store, CPU: cputime.Process, Hold: o.hold, Log: log}
	telemetry.work(&config)
	err = worker.Run(context.WithoutCancel(ctx), ctx.Done(), config)
	if err == nil {
		log.Info("drained")
		return cli.ErrDrained
	}
	return err
}
