package coordinator_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"shaver/internal/base/long"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare/preparetest"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/estimator"
)

// newPathBench returns a bench whose job is a path of some rounds.
func newPathBench(t *testing.T) *bench {
	b := newBench(t)
	b.config.Options = estimator.Options{Estimator: estimator.Path, Passes: 1, Parts: 3, Sparsity: .9}
	b.config.Queue.Lease = 500 * time.Millisecond
	b.config.SaveEvery = time.Nanosecond // checkpoints as often as possible
	return b
}

// A path has the same bytes wherever its coordinator is interrupted, be it in a round, at its end or
// at the beginning of the next one, and whatever the number of workers and the size of the shards.
func TestResumePath(t *testing.T) {
	long.Test(t)
	t.Run("drops", func(t *testing.T) {
		t.Parallel() // the test waits most of the time
		b := newPathBench(t)
		testResumePath(t, b, 0, cuts(20))
	})
	t.Run("adds", func(t *testing.T) {
		t.Parallel()
		b := newPathBench(t)
		b.config.Request = preparetest.Wide(t)
		b.config.Options = estimator.Options{Estimator: estimator.Path, Passes: 1, Parts: 3, Sparsity: .999}
		testResumePath(t, b, 8, cuts(4)) // they keep 1, 2, 3, 4, 5, 7, 9 and 12 entries, and then 13
	})
}

// testResumePath tests a path of which the given number of rounds adds entries, and interrupts it cuts times.
func testResumePath(t *testing.T, b *bench, adds int, cuts int64) {
	want, err := b.run(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	head, err := scores.Read(b.config.Out)
	if err != nil || len(head.Path.Rounds) < 8 || head.Path.Reach < .9 || head.Rows != 300 || head.Path.Rounds[0].Rows != 300 {
		t.Fatalf("%+v of %d rows, %v", head.Path, head.Rows, err)
	}
	drops := len(head.Path.Rounds) - adds
	for i, round := range head.Path.Rounds[1:] {
		before := head.Path.Rounds[i].Kept
		if fewer := round.Kept < before; round.Rows != 100 || fewer != (i+1 < drops) || round.Kept == before && i+1 != drops {
			t.Errorf("round %d of %d that drop and %d that add: %+v after %d kept entries, expected a third of the rows", i+2, drops, adds, round, before)
		}
	}
	total := b.rows.Load()
	b.wantNothing()
	for at := int64(1); at < total; at += total/cuts + 1 {
		b.cutOff(at)
		if got, err := b.run(t.Context(), 1); err != nil || !bytes.Equal(got, want) {
			t.Errorf("cut off after %d rows of %d: the same bytes: %v, %v", at, total, bytes.Equal(got, want), err)
		}
		b.wantNothing()
	}
	sizes := []int64{64, 7, 1, 1 << 20}
	if !long.All() || adds > 0 { // rounds that add only take longer
		sizes = sizes[:1]
	}
	for _, rows := range sizes {
		if err := os.Remove(b.config.Out); err != nil {
			t.Fatal(err)
		}
		b.config.RowsPerShard = rows
		if got, err := b.run(t.Context(), 5); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d rows a shard, 5 workers: the same bytes: %v, %v", rows, bytes.Equal(got, want), err)
		}
	}
}

// If its time is over, a path ends after a round. Its order is usable, and the scores say how far.
func TestTimeOfPathIsOver(t *testing.T) {
	b := newPathBench(t)
	b.config.Until = &job.Until{Seconds: 1e-6}
	if _, err := b.run(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	f, err := scores.Read(b.config.Out)
	if err != nil {
		t.Fatal(err)
	}
	want := scores.Stopped{Rounds: 1, Passes: 1, Reason: scores.TimeOver}
	if *f.Stopped != want || len(f.Path.Rounds) != 1 || f.Path.Reach < .2 || f.Path.Reach > .3 {
		t.Errorf("%+v, %+v", f.Stopped, f.Path)
	}
}

// A path of fewer rows than parts has one row in each part, and its scores can be read.
func TestPathOfFewRows(t *testing.T) {
	b := newPathBench(t)
	b.config.MaxRows, b.config.Options.Parts = 5, 16
	if _, err := b.run(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	f, err := scores.Read(b.config.Out)
	if err != nil || f.Rows != 5 {
		t.Fatalf("%d rows, %v", f.Rows, err)
	}
	for i, round := range f.Path.Rounds[1:] {
		if round.Rows != 1 {
			t.Errorf("round %d has %d rows", i+2, round.Rows)
		}
	}
}

// What a path cannot do is refused in one line.
func TestPathRefuses(t *testing.T) {
	for want, change := range map[string]func(*coordinator.Config){
		"needs an estimator of values": func(c *coordinator.Config) { c.Until = &job.Until{Rule: job.Error, Bound: .1} },
		"audit":                        func(c *coordinator.Config) { c.Audit = .5 },
	} {
		b := newPathBench(t)
		change(&b.config)
		if _, err := b.run(t.Context(), 1); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, expected one line with %q", err, want)
		}
	}
}
