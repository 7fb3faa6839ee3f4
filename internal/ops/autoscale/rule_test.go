package autoscale

import (
	"strings"
	"testing"
	"time"

	"shaver/internal/base/fault"
)

// The number of workers follows from the tasks, the present number and the recent needs.
func TestDecide(t *testing.T) {
	wide := Rule{Min: 0, Max: 10, PerWorker: 1}
	for _, c := range []struct {
		name           string
		rule           Rule
		demand         Demand
		replicas, peak int
		want           int
	}{
		{"nothing to do", wide, Demand{}, 0, 0, 0},
		{"from zero to what waits", wide, Demand{Waiting: 3}, 0, 0, 3},
		{"tasks in work count too", wide, Demand{Waiting: 2, Held: 3}, 3, 3, 5},
		{"at most the largest number", wide, Demand{Waiting: 4096}, 1, 1, 10},
		{"up at once, whatever the peak was", wide, Demand{Waiting: 7}, 2, 2, 7},
		{"not down while the peak is recent", wide, Demand{Held: 1}, 8, 8, 8},
		{"down to a lower peak", wide, Demand{Held: 1}, 8, 4, 4},
		{"down to the tasks in work", wide, Demand{Held: 2}, 8, 2, 2},
		{"to zero when nothing is left", wide, Demand{}, 8, 0, 0},
		{"not to zero while the last task is in work", wide, Demand{Held: 1}, 1, 1, 1},
		{"a peak from before somebody scaled down by hand does not scale up", wide, Demand{Waiting: 1}, 3, 9, 3},
		{"too many by hand", wide, Demand{}, 20, 20, 10},
		{"too many by hand, and all of them hold tasks", wide, Demand{Waiting: 100, Held: 20}, 20, 20, 10},
		{"the largest number was lowered below the tasks in work", Rule{Max: 4, PerWorker: 1}, Demand{Held: 6}, 6, 6, 4},
		{"the least number", Rule{Min: 2, Max: 10, PerWorker: 1}, Demand{}, 5, 0, 2},
		{"the least number from zero", Rule{Min: 2, Max: 10, PerWorker: 1}, Demand{}, 0, 0, 2},
		{"several tasks for each worker, rounded up", Rule{Max: 10, PerWorker: 4}, Demand{Waiting: 9}, 0, 0, 3},
		{"up by tasks for each worker, not by tasks in work", Rule{Max: 10, PerWorker: 4}, Demand{Held: 8}, 0, 0, 2},
		{"never down below the tasks in work", Rule{Max: 10, PerWorker: 4}, Demand{Waiting: 2, Held: 6}, 8, 2, 6},
		{"never down below the tasks in work when none waits", Rule{Max: 10, PerWorker: 4}, Demand{Held: 6}, 8, 2, 6},
	} {
		if got := c.rule.Decide(c.demand, c.replicas, c.peak); got != c.want {
			t.Errorf("%s: %d, expected %d", c.name, got, c.want)
		}
	}
}

// Contradicting limits are wrong usage.
func TestValidate(t *testing.T) {
	for flag, r := range map[string]Rule{
		"":                       {Max: 1, PerWorker: 1},
		"--max-workers 0":        {PerWorker: 1},
		"--min-workers -1":       {Min: -1, Max: 1, PerWorker: 1},
		"--min-workers 2":        {Min: 2, Max: 1, PerWorker: 1},
		"--tasks-per-worker 0":   {Max: 1},
		"--scale-down-after -1s": {Max: 1, PerWorker: 1, DownAfter: -time.Second},
	} {
		err := r.Validate()
		if (err != nil) != (flag != "") || err != nil && (!fault.IsUsage(err) || !strings.HasPrefix(err.Error(), flag+":")) {
			t.Errorf("%q: %v", flag, err)
		}
	}
}
