package main

import (
	"encoding/json"
	"sync"
	"time"
)

// counts is what a run's logs say of how its faults were borne.
type counts struct {
	Merged      int `json:"merged"`      // shards, those merged again after a coordinator's end too
	Redelivered int `json:"redelivered"` // tasks that were handed out once more
	Duplicates  int `json:"duplicates"`  // results refused, as the shard had one or was merged
	Thrown      int `json:"thrown"`      // results thrown away, as their partial was missing or corrupt
	Leases      int `json:"leases"`      // that workers saw end
	Resumed     int `json:"resumed"`     // coordinators that went on from a checkpoint
	Checkpoints int `json:"checkpoints"`
	Fenced      int `json:"fenced"` // coordinators that left for a newer one
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

// watcher counts the lines of a run's processes. Safe for concurrent use.
type watcher struct {
	now func() time.Time // a clock

	mu      sync.Mutex
	counts  counts
	mark    time.Time // the last merged shard, or the run's begin
	longest time.Duration
}

func newWatcher(now func() time.Time) *watcher { return &watcher{now: now, mark: now()} }

// begin starts the clock: the job is submitted.
func (w *watcher) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mark = w.now()
}

// fenced counts a coordinator that left for a newer one.
func (w *watcher) fenced() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.Fenced++
}

// line takes a line of a log in JSON; others count nothing.
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
	case "result thrown away":
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

// pause ends a stretch without a merged shard; mu is held.
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
