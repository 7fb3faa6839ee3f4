package coordinator

import (
	"fmt"
	"testing"
	"time"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
)

// If a task is in a second try, the workers are named that gave a result or an answer before and are silent now, each
// once until it speaks again. The last ones are kept.
func TestLookForLost(t *testing.T) {
	const lease = 30 * time.Second
	now := time.Now()
	o := newLost()
	results := map[string]*workerMeter{"dead": {seen: now.Add(-34 * time.Second)}, "slow": {seen: now.Add(-time.Minute)}, "busy": {seen: now}, "gone": {seen: now.Add(-time.Hour)}}
	answered := []job.Build{{Name: "slow"}, {Name: "new"}}
	look := func(after time.Duration, again bool, answered ...job.Build) (names string) {
		o.again = again
		for _, w := range o.look(now.Add(after), lease, results, answered) {
			names += w.Worker + " "
		}
		return names
	}
	if got := look(0, false, answered...); got != "" {
		t.Errorf("without a second try: %s", got)
	}
	if got := look(0, true, answered...); got != "dead " || o.last[0].Text() != "no word from worker dead for 34 s: if it holds a task, another worker gets it" {
		t.Fatalf("%s, %+v", got, o.last)
	}
	results["busy"].seen = now.Add(lease)
	if got := look(lease, true, answered[0]); got != "new " { // it never gave a result
		t.Errorf("the second time: %s", got)
	}
	results["dead"].seen = now.Add(lease)
	if got := look(2*lease, true, answered[0]); len(got) != len("busy dead ") {
		t.Errorf("after it spoke: %s", got)
	}
	look(3*lease, true, answered[0], job.Build{Name: "leaver", Leaving: true})
	results["leaver"] = &workerMeter{seen: now.Add(3*lease + time.Second)} // its last result
	if got := look(4*lease, true, answered[0]); got != "" {
		t.Errorf("a worker that said that it leaves is lost: %s", got)
	}
	look(4*lease, true, answered[0], job.Build{Name: "leaver"}) // it was started again
	if got := look(5*lease, true, answered[0]); got != "leaver " {
		t.Errorf("a worker that was started again: %s", got)
	}
	for i := range 3 * bus.MostNamed {
		results[fmt.Sprint(i)] = &workerMeter{seen: now.Add(time.Duration(i) * time.Second)}
	}
	if look(5*lease, true, answered[0]); len(o.last) != bus.MostNamed {
		t.Errorf("%d are kept, expected %d", len(o.last), bus.MostNamed)
	}
	if look(100*lease, false); len(o.words) > 0 {
		t.Errorf("words are kept for long: %v", o.words)
	}
}
