package coordinator_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/num/kernel"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

// Partials with a wrong sum, with a damaged byte, or that violate the efficiency identity are discarded, although their blobs have the
// right digests. The log names the worker, another worker computes the shards, and the scores have the right bytes.
func TestRogueWorker(t *testing.T) {
	b := newBench(t)
	want, err := b.run(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(b.config.Out); err != nil {
		t.Fatal(err)
	}
	core, logged := observer.New(zap.WarnLevel)
	b.config.Log = zap.New(core)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	shape := b.shape()
	go func() {
		err := b.goRogue(working, shape)
		if err == nil {
			b.work(working) // an honest worker
		}
		worked <- err
	}()
	own := b.connect(ctx, "coordinator")
	defer own.Close()
	_, err = coordinator.Run(ctx, own, b.config)
	stop()
	if failed := <-worked; err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	got, err := os.ReadFile(b.config.Out)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the right bytes: %t, %v", bytes.Equal(got, want), err)
	}
	var all strings.Builder
	for _, entry := range logged.FilterMessage("result discarded").All() {
		all.WriteString(entry.ContextMap()["why"].(string) + "\n")
	}
	for text, n := range map[string]int{`worker "rogue": `: 3, "row by row: the memory or the processor of the worker may be faulty": 2, "efficiency identity violated": 1} {
		if strings.Count(all.String(), text) != n {
			t.Errorf("discarded %q, expected %q %d times", all.String(), text, n)
		}
	}
}

// goRogue is a worker that computes three tasks, and stores a wrong partial of each.
func (b *bench) goRogue(ctx context.Context, shape layout.Shape) error {
	own := b.connect(ctx, "rogue")
	defer own.Close()
	for n := range 3 {
		d, err := own.NextTask(ctx, kernel.Name())
		if err != nil {
			return err
		}
		t := &d.Task
		sums := tally.NewSampling(t.Spec.TaskOptions(), 0)
		form := sums.Form(2)
		builder := tally.NewBuilder(shape, sums.Walks, form)
		for range t.Rows {
			const nat = 1 << 36
			x := make([]int64, shape.Dim())
			x[0] = int64(sums.Walks) * nat
			if err := builder.AddRow(nat, 2*nat, []int32{0}, x, make([]int64, len(x))); err != nil {
				return err
			}
		}
		p := builder.Partial()
		switch n {
		case 0: // after it was computed
			p.Sum[0]++
		case 1: // while it was computed
			p.Sum[0] += 1 << 36
			p.Check = p.Checksum()
		}
		var encoded bytes.Buffer
		if err := arrowio.EncodePartial(&encoded, p); err != nil {
			return err
		}
		data := encoded.Bytes()
		for i := len(data); n == 2 && i > 0; i-- { // the last byte that decides a sum
			data[i-1] ^= 1
			if _, err := arrowio.DecodePartial(data, shape, form, nil); err != nil && strings.Contains(err.Error(), "row by row") {
				break
			}
			data[i-1] ^= 1
		}
		result := job.Result{Job: t.Job, Shard: t.Shard, Rows: t.Rows, Kernel: t.Spec.Kernel, Worker: "rogue", Digests: []uint64{p.Check}}
		if result.Partial, err = own.Put(ctx, bus.PartialName(t.Job, t.Shard, d.Attempt), data); err != nil {
			return err
		}
		if _, err := own.PublishResult(ctx, result); err != nil {
			return err
		}
		if err := d.Done(ctx); err != nil {
			return err
		}
	}
	return nil
}
