package coordinator_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"shaver/internal/base/fault"
	"shaver/internal/base/long"
	"shaver/internal/data/arrowio"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/worker"
)

// runInPlace runs the job in place, with a worker for each store. It returns the scores
// and the names of the shards that were sent. A worker whose store is "" has none.
func (b *bench) runInPlace(stores ...string) (scores []byte, sent map[string]bool) {
	b.t.Helper()
	scores, sent, err := b.tryInPlace(stores...)
	if err != nil {
		b.t.Fatal(err)
	}
	return scores, sent
}

// tryInPlace is runInPlace for a job that may fail.
func (b *bench) tryInPlace(stores ...string) (scores []byte, sent map[string]bool, err error) {
	b.t.Helper()
	_ = os.Remove(b.config.Out)
	ctx, end := context.WithTimeout(b.t.Context(), patience)
	defer end()
	working, stop := context.WithCancel(ctx)
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
	_, err = coordinator.Run(ctx, own, config)
	stop()
	_ = group.Wait()
	if err != nil {
		return nil, nil, err
	}
	scores, err = os.ReadFile(config.Out)
	return scores, sent, err
}

// Rows that are read in place give the same bytes as rows that are sent, also for a
// sample and in rounds. A shard is sent only if a worker lacks the dataset or has a
// damaged copy.
func TestInPlace(t *testing.T) {
	long.Test(t)
	t.Parallel() // the test waits most of the time
	b := newBench(t)
	for portion, until := range map[float64]*job.Until{1: nil, .4: nil, .9: {Rule: job.Overlap, Bound: .9, Sparsity: .5}} {
		if !long.All() && until == nil {
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
	long.Test(t)
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

// Rows of several blocks and days are read in place by their lists of blocks, for any size of the shards. The
// coordinator then reads no rows, except those of shards that must be sent.
func TestBlocksInPlace(t *testing.T) {
	long.Test(t)
	t.Parallel() // the test waits most of the time
	b := newBench(t)
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "1"), os.DirFS(b.folder)); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	text.WriteString("label,a,b\n")
	for i := range 2*arrowio.RowsBatch + 9 {
		fmt.Fprintf(&text, "%d,%d,%d\n", i%2, i%9, i%5)
	}
	file := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Sizes: []int{9, 5}, Out: filepath.Join(root, "2")}); err != nil {
		t.Fatal(err)
	}
	// copied returns a copy of the store that was changed.
	copied := func(change func(day string)) string {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(root)); err != nil {
			t.Fatal(err)
		}
		change(filepath.Join(dir, "2"))
		return dir
	}
	without := copied(func(day string) {
		if err := os.Remove(filepath.Join(day, dataset.BlocksName)); err != nil {
			t.Fatal(err)
		}
	})
	other := copied(func(day string) {
		path := filepath.Join(day, dataset.BlocksName)
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, append(data, ' '), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	broken := copied(func(day string) { spoil(t, filepath.Join(day, "train.arrow")) })
	use := func(store string) {
		days, err := dataset.OpenDays([]string{filepath.Join(store, "1"), filepath.Join(store, "2")})
		if err != nil {
			t.Fatal(err)
		}
		b.config.Dataset = days
	}
	use(root)
	b.config.Sample = .003 // 394 rows, in all blocks
	want, err := b.run(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	const all = 16 // shards of 25 rows
	for _, c := range []struct {
		what                string
		own, worker         string // stores of the coordinator and the worker
		rows                int64
		leastSent, mostSent int
	}{
		{"the same store", root, root, 25, 0, 0},
		{"large shards", root, root, 300, 0, 0},
		{"a damaged copy of the coordinator", broken, root, 25, 0, 0},
		{"no list", without, without, 25, 0, 0},
		{"no list of the coordinator", without, root, 25, 0, 0},
		{"no list of the worker", root, without, 25, all, all},
		{"another list", root, other, 25, all, all},
		{"a damaged copy", root, broken, 25, 1, all - 1},
	} {
		use(c.own)
		b.config.RowsPerShard = c.rows
		got, sent := b.runInPlace(c.worker)
		if !bytes.Equal(got, want) || len(sent) < c.leastSent || len(sent) > c.mostSent {
			t.Errorf("%s: the same bytes: %v; %d shards were sent, expected %d to %d", c.what, bytes.Equal(got, want), len(sent), c.leastSent, c.mostSent)
		}
	}
	use(broken)
	_, _, err = b.tryInPlace(broken)
	if text := filepath.Join(broken, "2", "train.arrow") + " is corrupt: block "; !fault.IsInput(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("a damaged copy of both: %v, expected %q", err, text)
	}
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
