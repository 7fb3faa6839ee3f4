//go:build unix

// Package cputime measures processor time.
package cputime

import (
	"syscall"
	"time"
)

// Process returns the processor time that this process has used, or 0 if the system does
// not report it.
func Process() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
