package coordinator

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"shaver/internal/jobs/job"
)

// lookForWorkers finds out which workers are connected, if no result came for a while. It
// makes a log line due at once if it finds out that none can compute the job or gets its tasks.
func (l *leader) lookForWorkers(ctx context.Context) {
	if l.bus.Local() {
		return
	}
	if l.schedule.silence() < quietAfter {
		l.crew = nil
		return
	}
	if !l.schedule.lookDue() {
		return
	}
	crew, err := l.bus.ConnectedTo(ctx, l.job.Spec.Kernel)
	if err != nil {
		l.log.Debug("cannot see which workers are connected", zap.Error(err))
		return
	}
	known := l.unfit() || l.paused()
	if l.crew = &crew; !known && (l.unfit() || l.paused()) {
		l.schedule.logNow = true
	}
}

// countCrew gives the machine, every few seconds, the number of tasks that workers hold or ask for, so that enough are
// stored for them.
func (l *leader) countCrew(ctx context.Context) (end job.Action, err error) {
	if l.bus.Local() || !l.schedule.countDue() {
		return nil, nil
	}
	short, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	tasks, again, err := l.bus.Asking(short, l.job.Spec.Kernel)
	if err != nil {
		l.log.Debug("cannot count the workers", zap.Error(err))
		return nil, nil
	}
	l.lookForLost(ctx, again)
	return l.feed(ctx, job.Crew{Tasks: min(tasks, l.room())})
}

// room returns the number of shards of this job's size that the server should hold, if they travel.
func (l *leader) room() int {
	if bytes := l.publisher.largest.Load(); bytes > 0 {
		return int(limits.Held / bytes)
	}
	return limits.Largest
}

// unfit reports whether it is known that no connected worker can compute the job.
func (l *leader) unfit() bool { return l.crew != nil && !l.crew.Fit(l.job.Spec.Kernel) }

// paused reports whether it is known that somebody has paused the consumer of the tasks.
func (l *leader) paused() bool { return l.crew != nil && l.crew.Paused != "" }

// waiting says what a job with open tasks waits for.
func (l *leader) waiting(open int) string {
	kernel := l.job.Spec.Kernel
	if l.paused() {
		return fmt.Sprintf("the consumer %s, which somebody has paused", l.crew.Paused)
	}
	if l.unfit() {
		return fmt.Sprintf("a worker with kernel %s and protocol %d; connected workers: %v", kernel, job.Protocol, l.crew)
	}
	return fmt.Sprintf("results of %d tasks, from workers with kernel %s", open, kernel)
}

// logSilence logs that no results come, and what the job needs if no worker has it.
func (l *leader) logSilence(c *job.Counts) {
	fields := []zap.Field{zap.String("kernel", l.job.Spec.Kernel), zap.Int("protocol", job.Protocol),
		zap.Duration("since", l.schedule.silence().Round(time.Second)), zap.Int("tasks", c.Open), zap.Int("merged", c.Merged),
		zap.Int("of", c.Shards), zap.Int("quarantined", c.Quarantined)}
	switch {
	case l.paused():
		l.log.Warn("the server gives tasks to no worker, because somebody has paused the consumer", append(fields, zap.String("consumer", l.crew.Paused),
			zap.String("help", "nats consumer resume SHAVER_TASKS "+l.crew.Paused))...)
	case !l.unfit():
		l.log.Info("waiting for results of workers with this kernel", fields...)
	case l.otherProtocol():
		l.log.Warn("no worker with this protocol", append(fields, zap.Stringer("connected", l.crew),
			zap.String("help", "start workers of this build, or submit the job with the build of the workers"))...)
	default:
		l.log.Warn("no worker with this kernel", append(fields, zap.Stringer("connected", l.crew),
			zap.String("help", "start workers with this kernel; --kernel selects it for worker and coordinator"))...)
	}
}

// otherProtocol reports whether a connected worker has the kernel of the job, but another
// protocol.
func (l *leader) otherProtocol() bool {
	for _, b := range l.crew.Builds {
		if b.Computes(l.job.Spec.Kernel) && b.Protocol != job.Protocol {
			return true
		}
	}
	return l.crew.Older > 0
}
