package remote

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"
)

// patience bounds how long an operation is tried again. Tests replace it.
var patience = struct {
	tries       int // without any progress
	first, most time.Duration
}{10, 200 * time.Millisecond, 20 * time.Second}

// stall is how long the body of an answer may give nothing before its reading fails. Tests replace it.
var stall = time.Minute

// unstalled makes the bodies of answers fail if they stall. The error is temporary.
type unstalled struct{ http.RoundTripper }

func (u unstalled) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	answer, err := u.RoundTripper.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Body = &body{ReadCloser: answer.Body, cancel: cancel}
	return answer, nil
}

type body struct {
	io.ReadCloser
	cancel  context.CancelFunc
	stalled bool
}

func (b *body) Read(p []byte) (int, error) {
	timer := time.AfterFunc(stall, b.cancel)
	n, err := b.ReadCloser.Read(p)
	if b.stalled = !timer.Stop() || b.stalled; b.stalled && err != nil && err != io.EOF {
		err = fmt.Errorf("the store sent nothing for %v", stall)
	}
	return n, err
}

func (b *body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

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
