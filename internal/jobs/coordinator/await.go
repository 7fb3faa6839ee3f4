package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"shaver/internal/base/atomicfile"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/scores"
)

// errElsewhere means that a coordinator that writes its scores to another place leads the
// job now.
var errElsewhere = errors.New("a coordinator with another output leads this job")

// Where returns the place of the scores: Place or, without it, the absolute path of Out.
func (c *Config) Where() string {
	if c.Place != "" || c.Out == "" {
		return c.Place
	}
	path, err := filepath.Abs(c.Out)
	if err != nil {
		return c.Out
	}
	return path
}

const (
	lookEvery   = 500 * time.Millisecond // between two looks at the leader of a job
	silentAfter = 15 * time.Second       // without a sign of life a leader is considered dead
)

// awaitOther waits while a living coordinator leads the job and writes its scores to another
// place. Two coordinators that take the job from each other would both lose time, and only one
// would write scores. If the other one finishes and its scores can be read here, awaitOther
// copies them to c.Out and returns them. If it dies, over is its name in the record of the
// leader, and this coordinator may take the job over.
func awaitOther(ctx context.Context, b *bus.Bus, c *Config, id string, log *zap.Logger) (over string, _ *Outcome, err error) {
	var place string         // where the coordinator that we waited for writes
	var silent time.Duration // without a sign of life, not counting the time that requests took
	var last bus.Progress
	cancelled := false
	for {
		lead, err := b.Leader(ctx, id)
		if err != nil {
			return "", nil, err
		}
		if lead == nil || lead.Ending && place == "" || !lead.Elsewhere(c.Where()) {
			break
		}
		s, err := b.JobStatus(ctx, id)
		if err != nil && !errors.Is(err, bus.ErrNoJob) {
			return "", nil, err
		}
		if seen, err := b.IsCancelled(ctx, id); err != nil {
			return "", nil, err
		} else if seen || s.Progress.State == bus.Cancelled {
			cancelled = true
		}
		if s.Progress.State == bus.Failed || place == "" && s.Progress.State == bus.Interrupted {
			return lead.Owner, nil, nil
		}
		if place != lead.Out {
			place, silent = lead.Out, 0
			log.Info("another coordinator leads this job and writes its scores elsewhere: waiting for its end", zap.String("coordinator", lead.Owner), zap.String("out", place))
		}
		if !s.Progress.Updated.Equal(last.Updated) {
			last, silent = s.Progress, 0
		}
		if silent >= silentAfter {
			log.Warn("the other coordinator gives no sign of life: taking the job over", zap.String("coordinator", lead.Owner))
			return lead.Owner, nil, nil
		}
		select {
		case <-time.After(lookEvery):
			silent += lookEvery
		case <-ctx.Done():
			return "", nil, ctx.Err()
		}
	}
	switch {
	case cancelled:
		return "", nil, fmt.Errorf("job %s: %w", id, bus.ErrCancelled)
	case place == "" || c.Sink != nil:
		return "", nil, nil
	}
	path := place
	if c.Local != nil {
		path, err = c.Local(ctx, place)
	}
	var outcome *Outcome
	if err == nil {
		outcome, err = copyScores(c, path, id)
	}
	if err != nil {
		log.Info("the scores of the other coordinator cannot be used here: computing them", zap.String("out", place), zap.Error(err))
		return "", nil, nil
	}
	log.Info("took the scores of the other coordinator", zap.String("from", place))
	return "", outcome, nil
}

// copyScores copies the scores of the job from place to c.Out.
func copyScores(c *Config, place, id string) (*Outcome, error) {
	var file *scores.File
	err := atomicfile.Write(c.Out, func(w io.Writer) error {
		return scores.Copy(w, place, func(head *scores.File) error {
			file = head
			switch {
			case head.Spec.ID() != id:
				return fmt.Errorf("%s has the scores of another job", place)
			case head.QuarantinedRows > 0 && !c.AllowQuarantined:
				return fmt.Errorf("%s lacks %d rows", place, head.QuarantinedRows)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return &Outcome{Scores: *file, Existing: true, Workers: map[string]int{}}, nil
}

// stayAlive stores a progress every few seconds until stop is called, so that a coordinator
// does not seem dead while it does something that takes long. The progress says what.
func stayAlive(ctx context.Context, b *bus.Bus, p bus.Progress, what string) (stop func()) {
	return stayAliveAs(ctx, b, p, func() (state, waiting string) { return bus.Running, what })
}

// stayAliveAs is stayAlive for a progress that changes.
func stayAliveAs(ctx context.Context, b *bus.Bus, p bus.Progress, now func() (state, waiting string)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	store := func() {
		short, cancel := context.WithTimeout(ctx, tickTimeout)
		defer cancel()
		p.State, p.Waiting = now()
		p.Updated = time.Now().UTC()
		_ = b.SetProgress(short, p) // nothing depends on it
	}
	store()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(reportEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				store()
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// endIfCancelled returns bus.ErrCancelled if somebody cancelled the job: while it has no
// coordinator, or in an earlier try of this run. It then deletes what is stored for the job. A
// record of a cancelled job that is of no use any more is deleted too.
func endIfCancelled(ctx context.Context, b *bus.Bus, c *Config, id, over string, log *zap.Logger) error {
	cancelled, run, err := b.Cancellation(ctx, id)
	if err != nil || !cancelled {
		return err
	}
	open, err := b.IsOpen(ctx, id)
	if err != nil {
		return err
	}
	if !open {
		if run != "" && run == c.RunID {
			return fmt.Errorf("job %s: %w, in an earlier try of the run %s", id, bus.ErrCancelled, run)
		}
		return b.ForgetCancellation(ctx, id)
	}
	claim, err := b.ClaimFor(ctx, id, c.claimant(over))
	if err != nil {
		return err
	}
	return errors.Join(cleanUp(ctx, b, id, claim, log), fmt.Errorf("job %s: %w", id, bus.ErrCancelled))
}

// claimant returns who claims the job of c. over is the name of a dead leader.
func (c *Config) claimant(over string) bus.Claimant {
	return bus.Claimant{Out: c.Where(), Run: c.RunID, Over: over, Wrong: c.wrong}
}
