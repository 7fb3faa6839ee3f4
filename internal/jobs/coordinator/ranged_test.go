package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sync/errgroup"

	"shaver/internal/base/fault"
	"shaver/internal/base/long"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/merger"
	"shaver/internal/jobs/prepare/preparetest"
	"shaver/internal/value/estimator"
)

// merge runs a merger until ctx ends.
func (b *bench) merge(ctx context.Context) {
	own := b.connect(ctx, "merger")
	defer own.Close()
	if err := merger.Run(ctx, merger.Config{Bus: own, Name: "m", Log: b.config.Log}); !errors.Is(err, context.Canceled) {
		b.t.Error(err)
	}
}

// ranged runs the job in ranges with as many mergers. Each time dies is received from, a merger
// ends and another one begins.
func (b *bench) ranged(ranges int, dies <-chan struct{}) ([]byte, error) {
	b.t.Helper()
	b.config.Ranges = ranges
	ctx, cancel := context.WithCancel(b.t.Context())
	var group errgroup.Group
	defer func() {
		cancel()
		_ = group.Wait()
	}()
	for range ranges - 1 {
		group.Go(func() error { b.merge(ctx); return nil })
	}
	group.Go(func() error {
		for ctx.Err() == nil {
			mortal, kill := context.WithCancel(ctx)
			go func() {
				select {
				case <-dies:
					kill()
				case <-mortal.Done():
				}
			}()
			b.merge(mortal)
			kill()
		}
		return nil
	})
	return b.run(ctx, 2)
}

// reference returns the scores of the job without ranges. The job has no scores file afterwards.
func (b *bench) reference() []byte {
	b.t.Helper()
	want, err := b.run(b.t.Context(), 2)
	if err == nil {
		err = os.Remove(b.config.Out)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return want
}

// The scores file does not depend on the number of ranges, whether workers add up shards or not.
// Nothing is left on the server.
func TestRangesGiveTheSameBytes(t *testing.T) {
	long.Test(t)
	b := newBench(t)
	want := b.reference()
	for _, ranges := range []int{1, 2, 5} {
		b.hold = time.Duration(ranges%2) * time.Second // with 1 and 5 ranges, workers add up shards
		got, err := b.ranged(ranges, nil)
		if err != nil {
			t.Fatalf("%d ranges: %v", ranges, err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d ranges give other bytes", ranges)
		}
		b.wantNothing()
		if err := os.Remove(b.config.Out); err != nil {
			t.Fatal(err)
		}
	}
}

// If mergers die, the job continues from its last checkpoint, and the scores are the same.
func TestMergersDie(t *testing.T) {
	long.Test(t)
	t.Parallel() // the test waits most of the time
	b := newBench(t)
	want := b.reference()
	core, logged := observer.New(zap.WarnLevel)
	b.config.Log = zap.New(core)
	b.config.SaveEvery = time.Nanosecond
	dies, deaths := make(chan struct{}), atomic.Int64{}
	b.config.OnMerged = func(rows int64) {
		if n := deaths.Load(); rows >= 75*(n+1) && n < 2 {
			deaths.Add(1)
			dies <- struct{}{}
		}
	}
	got, err := b.ranged(3, dies)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("other bytes after mergers died")
	}
	if n := logged.FilterMessageSnippet("with other mergers").Len(); n < 1 {
		t.Errorf("%d restarts, expected at least 1: %v", n, logged.All())
	}
	if lost := logged.FilterMessageSnippet("nothing merged").Len(); lost > 0 {
		t.Errorf("%d checkpoints were lost", lost)
	}
	b.wantNothing()
}

// If the checkpoint of a single range is lost, the whole job begins again. If a blob of a partial
// is lost, its shards are computed again.
func TestRangesLoseData(t *testing.T) {
	b := newBench(t)
	want := b.reference()
	b.config.SaveEvery = time.Nanosecond
	cut, cancel := context.WithCancel(t.Context())
	b.config.OnMerged = func(rows int64) {
		if rows >= 150 {
			cancel()
		}
	}
	b.config.Ranges = 2
	merging, end := context.WithCancel(t.Context())
	var group errgroup.Group
	for range 2 {
		group.Go(func() error { b.merge(merging); return nil })
	}
	if _, err := b.run(cut, 1); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	own := b.connect(t.Context(), "saboteur")
	defer own.Close()
	jobs, err := own.Jobs(t.Context())
	if err != nil || len(jobs) != 1 {
		t.Fatalf("jobs %v: %v", jobs, err)
	}
	names, err := own.Blobs(t.Context(), jobs[0].ID, "checkpoint", "partial")
	if err != nil {
		t.Fatal(err)
	}
	parts := 0
	for _, name := range names {
		if strings.HasPrefix(name, "checkpoint/") && strings.HasSuffix(name, "/1") && strings.Count(name, "/") == 4 || strings.HasPrefix(name, "partial/") && strings.Count(name, "/") == 4 {
			if err := own.Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			parts++
		}
	}
	if parts == 0 {
		t.Fatalf("no blob of a second range among %q", names)
	}
	b.config.OnMerged = nil
	got, err := b.run(t.Context(), 1)
	end()
	_ = group.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("other bytes after blobs were lost")
	}
	b.wantNothing()
}

// A path of ranges has the bytes of one process, whether it drops entries or adds some, and whether mergers die.
func TestRangesOfPath(t *testing.T) {
	long.Test(t)
	t.Parallel() // the test waits most of the time
	b := newPathBench(t)
	b.config.Request = preparetest.Wide(t)
	for name, c := range map[string]struct {
		sparsity float64
		until    *job.Until
	}{"adds": {.999, nil}, "drops": {.6, nil}, "time": {.999, &job.Until{Seconds: 1e-6}}} {
		b.config.Options = estimator.Options{Estimator: estimator.Path, Passes: 1, Parts: 3, Sparsity: c.sparsity}
		b.config.Until, b.config.Ranges = c.until, 0
		want := b.reference()
		for _, ranges := range []int{1, 3} {
			dies, alive := make(chan struct{}), ranges == 3 && c.until == nil
			b.config.OnMerged = func(rows int64) {
				if alive && rows > 500 { // in the third round
					alive = false
					dies <- struct{}{}
				}
			}
			got, err := b.ranged(ranges, dies)
			b.config.OnMerged = nil
			if err != nil || alive || !bytes.Equal(got, want) {
				t.Errorf("%s: %d ranges: the same bytes: %t, no merger died: %t, %v", name, ranges, bytes.Equal(got, want), alive, err)
			}
			b.wantNothing()
			if err := os.Remove(b.config.Out); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A job of values that decides after rounds needs all sums in one process.
func TestRangesAndRounds(t *testing.T) {
	b := newBench(t)
	b.config.Ranges = 2
	for _, until := range []job.Until{{Rule: job.Paper, Bound: .01}, {Seconds: 3600}} {
		b.config.Until = &until
		if _, err := b.run(t.Context(), 0); !fault.IsUsage(err) {
			t.Errorf("%+v: error %v, expected wrong usage", until, err)
		}
	}
}
