package bus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"shaver/internal/base/long"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
	"shaver/internal/value/estimator"
)

// TestMain fails the package if servers or connections leave goroutines behind.
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before+2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			fmt.Printf("%d goroutines before the tests, %d after:\n%s\n", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
			code = max(code, 1)
			break
		}
	}
	os.Exit(code)
}

// testKernel is the kernel of all tasks in these tests.
const testKernel = "portable"

var testQueue = Queue{Lease: time.Minute, Window: 100, Replicas: 1}

func startServer(t testing.TB, c embedded.Config) *embedded.Server {
	t.Helper()
	if c.StoreDir == "" {
		c.StoreDir = t.TempDir()
	}
	s, err := embedded.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func connect(t testing.TB, c Config) *Bus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	b, err := Connect(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// newBus returns a bus that is set up on its own server.
func newBus(t testing.TB, q Queue) *Bus {
	t.Helper()
	b := connect(t, Config{Server: startServer(t, embedded.Config{}), Name: "test"})
	setUp(t, b, q)
	return b
}

func setUp(t testing.TB, b *Bus, q Queue) {
	t.Helper()
	if err := b.Setup(t.Context(), q, testKernel); err != nil {
		t.Fatal(err)
	}
}

func digest(c string) string { return strings.Repeat(c, 64) }

// newTask returns a valid task. Each seed gives another job.
func newTask(seed uint64, shard int) job.Task {
	spec := job.Spec{Version: job.SpecVersion, Model: digest("a"), Dataset: digest("b"), Splits: []string{"train"},
		Sample: 1, Baseline: "zero", Options: estimator.Options{Estimator: "permutation", Passes: 4}, Seed: seed, Kernel: testKernel}
	id := spec.ID()
	return job.Task{Protocol: job.Protocol, Job: id, Shard: shard, Spec: spec, Rows: 1000,
		Data:     job.Blob{Name: ShardName(id, shard), Bytes: 10, SHA256: digest("c")},
		Model:    job.Blob{Name: ModelName(digest("a")), Bytes: 20, SHA256: digest("a")},
		Baseline: job.Blob{Name: BaselineName(id), Bytes: 0, SHA256: digest("d")}}
}

// newPairedTask is like newTask for a paired job, whose previous model has the digest e.
func newPairedTask(seed uint64, shard int) job.Task {
	t := newTask(seed, shard)
	t.Spec.Previous = &job.Previous{Model: digest("e"), Baseline: digest("f"), Values: digest("9"), Generation: 1}
	t.Job = t.Spec.ID()
	t.Data.Name, t.Baseline.Name = ShardName(t.Job, shard), BaselineName(t.Job)
	t.PreviousModel = job.Blob{Name: ModelName(digest("e")), Bytes: 20, SHA256: digest("e")}
	t.PreviousBaseline = job.Blob{Name: PreviousBaselineName(t.Job), SHA256: digest("f")}
	return t
}

func newResult(t job.Task, attempt string) job.Result {
	return job.Result{Protocol: job.Protocol, Job: t.Job, Shard: t.Shard, Rows: t.Rows, Kernel: testKernel, Worker: "w-" + attempt, Seconds: 0.5, CPU: 1, Digests: []uint64{1},
		Partial: job.Blob{Name: PartialName(t.Job, t.Shard, attempt), Bytes: 5, SHA256: digest("e")}}
}

func publish(t testing.TB, b *Bus, tasks ...job.Task) {
	t.Helper()
	for _, task := range tasks {
		if err := b.PublishTask(t.Context(), task); err != nil {
			t.Fatal(err)
		}
	}
}

func next(t testing.TB, b *Bus) *Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	d, err := b.NextTask(ctx, testKernel)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var errEnough = errors.New("enough")

// events returns the job's first n events.
func events(t testing.TB, b *Bus, jobID string, n int) (all []Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	err := b.Events(ctx, jobID, func(e Event) error {
		if all = append(all, e); len(all) == n {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatalf("%d events of %d: %v", len(all), n, err)
	}
	return all
}

func TestServerRefuses(t *testing.T) {
	taken := startServer(t, embedded.Config{Listen: "127.0.0.1:0"})
	tests := map[string]embedded.Config{
		"no folder": {Listen: "127.0.0.1:0"},
		"no port":   {StoreDir: t.TempDir(), Listen: "127.0.0.1"},
		"bad port":  {StoreDir: t.TempDir(), Listen: "127.0.0.1:65536"},
		"taken":     {StoreDir: t.TempDir(), Listen: strings.TrimPrefix(taken.URL(), "nats://")},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			if s, err := embedded.Start(c); err == nil {
				s.Shutdown()
				t.Fatal("the server started")
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("the error took %v", took)
			}
		})
	}
}

func TestConnectRefuses(t *testing.T) {
	s := startServer(t, embedded.Config{})
	for name, c := range map[string]Config{
		"nothing": {}, "both": {URL: "nats://127.0.0.1:1", Server: s}, "creds": {URL: "nats://127.0.0.1:1", Access: Access{Creds: "absent.creds"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if b, err := Connect(ctx, c); err == nil {
				b.Close()
				t.Fatal("the bus connected")
			}
		})
	}
}

func TestConnectWaitsForServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := Connect(ctx, Config{URL: "nats://127.0.0.1:1"})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, expected the context's error", err)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestSetup(t *testing.T) {
	s := startServer(t, embedded.Config{})
	done := make(chan error)
	for i := range 4 { // several coordinators at once
		b := connect(t, Config{Server: s})
		go func() {
			done <- b.Setup(t.Context(), Queue{Lease: time.Minute, Window: 10 + i, Replicas: 1}, testKernel)
		}()
	}
	for range 4 {
		must(t, <-done)
	}
	b := connect(t, Config{Server: s})
	setUp(t, b, Queue{Lease: time.Minute, Window: 10, Replicas: 1})
	for shard := range 10 {
		publish(t, b, newTask(1, shard))
	}
	// A consumer of an earlier build stays as it is where a server cannot change it.
	must(t, b.js.DeleteConsumer(t.Context(), tasksStream, consumerOf(testKernel)))
	old := consumerConfig(&testQueue, ownQueue(testKernel))
	old.MaxWaiting = 512
	_, err := b.js.CreateConsumer(t.Context(), tasksStream, old)
	must(t, err)
	setUp(t, b, Queue{Lease: 7 * time.Second, Window: 3, Replicas: 1})
	d := next(t, b)
	if d.Lease != time.Minute {
		t.Errorf("lease of %v", d.Lease)
	}
	held, err := b.subjects(t.Context(), "test", tasksStream, taskPrefix+">")
	if must(t, err); len(held) != 10 {
		t.Errorf("%d tasks of 10 are left after the window was reduced", len(held))
	}
	for _, q := range []Queue{{}, {Lease: time.Second, Window: 0, Replicas: 1}, {Lease: time.Second, Window: 1, Replicas: 2}, {Window: 1, Replicas: 1}} {
		if err := b.Setup(t.Context(), q); err == nil {
			t.Errorf("%+v was accepted", q)
		}
	}
}

// A worker that starts before any coordinator waits, logs that, and continues.
func TestWorkerWaitsForSetup(t *testing.T) {
	t.Parallel() // the test waits most of the time
	s := startServer(t, embedded.Config{})
	log, out := logged()
	worker, coordinator := connect(t, Config{Server: s, Log: log}), connect(t, Config{Server: s})
	got := make(chan int)
	go func() {
		d, err := worker.NextTask(t.Context(), testKernel)
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		got <- d.Task.Shard
	}()
	out.await(t, `"msg":"waiting"`)
	setUp(t, coordinator, testQueue)
	publish(t, coordinator, newTask(1, 7))
	if shard := <-got; shard != 7 {
		t.Errorf("got shard %d", shard)
	}
}

// After the server is restarted on the same port and folder, the bus continues.
func TestReconnect(t *testing.T) {
	long.Test(t)
	t.Parallel() // the test waits most of the time
	dir := t.TempDir()
	first := startServer(t, embedded.Config{StoreDir: dir, Listen: "127.0.0.1:0", SyncAlways: true})
	coordinator, worker := connect(t, Config{URL: first.URL()}), connect(t, Config{URL: first.URL()})
	setUp(t, coordinator, testQueue)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen, followed := make(chan int, 10), make(chan error, 1)
	go func() {
		followed <- coordinator.Events(ctx, newTask(1, 0).Job, func(e Event) error { seen <- e.Shard; return nil })
	}()
	publish(t, coordinator, newTask(1, 0), newTask(1, 1))
	d := next(t, worker)
	_, err := worker.PublishResult(ctx, newResult(d.Task, d.Attempt))
	must(t, err)
	must(t, d.Done(ctx))
	if shard := <-seen; shard != d.Task.Shard {
		t.Fatalf("result of shard %d", shard)
	}
	d = next(t, worker)

	first.Shutdown()
	published, won := make(chan error, 1), make(chan error, 1)
	go func() { published <- coordinator.PublishTask(ctx, newTask(1, 2)) }()
	go func() {
		_, err := worker.PublishResult(ctx, newResult(d.Task, d.Attempt))
		won <- errors.Join(err, d.Done(ctx))
	}()
	startServer(t, embedded.Config{StoreDir: dir, Listen: strings.TrimPrefix(first.URL(), "nats://"), SyncAlways: true})
	must(t, <-published)
	must(t, <-won)
	if shard := <-seen; shard != d.Task.Shard {
		t.Errorf("result of shard %d after the restart", shard)
	}
	if d := next(t, worker); d.Task.Shard != 2 {
		t.Errorf("task of shard %d after the restart", d.Task.Shard)
	}
	cancel()
	if err := <-followed; !errors.Is(err, context.Canceled) {
		t.Errorf("events ended with %v", err)
	}
}

// Every call that can wait ends soon after its context, whether the server runs or not.
func TestCancel(t *testing.T) {
	s := startServer(t, embedded.Config{})
	b := connect(t, Config{Server: s})
	setUp(t, b, Queue{Lease: time.Minute, Window: 2, Replicas: 1})
	publish(t, b, newTask(1, 0), newTask(1, 1))
	d := next(t, b)
	next(t, b)
	calls := map[string]func(context.Context) error{
		"NextTask":    func(ctx context.Context) error { _, err := b.NextTask(ctx, testKernel); return err },
		"PublishTask": func(ctx context.Context) error { return b.PublishTask(ctx, newTask(1, 2)) },
		"Events": func(ctx context.Context) error {
			return b.Events(ctx, newTask(1, 0).Job, func(Event) error { return nil })
		},
	}
	gone := map[string]func(context.Context) error{
		"Setup": func(ctx context.Context) error { return b.Setup(ctx, testQueue, testKernel) },
		"PublishResult": func(ctx context.Context) error {
			_, err := b.PublishResult(ctx, newResult(d.Task, d.Attempt))
			return err
		},
		"Heartbeat": d.Heartbeat,
		"Done":      d.Done,
		"Put": func(ctx context.Context) error {
			_, err := b.Put(ctx, ModelName(digest("0")), make([]byte, 1<<20))
			return err
		},
		"Get":     func(ctx context.Context) error { _, err := b.Get(ctx, d.Task.Model, 1<<20); return err },
		"Cleanup": func(ctx context.Context) error { return b.Cleanup(ctx, d.Task.Job) },
	}
	check := func(calls map[string]func(context.Context) error) {
		for name, call := range calls {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			start := time.Now()
			err := call(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("%s took %v", name, took)
			}
		}
	}
	check(calls)
	s.Shutdown()
	check(calls)
	check(gone)
	b.Close()
	for name, call := range gone {
		if err := call(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}
