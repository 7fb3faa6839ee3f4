package audit_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"shaver/internal/jobs/audit"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare/preparetest"
	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/worker"
	"shaver/internal/value/estimator"
)

// bench is a server with a worker, and a multilinear job.
type bench struct {
	t      *testing.T
	bus    *bus.Bus
	config coordinator.Config
	rows   atomic.Int64 // rows that the worker has computed
}

func newBench(t *testing.T) *bench {
	t.Helper()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	connect := func(name string) *bus.Bus {
		b, err := bus.Connect(t.Context(), bus.Config{Server: server, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	request, _ := preparetest.Request(t)
	request.Options = estimator.Options{Estimator: estimator.Multilinear, Passes: 1}
	request.Options.SetDefaults()
	request.Audit = .5
	b := &bench{t: t, bus: connect("coordinator"), config: coordinator.Config{
		Request: request, Out: filepath.Join(t.TempDir(), "scores.arrow"), Log: zaptest.NewLogger(t),
		Queue: bus.Queue{Lease: 2 * time.Second, Window: 4096, Replicas: 1},
	}}
	own, working := connect("worker"), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(working)
		err := worker.Run(ctx, nil, worker.Config{Bus: own, Name: "w", Threads: 1, Models: new(worker.Models), Log: b.config.Log, OnRows: func(n int) { b.rows.Add(int64(n)) }})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the worker ended with %v", err)
		}
	}()
	t.Cleanup(func() { stop(); <-working })
	return b
}

// run runs the job and its audit and returns the scores file.
func (b *bench) run() []byte {
	b.t.Helper()
	outcome, err := coordinator.Run(b.t.Context(), b.bus, b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := audit.Run(b.t.Context(), b.bus, b.config, outcome); err != nil {
		b.t.Fatal(err)
	}
	if outcome.Scores.Audit == nil {
		b.t.Error("the outcome lacks the audit")
	}
	data, err := os.ReadFile(b.config.Out)
	if err != nil {
		b.t.Fatal(err)
	}
	if left, err := b.bus.Stored(b.t.Context()); err != nil || len(left) > 0 {
		b.t.Errorf("the server still holds %v, %v", left, err)
	}
	return data
}

// An audit is part of the scores' bytes, whatever it ran on. A job that was interrupted
// before its audit is audited when it runs again. A job that has its audit computes
// nothing.
func TestAudit(t *testing.T) {
	b := newBench(t)
	want := b.run()
	f, err := scores.Read(b.config.Out)
	if err != nil {
		t.Fatal(err)
	}
	a := f.Audit
	if a == nil || a.Rows != 150 || f.Rows != 300 || a.RelativeRMS == nil || *a.RelativeRMS <= 0 || len(a.Overlaps) != 5 {
		t.Fatalf("audit %+v of %d rows", a, f.Rows)
	}
	again := func(what string, rows int64) {
		t.Helper()
		b.rows.Store(0)
		if got := b.run(); !bytes.Equal(got, want) {
			t.Errorf("%s: the scores have other bytes", what)
		}
		if n := b.rows.Load(); n != rows {
			t.Errorf("%s: %d rows were computed, expected %d", what, n, rows)
		}
	}
	again("all is there", 0)
	f.Audit = nil
	if err := scores.Write(b.config.Out, f); err != nil {
		t.Fatal(err)
	}
	again("cut off before the audit", 2*150)
	if err := os.Remove(b.config.Out); err != nil {
		t.Fatal(err)
	}
	b.config.RowsPerShard = 7
	again("with other shards", 300+2*150)
}

// An audit takes its rows from the job's splits. Their number is the audit's portion of
// the scored rows.
func TestAuditOfSample(t *testing.T) {
	b := newBench(t)
	b.config.Splits, b.config.MaxRows = []string{"train"}, 100
	jobs := 0
	b.config.OnStart = func(spec job.Spec, plan job.Plan, _ int64) {
		if jobs++; jobs > 1 && (plan.Rows != 25 || !slices.Equal(spec.Splits, []string{"train"}) || spec.Audit != 0) {
			t.Errorf("a job of the audit computes %d rows of %v", plan.Rows, spec.Splits)
		}
	}
	b.run()
	f, err := scores.Read(b.config.Out)
	if err != nil {
		t.Fatal(err)
	}
	if jobs != 1+2*2 || f.Rows != 100 || f.Audit == nil || f.Audit.Rows != 50 {
		t.Errorf("%d jobs; audit %+v of %d rows", jobs, f.Audit, f.Rows)
	}
}

// A job without an audit is not changed.
func TestNoAudit(t *testing.T) {
	b := newBench(t)
	b.config.Audit = 0
	outcome, err := coordinator.Run(t.Context(), b.bus, b.config)
	if err != nil {
		t.Fatal(err)
	}
	b.rows.Store(0)
	if err := audit.Run(t.Context(), b.bus, b.config, outcome); err != nil || outcome.Scores.Audit != nil || b.rows.Load() != 0 {
		t.Errorf("audit %+v after %d rows, %v", outcome.Scores.Audit, b.rows.Load(), err)
	}
}
