package coordinator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/num/layout"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// A recall takes back the orders of shards, those that were taken and not published too, but not those of shards that are computed again.
func TestRecall(t *testing.T) {
	o := newOrders(10)
	for _, shard := range []int{1, 2, 3} {
		o.add(shard)
	}
	o.addAgain(7, []string{"w"})
	taken, err := o.next(t.Context(), 0, 10)
	if err != nil || taken != 1 {
		t.Fatal(taken, err)
	}
	called := o.recalled()
	o.recall()
	if shard, err := o.next(t.Context(), 0, 10); shard != 7 || err != nil {
		t.Errorf("shard %d, %v: expected the one that is computed again", shard, err)
	}
	over, end := context.WithCancel(t.Context())
	end()
	if shard, err := o.next(over, 0, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("shard %d, %v: expected a wait for more", shard, err)
	}
	o.add(2)
	if shard, err := o.next(t.Context(), 0, 10); shard != 2 || err != nil {
		t.Errorf("shard %d, %v: expected the one that was ordered after the recall", shard, err)
	}

	p, never := &publisher{}, make(chan struct{}) // the task waits for the one before it
	if done, err := p.publishUnless(t.Context(), called, job.Task{}, nil, never); done || err != nil {
		t.Errorf("a task that was taken back: stored %t, %v", done, err)
	}
	for what, task := range map[string]job.Task{"ordered after the recall": {}, "computed again": {Verify: &job.Verify{}}} {
		recalled := called
		if task.Verify == nil {
			recalled = o.recalled()
		}
		soon, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer end()
		if _, err := p.publishUnless(soon, recalled, task, nil, never); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a task %s: %v, expected a wait until the job ends", what, err)
		}
	}
}

// The shards that a machine takes back have neither tasks nor data on the server, whether their tasks were stored or ordered.
func TestRecallDeletes(t *testing.T) {
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	b, err := bus.Connect(t.Context(), bus.Config{Server: server, Name: "coordinator"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	digest := strings.Repeat("a", 64)
	spec := job.Spec{Version: job.SpecVersion, Model: digest, Dataset: digest, Splits: []string{"train"}, Sample: 1, Baseline: "zero", Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}, Kernel: "k"}
	plan := job.Plan{Rows: 3, RowsPerShard: 1}
	j := &prepare.Job{ID: spec.ID(), Spec: spec, Plan: plan}
	l := &leader{bus: b, job: j, claim: &bus.Claim{}, sums: newSums(layout.Of(1, 1), tally.Form{}, 3), machine: job.NewMachine(&spec, plan, limits, nil, 0, nil), retries: newRetries(3), lost: newLost(),
		publisher: publisher{bus: b, job: j, orders: newOrders(3)}, log: zap.NewNop()}
	if err := b.Setup(t.Context(), bus.Queue{Lease: time.Second, Window: 9, Replicas: 1}, "k"); err != nil {
		t.Fatal(err)
	}
	for shard := range 2 {
		task := job.Task{Protocol: job.Protocol, Job: j.ID, Shard: shard, Spec: spec, Rows: 1, Model: job.Blob{Name: bus.ModelName(digest), SHA256: digest}, Baseline: job.Blob{Name: bus.BaselineName(j.ID), SHA256: digest}}
		if task.Data, err = b.Put(t.Context(), bus.ShardName(j.ID, shard), []byte("rows")); err == nil {
			err = b.PublishTask(t.Context(), task)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l.publisher.orders.add(2)
	if _, err := l.perform(t.Context(), job.Recall{Shards: []int{1, 2}}); err != nil {
		t.Fatal(err)
	}
	stored, err := b.Inventory(t.Context(), j.ID, "k")
	names, other := b.Blobs(t.Context(), j.ID, "shard")
	if err != nil || other != nil || !slices.Equal(stored.Tasks, []int{0}) || !slices.Equal(names, []string{bus.ShardName(j.ID, 0)}) || l.publisher.orders.count != 0 {
		t.Errorf("tasks %v, data %v, %d orders, %v, %v: expected those of shard 0", stored.Tasks, names, l.publisher.orders.count, err, other)
	}
}
