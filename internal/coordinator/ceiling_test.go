package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"shaver/internal/arrowio"
	"shaver/internal/baseline"
	"shaver/internal/bus"
	"shaver/internal/checkpoint"
	"shaver/internal/coordinator"
	"shaver/internal/dataset"
	"shaver/internal/estimator"
	"shaver/internal/ingest"
	"shaver/internal/job"
	"shaver/internal/kernel"
	"shaver/internal/layout"
	"shaver/internal/planted"
	"shaver/internal/prepare"
	"shaver/internal/tally"
)

// TestCeiling measures how many shards and bytes of partials a coordinator and one
// server can process in a second. 64 workers compute nothing and answer with small
// partials for 10,000 shards, and with large ones for 300. Everything runs on this
// machine's cores. The test needs SHAVER_LARGE=1.
func TestCeiling(t *testing.T) {
	if os.Getenv("SHAVER_LARGE") == "" {
		t.Skip("SHAVER_LARGE is not set")
	}
	for _, c := range []struct{ shards, features int }{{10_000, 10}, {300, 50_000}} {
		t.Run(fmt.Sprintf("%d shards of %d features", c.shards, c.features), func(t *testing.T) { ceiling(t, c.shards, c.features) })
	}
}

func ceiling(t *testing.T, shards, features int) {
	p, err := planted.New(planted.Config{Fields: []string{"a", "b"}, FieldDims: []int{features, 5}, Informative: 1, Silent: 0, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	var csv strings.Builder
	csv.WriteString("label,a,b\n")
	for i := range shards {
		fmt.Fprintf(&csv, "%d,%d,%d\n", i%2, i%features, features+i%5)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "rows.csv")
	if err := os.WriteFile(file, []byte(csv.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	imported := ingest.EncodedConfig{Train: []string{file}, Sizes: p.FieldDims, Global: true, Out: filepath.Join(dir, "dataset")}
	if _, err := ingest.ImportEncoded(t.Context(), imported); err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(imported.Out)
	if err != nil {
		t.Fatal(err)
	}
	server, err := bus.StartServer(bus.ServerConfig{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	partial := idle(t, features, p.Checkpoint.Architecture.Dim)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var group errgroup.Group
	var redelivered atomic.Int64
	for i := range 64 {
		group.Go(func() error { return instant(ctx, server.URL(), fmt.Sprint("w", i), partial, &redelivered) })
	}
	b, err := bus.Connect(ctx, bus.Config{URL: server.URL(), Name: "coordinator"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	begun := time.Now()
	outcome, err := coordinator.Run(ctx, b, coordinator.Config{
		Request: prepare.Request{
			Open: func() (*checkpoint.Checkpoint, error) { return p.Checkpoint, nil }, Dataset: d, Splits: []string{"train", "val"}, Sample: 1, Baseline: baseline.Zero,
			Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}, Seed: 1, RowsPerShard: 1,
		},
		Out: filepath.Join(dir, "scores.arrow"), Queue: bus.DefaultQueue, Log: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	stop()
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	n := outcome.Plan.Shards()
	t.Logf("%d shards in %v: %.0f shards/s, %.3f GB/s of partials of %d bytes; %d redelivered", n, took.Round(time.Millisecond), float64(n)/took.Seconds(),
		float64(n*len(partial))/1e9/took.Seconds(), len(partial), redelivered.Load())
}

// idle returns the partial of one row in which all features occur and contribute
// nothing.
func idle(t *testing.T, features, dim int) []byte {
	zero := make([]int64, features*dim)
	p := &tally.Partial{Shape: layout.Of(features, dim), Rows: 1, Sum: zero, Abs: zero, Square: zero}
	for f := range features {
		p.Features, p.Count = append(p.Features, int32(f)), append(p.Count, 1)
	}
	var data bytes.Buffer
	if err := arrowio.EncodePartial(&data, p); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

// instant runs a worker that computes nothing. It answers every task with the same
// partial.
func instant(ctx context.Context, url, name string, partial []byte, redelivered *atomic.Int64) error {
	b, err := bus.Connect(ctx, bus.Config{URL: url, Name: name})
	if err != nil {
		return err
	}
	defer b.Close()
	for {
		d, err := b.NextTask(ctx, kernel.Name())
		if err != nil {
			return err
		}
		if d.Try > 1 {
			redelivered.Add(1)
		}
		if _, err := b.Get(ctx, d.Task.Data, 1<<30); err != nil {
			return err
		}
		blob, err := b.Put(ctx, bus.PartialName(d.Task.Job, d.Task.Shard, d.Attempt), partial)
		if err != nil {
			return err
		}
		if _, err := b.PublishResult(ctx, job.Result{Job: d.Task.Job, Shard: d.Task.Shard, Rows: d.Task.Rows, Partial: blob, Kernel: d.Task.Spec.Kernel, Worker: name}); err != nil {
			return err
		}
		if err := d.Done(ctx); err != nil {
			return err
		}
	}
}
