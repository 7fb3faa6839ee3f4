package coordinator_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shaver/internal/checkpoint"
	"shaver/internal/coordinator"
	"shaver/internal/estimator"
)

// What is measured is of the job that Run would run, and ends in time.
func TestMeasure(t *testing.T) {
	b := newBench(t)
	for _, within := range []time.Duration{0, 200 * time.Millisecond} {
		e, err := coordinator.Measure(t.Context(), b.config, 2, within)
		if err != nil {
			t.Fatal(err)
		}
		if e.Plan.Rows != 300 || e.Plan.RowsPerShard != 25 || e.PerSecond() <= 0 || e.SampleRows < 1 {
			t.Errorf("within %v: %+v", within, e)
		}
		// 14 features, all of which occur in 300 rows; 8 columns at most.
		if all := e.Distinct(300); all < 10 || all > 14 {
			t.Errorf("%v features in all rows", all)
		}
		if small, large := e.PartialBytes(1), e.PartialBytes(300); small <= 0 || small >= large {
			t.Errorf("partials of %d and %d bytes", small, large)
		}
		if e.ShardBytes(300) <= e.ShardBytes(25) || e.ModelBytes == 0 {
			t.Errorf("shards of %d and %d bytes", e.ShardBytes(25), e.ShardBytes(300))
		}
	}
}

// With an audit, it is told how long that takes, on so many rows.
func TestMeasureAudit(t *testing.T) {
	b := newBench(t)
	b.config.Options = estimator.Options{Estimator: estimator.Multilinear, Passes: 1}
	b.config.Options.SetDefaults()
	b.config.Audit, b.config.MaxRows = .5, 100
	e, err := coordinator.Measure(t.Context(), b.config, 1, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if alone := time.Duration(50 / e.PerSecond() * float64(time.Second)); e.AuditRows != 50 || e.AuditTook <= alone || e.Spec.Audit != .5 {
		t.Errorf("an audit of %d rows takes %v; the job's estimator alone takes %v", e.AuditRows, e.AuditTook, alone)
	}
}

// A row that takes longer than there is time for: one is computed, not none.
func TestMeasureSlowRows(t *testing.T) {
	b := newBench(t)
	b.config.Options = estimator.Options{Estimator: estimator.Permutation, Passes: 1 << 15}
	e, err := coordinator.Measure(t.Context(), b.config, 1, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if e.SampleRows < 1 || e.SampleRows > 24 || e.SampleFeatures > 0 && e.SampleRows < 24 {
		t.Errorf("%d rows, %d features", e.SampleRows, e.SampleFeatures)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := coordinator.Measure(ctx, b.config, 1, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Where losses are large a partial has room for few rows: fewer than are measured
// here, and fewer than a sixteenth of the job.
func TestMeasureLargeLosses(t *testing.T) {
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
		e, err := coordinator.Measure(t.Context(), b.config, 2, 200*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if e.Plan.RowsPerShard >= 19 || e.PerSecond() <= 0 {
			t.Errorf("scale %v: %d rows a shard, %v a second", scale, e.Plan.RowsPerShard, e.PerSecond())
		}
		b.config.RowsPerShard = e.Plan.RowsPerShard
		if _, err := b.run(t.Context(), 1); err != nil {
			t.Errorf("scale %v, %d rows a shard: %v", scale, b.config.RowsPerShard, err)
		}
		b.config.RowsPerShard, b.config.Out = 300, filepath.Join(t.TempDir(), "again.arrow")
		if _, err := b.run(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "--rows-per-shard") {
			t.Errorf("scale %v: error %v, expected an overflow", scale, err)
		}
	}
}
