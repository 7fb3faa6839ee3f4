package worker

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/shard"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// crowd is a worker, and tasks of one job that may be combined.
type crowd struct {
	*testing.T
	*fakeBus
	runner   runner
	tasks    []*bus.Delivery
	outcomes map[int]Outcome // by shard
}

func newCrowd(t *testing.T, tasks int) *crowd {
	f, d := newTask(t)
	c := &crowd{T: t, fakeBus: f, outcomes: map[int]Outcome{}}
	d.Task.Combine = true
	for shard := range tasks {
		one := *d
		one.Task.Shard, one.Attempt = tasks-shard, "try"+string(rune('A'+shard)) // the last one comes first
		c.tasks = append(c.tasks, &one)
	}
	config := &Config{Name: "w", Threads: 1, Hold: time.Hour, Models: new(Models), Log: zap.NewNop(), OnTask: func(task *job.Task, o Outcome, _ int, _ time.Duration) { c.outcomes[task.Shard] = o }}
	c.runner = runner{Config: config, steps: fakeAttempt(config, f, d).steps}
	return c
}

func (c *crowd) run(i int) {
	c.Helper()
	a := fakeAttempt(c.runner.Config, c.fakeBus, c.tasks[i])
	a.steps = c.runner.steps
	if err := c.runner.run(c.Context(), a); err != nil {
		c.Fatal(err)
	}
}

func (c *crowd) flush(ctx context.Context) error { return c.runner.group.flush(ctx) }

// partials returns the names of the stored partials.
func (c *crowd) partials() (names []string) {
	for name := range c.blobs {
		if len(name) > 8 && name[:8] == "partial/" {
			names = append(names, name)
		}
	}
	return names
}

// A worker that computes tasks with Verify, which it does not combine, stores in time what it holds.
func TestVerifyWhileHolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 2)
		c.runner.Hold = time.Minute
		c.run(0)
		c.tasks[1].Task.Verify = &job.Verify{Workers: []string{"other"}}
		c.tasks[1].Task.Combine = false
		time.Sleep(time.Minute)
		c.run(1)
		if verified := c.results[1]; len(c.partials()) != 1 || verified.Partial.Name != "" || len(verified.Digests) != 1 || c.results[2].Partial.Name == "" {
			t.Errorf("partials %q, results %+v", c.partials(), c.results)
		}
	})
}

// A worker stores one partial for several tasks, which is that of all their rows. Each shard has a
// result that names it.
func TestCombinedTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 3)
		for i := range c.tasks {
			c.run(i)
		}
		if len(c.results) != 0 || len(c.outcomes) != 0 {
			t.Fatalf("results %v and outcomes %v before the tasks are stored", c.results, c.outcomes)
		}
		if err := c.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if names := c.partials(); !slices.Equal(names, []string{"partial/" + testJob + "/1/tryC"}) {
			t.Fatalf("partials %q", names)
		}
		for shard := 1; shard <= 3; shard++ {
			r := c.results[shard]
			if c.outcomes[shard] != Done || r.Shard != shard || r.Rows != 12 || !slices.Equal(r.Shards, []int{1, 2, 3}) || r.Partial.Name != c.partials()[0] {
				t.Errorf("shard %d: outcome %q, result %+v", shard, c.outcomes[shard], r)
			}
		}
		g := game(t, c.fakeBus, "model", "baseline")
		got, err := arrowio.DecodePartial(c.blobs[c.partials()[0]], g.Model.Shape(), tally.Form{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := shard.Open(c.blobs["shard"], &g.Model.Architecture, 4)
		if err != nil {
			t.Fatal(err)
		}
		one, err := shapley.Estimate(t.Context(), g, shapley.Options{Options: c.tasks[0].Task.Spec.TaskOptions()}, rows, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := *one
		for range 2 {
			sum := tally.Combine(&want, one)
			want = *sum
		}
		if !reflect.DeepEqual(got, &want) {
			t.Errorf("partial %+v, want %+v", got, &want)
		}
	})
}

// What a worker holds is stored before a task that it cannot add, and when it has been held for
// too long.
func TestWhatIsNotCombined(t *testing.T) {
	for name, c := range map[string]struct {
		arrange func(c *crowd)
		stored  int // results that are stored when the second task is computed
	}{
		"nothing":          {func(*crowd) {}, 0},
		"another job":      {func(c *crowd) { c.tasks[1].Task.Job = "00000000000000000000" }, 1},
		"the same shard":   {func(c *crowd) { c.tasks[1].Task.Shard = c.tasks[0].Task.Shard }, 1},
		"not combined":     {func(c *crowd) { c.tasks[0].Task.Combine = false }, 1},
		"nor the second":   {func(c *crowd) { c.tasks[1].Task.Combine = false }, 2},
		"many rows":        {func(c *crowd) { c.tasks[1].Task.Rows = 1 << 31 }, 1},
		"malformed second": {func(c *crowd) { c.malformed("other", &c.tasks[1].Task.Data) }, 0},
		"slow":             {func(c *crowd) { c.hooks["get shard"] = wait(time.Minute / 2 * 11 / 10) }, 2},
		"held for nothing": {func(c *crowd) { c.runner.Hold = 0 }, 2},
		"too slow":         {func(c *crowd) { c.hooks["get shard"] = wait(time.Minute + time.Second) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCrowd(t, 2)
				c.arrange(w)
				w.run(0)
				w.run(1)
				if len(w.results) != c.stored {
					t.Errorf("%d results are stored, want %d", len(w.results), c.stored)
				}
				if err := w.flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// The tasks that a worker holds end together.
func TestEndingsOfCombinedTasks(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	ending, endLate := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		arrange  func(c *crowd)
		ctx      context.Context
		outcome  Outcome
		results  int
		partials int
	}{
		"another worker was faster":     {func(c *crowd) { c.results[1] = job.Result{} }, nil, Done, 2, 1},
		"other workers were faster":     {func(c *crowd) { c.results[1], c.results[2] = job.Result{}, job.Result{} }, nil, Done, 2, 0},
		"the job is over":               {func(c *crowd) { c.end() }, nil, Over, 0, 0},
		"over while the last is stored": {func(c *crowd) { c.hooks["publish"] = func(context.Context) error { c.end(); return nil } }, nil, Over, 0, 0},
		"the worker ends, too": {func(c *crowd) {
			c.hooks["publish"] = func(context.Context) error { c.end(); return nil }
			c.hooks["delete"] = func(context.Context) error { endLate(); return nil }
		}, ending, Over, 0, 0},
		"failed":          {func(c *crowd) { c.hooks["put"] = fails }, nil, Failed, 0, 0},
		"the worker ends": {func(*crowd) {}, ended, Abandoned, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCrowd(t, 2)
				w.run(0)
				w.run(1)
				c.arrange(w)
				ctx := t.Context()
				if c.ctx != nil {
					ctx = c.ctx
				}
				if err := w.flush(ctx); (err != nil) != (c.outcome == Abandoned) {
					t.Fatal(err)
				}
				if len(w.results) != c.results || len(w.partials()) != c.partials {
					t.Errorf("%d results and %d partials are stored, want %d and %d", len(w.results), len(w.partials()), c.results, c.partials)
				}
				for shard := 1; shard <= 2; shard++ {
					if w.outcomes[shard] != c.outcome {
						t.Errorf("shard %d: outcome %q, want %q", shard, w.outcomes[shard], c.outcome)
					}
				}
			})
		})
	}
}

// If the server has lost what it stored and answers no acknowledgement, the worker waits once for
// all tasks that it holds, and says once what happened.
func TestServerLosesItsStore(t *testing.T) {
	for name, c := range map[string]struct {
		lost bool // the job, too
		want string
	}{
		"the job is lost":    {true, "it has lost what it stored"},
		"the tasks are lost": {false, "not acknowledged"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCrowd(t, 6)
				core, logged := observer.New(zap.InfoLevel)
				w.runner.Log = zap.New(core)
				w.hooks["done"] = func(ctx context.Context) error { // as bus.Delivery.Done, which waits for a lease
					short, cancel := context.WithTimeout(ctx, time.Minute)
					defer cancel()
					<-short.Done()
					return short.Err()
				}
				for i := range w.tasks {
					w.run(i)
				}
				if c.lost {
					w.end()
				}
				begun := time.Now()
				if err := w.flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); took > time.Minute+time.Second {
					t.Errorf("the worker waited %v for 6 tasks, expected at most one lease", took)
				}
				all := logged.All()
				if len(all) != 1 || all[0].Level != zap.WarnLevel || !strings.Contains(all[0].Message, c.want) || len(all[0].ContextMap()["shards"].([]any)) != 6 {
					t.Errorf("log %v, expected one warning with %q and six shards", all, c.want)
				}
			})
		})
	}
}
