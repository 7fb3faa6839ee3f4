package coordinator_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"shaver/internal/click/checkpoint"
	"shaver/internal/jobs/forecast"
)

// If losses are large, a partial has room for few rows. The forecast chooses shards
// that are small enough to be computed. With larger shards, the job's error says what
// to do.
func TestLargeLosses(t *testing.T) {
	for _, scale := range []float64{200, 330} {
		b := newBench(t)
		plain, err := b.config.Open()
		if err != nil {
			t.Fatal(err)
		}
		loud, _, err := plain.Calibrated(scale, 20*scale)
		if err != nil {
			t.Fatal(err)
		}
		b.config.Open = func() (*checkpoint.Checkpoint, error) { return loud, nil }
		b.config.RowsPerShard = 0
		f, err := forecast.New(t.Context(), b.config.Request, forecast.Config{Cores: 2, Threads: 2, Within: 200 * time.Millisecond, Log: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		// These are fewer rows than were measured, and fewer than a sixteenth of the
		// job.
		if f.RowsPerShard >= 19 || !(f.RowsPerCore > 0) {
			t.Errorf("scale %v: %d rows a shard, %v a second", scale, f.RowsPerShard, f.RowsPerCore)
		}
		b.config.RowsPerShard = f.RowsPerShard
		if _, err := b.run(t.Context(), 1); err != nil {
			t.Errorf("scale %v, %d rows a shard: %v", scale, b.config.RowsPerShard, err)
		}
		b.config.RowsPerShard, b.config.Out = 300, filepath.Join(t.TempDir(), "again.arrow")
		if _, err := b.run(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "choose fewer rows per shard") {
			t.Errorf("scale %v: error %v, expected an overflow", scale, err)
		}
	}
}
