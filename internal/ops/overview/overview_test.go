package overview

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
	"shaver/internal/ops/autoscale"
	"shaver/internal/ops/metrics"
)

func reader() (*Reader, *observer.ObservedLogs) {
	core, logs := observer.New(zap.InfoLevel)
	return New(Config{Every: time.Second, Metrics: metrics.New().Read(States, []string{metrics.FromNATS}), Log: zap.New(core)}), logs
}

// A coordinator that takes a job over does not make its checkpoint newer. Only workers whose
// results came lately count.
func TestCluster(t *testing.T) {
	r, _ := reader()
	at := func(minute int) time.Time { return time.Unix(1000, 0).Add(time.Duration(minute) * time.Minute) }
	j := bus.JobOverview{Submitted: at(0)}
	j.ID = "a"
	j.Progress = bus.Progress{State: bus.Running, Updated: at(20), Workers: []bus.Worker{{Seen: at(5)}, {Seen: at(15)}, {Seen: at(20)}}}
	for i, step := range []struct {
		led        int
		checkpoint string
		want       time.Time
	}{
		{1, "", time.Time{}},
		{2, "first", at(2)},
		{9, "first", at(2)}, // taken over
		{10, "second", at(10)},
		{11, "", time.Time{}}, // started again
		{12, "first", at(12)},
	} {
		j.Led, j.Checkpoint = at(step.led), step.checkpoint
		c := r.cluster(&bus.Overview{Jobs: []bus.JobOverview{j}})
		if got := c.Jobs[0].Stored; !got.Equal(step.want) {
			t.Errorf("step %d: the checkpoint is of %v, expected %v", i, got, step.want)
		}
		if c.Jobs[0].Workers != 2 {
			t.Errorf("%d workers, expected 2", c.Jobs[0].Workers)
		}
	}
	if r.cluster(&bus.Overview{}); len(r.stored) != 0 {
		t.Errorf("%d jobs are remembered after their end", len(r.stored))
	}
}

// Of failures in a row only the first one is logged, and their end.
func TestNote(t *testing.T) {
	r, logs := reader()
	for _, err := range []error{nil, errors.New("a"), errors.New("b"), nil, nil, errors.New("c")} {
		r.Note(metrics.FromNATS, err)
	}
	var texts []string
	for _, e := range logs.All() {
		texts = append(texts, e.Message)
	}
	if len(texts) != 3 || texts[1] != "reading again" || texts[0] != texts[2] {
		t.Errorf("the log is %q", texts)
	}
}

// Only tasks of the chosen kernel and of this build's protocol count. The metrics are sums over
// the protocols.
func TestDemand(t *testing.T) {
	r, _ := reader()
	o := &bus.Overview{Kernels: []bus.Tasks{{Kernel: "amx", Protocol: job.Protocol, Waiting: 1, Held: 2}, {Kernel: "amx", Protocol: job.Protocol + 1, Waiting: 100}, {Kernel: "avx2", Protocol: job.Protocol, Waiting: 10, Held: 20}}}
	for kernel, want := range map[string]autoscale.Demand{"": {Waiting: 11, Held: 22}, "avx2": {Waiting: 10, Held: 20}, "other": {}} {
		r.Kernel = kernel
		if got := r.demand(o); *got != want {
			t.Errorf("kernel %q: %+v, expected %+v", kernel, got, want)
		}
	}
	if c := r.cluster(o); len(c.Kernels) != 2 || c.Kernels[0] != (metrics.ClusterKernel{Kernel: "amx", Waiting: 101, Held: 2}) {
		t.Errorf("the metrics are %+v", c.Kernels)
	}
}

// Run ends with its context, and when the connection was closed.
func TestRun(t *testing.T) {
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	b, err := bus.Connect(t.Context(), bus.Config{Server: server, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r, _ := reader()
	d, err := r.jobs(t.Context(), b)
	if err != nil || d.Waiting != 0 || d.Held != 0 {
		t.Errorf("without tasks: %+v, %v", d, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx, b); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	b.Close()
	if err := r.Run(t.Context(), b); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
