package coordinator

import (
	"slices"
	"strings"
	"time"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
)

// retries keeps which shards this coordinator published again, and why, for people.
type retries struct {
	published job.Shards
	why       map[int]string // reasons for which shards will be published again
	count     int
	last      []bus.Republished // at most bus.MostNamed, the oldest first
}

func newRetries(shards int) retries {
	return retries{published: job.NewShards(shards), why: map[int]string{}}
}

// putBack is why a shard that was in quarantine is published again.
const putBack = "somebody put it back from quarantine"

// mostReasons bounds the shards whose reasons are kept until they are published.
const mostReasons = 4096

// expect keeps why a shard will be published again.
func (r *retries) expect(shard int, why string) {
	if len(r.why) < mostReasons && shard < 8*len(r.published) { // otherwise of a task with Verify
		r.why[shard] = why
	}
}

// publish counts a shard that is about to be published.
func (r *retries) publish(shard int) {
	why, known := r.why[shard]
	delete(r.why, shard)
	if !r.published.Has(shard) {
		r.published.Add(shard)
		if !known { // an earlier coordinator may have published it
			return
		}
	}
	if !known {
		why = "its task or its result was no longer stored"
	}
	r.count++
	if len(r.last) == bus.MostNamed {
		r.last = slices.Delete(r.last, 0, 1)
	}
	r.last = append(r.last, bus.Republished{Shard: shard, At: time.Now(), Why: short(why)})
}

// mostReason bounds a reason in the progress of a job, in bytes. The quarantine has all of it.
const mostReason = 400

// short returns the beginning of a reason.
func short(text string) string {
	if len(text) <= mostReason {
		return text
	}
	return strings.ToValidUTF8(text[:mostReason-len("…")], "") + "…"
}

// strip returns where the shards of a machine are.
func strip(m *job.Machine, shards int) *bus.Strip {
	s := &bus.Strip{Size: max(1, (shards+bus.MostCells-1)/bus.MostCells)}
	for _, c := range m.Strip(s.Size) {
		run := bus.Run{Cells: 1, Merged: c.Merged, Open: c.Open, Aside: c.Quarantined}
		if n := len(s.Runs); n > 0 {
			if last := &s.Runs[n-1]; last.Merged == run.Merged && last.Open == run.Open && last.Aside == run.Aside {
				last.Cells++
				continue
			}
		}
		s.Runs = append(s.Runs, run)
	}
	return s
}

// aside returns the first quarantined shards for a progress.
func aside(m *job.Machine) (first []bus.Aside) {
	for _, q := range m.Quarantined() {
		if len(first) == bus.MostNamed {
			break
		}
		first = append(first, bus.Aside{Shard: q.Shard, Input: q.Input, Worker: q.Worker, Reason: short(q.Reason)})
	}
	return first
}
