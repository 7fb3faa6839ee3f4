package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
)

func TestTaskOverTCP(t *testing.T) {
	s := startServer(t, embedded.Config{Listen: "127.0.0.1:0"})
	coordinator, worker := connect(t, Config{URL: s.URL(), Name: "c"}), connect(t, Config{URL: s.URL(), Name: "w"})
	setUp(t, coordinator, testQueue)
	task := newTask(1, 3)
	publish(t, coordinator, task, task) // publishing twice stores one task
	d := next(t, worker)
	if got, want := fmt.Sprint(d.Task), fmt.Sprint(task); got != want {
		t.Errorf("got %s, published %s", got, want)
	}
	if d.Lease != testQueue.Lease || d.Try != 1 || !isAttempt(d.Attempt) {
		t.Errorf("lease %v, try %d, attempt %q", d.Lease, d.Try, d.Attempt)
	}
	must(t, d.Heartbeat(t.Context()))
	won, err := worker.PublishResult(t.Context(), newResult(task, d.Attempt))
	if must(t, err); !won {
		t.Error("the only result was not stored")
	}
	must(t, d.Done(t.Context()))
	e := events(t, coordinator, task.Job, 1)[0]
	if e.Shard != 3 || e.Result == nil || e.Result.Worker != "w-"+d.Attempt {
		t.Errorf("event %+v", e)
	}
	other := task
	other.Rows++
	publish(t, coordinator, task)
	if err := coordinator.PublishTask(t.Context(), other); !errors.Is(err, ErrConflict) {
		t.Errorf("another task in its place: %v", err)
	}
	must(t, coordinator.DeleteTask(t.Context(), task.Job, 3))
	must(t, coordinator.DeleteTask(t.Context(), task.Job, 3))
	publish(t, coordinator, other)
}

func TestRacingResults(t *testing.T) {
	b := newBus(t, testQueue)
	const shards, racers = 20, 20
	var mu sync.Mutex
	var group sync.WaitGroup
	winners := map[int][]string{}
	for shard := range shards {
		for i := range racers {
			group.Go(func() {
				r := newResult(newTask(1, shard), fmt.Sprint(i))
				won, err := b.PublishResult(t.Context(), r)
				if err != nil {
					t.Error(err)
				}
				if won {
					mu.Lock()
					winners[shard] = append(winners[shard], r.Worker)
					mu.Unlock()
				}
			})
		}
	}
	group.Wait()
	for _, e := range events(t, b, newTask(1, 0).Job, shards) {
		if won := winners[e.Shard]; len(won) != 1 || won[0] != e.Result.Worker {
			t.Errorf("shard %d: %v won, stored is %s", e.Shard, won, e.Result.Worker)
		}
		// The winner may publish again, as after a lost answer.
		if won, err := b.PublishResult(t.Context(), *e.Result); !won || err != nil {
			t.Errorf("shard %d: the stored result again: %v, %v", e.Shard, won, err)
		}
	}
	if s, err := b.stream(t.Context(), resultsStream); err != nil || s.CachedInfo().State.Msgs > shards {
		t.Errorf("%v: more than %d results stored", err, shards)
	}
}

func TestLease(t *testing.T) {
	t.Parallel() // the test waits most of the time
	b := newBus(t, Queue{Lease: time.Second, Window: 10, Replicas: 1})
	publish(t, b, newTask(1, 0))
	kept := next(t, b)
	again := make(chan *Delivery, 1)
	go func() {
		if d, err := b.NextTask(t.Context(), testKernel); err == nil {
			again <- d
		}
	}()
	for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); {
		must(t, kept.Heartbeat(t.Context()))
		select {
		case <-again:
			t.Fatal("the task went to another worker in spite of heartbeats")
		case <-time.After(kept.Lease / 4):
		}
	}
	second := <-again // no heartbeats for kept from here on
	if second.Try != 2 || second.Attempt == kept.Attempt {
		t.Errorf("try %d, attempt %s after %s", second.Try, second.Attempt, kept.Attempt)
	}
	if err := kept.Heartbeat(t.Context()); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("heartbeat after the lease: %v", err)
	}
	if err := kept.Release(t.Context(), 0); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("release after the lease: %v", err)
	}
	must(t, second.Release(t.Context(), 0))
	third := next(t, b)
	must(t, third.Release(t.Context(), 100*time.Millisecond))
	start := time.Now()
	fourth := next(t, b)
	if waited := time.Since(start); fourth.Try != 4 || waited < 50*time.Millisecond {
		t.Errorf("try %d after %v", fourth.Try, waited)
	}
	// The task is deleted while a worker holds it, which is not an error.
	must(t, b.DeleteTask(t.Context(), fourth.Task.Job, 0))
	must(t, fourth.Done(t.Context()))
	must(t, kept.Done(t.Context()))
}

// Each job has its own lease, which may be longer or shorter than that of the consumer. Another job does not change
// it, even if a worker holds the task. A task without a lease has that of the consumer.
func TestLeasesOfJobs(t *testing.T) {
	t.Parallel() // the test waits most of the time
	s := startServer(t, embedded.Config{})
	for _, first := range []time.Duration{firstLease, 300 * time.Millisecond} { // of the consumer
		b := connect(t, Config{Server: s})
		setUp(t, b, Queue{Lease: time.Hour, Window: 10, Replicas: 1})
		c, err := b.js.Consumer(t.Context(), tasksStream, consumerOf(testKernel))
		must(t, err)
		config := c.CachedInfo().Config
		if config.AckWait != firstLease {
			t.Errorf("the consumer has the lease %v", config.AckWait)
		}
		config.AckWait = first // a coordinator of an earlier build sets its lease
		_, err = b.js.UpdateConsumer(t.Context(), tasksStream, config)
		must(t, err)
		slow, fast := newTask(1, 0), newTask(2, 0)
		publish(t, b, slow)
		held := next(t, b)
		other := connect(t, Config{Server: s})
		other.lease.Store(int64(time.Second)) // as Setup does
		publish(t, other, fast)
		quick := next(t, b)
		if held.Lease != time.Hour || quick.Lease != time.Second {
			t.Errorf("leases of %v and %v", held.Lease, quick.Lease)
		}
		time.Sleep(quick.Lease / 2)
		must(t, quick.Heartbeat(t.Context()))
		begun := time.Now()
		again := next(t, b)
		if waited := time.Since(begun); again.Task.Job != fast.Job || again.Try != 2 || waited < 900*time.Millisecond || waited > 5*time.Second {
			t.Errorf("after %v job %s, try %d, was delivered", waited, again.Task.Job, again.Try)
		}
		if err := quick.Heartbeat(t.Context()); !errors.Is(err, ErrLeaseLost) {
			t.Errorf("heartbeat after the lease: %v", err)
		}
		must(t, held.Heartbeat(t.Context()))
		must(t, held.Done(t.Context()))
		must(t, again.Done(t.Context()))
		must(t, b.DeleteTask(t.Context(), slow.Job, 0))
		for _, lease := range []time.Duration{0, time.Nanosecond} { // none, and one that is too short
			b.lease.Store(int64(lease))
			publish(t, b, slow)
			bare := next(t, b)
			if bare.Lease != first {
				t.Errorf("a task with the lease %v has %v, expected %v", lease, bare.Lease, first)
			}
			must(t, bare.Done(t.Context()))
		}
	}
}

// If the allowed number of workers failed at a task, the next worker quarantines it, and
// Retry puts it back.
func TestTriedTooOften(t *testing.T) {
	b := newBus(t, testQueue)
	mine, other := newTask(1, 4), newTask(1, 5)
	publish(t, b, mine)
	for try := range maxTries {
		d := next(t, b)
		if d.Try != try+1 || d.Last() != (try+1 == maxTries) {
			t.Fatalf("try %d, expected %d; last: %v", d.Try, try+1, d.Last())
		}
		must(t, d.Release(t.Context(), 0))
	}
	publish(t, b, other)
	d := next(t, b)
	if d.Task.Shard != 5 {
		t.Errorf("shard %d was delivered at try %d", d.Task.Shard, d.Try)
	}
	aside, err := b.Quarantined(t.Context(), mine.Job)
	must(t, err)
	if len(aside) != 1 || aside[0].Shard != 4 || aside[0].Input || !strings.Contains(aside[0].Reason, "8 tries") {
		t.Errorf("%+v", aside)
	}
	inv, err := b.Inventory(t.Context(), mine.Job, testKernel)
	if must(t, err); fmt.Sprint(inv) != "{[5] [] [4] [] []}" {
		t.Errorf("inventory %v", inv)
	}
	if _, err := b.Retry(t.Context(), mine.Job, 5); !fault.IsInput(err) {
		t.Errorf("a shard that is not quarantined: %v", err)
	}
	if n, err := b.Retry(t.Context(), mine.Job); n != 1 || err != nil {
		t.Errorf("%d put back, %v", n, err)
	}
	publish(t, b, mine)
	if d := next(t, b); d.Task.Shard != 4 || d.Try != 1 {
		t.Errorf("shard %d, try %d", d.Task.Shard, d.Try)
	}
}

// A task that the consumer lost is reported as stuck, and a task that a worker holds is
// not. It is reported as slow while another worker has no task.
func TestStuck(t *testing.T) {
	b := newBus(t, testQueue)
	task := newTask(1, 0)
	publish(t, b, task)
	stuck := func() []int {
		inv, err := b.Inventory(t.Context(), task.Job, testKernel)
		must(t, err)
		return inv.Stuck
	}
	if s := stuck(); len(s) != 0 {
		t.Errorf("a waiting task is reported as stuck: %v", s)
	}
	d := next(t, b)
	if s := stuck(); len(s) != 0 {
		t.Errorf("a task that a worker holds is reported as stuck: %v", s)
	}
	ctx, leave := context.WithCancel(t.Context())
	idle := make(chan error)
	go func() {
		_, err := b.NextTask(ctx, testKernel)
		idle <- err
	}()
	for { // until the server knows that a worker waits
		inv, err := b.Inventory(t.Context(), task.Job, testKernel)
		must(t, err)
		if slices.Equal(inv.Slow, []int{0}) {
			break
		}
	}
	leave()
	if err := <-idle; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	must(t, b.js.DeleteConsumer(t.Context(), tasksStream, consumerOf(testKernel)))
	_, err := b.js.CreateConsumer(t.Context(), tasksStream, jetstream.ConsumerConfig{Durable: consumerOf(testKernel), FilterSubject: tasksOf(testKernel) + "none.0", AckPolicy: jetstream.AckExplicitPolicy})
	must(t, err)
	if s := stuck(); !slices.Equal(s, []int{0}) {
		t.Errorf("a lost task of attempt %s is not reported as stuck: %v", d.Attempt, s)
	}
}

// A worker gets tasks of its own kernel only.
func TestKernels(t *testing.T) {
	b := newBus(t, testQueue)
	must(t, b.Setup(t.Context(), testQueue, "other"))
	publish(t, b, newTask(1, 0))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if d, err := b.NextTask(ctx, "other"); err == nil {
		t.Errorf("%+v was delivered to another kernel", d.Task)
	}
	if d := next(t, b); d.Try != 1 {
		t.Errorf("try %d", d.Try)
	}
	if err := b.Setup(t.Context(), testQueue, "a.b"); err == nil {
		t.Error("a kernel's name with a dot was accepted")
	}
}

func TestQuarantine(t *testing.T) {
	b := newBus(t, testQueue)
	good, bad := newTask(1, 0), newTask(1, 1)
	publish(t, b, good)
	must(t, next(t, b).Quarantine(t.Context(), "row 7:\nfield 3 \xff is out of range", true))
	// The bus sets a malformed task aside as lost, so that the coordinator publishes it again.
	_, err := b.js.Publish(t.Context(), taskSubject(testKernel, bad.Job, 1), []byte(`{"job":1}`))
	must(t, err)
	_, err = b.js.Publish(t.Context(), tasksOf(testKernel)+"x.01", []byte(`{}`))
	must(t, err)
	publish(t, b, newTask(1, 2))
	if d := next(t, b); d.Task.Shard != 2 {
		t.Errorf("shard %d was delivered", d.Task.Shard)
	}
	all := events(t, b, good.Job, 2)
	want := job.Quarantine{Protocol: job.Protocol, Job: good.Job, Reason: "row 7: field 3 ? is out of range", Input: true, Worker: "test"}
	if all[0].Quarantine == nil || *all[0].Quarantine != want {
		t.Errorf("got %+v, expected %+v", all[0].Quarantine, want)
	}
	if q := all[1].Quarantine; q == nil || q.Shard != 1 || !q.Lost || q.Input || !strings.Contains(q.Reason, "task message") {
		t.Errorf("got %+v for the malformed task", q)
	}
	held, err := b.subjects(t.Context(), "test", tasksStream, taskPrefix+">")
	if must(t, err); len(held) != 1 {
		t.Errorf("tasks left: %v", held)
	}
	must(t, b.DeleteQuarantine(t.Context(), good.Job, 0))
}

func TestWindow(t *testing.T) {
	b := newBus(t, Queue{Lease: time.Minute, Window: 3, Replicas: 1})
	const tasks = 12
	published := make(chan int, tasks)
	go func() {
		for shard := range tasks {
			if err := b.PublishTask(t.Context(), newTask(1, shard)); err != nil {
				t.Error(err)
			}
			published <- shard
		}
	}()
	for range 3 {
		<-published
	}
	select {
	case shard := <-published:
		t.Fatalf("shard %d went beyond the window", shard)
	case <-time.After(200 * time.Millisecond):
	}
	publish(t, b, newTask(1, 2)) // stored already, so no room is needed
	for shard := range tasks {
		d := next(t, b)
		if d.Task.Shard != shard {
			t.Errorf("shard %d, expected %d", d.Task.Shard, shard)
		}
		must(t, d.Done(t.Context()))
	}
}

func TestEvents(t *testing.T) {
	b := newBus(t, testQueue)
	const each = 600 // more than one batch
	jobs := []uint64{1, 2}
	var group sync.WaitGroup
	for _, seed := range jobs {
		group.Go(func() {
			for shard := range each {
				if _, err := b.PublishResult(t.Context(), newResult(newTask(seed, shard), "a")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, seed := range jobs { // some results are stored before, some after the call
		id := newTask(seed, 0).Job
		for shard, e := range events(t, b, id, each) {
			if e.Shard != shard || e.Result == nil || e.Result.Job != id || e.Result.Shard != shard {
				t.Fatalf("job %s: event %d is %+v", id, shard, e)
			}
		}
	}
	group.Wait()
	if _, err := b.js.Publish(t.Context(), subject(resultPrefix, newTask(3, 0).Job, 5), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	id := newTask(3, 0).Job
	if e := events(t, b, id, 1)[0]; e.Shard != 5 || e.Err == nil || e.Result != nil {
		t.Errorf("malformed result: %+v", e)
	}
	must(t, b.DeleteResult(t.Context(), id, 5))
	if won, err := b.PublishResult(t.Context(), newResult(newTask(3, 5), "a")); !won || err != nil {
		t.Errorf("result in place of the malformed one: %v, %v", won, err)
	}
	if e := events(t, b, id, 1)[0]; e.Result == nil {
		t.Errorf("%+v", e)
	}
	for _, bad := range []string{"", "*", ">", "a.b", strings.Repeat("g", 20)} {
		if err := b.Events(t.Context(), bad, func(Event) error { return nil }); err == nil {
			t.Errorf("job id %q was accepted", bad)
		}
	}
}

// If the server deletes the consumer of a reader, the reader misses no message and gets
// none twice.
func TestEventsReaderDeleted(t *testing.T) {
	b := newBus(t, testQueue)
	const each = 10
	seen := make(chan int)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	group.Go(func() {
		_ = b.Events(ctx, newTask(1, 0).Job, func(e Event) error { seen <- e.Shard; return nil })
	})
	for shard := range 2 * each {
		if shard == each {
			s, err := b.stream(ctx, resultsStream)
			must(t, err)
			for name := range s.ConsumerNames(ctx).Name() {
				must(t, b.js.DeleteConsumer(ctx, resultsStream, name))
			}
		}
		_, err := b.PublishResult(ctx, newResult(newTask(1, shard), "a"))
		must(t, err)
		if got := <-seen; got != shard {
			t.Fatalf("shard %d, expected %d", got, shard)
		}
	}
	cancel()
	group.Wait()
}

// More workers may wait for tasks than a server allows by default, which is 512. They log nothing, and all
// of them get a task.
func TestManyWaiting(t *testing.T) {
	t.Parallel()
	const workers = 600
	core, logged := observer.New(zap.DebugLevel)
	b := connect(t, Config{Server: startServer(t, embedded.Config{}), Name: "test", Log: zap.New(core)})
	setUp(t, b, Queue{Lease: time.Minute, Window: workers, Replicas: 1})
	logged.TakeAll() // it is connected
	shards := make(chan int, workers)
	for range workers {
		go func() {
			d, err := b.NextTask(t.Context(), testKernel)
			if err != nil {
				t.Error(err)
				shards <- -1
				return
			}
			shards <- d.Task.Shard
		}()
	}
	for waiting := 0; waiting < workers; time.Sleep(20 * time.Millisecond) {
		n, _, err := b.Asking(t.Context(), testKernel)
		must(t, err)
		waiting = n
	}
	for shard := range workers {
		publish(t, b, newTask(1, shard))
	}
	got := map[int]bool{}
	for range workers {
		got[<-shards] = true
	}
	if len(got) != workers || got[-1] {
		t.Errorf("%d tasks came to %d workers", len(got), workers)
	}
	for _, e := range logged.All() {
		t.Errorf("logged: %s %v", e.Message, e.ContextMap())
	}
}

// A task whose lease has run out counts as given again while another worker holds it.
func TestAskingAgain(t *testing.T) {
	t.Parallel()
	b := connect(t, Config{Server: startServer(t, embedded.Config{}), Name: "test"})
	setUp(t, b, Queue{Lease: time.Second, Window: 10, Replicas: 1})
	publish(t, b, newTask(1, 0))
	for want := range 2 { // nobody renews the first lease
		d, err := b.NextTask(t.Context(), testKernel)
		must(t, err)
		if _, again, err := b.Asking(t.Context(), testKernel); again != want || err != nil {
			t.Errorf("in try %d, %d tasks are in a second try (%v), expected %d", d.Try, again, err, want)
		}
	}
}
