package launch

import (
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"shaver/internal/bus"
	"shaver/internal/coordinator"
	"shaver/internal/job"
	"shaver/internal/metrics"
	"shaver/internal/shapley"
	"shaver/internal/worker"
)

// Metrics is the port of a process for health and metrics. Without an address
// it does nothing, and the callbacks that it gives are nil.
type Metrics struct {
	Address string
	set     *metrics.Set
	server  *metrics.Server
}

// Flag adds the flag to c.
func (m *Metrics) Flag(c *cobra.Command) {
	c.Flags().StringVar(&m.Address, "metrics", "", "HOST:PORT to answer /healthz, /readyz and /metrics on; :PORT is of 127.0.0.1 (default none)")
}

// start begins to answer; call stop afterwards, also if there is nothing to stop.
func (m *Metrics) start(log *zap.Logger) (err error) {
	if m.Address == "" {
		return nil
	}
	m.set = metrics.New()
	if m.server, err = metrics.Serve(m.Address, m.set); err != nil {
		return err
	}
	log.Info("metrics", zap.String("address", m.server.Addr()))
	return nil
}

func (m *Metrics) stop() {
	if m.server != nil {
		m.server.Stop()
	}
}

// connected makes the process as ready as the connection.
func (m *Metrics) connected(b *bus.Bus) {
	if m.server != nil {
		m.server.SetReady(b.Ready)
	}
}

func (m *Metrics) onBlob() func(sent bool, bytes int) {
	if m.set == nil {
		return nil
	}
	return m.set.Blob
}

// work has a worker tell what it does.
func (m *Metrics) work(c *worker.Config) {
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
			options := shapley.Options{Estimator: t.Spec.Estimator, Passes: t.Spec.TaskPasses()}
			walks = t.Rows * int64(options.Walks())
		}
		m.set.Task(string(outcome), try, walks, took)
	}
}

// lead has a coordinator tell how its job is doing.
func (m *Metrics) lead(c *coordinator.Config) {
	if m.set == nil {
		return
	}
	m.set.Lead()
	c.OnLag = m.set.Merged
	c.OnProgress = func(p bus.Progress) {
		m.set.Job(metrics.Job{Rows: p.Rows, RowsTotal: p.RowsTotal, Shards: p.Shards, ShardsTotal: p.ShardsTotal,
			Open: p.Open, Quarantined: p.Quarantined, Epoch: p.Epoch, Checkpoint: p.Checkpoint})
	}
}
