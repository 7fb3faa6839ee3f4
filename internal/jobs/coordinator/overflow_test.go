package coordinator_test

import (
	"bytes"
	"math"
	"os"
	"testing"
	"time"

	"go.uber.org/zap"

	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/modelfile"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/estimator"
)

// If sums of a shard do not fit in 64 bits, the job ends as any other. Its scores are the same for all sizes of
// shards, numbers of workers and ranges, and whether workers add up shards or not.
func TestLargeLosses(t *testing.T) {
	long.Test(t)
	for _, name := range []string{estimator.Permutation, estimator.Debiased, estimator.Multilinear} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			plain, err := b.config.Open()
			if err != nil {
				t.Fatal(err)
			}
			loud, _, err := plain.(*checkpoint.Checkpoint).Calibrated(240, 4800)
			if err != nil {
				t.Fatal(err)
			}
			b.config.Open = func() (modelfile.Source, error) { return loud, nil }
			b.config.Options = estimator.Options{Estimator: name, Passes: 1}
			b.config.Options.SetDefaults()
			b.config.Log = zap.NewNop()
			b.config.RowsPerShard = 300
			want, err := b.run(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			f, err := scores.Read(b.config.Out)
			if err != nil {
				t.Fatal(err)
			}
			// By Cauchy and Schwarz, the squares of an entry add up to at least the square of its sum over its count.
			least, n := 0.0, len(f.Phi)/len(f.Count)
			for i, phi := range f.Phi {
				least = max(least, math.Pow(phi*float64(f.Rows), 2)/float64(f.Count[i/n]))
			}
			if least < 1<<19 {
				t.Errorf("the squares of contributions may add up to %v nat^2 only, which fits in 64 bits", least)
			}
			for _, c := range []struct {
				rowsPerShard    int64
				workers, ranges int
				hold            time.Duration
			}{{7, 1, 0, 0}, {100, 3, 0, 0}, {9, 2, 0, time.Second}, {25, 2, 3, 0}, {25, 2, 2, time.Second}} {
				if err := os.Remove(b.config.Out); err != nil {
					t.Fatal(err)
				}
				b.config.RowsPerShard, b.hold = c.rowsPerShard, c.hold
				var got []byte
				if c.ranges > 0 {
					got, err = b.ranged(c.ranges, nil)
				} else {
					got, err = b.run(t.Context(), c.workers)
				}
				if err != nil {
					t.Fatalf("%+v: %v", c, err)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%+v: other scores", c)
				}
				b.config.Ranges = 0
			}
		})
	}
}
