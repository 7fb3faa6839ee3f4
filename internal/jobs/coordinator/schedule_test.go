package coordinator

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Checkpoints are made at their interval, but take at most a twentieth of the time.
func TestSaveDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(0, false)
		wait := func(d time.Duration, want bool) {
			t.Helper()
			time.Sleep(d)
			if got := s.saveDue(); got != want {
				t.Errorf("due: %v, expected %v", got, want)
			}
		}
		wait(saveEvery-1, false)
		wait(1, true)
		begun := time.Now()
		time.Sleep(3 * time.Second)
		s.savedSince(begun)
		wait(saveEvery, false)
		wait(30*time.Second-1, false)
		wait(1, true)
	})
}

// An inventory is due after ten seconds without an event, and then every ten seconds.
// Silence is logged every thirty seconds. An event starts the count again.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(0, false)
		inventories, logs := 0, 0
		wait := func(d time.Duration, wantInventories, wantLogs int) {
			t.Helper()
			inventories, logs = 0, 0
			for end := time.Now().Add(d); time.Now().Before(end); {
				time.Sleep(tickEvery)
				if s.inventoryDue() {
					inventories++
					s.inventory = time.Now()
				}
				if s.logDue() {
					logs++
				}
			}
			if inventories != wantInventories || logs != wantLogs {
				t.Errorf("%v: %d inventories and %d log lines, expected %d and %d", d, inventories, logs, wantInventories, wantLogs)
			}
		}
		wait(8*time.Second, 0, 0)
		wait(22*time.Second, 3, 1)
		wait(30*time.Second, 3, 1)
		s.heard = time.Now()
		wait(8*time.Second, 0, 0)
		wait(2*time.Second, 1, 0)
		s.logNow = true // a line that is due at once starts the count of the lines again
		wait(2*time.Second, 0, 1)
		wait(28*time.Second, 3, 0)
		wait(2*time.Second, 0, 1)
		s = newSchedule(0, true) // a local job does not say that it waits for workers
		wait(8*time.Second, 0, 0)
		wait(22*time.Second, 3, 0)
	})
}

// Without events, idle workers compute the tasks of others after three leases, and then
// after twice that time, and so on. An event begins the count again.
func TestBackupDue(t *testing.T) {
	const lease = time.Minute
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(0, false)
		for range 2 {
			s.hear()
			begun := time.Now()
			var due []time.Duration
			for time.Since(begun) < 30*lease {
				time.Sleep(quietAfter)
				if s.backupDue(lease) {
					due = append(due, time.Since(begun))
				}
			}
			if len(due) != 4 || due[0] != 3*lease || due[1] != 6*lease || due[2] != 12*lease || due[3] != 24*lease {
				t.Errorf("due after %v", due)
			}
		}
		s.hear()
		if time.Sleep(quietAfter - 1); s.backupDue(time.Second) {
			t.Error("due before an inventory is")
		}
	})
}

// Room is looked for after ten seconds without an event, and then after twice that time each. An event, and a look that found none,
// start again, but a look follows another one after ten seconds at least.
func TestRoomDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begun := newSchedule(0, false), time.Now()
		var looks []int // seconds
		for range 45 {
			time.Sleep(2 * time.Second)
			if s.roomDue() {
				looks = append(looks, int(time.Since(begun).Seconds()))
				if len(looks) == 3 {
					s.probes = 0 // there was none
				}
			}
			if time.Since(begun) == 54*time.Second {
				s.hear()
			}
		}
		if want := []int{10, 20, 40, 50, 64, 74}; !slices.Equal(looks, want) {
			t.Errorf("looks at %v s, expected %v", looks, want)
		}
	})
}
