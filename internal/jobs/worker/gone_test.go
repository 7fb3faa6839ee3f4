package worker

import (
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
	"shaver/internal/num/kernel"
)

// A worker that is to end does not wait for a server that is gone, although it holds a task that it
// has computed.
func TestServerIsGone(t *testing.T) {
	usual := goneAfter
	goneAfter = 300 * time.Millisecond
	defer func() { goneAfter = usual }()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	b, err := bus.Connect(t.Context(), bus.Config{Server: server, Name: "w"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	f, d := newTask(t)
	d.Task.Protocol, d.Task.Combine = job.Protocol, true
	d.Task.Spec.Version, d.Task.Spec.Model = job.SpecVersion, d.Task.Model.SHA256
	d.Task.Job = d.Task.Spec.ID()
	if err := b.Setup(t.Context(), bus.DefaultQueue, kernel.Name()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.CreateSpec(t.Context(), d.Task.Job, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	put := func(blob *job.Blob, name string) {
		stored, err := b.Put(t.Context(), name, f.blobs[blob.Name])
		if err != nil {
			t.Fatal(err)
		}
		*blob = stored
	}
	put(&d.Task.Model, bus.ModelName(d.Task.Spec.Model))
	put(&d.Task.Baseline, bus.BaselineName(d.Task.Job))
	put(&d.Task.Data, bus.ShardName(d.Task.Job, d.Task.Shard))
	if err := b.PublishTask(t.Context(), d.Task); err != nil {
		t.Fatal(err)
	}
	core, logged := observer.New(zap.WarnLevel)
	drain, ended := make(chan struct{}), make(chan error)
	leave := sync.OnceFunc(func() {
		server.Shutdown()
		close(drain)
	})
	config := Config{Bus: b, Name: "w", Threads: 1, Models: new(Models), Hold: time.Hour, Log: zap.New(core), OnRows: func(int) { leave() }}
	go func() { ended <- Run(t.Context(), drain, config) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("error %v, expected none, as after any drain", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the worker waits for a server that is gone")
	}
	if all := logged.FilterMessageSnippet("the server is gone").All(); len(all) != 1 || !strings.Contains(all[0].Message, "other workers compute it again") {
		t.Errorf("log %v", logged.All())
	}
}
