package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/base/long"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/kernel"
)

// setAside runs the job with its first task quarantined.
func (b *bench) setAside(input bool) error {
	b.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := b.connect(b.t.Context(), "unlucky")
		defer c.Close()
		d, err := c.NextTask(b.t.Context(), kernel.Name())
		if err == nil {
			err = d.Quarantine(b.t.Context(), "row 7: the loss is NaN", input)
		}
		if err != nil {
			b.t.Error(err)
		}
	}()
	ended := make(chan error, 1)
	go func() {
		c := b.connect(b.t.Context(), "coordinator")
		defer c.Close()
		_, err := coordinator.Run(b.t.Context(), c, b.config)
		ended <- err
	}()
	<-done
	working, stop := context.WithCancel(b.t.Context())
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		b.work(working)
	}()
	err := <-ended
	stop()
	<-worked
	return err
}

// A shard that cannot be computed does not stop the others. The job fails at its end
// and is kept. It succeeds after the shard is put back.
func TestQuarantineIsPutBack(t *testing.T) {
	b := newBench(t)
	want, err := b.run(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(b.config.Out)
	err = b.setAside(true)
	if !fault.IsInput(err) || !errors.Is(err, coordinator.ErrQuarantined) || !strings.Contains(err.Error(), "1 of 12 shards cannot be computed (25 rows); all others are merged; shard 0: row 7: the loss is NaN") {
		t.Fatalf("ended with %v", err)
	}
	c := b.connect(t.Context(), "test")
	defer c.Close()
	jobs, err := c.Jobs(t.Context())
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	if p := jobs[0].Progress; p.State != bus.Failed || p.Shards != 11 || p.Rows != 275 || p.Quarantined != 1 || !strings.Contains(p.Waiting, "row 7") {
		t.Errorf("%+v", p)
	}
	b.rows.Store(0)
	if _, err := b.run(t.Context(), 1); !errors.Is(err, coordinator.ErrQuarantined) {
		t.Errorf("submitted again: %v", err)
	}
	if n, err := c.Retry(t.Context(), jobs[0].ID); n != 1 || err != nil {
		t.Fatalf("%d put back, %v", n, err)
	}
	got, err := b.run(t.Context(), 1)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("after it was put back: %v; same bytes: %v", err, bytes.Equal(got, want))
	}
	if n := b.rows.Load(); n != 25 {
		t.Errorf("%d rows were computed again, one shard has 25", n)
	}
	b.wantNothing()
}

// With AllowQuarantined the job finishes, and its scores say what is missing.
func TestQuarantineIsAllowed(t *testing.T) {
	b := newBench(t)
	if err := b.setAside(false); !errors.Is(err, coordinator.ErrQuarantined) || fault.IsInput(err) {
		t.Fatalf("a shard that was tried too often: %v", err)
	}
	b.config.AllowQuarantined = true
	if _, err := b.run(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s, err := scores.Read(b.config.Out)
	if err != nil || s.QuarantinedRows != 25 || s.Rows != 275 {
		t.Fatalf("%d rows and %d missing, %v", s.Rows, s.QuarantinedRows, err)
	}
	b.wantNothing()
	// The same job again gives the same scores and computes nothing. Without
	// AllowQuarantined, incomplete scores are computed again, and complete scores are not.
	b.rows.Store(0)
	if _, err := b.run(t.Context(), 1); err != nil || b.rows.Load() != 0 {
		t.Errorf("the incomplete job again: %d rows, %v", b.rows.Load(), err)
	}
	b.config.AllowQuarantined = false
	if _, err := b.run(t.Context(), 1); err != nil || b.rows.Load() != 300 {
		t.Errorf("the job again: %d rows, %v", b.rows.Load(), err)
	}
	b.rows.Store(0)
	if _, err := b.run(t.Context(), 1); err != nil || b.rows.Load() != 0 {
		t.Errorf("the finished job again: %d rows, %v", b.rows.Load(), err)
	}
	b.wantNothing()
}

func TestCancelled(t *testing.T) {
	t.Parallel() // the test waits most of the time
	b := newBench(t)
	c := b.connect(t.Context(), "test")
	defer c.Close()
	started := make(chan string, 1)
	b.config.OnStart = func(spec job.Spec, _ job.Plan, _ int64) { started <- spec.ID() }
	ended := make(chan error, 1)
	go func() {
		_, err := b.run(t.Context(), 0)
		ended <- err
	}()
	id := <-started
	if err := c.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, bus.ErrCancelled) {
		t.Errorf("ended with %v", err)
	}
	b.wantNothing()
}

// A job resumes from its checkpoint, although the partials that it covers are deleted.
// If the checkpoint is lost, the job begins again. If a partial is lost, its shard is
// computed again.
func TestResumeFromCheckpoint(t *testing.T) {
	long.Test(t)
	b := newBench(t)
	want, err := b.run(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	c := b.connect(t.Context(), "test")
	defer c.Close()
	cut := func() string {
		os.Remove(b.config.Out)
		ctx, cancel := context.WithCancel(t.Context())
		b.config.SaveEvery = time.Nanosecond
		b.config.OnMerged = func(rows int64) {
			if rows >= 200 {
				cancel()
			}
		}
		if _, err := b.run(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Fatalf("cut off: %v", err)
		}
		b.config.OnMerged = nil
		jobs, err := c.Jobs(t.Context())
		if err != nil || len(jobs) != 1 {
			t.Fatalf("%d jobs, %v", len(jobs), err)
		}
		return jobs[0].ID
	}
	same := func(what string, least, most int64) {
		b.rows.Store(0)
		got, err := b.run(t.Context(), 1)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %v; same bytes: %v", what, err, bytes.Equal(got, want))
		}
		if n := b.rows.Load(); n < least || n > most {
			t.Errorf("%s: %d rows were computed, expected %d to %d", what, n, least, most)
		}
		b.wantNothing()
	}
	id := cut()
	names, err := c.Blobs(t.Context(), id, "checkpoint")
	if err != nil || len(names) == 0 {
		t.Fatalf("checkpoints %v, %v", names, err)
	}
	same("resumed", 0, 125) // 0 if the worker was done before the coordinator had merged 200 rows

	id = cut()
	names, err = c.Blobs(t.Context(), id, "checkpoint", "partial")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := c.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	// A worker may compute a shard again while the result without its partial is still
	// stored. That shard is computed once more.
	same("without checkpoint and partials", 300, 325)
}
