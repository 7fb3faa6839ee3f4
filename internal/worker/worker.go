// Package worker computes tasks: task -> shard -> partial -> result. A worker
// keeps nothing but the models it has read.
package worker

import (
	"context"
	"time"

	"go.uber.org/zap"

	"shaver/internal/bus"
	"shaver/internal/job"
	"shaver/internal/kernel"
)

// Config is what a worker needs.
type Config struct {
	Bus     *bus.Bus
	Name    string               // for people, in results and logs
	Threads int                  // goroutines that compute one task
	Models  *Models              // may be shared by the workers of a process
	Store   *Store               // datasets whose rows are read in place; nil = none
	CPU     func() time.Duration // CPU time of this process so far; nil = somebody else counts it
	OnRows  func(rows int)       // called as rows are computed, from any goroutine; nil = not
	// OnTask is called when a task has left this worker, with its outcome; nil = not.
	OnTask func(task *job.Task, outcome Outcome, try int, took time.Duration)
	Log    *zap.Logger
}

// Outcome is how a task left a worker.
type Outcome string

// The outcomes.
const (
	Done        Outcome = "done"        // a result is stored, this worker's or another's
	Over        Outcome = "over"        // nobody needs the task, because its job is over
	Abandoned   Outcome = "abandoned"   // the worker had to end, and another gets the task
	Lost        Outcome = "lost"        // set aside until the coordinator has stored again what the task needs
	Quarantined Outcome = "quarantined" // set aside for good
	Failed      Outcome = "failed"      // the task will be tried again
)

// Run computes one task after the other until ctx ends, which abandons the task
// in work, or drain is closed, which finishes it first. It returns nil when it
// was drained, ctx's error when it was cancelled.
func Run(ctx context.Context, drain <-chan struct{}, c Config) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-drain:
			stop()
		case <-waiting.Done():
		}
	}()
	for {
		d, err := c.Bus.NextTask(waiting, kernel.Name())
		if err != nil {
			if waiting.Err() != nil && ctx.Err() == nil {
				return nil
			}
			return err
		}
		quiet := context.AfterFunc(waiting, func() {
			if ctx.Err() == nil {
				c.Log.Info("leaving after the task in work; a second signal leaves at once", zap.String("job", d.Task.Job), zap.Int("shard", d.Task.Shard))
			}
		})
		err = newAttempt(&c, d).run(ctx)
		quiet()
		if err != nil {
			return err
		}
	}
}
