package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"shaver/internal/jobs/job"
)

// The rate counts rows merged since the coordinator began, and gives the time that is
// left. A worker's rate counts only its computing time.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter(100)
		if p := m.progress(100, 300); p.Rate != 0 || p.Left != 0 || len(p.Workers) != 0 {
			t.Errorf("at the beginning: %+v", p)
		}
		time.Sleep(10 * time.Second)
		m.add(&job.Result{Worker: "b", Rows: 30, Seconds: 2})
		seen := time.Now()
		time.Sleep(10 * time.Second)
		m.add(&job.Result{Worker: "a", Rows: 20, Seconds: 1})
		m.add(&job.Result{Worker: "b", Rows: 0, Seconds: 1})
		p := m.progress(150, 300)
		if p.Rate != 2.5 || p.Left != 60 || p.Updated.Sub(p.Started) != 20*time.Second {
			t.Errorf("%+v", p)
		}
		if w := p.Workers; len(w) != 2 || w[0].Name != "a" || w[0].Rate != 20 || w[1].Shards != 2 || w[1].Rate != 10 || !w[1].Seen.After(seen) {
			t.Errorf("workers %+v", w)
		}
	})
}

// The range of the end has the true end while the rate is steady, widens when half of the workers die,
// and loses its upper bound when results stop.
func TestSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter(0)
		rows, total := int64(0), int64(1000)
		merge := func(every time.Duration, results int) (soonest, latest float64) {
			for range results {
				time.Sleep(every)
				rows++
				m.add(&job.Result{Worker: "a", Rows: 1, Seconds: 1})
				m.progress(rows, total)
			}
			p := m.progress(rows, total)
			return p.Soonest, p.Latest
		}
		if soonest, latest := merge(time.Second, 3); soonest != 0 || latest != 0 {
			t.Errorf("after 3 results: %v to %v", soonest, latest)
		}
		soonest, latest := merge(time.Second, 397)
		if soonest < 450 || soonest > 590 || latest < 610 || latest > 750 {
			t.Errorf("600 s before the end: %v to %v", soonest, latest)
		}
		soonest, latest = merge(2*time.Second, 100)
		if soonest > 500*1.2 || latest < 1000 || latest > 1400 {
			t.Errorf("1000 s before the end, at half of the rate: %v to %v", soonest, latest)
		}
		if len(m.marks) > mostMarks {
			t.Errorf("%d marks", len(m.marks))
		}
		time.Sleep(10 * time.Minute)
		if p := m.progress(rows, total); p.Soonest == 0 || p.Latest != 0 {
			t.Errorf("without results: %v to %v", p.Soonest, p.Latest)
		}
		if p := m.progress(total, total); p.Soonest != 0 || p.Latest != 0 {
			t.Errorf("at the end: %v to %v", p.Soonest, p.Latest)
		}
	})
}
