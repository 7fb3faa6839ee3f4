package coordinator

import (
	"bytes"
	"testing"

	"shaver/internal/estimator"
	"shaver/internal/job"
	"shaver/internal/layout"
	"shaver/internal/model"
	"shaver/internal/prepare"
	"shaver/internal/scores"
	"shaver/internal/tally"
)

// inRounds returns the rounds of a job with the rule job.Overlap and a table of 200
// features of one column. The job has two passes. Its first pass consists of two
// portions with the given numbers of rows.
func inRounds(rows ...int64) *rounds {
	j := &prepare.Job{
		Spec:         job.Spec{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 2}, Until: &job.Until{Rule: job.Overlap, Bound: .9, Sparsity: .2}},
		Plan:         job.Plan{Rows: 2 * (rows[0] + rows[1]), RowsPerShard: 1 << 20, Rounds: []job.Round{{Rows: rows[0]}, {Rows: rows[1]}, {Rows: rows[0] + rows[1], Pass: 1}}},
		Architecture: model.Architecture{FieldDims: []int{200}, Dim: 1},
	}
	return &rounds{job: j, sums: newSumsOf(j)}
}

// mergeRound merges all shards of a round in which only the first features occur.
func (r *rounds) mergeRound(t *testing.T, round, features int) {
	t.Helper()
	plan := &r.job.Plan
	p := &tally.Partial{Shape: layout.Of(200, 1), Rows: plan.Rounds[round].Rows}
	for f := range features {
		p.Features, p.Count = append(p.Features, int32(f)), append(p.Count, 1)
		p.Sum, p.Abs, p.Square = append(p.Sum, int64(12345+f)), append(p.Abs, int64(12345+f)), append(p.Square, 1)
	}
	r.keepFirstHalf(plan.End(round) - 1)
	if err := r.sums.accumulator.Merge(p); err != nil {
		t.Fatal(err)
	}
	for shard := range plan.End(round) {
		r.sums.shards.Add(shard)
	}
}

// A feature that does not occur in the second half has exactly the value 0 there,
// whatever is rounded.
func TestHalvesAreExact(t *testing.T) {
	r := inRounds(4711, 4692)
	r.mergeRound(t, 0, 200)
	r.mergeRound(t, 1, 20)
	for f, total := range r.totals() {
		if second := total - r.sums.firstHalf.totals[f]; (second != 0) != (f < 20) {
			t.Errorf("feature %d has %g in the second half", f, second)
		}
	}
	// The first half keeps features 40 to 199, the second half features 0 to 19.
	if figure, judged := r.figure(1); !judged || figure != 0 {
		t.Errorf("overlap %v, judged %v, expected 0, true", figure, judged)
	}
}

// A first portion without rows is not kept as the first half, and a checkpoint after it
// can be read.
func TestFirstPortionWithoutRows(t *testing.T) {
	r := inRounds(0, 3)
	r.mergeRound(t, 1, 20)
	if figure, judged := r.figure(1); judged {
		t.Errorf("an empty first half has the overlap %v", figure)
	}
	var out bytes.Buffer
	if err := r.sums.write(&out, testJob, &r.job.Plan); err != nil {
		t.Fatal(err)
	}
	back, err := readSums(&out, testJob, layout.Of(200, 1), false, &r.job.Plan)
	if err != nil || back.firstHalf != nil || back.accumulator.Rows() != 3 {
		t.Errorf("%+v, %v", back, err)
	}
}

// A row that lacks one of its passes counts as missing, so the scores are not complete.
func TestRowsThatLackAPass(t *testing.T) {
	r := &rounds{stopped: &scores.Stopped{Passes: 4}}
	f := &scores.File{QuarantinedRows: 3, Result: tally.Result{Scores: tally.Scores{Count: []int64{37, 0}}, Rows: 37}}
	r.countRowsOnce(f)
	if f.QuarantinedRows != 1 || f.Rows != 9 {
		t.Errorf("%d rows are scored and %d missing, expected 9 and 1", f.Rows, f.QuarantinedRows)
	}
}
