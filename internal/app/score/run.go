package score

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"shaver/internal/app/cli"
	"shaver/internal/app/launch"
	"shaver/internal/app/places"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
)

// Options say which job the step score runs, and where.
type Options struct {
	JobOptions
	Job        launch.Job
	State      string        // folder that keeps the sums of each day of a window, or ""
	WaitInputs time.Duration // how long to wait for a missing model or dataset
}

// NewOptions returns options with defaults.
func NewOptions(d Defaults) *Options {
	o := &Options{Job: launch.Job{Config: coordinator.Config{Queue: bus.DefaultQueue, SaveEvery: 30 * time.Second, Log: cli.Log()}}}
	o.Job.Request.Note, o.Job.Wait = cli.NoteOnce, cli.AtTerminal
	o.setDefaults(&o.Job.Request, d)
	return o
}

// Check returns wrong usage for settings out of their range, or that exclude each other.
func (o *Options) Check() error {
	if s := o.Job.Sample; !(s > 0 && s <= 1) {
		return fault.Refuse("sample", s, "expected a number above 0, at most 1")
	}
	if o.State != "" {
		if err := o.checkPrevious(); err != nil {
			return err
		}
	}
	if p := o.Job.Verify; !(p >= 0 && p <= 1) {
		return fault.Refuse("verify", p, "expected a number from 0 to 1")
	}
	if o.Job.Workers < 0 {
		return fault.Refuse("workers", o.Job.Workers, "must not be negative")
	}
	if err := o.Job.Connection.Check(); err != nil {
		return err
	}
	if r := o.Job.Queue.Replicas; r != 1 && r != 3 {
		return fault.Refuse("replicas", r, "must be 1 or 3")
	} else if r > 1 && o.Job.NATS == "" {
		return fault.Usagef("--replicas 3 needs --nats")
	}
	if n := o.Job.Ranges; n < 0 || n > job.MaxRanges {
		return fault.Usagef("--ranges %d: must be from 0 to %d", n, job.MaxRanges)
	} else if n > 0 && o.Job.NATS == "" {
		return fault.Usagef("--ranges needs --nats")
	} else if n > 0 && (o.State != "" || o.Given.Has("state")) {
		return fault.Usagef("--ranges and --state exclude each other, because a state needs all sums in one process")
	}
	if o.WaitInputs < 0 {
		return fault.Refuse("wait-inputs", o.WaitInputs, "must not be negative")
	}
	if o.Job.SaveEvery <= 0 {
		return fault.Refuse("checkpoint-every", o.Job.SaveEvery, "must be above 0")
	}
	if o.Job.Queue.Lease < 100*time.Millisecond {
		return fault.Refuse("lease", o.Job.Queue.Lease, "must be at least 100ms")
	} else if o.Given.Has("lease") && o.Job.NATS == "" {
		return fault.Usagef("--lease needs --nats: workers in this process have no leases")
	}
	return nil
}

// serve begins to serve health, metrics and the page, if nothing serves them.
func (o *Options) serve() (stop func(), err error) {
	stop, err = o.Job.Serve()
	if err == nil {
		o.Job.Busy("waiting for inputs")
	}
	return stop, err
}

// Run runs the job. If its scores are incomplete or have not converged, it returns its report and cli.ErrIncomplete or
// cli.ErrUnconverged.
func (o *Options) Run(ctx context.Context) (*launch.JobReport, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	stop, err := o.serve()
	defer stop()
	if err != nil {
		return nil, err
	}
	o.Job.Outputs.Inputs(checkpoint.Files(o.Model)...)
	o.Job.Outputs.Inputs(dataset.Files(o.Dataset...)...)
	o.Job.Outputs.Inputs(o.previousFiles()...)
	o.Job.Outputs.Inputs(o.Job.Connection.Files()...)
	if err := o.awaitInputs(ctx); err != nil {
		return nil, err
	}
	o.Job.Busy("reading the model and the dataset")
	o.Job.AnyKernel = o.Kernel.Auto()
	o.Job.Publish, o.Job.Local = places.Written(ctx), places.Local(ctx)
	o.Job.Place = places.URL(ctx, o.Job.Out)
	run := func() (*launch.JobReport, error) { return o.Job.Run(ctx) }
	if o.Previous.state = o.State != "" || o.Given.Has("state"); o.Previous.state {
		if err := o.openState(); err != nil {
			return nil, err
		}
		run = func() (*launch.JobReport, error) {
			n := o.night()
			n.OnCommit, n.Publish = places.Committed(ctx), nil
			return n.Run(ctx)
		}
	}
	if err := o.Open(); err != nil {
		return nil, err
	}
	if o.Job.Full = o.Full; o.Full != "" {
		o.Job.Log.Info("scoring all rows", zap.String("because", o.Full))
	}
	o.Notices(o.Job.Log)
	report, err := run()
	if err != nil {
		return nil, err
	}
	if report.QuarantinedRows > 0 {
		return report, fmt.Errorf("%w: %d rows are missing", cli.ErrIncomplete, report.QuarantinedRows)
	}
	if s := report.Stopped; s != nil && !s.Converged {
		return report, fmt.Errorf("%w: %s", cli.ErrUnconverged, s.Text(o.Job.Until))
	}
	return report, nil
}

// awaitInputs waits for the inputs that are late.
func (o *Options) awaitInputs(ctx context.Context) error {
	if o.WaitInputs == 0 {
		return nil
	}
	inputs := []cli.Input{cli.FileInput(o.Model)}
	for _, dir := range o.Dataset {
		inputs = append(inputs, cli.FileInput(filepath.Join(dir, dataset.ManifestName)))
	}
	return cli.AwaitInputs(ctx, o.WaitInputs, o.Job.Log, inputs...)
}
