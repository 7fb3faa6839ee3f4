package remote

import (
	"context"
	"math/rand/v2"
	"time"
)

// patience bounds how long an operation is tried again. Tests replace it.
var patience = struct {
	tries       int // without any progress
	first, most time.Duration
}{10, 200 * time.Millisecond, 20 * time.Second}

// retry calls do until it succeeds, fails for good, or has failed too often. do reports
// whether it got further than before, which starts the count again.
func retry(ctx context.Context, do func(try int) (progress bool, err error)) error {
	pause, failed := patience.first, 0
	for try := 0; ; try++ {
		progress, err := do(try)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if judge(err) != temporary {
			return err
		}
		if progress {
			pause, failed = patience.first, 0
		}
		if failed++; failed >= patience.tries {
			return err
		}
		timer := time.NewTimer(time.Duration((0.5 + rand.Float64()/2) * float64(pause)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		pause = min(2*pause, patience.most)
	}
}
