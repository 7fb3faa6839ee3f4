package coordinator

import (
	"maps"
	"math"
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
	marks   []mark // moments since begun, the oldest first
	now     mark   // the present
}

// mark is what was merged at a moment.
type mark struct {
	at      time.Time
	rows    int64
	results int
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
	begun := time.Now()
	return meter{begun: begun, resumed: rows, workers: map[string]*workerMeter{}, marks: []mark{{at: begun}}}
}

// add counts a merged result.
func (m *meter) add(r *job.Result) {
	w := m.workers[r.Worker]
	if w == nil {
		w = &workerMeter{}
		m.workers[r.Worker] = w
	}
	w.shards += len(r.Covers())
	w.rows += r.Rows
	w.seconds += r.Seconds
	w.seen = time.Now()
	m.now.rows += r.Rows
	m.now.results++
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
	m.mark(now)
	p.Soonest, p.Latest = m.span(total - rows)
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

// mostMarks bounds the marks. Half of that number remain after a cut, so the windows of span are too long
// by at most a hundredth of the time so far.
const mostMarks = 256

// mark keeps what is merged now. If there are too many marks, every other one is dropped.
func (m *meter) mark(now time.Time) {
	m.now.at = now
	m.marks = append(m.marks, m.now)
	if len(m.marks) > mostMarks {
		kept := m.marks[:0]
		for i, one := range m.marks {
			if i%2 == 0 || i == len(m.marks)-1 {
				kept = append(kept, one)
			}
		}
		m.marks = kept
	}
}

// Bounds of the results of a window from which span takes a rate.
const (
	fewResults = 4 // fewer say little
	dueResults = 8 // a window of stopAfter in which these were due and fewResults did not come shows a stop
	stopAfter  = 30 * time.Second
)

// span returns the seconds in which rows will be merged, at the fastest and at the slowest rate of four
// windows: all time since this coordinator began, and its last half, quarter and eighth. The rate of
// a window with n results is uncertain by a portion of 1/sqrt(n) in each direction. 0 means unknown.
func (m *meter) span(rows int64) (soonest, latest float64) {
	now, fastest, slowest := m.now, 0.0, math.Inf(1)
	elapsed := now.at.Sub(m.begun)
	overall := now.results
	for part := time.Duration(1); part <= 8 && overall >= fewResults && elapsed > 0; part *= 2 {
		from := now.at.Add(-elapsed / part)
		i, exact := slices.BinarySearchFunc(m.marks, from, func(one mark, at time.Time) int { return one.at.Compare(at) })
		if !exact && i > 0 {
			i-- // the window begins a little earlier
		}
		then := m.marks[i]
		n, took := now.results-then.results, now.at.Sub(then.at)
		if n < fewResults {
			if due := float64(overall) * took.Seconds() / elapsed.Seconds(); due >= dueResults && took >= stopAfter {
				slowest = 0
			}
			continue
		}
		rate := float64(now.rows-then.rows) / took.Seconds()
		noise := 1 / math.Sqrt(float64(n))
		fastest, slowest = max(fastest, rate*(1+noise)), min(slowest, rate*(1-noise))
	}
	if rows <= 0 || fastest == 0 {
		return 0, 0
	}
	if slowest > 0 {
		latest = float64(rows) / slowest
	}
	return float64(rows) / fastest, latest
}
