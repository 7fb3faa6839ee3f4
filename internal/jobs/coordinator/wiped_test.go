package coordinator_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"shaver/internal/base/long"
	"shaver/internal/jobs/bus"
	"shaver/internal/num/kernel"
)

// If the server loses everything, the job begins again, whether the coordinator or another program
// notices it first and creates the streams. The scores have the same bytes.
func TestServerIsWiped(t *testing.T) {
	long.Test(t)
	t.Parallel()
	for name, c := range map[string]struct {
		lost  []string // streams
		setUp bool     // another program sets them up at once
	}{
		"all streams":                                {[]string{"SHAVER_TASKS", "SHAVER_RESULTS", "SHAVER_QUARANTINE", "OBJ_SHAVER_BLOBS", "KV_SHAVER_JOBS"}, false},
		"all streams, which exist again":             {[]string{"SHAVER_TASKS", "SHAVER_RESULTS", "SHAVER_QUARANTINE", "OBJ_SHAVER_BLOBS", "KV_SHAVER_JOBS"}, true},
		"records of jobs":                            {[]string{"KV_SHAVER_JOBS"}, false},
		"records of jobs, which can be stored again": {[]string{"KV_SHAVER_JOBS"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the test waits most of the time
			b := newBenchOn(t, "127.0.0.1:0")
			want := b.reference()
			js := b.jetStream()
			other := b.connect(t.Context(), "other")
			defer other.Close()
			b.config.Log = zap.NewNop()
			b.config.SaveEvery = time.Nanosecond
			wipe := sync.OnceFunc(func() {
				for _, name := range c.lost {
					if err := js.DeleteStream(t.Context(), name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
						t.Error(err)
					}
				}
				if c.setUp {
					if err := other.Setup(t.Context(), b.config.Queue, kernel.Name()); err != nil && !bus.IsGone(err) {
						t.Error(err)
					}
				}
			})
			b.config.OnMerged = func(rows int64) {
				if rows >= 100 {
					wipe()
				}
			}
			got, err := b.run(t.Context(), 2)
			if err != nil {
				t.Fatalf("the job ended with %v, expected that it begins again", err)
			}
			if !bytes.Equal(got, want) {
				t.Error("the scores have other bytes")
			}
			b.wantNothing()
		})
	}
}
