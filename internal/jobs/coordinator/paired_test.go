package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"shaver/internal/base/files"
	"shaver/internal/base/long"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/prepare/preparetest"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// correct runs the job of b and returns its scores. Then it changes the model of b, and makes
// the job of b correct these scores on the given portion of the rows.
func (b *bench) correct(sample float64) *scores.File {
	b.t.Helper()
	if _, err := b.run(b.t.Context(), 2); err != nil {
		b.t.Fatal(err)
	}
	was := b.scores()
	b.config.Previous = &prepare.Previous{Open: b.config.Open, Scores: was, Digest: b.digest()}
	b.config.Open, b.config.Sample = preparetest.Changed(b.t, b.config.Open), sample
	b.next()
	return was
}

// next gives the job of b another scores file, and forgets the rows computed so far.
func (b *bench) next() {
	b.config.Out = filepath.Join(b.t.TempDir(), "next.arrow")
	b.rows.Store(0)
}

func (b *bench) scores() *scores.File {
	b.t.Helper()
	f, err := scores.Read(b.config.Out)
	if err != nil {
		b.t.Fatal(err)
	}
	return f
}

func (b *bench) digest() string {
	b.t.Helper()
	digest, err := files.Digest(b.config.Out)
	if err != nil {
		b.t.Fatal(err)
	}
	return digest
}

// A paired job computes its sample alone. It gives the same bytes for any number of workers
// and any shards, and leaves nothing on the server. If it runs again, it finds its scores.
func TestPaired(t *testing.T) {
	b := newBench(t)
	was := b.correct(.4)
	var want []byte
	for i, c := range []struct {
		perShard int64
		workers  int
	}{{25, 2}, {0, 1}, {7, 3}, {1000, 1}} {
		b.next()
		b.config.RowsPerShard = c.perShard
		got, err := b.run(t.Context(), c.workers)
		if err != nil {
			t.Fatal(err)
		}
		if n := b.rows.Load(); n != 120 {
			t.Errorf("%d rows were computed, expected 120", n)
		}
		if i > 0 && !bytes.Equal(got, want) {
			t.Errorf("%+v gives other bytes", c)
		}
		want = got
	}
	b.wantNothing()
	f := b.scores()
	l := f.Lineage
	if l == nil || l.Generation != 1 || l.Rows != 120 || !slices.Equal(l.Models, []string{was.Spec.Model, f.Spec.Model}) || len(l.Fields) != 2 || f.Stopped != nil {
		t.Errorf("lineage %+v, stopped %+v", l, f.Stopped)
	}
	if f.Rows != 300 || f.DatasetRows != 300 || !slices.Equal(f.Count, was.Count) || f.PairedSE == nil || slices.Equal(f.Phi, was.Phi) {
		t.Errorf("%d of %d rows, counts %v, errors %v", f.Rows, f.DatasetRows, f.Count, f.PairedSE)
	}
	if b.run(t.Context(), 0); b.rows.Load() != 120 {
		t.Error("the existing scores were computed again")
	}
}

// A paired job on all rows gives the values of a full job. With the same model, and any
// sample, it gives the previous values.
func TestPairedLimits(t *testing.T) {
	b := newBench(t)
	was := b.correct(1)
	equal := func(what string, f, want *scores.File) {
		t.Helper()
		if !slices.Equal(f.Phi, want.Phi) || !slices.Equal(f.Abs, want.Abs) || !slices.Equal(f.RMS, want.RMS) || f.LossFull != want.LossFull || f.LossEmpty != want.LossEmpty {
			t.Errorf("%s: other values:\n%v, expected\n%v", what, f.Phi, want.Phi)
		}
	}
	run := func() *scores.File {
		t.Helper()
		b.next()
		if _, err := b.run(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		return b.scores()
	}
	all, previous := run(), b.config.Previous
	b.config.Previous = nil
	equal("all rows", all, run())
	if all.Lineage.Error != 0 {
		t.Errorf("all rows are scored, but the error is %v", all.Lineage.Error)
	}
	b.config.Previous, b.config.Open, b.config.Sample = previous, previous.Open, .1
	same := run()
	equal("the same model", same, was)
	if !slices.Equal(same.SE, was.SE) || !slices.Equal(same.PopulationSE, was.PopulationSE) || same.Lineage.Error != 0 || same.Lineage.Rows != 30 {
		t.Errorf("the same model: errors %v, expected %v; lineage %+v", same.SE, was.SE, same.Lineage)
	}
}

// Each generation names all models since the full job, and scores other rows.
func TestGenerations(t *testing.T) {
	b := newBench(t)
	b.correct(.3)
	models := []string{b.config.Previous.Scores.Spec.Model}
	for generation := 1; generation <= 3; generation++ {
		b.next()
		if _, err := b.run(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		f := b.scores()
		models = append(models, f.Spec.Model)
		if l := f.Lineage; l.Generation != generation || !slices.Equal(l.Models, models) {
			t.Errorf("generation %d: %+v, expected the models %v", generation, l, models)
		}
		b.config.Previous = &prepare.Previous{Open: b.config.Open, Scores: f, Digest: b.digest()}
		b.config.Open = preparetest.Changed(t, b.config.Open)
	}
	b.wantNothing()
}

// A paired job gives the same bytes wherever it was interrupted, in a half of the sample or
// between the halves. The checkpoint contains the sums of the first half.
func TestResumePaired(t *testing.T) {
	long.Test(t)
	t.Parallel() // the test waits most of the time
	for name, until := range map[string]*job.Until{
		"halves": nil, "error": {Rule: job.Error, Bound: .001}, "overlap": {Rule: job.Overlap, Bound: .999, Sparsity: .5},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.correct(.5)
			b.config.Until, b.config.RowsPerShard, b.config.SaveEvery = until, 5, time.Nanosecond
			want, err := b.run(t.Context(), 2)
			if err != nil {
				t.Fatal(err)
			}
			total := b.rows.Load()
			for at := int64(1); at < total; at += total/cuts(5) + 1 {
				b.next()
				cut, cancel := context.WithCancel(t.Context())
				b.config.OnMerged = func(rows int64) {
					if rows >= at {
						cancel()
					}
				}
				if _, err := b.run(cut, 2); !errors.Is(err, context.Canceled) {
					t.Fatalf("cut off after %d rows: %v", at, err)
				}
				b.config.OnMerged = nil
				got, err := b.run(t.Context(), 1)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("cut off after %d rows of %d: the same bytes: %v, %v", at, total, bytes.Equal(got, want), err)
				}
				if n := b.rows.Load(); n > total+2*5 { // each of two workers may have computed a shard again
					t.Errorf("cut off after %d rows of %d: %d rows were computed", at, total, n)
				}
			}
			b.wantNothing()
		})
	}
}

// A paired job with a stop rule reports the figure of its scores. Each row has all passes.
func TestPairedUntil(t *testing.T) {
	b := newBench(t)
	b.correct(.5)
	b.config.Until = &job.Until{Rule: job.Error, Bound: .5}
	if _, err := b.run(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	f := b.scores()
	s, l := f.Stopped, f.Lineage
	if s.Reason != scores.RuleMet || !s.Converged || s.Passes != 3 || s.Rounds != 2 || l.Rows != 150 || l.Rows != b.rows.Load() || f.Rows != 300 {
		t.Errorf("%+v after %d rows, scores of %d rows", s, l.Rows, f.Rows)
	}
	if *s.Figure != l.Error || l.Error == 0 || l.Error >= .5 {
		t.Errorf("figure %v, error %v", *s.Figure, l.Error)
	}
	b.next()
	b.config.Until = &job.Until{Rule: job.Overlap, Bound: .999, Sparsity: .3}
	if _, err := b.run(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	f = b.scores()
	if s := f.Stopped; s.Figure == nil || *s.Figure <= 0 || *s.Figure > 1 || s.Converged != (*s.Figure > .999) || f.Lineage.Rows != 150 {
		t.Errorf("overlap: %+v, lineage %+v", s, f.Lineage)
	}
}

// The rule error compares the root mean square of the standard errors with that of the
// values.
func TestUntilError(t *testing.T) {
	b := newBench(t)
	b.config.Until = &job.Until{Rule: job.Error, Bound: .4}
	b.config.Options.Passes = 4
	if _, err := b.run(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	f := b.scores()
	var phi2, se2 float64
	for i, phi := range f.Phi {
		phi2 += phi * phi
		se2 += float64(f.SE[i]) * float64(f.SE[i])
	}
	figure := math.Sqrt(se2 / phi2)
	if s := f.Stopped; s.Reason != scores.RuleMet || math.Abs(*s.Figure-figure) > 1e-9 || figure >= .4 {
		t.Errorf("%+v, figure %v; the errors of the scores are %v of the values", s, *s.Figure, figure)
	}
}

// Sums gets the sums of the finished job before its values are written. In a paired job
// these are the sums of both models.
func TestSums(t *testing.T) {
	b := newBench(t)
	b.config.Options = estimator.Options{Estimator: estimator.Permutation, Passes: 1}
	b.correct(.5)
	called, written := false, false
	b.config.Sums = func(a *tally.Accumulator) error {
		called = true
		full, empty := a.PreviousLosses()
		if written || a.Rows() != 150 || full <= 0 || empty <= 0 {
			t.Errorf("%d rows, losses %v and %v; the scores were written before: %t", a.Rows(), full, empty, written)
		}
		return nil
	}
	b.config.Sink = func(f *scores.File, values func(int, tally.Values)) error {
		written = true
		return nil
	}
	b.run(t.Context(), 2)
	if !called || !written {
		t.Errorf("called: %t, written: %t", called, written)
	}
	failed := errors.New("failed")
	b.config.Sums = func(*tally.Accumulator) error { return failed }
	if _, err := b.run(t.Context(), 2); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
}
