package coordinator_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sync/errgroup"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/coordinator"
)

// A job without faults logs no warning, also if workers store one partial for several shards and
// each is in a checkpoint before the next result comes. The result of each shard is deleted once.
func TestQuietWithoutFaults(t *testing.T) {
	b := newBench(t)
	core, logged := observer.New(zap.WarnLevel)
	b.config.Log = zap.New(core)
	b.config.SaveEvery = time.Nanosecond
	b.config.Splits = []string{"train"} // without the split that the dataset lacks
	b.hold = time.Second
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers errgroup.Group
	for range 2 {
		workers.Go(func() error { b.work(ctx); return nil })
	}
	var deleted atomic.Int64
	own, err := bus.Connect(ctx, bus.Config{Server: b.server, Name: "coordinator", Around: func(what string, request func() error) error {
		if strings.HasPrefix(what, "delete shaver.result.") {
			deleted.Add(1)
		}
		return request()
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	outcome, err := coordinator.Run(ctx, own, b.config)
	stop()
	_ = workers.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if all := logged.All(); len(all) > 0 {
		t.Errorf("warnings without a fault: %v", all)
	}
	if n := outcome.Plan.Shards(); n < 10 || deleted.Load() > int64(n) {
		t.Errorf("%d results of %d shards were deleted one by one", deleted.Load(), n)
	}
}
