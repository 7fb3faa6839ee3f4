package cli

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"shaver/internal/atomicfile"
)

// leaveWithin is the time for which a command may continue after a signal. Most commands
// return at once. Some steps, such as sorting, do not look at the context.
const leaveWithin = time.Second

// drains is the key of a context's value, an *atomic.Bool that says that the command
// drains.
type drains struct{}

// leaveInTime returns a copy of ctx for a command of the named program. If the command
// still runs leaveWithin after ctx ended, leaveInTime deletes its temporary files and ends
// the process.
func leaveInTime(ctx context.Context, program string) context.Context {
	var draining atomic.Bool
	context.AfterFunc(ctx, func() {
		time.Sleep(leaveWithin)
		if draining.Load() {
			return
		}
		atomicfile.RemoveTemporaries()
		cancelled(program)
		os.Exit(ExitCancelled)
	})
	return context.WithValue(ctx, drains{}, &draining)
}

// Drain says that the command ends in an orderly way after ctx ends, and may take long for
// that. ctx is the context of a command that Main runs.
func Drain(ctx context.Context) {
	if draining, ok := ctx.Value(drains{}).(*atomic.Bool); ok {
		draining.Store(true)
	}
}

func cancelled(program string) { fmt.Fprintln(os.Stderr, program+": cancelled") }
