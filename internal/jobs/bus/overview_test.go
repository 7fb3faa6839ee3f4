package bus

import (
	"context"
	"testing"
	"time"

	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
)

// The overview counts tasks by kernel, and each job's results and quarantines, and says when
// the job was submitted, led and checkpointed.
func TestOverview(t *testing.T) {
	server := startServer(t, embedded.Config{})
	b := connect(t, Config{Server: server, Name: "test"})
	ctx := t.Context()
	if o, err := b.Overview(ctx); err != nil || len(o.Jobs) != 0 || len(o.Kernels) != 0 {
		t.Fatalf("without a job: %+v, %v", o, err)
	}
	setUp(t, b, testQueue)
	must(t, b.Setup(ctx, testQueue, "other"))
	o, err := b.Overview(ctx)
	must(t, err)
	if len(o.Kernels) != 2 || o.Kernels[0] != (Tasks{Kernel: "other", Protocol: job.Protocol}) || o.Kernels[1] != (Tasks{Kernel: testKernel, Protocol: job.Protocol}) {
		t.Errorf("before the first task: %+v", o.Kernels)
	}
	begun := time.Now().Add(-time.Second)
	id := submit(t, b, 1)
	for shard := range 3 {
		must(t, b.PublishTask(ctx, newTask(1, shard)))
	}
	d, err := b.NextTask(ctx, testKernel)
	must(t, err)
	claim, err := b.Claim(ctx, id)
	must(t, err)
	must(t, b.SetAside(ctx, job.Quarantine{Job: id, Shard: 2, Worker: "w", Reason: "no"}))
	must(t, b.SetProgress(ctx, Progress{Job: id, State: Running, Rows: 4, Workers: []Worker{}}))
	o, err = b.Overview(ctx)
	must(t, err)
	if want := (Tasks{Kernel: testKernel, Protocol: job.Protocol, Waiting: 2, Held: 1}); o.Kernels[1] != want {
		t.Errorf("%+v, expected %+v", o.Kernels[1], want)
	}
	if len(o.Jobs) != 1 {
		t.Fatalf("%d jobs", len(o.Jobs))
	}
	j := o.Jobs[0]
	if j.ID != id || j.Progress.Rows != 4 || j.Epoch != 1 || j.Checkpoint != "" || j.Quarantined != 1 || j.Results != 0 ||
		j.Submitted.Before(begun) || j.Progressed.Before(j.Submitted) || j.Led.Before(j.Submitted) {
		t.Errorf("%+v", j)
	}
	name := CheckpointName(id, 1, 1)
	blob, err := b.Put(ctx, name, []byte("sums"))
	must(t, err)
	must(t, claim.Point(ctx, 1, blob, true))
	must(t, d.Done(ctx))
	waiting, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = b.NextTask(waiting, "other")
	}()
	for o, err = b.Overview(ctx); err == nil && o.Kernels[0].Idle == 0; o, err = b.Overview(ctx) {
	}
	must(t, err)
	stop()
	<-done
	if j := o.Jobs[0]; j.Checkpoint != name {
		t.Errorf("the checkpoint is %q, expected %q", j.Checkpoint, name)
	}
	if want := (Tasks{Kernel: testKernel, Protocol: job.Protocol, Waiting: 2}); o.Kernels[1] != want || o.Kernels[0] != (Tasks{Kernel: "other", Protocol: job.Protocol, Idle: 1}) {
		t.Errorf("%+v, expected %+v and an idle worker", o.Kernels, want)
	}
	must(t, b.Cleanup(ctx, id))
	o, err = b.Overview(ctx)
	must(t, err)
	if len(o.Jobs) != 0 || o.Kernels[1] != (Tasks{Kernel: testKernel, Protocol: job.Protocol}) {
		t.Errorf("after the job: %+v", o)
	}
}
