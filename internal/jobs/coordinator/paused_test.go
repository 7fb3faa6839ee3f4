package coordinator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"shaver/internal/base/long"
	"shaver/internal/jobs/bus"
)

// If somebody has paused the consumer of the tasks, the job names it and continues when it is resumed.
func TestPausedConsumer(t *testing.T) {
	long.Test(t)
	t.Parallel() // the test waits most of the time
	b := newBench(t)
	core, logged := observer.New(zap.WarnLevel)
	b.config.Log = zap.New(core)
	js := b.jetStream()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	paused := ""
	b.config.OnMerged = func(int64) {
		if paused != "" {
			return
		}
		s, err := js.Stream(ctx, "SHAVER_TASKS")
		if err != nil {
			t.Error(err)
			return
		}
		for name := range s.ConsumerNames(ctx).Name() {
			paused = name
		}
		if _, err := s.PauseConsumer(ctx, paused, time.Now().Add(time.Hour)); err != nil {
			t.Error(err)
		}
	}
	b.config.OnProgress = func(p bus.Progress) {
		if !strings.Contains(p.Waiting, "the consumer "+paused+", which somebody has paused") || paused == "" {
			return
		}
		if _, err := js.ResumeConsumer(ctx, "SHAVER_TASKS", paused); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.run(ctx, 1); err != nil {
		t.Fatalf("the job ended with %v, expected that it names the consumer %s", err, paused)
	}
	if n := logged.FilterMessageSnippet("somebody has paused the consumer").Len(); n == 0 {
		t.Error("no line about it")
	}
}
