package coordinator

import (
	"maps"
	"slices"
	"time"

	"shaver/internal/bus"
	"shaver/internal/job"
)

// meter measures how fast a job gets on since this coordinator leads it. What
// was merged before is not its merit.
type meter struct {
	begun   time.Time
	resumed int64 // rows merged before
	saved   time.Time
	workers map[string]*workerMeter
}

type workerMeter struct {
	shards  int
	rows    int64
	seconds float64 // of computing
	seen    time.Time
}

func newMeter(now time.Time, rows int64) meter {
	return meter{begun: now, resumed: rows, workers: map[string]*workerMeter{}}
}

// add counts a merged result.
func (m *meter) add(r *job.Result, now time.Time) {
	w := m.workers[r.Worker]
	if w == nil {
		w = &workerMeter{}
		m.workers[r.Worker] = w
	}
	w.shards++
	w.rows += r.Rows
	w.seconds += r.Seconds
	w.seen = now
}

// progress returns rates and workers, with rows merged of total.
func (m *meter) progress(now time.Time, rows, total int64) bus.Progress {
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
