package main

import (
	"encoding/json"
	"sync"
	"time"
)

// counts sums up what the logs of a run say about its faults.
type counts struct {
	Merged      int `json:"merged"`      // shards, including those merged again after a coordinator's end
	Redelivered int `json:"redelivered"` // tasks delivered more than once
	Duplicates  int `json:"duplicates"`  // results refused because the shard had one or was merged
	Thrown      int `json:"thrown"`      // results discarded because their partial was missing or corrupt
	Leases      int `json:"leases"`      // leases that workers lost
	Resumed     int `json:"resumed"`     // coordinators that resumed from a checkpoint
	Checkpoints int `json:"checkpoints"`
	Fenced      int `json:"fenced"` // coordinators that ended because a newer one leads
}

func (c *counts) add(d counts) {
	c.Merged += d.Merged
	c.Redelivered += d.Redelivered
	c.Duplicates += d.Duplicates
	c.Thrown += d.Thrown
	c.Leases += d.Leases
	c.Resumed += d.Resumed
	c.Checkpoints += d.Checkpoints
	c.Fenced += d.Fenced
}

// watcher counts the log lines of a run's processes. It is safe for concurrent use.
type watcher struct {
	now func() time.Time // the clock

	mu      sync.Mutex
	counts  counts
	mark    time.Time // time of the last merged shard, or of the run's start
	longest time.Duration
}

func newWatcher(now func() time.Time) *watcher { return &watcher{now: now, mark: now()} }

// begin starts the clock when the job is submitted.
func (w *watcher) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mark = w.now()
}

// fenced counts a coordinator that ended because a newer one leads.
func (w *watcher) fenced() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.Fenced++
}

// line counts a log line in JSON. It ignores other lines.
func (w *watcher) line(text []byte) {
	var entry struct {
		Message string `json:"msg"`
		Try     int    `json:"try"`
		Why     string `json:"why"`
	}
	if json.Unmarshal(text, &entry) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch entry.Message {
	case "merged":
		w.counts.Merged++
		w.pause()
	case "task begun":
		if entry.Try > 1 {
			w.counts.Redelivered++
		}
	case "another worker was faster", "ignored":
		w.counts.Duplicates++
	case "result discarded":
		if entry.Why == "the shard is in the checkpoint" {
			w.counts.Duplicates++
		} else {
			w.counts.Thrown++
		}
	case "lease lost: another worker may compute the task too":
		w.counts.Leases++
	case "resumed":
		w.counts.Resumed++
	case "checkpoint":
		w.counts.Checkpoints++
	}
}

// pause ends a stretch without a merged shard. The caller holds mu.
func (w *watcher) pause() {
	now := w.now()
	w.longest = max(w.longest, now.Sub(w.mark))
	w.mark = now
}

// result returns the counts, and the longest stretch without a merged shard.
func (w *watcher) result() (counts, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts, w.longest
}
