package work

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A worker ends when the answer was "no job" for the whole time. A job, and a time without an
// answer, begin the time again.
func TestIdle(t *testing.T) {
	const after = 10 * time.Minute
	failure := errors.New("no rights")
	for name, c := range map[string]struct {
		has  func(at time.Duration) (bool, error) // what is answered at a time
		want error
		from time.Duration // when idle returns, or up to a pause later
	}{
		"no job":          {func(time.Duration) (bool, error) { return false, nil }, errIdle, after},
		"a job of 1 hour": {func(at time.Duration) (bool, error) { return at < time.Hour, nil }, errIdle, time.Hour + after},
		"a gap": {func(at time.Duration) (bool, error) {
			return at < time.Hour || 65*time.Minute < at && at < 2*time.Hour, nil
		}, errIdle, 2*time.Hour + after},
		"no answer for an hour": {func(at time.Duration) (bool, error) {
			if at > 5*time.Minute && at < 6*time.Minute {
				time.Sleep(time.Hour)
			}
			return false, nil
		}, errIdle, 65*time.Minute + after},
		"an error": {func(at time.Duration) (bool, error) {
			if at < time.Hour {
				return true, nil
			}
			return false, failure
		}, failure, time.Hour},
		"asked to leave": {func(time.Duration) (bool, error) { return true, nil }, context.DeadlineExceeded, 9 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 9*time.Hour)
				defer cancel()
				begun := time.Now()
				err := idle(ctx, after, func(context.Context) (bool, error) { return c.has(time.Since(begun)) })
				took := time.Since(begun)
				if !errors.Is(err, c.want) || took < c.from || took > c.from+30*time.Second {
					t.Errorf("%v after %v, expected %v after %v", err, took, c.want, c.from)
				}
			})
		})
	}
}
