package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
)

// maxSumsBytes bounds the size that the record of a checkpoint may claim.
const maxSumsBytes = 1 << 40

// resumeSums loads the checkpoint of the claimed job. If the checkpoint is missing
// or malformed, the job starts with nothing merged. If it has the form of another build,
// that is bad input, because the work in it is not lost.
func resumeSums(ctx context.Context, b *bus.Bus, j *prepare.Job, m *model.Model, claim *bus.Claim, log *zap.Logger) (*sums, error) {
	debug.FreeOSMemory() // returns the model's memory to the system before the sums are allocated
	stored := claim.Lead.Checkpoint
	if stored == nil {
		return newSumsOf(j, m), nil
	}
	begun := time.Now()
	s, err := loadSums(ctx, b, j, m, *stored)
	switch {
	case errors.Is(err, errOtherForm):
		return nil, fmt.Errorf("job %s: %w: "+otherBuild, j.ID, err, j.ID)
	case errors.Is(err, bus.ErrNotFound) || fault.IsInput(err):
		log.Warn("the checkpoint is lost: the job begins with nothing merged", zap.Error(err))
		return newSumsOf(j, m), nil
	case err != nil:
		return nil, fmt.Errorf("job %s: %w", j.ID, err)
	}
	log.Info("resumed", zap.Int("shards", s.shards.Len()), zap.Int64("rows", s.mergedRows()), zap.Int64("epoch", claim.Lead.Epoch), zap.Duration("took", time.Since(begun)))
	return s, nil
}

// loadSums reads a checkpoint.
func loadSums(ctx context.Context, b *bus.Bus, j *prepare.Job, m *model.Model, blob job.Blob) (s *sums, err error) {
	var other error
	err = b.GetInto(ctx, blob, maxSumsBytes, func(in io.Reader) (err error) {
		s, other = nil, nil // frees the sums of an earlier try, so that only one copy is in memory
		s = newSumsOf(j, m)
		err = s.read(in, j.ID, j.Layout().Shape(), formOf(j), &j.Plan)
		if errors.Is(err, errOtherForm) { // GetInto checks the digest, because damage may look like another form
			err, other = nil, err
		}
		return err
	})
	return s, cmp.Or(err, other)
}

// save stores the sums as the job's new checkpoint. It stores the blob first, and then
// the record that points to it. If the server has no room for one of them, it waits for it, or
// deletes what it stored and returns bus.ErrFull.
func (l *leader) save(ctx context.Context, wait bool) error {
	begun, lead := time.Now(), l.claim.Lead
	l.sums.seconds += begun.Sub(l.schedule.saved).Seconds()
	number := lead.Number
	var blob job.Blob
	var err error
	for {
		number++
		blob, err = l.storeSums(ctx, lead.Epoch, number, wait)
		if !errors.Is(err, bus.ErrConflict) { // an earlier run of the job may have used the name
			break
		}
	}
	if err == nil {
		err = l.claim.Point(ctx, number, blob, wait)
	}
	l.schedule.savedSince(begun)
	took := l.schedule.saveTook
	l.sums.seconds += took.Seconds()
	remove := func(checkpoint string) {
		l.cleaner.add(nil, append(partNames(checkpoint, &l.job.Plan), checkpoint)...)
	}
	if errors.Is(err, bus.ErrFull) { // the room is for the results that workers wait to store
		remove(bus.CheckpointName(l.job.ID, lead.Epoch, number))
	}
	if err != nil {
		return fmt.Errorf("job %s: checkpoint: %w", l.job.ID, err)
	}
	if old := lead.Checkpoint; old != nil {
		remove(old.Name)
	}
	l.meter.saved = l.schedule.saved
	l.log.Debug("checkpoint", zap.Int("shards", l.sums.shards.Len()), zap.Int64("bytes", blob.Bytes), zap.Duration("took", took))
	return nil
}

// storeSums stores the sums under a checkpoint's name. It reports progress every few
// seconds, because storing a large checkpoint takes so long that the coordinator would
// seem dead.
func (l *leader) storeSums(ctx context.Context, epoch, number int64, wait bool) (job.Blob, error) {
	reported, name := time.Now(), bus.CheckpointName(l.job.ID, epoch, number)
	if l.sums.ranges != nil {
		stop := stayAlive(ctx, l.bus, l.progress(bus.Running, ""), "its checkpoint")
		parts, err := l.sums.ranges.Save(ctx, name)
		stop()
		if err != nil {
			return job.Blob{}, err
		}
		l.sums.parts = parts
	}
	write := func(w io.Writer) error {
		return l.sums.write(writerFunc(func(p []byte) (int, error) {
			if time.Since(reported) >= reportEvery {
				reported = time.Now()
				l.reportProgress(ctx, bus.Running, "its checkpoint")
			}
			return w.Write(p)
		}), l.job.ID, &l.job.Plan)
	}
	if wait {
		return l.bus.PutFrom(ctx, name, write, nil)
	}
	return l.bus.PutFromIfRoom(ctx, name, write)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
