package coordinator_test

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"shaver/internal/estimator"
	"shaver/internal/job"
	"shaver/internal/scores"
)

// An audit is part of the scores' bytes, whatever it ran on; a job that was cut off
// before it does it when it is run again.
func TestAudit(t *testing.T) {
	b := newBench(t)
	b.config.Options = estimator.Options{Estimator: estimator.Multilinear, Passes: 1}
	b.config.Options.SetDefaults()
	b.config.Audit = .5
	want, err := b.run(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	f, err := scores.Read(b.config.Out)
	if err != nil {
		t.Fatal(err)
	}
	a := f.Audit
	if a == nil || a.Rows != 150 || f.Rows != 300 || a.RelativeRMS == nil || *a.RelativeRMS <= 0 || len(a.Overlaps) != 5 {
		t.Fatalf("audit %+v of %d rows", a, f.Rows)
	}
	again := func(what string) {
		t.Helper()
		if got, err := b.run(t.Context(), 2); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the same bytes: %v, %v", what, bytes.Equal(got, want), err)
		}
		b.wantNothing()
	}
	f.Audit = nil
	if err := scores.Write(b.config.Out, f); err != nil {
		t.Fatal(err)
	}
	b.rows.Store(0)
	again("cut off before the audit")
	if n := b.rows.Load(); n != 3*150 {
		t.Errorf("the audit alone computed %d rows", n)
	}
	if err := os.Remove(b.config.Out); err != nil {
		t.Fatal(err)
	}
	b.config.RowsPerShard = 7
	again("with other shards")
}

// The rows of an audit are of the job's splits, and so many as its portion of those
// that were scored.
func TestAuditOfSample(t *testing.T) {
	b := newBench(t)
	b.config.Options = estimator.Options{Estimator: estimator.Multilinear, Passes: 1}
	b.config.Options.SetDefaults()
	b.config.Splits, b.config.MaxRows, b.config.Audit = []string{"train"}, 100, .5
	jobs := 0
	b.config.OnStart = func(spec job.Spec, plan job.Plan, _ int64) {
		if jobs++; jobs > 1 && (plan.Rows != 25 || !slices.Equal(spec.Splits, []string{"train"}) || spec.Audit != 0) {
			t.Errorf("a job of the audit computes %d rows of %v", plan.Rows, spec.Splits)
		}
	}
	if _, err := b.run(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	f, err := scores.Read(b.config.Out)
	if err != nil {
		t.Fatal(err)
	}
	if jobs != 1+2*3 || f.Rows != 100 || f.Audit == nil || f.Audit.Rows != 50 {
		t.Errorf("%d jobs; audit %+v of %d rows", jobs, f.Audit, f.Rows)
	}
}
