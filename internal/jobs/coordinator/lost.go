package coordinator

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
)

// lost keeps which workers fell silent while tasks went to other workers, for people.
type lost struct {
	looked time.Time
	silent map[string]bool // workers of last that have said nothing since
	last   []bus.Lost      // at most bus.MostNamed, the oldest first
}

// lookForLost finds out which workers fell silent, if tasks are in a second or later try. It asks at most once in
// the time of a lease.
func (l *leader) lookForLost(ctx context.Context, again int) {
	lease := l.config.Queue.Lease
	if again == 0 || time.Since(l.lost.looked) < lease {
		return
	}
	l.lost.looked = time.Now()
	builds, err := l.bus.Connected(ctx)
	if err != nil || len(builds) == 0 { // perhaps nobody may ask
		return
	}
	for _, w := range l.lost.look(time.Now(), lease, l.meter.workers, builds) {
		l.log.Warn("no word from a worker: if it holds a task, another worker gets it", zap.String("worker", w.Worker), zap.Duration("silence", w.Silence().Round(time.Second)))
	}
}

// look returns the workers that fell silent since the last look: those that gave no result in the time of a lease
// and are not among those that answered. A worker that speaks again may be lost another time.
func (o *lost) look(now time.Time, lease time.Duration, workers map[string]*workerMeter, answered []job.Build) (found []bus.Lost) {
	if o.silent == nil {
		o.silent = map[string]bool{}
	}
	for name, w := range workers {
		speaks := now.Sub(w.seen) < lease || slices.ContainsFunc(answered, func(b job.Build) bool { return b.Name == name })
		if !speaks && !o.silent[name] {
			found = append(found, bus.Lost{Worker: short(name), Seen: w.seen, At: now})
		}
		o.silent[name] = !speaks
	}
	slices.SortFunc(found, func(x, y bus.Lost) int { return x.Seen.Compare(y.Seen) })
	o.last = append(o.last, found...)
	o.last = slices.Clone(o.last[max(0, len(o.last)-bus.MostNamed):])
	return found
}
