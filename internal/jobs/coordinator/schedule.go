package coordinator

import "time"

// Intervals and time limits of a coordinator's recurring duties.
const (
	tickEvery   = 2 * time.Second  // between checks of the claim, and between progress reports
	quietAfter  = 10 * time.Second // without an event before an inventory is taken
	unfitAfter  = time.Minute      // without an event before a job that no worker can compute is stalled
	backupAfter = 3                // leases without an event before idle workers compute tasks that others hold
	logEvery    = 30 * time.Second // without an event before silence is logged, and between such log lines
	saveEvery   = 30 * time.Second // between checkpoints, by default
	reportEvery = 5 * time.Second  // between progress reports while a checkpoint is stored
	tickTimeout = 4 * time.Second  // limit for requests that can be repeated at the next tick
)

// schedule keeps the times at which a coordinator last did its recurring duties.
type schedule struct {
	every     time.Duration // between checkpoints
	saved     time.Time     // when the last checkpoint was stored or found no room, or the coordinator began
	saveTook  time.Duration // duration of the last checkpoint
	heard     time.Time     // when the last event came
	backups   int           // how often tasks were published a second time since the last event
	probes    int           // how often room was found since the last event
	probed    time.Time     // when room was last looked for
	inventory time.Time     // when the last inventory was taken
	looked    time.Time     // when workers were last looked for
	counted   time.Time     // when workers were last counted
	logged    time.Time     // when silence was last logged
	logNow    bool          // the next log line is due now
	local     bool          // the workers are in this process, and their progress shows anyway
}

// newSchedule returns the schedule of a coordinator that begins now. every is the
// time between checkpoints, 0 = saveEvery. local says that the workers are in this
// process.
func newSchedule(every time.Duration, local bool) schedule {
	if every == 0 {
		every = saveEvery
	}
	now := time.Now()
	return schedule{every: every, saved: now, heard: now, inventory: now, local: local}
}

// saveDue reports whether a checkpoint is due. Checkpoints take at most a twentieth of
// the time.
func (s *schedule) saveDue() bool { return time.Since(s.saved) >= max(s.every, 20*s.saveTook) }

// savedSince notes that storing a checkpoint began at begun and ended now. The server may have
// had no room for it.
func (s *schedule) savedSince(begun time.Time) {
	s.saved = time.Now()
	s.saveTook = s.saved.Sub(begun)
}

// hear notes that an event came.
func (s *schedule) hear() { s.heard, s.backups, s.probes = time.Now(), 0, 0 }

// backupDue reports whether no event came for so long that idle workers should compute the
// tasks of the others too. If so, it is due again after twice that time.
func (s *schedule) backupDue(lease time.Duration) bool {
	if s.silence() < max(quietAfter, backupAfter*lease)<<s.backups {
		return false
	}
	s.backups++
	return true
}

// roomDue reports whether no event came for so long that the server may have no room for results. If so, it is due again
// after twice that time.
func (s *schedule) roomDue() bool {
	if s.silence() < quietAfter<<s.probes || time.Since(s.probed) < quietAfter {
		return false
	}
	s.probes, s.probed = s.probes+1, time.Now()
	return true
}

// silence returns the time since the last event.
func (s *schedule) silence() time.Duration { return time.Since(s.heard) }

// inventoryDue reports whether no event came and no inventory was taken for quietAfter.
func (s *schedule) inventoryDue() bool {
	return s.silence() >= quietAfter && time.Since(s.inventory) >= quietAfter
}

// lookDue reports whether no workers were looked for during quietAfter. If so, it notes the
// time.
func (s *schedule) lookDue() bool {
	if time.Since(s.looked) < quietAfter {
		return false
	}
	s.looked = time.Now()
	return true
}

// countDue reports whether workers were not counted during quietAfter. If so, it notes the time.
func (s *schedule) countDue() bool {
	if time.Since(s.counted) < quietAfter {
		return false
	}
	s.counted = time.Now()
	return true
}

// logDue reports whether it is time to log that no event came, or logNow is set. If so, it notes the
// time. It is never time in a local job.
func (s *schedule) logDue() bool {
	due := s.logNow || s.silence() >= logEvery && time.Since(s.logged) >= logEvery
	if s.local || !due {
		return false
	}
	s.logged, s.logNow = time.Now(), false
	return true
}
