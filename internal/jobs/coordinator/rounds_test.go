package coordinator

import (
	"bytes"
	"testing"

	"go.uber.org/zap"

	"shaver/internal/click/model"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/shard"
	"shaver/internal/num/layout"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
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
	return &rounds{job: j, sums: newSumsOf(j, nil)}
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
	back, err := readSums(&out, testJob, layout.Of(200, 1), tally.Form{}, &r.job.Plan)
	if err != nil || back.firstHalf != nil || back.accumulator.Rows() != 3 {
		t.Errorf("%+v, %v", back, err)
	}
}

// A row that lacks one of its passes counts as missing, so the scores are not complete.
func TestRowsThatLackAPass(t *testing.T) {
	r := &rounds{job: &prepare.Job{}, stopped: &scores.Stopped{Passes: 4}}
	f := &scores.File{QuarantinedRows: 3, Result: tally.Result{Scores: tally.Scores{Count: []int64{37, 0}}, Rows: 37}}
	r.countRowsOnce(f)
	if f.QuarantinedRows != 1 || f.Rows != 9 {
		t.Errorf("%d rows are scored and %d missing, expected 9 and 1", f.Rows, f.QuarantinedRows)
	}
}

// A paired job with a stop rule needs two portions of the rows before it can end. It may then
// end after any round. Without a rule it computes both halves.
func TestRoundsOfPairedJob(t *testing.T) {
	a := model.Architecture{FieldDims: []int{3}, Dim: 1}
	shape := a.Shape()
	previous := &scores.File{Fields: []string{"a"}, Layout: a, DatasetRows: 100, Result: tally.Result{Rows: 100, Scores: tally.Scores{Shape: shape, Count: []int64{40, 30, 30}, Values: tally.NewValues(3)}}}
	for name, c := range map[string]struct {
		until  *job.Until
		apart  int64   // difference between the contributions under the two models
		ends   []bool  // by round, whether the job ends after it
		halves []int64 // by round, number of rows in the first half
	}{
		"halves":       {nil, 500_000, []bool{false, true}, []int64{0, 4}},
		"equal models": {&job.Until{Rule: job.Error, Bound: .01}, 0, []bool{false, true}, []int64{0, 4}},
		"unmet":        {&job.Until{Rule: job.Error, Bound: 1e-9}, 500_000, []bool{false, false, false, true}, []int64{0, 4, 8, 16}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range previous.Phi {
				previous.Phi[i], previous.Abs[i], previous.RMS[i] = 1e-5, 1e-5, 2e-5
			}
			j := &prepare.Job{
				Spec:         job.Spec{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 2}, Until: c.until, Previous: &job.Previous{Generation: 1}},
				Plan:         job.Plan{Rows: 32, RowsPerShard: 1 << 20, Rounds: []job.Round{{Rows: 4}, {Rows: 4}, {Rows: 8}, {Rows: 16}}},
				Architecture: a, Previous: previous, Sample: shard.Sample{Rows: 100},
			}
			if c.until == nil {
				j.Plan.Rounds, j.Plan.Rows = j.Plan.Rounds[:2], 8
			}
			r := &rounds{job: j, sums: newSumsOf(j, nil)}
			for round, end := range c.ends {
				r.mergePair(t, round, c.apart)
				if r.sums.half == nil && c.halves[round] > 0 || r.sums.half != nil && r.sums.half.Rows() != c.halves[round] {
					t.Errorf("round %d: first half %+v, expected %d rows", round, r.sums.half, c.halves[round])
				}
				if more := r.judge(round, 0, zap.NewNop()); more == end {
					t.Errorf("round %d: goes on: %t", round, more)
				}
			}
			if (r.stopped != nil) != (c.until != nil) || r.stopped != nil && (r.stopped.Passes != 2 || r.stopped.Rounds != len(c.ends) || r.stopped.Figure == nil) {
				t.Errorf("stopped: %+v", r.stopped)
			}
		})
	}
}

// A shard of an earlier round that comes late, because its quarantine was removed, does not
// change the first half.
func TestLateShard(t *testing.T) {
	r := inRounds(40, 40)
	r.mergeRound(t, 0, 200)
	r.mergeRound(t, 1, 20)
	half := r.sums.firstHalf
	if r.keepFirstHalf(0); half == nil || r.sums.firstHalf != half {
		t.Errorf("the first half has %d rows, expected 40", r.sums.firstHalf.size())
	}
}

// mergePair merges all shards of a round of a paired job with a table of three features. The
// contributions differ by apart between the models, in either direction.
func (r *rounds) mergePair(t *testing.T, round int, apart int64) {
	t.Helper()
	plan := &r.job.Plan
	b := tally.NewBuilder(r.job.Architecture.Shape(), 2, formOf(r.job))
	for row := range plan.Rounds[round].Rows {
		feature := []int32{int32(row % 3)}
		played := func(sum int64) *tally.Played {
			return &tally.Played{LossFull: 5, LossEmpty: 5 + sum/2, Sum: []int64{sum}}
		}
		now := 1_000_000*(1+row%2) + 2*apart*(row%4)
		if err := b.AddPair(feature, []int{0}, played(now), played(1_000_000*(1+row%2))); err != nil {
			t.Fatal(err)
		}
	}
	p := b.Partial()
	for shard := plan.End(round - 1); shard < plan.End(round); shard++ {
		r.keepFirstHalf(shard)
		r.sums.shards.Add(shard)
	}
	if err := r.sums.accumulator.Merge(p); err != nil {
		t.Fatal(err)
	}
}
