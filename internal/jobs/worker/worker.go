// Package worker computes tasks: task -> shard -> partial -> result. A worker keeps
// nothing between tasks except the models it has read and, for a short time, the sums of the
// tasks that it has computed.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/num/kernel"
	"shaver/internal/value/shapley"
)

// Config says how to run a worker.
type Config struct {
	Bus  *bus.Bus
	Name string // shown in results and logs
	// Kernels are the kernels whose tasks the worker computes; nil = the one in use. With
	// several, nothing else may compute in the process, because a task selects its kernel.
	Kernels []string
	Threads int                  // number of goroutines that compute one task
	Models  *Models              // may be shared by the workers of a process
	Store   *Store               // datasets whose rows are read in place; nil = no store
	CPU     func() time.Duration // CPU time of this process so far; nil = not reported in results
	// Hold is the time for which the worker adds up tasks before it stores their partial, but at
	// most one lease; 0 = it stores the partial of each task.
	Hold   time.Duration
	OnRows func(rows int) // called as rows are computed, from any goroutine; nil = no call
	// OnTask is called with the outcome when this worker is finished with a task; nil =
	// no call.
	OnTask func(task *job.Task, outcome Outcome, try int, took time.Duration)
	// Faulty changes the game that a task is computed with, as faulty memory would. Only tests set it.
	Faulty func(*job.Task, *shapley.Game)
	Log    *zap.Logger
}

// DefaultHold is the usual Hold of workers of a NATS server in another process.
const DefaultHold = time.Minute

// Outcome says how a worker finished with a task.
type Outcome string

// The outcomes.
const (
	Done        Outcome = "done"        // a result is stored, by this worker or another
	Over        Outcome = "over"        // the job is over, so the task is not needed
	Abandoned   Outcome = "abandoned"   // the worker had to end, and another worker gets the task
	Lost        Outcome = "lost"        // set aside until the coordinator has stored the task's data again
	Quarantined Outcome = "quarantined" // set aside for good
	Failed      Outcome = "failed"      // the task will be tried again
)

// Run computes one task after the other. If ctx ends, Run abandons its current task and
// returns ctx's error. If the worker finds that it computes wrong, Run returns an error. If drain is closed, Run first finishes the task and returns nil. If it is
// then not connected to the server for goneAfter, it abandons the task.
func Run(ctx context.Context, drain <-chan struct{}, c Config) error {
	ctx, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-drain:
			stop()
			if c.serverGone(ctx) {
				abandon(errGone)
			}
		case <-waiting.Done():
		}
	}()
	err := run(ctx, waiting, &c)
	if context.Cause(ctx) == errGone {
		return nil
	}
	return err
}

// goneAfter is how long a worker that is to end stays without a connection to the server.
var goneAfter = 10 * time.Second

// errGone means that a worker that is to end cannot reach the server.
var errGone = errors.New("the server is gone")

// serverGone returns true when there was no connection to the server for goneAfter, and false
// when ctx ends.
func (c *Config) serverGone(ctx context.Context) bool {
	tick := time.NewTicker(goneAfter / 20)
	defer tick.Stop()
	var since time.Time // zero = connected
	for {
		switch err := c.Bus.Ready(); {
		case err == nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= goneAfter:
			c.Log.Warn("ending without storing what was computed, because the server is gone; other workers compute it again", zap.Duration("since", goneAfter), zap.Error(err))
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// run computes tasks until ctx or waiting ends. When only waiting ends, it finishes its task first.
func run(ctx, waiting context.Context, c *Config) error {
	w := runner{Config: c, steps: &atomic.Int64{}, kernels: slices.Clone(c.Kernels)}
	if len(w.kernels) == 0 {
		w.kernels = []string{kernel.Name()}
	}
	for _, name := range slices.Backward(w.kernels) { // ends with the preferred one
		if len(w.kernels) > 1 {
			kernel.Use(name)
		}
		w.proved = time.Time{}
		if err := w.prove(ctx); err != nil {
			return err
		}
	}
	for {
		if err := w.prove(ctx); err != nil {
			return err
		}
		d, err := w.next(waiting)
		if d == nil {
			if flushed := w.group.flush(ctx); flushed != nil {
				return flushed
			}
			switch {
			case err == nil:
				continue
			case waiting.Err() != nil && ctx.Err() == nil:
				return nil
			}
			return err
		}
		if slices.Contains(d.Task.Wrong, c.Name) {
			_ = d.Release(ctx, 0) // if this fails, the lease expires
			return w.giveBack(ctx, errWrong)
		}
		if v := d.Task.Verify; v != nil && slices.Contains(v.Workers, c.Name) && d.Lease > 0 && d.Try <= others {
			_ = d.Release(ctx, otherWithin<<d.Try)
			continue
		}
		w.use(d.Task.Spec.Kernel)
		quiet := context.AfterFunc(waiting, func() {
			if ctx.Err() == nil {
				c.Log.Info("ending after the current task; a second signal ends at once", zap.String("job", d.Task.Job), zap.Int("shard", d.Task.Shard))
			}
		})
		err = w.run(ctx, newAttempt(c, d, w.steps))
		quiet()
		if err != nil {
			return err
		}
	}
}

// errWrong ends a worker that others contradict.
var errWrong = fmt.Errorf("%w (other workers agree on another result, or it had different results for the same rows)", errFaulty)

// A worker gives a task that verifies its own result back others times, the first time for twice otherWithin and then for twice as
// long each time, so that another worker can take it. Without another worker it computes the task itself.
const (
	others      = 5
	otherWithin = 50 * time.Millisecond
)

// runner is a worker with the tasks that it holds.
type runner struct {
	*Config
	steps   *atomic.Int64
	group   group
	kernels []string // those of the tasks to ask for, the preferred one first
	proved  time.Time
}

// errFaulty ends a worker whose results are wrong. Its tasks go to other workers.
var errFaulty = errors.New("this machine computes wrong, or its memory is faulty: replace it")

// proveEvery is the time between two proofs that the worker computes right.
const proveEvery = 5 * time.Minute

var proof = shapley.Prove // a test replaces it

// prove computes a known row if it is time, and returns errFaulty if the result is wrong. The worker then gives back the tasks
// that it holds, because what it has computed may be wrong, too.
func (w *runner) prove(ctx context.Context) error {
	if time.Since(w.proved) < proveEvery {
		return nil
	}
	w.proved = time.Now()
	err := proof(kernel.Name())
	if err == nil {
		return nil
	}
	return w.giveBack(ctx, fmt.Errorf("%w (%v)", errFaulty, err))
}

// giveBack gives back the tasks that the worker holds, because of err, and returns err.
func (w *runner) giveBack(ctx context.Context, err error) error {
	if len(w.group.attempts) > 0 {
		finish(ctx, w.group.attempts, err)
	}
	return err
}

// use selects the kernel of a task. The others come first when the worker asks again, so that
// the jobs of one kernel do not hold up those of another.
func (w *runner) use(name string) {
	if len(w.kernels) > 1 && kernel.Use(name) {
		w.kernels = append(slices.DeleteFunc(w.kernels, func(k string) bool { return k == name }), name)
	}
}

// next returns the next task. If the worker holds tasks, it asks for more with their kernel, and
// returns nil if no other task is stored.
func (w *runner) next(ctx context.Context) (*bus.Delivery, error) {
	if len(w.group.attempts) > 0 {
		return w.Bus.TryTask(ctx, kernel.Name())
	}
	return w.Bus.NextTask(ctx, w.kernels...)
}

// run computes a task, and stores what the worker holds if it is time. It returns an error only
// if the worker must end.
func (w *runner) run(ctx context.Context, a *attempt) error {
	a.begin(ctx)
	g := &w.group
	if a.d.Task.Verify != nil {
		c, err := a.compute()
		if err == nil {
			err = (&group{attempts: []*attempt{a}, computed: c}).store(ctx)
		}
		if err = a.finish(ctx, err); err != nil {
			return w.giveBack(ctx, err)
		}
		if len(g.attempts) > 0 && g.full() {
			return g.flush(ctx)
		}
		return nil
	}
	if !g.accepts(&a.d.Task) {
		if err := g.flush(ctx); err != nil {
			return cmp.Or(a.finish(ctx, err), err)
		}
	}
	c, err := a.compute()
	if err != nil {
		err = a.finish(ctx, err)
		if ctx.Err() != nil {
			err = errors.Join(err, g.flush(ctx))
		}
		return err
	}
	g.add(a, c)
	if g.full() {
		return g.flush(ctx)
	}
	return nil
}
