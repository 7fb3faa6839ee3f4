package merger

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A wait for mergers is logged after two seconds, and then every 15 seconds.
func TestWaitLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []int
		begun := time.Now()
		for w := (waitLog{begun: begun}); time.Since(begun) < 40*time.Second; time.Sleep(200 * time.Millisecond) {
			if w.due() {
				lines = append(lines, int(time.Since(begun).Seconds()))
			}
		}
		if want := []int{2, 17, 32}; !slices.Equal(lines, want) {
			t.Errorf("log lines after %v seconds, expected %v", lines, want)
		}
	})
}
