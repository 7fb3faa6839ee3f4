package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"shaver/internal/base/long"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
)

// logged returns a logger and a channel that is closed when it logs the message.
func logged(message string) (*zap.Logger, <-chan struct{}) {
	seen := make(chan struct{})
	once := func(e zapcore.Entry) error {
		if e.Message == message {
			select {
			case <-seen:
			default:
				close(seen)
			}
		}
		return nil
	}
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(new(bytes.Buffer)), zap.DebugLevel), zap.Hooks(once)), seen
}

const waits = "another coordinator leads this job and writes its scores elsewhere: waiting for its end"

// pair runs a job with two coordinators. The second writes elsewhere, and begins when the first
// leads. between is called while the second waits.
func (b *bench) pair(change func(second *coordinator.Config), between func(first, second context.CancelFunc)) (out string, first, second error) {
	b.t.Helper()
	a, c := b.config, b.config
	began := make(chan struct{})
	a.OnStart = func(job.Spec, job.Plan, int64) { close(began) }
	log, waiting := logged(waits)
	c.Log, c.Out = log, filepath.Join(b.t.TempDir(), "second.arrow")
	change(&c)
	run := func(ctx context.Context, name string, c coordinator.Config) <-chan error {
		ended := make(chan error, 1)
		go func() {
			own := b.connect(b.t.Context(), name)
			defer own.Close()
			_, err := coordinator.Run(ctx, own, c)
			ended <- err
		}()
		return ended
	}
	ctx, stop := context.WithTimeout(b.t.Context(), patience)
	defer stop()
	ctx2, stop2 := context.WithTimeout(b.t.Context(), patience)
	defer stop2()
	await := func(what <-chan struct{}) {
		select {
		case <-what:
		case <-ctx.Done():
			b.t.Fatal("no coordinator leads the job, or none waits for it")
		}
	}
	one := run(ctx, "one", a)
	await(began)
	two := run(ctx2, "two", c)
	await(waiting)
	between(stop, stop2)
	return c.Out, <-one, <-two
}

// worker starts a worker, which ends with the test.
func (b *bench) worker() {
	ctx, stop := context.WithCancel(b.t.Context())
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		b.work(ctx)
	}()
	b.t.Cleanup(func() {
		stop()
		<-worked
	})
}

// A coordinator waits for one that writes its scores elsewhere. Both have the scores at the
// end, which are computed once if the second can read those of the first.
func TestTwoOutputs(t *testing.T) {
	for name, test := range map[string]struct {
		place string
		rows  int64
	}{"readable": {"", 300}, "unreadable": {"s3://bucket/first.arrow", 600}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.config.Place = test.place
			out, first, second := b.pair(func(c *coordinator.Config) { c.Place = "" }, func(_, _ context.CancelFunc) { b.worker() })
			if first != nil || second != nil {
				t.Fatalf("%v, %v", first, second)
			}
			one, err := os.ReadFile(b.config.Out)
			if err != nil {
				t.Fatal(err)
			}
			if two, err := os.ReadFile(out); err != nil || !bytes.Equal(one, two) {
				t.Errorf("the scores of the second differ: %v", err)
			}
			if n := b.rows.Load(); n != test.rows {
				t.Errorf("%d rows were computed, expected %d", n, test.rows)
			}
			b.wantNothing()
		})
	}
}

// If the coordinator that leads the job dies, the one that waits takes the job over.
func TestOtherOutputDies(t *testing.T) {
	long.Test(t)
	t.Parallel() // the test waits most of the time
	b := newBench(t)
	out, first, second := b.pair(func(*coordinator.Config) {}, func(stop, _ context.CancelFunc) {
		b.worker()
		stop()
	})
	if !errors.Is(first, context.Canceled) || second != nil {
		t.Fatalf("%v, %v", first, second)
	}
	if _, err := os.Stat(out); err != nil {
		t.Error(err)
	}
	b.wantNothing()
}

// A cancel ends the coordinators that wait for the job too.
func TestCancelledWhileWaiting(t *testing.T) {
	long.Test(t)
	t.Parallel() // the test waits most of the time
	b := newBench(t)
	spec, err := prepare.Spec(b.config.Request)
	if err != nil {
		t.Fatal(err)
	}
	_, first, second := b.pair(func(*coordinator.Config) {}, func(_, _ context.CancelFunc) {
		c := b.connect(t.Context(), "operator")
		defer c.Close()
		if err := c.Cancel(t.Context(), spec.ID()); err != nil {
			t.Error(err)
		}
	})
	if !errors.Is(first, bus.ErrCancelled) || !errors.Is(second, bus.ErrCancelled) {
		t.Errorf("%v, %v", first, second)
	}
	b.wantNothing()
}

// If a run was cancelled, its other tries do not submit the job again, however the job was
// ended. A job of another run begins as if nothing had happened.
func TestCancelledRun(t *testing.T) {
	long.Test(t)
	t.Parallel() // the test waits most of the time
	for name, removed := range map[string]bool{"by its coordinator": false, "by the operator": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.config.RunID = "pods-of-a-job"
			c := b.connect(t.Context(), "operator")
			defer c.Close()
			ctx, evict := context.WithCancel(t.Context())
			started := make(chan string, 2)
			b.config.OnStart = func(spec job.Spec, _ job.Plan, _ int64) { started <- spec.ID() }
			ended := make(chan error, 1)
			go func() {
				_, err := b.run(ctx, 0)
				ended <- err
			}()
			id := <-started
			if removed { // the pod is evicted at the moment of the cancel
				evict()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				if err := errors.Join(c.Cancel(t.Context(), id), c.Remove(t.Context(), id)); err != nil {
					t.Fatal(err)
				}
			} else {
				if err := c.Cancel(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				if err := <-ended; !errors.Is(err, bus.ErrCancelled) {
					t.Fatal(err)
				}
			}
			evict()
			if _, err := b.run(t.Context(), 1); !errors.Is(err, bus.ErrCancelled) || !strings.Contains(err.Error(), "pods-of-a-job") {
				t.Errorf("another try of the run: %v", err)
			}
			b.config.RunID = "another"
			if _, err := b.run(t.Context(), 1); err != nil {
				t.Error(err)
			}
			b.wantNothing()
		})
	}
}

// A job that was cancelled while it had no coordinator ends before its model is stored.
func TestCancelledBefore(t *testing.T) {
	b := newBench(t)
	c := b.connect(t.Context(), "operator")
	defer c.Close()
	ctx, stop := context.WithCancel(t.Context())
	b.config.OnStart = func(spec job.Spec, _ job.Plan, _ int64) {
		if err := c.Cancel(t.Context(), spec.ID()); err != nil {
			t.Error(err)
		}
		stop()
	}
	if _, err := b.run(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	b.config.OnStart = func(job.Spec, job.Plan, int64) { t.Error("the job started") }
	if _, err := b.run(t.Context(), 1); !errors.Is(err, bus.ErrCancelled) {
		t.Errorf("ended with %v", err)
	}
	b.wantNothing()
}
