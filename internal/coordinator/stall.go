package coordinator

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// stallEvery is how long a job may be silent before its coordinator looks why.
const stallEvery = 10 * time.Second

// stallWatch says what a silent job waits for, and ends one that waits for
// nothing: tasks that were handed out as often as allowed, to workers that died
// over them.
type stallWatch struct {
	looks int  // since the last result
	seen  bool // that tasks are dead
}

func (s *stallWatch) look(ctx context.Context, r *run) error {
	open, left := r.machine.Waiting()
	stall, err := r.bus.Stalled(ctx, r.id)
	if err != nil {
		return err
	}
	if len(stall.Shards) > 0 && stall.Sure && s.seen {
		return fmt.Errorf("job %s: workers died or gave up over shards %v as often as a task may be tried; their logs say why", r.id, stall.Shards)
	}
	s.seen = len(stall.Shards) > 0 && stall.Sure
	if s.looks++; s.looks%3 == 0 {
		r.log.Info("waiting for results", zap.Int("shards published", open), zap.Int("shards left", left))
	}
	return nil
}
