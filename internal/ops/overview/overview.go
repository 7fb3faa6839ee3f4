// Package overview keeps the metrics of all jobs of a NATS server up to date, and sizes the
// workers by the queue. It needs no coordinator and keeps nothing: whatever it exports follows
// from the last readings.
package overview

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/ops/autoscale"
	"shaver/internal/ops/metrics"
)

// States lists the states of a job that a server can hold, and "unknown", which stands for a
// state of a later version.
var States = []string{bus.Running, bus.Stalled, bus.Interrupted, bus.Failed, bus.Finished, bus.Cancelled, bus.Unreadable, "unknown"}

// lately is the age of a worker's last merged result up to which the worker counts.
const lately = 10 * time.Minute

// Config configures a Reader.
type Config struct {
	Every   time.Duration // time between two readings
	Metrics *metrics.Reader
	Scaler  *autoscale.Scaler // nil = nothing is scaled
	Kernel  string            // kernel whose tasks Scaler counts; "" = all
	Log     *zap.Logger
	// OnRead is called with each reading and its time, before the next one begins; nil = no call.
	OnRead func(o *bus.Overview, now time.Time)
}

// Reader reads what a server holds, again and again.
type Reader struct {
	Config
	stored map[string]checkpoint // of each job
	failed map[string]bool       // sources whose last reading failed
}

// checkpoint is the last checkpoint of a job.
type checkpoint struct {
	name string
	at   time.Time
}

// New returns a Reader.
func New(c Config) *Reader {
	return &Reader{Config: c, stored: map[string]checkpoint{}, failed: map[string]bool{}}
}

// Run reads until ctx ends, and returns its error. It returns another error only if the
// connection was closed.
func (r *Reader) Run(ctx context.Context, b *bus.Bus) error {
	return Every(ctx, r.Every, func() error {
		demand, err := r.jobs(ctx, b)
		if errors.Is(err, bus.ErrClosed) || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if r.Scaler != nil {
			r.scale(ctx, demand)
		}
		return nil
	})
}

// Every calls f at once and then after each interval, until ctx ends or f returns an error.
func Every(ctx context.Context, interval time.Duration, f func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := f(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Note counts a reading of a source, and logs the first failure in a row and the end of them.
func (r *Reader) Note(source string, err error) {
	switch {
	case err != nil:
		r.Metrics.Failed(source)
		if !r.failed[source] {
			r.Log.Warn("cannot read; the metrics keep their last values", zap.String("source", source), zap.Error(err))
		}
	case r.failed[source]:
		r.Log.Info("reading again", zap.String("source", source))
	}
	r.failed[source] = err != nil
}

// jobs reads the jobs once. The demand is nil if that fails.
func (r *Reader) jobs(ctx context.Context, b *bus.Bus) (*autoscale.Demand, error) {
	ctx, cancel := context.WithTimeout(ctx, max(r.Every, 10*time.Second))
	defer cancel()
	o, err := b.Overview(ctx)
	r.Note(metrics.FromNATS, err)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	r.Metrics.Cluster(r.cluster(o), now)
	if r.OnRead != nil {
		r.OnRead(o, now)
	}
	return r.demand(o), nil
}

// demand returns the number of tasks that the workers of Scaler can compute.
func (r *Reader) demand(o *bus.Overview) *autoscale.Demand {
	d := &autoscale.Demand{}
	for _, k := range o.Kernels {
		if k.Protocol == job.Protocol && (r.Kernel == "" || k.Kernel == r.Kernel) { // new workers have the protocol of this build
			d.Waiting += k.Waiting
			d.Held += k.Held
		}
	}
	return d
}

func (r *Reader) scale(ctx context.Context, d *autoscale.Demand) {
	now := time.Now()
	size, wanted, err := r.Scaler.Step(ctx, now, d)
	r.Note(metrics.FromKubernetes, err)
	if err == nil {
		r.Metrics.Scale(metrics.Scale{Wanted: wanted, Replicas: size.Replicas}, now)
	}
}

// cluster returns the metrics of an overview.
func (r *Reader) cluster(o *bus.Overview) *metrics.Cluster {
	c := &metrics.Cluster{}
	for _, k := range o.Kernels { // those of a kernel follow one another; its metrics are the sums over the protocols
		if n := len(c.Kernels); n == 0 || c.Kernels[n-1].Kernel != k.Kernel {
			c.Kernels = append(c.Kernels, metrics.ClusterKernel{Kernel: k.Kernel})
		}
		sum := &c.Kernels[len(c.Kernels)-1]
		sum.Waiting, sum.Held, sum.Idle = sum.Waiting+k.Waiting, sum.Held+k.Held, sum.Idle+k.Idle
	}
	stored := map[string]checkpoint{}
	for i := range o.Jobs {
		j := &o.Jobs[i]
		p := &j.Progress
		workers := 0
		for _, w := range p.Workers {
			if p.Updated.Sub(w.Seen) < lately {
				workers++
			}
		}
		// A coordinator that takes the job over writes the record again with the same
		// checkpoint, which does not become newer by that.
		last := r.stored[j.ID]
		if last.name != j.Checkpoint {
			last = checkpoint{j.Checkpoint, j.Led}
		}
		if j.Checkpoint == "" {
			last.at = time.Time{}
		}
		stored[j.ID] = last
		c.Jobs = append(c.Jobs, metrics.ClusterJob{
			ID: j.ID, State: p.State, Kernel: j.Spec.Kernel, Rows: p.Rows, RowsTotal: p.RowsTotal, Shards: p.Shards, ShardsTotal: p.ShardsTotal,
			Results: j.Results, Quarantined: j.Quarantined, Workers: workers, Rate: p.Rate, Epoch: j.Epoch,
			Submitted: j.Submitted, Progress: j.Progressed, Stored: last.at,
		})
	}
	r.stored = stored
	return c
}
