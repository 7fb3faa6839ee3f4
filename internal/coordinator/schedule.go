package coordinator

import "time"

// When a coordinator does what nobody asks for.
const (
	tickEvery   = 2 * time.Second  // checks the claim and reports progress
	quietAfter  = 10 * time.Second // without an event it takes an inventory
	logEvery    = 30 * time.Second // logs that no result comes
	saveEvery   = 30 * time.Second // stores a checkpoint, by default
	reportEvery = 5 * time.Second  // reports progress while it stores a checkpoint
	tickTimeout = 4 * time.Second  // bounds what can wait until the next tick
)

// schedule says when which of a coordinator's recurring duties is due.
type schedule struct {
	every     time.Duration // between checkpoints
	saved     time.Time     // when the last checkpoint was stored, or the coordinator began
	saveTook  time.Duration // time for the last checkpoint
	heard     time.Time     // when the last event came
	inventory time.Time     // when the last inventory was taken
	logged    time.Time     // when silence was logged
}

// newSchedule returns the schedule of a coordinator that begins now. every is the
// time between checkpoints, 0 = saveEvery.
func newSchedule(every time.Duration) schedule {
	if every == 0 {
		every = saveEvery
	}
	now := time.Now()
	return schedule{every: every, saved: now, heard: now, inventory: now}
}

// saveDue reports whether a checkpoint is due. Checkpoints take a twentieth of the
// time at most.
func (s *schedule) saveDue() bool { return time.Since(s.saved) >= max(s.every, 20*s.saveTook) }

// savedSince notes that a checkpoint was stored, and began at begun.
func (s *schedule) savedSince(begun time.Time) {
	s.saved = time.Now()
	s.saveTook = s.saved.Sub(begun)
}

// silence returns the time since the last event.
func (s *schedule) silence() time.Duration { return time.Since(s.heard) }

// inventoryDue reports whether nothing was heard and no inventory taken for a while.
func (s *schedule) inventoryDue() bool {
	return s.silence() >= quietAfter && time.Since(s.inventory) >= quietAfter
}

// logDue reports whether silence is to be logged, and notes that it is.
func (s *schedule) logDue() bool {
	if s.silence() < logEvery || time.Since(s.logged) < logEvery {
		return false
	}
	s.logged = time.Now()
	return true
}
