package model_test

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the processor time of this thread, which other load on the machine does
// not affect. The caller must have locked the goroutine to its thread.
func cpuTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
