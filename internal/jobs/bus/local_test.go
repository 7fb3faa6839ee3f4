package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"shaver/internal/jobs/bus/embedded"
)

// newLocalBus returns a bus that is set up on its own local server.
func newLocalBus(t *testing.T, q Queue) *Bus {
	t.Helper()
	b := connect(t, Config{Server: startServer(t, embedded.Config{Local: true}), Desk: NewDesk(), Name: "test"})
	setUp(t, b, q)
	return b
}

// wantNoTask checks that no task is free.
func wantNoTask(t *testing.T, b *Bus) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*deskPoll)
	defer cancel()
	if d, err := b.NextTask(ctx, testKernel); err == nil {
		t.Errorf("shard %d was delivered, try %d", d.Task.Shard, d.Try)
	} else if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// A task of a local server stays with its worker however long the worker says nothing.
func TestLocalHasNoLease(t *testing.T) {
	b := newLocalBus(t, Queue{Lease: 100 * time.Millisecond, Window: 10, Replicas: 1})
	publish(t, b, newTask(1, 0))
	d := next(t, b)
	if d.Lease != 0 {
		t.Errorf("lease %v", d.Lease)
	}
	time.Sleep(300 * time.Millisecond)
	wantNoTask(t, b)
	must(t, d.Heartbeat(t.Context()))
	must(t, d.Done(t.Context()))
	wantNoTask(t, b)
	if held, err := b.subjects(t.Context(), "test", tasksStream, taskPrefix+">"); err != nil || len(held) != 0 {
		t.Errorf("tasks left: %v %v", held, err)
	}
}

// If a worker stops while it asks for a task, the task stays free. Over a network its lease
// would have to run out first.
func TestLocalLosesNoDelivery(t *testing.T) {
	b := newLocalBus(t, testQueue)
	const tasks = 20
	for shard := range tasks {
		publish(t, b, newTask(1, shard))
	}
	got := map[int]bool{}
	take := func(ctx context.Context) {
		if d, err := b.NextTask(ctx, testKernel); err == nil {
			if got[d.Task.Shard] || d.Try != 1 {
				t.Errorf("shard %d was delivered again, try %d", d.Task.Shard, d.Try)
			}
			got[d.Task.Shard] = true
		}
	}
	for i := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*5*time.Microsecond)
		take(ctx)
		cancel()
	}
	for len(got) < tasks {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		take(ctx)
		cancel()
		if ctx.Err() == context.DeadlineExceeded {
			t.Fatalf("%d of %d tasks were delivered", len(got), tasks)
		}
	}
}

// Tasks come in the order of their publication. A released task comes again after its
// delay, and the other workers get other tasks.
func TestLocalRelease(t *testing.T) {
	b := newLocalBus(t, testQueue)
	must(t, b.Setup(t.Context(), testQueue, "other"))
	publish(t, b, newTask(1, 3), newTask(1, 1), newTask(1, 2))
	first, second := next(t, b), next(t, b)
	if first.Task.Shard != 3 || second.Task.Shard != 1 {
		t.Errorf("shards %d and %d", first.Task.Shard, second.Task.Shard)
	}
	must(t, first.Release(t.Context(), 0))
	if first = next(t, b); first.Task.Shard != 3 || first.Try != 2 {
		t.Errorf("shard %d, try %d", first.Task.Shard, first.Try)
	}
	must(t, second.Release(t.Context(), 300*time.Millisecond))
	third := next(t, b)
	if third.Task.Shard != 2 {
		t.Errorf("shard %d", third.Task.Shard)
	}
	wantNoTask(t, b)
	if again := next(t, b); again.Task.Shard != 1 || again.Try != 2 {
		t.Errorf("shard %d, try %d", again.Task.Shard, again.Try)
	}
	// If a task is stored again after its worker took it, the answer of the worker does not
	// delete it.
	must(t, b.DeleteTask(t.Context(), third.Task.Job, 2))
	publish(t, b, newTask(1, 2))
	wantNoTask(t, b)
	must(t, third.Done(t.Context()))
	if again := next(t, b); again.Task.Shard != 2 {
		t.Errorf("shard %d", again.Task.Shard)
	}
	inv, err := b.Inventory(t.Context(), first.Task.Job, testKernel)
	if must(t, err); fmt.Sprint(inv) != "{[1 2 3] [] [] [] []}" {
		t.Errorf("inventory %v", inv)
	}
}

// A task that fails at every try is set aside, and after a start of the server it is
// free again.
func TestLocalQuarantine(t *testing.T) {
	folder := t.TempDir()
	s := startServer(t, embedded.Config{Local: true, StoreDir: folder})
	b := connect(t, Config{Server: s, Desk: NewDesk(), Name: "test"})
	must(t, b.Readmit(t.Context())) // on a server that never had tasks
	setUp(t, b, testQueue)
	publish(t, b, newTask(1, 0), newTask(1, 1), newTask(1, 2))
	must(t, next(t, b).Quarantine(t.Context(), "row 7", true))
	for try := range maxTries {
		d := next(t, b)
		if d.Task.Shard != 1 || d.Try != try+1 {
			t.Fatalf("shard %d, try %d", d.Task.Shard, d.Try)
		}
		must(t, d.Release(t.Context(), 0))
	}
	if d := next(t, b); d.Task.Shard != 2 {
		t.Errorf("shard %d", d.Task.Shard)
	}
	aside, err := b.Quarantined(t.Context(), testJob)
	if must(t, err); len(aside) != 2 || !strings.Contains(aside[1].Reason, "8 tries") {
		t.Errorf("quarantines %+v", aside)
	}
	b.Close()
	s.Shutdown()
	b = connect(t, Config{Server: startServer(t, embedded.Config{Local: true, StoreDir: folder}), Desk: NewDesk(), Name: "test"})
	must(t, b.Readmit(t.Context()))
	setUp(t, b, testQueue)
	if aside, err = b.Quarantined(t.Context(), testJob); err != nil || len(aside) != 0 {
		t.Errorf("quarantines %+v, %v", aside, err)
	}
	if d := next(t, b); d.Task.Shard != 2 || d.Try != 1 { // another process held it
		t.Errorf("shard %d, try %d", d.Task.Shard, d.Try)
	}
}

// A task that is removed while another worker looks for one is not handed out again.
func TestLocalRemovedTaskIsGone(t *testing.T) {
	server, desk := startServer(t, embedded.Config{Local: true}), NewDesk()
	a := connect(t, Config{Server: server, Desk: desk, Name: "a"})
	setUp(t, a, testQueue)
	publish(t, a, newTask(1, 0))
	d := next(t, a)
	looked := false
	b := connect(t, Config{Server: server, Desk: desk, Name: "b", Around: func(what string, request func() error) error {
		err := request()
		if what == "next task" && err == nil && !looked {
			looked = true
			must(t, d.Done(t.Context()))
		}
		return err
	}})
	wantNoTask(t, b)
	if !looked {
		t.Error("the other worker did not look for a task")
	}
}

// If a task cannot be set aside, it is handed out again. No lease would end and free it.
func TestLocalFailedQuarantineIsTriedAgain(t *testing.T) {
	refused := errors.New("refused")
	b := connect(t, Config{Server: startServer(t, embedded.Config{Local: true}), Desk: NewDesk(), Name: "test", Around: func(what string, request func() error) error {
		if strings.HasPrefix(what, "publish quarantine") {
			return refused
		}
		return request()
	}})
	setUp(t, b, testQueue)
	publish(t, b, newTask(1, 0))
	d := next(t, b)
	if err := d.Quarantine(t.Context(), "broken", true); !errors.Is(err, refused) {
		t.Fatalf("error %v", err)
	}
	if d := next(t, b); d.Task.Shard != 0 || d.Try != 2 {
		t.Errorf("shard %d was delivered, try %d", d.Task.Shard, d.Try)
	}
}
