// Package worker computes tasks: task -> shard -> partial -> result. A worker keeps
// nothing between tasks except the models it has read.
package worker

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"shaver/internal/bus"
	"shaver/internal/job"
	"shaver/internal/kernel"
)

// Config says how to run a worker.
type Config struct {
	Bus  *bus.Bus
	Name string // shown in results and logs
	// Kernels are the kernels whose tasks the worker computes; nil = the one in use. With
	// several, nothing else may compute in the process, because a task selects its kernel.
	Kernels []string
	Threads int                  // number of goroutines that compute one task
	Models  *Models              // may be shared by the workers of a process
	Store   *Store               // datasets whose rows are read in place; nil = no store
	CPU     func() time.Duration // CPU time of this process so far; nil = not reported in results
	OnRows  func(rows int)       // called as rows are computed, from any goroutine; nil = no call
	// OnTask is called with the outcome when this worker is finished with a task; nil =
	// no call.
	OnTask func(task *job.Task, outcome Outcome, try int, took time.Duration)
	Log    *zap.Logger
}

// Outcome says how a worker finished with a task.
type Outcome string

// The outcomes.
const (
	Done        Outcome = "done"        // a result is stored, by this worker or another
	Over        Outcome = "over"        // the job is over, so the task is not needed
	Abandoned   Outcome = "abandoned"   // the worker had to end, and another worker gets the task
	Lost        Outcome = "lost"        // set aside until the coordinator has stored the task's data again
	Quarantined Outcome = "quarantined" // set aside for good
	Failed      Outcome = "failed"      // the task will be tried again
)

// Run computes one task after the other. If ctx ends, Run abandons its current task and
// returns ctx's error. If drain is closed, Run first finishes the task and returns nil.
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
	kernels := slices.Clone(c.Kernels)
	if len(kernels) == 0 {
		kernels = []string{kernel.Name()}
	}
	for {
		d, err := c.Bus.NextTask(waiting, kernels...)
		if err != nil {
			if waiting.Err() != nil && ctx.Err() == nil {
				return nil
			}
			return err
		}
		if name := d.Task.Spec.Kernel; len(kernels) > 1 && kernel.Use(name) {
			// The other kernels come first next time, so that the jobs of one do not hold up
			// those of another.
			kernels = append(slices.DeleteFunc(kernels, func(k string) bool { return k == name }), name)
		}
		quiet := context.AfterFunc(waiting, func() {
			if ctx.Err() == nil {
				c.Log.Info("ending after the current task; a second signal ends at once", zap.String("job", d.Task.Job), zap.Int("shard", d.Task.Shard))
			}
		})
		err = newAttempt(&c, d).run(ctx)
		quiet()
		if err != nil {
			return err
		}
	}
}
