// Package worker computes tasks: task -> shard -> partial -> result. A worker
// keeps nothing but the models it has read.
package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"shaver/internal/arrowio"
	"shaver/internal/baseline"
	"shaver/internal/bus"
	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/kernel"
	"shaver/internal/model"
	"shaver/internal/shapley"
	"shaver/internal/shard"
)

// Config is what a worker needs.
type Config struct {
	Bus     *bus.Bus
	Name    string               // for people, in results and logs
	Threads int                  // goroutines that compute one task
	Models  *Models              // may be shared by the workers of a process
	Store   *Store               // datasets whose rows are read in place; nil = none
	CPU     func() time.Duration // CPU time of this process so far; nil = somebody else counts it
	OnRows  func(rows int)       // called as rows are computed, from any goroutine; nil = not
	// OnTask is called when a task has left this worker, with how; nil = not.
	OnTask func(task *job.Task, outcome Outcome, try int, took time.Duration)
	Log    *zap.Logger
}

// Outcome is how a task left a worker.
type Outcome string

// The outcomes.
const (
	Done        Outcome = "done"        // its result is stored, or another worker's was
	Over        Outcome = "over"        // its job is
	Abandoned   Outcome = "abandoned"   // this worker had to end
	Quarantined Outcome = "quarantined" // set aside for good
	Failed      Outcome = "failed"      // it will be tried again
)

// The most that a reference may claim before anything is read.
const (
	maxModelBytes = 64 << 30
	maxShardBytes = 4 << 30
)

// Run computes one task after the other until ctx ends, which abandons the task
// in work, or drain is closed, which finishes it first. It returns nil when it
// was drained, ctx's error when it was cancelled.
func Run(ctx context.Context, drain <-chan struct{}, c Config) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-drain:
			stop()
		case <-waiting.Done():
		}
	}()
	for {
		d, err := c.Bus.NextTask(waiting, kernel.Name())
		if err != nil {
			if waiting.Err() != nil && ctx.Err() == nil {
				return nil
			}
			return err
		}
		quiet := context.AfterFunc(waiting, func() {
			if ctx.Err() == nil {
				c.Log.Info("leaving after the task in work; a second signal leaves at once", zap.String("job", d.Task.Job), zap.Int("shard", d.Task.Shard))
			}
		})
		err = c.task(ctx, d)
		quiet()
		if err != nil {
			return err
		}
	}
}

// task computes one task and sees it to its end. It returns an error only when
// the worker must end.
func (c *Config) task(ctx context.Context, d *bus.Delivery) error {
	log := c.Log.With(zap.String("job", d.Task.Job), zap.Int("shard", d.Task.Shard), zap.Int("try", d.Try))
	outcome, begun := Done, time.Now()
	if c.OnTask != nil {
		defer func() { c.OnTask(&d.Task, outcome, d.Try, time.Since(begun)) }()
	}
	var steps atomic.Int64 // grows as the task gets on
	computing, stop := context.WithCancelCause(ctx)
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		c.beat(computing, stop, d, &steps, log)
	}()
	log.Debug("task begun", zap.Int64("rows", d.Task.Rows))
	done, err := c.compute(computing, d, &steps)
	if err == nil {
		err = c.store(ctx, d, done, log)
	}
	over := errors.Is(err, errOver) || errors.Is(context.Cause(computing), errOver)
	stop(nil)
	<-beating
	switch {
	case over:
		outcome = Over
		log.Info("the job is over: nobody waits for its task")
		_ = d.Done(ctx) // it is deleted already, or will be
		return nil
	case err == nil:
		if err := d.Done(ctx); err != nil {
			log.Warn("task done, but not acknowledged: it may be computed again in vain", zap.Error(err))
		}
		return nil
	case ctx.Err() != nil:
		outcome = Abandoned
		release(d, 0)
		return ctx.Err()
	case errors.Is(err, errLost):
		log.Warn("the task waits for what it needs", zap.Error(err))
		c.aside(ctx, d, log, d.Lost(ctx, err.Error()))
		return nil
	case fault.IsInput(err) || d.Last():
		outcome = Quarantined
		log.Error("task set aside", zap.Error(err))
		c.aside(ctx, d, log, d.Quarantine(ctx, err.Error(), fault.IsInput(err)))
		return nil
	default:
		outcome = Failed
		log.Warn("task failed, it will be tried again", zap.Error(err))
		release(d, time.Second)
		return nil
	}
}

// aside looks after a task that was set aside, or was not: err says so. What is
// stored of a job that is over would stay for ever.
func (c *Config) aside(ctx context.Context, d *bus.Delivery, log *zap.Logger, err error) {
	if err != nil {
		log.Warn("cannot set the task aside: it comes again", zap.Error(err))
	}
	open, err := c.open(ctx, d.Task.Job, 0)
	if err == nil && !open {
		err = c.Bus.DeleteQuarantine(ctx, d.Task.Job, d.Task.Shard)
	}
	if err != nil {
		log.Warn("a quarantine may stay though its job is over", zap.Error(err))
	}
}

// errLost says that a blob which a task needs is missing or corrupt, or that its
// rows, which should be in the store, are.
var errLost = errors.New("it has to be stored again")

// lost looks at the error of reading a blob that a task needs. One that is
// corrupt is deleted, so that the coordinator can store it again: that is errLost,
// and no bad input.
func (c *Config) lost(ctx context.Context, t *job.Task, blob job.Blob, err error) error {
	corrupt := errors.Is(err, bus.ErrCorrupt)
	if !corrupt && !errors.Is(err, bus.ErrNotFound) && !bus.IsGone(err) {
		return err
	}
	if open, err := c.open(ctx, t.Job, 0); err != nil {
		return err
	} else if !open {
		return errOver
	}
	if corrupt {
		if err := c.Bus.Delete(ctx, blob.Name); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %v", errLost, err)
}

// aMoment is what a worker that ends takes for tidying up.
const aMoment = 2 * time.Second

// release gives a task back, unless the lease is in doubt. The worker may be
// ending, so that it has its own deadline.
func release(d *bus.Delivery, delay time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), aMoment)
	defer cancel()
	_ = d.Release(ctx, delay) // without it the lease runs out
}

// errOver ends the computing of a task whose job is over.
var errOver = errors.New("the job is over")

// beat renews the lease as long as the task gets on: a computation that hangs
// goes to another worker. It stops one whose job is over.
func (c *Config) beat(ctx context.Context, stop context.CancelCauseFunc, d *bus.Delivery, steps *atomic.Int64, log *zap.Logger) {
	tick := time.NewTicker(d.Lease / 4)
	defer tick.Stop()
	for last := int64(-1); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if open, err := c.open(ctx, d.Task.Job, d.Lease/4); err == nil && !open {
			stop(errOver)
			return
		}
		if now := steps.Load(); now == last {
			continue
		} else {
			last = now
		}
		if err := d.Heartbeat(ctx); errors.Is(err, bus.ErrLeaseLost) {
			log.Warn("lease lost: another worker may compute the task too")
			return
		}
	}
}

// compute runs the task. Bad bytes are bad input, which no other try would cure.
func (c *Config) compute(ctx context.Context, d *bus.Delivery, steps *atomic.Int64) (*computed, error) {
	t := &d.Task
	if name := kernel.Name(); t.Spec.Kernel != name { // not with the subject of its kernel
		return nil, fmt.Errorf("the job is computed by kernel %s, this worker has %s", t.Spec.Kernel, name)
	}
	game, err := c.game(ctx, t, steps)
	if err != nil {
		return nil, err
	}
	steps.Add(1)
	rows, err := c.rows(ctx, t, &game.Model.Architecture, steps)
	if err != nil {
		return nil, err
	}
	steps.Add(1)

	start, cpu := time.Now(), time.Duration(0)
	if c.CPU != nil {
		cpu = c.CPU()
	}
	options := shapley.Options{Options: t.Spec.TaskOptions(), Seed: t.Spec.Seed, First: t.Pass}
	partial, err := shapley.Estimate(ctx, game, options, rows, c.Threads, func(n int) {
		steps.Add(int64(n))
		if c.OnRows != nil {
			c.OnRows(n)
		}
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fault.Inputf("%w", err)
	}
	var encoded bytes.Buffer
	if err := arrowio.EncodePartial(&encoded, partial); err != nil {
		return nil, err
	}
	result := &job.Result{Job: t.Job, Shard: t.Shard, Rows: t.Rows, Kernel: t.Spec.Kernel, Worker: c.Name, Seconds: time.Since(start).Seconds()}
	if c.CPU != nil {
		result.CPU = (c.CPU() - cpu).Seconds()
	}
	steps.Add(1)
	return &computed{result, encoded.Bytes()}, nil
}

// computed is a task's partial, and its result but for the reference to that.
type computed struct {
	result  *job.Result
	partial []byte
}

// store stores what was computed. What is stored of a job that is over would stay
// for ever: it looks before, and after, as the job's cleaning up may have gone by
// in between. So it is not to be interrupted when the job ends.
func (c *Config) store(ctx context.Context, d *bus.Delivery, done *computed, log *zap.Logger) (err error) {
	t, result := &d.Task, done.result
	if open, err := c.open(ctx, t.Job, 0); err != nil {
		return err
	} else if !open {
		return errOver
	}
	name := bus.PartialName(t.Job, t.Shard, d.Attempt)
	defer func() {
		if err != nil {
			err = c.takeBack(ctx, t, name, err)
		}
	}()
	if result.Partial, err = c.Bus.Put(ctx, name, done.partial); err != nil {
		return err
	}
	won, err := c.Bus.PublishResult(ctx, *result)
	if err != nil {
		return err
	}
	if open, err := c.open(ctx, t.Job, 0); err != nil {
		return err
	} else if !open {
		return errOver
	}
	if !won {
		log.Info("another worker was faster")
		return c.Bus.Delete(ctx, name)
	}
	log.Debug("task done", zap.Int64("rows", t.Rows), zap.Float64("seconds", result.Seconds))
	return nil
}

// takeBack deletes what store has left, for why, if the job is over. A worker that
// has to end at once gives it a moment.
func (c *Config) takeBack(ctx context.Context, t *job.Task, partial string, why error) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), aMoment)
		defer cancel()
	}
	open, err := c.open(ctx, t.Job, 0)
	if open || err != nil {
		return why
	}
	if err := errors.Join(c.Bus.DeleteResult(ctx, t.Job, t.Shard), c.Bus.Delete(ctx, partial)); err != nil {
		c.Log.Warn("a partial may stay though its job is over", zap.String("job", t.Job), zap.Int("shard", t.Shard), zap.Error(err))
	}
	return errOver
}

// open reports whether the job is still there, within the given time, if any.
func (c *Config) open(ctx context.Context, id string, within time.Duration) (bool, error) {
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	return c.Bus.IsOpen(ctx, id)
}

// rows fetches the rows of a task, or reads them where they are. What cannot be read
// there has to travel, whatever the reason.
func (c *Config) rows(ctx context.Context, t *job.Task, a *model.Architecture, steps *atomic.Int64) (*model.Rows, error) {
	if t.Data == (job.Blob{}) {
		rows, err := c.Store.rows(ctx, t, a, steps)
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w, as this worker cannot read it in place: %v", errLost, err)
		}
		return rows, err
	}
	data, err := fetch(ctx, c.Bus, t.Data, maxShardBytes, steps)
	if err != nil {
		return nil, c.lost(ctx, t, t.Data, err)
	}
	rows, err := shard.Open(data, a.FieldDims, t.Rows)
	if err != nil {
		return nil, fault.Inputf("shard %s: %w", t.Data.Name, err)
	}
	return rows, nil
}

// game fetches the model and the baseline of a task.
func (c *Config) game(ctx context.Context, t *job.Task, steps *atomic.Int64) (shapley.Game, error) {
	m, err := c.Models.get(ctx, c.Bus, t.Model, steps)
	if err != nil {
		return shapley.Game{}, c.lost(ctx, t, t.Model, err)
	}
	data, err := c.Bus.Get(ctx, t.Baseline, maxShardBytes)
	if err != nil {
		return shapley.Game{}, c.lost(ctx, t, t.Baseline, err)
	}
	values, err := baseline.Decode(data, m.Players())
	if err != nil {
		return shapley.Game{}, fault.Inputf("baseline %s: %w", t.Baseline.Name, err)
	}
	return shapley.Game{Model: m, Baseline: values}, nil
}
