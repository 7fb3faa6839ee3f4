package coordinator

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
)

// fits returns the result, or job.Unusable if it is one of the present round of a path, but was computed with
// the mask of another one.
func (l *leader) fits(r *job.Result) job.Event {
	now, plan := l.sums.judged(), &l.job.Plan
	if l.rounder == nil || r.Shard < plan.End(now-1) || r.Shard >= plan.End(now) {
		return *r
	}
	if mask := l.inputs.round(now).Masks.SHA256; r.Mask != mask {
		return job.Unusable{Shard: r.Shard, Shards: r.Shards, Partial: r.Partial.Name, Why: fmt.Sprintf("it was computed with the mask %q, expected %s", r.Mask, mask)}
	}
	return *r
}

// merge adds the partial of a result to the sums. If the partial cannot be used, the
// outcome is job.Unusable.
func (l *leader) merge(ctx context.Context, result job.Result) (outcome job.Event, err error) {
	err = l.addPartial(ctx, &result)
	if errors.Is(err, bus.ErrNotFound) || fault.IsInput(err) {
		return job.Unusable{Shard: result.Shard, Shards: result.Shards, Partial: result.Partial.Name, Why: fmt.Sprintf("worker %q: %v", result.Worker, err)}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("shard %d: %w", result.Shard, err)
	}
	l.sums.workers[result.Worker] += len(result.Covers())
	l.sums.cpu += result.CPU
	for _, shard := range result.Covers() {
		l.sums.shards.Add(shard)
	}
	l.meter.add(&result)
	l.log.Debug("merged", zap.Ints("shards", result.Covers()))
	if l.config.OnMerged != nil {
		l.config.OnMerged(l.sums.mergedRows())
	}
	return job.Merged{Result: result}, nil
}

func (l *leader) addPartial(ctx context.Context, result *job.Result) error {
	if l.sums.ranges != nil {
		err := l.sums.ranges.Add(ctx, result)
		if err == nil {
			l.sums.rows += result.Rows
		}
		return err
	}
	if len(result.More) > 0 {
		return fault.Inputf("partial %s has %d ranges, expected none", result.Partial.Name, 1+len(result.More))
	}
	data, err := l.bus.Get(ctx, result.Partial, maxPartialBytes)
	if err != nil {
		return err
	}
	partial, err := arrowio.DecodePartial(data, l.job.Layout().Shape(), formOf(l.job), l.inputs.rounds.unmeasured())
	if err != nil {
		return fmt.Errorf("partial %s: %w", result.Partial.Name, err)
	}
	if partial.Rows != result.Rows {
		return fault.Inputf("partial %s has %d rows, expected %d as in its result", result.Partial.Name, partial.Rows, result.Rows)
	}
	if err := partial.CheckIdentity(l.job.Sampling()); err != nil {
		return fault.Inputf("partial %s: %w", result.Partial.Name, err)
	}
	l.rounds.keepFirstHalf(result.Shard)
	if err := l.sums.accumulator.Merge(partial); err != nil {
		return fault.Inputf("partial %s: %w", result.Partial.Name, err)
	}
	return nil
}

// wrongWorker is the error of a job that has merged results of a worker that has computed wrong.
type wrongWorker struct{ name, why string }

func (e *wrongWorker) Error() string {
	return fmt.Sprintf("worker %s has computed wrong: %s; the memory or the processor of its machine may be faulty", e.name, e.why)
}

// distrust gives a worker no more tasks. If something of it is merged, the error is a wrongWorker, because the
// job has to begin again.
func (l *leader) distrust(ctx context.Context, a *job.Distrust) error {
	wrong := &wrongWorker{a.Worker, a.Why}
	l.log.Error("a worker has computed wrong, and gets no more tasks", zap.String("worker", a.Worker), zap.Int("shard", a.Shard), zap.String("why", a.Why), zap.Int("merged shards", l.sums.workers[a.Worker]))
	l.publisher.orders.distrust(a.Worker)
	if l.sums.workers[a.Worker] > 0 {
		return wrong
	}
	return l.claim.Distrust(ctx, a.Worker)
}
