package coordinator

import (
	"fmt"
	"testing"
	"time"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
)

// A worker that neither answers nor gives a result in the time of a lease is lost once, until it speaks again. The
// last ones are kept.
func TestLookForLost(t *testing.T) {
	const lease = 30 * time.Second
	now := time.Now()
	o := &lost{}
	workers := map[string]*workerMeter{"dead": {seen: now.Add(-34 * time.Second)}, "slow": {seen: now.Add(-time.Hour)}, "busy": {seen: now}}
	answered := []job.Build{{Name: "slow"}, {Name: "new"}}
	found := o.look(now, lease, workers, answered)
	if len(found) != 1 || found[0].Text() != "no word from worker dead for 34 s: if it holds a task, another worker gets it" {
		t.Fatalf("%+v", found)
	}
	if found = o.look(now, lease, workers, answered); len(found) != 0 || len(o.last) != 1 {
		t.Errorf("the second time: %+v", found)
	}
	workers["dead"].seen = now
	o.look(now, lease, workers, answered)
	if found = o.look(now.Add(lease), lease, workers, answered); len(found) != 2 || found[0].Worker == found[1].Worker {
		t.Errorf("after it spoke: %+v", found)
	}
	for i := range 3 * bus.MostNamed {
		workers[fmt.Sprint(i)] = &workerMeter{seen: now.Add(-time.Duration(i+100) * time.Second)}
	}
	if o.look(now, lease, workers, answered); len(o.last) != bus.MostNamed {
		t.Errorf("%d are kept, expected %d", len(o.last), bus.MostNamed)
	}
}
