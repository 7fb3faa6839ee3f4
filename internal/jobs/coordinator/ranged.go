package coordinator

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"shaver/internal/click/model"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/merger"
	"shaver/internal/jobs/prepare"
	"shaver/internal/value/tally"
)

// current returns the number of rows that the sums have: of all rows merged or, in a path, of those of the current round.
func (m *sums) current() int64 {
	if m.accumulator == nil {
		return m.rows
	}
	return m.accumulator.Rows()
}

// mergedRows returns the number of rows merged.
func (m *sums) mergedRows() int64 {
	rows := m.current()
	if m.path != nil {
		for _, round := range m.path.Rounds {
			rows += round.Rows
		}
	}
	return rows
}

// check returns the result of the finished job without its values. See tally.Accumulator.Check.
func (m *sums) check(ctx context.Context, e tally.Sampling) (*tally.Result, error) {
	if m.ranges == nil {
		return m.accumulator.Check(e)
	}
	summary, err := m.ranges.Summary(ctx)
	if err != nil {
		return nil, err
	}
	result, err := summary.Check(e)
	if err != nil {
		return nil, err
	}
	result.Count, err = m.ranges.Counts(ctx)
	return result, err
}

// acquire finds the mergers that keep the sums of a job with ranges, and makes them begin with the
// checkpoint. If a part of the checkpoint is lost, the job begins with nothing merged. The caller
// must close s.ranges, also after an error, unless they are nil. onFound is called with the number
// of mergers found so far.
func acquire(ctx context.Context, b *bus.Bus, j *prepare.Job, m *model.Model, claim *bus.Claim, s *sums, onFound func(mergers int), log *zap.Logger) (*sums, error) {
	spread := merger.Job{ID: j.ID, Epoch: claim.Lead.Epoch, Shape: j.Layout().Shape(), Form: formOf(j), OnFound: onFound, Check: func(ctx context.Context) error {
		if err := claim.Check(ctx); err != nil {
			return err
		}
		cancelled, err := b.IsCancelled(ctx, j.ID)
		if err == nil && cancelled {
			err = fmt.Errorf("job %s: %w", j.ID, bus.ErrCancelled)
		}
		return err
	}}
	if s.path != nil {
		spread.Fixed, spread.Tables = j.Architecture.FixedRows(), m.Weights.Embedding
	}
	ranges, fresh, err := merger.Acquire(ctx, b, spread, j.Plan.Ranges, s.parts, log)
	if fresh {
		s = newSumsOf(j, m)
	}
	s.ranges = ranges
	return s, err
}

// awaitingMergers returns the state of a job that has waited for its mergers for some time, and what it waits
// for.
func awaitingMergers(needed int, found int64, since time.Duration) (state, waiting string) {
	state = bus.Running
	if since >= quietAfter {
		state = bus.Stalled
	}
	return state, fmt.Sprintf("%d mergers, of which %d are found", needed, found)
}

// closeRanges frees the mergers of s.
func (m *sums) closeRanges() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if m.ranges != nil {
		m.ranges.Close(ctx)
	}
}

// partNames returns the names of the blobs of the ranges of a checkpoint.
func partNames(checkpoint string, plan *job.Plan) (names []string) {
	for i := range plan.Ranges {
		names = append(names, bus.RangeName(checkpoint, i))
	}
	return names
}

// deletePartial deletes the blobs of a partial.
func deletePartial(ctx context.Context, b *bus.Bus, name string, plan *job.Plan) error {
	for i := range max(1, plan.Ranges) {
		if err := b.Delete(ctx, bus.RangeName(name, i)); err != nil {
			return err
		}
	}
	return nil
}
