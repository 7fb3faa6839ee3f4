// Package launch runs a job from this process. The server and the workers are in the
// process or in a cluster. The coordinator runs in the process, and a report of the job
// is written next to the scores.
package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"shaver/internal/app/cli"
	"shaver/internal/app/process"
	"shaver/internal/base/cputime"
	"shaver/internal/base/fault"
	"shaver/internal/jobs/audit"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/worker"
	"shaver/internal/num/kernel"
	"shaver/internal/ops/page"
)

// Job describes a scoring job and where it runs. It runs on the cluster at the address
// NATS or, if that is empty, on a server embedded in this process.
type Job struct {
	coordinator.Config
	cli.Connection
	Metrics string // address on which to serve health and metrics, HOST:PORT; "" = none
	Page    string // address on which to serve a page about the job as well, instead of Metrics; "" = none
	// AnyKernel lets Run choose the kernel. If a job that differs from this one only in its
	// kernel has scores at Out or progress, Run continues it. Otherwise Run measures which
	// kernel is fastest. Nothing else may compute in this process meanwhile. Without AnyKernel,
	// the kernel in use computes the job.
	AnyKernel bool
	// LogProgress writes the progress to Log and not to stderr.
	LogProgress bool
	Workers     int // workers in this process; 0 = one if the server is embedded, otherwise none
	// Store is the folder from which workers read the dataset in place, as dir:PATH
	// (worker.OpenStore); "" = its shards are sent.
	Store string
	// Outputs decides what Out and the files next to it may replace, and names the inputs.
	Outputs cli.Outputs
	// Full says why the job scores all rows although previous scores are given; "" = it
	// does not. It becomes part of the report.
	Full string
	// Once means that nobody will run the job again. Without NATS, the state of the job is
	// then deleted, however the job ends.
	Once bool
	// Publish is called when the scores and the report are written, before the state of the
	// job is deleted; nil = no call. A job with an audit does not call it.
	Publish func(ctx context.Context) error

	telemetry *process.Telemetry // nil until Serve is called
	stop      func()             // ends what Serve began
	page      *page.Local        // nil = no page
	settled   bool               // the kernel of a job with AnyKernel is known and in use
}

// Busy says in the health that is served what the job waits for. Serve must have succeeded.
func (j *Job) Busy(doing string) { j.telemetry.Busy(doing) }

// Serve begins to serve health, metrics and the page, if it did not before. stop ends that. Run calls it.
func (j *Job) Serve() (stop func(), err error) {
	if j.stop != nil {
		return j.stop, nil
	}
	j.telemetry = new(process.Telemetry)
	j.stop = j.telemetry.Stop
	if j.Page == "" {
		return j.stop, j.telemetry.Start(j.Metrics, nil, j.Log)
	}
	shown, err := j.openPage()
	if err != nil {
		return j.stop, err
	}
	j.stop = func() {
		shown.Close()
		j.telemetry.Stop()
	}
	return j.stop, j.telemetry.Start(j.Page, shown, j.Log)
}

// Run runs the job to its end. Next to the scores file it writes NAME.job.json, unless
// an earlier run wrote both. A cancelled job ends with bus.ErrCancelled. Run does not
// change j. The kernel in use is afterwards the same as before.
func (j *Job) Run(ctx context.Context) (report *JobReport, err error) {
	if j.AnyKernel {
		defer kernel.Use(kernel.Name())
	}
	if err := j.CheckOut(); err != nil {
		return nil, err
	}
	start, cpu := time.Now(), cputime.Process()
	r := &running{Job: *j, started: make(chan struct{})}
	defer func() { r.close(err) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer func() {
		if err != nil && r.server != nil && r.server.Err() != nil {
			report, err = nil, r.server.Err()
		}
	}()
	if err := r.connect(ctx, stop); err != nil {
		return nil, err
	}
	if r.Publish != nil && r.Audit == 0 {
		r.OnScores = func(ctx context.Context, outcome *coordinator.Outcome) (err error) {
			if r.written, err = r.report(outcome, func(report *JobReport) { report.finish(start, cpu, outcome) }); err != nil {
				return err
			}
			return r.Publish(ctx)
		}
	}
	outcome, err := r.compute(ctx)
	if err != nil {
		return nil, err
	}
	if r.written != nil {
		return r.written, nil
	}
	return r.report(outcome, func(report *JobReport) { report.finish(start, cpu, outcome) })
}

// running is the state of a job that runs.
type running struct {
	Job
	store  *worker.Store    // nil = shards are sent
	dial   dial             // connects to the job's server
	server *embedded.Server // the embedded server; nil = none
	end    func(err error)  // ends the embedded server, and is passed the job's error; nil = no embedded server
	bus    *bus.Bus         // the coordinator's connection
	models worker.Models    // models of the workers in this process

	// progress is that of the job that runs now. An audit runs several jobs in turn.
	progress atomic.Pointer[cli.Progress]
	merged   int64         // rows that were merged before the job in progress started here
	worthy   atomic.Bool   // shards of the job are merged, so its state is worth keeping
	started  chan struct{} // closed when the first job starts
	// jobs runs several jobs instead of the one of Config. c has the callbacks of Config.
	// nil = one job.
	jobs      func(ctx context.Context, c coordinator.Config) (*coordinator.Outcome, error)
	night     bool // the jobs are those of a window's days
	startOnce sync.Once
	written   *JobReport // the report, if it was written before the job's end
}

// dial connects to a server under a name.
type dial func(ctx context.Context, name string) (*bus.Bus, error)

// connect opens everything that the job needs, up to the coordinator's connection.
// If an embedded server fails, now or later, it calls stop.
func (r *running) connect(ctx context.Context, stop func()) (err error) {
	if err := r.openStore(); err != nil {
		return err
	}
	if _, err := r.Serve(); err != nil {
		return err
	}
	r.telemetry.Register()
	r.telemetry.Busy("connecting to NATS")
	r.OnBlob = r.telemetry.OnBlob()
	r.dial = func(ctx context.Context, name string) (*bus.Bus, error) {
		return r.Connect(ctx, cli.RoleCoordinator, name, r.Log)
	}
	if r.NATS == "" {
		if err := r.chooseKernel(ctx); err != nil {
			return err
		}
		if err := r.local(ctx, stop); err != nil {
			return err
		}
	} else {
		servers, from, err := r.Servers()
		if err != nil {
			return err
		}
		r.Log.Info("the job runs on a NATS server", zap.String("server", servers), zap.String("from", from))
	}
	name := "coordinator"
	if host, err := os.Hostname(); err == nil && r.NATS != "" {
		name += "@" + host
	}
	if r.bus, err = r.dial(ctx, name); err != nil {
		return err
	}
	r.Wait = 0 // from now on the job survives a restart of the server
	r.telemetry.Connected(r.bus)
	return r.chooseKernel(ctx) // that of a local job is settled already
}

// openStore opens the store, if there is one. The dataset must be in it.
func (r *running) openStore() (err error) {
	if r.Store == "" {
		return nil
	}
	if r.store, err = worker.OpenStore(r.Store); err != nil {
		return err
	}
	if _, err := r.store.Dataset(r.Dataset.Digest(), r.Dataset.DayDigests()); err != nil {
		return fault.Usagef("--store must contain --dataset or a copy: %w", err)
	}
	r.InPlace = true
	return nil
}

// close closes what connect opened, even if connect failed halfway. err is the job's
// error.
func (r *running) close(err error) {
	if r.bus != nil {
		r.bus.Close()
	}
	if r.end != nil {
		r.end(err)
	}
	if r.stop != nil {
		r.stop()
	}
	if r.store != nil {
		r.store.Close()
	}
}

// compute runs the coordinator, and the workers until the coordinator ends.
func (r *running) compute(ctx context.Context) (outcome *coordinator.Outcome, err error) {
	finished := errors.New("finished")
	group, ctx := errgroup.WithContext(ctx)
	workers := r.workers()
	for i := range workers {
		group.Go(func() error {
			return r.work(ctx, fmt.Sprintf("local-%d", i+1), max(1, runtime.GOMAXPROCS(0)/workers))
		})
	}
	group.Go(func() (err error) {
		if outcome, err = r.lead(ctx); err != nil {
			return err
		}
		return finished // ends the workers
	})
	err = group.Wait()
	if last := r.progress.Load(); last != nil {
		last.End()
	}
	if !errors.Is(err, finished) {
		return nil, err
	}
	return outcome, nil
}

// workers returns how many workers run in this process.
func (r *running) workers() int {
	if r.Workers == 0 && r.NATS == "" {
		return 1
	}
	return r.Workers
}

// work runs a worker until ctx ends.
func (r *running) work(ctx context.Context, name string, threads int) error {
	own, err := r.dial(ctx, name)
	if err != nil {
		return err
	}
	defer own.Close()
	config := worker.Config{
		Bus: own, Name: name, Threads: threads, Models: &r.models, Store: r.store, Log: r.Log,
		OnRows: func(n int) {
			select {
			case <-r.started:
				r.progress.Load().Add(int64(n))
			case <-ctx.Done(): // no job started here, so the rows belong to another job
			}
		},
	}
	if !own.Local() {
		config.Hold = worker.DefaultHold
	}
	r.telemetry.Work(&config)
	return worker.Run(ctx, nil, config)
}

// lead runs the coordinator of one job or of several.
func (r *running) lead(ctx context.Context) (*coordinator.Outcome, error) {
	c := r.Config
	c.OnStart, c.Program = r.start, cli.Program()
	c.OnMerged = func(int64) { r.worthy.Store(true) }
	if r.workers() == 0 {
		c.OnMerged = func(rows int64) { r.progress.Load().Set(rows - r.merged) }
		process.CollectOften()
	}
	measure(r.telemetry.Set(), &c)
	r.watch(&c)
	jobs := r.jobs
	if jobs == nil {
		jobs = r.one
	}
	return jobs(ctx, c)
}

// one runs the job of c, and its audit.
func (r *running) one(ctx context.Context, c coordinator.Config) (*coordinator.Outcome, error) {
	outcome, err := coordinator.Run(ctx, r.bus, c)
	if err == nil {
		err = audit.Run(ctx, r.bus, c, outcome)
	}
	return outcome, err
}

// largeHeap is the number of bytes in use from which on the memory of garbage matters more than the time to
// collect it. With a few megabytes in use, frequent collection takes a fifth of the time of a job.
const largeHeap = 128 << 20

// start shows the progress of a job that starts. Rows merged earlier count neither as
// work nor towards the speed.
func (r *running) start(spec job.Spec, plan job.Plan, merged int64) {
	var memory runtime.MemStats
	if runtime.ReadMemStats(&memory); memory.HeapAlloc >= largeHeap {
		process.CollectOften()
	}
	r.show(&spec, plan)
	r.Log.Info("scoring", zap.String("job", spec.ID()), zap.Int64("rows", plan.Rows), zap.Int64("merged", merged), zap.Int("shards", plan.Shards()), zap.String("kernel", spec.Kernel), zap.Int("protocol", job.Protocol))
	r.merged = merged
	r.worthy.Store(r.worthy.Load() || merged > 0)
	progress := cli.NewProgress
	if r.LogProgress {
		progress = func(what, unit string, total int64) *cli.Progress {
			return cli.LogProgress(r.Log, what, unit, total)
		}
	}
	if last := r.progress.Swap(progress("score", "rows", plan.Rows-merged)); last != nil {
		last.End()
	}
	r.startOnce.Do(func() { close(r.started) })
}

// report writes the report next to the scores and returns it. It calls measure to set
// the time that the run took. If an earlier run wrote the scores and its report exists,
// report returns that report and leaves the file as it is.
func (r *running) report(outcome *coordinator.Outcome, measure func(*JobReport)) (*JobReport, error) {
	report, err := newReport(outcome, r.Out)
	if err != nil {
		return nil, err
	}
	path := ReportPath(r.Out)
	if outcome.Existing {
		if former := report.former(path); former != nil {
			return former, nil
		}
	}
	measure(report)
	report.Full = r.Full
	return report, report.write(path)
}
