package forecast

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"

	"shaver/internal/base/cputime"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/prepare/preparetest"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
)

// prepared returns the small job of preparetest with its request changed by change.
func prepared(t *testing.T, change func(r *prepare.Request)) *prepare.Prepared {
	t.Helper()
	r, _ := preparetest.Request(t)
	change(&r)
	p, err := prepare.New(r, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Measure measures the job that a coordinator would run, and ends in time.
func TestMeasure(t *testing.T) {
	p := prepared(t, func(*prepare.Request) {})
	for _, within := range []time.Duration{0, 200 * time.Millisecond} {
		m, err := Measure(t.Context(), p, 2, within)
		if err != nil {
			t.Fatal(err)
		}
		if m.PerSecond() <= 0 || m.Rows < 1 || m.Threads != 2 || within > 0 && m.CPU <= 0 {
			t.Errorf("within %v: %+v", within, m)
		}
		// All features that occur do so in the 300 rows. There are 14 features.
		if all := m.Distinct(300); all < 10 || all > 14 {
			t.Errorf("%v features in all rows", all)
		}
		if small, large := m.PartialBytes(1), m.PartialBytes(300); small <= 0 || small >= large {
			t.Errorf("partials of %d and %d bytes", small, large)
		}
		if m.ShardBytes(300) <= m.ShardBytes(25) || m.ModelBytes == 0 {
			t.Errorf("shards of %d and %d bytes", m.ShardBytes(25), m.ShardBytes(300))
		}
		if r := m.Result; within > 0 && (r == nil || r.Rows < 25 || r.LossFull <= 0 || r.EfficiencyError > 1e-7) {
			t.Errorf("the result of the first rows is %+v", r)
		}
		// If there is no time for more rows, the features of fewer rows are not said to be theirs.
		bits := m.bits
		if m.weigh(nil); m.Features != 0 || m.bits != bits {
			t.Errorf("%d features in %d rows, %v bits, expected %v", m.Features, m.Rows, m.bits, bits)
		}
	}
}

// The time of the rows of a job of fields does not include that of drawing its background rows.
func TestMeasureFields(t *testing.T) {
	r, _ := preparetest.RequestOf(t, 100_000)
	r.Players, r.Baseline, r.Options = estimator.Fields, baseline.Marginal, estimator.Options{Estimator: estimator.Permutation, Passes: 1}
	job := func() *prepare.Prepared {
		p, err := prepare.New(r, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	alone, used := job(), cputime.Process()
	if _, err := alone.Game(t.Context()); err != nil {
		t.Fatal(err)
	}
	drawing := cputime.Process() - used
	m, err := Measure(t.Context(), job(), 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if m.CPU > drawing/2 {
		t.Errorf("%d rows took %v, and drawing alone takes %v", m.Rows, m.CPU, drawing)
	}
}

// At least one row is computed, even if it takes longer than the given time.
func TestMeasureSlowRows(t *testing.T) {
	p := prepared(t, func(r *prepare.Request) {
		r.Options = estimator.Options{Estimator: estimator.Permutation, Passes: 1 << 15}
	})
	m, err := Measure(t.Context(), p, 1, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if m.Rows < 1 || m.Rows > 24 || m.Features > 0 && m.Rows < 24 {
		t.Errorf("%d rows, %d features", m.Rows, m.Features)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(ctx, p, 1, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
