package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"shaver/internal/base/long"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/worker"
	"shaver/internal/num/kernel"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

// faulty makes a worker compute with a weight that has another value.
func faulty(_ *job.Task, game *shapley.Game) {
	m := game.Model
	table := slices.Clone(m.Weights.Embedding)
	for i := range table {
		table[i] += 1
	}
	game.Model = m.WithEmbedding(table)
}

// verified runs the job with two right workers and, if there is a fault, a third one that has it.
// The first of the right workers has the store, if there is one. It returns how the job and the third worker ended.
func (b *bench) verified(fault func(*job.Task, *shapley.Game), stores ...*worker.Store) (outcome *coordinator.Outcome, ended error, err error) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.t.Context(), 2*time.Minute)
	defer stop()
	working, end := context.WithCancel(ctx)
	var workers errgroup.Group
	run := func(name string, fault func(*job.Task, *shapley.Game), store *worker.Store) error {
		own, err := bus.Connect(working, bus.Config{Server: b.server, Name: name})
		if err != nil {
			return err
		}
		defer own.Close()
		return worker.Run(working, nil, worker.Config{Bus: own, Name: name, Threads: 1, Models: new(worker.Models), Hold: b.hold, Store: store, Faulty: fault, Log: b.config.Log})
	}
	third := make(chan error, 1)
	if fault != nil {
		go func() { third <- run("faulty", fault, nil) }()
	} else {
		third <- nil
	}
	stores = append(stores, nil, nil)
	for i, name := range []string{"one", "two"} {
		workers.Go(func() error { return run(name, nil, stores[i]) })
	}
	own := b.connect(ctx, "coordinator")
	defer own.Close()
	outcome, err = coordinator.Run(ctx, own, b.config)
	end()
	if ended := workers.Wait(); !errors.Is(ended, context.Canceled) {
		b.t.Errorf("a right worker ended with %v", ended)
	}
	return outcome, <-third, err
}

// A worker that computes wrong is found if its shards are verified, and named. Nothing of it is in the
// scores, although the job had merged some of its results.
func TestVerify(t *testing.T) {
	long.Test(t)
	t.Parallel()
	for name, change := range map[string]func(*bench){
		"walks":    func(*bench) {},
		"combined": func(b *bench) { b.hold = time.Second },
		"path": func(b *bench) {
			b.config.Options = estimator.Options{Estimator: estimator.Path, Passes: 1, Parts: 1, Sparsity: .5}
			b.config.RowsPerShard = 5
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.config.RowsPerShard = 10 // 30 shards
			change(b)
			want, err := b.run(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, portion := range map[string][]float64{"walks": {1, .3}, "combined": {1}, "path": {.3}}[name] {
				b.config.Verify = portion
				for _, fault := range []func(*job.Task, *shapley.Game){nil, faulty} {
					if err := os.Remove(b.config.Out); err != nil {
						t.Fatal(err)
					}
					outcome, ended, err := b.verified(fault)
					if err != nil {
						t.Fatal(err)
					}
					if got, err := os.ReadFile(b.config.Out); err != nil || !bytes.Equal(got, want) {
						t.Errorf("portion %v, faulty worker %t: the scores have other bytes, %v", portion, fault != nil, err)
					}
					if n, all := outcome.Verified, outcome.Plan.Shards(); n == 0 || portion == 1 && n != all || portion < 1 && n == all {
						t.Errorf("%d of %d shards are verified, expected a portion of %v", n, all, portion)
					}
					if found := slices.Equal(outcome.Wrong, []string{"faulty"}); found != (fault != nil) && portion == 1 {
						t.Errorf("workers %v have computed wrong; there is one: %t", outcome.Wrong, fault != nil)
					}
					if len(outcome.Wrong) > 0 && !errors.Is(ended, context.Canceled) && !strings.Contains(ended.Error(), "computes wrong") {
						t.Errorf("the faulty worker ended with %v", ended)
					}
					b.wantNothing()
				}
			}
		})
	}
}

// A worker that cannot read rows in place verifies the shards of one that can.
func TestVerifyInPlace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config.RowsPerShard, b.config.InPlace, b.config.Verify = 30, true, 1
	store, err := worker.OpenStore("dir:" + b.folder)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if outcome, _, err := b.verified(nil, store); err != nil || outcome.Verified != outcome.Plan.Shards() {
		t.Errorf("%+v, %v", outcome, err)
	}
}

// A worker that an earlier coordinator has found out gets no task of the job and ends. A result of it is discarded, and its
// task is stored again for other workers.
func TestWrongWorkerOfRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config.RowsPerShard = 5 // 60 shards
	want, err := b.run(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(b.config.Out)
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	c := b.connect(ctx, "faulty")
	defer c.Close()
	cut, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { _, _ = b.run(cut, 0); close(ended) }()
	d, err := c.NextTask(ctx, kernel.Name())
	cancel()
	<-ended
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ClaimFor(ctx, d.Task.Job, bus.Claimant{Wrong: []string{"faulty"}}); err != nil {
		t.Fatal(err)
	}
	result := job.Result{Job: d.Task.Job, Shard: d.Task.Shard, Rows: d.Task.Rows, Kernel: kernel.Name(), Worker: "faulty", Digests: []uint64{1}}
	if result.Partial, err = c.Put(ctx, bus.PartialName(d.Task.Job, d.Task.Shard, d.Attempt), []byte("a partial")); err != nil {
		t.Fatal(err)
	}
	if won, err := c.PublishResult(ctx, result); err != nil || !won {
		t.Fatal(won, err)
	}
	var worked errgroup.Group
	worked.Go(func() error {
		err := worker.Run(ctx, nil, worker.Config{Bus: c, Name: "faulty", Threads: 1, Models: new(worker.Models), Log: b.config.Log})
		b.work(ctx)
		return err
	})
	own := b.connect(ctx, "coordinator")
	defer own.Close()
	outcome, err := coordinator.Run(ctx, own, b.config)
	stop()
	if ended := worked.Wait(); err != nil || ended == nil || !strings.Contains(ended.Error(), "computes wrong") {
		t.Fatalf("%v; the worker ended with %v", err, ended)
	}
	if got, err := os.ReadFile(b.config.Out); err != nil || !bytes.Equal(got, want) || !slices.Equal(outcome.Wrong, []string{"faulty"}) {
		t.Errorf("the same bytes: %t, %v, wrong workers %q", bytes.Equal(got, want), err, outcome.Wrong)
	}
}
