// Package autoscale chooses how many workers a queue needs, and sizes a Deployment of
// Kubernetes accordingly.
package autoscale

import (
	"time"

	"shaver/internal/base/fault"
)

// Rule is how the number of workers follows from the number of tasks.
type Rule struct {
	Min, Max  int // least and largest number of workers
	PerWorker int // number of tasks for each worker, at least 1
	// DownAfter is how long fewer workers must have been enough before workers end.
	DownAfter time.Duration
}

// Validate returns wrong usage for limits that contradict each other. Its errors name the
// flags of shaver job serve.
func (r *Rule) Validate() error {
	switch {
	case r.Max < 1:
		return fault.Usagef("--max-workers %d: must be at least 1", r.Max)
	case r.Min < 0 || r.Min > r.Max:
		return fault.Usagef("--min-workers %d: must be from 0 to --max-workers %d", r.Min, r.Max)
	case r.PerWorker < 1:
		return fault.Usagef("--tasks-per-worker %d: must be at least 1", r.PerWorker)
	case r.DownAfter < 0:
		return fault.Usagef("--scale-down-after %v: must not be negative", r.DownAfter)
	}
	return nil
}

// Demand is the number of tasks that wait for a worker, and that workers hold.
type Demand struct{ Waiting, Held int }

// Need returns how many workers the tasks need.
func (r *Rule) Need(d Demand) int {
	tasks := d.Waiting + d.Held
	return r.within((tasks + r.PerWorker - 1) / r.PerWorker)
}

// Decide returns the number of workers that there should be, if there are replicas now. peak
// is the largest need of the last DownAfter. More workers start at once. Workers end only if
// fewer were enough all that time. At least as many stay as hold a task, because nobody can
// choose which of them end. Max limits all this. If there are more than Max, because somebody
// lowered Max or scaled by hand, the others end at once, and finish their tasks first. They would
// otherwise take tasks until the queue is empty.
func (r *Rule) Decide(d Demand, replicas, peak int) int {
	need := r.Need(d)
	if need >= replicas {
		return need
	}
	return r.within(max(need, min(replicas, max(peak, d.Held))))
}

func (r *Rule) within(n int) int { return min(max(n, r.Min), r.Max) }

// window remembers the needs of the last DownAfter.
type window struct{ samples []sample }

type sample struct {
	at   time.Time
	need int
}

// add remembers a need, forgets those before since, and returns the largest one left.
func (w *window) add(now, since time.Time, need int) (peak int) {
	w.samples = append(w.samples, sample{now, need})
	kept := w.samples[:0]
	for _, s := range w.samples {
		if s.at.Before(since) {
			continue
		}
		kept = append(kept, s)
		peak = max(peak, s.need)
	}
	w.samples = kept
	return peak
}
