package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"shaver/internal/base/long"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/worker"
)

var errInjected = errors.New("injected")

// injection makes the request with the number at fail, counted over all connections.
type injection struct {
	at    int64
	how   string
	count atomic.Int64
	hit   atomic.Pointer[string]
}

func (i *injection) around(what string, request func() error) error {
	if i.count.Add(1) != i.at {
		return request()
	}
	i.hit.Store(&what)
	switch i.how {
	case "error":
		return errInjected
	case "time-out":
		return context.DeadlineExceeded
	}
	if err := request(); err != nil { // the answer is lost
		return err
	}
	return context.DeadlineExceeded
}

// Whichever request to the server fails, the scores have the same bytes and nothing is
// left on the server. A request fails with an error that ends the process, with a
// time-out, or with an answer that is lost after the request was done.
func TestEveryRequestFails(t *testing.T) {
	t.Parallel()
	for _, part := range []struct {
		how   string
		first int64
	}{{"error", 1}, {"error", 2}, {"error", 3}, {"error", 4}, {"time-out", 1}, {"lost answer", 1}} {
		step := int64(1)
		if part.how == "error" { // the slowest way, because a process is started again
			step = 4
		}
		t.Run(fmt.Sprint(part.how, " from ", part.first), func(t *testing.T) {
			b := newBench(t)
			b.config.RowsPerShard = 100 // three shards
			b.failAll(part.how, part.first, step)
		})
	}
	for i, how := range []string{"error", "time-out", "lost answer"} {
		t.Run(how+" in a path", func(t *testing.T) {
			b := newPathBench(t)
			b.config.Options.Sparsity, b.config.RowsPerShard = .3, 300 // two rounds, of one shard each
			b.failAll(how, int64(1+2*i), 9)
		})
	}
}

// failAll lets one request after the other fail, in steps, and expects the same scores.
func (b *bench) failAll(how string, first, step int64) {
	t := b.t
	t.Parallel() // the test waits most of the time
	if !long.All() {
		step *= 21
	}
	b.config.Log = zap.NewNop()
	b.config.Queue.Lease = 250 * time.Millisecond
	b.config.SaveEvery = time.Nanosecond // checkpoints as often as possible
	want, requests := b.faulty(&injection{})
	seen := map[string]bool{}
	for at := first; at <= requests; at += step {
		i := &injection{at: at, how: how}
		got, _ := b.faulty(i)
		if i.hit.Load() == nil { // a run with fewer requests
			continue
		}
		seen[strings.Fields(*i.hit.Load())[0]] = true
		if t.Failed() || !bytes.Equal(got, want) {
			t.Fatalf("request %d (%s): same bytes: %v", at, *i.hit.Load(), bytes.Equal(got, want))
		}
	}
	t.Logf("%d requests, among them %v", requests, slices.Sorted(maps.Keys(seen)))
}

// faulty runs the job with one worker, and returns the scores and the number of
// requests. It starts the worker or the coordinator again if it ends with the injected
// error.
func (b *bench) faulty(i *injection) ([]byte, int64) {
	b.t.Helper()
	if err := os.Remove(b.config.Out); err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	working, stop := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error {
		return restartInjected(func() error {
			own, err := b.connectThrough(working, "worker", i)
			if err != nil {
				return err // the job may have ended while the worker started again
			}
			defer own.Close()
			return worker.Run(working, nil, worker.Config{Bus: own, Name: "w", Threads: 1, Models: new(worker.Models), Log: b.config.Log})
		})
	})
	err := restartInjected(func() error {
		own, err := b.connectThrough(ctx, "coordinator", i)
		if err != nil {
			return err
		}
		defer own.Close()
		_, err = coordinator.Run(ctx, own, b.config)
		return err
	})
	stop()
	if ended := group.Wait(); !errors.Is(ended, context.Canceled) {
		b.t.Errorf("the worker ended with %v", ended)
	}
	if err != nil {
		b.t.Errorf("%s at request %d: %v", i.how, i.at, err)
		return nil, 0
	}
	b.wantNothing()
	data, err := os.ReadFile(b.config.Out)
	if err != nil {
		b.t.Error(err)
	}
	return data, i.count.Load()
}

// restartInjected runs run again for as long as it returns errInjected.
func restartInjected(run func() error) error {
	for {
		if err := run(); !errors.Is(err, errInjected) {
			return err
		}
	}
}

func (b *bench) connectThrough(ctx context.Context, name string, i *injection) (*bus.Bus, error) {
	return bus.Connect(ctx, bus.Config{Server: b.server, Name: name, Around: i.around})
}

// wantNothing checks that no message is left in any stream.
func (b *bench) wantNothing() {
	b.t.Helper()
	c := b.connect(b.t.Context(), "test")
	defer c.Close()
	if held, err := c.Stored(b.t.Context()); err != nil || len(held) > 0 {
		b.t.Errorf("the server still holds %v, %v", held, err)
	}
}

// If a job has two coordinators that write to the same place, the newer one leads. The older
// one ends with an error that says so, and the bytes are the same.
func TestTwoCoordinators(t *testing.T) {
	t.Parallel() // the test waits most of the time
	b := newBench(t)
	want, err := b.run(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(b.config.Out); err != nil {
		t.Fatal(err)
	}
	older, newer := b.config, b.config
	older.Out, older.Place = b.config.Out+".older", b.config.Out
	claimed := make(chan struct{})
	newer.OnStart = func(job.Spec, job.Plan, int64) { close(claimed) }
	first := b.connect(t.Context(), "older")
	defer first.Close()
	second := b.connect(t.Context(), "newer")
	defer second.Close()
	began, ended := make(chan struct{}), make(chan error, 1)
	older.OnStart = func(job.Spec, job.Plan, int64) { close(began) }
	go func() {
		_, err := coordinator.Run(t.Context(), first, older)
		ended <- err
	}()
	<-began
	written := make(chan error, 1)
	go func() {
		_, err := coordinator.Run(t.Context(), second, newer)
		written <- err
	}()
	<-claimed
	if err := <-ended; !errors.Is(err, bus.ErrFenced) || !strings.Contains(err.Error(), "newer coordinator leads this job (newer ") {
		t.Errorf("the older one ended with %v", err)
	}
	working, stop := context.WithCancel(t.Context())
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		b.work(working)
	}()
	if err := <-written; err != nil {
		t.Error(err)
	}
	stop()
	<-worked
	if got, err := os.ReadFile(b.config.Out); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the scores have other bytes, %v", err)
	}
	if _, err := os.Stat(older.Out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the older one wrote scores: %v", err)
	}
	b.wantNothing()
}
