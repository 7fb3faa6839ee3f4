package coordinator_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/worker"
)

// runInPlace runs the job in place, with a worker for each store. It returns the scores
// and the names of the shards that were sent. A worker whose store is "" has none.
func (b *bench) runInPlace(stores ...string) (scores []byte, sent map[string]bool) {
	b.t.Helper()
	_ = os.Remove(b.config.Out)
	working, stop := context.WithCancel(b.t.Context())
	defer stop()
	var group errgroup.Group
	for _, path := range stores {
		var store *worker.Store
		if path != "" {
			var err error
			if store, err = worker.OpenStore("dir:" + path); err != nil {
				b.t.Fatal(err)
			}
			defer store.Close()
		}
		group.Go(func() error {
			own := b.connect(working, "worker")
			defer own.Close()
			_ = worker.Run(working, nil, worker.Config{Bus: own, Name: "w", Threads: 1, Models: new(worker.Models), Store: store, Log: b.config.Log})
			return nil
		})
	}
	own := b.connect(b.t.Context(), "coordinator")
	defer own.Close()
	config := b.config
	config.InPlace = true
	sent = map[string]bool{}
	var id string
	config.OnStart = func(spec job.Spec, plan job.Plan, _ int64) {
		id = spec.ID()
		if !plan.InPlace {
			b.t.Error("the plan does not say that shards stay in place")
		}
	}
	config.OnMerged = func(int64) {
		names, err := own.Blobs(b.t.Context(), id, "shard")
		if err != nil {
			b.t.Error(err)
		}
		for _, name := range names {
			sent[name] = true
		}
	}
	if _, err := coordinator.Run(b.t.Context(), own, config); err != nil {
		b.t.Fatal(err)
	}
	stop()
	_ = group.Wait()
	scores, err := os.ReadFile(config.Out)
	if err != nil {
		b.t.Fatal(err)
	}
	return scores, sent
}

// Rows that are read in place give the same bytes as rows that are sent, also for a
// sample and in rounds. A shard is sent only if a worker lacks the dataset or has a
// damaged copy.
func TestInPlace(t *testing.T) {
	t.Parallel() // the test waits most of the time
	b := newBench(t)
	for portion, until := range map[float64]*job.Until{1: nil, .4: nil, .9: {Rule: job.Overlap, Bound: .9, Sparsity: .5}} {
		if testing.Short() && until == nil {
			continue
		}
		b.config.Sample, b.config.Until = portion, until
		_ = os.Remove(b.config.Out)
		want, err := b.run(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		got, sent := b.runInPlace(b.folder, filepath.Dir(b.folder))
		if !bytes.Equal(got, want) {
			t.Errorf("sample %v: other scores in place", portion)
		}
		if len(sent) > 0 {
			t.Errorf("sample %v: shards %v were sent", portion, sent)
		}
		b.wrongStores(t, want, fmt.Sprintf("sample %v", portion))
	}
}

// The same holds for a path, whose rounds read their parts in place.
func TestPathInPlace(t *testing.T) {
	t.Parallel() // the test waits most of the time
	b := newPathBench(t)
	b.config.Sample, b.config.Options.Sparsity = .8, .5
	want, err := b.run(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if got, sent := b.runInPlace(b.folder, filepath.Dir(b.folder)); !bytes.Equal(got, want) || len(sent) > 0 {
		t.Errorf("the same bytes: %v; shards %v were sent", bytes.Equal(got, want), sent)
	}
	b.wrongStores(t, want, "a path")
}

// wrongStores runs a job in place with workers whose stores are useless. It expects the scores want.
func (b *bench) wrongStores(t *testing.T, want []byte, job string) {
	broken := t.TempDir()
	if err := os.CopyFS(broken, os.DirFS(b.folder)); err != nil {
		t.Fatal(err)
	}
	spoil(t, filepath.Join(broken, "train.arrow"))
	for what, store := range map[string]string{"without a store": "", "an empty store": t.TempDir(), "a damaged copy": broken} {
		got, sent := b.runInPlace(store)
		if !bytes.Equal(got, want) {
			t.Errorf("%s, %s: other scores", job, what)
		}
		if len(sent) == 0 {
			t.Errorf("%s, %s: no shard was sent", job, what)
		}
		if got, _ := b.runInPlace(store, b.folder); !bytes.Equal(got, want) {
			t.Errorf("%s, a worker with a good store and one with %s: other scores", job, what)
		}
	}
}

// spoil changes a byte in the middle of a file.
func spoil(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
