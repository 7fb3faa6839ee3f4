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
