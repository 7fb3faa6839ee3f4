package page

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
)

// The page of a NATS server shows what it holds, calls a job by the place of its scores, keeps a job that
// has ended, and says when the server cannot be read.
func TestServer(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	b, err := bus.Connect(t.Context(), bus.Config{Server: server, Name: "test", Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := NewServer("nats://x:4222")
	read := func() *Snapshot {
		t.Helper()
		got, err := s.Read(t.Context())
		must(err)
		return got
	}
	if got := read(); got.Trouble == "" || got.Server != "nats://x:4222" {
		t.Errorf("before a connection: %+v", got)
	}
	must(s.Connected(b))
	s.SetNights([]Night{{Name: "monday"}})
	if got := read(); got.Trouble != "" || len(got.Jobs) != 0 || len(got.Nights) != 1 {
		t.Errorf("without a job: %+v", got)
	}
	j := pathJob()
	must(b.Setup(t.Context(), bus.DefaultQueue, j.Spec.Kernel))
	body, err := json.Marshal(job.Submission{Spec: j.Spec, Plan: j.Plan})
	must(err)
	_, err = b.CreateSpec(t.Context(), j.ID, body)
	must(err)
	_, err = b.ClaimFor(t.Context(), j.ID, bus.Claimant{Out: "s3://bucket/order.arrow"})
	must(err)
	must(b.Announce(job.Build{Name: "worker-a", Kernel: "avx2", Protocol: job.Protocol}))
	must(b.SetProgress(t.Context(), j.Progress))
	must(b.SetAside(t.Context(), job.Quarantine{Job: j.ID, Shard: 6011, Reason: "row 7", Worker: "worker-a"}))
	old, err := b.Overview(t.Context())
	must(err)
	s.ask = time.Time{}
	got := read()
	if len(got.Jobs) != 1 || len(got.Tasks) != 1 {
		t.Fatalf("%+v", got)
	}
	if one := got.Jobs[0]; one.Name != "order.arrow" || one.Quarantined != 1 || one.Done != 6010 || len(one.Cells) != 400 || one.Submitted.IsZero() ||
		len(one.Workers) != 2 || one.Workers[0].Name != "worker-a" || one.Workers[0].Answers != Answered || one.Workers[1].Answers != Silent {
		t.Errorf("%+v", one)
	}
	last := j.Progress
	last.State, last.Shards, last.Rows, last.Updated = bus.Finished, 9998, 9998, last.Updated.Add(time.Second)
	last.Warnings = []string{"few rows"}
	must(b.SetProgress(t.Context(), last))
	over := func() bool {
		s.keep.mu.Lock()
		defer s.keep.mu.Unlock()
		return !s.keep.jobs[j.ID].over.IsZero()
	}
	for end := time.Now().Add(20 * time.Second); !over() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	end := b.Ending(t.Context(), j.ID, "s3://bucket/order.arrow")
	must(b.Cleanup(t.Context(), j.ID))
	s.See(old, time.Now()) // a reading that took long does not bring it back
	o, err := b.Overview(t.Context())
	must(err)
	s.See(o, time.Now()) // nobody looks
	if got = read(); len(got.Jobs) != 1 || got.Jobs[0].Ended.IsZero() || got.Jobs[0].Name != "order.arrow" || got.Jobs[0].Progress.State != bus.Finished || got.Jobs[0].Progress.Rows != 9998 {
		t.Errorf("after its end: %+v", got.Jobs)
	}
	p, err := render(got, j.ID)
	must(err)
	for _, want := range []string{"finished.", "All is merged, and the scores are at s3://bucket/order.arrow.", "ended ", ", after "} {
		if page := text(p); !strings.Contains(page, want) {
			t.Errorf("the page of the ended job lacks %q:\n%s", want, page)
		}
	}
	b.KeepEnd(t.Context(), end)
	again := NewServer("nats://x:4222") // another process
	must(again.Connected(b))
	for name, s := range map[string]*Server{"this page": s, "another page": again} {
		for range 2 {
			got, err := s.Read(t.Context())
			must(err)
			if len(got.Jobs) != 1 {
				t.Fatalf("%s shows %d jobs", name, len(got.Jobs))
			}
			if one := got.Jobs[0]; one.Name != "order.arrow" || !one.Ended.Equal(last.Updated) || one.Submitted.IsZero() || one.Done != 6010 || len(one.Workers) != 2 || one.Progress.State != bus.Finished {
				t.Errorf("%s: %s, submitted %v, ended %v, %d shards, %+v", name, one.Name, one.Submitted, one.Ended, one.Done, one.Workers)
			}
			p, err := render(got, j.ID)
			must(err)
			if page := text(p); !strings.Contains(page, "few rows.") {
				t.Errorf("%s lacks the warning:\n%s", name, page)
			}
			s.See(old, time.Now())
		}
	}
	_, err = b.CreateSpec(t.Context(), j.ID, body) // it is submitted again
	must(err)
	if got, err = again.Read(t.Context()); err != nil || len(got.Jobs) != 1 || !got.Jobs[0].Ended.IsZero() {
		t.Errorf("submitted again: %d jobs, %v", len(got.Jobs), err)
	}
	must(b.Cleanup(t.Context(), j.ID))
	b.Close()
	if got = read(); !strings.Contains(got.Trouble, "closed") || len(got.Jobs) != 1 {
		t.Errorf("without a connection: %+v", got)
	}
}
