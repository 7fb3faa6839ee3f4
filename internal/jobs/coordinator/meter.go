package coordinator

import (
	"maps"
	"slices"
	"time"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
)

// meter measures the progress that a job makes while this coordinator leads it. Rows
// that were merged before do not count towards the rate.
type meter struct {
	begun   time.Time
	resumed int64     // rows merged before begun
	saved   time.Time // when the last checkpoint was stored; zero = none yet
	workers map[string]*workerMeter
}

type workerMeter struct {
	shards  int
	rows    int64
	seconds float64   // computing time
	seen    time.Time // when its last result was merged
}

// newMeter returns the meter of a coordinator that begins now. rows is the number of
// rows that are merged already.
func newMeter(rows int64) meter {
	return meter{begun: time.Now(), resumed: rows, workers: map[string]*workerMeter{}}
}

// add counts a merged result.
func (m *meter) add(r *job.Result) {
	w := m.workers[r.Worker]
	if w == nil {
		w = &workerMeter{}
		m.workers[r.Worker] = w
	}
	w.shards++
	w.rows += r.Rows
	w.seconds += r.Seconds
	w.seen = time.Now()
}

// progress returns the rates, times and workers at a time when rows of total are
// merged.
func (m *meter) progress(rows, total int64) bus.Progress {
	now := time.Now()
	p := bus.Progress{Rows: rows, Started: m.begun, Updated: now, Checkpoint: m.saved, Workers: []bus.Worker{}}
	if took := now.Sub(m.begun).Seconds(); took > 0 && rows > m.resumed {
		p.Rate = float64(rows-m.resumed) / took
		p.Left = float64(total-rows) / p.Rate
	}
	for _, name := range slices.Sorted(maps.Keys(m.workers)) {
		w := m.workers[name]
		rate := 0.0
		if w.seconds > 0 {
			rate = float64(w.rows) / w.seconds
		}
		p.Workers = append(p.Workers, bus.Worker{Name: name, Shards: w.shards, Rate: rate, Seen: w.seen})
	}
	return p
}
