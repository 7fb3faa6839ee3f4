package bus

import (
	"context"
	"errors"
	"slices"
	"time"
)

// How long End waits for a coordinator to end the cancelled job.
const (
	cancelPatience = 20 * time.Second // if a coordinator leads the job
	startPatience  = 6 * time.Second  // if a coordinator may be starting
)

// End cancels a job and waits until everything that the server stores for it is gone. The job's
// coordinator deletes it. If there is no coordinator, or if the job is unreadable, End does.
func (b *Bus) End(ctx context.Context, id string) error {
	if err := b.Cancel(ctx, id); err != nil {
		return err
	}
	for begun := time.Now(); ; {
		s, err := b.JobStatus(ctx, id)
		if errors.Is(err, ErrNoJob) {
			return nil
		}
		if err != nil && !errors.Is(err, ErrUnreadable) {
			return err
		}
		patience := startPatience
		if slices.Contains([]string{Running, Stalled, Cancelled}, s.Progress.State) {
			patience = cancelPatience
		}
		if err != nil || s.Progress.State == Failed || time.Since(begun) > patience {
			return b.Remove(ctx, id)
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
