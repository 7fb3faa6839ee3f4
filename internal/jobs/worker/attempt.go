package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/shard"
	"shaver/internal/num/kernel"
	"shaver/internal/value/baseline"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// attempt is one try of this worker at one task.
type attempt struct {
	*Config
	d      *bus.Delivery // the task as it was delivered
	lease  lease         // lease of d
	blobs  blobs
	jobs   jobs
	log    *zap.Logger
	steps  *atomic.Int64 // grows while the worker makes progress
	took   time.Duration // time in which the task was computed
	digest uint64        // of the partial of the task

	computing context.Context // ends with stop
	stop      context.CancelCauseFunc
	beating   chan struct{} // closed when the lease is no longer renewed
}

// The methods of bus.Bus and bus.Delivery that an attempt calls. bus documents them.
type (
	lease interface {
		Heartbeat(ctx context.Context) error
		Done(ctx context.Context) error
		Release(ctx context.Context, delay time.Duration) error
		Lost(ctx context.Context, reason string) error
		Quarantine(ctx context.Context, reason string, input bool) error
	}
	blobs interface {
		GetInto(ctx context.Context, blob job.Blob, limit int64, into func(io.Reader) error) error
		Put(ctx context.Context, name string, data []byte) (job.Blob, error)
		Delete(ctx context.Context, name string) error
	}
	jobs interface {
		IsOpen(ctx context.Context, jobID string) (bool, error)
		PublishResult(ctx context.Context, r job.Result) (won bool, err error)
		DeleteResult(ctx context.Context, jobID string, shard int) error
		DeleteQuarantine(ctx context.Context, jobID string, shard int) error
	}
)

func newAttempt(c *Config, d *bus.Delivery, steps *atomic.Int64) *attempt {
	return &attempt{
		Config: c, d: d, lease: d, blobs: c.Bus, jobs: c.Bus, steps: steps,
		log: c.Log.With(zap.String("job", d.Task.Job), zap.Int("shard", d.Task.Shard), zap.Int("try", d.Try)),
	}
}

// begin begins to renew the lease, until finish.
func (a *attempt) begin(ctx context.Context) {
	a.computing, a.stop = context.WithCancelCause(ctx)
	a.beating = make(chan struct{})
	go func() {
		defer close(a.beating)
		a.beat(a.computing, a.stop)
	}()
	a.log.Debug("task begun", zap.Int64("rows", a.d.Task.Rows))
}

// finish ends the task on the bus and reports its outcome. err says why it has no result, or is
// nil. finish returns an error only if the worker must end.
func (a *attempt) finish(ctx context.Context, err error) error {
	return finish(ctx, []*attempt{a}, err)
}

// finish ends several tasks of a job, at least one, like attempt.finish. It ends them at the same
// time, because each may wait for a lease if the server does not answer.
func finish(ctx context.Context, attempts []*attempt, err error) (ends error) {
	type end struct {
		outcome     Outcome
		fatal, sent error
	}
	all := make([]end, len(attempts))
	var group sync.WaitGroup
	for i, a := range attempts {
		group.Go(func() {
			over := errors.Is(err, errOver) || errors.Is(context.Cause(a.computing), errOver)
			a.stop(nil)
			<-a.beating
			e := &all[i]
			e.outcome, e.fatal, e.sent = a.outcome(ctx, over, err)
		})
	}
	group.Wait()
	var over, lost, unsent []int // shards
	var cause error              // of the first in lost or unsent
	for i, a := range attempts {
		e, shard := all[i], a.d.Task.Shard
		switch {
		case e.outcome == Over && e.sent != nil:
			lost = append(lost, shard)
		case e.outcome == Over:
			over = append(over, shard)
		case e.sent != nil:
			unsent = append(unsent, shard)
		}
		cause, ends = cmp.Or(cause, e.sent), cmp.Or(ends, e.fatal)
		if a.OnTask != nil {
			a.OnTask(&a.d.Task, e.outcome, a.d.Try, a.took)
		}
	}
	log := attempts[0].Log.With(zap.String("job", attempts[0].d.Task.Job))
	if len(over) > 0 {
		log.Info("the job is over and does not need the tasks", zap.Ints("shards", over))
	}
	if len(lost) > 0 {
		log.Warn("the server has neither the job nor its tasks any more: it has lost what it stored, or the job was ended", zap.Ints("shards", lost), zap.Error(cause))
	}
	if len(unsent) > 0 {
		log.Warn("tasks done, but not acknowledged: they may be computed again", zap.Ints("shards", unsent), zap.Error(cause))
	}
	return ends
}

// overTimeout limits the acknowledgement of a task whose job is over. The job's clean-up deletes the
// task too.
const overTimeout = 5 * time.Second

// outcome is finish without the report. fatal says that the worker must end. sent says why the task could
// not be acknowledged.
func (a *attempt) outcome(ctx context.Context, over bool, err error) (o Outcome, fatal, sent error) {
	switch {
	case over:
		short, cancel := context.WithTimeout(ctx, overTimeout)
		defer cancel()
		return Over, nil, a.lease.Done(short)
	case err == nil:
		return Done, nil, a.lease.Done(ctx)
	case ctx.Err() != nil:
		a.release(0)
		return Abandoned, ctx.Err(), nil
	case errors.Is(err, errFaulty):
		a.release(0)
		return Abandoned, err, nil
	case errors.Is(err, errLost):
		a.log.Warn("the task waits until its data is stored again", zap.Error(err))
		return a.asideOutcome(ctx, Lost, a.lease.Lost(ctx, err.Error())), ctx.Err(), nil
	case fault.IsInput(err) || a.d.Last():
		a.log.Error("task set aside", zap.Error(err))
		return a.asideOutcome(ctx, Quarantined, a.lease.Quarantine(ctx, err.Error(), fault.IsInput(err))), ctx.Err(), nil
	default:
		a.log.Warn("task failed, it will be tried again", zap.Error(err))
		a.release(time.Second)
		return Failed, nil, nil
	}
}

// asideOutcome returns the outcome of a task after an attempt to set it aside, which ended
// with err. It returns the outcome as if the attempt succeeded, and Failed otherwise, or Abandoned
// if ctx has ended. If the job is over, it deletes the quarantine, because the job's clean-up may
// have missed it.
func (a *attempt) asideOutcome(ctx context.Context, as Outcome, err error) Outcome {
	switch {
	case ctx.Err() != nil && err != nil: // a coordinator in this process ends with the last task that is set aside
		return Abandoned
	case ctx.Err() != nil:
		return as
	case err != nil:
		a.log.Warn("cannot set the task aside, it will be tried again", zap.Error(err))
		as = Failed
	}
	open, err := a.open(ctx, 0)
	if err == nil && !open {
		as = Over
		err = a.jobs.DeleteQuarantine(ctx, a.d.Task.Job, a.d.Task.Shard)
	}
	if err != nil && ctx.Err() == nil {
		a.log.Warn("cannot delete the quarantine of a job that is over", zap.Error(err))
	}
	return as
}

// endTimeout limits how long a worker that is ending takes to clean up.
const endTimeout = 2 * time.Second

// release gives the task back, unless the lease may be lost. The worker may be ending,
// so release has its own deadline.
func (a *attempt) release(delay time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_ = a.lease.Release(ctx, delay) // if this fails, the lease expires
}

// errOver ends the computation of a task whose job is over.
var errOver = errors.New("the job is over")

// beat renews the lease as long as the task makes progress. The lease of a task that
// hangs expires, and another worker gets the task. If the job is over, beat calls stop
// with errOver. Without a lease the coordinator is in this process and stops the workers
// itself, so beat does nothing.
func (a *attempt) beat(ctx context.Context, stop context.CancelCauseFunc) {
	if a.d.Lease == 0 {
		return
	}
	tick := time.NewTicker(a.d.Lease / 4)
	defer tick.Stop()
	for last := int64(-1); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if open, err := a.open(ctx, a.d.Lease/4); err == nil && !open {
			stop(errOver)
			return
		}
		if now := a.steps.Load(); now == last {
			continue
		} else {
			last = now
		}
		if err := a.lease.Heartbeat(ctx); errors.Is(err, bus.ErrLeaseLost) {
			a.log.Warn("lease lost: another worker may compute the task too")
			return
		}
	}
}

// computed is the partial of a task, or of several tasks, and its result without the reference
// to the partial.
type computed struct {
	result  job.Result
	partial *tally.Partial
}

// compute computes the task. Malformed bytes are bad input, because another try
// would read the same ones.
func (a *attempt) compute() (*computed, error) {
	begun := time.Now()
	defer func() { a.took = time.Since(begun) }()
	t, ctx := &a.d.Task, a.computing
	if name := kernel.Name(); t.Spec.Kernel != name { // the task's subject names another kernel
		return nil, fmt.Errorf("the job needs kernel %s, but this worker has %s", t.Spec.Kernel, name)
	}
	game, err := a.game(ctx, t.Model, t.Baseline, t.PreviousModel)
	if err != nil {
		return nil, err
	}
	options := shapley.Options{Options: t.Spec.TaskOptions(), Seed: t.Spec.Seed, First: t.Pass, Fresh: t.Spec.Fresh, Weights: t.Spec.Weights()}
	if t.Path != nil {
		if game.Model, err = a.Models.round(ctx, a.blobs, t, &game, &options, a.steps); err != nil {
			return nil, a.lost(ctx, t.Path.Masks, err)
		}
	}
	var previous shapley.Game
	if t.Spec.Previous != nil {
		if previous, err = a.game(ctx, t.PreviousModel, t.PreviousBaseline, t.Model); err != nil {
			return nil, err
		}
	}
	if a.Faulty != nil {
		a.Faulty(t, &game)
	}
	a.steps.Add(1)
	if most := job.MostRows(game.Model.Columns()); t.Rows < 1 || t.Rows > most {
		return nil, fault.Inputf("the task has %d rows, expected 1 to %d", t.Rows, most)
	}
	rows, err := a.rows(ctx, &game.Model.Architecture)
	if err != nil {
		return nil, err
	}
	a.steps.Add(1)

	start, cpu := time.Now(), time.Duration(0)
	if a.CPU != nil {
		cpu = a.CPU()
	}
	progress := func(n int) {
		a.steps.Add(int64(n))
		if a.OnRows != nil {
			a.OnRows(n)
		}
	}
	var partial *tally.Partial
	if t.Spec.Previous != nil {
		partial, err = shapley.EstimatePair(ctx, game, previous, options, rows, a.Threads, progress)
	} else {
		partial, err = shapley.Estimate(ctx, game, options, rows, a.Threads, progress)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fault.Inputf("%w", err)
	}
	result := job.Result{Job: t.Job, Shard: t.Shard, Rows: t.Rows, Kernel: t.Spec.Kernel, Worker: a.Name, Seconds: time.Since(start).Seconds()}
	if t.Path != nil {
		result.Mask = t.Path.Masks.SHA256
	}
	if a.CPU != nil {
		result.CPU = (a.CPU() - cpu).Seconds()
	}
	a.steps.Add(1)
	a.digest = partial.Check
	return &computed{result, partial}, nil
}

// Limits on the size that a task may claim for a blob.
const (
	maxModelBytes = 64 << 30
	maxShardBytes = 4 << 30
)

// game fetches a model of the task and its baseline. other is the other model that the
// task needs, if its job is paired.
func (a *attempt) game(ctx context.Context, weights, values, other job.Blob) (shapley.Game, error) {
	m, err := a.Models.get(ctx, a.blobs, weights, other, a.steps)
	if err != nil {
		return shapley.Game{}, a.lost(ctx, weights, err)
	}
	data, err := fetch(ctx, a.blobs, values, maxShardBytes, a.steps)
	if err != nil {
		return shapley.Game{}, a.lost(ctx, values, err)
	}
	spec := &a.d.Task.Spec
	game := shapley.Game{Model: m.Freeze(spec.Freeze), Loss: spec.Loss}
	if spec.OfFields() {
		game.Fields, err = shapley.DecodeFields(data, m, spec.Baseline == baseline.Marginal)
	} else {
		game.Baseline, err = baseline.Decode(data, &m.Architecture)
	}
	if err != nil {
		return shapley.Game{}, fault.Inputf("baseline %s: %w", values.Name, err)
	}
	if game.Fields != nil {
		game.Fields.Pairs = spec.OfPairs()
	}
	return game, nil
}

// rows fetches the rows of the task, or reads them in place. If they cannot be read in
// place, the error is errLost, and the coordinator sends them.
func (a *attempt) rows(ctx context.Context, arch *model.Architecture) (*model.Rows, error) {
	t := &a.d.Task
	if t.Data == (job.Blob{}) {
		rows, err := a.Store.rows(ctx, t, arch, a.steps)
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w, because this worker cannot read it in place: %v", errLost, err)
		}
		return rows, err
	}
	data, err := fetch(ctx, a.blobs, t.Data, maxShardBytes, a.steps)
	if err != nil {
		return nil, a.lost(ctx, t.Data, err)
	}
	rows, err := shard.Open(data, arch, t.Rows)
	if err != nil {
		return nil, fault.Inputf("shard %s: %w", t.Data.Name, err)
	}
	return rows, nil
}

// errLost says that a blob of the task is missing or corrupt, or that the task's rows
// are not in this worker's store. The coordinator then stores them again.
var errLost = errors.New("the task's data must be stored again")

// lost returns the error of a task whose blob could not be read because of err. If the
// blob is missing or corrupt, the error is errLost and not bad input, because the
// coordinator can store the blob again. A corrupt blob is deleted first.
func (a *attempt) lost(ctx context.Context, blob job.Blob, err error) error {
	corrupt := errors.Is(err, bus.ErrCorrupt)
	if !corrupt && !errors.Is(err, bus.ErrNotFound) && !bus.IsGone(err) {
		return err
	}
	if err := a.mustBeOpen(ctx); err != nil {
		return err
	}
	if corrupt {
		if err := a.blobs.Delete(ctx, blob.Name); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %v", errLost, err)
}

// mustBeOpen returns errOver if the job is over.
func (a *attempt) mustBeOpen(ctx context.Context) error {
	open, err := a.open(ctx, 0)
	if err == nil && !open {
		err = errOver
	}
	return err
}

// open reports whether the job is still open. It takes at most the given time; 0 = no
// limit.
func (a *attempt) open(ctx context.Context, within time.Duration) (bool, error) {
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	return a.jobs.IsOpen(ctx, a.d.Task.Job)
}
