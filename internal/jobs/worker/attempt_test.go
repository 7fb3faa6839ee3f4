package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/planted"
	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/shard"
	"shaver/internal/num/kernel"
	"shaver/internal/value/estimator"
)

const testJob = "0123456789abcdef0123"

// fakeBus is a bus in memory with one job and one task. A hook runs before each request
// of its name. If the hook returns an error, the request fails with it. Hooks run
// without the lock.
type fakeBus struct {
	hooks map[string]func(context.Context) error

	mu      sync.Mutex
	blobs   map[string][]byte
	over    bool               // the job is over
	result  string             // name of the partial of the last stored result; "" = no result
	results map[int]job.Result // by shard
	aside   string             // reason of the stored quarantine; "" = no quarantine
	ended   string             // how the worker last ended its task
	renewed int                // heartbeats
}

func (f *fakeBus) hook(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if h := f.hooks[name]; h != nil {
		return h(ctx)
	}
	return nil
}

// request runs the hook of the given name, and then change under the lock.
func (f *fakeBus) request(ctx context.Context, name string, change func() error) error {
	if err := f.hook(ctx, name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return change()
}

// do is like request, for a change that cannot fail.
func (f *fakeBus) do(ctx context.Context, name string, change func()) error {
	return f.request(ctx, name, func() error { change(); return nil })
}

func (f *fakeBus) GetInto(ctx context.Context, blob job.Blob, _ int64, into func(io.Reader) error) error {
	return f.request(ctx, "get "+blob.Name, func() error {
		data, ok := f.blobs[blob.Name]
		switch {
		case !ok:
			return bus.ErrNotFound
		case blobOf(data).SHA256 != blob.SHA256:
			return fault.Inputf("blob %s: %w", blob.Name, bus.ErrCorrupt)
		}
		return into(bytes.NewReader(data))
	})
}

func (f *fakeBus) Put(ctx context.Context, name string, data []byte) (job.Blob, error) {
	blob := blobOf(data)
	blob.Name = name
	return blob, f.do(ctx, "put", func() { f.blobs[name] = data })
}

func (f *fakeBus) Delete(ctx context.Context, name string) error {
	return f.do(ctx, "delete", func() { delete(f.blobs, name) })
}

func (f *fakeBus) IsOpen(ctx context.Context, _ string) (open bool, err error) {
	return open, f.do(ctx, "is open", func() { open = !f.over })
}

func (f *fakeBus) PublishResult(ctx context.Context, r job.Result) (won bool, err error) {
	return won, f.do(ctx, "publish", func() {
		_, there := f.results[r.Shard]
		if there = there || f.result != "" && len(f.results) == 0; !there { // a test sets only result
			f.result, f.results[r.Shard], won = r.Partial.Name, r, true
		}
	})
}

func (f *fakeBus) DeleteResult(ctx context.Context, _ string, shard int) error {
	return f.do(ctx, "delete result", func() { f.result = ""; delete(f.results, shard) })
}

func (f *fakeBus) DeleteQuarantine(ctx context.Context, _ string, _ int) error {
	return f.do(ctx, "delete quarantine", func() { f.aside = "" })
}

func (f *fakeBus) Heartbeat(ctx context.Context) error {
	return f.do(ctx, "heartbeat", func() { f.renewed++ })
}

func (f *fakeBus) Done(ctx context.Context) error {
	return f.do(ctx, "done", func() { f.ended = "done" })
}

func (f *fakeBus) Release(ctx context.Context, delay time.Duration) error {
	return f.do(ctx, "release", func() { f.ended = "released for " + delay.String() })
}

func (f *fakeBus) Lost(ctx context.Context, reason string) error {
	return f.do(ctx, "lost", func() { f.ended, f.aside = "lost", reason })
}

func (f *fakeBus) Quarantine(ctx context.Context, reason string, input bool) error {
	return f.do(ctx, "quarantine", func() {
		f.ended, f.aside = "quarantined", reason
		if input {
			f.ended = "quarantined for bad input"
		}
	})
}

func (f *fakeBus) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
}

// newTask returns a task of four rows and a bus that holds the blobs of the task, which
// are its model, baseline and shard.
func newTask(t *testing.T) (*fakeBus, *bus.Delivery) {
	t.Helper()
	p, err := planted.New(planted.Config{Fields: []string{"a", "b"}, FieldDims: []int{3, 4}, Informative: 1, Silent: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	var rows model.Rows
	p.Rows(&rows, 0, 4)
	data, err := shard.Encode(arrowio.RowForm{Fields: p.Fields, Sizes: p.FieldDims}, &rows)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeBus{hooks: map[string]func(context.Context) error{}, results: map[int]job.Result{}, blobs: map[string][]byte{
		"model": contentOf(t, p), "baseline": make([]byte, 4*p.Model.Players()), "shard": data,
	}}
	return f, &bus.Delivery{Try: 1, Attempt: "attempt", Lease: time.Minute, Task: job.Task{
		Job: testJob, Shard: 5, Rows: 4,
		Spec:  job.Spec{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}, Kernel: kernel.Name()},
		Model: f.reference("model"), Baseline: f.reference("baseline"), Data: f.reference("shard"),
	}}
}

func (f *fakeBus) reference(name string) job.Blob {
	blob := blobOf(f.blobs[name])
	blob.Name = name
	return blob
}

// malformed stores malformed bytes under the name and makes ref refer to them.
func (f *fakeBus) malformed(name string, ref *job.Blob) {
	f.blobs[name] = []byte("malformed")
	*ref = f.reference(name)
}

// fakeAttempt returns an attempt at a task of f.
func fakeAttempt(c *Config, f *fakeBus, d *bus.Delivery) *attempt {
	return &attempt{Config: c, d: d, lease: f, blobs: f, jobs: f, log: zap.NewNop(), steps: &atomic.Int64{}}
}

// alone runs an attempt on a worker that holds nothing.
func alone(ctx context.Context, a *attempt) error {
	w := runner{Config: a.Config, steps: a.steps}
	return w.run(ctx, a)
}

var errWorld = errors.New("the server is on fire")

func fails(context.Context) error { return errWorld }

// A task can end in each of these ways. The test checks the reported outcome, how the
// worker ends the task on the bus, and what is left there.
func TestEndings(t *testing.T) {
	type world struct {
		*fakeBus
		d    *bus.Delivery
		stop context.CancelFunc // ends the worker
	}
	const mine = "partial/" + testJob + "/5/attempt"
	const lastTry = 8
	for _, c := range []struct {
		name    string
		arrange func(w *world)
		want    Outcome
		ended   string // how the worker ended the task; "" = it did not
		aside   string // part of the quarantine's reason; "" = no quarantine
		result  string // stored result of the shard
	}{
		{name: "done", want: Done, ended: "done", result: mine},
		{name: "done and not acknowledged", arrange: func(w *world) { w.hooks["done"] = fails }, want: Done, result: mine},
		{name: "another worker was faster", arrange: func(w *world) { w.result = "another" }, want: Done, ended: "done", result: "another"},
		{name: "lease lost", arrange: func(w *world) {
			w.hooks["heartbeat"] = func(context.Context) error { return bus.ErrLeaseLost }
			w.hooks["get shard"] = wait(2 * time.Minute)
		}, want: Done, ended: "done", result: mine},

		{name: "over before computing", arrange: func(w *world) { w.end() }, want: Over, ended: "done"},
		{name: "over while computing", arrange: func(w *world) {
			w.hooks["get shard"] = func(ctx context.Context) error {
				w.end()
				<-ctx.Done()
				return ctx.Err()
			}
		}, want: Over, ended: "done"},
		{name: "over while storing", arrange: func(w *world) {
			w.hooks["put"] = func(context.Context) error { w.end(); return nil }
		}, want: Over, ended: "done"},
		{name: "over while storing fails", arrange: func(w *world) {
			w.hooks["publish"] = func(context.Context) error { w.end(); return errWorld }
		}, want: Over, ended: "done"},
		{name: "over after storing", arrange: func(w *world) {
			asked := 0
			w.hooks["is open"] = func(context.Context) error {
				if asked++; asked == 2 {
					w.end()
				}
				return nil
			}
		}, want: Over, ended: "done"},
		{name: "over with a blob deleted", arrange: func(w *world) { w.end(); delete(w.blobs, "shard") }, want: Over, ended: "done"},
		{name: "over while set aside", arrange: func(w *world) {
			w.malformed("shard", &w.d.Task.Data)
			w.hooks["quarantine"] = func(context.Context) error { w.end(); return nil }
		}, want: Over, ended: "quarantined for bad input"},

		{name: "the worker ends while computing", arrange: func(w *world) {
			w.hooks["get shard"] = func(ctx context.Context) error { w.stop(); return ctx.Err() }
		}, want: Abandoned, ended: "released for 0s"},
		{name: "the worker ends while setting aside", arrange: func(w *world) {
			w.malformed("shard", &w.d.Task.Data)
			w.hooks["quarantine"] = func(ctx context.Context) error { w.stop(); return ctx.Err() }
		}, want: Abandoned},
		{name: "the worker ends after setting aside", arrange: func(w *world) {
			w.malformed("shard", &w.d.Task.Data)
			w.hooks["quarantine"] = func(context.Context) error { w.stop(); return nil }
		}, want: Quarantined, ended: "quarantined for bad input", aside: "shard"},
		{name: "the worker ends while asking for the job", arrange: func(w *world) {
			w.malformed("shard", &w.d.Task.Data)
			w.hooks["is open"] = func(ctx context.Context) error {
				if w.aside != "" {
					w.stop()
				}
				return ctx.Err()
			}
		}, want: Quarantined, ended: "quarantined for bad input", aside: "shard"},
		{name: "the worker ends while storing", arrange: func(w *world) {
			w.hooks["put"] = func(ctx context.Context) error { w.stop(); return ctx.Err() }
		}, want: Abandoned, ended: "released for 0s"},

		{name: "no model", arrange: func(w *world) { delete(w.blobs, "model") }, want: Lost, ended: "lost", aside: "not found"},
		{name: "no baseline", arrange: func(w *world) { delete(w.blobs, "baseline") }, want: Lost, ended: "lost", aside: "not found"},
		{name: "no shard", arrange: func(w *world) { delete(w.blobs, "shard") }, want: Lost, ended: "lost", aside: "not found"},
		{name: "corrupt shard", arrange: func(w *world) { w.blobs["shard"] = []byte("corrupt") }, want: Lost, ended: "lost", aside: "blob is corrupt"},
		{name: "rows not in place", arrange: func(w *world) { w.d.Task.Data = job.Blob{}; delete(w.blobs, "shard") }, want: Lost, ended: "lost", aside: "cannot read it in place"},
		{name: "lost on the last try", arrange: func(w *world) { delete(w.blobs, "shard"); w.d.Try = lastTry }, want: Lost, ended: "lost", aside: "not found"},
		{name: "lost and not set aside", arrange: func(w *world) { delete(w.blobs, "shard"); w.hooks["lost"] = fails }, want: Failed},

		{name: "malformed model", arrange: func(w *world) { w.malformed("model", &w.d.Task.Model) }, want: Quarantined, ended: "quarantined for bad input", aside: "model"},
		{name: "malformed baseline", arrange: func(w *world) { w.malformed("baseline", &w.d.Task.Baseline) }, want: Quarantined, ended: "quarantined for bad input", aside: "baseline"},
		{name: "malformed shard", arrange: func(w *world) { w.malformed("shard", &w.d.Task.Data) }, want: Quarantined, ended: "quarantined for bad input", aside: "shard"},
		{name: "unknown estimator", arrange: func(w *world) { w.d.Task.Spec.Estimator = "guess" }, want: Quarantined, ended: "quarantined for bad input", aside: "guess"},
		{name: "failed on the last try", arrange: func(w *world) { w.hooks["put"] = fails; w.d.Try = lastTry }, want: Quarantined, ended: "quarantined", aside: "on fire"},
		{name: "malformed and not set aside", arrange: func(w *world) {
			w.malformed("shard", &w.d.Task.Data)
			w.hooks["quarantine"] = fails
		}, want: Failed},

		{name: "failed", arrange: func(w *world) { w.hooks["get model"] = fails }, want: Failed, ended: "released for 1s"},
		{name: "failed to store", arrange: func(w *world) { w.hooks["put"] = fails }, want: Failed, ended: "released for 1s"},
		{name: "another kernel", arrange: func(w *world) { w.d.Task.Spec.Kernel = "abacus" }, want: Failed, ended: "released for 1s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				f, d := newTask(t)
				if c.arrange != nil {
					c.arrange(&world{f, d, stop})
				}
				var blobs []string // blobs that must exist afterwards
				for _, ref := range []job.Blob{d.Task.Model, d.Task.Baseline, d.Task.Data} {
					if data, ok := f.blobs[ref.Name]; ok && blobOf(data).SHA256 == ref.SHA256 { // the worker deletes a corrupt blob
						blobs = append(blobs, ref.Name)
					}
				}
				if c.result == mine {
					blobs = append(blobs, mine)
				}
				var outcomes []Outcome
				config := &Config{Name: "w", Threads: 1, Models: new(Models), Log: zap.NewNop(), OnTask: func(task *job.Task, o Outcome, try int, _ time.Duration) {
					if task != &d.Task || try != d.Try {
						t.Errorf("reported try %d of %+v", try, task)
					}
					outcomes = append(outcomes, o)
				}}
				a := fakeAttempt(config, f, d)
				core, said := observer.New(zap.WarnLevel)
				a.log = zap.New(core)
				if err := alone(ctx, a); !errors.Is(err, ctx.Err()) {
					t.Errorf("error %v, expected the context's error %v", err, ctx.Err())
				}
				if all := said.FilterLevelExact(zap.WarnLevel).All(); ctx.Err() != nil && len(all) > 0 {
					t.Errorf("a worker that was ended warns: %v", all)
				}
				if !slices.Equal(outcomes, []Outcome{c.want}) {
					t.Errorf("outcomes %q, want %q", outcomes, c.want)
				}
				if f.ended != c.ended {
					t.Errorf("the task was %q, want %q", f.ended, c.ended)
				}
				if (f.aside == "") != (c.aside == "") || !strings.Contains(f.aside, c.aside) {
					t.Errorf("quarantine %q, want %q", f.aside, c.aside)
				}
				if f.result != c.result {
					t.Errorf("result %q, want %q", f.result, c.result)
				}
				for _, name := range blobs {
					if f.blobs[name] == nil {
						t.Errorf("blob %s is missing", name)
					}
				}
				if len(f.blobs) != len(blobs) {
					t.Errorf("%d blobs, want %q", len(f.blobs), blobs)
				}
			})
		})
	}
}

// wait returns a hook that takes the given time of the test's clock.
func wait(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A lease is renewed as long as the task makes progress, and not while the task hangs.
func TestHeartbeat(t *testing.T) {
	for name, c := range map[string]struct {
		steps   bool
		renewed int
	}{
		"makes progress": {true, 40}, // four times in each of ten leases
		"hangs":          {false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, d := newTask(t)
				a := fakeAttempt(&Config{Threads: 1, Models: new(Models), Log: zap.NewNop()}, f, d)
				f.hooks["get shard"] = func(ctx context.Context) error {
					for range 100 {
						if c.steps {
							a.steps.Add(1)
						}
						if err := wait(d.Lease / 10)(ctx); err != nil {
							return err
						}
					}
					return wait(time.Nanosecond)(ctx) // so that the last tick comes first
				}
				if err := alone(t.Context(), a); err != nil || f.result == "" {
					t.Fatalf("result %q, %v", f.result, err)
				}
				if f.renewed != c.renewed {
					t.Errorf("%d heartbeats, want %d", f.renewed, c.renewed)
				}
			})
		})
	}
}

// One task at a time fetches a model. The others wait, count steps while they wait,
// stop waiting if they are cancelled, and then share the model.
func TestModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := newTask(t)
		fetched := 0
		f.hooks["get model"] = func(ctx context.Context) error { fetched++; return wait(time.Minute)(ctx) }
		var models Models
		type answer struct {
			m   *model.Model
			err error
		}
		get := func(ctx context.Context, steps *atomic.Int64) <-chan answer {
			to := make(chan answer, 1)
			go func() {
				m, err := models.get(ctx, f, d.Task.Model, job.Blob{}, steps)
				to <- answer{m, err}
			}()
			synctest.Wait()
			return to
		}
		cancelled, cancel := context.WithCancel(t.Context())
		var steps [3]atomic.Int64
		first, second, third := get(t.Context(), &steps[0]), get(t.Context(), &steps[1]), get(cancelled, &steps[2])
		<-time.After(30 * time.Second)
		cancel()
		if got := <-third; !errors.Is(got.err, context.Canceled) {
			t.Errorf("expected the cancelled caller to end with context.Canceled, got %v", got.err)
		}
		if n := steps[1].Load(); n < 10 {
			t.Errorf("%d steps while waiting", n)
		}
		a, b := <-first, <-second
		if a.err != nil || b.err != nil || a.m == nil || a.m != b.m || fetched != 1 {
			t.Errorf("models %p and %p after %d fetches: %v, %v", a.m, b.m, fetched, a.err, b.err)
		}
	})
}
