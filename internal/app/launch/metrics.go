package launch

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/worker"
	"shaver/internal/ops/metrics"
)

// telemetry serves the health and the metrics of this process. Without an address it
// does nothing, and its callbacks are nil.
type telemetry struct {
	set    *metrics.Set
	server *metrics.Server
}

// start begins to serve them on address, HOST:PORT, unless it is empty. The caller must
// call stop, even if start fails.
func (m *telemetry) start(address string, log *zap.Logger) (err error) {
	if address == "" {
		return nil
	}
	m.set = metrics.New()
	if m.server, err = metrics.Serve(address, m.set); err != nil {
		return err
	}
	log.Info("metrics", zap.String("address", m.server.Addr()))
	return nil
}

func (m *telemetry) stop() {
	if m.server != nil {
		m.server.Stop()
	}
}

// busy says on /readyz what the process does before it can do its work.
func (m *telemetry) busy(with string) {
	if m.server != nil {
		m.server.SetReady(func() error { return errors.New(with) })
	}
}

// connected makes the process ready whenever the connection is up.
func (m *telemetry) connected(b *bus.Bus) {
	if m.server != nil {
		m.server.SetReady(b.Ready)
	}
}

func (m *telemetry) onBlob() func(sent bool, bytes int) {
	if m.set == nil {
		return nil
	}
	return m.set.Blob
}

// work makes a worker count what it does.
func (m *telemetry) work(c *worker.Config) {
	if m.set == nil {
		return
	}
	next := c.OnRows
	c.OnRows = func(n int) {
		m.set.Rows(n)
		if next != nil {
			next(n)
		}
	}
	c.OnTask = func(t *job.Task, outcome worker.Outcome, try int, took time.Duration) {
		walks := int64(0)
		if outcome == worker.Done {
			walks = t.Rows * int64(t.Spec.TaskOptions().Walks())
			if t.Spec.Previous != nil { // under both models
				walks *= 2
			}
		}
		m.set.Task(string(outcome), try, walks, took)
	}
}

// register adds the metrics of a coordinator, so that they exist while it connects.
func (m *telemetry) register() {
	if m.set != nil {
		m.set.Lead()
	}
}

// lead makes a coordinator report the progress of its job.
func (m *telemetry) lead(c *coordinator.Config) {
	if m.set == nil {
		return
	}
	c.OnLag = m.set.Merged
	c.OnProgress = func(p bus.Progress) {
		m.set.Job(metrics.Job{Rows: p.Rows, RowsTotal: p.RowsTotal, Shards: p.Shards, ShardsTotal: p.ShardsTotal,
			Open: p.Open, Quarantined: p.Quarantined, Epoch: p.Epoch, Checkpoint: p.Checkpoint, Stalled: p.State == bus.Stalled})
	}
}
