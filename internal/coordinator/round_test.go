package coordinator

import (
	"bytes"
	"testing"

	"shaver/internal/estimator"
	"shaver/internal/job"
	"shaver/internal/model"
	"shaver/internal/scores"
	"shaver/internal/tally"
)

// inRounds returns a job with the rule of overlap, of a table of 200 features of one
// column and two passes, whose first pass has two portions of so many rows.
func inRounds(rows ...int64) *run {
	plan := job.Plan{Rows: 2 * (rows[0] + rows[1]), RowsPerShard: 1 << 20, Rounds: []job.Round{{Rows: rows[0]}, {Rows: rows[1]}, {Rows: rows[0] + rows[1], Pass: 1}}}
	r := &run{Config: &Config{Until: &job.Until{Rule: job.Overlap, Bound: .9, Sparsity: .2}, Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}},
		arch: &model.Architecture{FieldDims: []int{200}, Dim: 1}, plan: plan}
	r.merged = newMerged(200, 1, false, plan.Shards())
	return r
}

// merges merges all shards of a round, in which the first so many features occur.
func (r *run) merges(t *testing.T, round, features int) {
	t.Helper()
	p := &tally.Partial{Dim: 1, Rows: r.plan.Rounds[round].Rows}
	for f := range features {
		p.Features, p.Count = append(p.Features, int32(f)), append(p.Count, 1)
		p.Sum, p.Abs, p.Square = append(p.Sum, int64(12345+f)), append(p.Abs, int64(12345+f)), append(p.Square, 1)
	}
	r.turn(r.plan.End(round) - 1)
	if err := r.sums.Merge(p); err != nil {
		t.Fatal(err)
	}
	for shard := range r.plan.End(round) {
		r.shards.Add(shard)
	}
}

// What does not occur in the second half has no value there, whatever is rounded.
func TestHalvesAreExact(t *testing.T) {
	r := inRounds(4711, 4692)
	r.merges(t, 0, 200)
	r.merges(t, 1, 20)
	for f, total := range r.totals() {
		if second := total - r.half.sums[f]; (second != 0) != (f < 20) {
			t.Errorf("feature %d has %g in the second half", f, second)
		}
	}
	// By the first half the last 40 to 199 are kept, by the second its 20.
	if figure, judged := r.figure(1); !judged || figure != 0 {
		t.Errorf("an overlap of %v, %v", figure, judged)
	}
}

// A first portion without rows is no half, and a checkpoint after it is taken.
func TestFirstPortionWithoutRows(t *testing.T) {
	r := inRounds(0, 3)
	r.merges(t, 1, 20)
	if figure, judged := r.figure(1); judged {
		t.Errorf("no rows against three have an overlap of %v", figure)
	}
	var out bytes.Buffer
	if err := r.write(&out, testJob, &r.plan); err != nil {
		t.Fatal(err)
	}
	back, err := readMerged(&out, testJob, 200, 1, false, &r.plan)
	if err != nil || back.half != nil || back.sums.Rows() != 3 {
		t.Errorf("%+v, %v", back, err)
	}
}

// A row that lacks one of its passes is missing: scores of which some are, are not all.
func TestRowsThatLackAPass(t *testing.T) {
	r := &run{stopped: &scores.Stopped{Passes: 4}}
	f := &scores.File{QuarantinedRows: 3, Result: tally.Result{Scores: tally.Scores{Count: []int64{37, 0}}, Rows: 37}}
	r.perPass(f)
	if f.QuarantinedRows != 1 || f.Rows != 9 {
		t.Errorf("%d rows are scored, %d missing, of 10", f.Rows, f.QuarantinedRows)
	}
}
