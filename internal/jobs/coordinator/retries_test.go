package coordinator

import (
	"strings"
	"testing"
	"unicode/utf8"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/value/estimator"
)

// The first publication of a shard is no retry. The last retries are kept with their reasons, which are cut.
func TestRetries(t *testing.T) {
	r := newRetries(100)
	for shard := range 30 {
		r.publish(shard)
	}
	r.expect(40, "an earlier coordinator's result is damaged")
	r.publish(40)
	for shard := range 30 {
		r.expect(shard, strings.Repeat("ü", 300))
		r.publish(shard)
	}
	r.publish(0)
	if r.count != 32 || len(r.last) != bus.MostNamed || len(r.why) != 0 {
		t.Fatalf("%d retries, %d kept, %d reasons", r.count, len(r.last), len(r.why))
	}
	if last := r.last[bus.MostNamed-1]; last.Shard != 0 || !strings.Contains(last.Why, "no longer stored") {
		t.Errorf("%+v", last)
	}
	if why := r.last[0].Why; len(why) > mostReason || !utf8.ValidString(why) || !strings.HasSuffix(why, "ü…") {
		t.Errorf("a reason of %d bytes: %q", len(why), why)
	}
	for shard := range 2 * mostReasons {
		r.expect(shard, "x")
	}
	if len(r.why) > mostReasons {
		t.Errorf("%d reasons", len(r.why))
	}
}

// A strip covers all shards, however many there are, in a bounded number of cells.
func TestStrip(t *testing.T) {
	for _, shards := range []int{1, 399, 400, 401, 10_000, job.MaxShards} {
		spec := job.Spec{Version: job.SpecVersion, Options: estimator.Options{Estimator: "permutation", Passes: 1}}
		done := job.NewShards(shards)
		for shard := 0; shard < shards; shard += 3 {
			done.Add(shard)
		}
		m := job.NewMachine(&spec, job.Plan{Rows: int64(shards), RowsPerShard: 1}, limits, done, 0, nil)
		m.Step(job.Inventory{Quarantined: nil})
		if shards > 1 {
			m.Step(job.Quarantine{Shard: 1, Reason: "row 1"})
		}
		s, cells, merged, open, set := strip(m, shards), 0, 0, 0, 0
		for _, run := range s.Runs {
			cells, merged, open, set = cells+run.Cells, merged+run.Cells*run.Merged, open+run.Cells*run.Open, set+run.Cells*run.Aside
		}
		c := m.Counts()
		if cells > bus.MostCells || (cells-1)*s.Size >= shards || cells*s.Size < shards || merged != c.Merged || open != c.Open || set != c.Quarantined {
			t.Errorf("%d shards: %d cells of %d, %d merged, %d open, %d aside; the machine has %+v", shards, cells, s.Size, merged, open, set, c)
		}
		if list := aside(m); shards > 1 && (len(list) != 1 || list[0].Shard != 1 || list[0].Reason != "row 1") {
			t.Errorf("%d shards: aside %+v", shards, list)
		}
	}
}
