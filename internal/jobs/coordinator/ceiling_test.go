package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"shaver/internal/click/modelfile"
	"shaver/internal/click/planted"
	"shaver/internal/data/arrowio"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/num/kernel"
	"shaver/internal/num/layout"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// BenchmarkCeiling measures how many shards and bytes of partials a coordinator and one server can
// process in a second. 64 workers compute nothing and answer with small partials for 10,000
// shards, and with large ones for 1500. Like real ones, they store one partial for up to 16 tasks
// that are at hand. Everything runs on this machine's cores.
func BenchmarkCeiling(b *testing.B) {
	for _, c := range []struct{ shards, features int }{{10_000, 10}, {1500, 3600}} {
		b.Run(fmt.Sprintf("%d shards of %d features", c.shards, c.features), func(b *testing.B) {
			ceiling(b, c.shards, c.features, &fleet{workers: 64, task: 20 * time.Millisecond})
		})
	}
}

// BenchmarkFleet measures how busy one server keeps 2,500 workers, each with a connection of its own,
// whose tasks take a minute in which they renew their lease. It takes five minutes.
func BenchmarkFleet(b *testing.B) {
	f := &fleet{workers: 2500, task: time.Minute}
	ceiling(b, 4*f.workers, 10, f)
	busy, idle := time.Duration(f.busy.Load()), time.Duration(f.idle.Load())
	b.Logf("between their first and last task workers were idle for %.1f%% of the time; the first tasks came after %v on average", 100*float64(idle)/float64(busy+idle),
		(time.Duration(f.first.Load()) / time.Duration(f.workers)).Round(time.Millisecond))
}

// fleet is workers that compute nothing, and what was counted while they ran.
type fleet struct {
	workers                    int
	task                       time.Duration // time that a task takes
	stored, bytes, redelivered atomic.Int64
	busy, idle, first          atomic.Int64 // nanoseconds: in tasks, between tasks, and before the first one
}

func ceiling(tb testing.TB, shards, features int, f *fleet) {
	p, err := planted.New(planted.Config{Fields: []string{"a", "b"}, FieldDims: []int{features, 5}, Informative: 4, Silent: 12, Seed: 3})
	if err != nil {
		tb.Fatal(err)
	}
	var csv strings.Builder
	csv.WriteString("label,a,b\n")
	for i := range shards {
		fmt.Fprintf(&csv, "%d,%d,%d\n", i%2, i%features, features+i%5)
	}
	dir := tb.TempDir()
	file := filepath.Join(dir, "rows.csv")
	if err := os.WriteFile(file, []byte(csv.String()), 0o600); err != nil {
		tb.Fatal(err)
	}
	imported := ingest.EncodedConfig{Train: []string{file}, Sizes: p.FieldDims, Global: true, Out: filepath.Join(dir, "dataset")}
	if _, err := ingest.ImportEncoded(tb.Context(), imported); err != nil {
		tb.Fatal(err)
	}
	d, err := dataset.Open(imported.Out)
	if err != nil {
		tb.Fatal(err)
	}
	server, err := embedded.Start(embedded.Config{StoreDir: tb.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		tb.Fatal(err)
	}
	defer server.Shutdown()
	partials := idle(tb, features, p.Checkpoint.Architecture.Dim)
	ctx, stop := context.WithCancel(tb.Context())
	defer stop()
	var group errgroup.Group
	for i := range f.workers {
		group.Go(func() error { return f.work(ctx, server.URL(), fmt.Sprint("w", i), partials) })
	}
	b, err := bus.Connect(ctx, bus.Config{URL: server.URL(), Name: "coordinator"})
	if err != nil {
		tb.Fatal(err)
	}
	defer b.Close()
	begun := time.Now()
	outcome, err := coordinator.Run(ctx, b, coordinator.Config{
		Request: prepare.Request{
			Open: func() (modelfile.Source, error) { return p.Checkpoint, nil }, Dataset: d, Splits: []string{"train", "val"}, Sample: 1, Baseline: baseline.Zero,
			Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}, Seed: 1, RowsPerShard: 1,
		},
		Out: filepath.Join(dir, "scores.arrow"), Queue: bus.DefaultQueue, Log: zap.NewNop(),
	})
	if err != nil {
		tb.Fatal(err)
	}
	took := time.Since(begun)
	stop()
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		tb.Error(err)
	}
	n := outcome.Plan.Shards()
	tb.Logf("%d shards in %v: %.0f shards/s, %.3f GB/s of %d partials, of %d bytes for one shard; %d redelivered", n, took.Round(time.Millisecond), float64(n)/took.Seconds(),
		float64(f.bytes.Load())/1e9/took.Seconds(), f.stored.Load(), len(partials[1]), f.redelivered.Load())
}

// idle returns the partials of 0 to 16 equal rows, in which all features occur. Their sums have as
// many bits as in a job at the shape of KDD: 31 for contributions and squares, and 32 for absolute
// values.
func idle(t testing.TB, features, dim int) [][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	one := &tally.Partial{Shape: layout.Of(features, dim), Rows: 1}
	for f := range features {
		one.Features, one.Count = append(one.Features, int32(f)), append(one.Count, 1)
		for range dim {
			v := random.Int64N(1<<31) - 1<<30
			one.Sum, one.Abs, one.Square = append(one.Sum, v), append(one.Abs, max(v, -v)+2*random.Int64N(1<<30)), append(one.Square, random.Int64N(1<<31))
			one.LossEmpty += v
		}
	}
	if one.LossEmpty < 0 { // the losses make the contributions add up
		one.LossEmpty, one.LossFull = 0, -one.LossEmpty
	}
	one.Check = one.Checksum()
	all, sum := [][]byte{nil}, one
	for n := 1; n <= job.MostCombined; n++ {
		var data bytes.Buffer
		if err := arrowio.EncodePartial(&data, sum); err != nil {
			t.Fatal(err)
		}
		all = append(all, data.Bytes())
		next := tally.Combine(sum, one)
		sum = next
	}
	return all
}

// work runs a worker that computes nothing. It answers every task with the same partial, and adds up
// several tasks only if they take less than a second.
func (f *fleet) work(ctx context.Context, url, name string, partials [][]byte) error {
	b, err := bus.Connect(ctx, bus.Config{URL: url, Name: name})
	if err != nil {
		return err
	}
	defer b.Close()
	for waited, since := &f.first, time.Now(); ; waited = &f.idle {
		d, err := b.NextTask(ctx, kernel.Name())
		if err != nil {
			return err
		}
		waited.Add(int64(time.Since(since)))
		since = time.Now()
		var held []*bus.Delivery
		for d != nil {
			if d.Try > 1 {
				f.redelivered.Add(1)
			}
			if _, err := b.Get(ctx, d.Task.Data, 1<<30); err != nil {
				return err
			}
			for left := f.task; left > 0; left -= bus.DefaultQueue.Lease / 4 {
				time.Sleep(min(left, bus.DefaultQueue.Lease/4))
				if err := d.Heartbeat(ctx); err != nil {
					return err
				}
			}
			if held = append(held, d); len(held) == job.MostCombined || f.task >= time.Second {
				break
			}
			if d, err = b.TryTask(ctx, kernel.Name()); err != nil {
				return err
			}
		}
		f.busy.Add(int64(time.Since(since)))
		since = time.Now()
		if err := f.answer(ctx, b, name, held, partials); err != nil {
			return err
		}
	}
}

// answer stores one partial for the tasks of held, which it sorts, and completes them.
func (f *fleet) answer(ctx context.Context, b *bus.Bus, name string, held []*bus.Delivery, partials [][]byte) (err error) {
	slices.SortFunc(held, func(a, b *bus.Delivery) int { return a.Task.Shard - b.Task.Shard })
	first := held[0]
	result := job.Result{Job: first.Task.Job, Kernel: first.Task.Spec.Kernel, Worker: name}
	for _, d := range held {
		result.Rows, result.Digests = result.Rows+d.Task.Rows, append(result.Digests, 0)
		if len(held) > 1 {
			result.Shards = append(result.Shards, d.Task.Shard)
		}
	}
	partial := partials[len(held)]
	f.stored.Add(1)
	f.bytes.Add(int64(len(partial)))
	if result.Partial, err = b.Put(ctx, bus.PartialName(first.Task.Job, first.Task.Shard, first.Attempt), partial); err != nil {
		return err
	}
	for _, d := range held {
		result.Shard = d.Task.Shard
		if _, err := b.PublishResult(ctx, result); err != nil {
			return err
		}
	}
	for _, d := range held {
		if err := d.Done(ctx); err != nil {
			return err
		}
	}
	return nil
}
