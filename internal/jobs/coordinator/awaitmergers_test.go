package coordinator_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"shaver/internal/base/long"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
)

// A job that waits for mergers says so after two seconds, and becomes stalled. It can be cancelled.
func TestJobWaitsForMergers(t *testing.T) {
	long.Test(t)
	t.Parallel() // the test waits most of the time
	b := newBench(t)
	core, logged := observer.New(zap.WarnLevel)
	b.config.Log, b.config.Ranges = zap.New(core), 2
	c := b.connect(t.Context(), "coordinator")
	defer c.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := coordinator.Run(t.Context(), c, b.config)
		ended <- err
	}()
	operator := b.connect(t.Context(), "operator")
	defer operator.Close()
	var s bus.Status
	for end := time.Now().Add(20 * time.Second); s.Progress.State != bus.Stalled; time.Sleep(100 * time.Millisecond) {
		jobs, err := operator.Jobs(t.Context())
		if err != nil || time.Now().After(end) {
			t.Fatalf("status %+v, %v, expected a stalled job", s.Progress, err)
		}
		if len(jobs) > 0 {
			s = jobs[0]
		}
	}
	if want := "2 mergers, of which 0 are found"; s.Progress.Waiting != want {
		t.Errorf("the job waits for %q, expected %q", s.Progress.Waiting, want)
	}
	all := logged.FilterMessage("waiting for mergers").All()
	if len(all) != 1 || !strings.Contains(all[0].ContextMap()["help"].(string), "--ranges=2") {
		t.Errorf("log %v, expected one line about mergers in the first 15 s", all)
	}
	if err := operator.Cancel(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, bus.ErrCancelled) {
		t.Errorf("the cancelled job ended with %v", err)
	}
	b.wantNothing()
}
