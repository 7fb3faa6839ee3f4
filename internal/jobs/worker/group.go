package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.uber.org/zap"

	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/value/tally"
)

// A worker adds up the partials of consecutive tasks of a job and stores one partial for all of
// them, because most features occur in many shards. The tasks remain the unit of retry. Until
// the partial is stored the worker holds all their leases, and other workers get the
// tasks if it dies.

// group is the tasks that a worker has computed and not stored. The zero group is empty.
type group struct {
	attempts []*attempt
	computed *computed // of all tasks
	since    time.Time // when the first of them was computed
}

// accepts reports whether the partial of a task may be added.
func (g *group) accepts(t *job.Task) bool {
	if len(g.attempts) == 0 {
		return true
	}
	return t.Combine && t.Job == g.computed.result.Job && len(g.attempts) < job.MostCombined && g.computed.partial.Rows+t.Rows <= math.MaxInt32 &&
		!slices.ContainsFunc(g.attempts, func(a *attempt) bool { return a.d.Task.Shard == t.Shard })
}

// add adds what a computed. It must not be called unless g accepts the task of a.
func (g *group) add(a *attempt, c *computed) {
	if len(g.attempts) == 0 {
		g.attempts, g.computed, g.since = append(g.attempts, a), c, time.Now()
		return
	}
	r := &g.computed.result
	r.Rows, r.Seconds, r.CPU = r.Rows+c.result.Rows, r.Seconds+c.result.Seconds, r.CPU+c.result.CPU
	g.attempts, g.computed.partial = append(g.attempts, a), tally.Combine(g.computed.partial, c.partial)
}

// full reports whether g has to be stored before another task is computed, which is assumed to
// take as long as the last one.
func (g *group) full() bool {
	last := g.attempts[len(g.attempts)-1]
	hold := last.Hold
	if last.d.Lease > 0 { // a coordinator that hears nothing for two leases reports it
		hold = min(hold, last.d.Lease)
	}
	return !last.d.Task.Combine || len(g.attempts) == job.MostCombined || g.computed.partial.Bytes() >= job.FullBytes || time.Since(g.since)+last.took >= hold
}

// flush stores the partial of g and finishes its tasks. g is empty afterwards. flush returns an
// error only if the worker must end.
func (g *group) flush(ctx context.Context) error {
	attempts := g.attempts
	if len(attempts) == 0 {
		return nil
	}
	slices.SortFunc(attempts, func(a, b *attempt) int { return a.d.Task.Shard - b.d.Task.Shard })
	ends := finish(ctx, attempts, g.store(ctx))
	*g = group{attempts: attempts[:0]}
	return ends
}

// store stores what was computed. Nothing deletes what is stored after the job's
// clean-up, so store checks that the job is open before it stores and again afterwards.
// The end of the job must therefore not interrupt store.
func (g *group) store(ctx context.Context) (err error) {
	first, result := g.attempts[0], g.computed.result
	if err := first.mustBeOpen(ctx); err != nil {
		return err
	}
	if err := g.check(); err != nil {
		return err
	}
	var encoded [][]byte // stays empty if the task has Verify
	size := 0
	if v := first.d.Task.Verify; v != nil {
		result.Alone = slices.Contains(v.Workers, first.Name)
	} else if encoded, size, err = encode(g.computed.partial, first.d.Task.Ranges); err != nil {
		return err
	}
	for _, a := range g.attempts {
		result.Digests = append(result.Digests, a.digest)
		if len(g.attempts) > 1 {
			result.Shards = append(result.Shards, a.d.Task.Shard)
		}
	}
	name := bus.PartialName(result.Job, first.d.Task.Shard, first.d.Attempt)
	defer func() {
		if err != nil {
			err = g.takeBack(ctx, name, len(encoded), err)
		}
	}()
	for i, data := range encoded {
		blob, err := first.blobs.Put(ctx, bus.RangeName(name, i), data)
		if err != nil {
			return err
		}
		if i == 0 {
			result.Partial = blob
		} else {
			result.More = append(result.More, blob)
		}
	}
	var won []*attempt
	for _, a := range g.attempts {
		result.Shard = a.d.Task.Shard
		first, err := a.jobs.PublishResult(ctx, result)
		if err != nil {
			return err
		}
		if first {
			won = append(won, a)
		} else {
			a.log.Info("another worker was faster")
		}
	}
	if err := first.mustBeOpen(ctx); err != nil {
		return err
	}
	if len(won) == 0 {
		return first.deletePartial(ctx, name, len(encoded))
	}
	for _, a := range won {
		a.log.Debug("task done", zap.Int64("rows", a.d.Task.Rows), zap.Float64("seconds", a.took.Seconds()))
	}
	first.log.Debug("partial stored", zap.Int("tasks", len(g.attempts)), zap.Int64("rows", result.Rows), zap.Float64("seconds", result.Seconds), zap.Int("bytes", size))
	return nil
}

// check returns errFaulty if the partial of g is not what its rows add up to.
func (g *group) check() error {
	p, spec := g.computed.partial, &g.attempts[0].d.Task.Spec
	sampling := tally.NewSampling(spec.TaskOptions(), 0)
	sampling.Paired, sampling.Weights = spec.Previous != nil, spec.Weights()
	err := p.Validate(&p.Shape, p.Form())
	if err == nil {
		err = p.CheckIdentity(sampling)
	}
	if err != nil {
		return fmt.Errorf("%w (%v)", errFaulty, err)
	}
	return nil
}

// encode returns the blobs of a partial: one, or one for each of the ranges if there are any. size
// is that of all.
func encode(p *tally.Partial, ranges int) (blobs [][]byte, size int, err error) {
	n := max(1, ranges)
	starts := p.Shape.Cut(n)
	for i := range n {
		part := p
		if ranges > 0 {
			part = p.Part(starts[i], starts[i+1])
		}
		var encoded bytes.Buffer
		if err := arrowio.EncodePartial(&encoded, part); err != nil {
			return nil, 0, err
		}
		blobs, size = append(blobs, encoded.Bytes()), size+encoded.Len()
	}
	return blobs, size, nil
}

// deletePartial deletes the blobs of a partial.
func (a *attempt) deletePartial(ctx context.Context, name string, blobs int) (failed error) {
	for i := range blobs {
		failed = errors.Join(failed, a.blobs.Delete(ctx, bus.RangeName(name, i)))
	}
	return failed
}

// takeBack runs after store failed with err. If the job is over, takeBack deletes what
// store stored and returns errOver. Otherwise it returns err. If the worker has to end
// before or meanwhile, takeBack takes at most endTimeout more.
func (g *group) takeBack(ctx context.Context, partial string, blobs int, err error) error {
	ctx, stop := longer(ctx)
	defer stop()
	first := g.attempts[0]
	if open, failed := first.open(ctx, 0); open || failed != nil {
		return err
	}
	failed := first.deletePartial(ctx, partial, blobs)
	for _, a := range g.attempts {
		failed = errors.Join(failed, a.jobs.DeleteResult(ctx, a.d.Task.Job, a.d.Task.Shard))
	}
	if failed != nil {
		first.log.Warn("cannot delete the result of a job that is over", zap.Error(failed))
	}
	return errOver
}

// longer returns a context that ends endTimeout after ctx. The caller must call stop.
func longer(ctx context.Context) (late context.Context, stop func()) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unregister := context.AfterFunc(ctx, func() { time.AfterFunc(endTimeout, cancel) })
	return late, func() { unregister(); cancel() }
}
