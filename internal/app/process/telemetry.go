package process

import (
	"errors"
	"net/http"
	"time"

	"go.uber.org/zap"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/worker"
	"shaver/internal/ops/metrics"
)

// Telemetry serves the health and the metrics of this process. Without an address it
// does nothing, and its callbacks are nil.
type Telemetry struct {
	set    *metrics.Set
	server *metrics.Server
}

// Start begins to serve them on address, HOST:PORT, unless it is empty. All other requests go to page, unless
// that is nil. The caller must call Stop, even if Start fails.
func (m *Telemetry) Start(address string, page http.Handler, log *zap.Logger) (err error) {
	if address == "" {
		return nil
	}
	m.set = metrics.New()
	if m.server, err = metrics.ServeWith(address, m.set, page); err != nil {
		return err
	}
	if page != nil {
		log.Info("page", zap.String("url", "http://"+m.server.Addr()+"/"))
	} else {
		log.Info("metrics", zap.String("address", m.server.Addr()))
	}
	return nil
}

// Stop ends the server.
func (m *Telemetry) Stop() {
	if m.server != nil {
		m.server.Stop()
	}
}

// Busy says on /readyz what the process does before it can do its work.
func (m *Telemetry) Busy(with string) {
	if m.server != nil {
		m.server.SetReady(func() error { return errors.New(with) })
	}
}

// Connected makes the process ready whenever the connection is up.
func (m *Telemetry) Connected(b *bus.Bus) {
	if m.server != nil {
		m.server.SetReady(b.Ready)
	}
}

// OnBlob returns the callback of a bus that counts blobs.
func (m *Telemetry) OnBlob() func(sent bool, bytes int) {
	if m.set == nil {
		return nil
	}
	return m.set.Blob
}

// Work makes a worker count what it does.
func (m *Telemetry) Work(c *worker.Config) {
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

// Set returns the metrics, or nil without an address.
func (m *Telemetry) Set() *metrics.Set { return m.set }

// Register adds the metrics of a coordinator, so that they exist while it connects.
func (m *Telemetry) Register() {
	if m.set != nil {
		m.set.Lead()
	}
}
