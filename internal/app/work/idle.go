package work

import (
	"context"
	"errors"
	"time"
)

// errIdle ends a worker that has nothing to wait for.
var errIdle = errors.New("there is no job")

// idle returns errIdle once has has said for the given time that there is no job. Otherwise it returns
// the error of has, or ctx's error when ctx ends. Time in which has did not answer does not count.
func idle(ctx context.Context, after time.Duration, has func(context.Context) (bool, error)) error {
	pause := min(max(after/10, 10*time.Millisecond), 10*time.Second)
	var since time.Time // when has first said so; zero = there was a job
	for {
		asked := time.Now()
		found, err := has(ctx)
		now := time.Now()
		switch {
		case err != nil:
			return err
		case found:
			since = time.Time{}
		case since.IsZero() || now.Sub(asked) > pause:
			since = now
		case now.Sub(since) >= after:
			return errIdle
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
