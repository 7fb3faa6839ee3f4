package bus

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
)

// The record of a job that has finished or was cancelled outlives everything else that is stored for it. The server keeps the last
// MostEnded of them in the order of their ends. A reader that has seen some gets the others.
func TestEnded(t *testing.T) {
	b := newBus(t, testQueue)
	if all, last, err := b.Ended(t.Context(), 0); len(all) > 0 || last != 0 || err != nil {
		t.Errorf("without a job: %+v, %d, %v", all, last, err)
	}
	ends := map[string]string{Finished: Finished, Cancelled: Cancelled, Failed: "", Running: ""} // a failed job stays stored
	seed := uint64(0)
	var id string
	for state, want := range ends {
		seed++
		id = submit(t, b, seed)
		must(t, b.SetProgress(t.Context(), Progress{Job: id, State: state, Rows: 7, Updated: time.Now(), Workers: []Worker{{Name: "w", Shards: 2}}, Warnings: []string{"few rows"}}))
		e := b.Ending(t.Context(), id, "out.arrow")
		if want == "" {
			if e != nil {
				t.Errorf("a %s job has the end %+v", state, e)
			}
			continue
		}
		if e == nil || time.Since(e.Submitted) > time.Minute {
			t.Fatalf("the end of a %s job: %+v", state, e)
		}
		must(t, b.Remove(t.Context(), id))
		b.KeepEnd(t.Context(), e)
		all, _, err := b.Ended(t.Context(), 0)
		if err != nil || len(all) == 0 {
			t.Fatal(all, err)
		}
		got := all[len(all)-1]
		if p := got.Progress; got.ID != id || got.Out != "out.arrow" || !got.Submitted.Equal(e.Submitted) || got.Plan.Rows != 10 || p.State != state || p.Rows != 7 || len(p.Workers) != 1 || len(p.Warnings) != 1 {
			t.Errorf("%+v", got)
		}
	}
	_, seen, err := b.Ended(t.Context(), 0)
	must(t, err)
	for i := range 2 * MostEnded {
		b.KeepEnd(t.Context(), &Ended{Status: Status{ID: id, Progress: Progress{Job: id, State: Finished, Rows: int64(i)}}})
	}
	all, last, err := b.Ended(t.Context(), 0)
	must(t, err)
	if len(all) != MostEnded || all[0].Progress.Rows != MostEnded || all[MostEnded-1].Progress.Rows != 2*MostEnded-1 {
		t.Errorf("%d records, the first %d, expected the last %d", len(all), all[0].Progress.Rows, MostEnded)
	}
	if rest, _, err := b.Ended(t.Context(), last-1); len(rest) != 1 || rest[0].Progress.Rows != 2*MostEnded-1 || err != nil || last <= seen {
		t.Errorf("the last record: %+v, %v", rest, err)
	}
}

// A record is small, and a server without room has none. Neither delays the end of the job.
func TestEndedIsBounded(t *testing.T) {
	b := connect(t, Config{Server: startServer(t, embedded.Config{}), Name: "test"})
	id := newTask(1, 0).Job
	e := &Ended{Status: Status{ID: id, Spec: job.Spec{Kernel: testKernel}, Progress: Progress{Job: id, State: Finished, Rows: 5, Strip: &Strip{Size: 1}}}}
	begun := time.Now()
	b.KeepEnd(t.Context(), e) // no stream
	if took := time.Since(begun); took > 2*keepWithin+time.Second {
		t.Errorf("without a stream it took %v", took)
	}
	setUp(t, b, testQueue)
	for range 1000 {
		e.Progress.Workers = append(e.Progress.Workers, Worker{Name: strings.Repeat("w", 100), Shards: 1})
	}
	b.KeepEnd(t.Context(), e)
	all, _, err := b.Ended(t.Context(), 0)
	if err != nil || len(all) != 1 || all[0].Progress.Rows != 5 || len(all[0].Progress.Workers) != MostNamed || all[0].Progress.Strip != nil {
		t.Fatalf("%+v, %v", all, err)
	}
	if body, _ := json.Marshal(all[0]); len(body) > mostEndedBytes {
		t.Errorf("a record of %d bytes", len(body))
	}
	s, err := b.stream(t.Context(), jobStream)
	must(t, err)
	config := s.CachedInfo().Config
	config.MaxBytes = 1
	_, err = b.js.UpdateStream(t.Context(), config)
	must(t, err)
	begun = time.Now()
	b.KeepEnd(t.Context(), e)
	if took := time.Since(begun); took > 2*keepWithin {
		t.Errorf("on a full server it took %v", took)
	}
	if again, _, err := b.Ended(t.Context(), 0); err != nil || len(again) > 1 {
		t.Errorf("on a full server: %d records, %v", len(again), err)
	}
}
