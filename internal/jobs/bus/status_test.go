package bus

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/job"
)

// submit stores the specification of a job. Each seed gives another job.
func submit(t *testing.T, b *Bus, seed uint64) (id string) {
	t.Helper()
	task := newTask(seed, 0)
	body, err := json.Marshal(job.Submission{Spec: task.Spec, Plan: job.Plan{Rows: 10, RowsPerShard: 4}})
	must(t, err)
	_, err = b.CreateSpec(t.Context(), task.Job, body)
	must(t, err)
	return task.Job
}

// A job whose specification is not JSON is listed with the reason, and so are all other
// jobs. It can be cancelled and removed, even if its other keys cannot be read either.
func TestUnreadableJob(t *testing.T) {
	b := newBus(t, testQueue)
	if has, err := b.HasJobs(t.Context()); has || err != nil {
		t.Errorf("jobs before the first one: %v, %v", has, err)
	}
	good := submit(t, b, 1)
	if has, err := b.HasJobs(t.Context()); !has || err != nil {
		t.Errorf("jobs after the first one: %v, %v", has, err)
	}
	bad := newTask(2, 0).Job
	body := strings.Repeat("[", 900_000)
	if _, err := b.CreateSpec(t.Context(), bad, []byte(body)); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{".checkpoint", ".progress"} {
		must(t, b.set(t.Context(), "test", jobPrefix+bad+key, []byte("\x1b[31m"), true))
	}
	jobs, err := b.Jobs(t.Context())
	if err != nil || len(jobs) != 2 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	for _, s := range jobs {
		switch {
		case s.ID == good && s.Progress.State == Interrupted && s.Progress.ShardsTotal == 3 && s.Error == "":
		case s.ID == bad && s.Progress.State == Unreadable && strings.Contains(s.Error, bad) && strings.Contains(s.Error, "invalid character"):
		default:
			t.Errorf("listed %+v", s)
		}
	}
	if _, err := b.JobStatus(t.Context(), bad); !errors.Is(err, ErrUnreadable) || !fault.IsInput(err) {
		t.Errorf("status: %v", err)
	}
	must(t, b.Cancel(t.Context(), bad))
	must(t, b.Remove(t.Context(), bad))
	stored, err := b.Stored(t.Context())
	must(t, err)
	for on := range stored {
		if strings.Contains(on, bad) {
			t.Errorf("%s is left", on)
		}
	}
	if _, err := b.JobStatus(t.Context(), good); err != nil {
		t.Error(err)
	}
}

// Progress that cannot be read, or belongs to another job, does not hide the job. A plan
// with an empty list of rounds does not end the program.
func TestOddProgress(t *testing.T) {
	b := newBus(t, testQueue)
	id := submit(t, b, 1)
	for _, body := range []string{"[", `{"job": "no", "state": "running"}`, `{"rows": "many"}`} {
		must(t, b.set(t.Context(), "test", jobPrefix+id+".progress", []byte(body), true))
		s, err := b.JobStatus(t.Context(), id)
		if err != nil || s.Progress.State != Interrupted || s.Progress.RowsTotal != 10 || !strings.Contains(s.Progress.Waiting, "cannot be read") {
			t.Errorf("progress %s: %+v, %v", body, s.Progress, err)
		}
	}
	odd := newTask(2, 0).Job
	_, err := b.CreateSpec(t.Context(), odd, []byte(`{"plan": {"rows": 10, "rows_per_shard": 4, "rounds": []}}`))
	must(t, err)
	if jobs, err := b.Jobs(t.Context()); err != nil || len(jobs) != 2 {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
}

// A job is found by the beginning of its id, and without one if it is the only job or the only
// one that runs.
func TestFindJob(t *testing.T) {
	b := newBus(t, testQueue)
	wantFound := func(prefix, want string) {
		t.Helper()
		if got, err := b.FindJob(t.Context(), prefix); err != nil || got != want {
			t.Errorf("%q: found %q, %v, expected %s", prefix, got, err, want)
		}
	}
	wantNone := func(prefix, want string) {
		t.Helper()
		if got, err := b.FindJob(t.Context(), prefix); !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: found %q, %v, expected bad input with %q", prefix, got, err, want)
		}
	}
	wantNone("", "the server has no jobs")
	wantNone("ab", "no such job")
	absent := strings.Repeat("0", 20)
	wantFound(absent, absent) // the command that looks it up says more
	first := submit(t, b, 1)
	wantFound("", first)
	wantFound(first[:1], first)
	second := submit(t, b, 2)
	both := 0
	for both < 20 && first[both] == second[both] {
		both++
	}
	wantFound(second[:both+1], second)
	wantNone("", "has 2 jobs: name one of")
	if both > 0 {
		wantNone(first[:both], "is the beginning of 2 jobs")
	}
	must(t, b.SetProgress(t.Context(), Progress{Job: second, State: Running, Workers: []Worker{}}))
	wantFound("", second)
}
