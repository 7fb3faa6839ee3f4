// Package work is the program that a cluster runs as worker.
package work

import (
	"context"
	_ "embed"
	"errors"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"shaver/internal/app/cli"
	"shaver/internal/app/process"
	"shaver/internal/base/cputime"
	"shaver/internal/base/fault"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/worker"
	"shaver/internal/num/kernel"
)

//go:embed help.txt
var help string

// options are the settings of Command.
type options struct {
	process.Options
	kernel    *cli.Kernel
	threads   int
	cache     string
	cacheSize int64
	hold      time.Duration
	store     string
	leave     time.Duration
}

// Command returns the program that a cluster runs as worker.
func Command(use string) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   use,
		Short: "Compute the tasks of shaver jobs",
		Long:  help + "\n" + cli.ExitHelp,
		Example: `  worker --nats nats://nats:4222
  worker --nats tls://nats:4222 --creds worker.creds --cache /var/cache/shaver \
      --metrics :9090 --log json`,
		Args: cli.Args(cobra.NoArgs),
		RunE: cli.Run(func(c *cobra.Command, _ []string) error { return o.run(c.Context()) }),
	}
	f := c.Flags()
	o.Flags(c, "`name` of this worker in results and logs")
	o.kernel = cli.KernelFlag(c, "`name` of the float32 kernel whose tasks to compute, such as avx2; auto computes those of all fast kernels of this machine")
	f.IntVar(&o.threads, "threads", runtime.GOMAXPROCS(0), "number of threads that compute a task")
	f.Lookup("threads").DefValue = "all cores"
	f.StringVar(&o.cache, "cache", "", "`folder` in which to keep models, which several workers may share (default none)")
	f.Int64Var(&o.cacheSize, "cache-size", 16, "largest size of --cache in `GiB`; the least recently used models are deleted")
	f.StringVar(&o.store, "store", "", "dir:PATH of a `folder` with datasets and models (.shaver), which are then not fetched; rows are read from there if the coordinator has --store too (default all are fetched)")
	f.DurationVar(&o.hold, "hold", worker.DefaultHold, "`time` for which the worker adds up its tasks before it stores their results, at most --lease of the coordinator; 0 = it stores each task, which causes more traffic but loses less if the worker dies")
	f.DurationVar(&o.leave, "leave-after", 0, "`time` without any job after which the worker ends with exit code 0, such as 10m; time without a server does not count")
	f.Lookup("leave-after").DefValue = "never"
	cli.Folder(c, "cache")
	cli.Group(c, "Worker", "name", "threads", "kernel", "cache", "cache-size", "store", "hold", "leave-after")
	cli.Group(c, cli.OutputFlags, "metrics")
	cli.Needed(c, "creds", "tlsca", "threads", "cache", "store", "metrics")
	return c
}

func (o *options) run(ctx context.Context) error {
	if o.threads < 1 {
		return fault.Usagef("--threads %d: must be at least 1", o.threads)
	}
	if o.hold < 0 {
		return fault.Usagef("--hold %v: must be at least 0", o.hold)
	}
	if o.leave < 0 {
		return fault.Usagef("--leave-after %v: must be at least 0, which means never", o.leave)
	}
	if o.cacheSize < 1 || o.cacheSize > 1<<20 {
		return fault.Usagef("--cache-size %d: must be from 1 to %d", o.cacheSize, 1<<20)
	}
	defer o.Telemetry.Stop()
	if err := o.Start("worker"); err != nil {
		return err
	}
	process.CollectOften()
	log := o.Log
	models := new(worker.Models)
	if o.cache != "" {
		models.Cache = &worker.Cache{Dir: o.cache, Bytes: o.cacheSize << 30, Log: log}
	}
	var store *worker.Store
	if o.store != "" {
		var err error
		if store, err = worker.OpenStore(o.store); err != nil {
			return err
		}
		defer store.Close()
		models.Store = store
	}
	b, err := o.Connect(ctx, cli.RoleWorker)
	if err != nil {
		return err
	}
	defer b.Close()
	kernels := []string{kernel.Name()}
	if o.kernel.Auto() {
		kernels = kernel.Candidates()
	}
	build := job.Build{Name: o.Name, Kernel: kernels[0], Protocol: job.Protocol, Program: cli.Program()}
	if len(kernels) > 1 {
		build.Kernels = strings.Join(kernels, ",")
	}
	if err := b.Announce(build); err != nil {
		return err
	}
	log.Info("worker ready", zap.String("name", o.Name), zap.Int("threads", o.threads), zap.String("kernel", build.AllKernels()), zap.Int("protocol", build.Protocol), zap.String("program", build.Program))
	// The first signal ends ctx, which only drains the worker. The second signal ends
	// the process.
	cli.Drain(ctx)
	working, leave := context.WithCancelCause(ctx) // ends when the worker is to end
	defer leave(nil)
	context.AfterFunc(working, b.SetLeaving)
	if o.leave > 0 {
		go func() { leave(idle(working, o.leave, b.HasJobs)) }()
	}
	config := worker.Config{Bus: b, Name: o.Name, Kernels: kernels, Threads: o.threads, Models: models, Store: store, CPU: cputime.Process, Hold: o.hold, Log: log}
	o.Telemetry.Work(&config)
	if err := worker.Run(context.WithoutCancel(ctx), working.Done(), config); err != nil {
		return err
	}
	switch why := context.Cause(working); {
	case errors.Is(why, errIdle):
		log.Info("ending, because there is no job", zap.Duration("since", o.leave))
		return nil
	case ctx.Err() == nil:
		return why
	}
	log.Info("drained")
	return cli.ErrDrained
}
