package bus

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
)

// A newer claim fences every later action of the older one.
func TestClaim(t *testing.T) {
	b := newBus(t, testQueue)
	_, err := b.CreateSpec(t.Context(), testJob, []byte("{}"))
	must(t, err)
	first, err := b.Claim(t.Context(), testJob)
	must(t, err)
	blob := job.Blob{Name: CheckpointName(testJob, 1, 1), Bytes: 3, SHA256: digest("a")}
	must(t, first.Point(t.Context(), 1, blob, true))
	must(t, first.Check(t.Context()))
	second, err := b.Claim(t.Context(), testJob)
	must(t, err)
	if l := second.Lead; l.Epoch != 2 || l.Checkpoint == nil || *l.Checkpoint != blob {
		t.Errorf("the second claim has %+v", l)
	}
	for name, err := range map[string]error{
		"point": first.Point(t.Context(), 2, blob, true), "check": first.Check(t.Context()), "end": first.End(t.Context()),
	} {
		if !errors.Is(err, ErrFenced) {
			t.Errorf("%s of the older claim: %v", name, err)
		}
	}
	must(t, second.Check(t.Context()))
	must(t, second.Point(t.Context(), 1, blob, true))
	must(t, second.Point(t.Context(), 1, blob, true)) // the same request again, as after a lost answer
	must(t, second.End(t.Context()))
	third, err := b.Claim(t.Context(), testJob)
	must(t, err)
	if !third.Lead.Ending || third.Lead.Epoch != 3 {
		t.Errorf("the third claim has %+v", third.Lead)
	}
	must(t, b.Cleanup(t.Context(), testJob))
	if err := third.Check(t.Context()); !errors.Is(err, ErrEnded) {
		t.Errorf("check of a job that was ended: %v", err)
	}
	if err := third.Point(t.Context(), 1, blob, true); !errors.Is(err, ErrEnded) {
		t.Errorf("checkpoint of a job that was ended: %v", err)
	}
	_, err = b.js.Publish(t.Context(), leadKey(testJob), []byte(`{"job":1}`))
	must(t, err)
	if _, err := b.Claim(t.Context(), testJob); !fault.IsInput(err) {
		t.Errorf("a malformed record: %v", err)
	}
}

// A claim keeps the workers that have computed wrong of the claims before.
func TestClaimKeepsWrong(t *testing.T) {
	b := newBus(t, testQueue)
	for _, wrong := range [][]string{{"x"}, {"y"}, {"x"}, nil} {
		claim, err := b.ClaimFor(t.Context(), testJob, Claimant{Wrong: wrong})
		must(t, err)
		if got := claim.Lead.Wrong; wrong == nil && !slices.Equal(got, []string{"x", "y"}) {
			t.Errorf("workers %q have computed wrong", got)
		}
	}
}

// If the server has no room for the record, Point waits only if wait is true. Without the wait it
// returns ErrFull, unless the record was stored and only the answer was lost. A record that is
// stored after all does not fence its own coordinator.
func TestFullForRecord(t *testing.T) {
	var answer func(request func() error) error // to the next request for the record
	var room func(bytes int64)                  // in the stream of the records
	b := connect(t, Config{Server: startServer(t, embedded.Config{}), Name: "test", Around: func(what string, request func() error) error {
		if answer != nil && strings.HasPrefix(what, "store the checkpoint") {
			next := answer
			answer = nil
			return next(request)
		}
		if strings.HasPrefix(what, "make room") {
			defer room(-1)
		}
		return request()
	}})
	setUp(t, b, testQueue)
	room = func(bytes int64) {
		s, err := b.js.Stream(t.Context(), jobStream)
		must(t, err)
		config := s.CachedInfo().Config
		config.MaxBytes, config.Discard = bytes, jetstream.DiscardNew
		_, err = b.js.UpdateStream(t.Context(), config)
		must(t, err)
	}
	claim, err := b.Claim(t.Context(), testJob)
	must(t, err)
	blob := job.Blob{Name: CheckpointName(testJob, 1, 1), Bytes: 3, SHA256: digest("a")}
	points := func(number int64) {
		t.Helper()
		lead, err := b.Leader(t.Context(), testJob)
		must(t, err)
		if lead.Number != number || claim.Lead.Number != number {
			t.Errorf("the record has number %d and the claim %d, expected %d", lead.Number, claim.Lead.Number, number)
		}
	}

	room(1)
	if err := claim.Point(t.Context(), 1, blob, false); !errors.Is(err, ErrFull) {
		t.Errorf("without room: %v", err)
	}
	points(0)
	time.AfterFunc(300*time.Millisecond, func() { room(-1) })
	must(t, claim.Point(t.Context(), 1, blob, true))
	points(1)

	answer = func(request func() error) error { must(t, request()); return ErrFull }
	must(t, claim.Point(t.Context(), 2, blob, false))
	points(2)

	late := claim.Lead // the server stores it although the answer was that it is full
	late.Number = 3
	body, err := json.Marshal(late)
	must(t, err)
	_, err = b.js.Publish(t.Context(), leadKey(testJob), body)
	must(t, err)
	must(t, claim.Point(t.Context(), 4, blob, false))
	points(4)

	room(1)
	must(t, claim.Distrust(t.Context(), "faulty"))
	points(4)
	room(-1)
	must(t, claim.Point(t.Context(), 5, blob, false))
	if lead, err := b.Leader(t.Context(), testJob); err != nil || !slices.Equal(lead.Wrong, []string{"faulty"}) {
		t.Errorf("%+v, %v: expected the worker that a full server did not record", lead, err)
	}

	_, err = b.Claim(t.Context(), testJob)
	must(t, err)
	room(1)
	if err := claim.Point(t.Context(), 6, blob, false); !errors.Is(err, ErrFenced) {
		t.Errorf("without room, after another claim: %v", err)
	}

	left := func() (n int) { // tasks and blobs
		tasks, err := b.subjects(t.Context(), "count", tasksStream, taskPrefix+"*."+testJob+".*")
		must(t, err)
		names, err := b.Blobs(t.Context(), testJob, "partial")
		must(t, err)
		return len(tasks) + len(names)
	}
	must(t, b.PublishTask(t.Context(), newTask(1, 0)))
	_, err = b.Put(t.Context(), PartialName(testJob, 1, "x"), []byte("a partial"))
	must(t, err)
	claim, err = b.Claim(t.Context(), testJob)
	if n := left(); err != nil || n != 1 {
		t.Errorf("%v: a claim without room leaves %d tasks and partials, expected the partial", err, n)
	}
	room(1)
	if err := claim.End(t.Context()); err != nil || left() != 0 {
		t.Errorf("%v: an end without room leaves %d tasks and partials", err, left())
	}
	if lead, err := b.Leader(t.Context(), testJob); err != nil || !lead.Ending {
		t.Errorf("%+v, %v: expected an end", lead, err)
	}
}

func TestGetInto(t *testing.T) {
	b := newBus(t, testQueue)
	data, name := random(5*chunkBytes+7), CheckpointName(testJob, 1, 1)
	blob, err := b.PutFrom(t.Context(), name, func(w io.Writer) error {
		for part := range slices.Chunk(data, 1000) {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		return nil
	}, nil)
	must(t, err)
	if again, err := b.Put(t.Context(), name, data); err != nil || again != blob {
		t.Errorf("the same bytes stored concurrently: %+v and %+v, %v", again, blob, err)
	}
	if _, err := b.PutFrom(t.Context(), name, func(io.Writer) error { return nil }, nil); !errors.Is(err, ErrConflict) {
		t.Errorf("storing unknown bytes under the same name: %v", err)
	}
	var got []byte
	must(t, b.GetInto(t.Context(), blob, blob.Bytes, func(r io.Reader) (err error) {
		got, err = io.ReadAll(r)
		return err
	}))
	if !slices.Equal(got, data) {
		t.Error("GetInto returned other bytes")
	}
	must(t, b.GetInto(t.Context(), blob, blob.Bytes, func(r io.Reader) error { // reads a part
		_, err := io.ReadFull(r, make([]byte, 10))
		return err
	}))
	wrong := errors.New("wrong")
	if err := b.GetInto(t.Context(), blob, blob.Bytes, func(io.Reader) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("the reader's error came as %v", err)
	}
	o, err := b.object(t.Context(), name)
	must(t, err)
	must(t, b.purge(t.Context(), "test", blobStream, chunkPrefix+o.NUID))
	if err := b.GetInto(t.Context(), blob, blob.Bytes, func(io.Reader) error { return nil }); !errors.Is(err, ErrCorrupt) {
		t.Errorf("without its chunks: %v", err)
	}
	if _, err := b.PutFrom(t.Context(), CheckpointName(testJob, 1, 2), func(w io.Writer) error {
		if _, err := w.Write(data); err != nil {
			return err
		}
		return wrong
	}, nil); !errors.Is(err, wrong) {
		t.Errorf("the writer's error came as %v", err)
	}
	must(t, b.Delete(t.Context(), name))
	if n := messages(t, b, blobStream); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// A server that no coordinator has used has no jobs, and Jobs returns no error.
func TestNoJobs(t *testing.T) {
	b := connect(t, Config{Server: startServer(t, embedded.Config{}), Name: "test"})
	if all, err := b.Jobs(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := b.JobStatus(t.Context(), testJob); !errors.Is(err, ErrNoJob) {
		t.Errorf("no job: %v", err)
	}
}

func TestStatus(t *testing.T) {
	b := newBus(t, testQueue)
	if _, err := b.JobStatus(t.Context(), testJob); !errors.Is(err, ErrNoJob) {
		t.Fatalf("no job: %v", err)
	}
	if err := b.Cancel(t.Context(), testJob); !errors.Is(err, ErrNoJob) {
		t.Fatalf("cancel of no job: %v", err)
	}
	_, err := b.CreateSpec(t.Context(), testJob, []byte(`{"spec":{"seed":7},"plan":{"rows":10,"rows_per_shard":3}}`))
	must(t, err)
	s, err := b.JobStatus(t.Context(), testJob)
	if must(t, err); s.Progress.State != Interrupted || s.Progress.ShardsTotal != 4 || s.Spec.Seed != 7 {
		t.Errorf("%+v", s)
	}
	p := Progress{Job: testJob, State: Running, Rows: 6, Updated: time.Now()}
	must(t, b.SetProgress(t.Context(), p))
	all, err := b.Jobs(t.Context())
	if must(t, err); len(all) != 1 || all[0].Progress.Rows != 6 || all[0].Progress.State != Running {
		t.Errorf("%+v", all)
	}
	var seen []int64
	must(t, b.Watch(t.Context(), testJob, func(s Status) error {
		if seen = append(seen, s.Progress.Rows); s.Progress.State == Finished {
			return nil
		}
		p.Rows, p.State, p.Updated = 10, Finished, p.Updated.Add(time.Second)
		return b.SetProgress(t.Context(), p)
	}))
	if !slices.Equal(seen, []int64{6, 10}) {
		t.Errorf("watched %v", seen)
	}
	if open, err := b.IsOpen(t.Context(), testJob); !open || err != nil {
		t.Errorf("open: %v, %v", open, err)
	}
	must(t, b.Cancel(t.Context(), testJob))
	if is, err := b.IsCancelled(t.Context(), testJob); !is || err != nil {
		t.Errorf("cancelled: %v, %v", is, err)
	}
	must(t, b.Cleanup(t.Context(), testJob))
	if open, err := b.IsOpen(t.Context(), testJob); open || err != nil {
		t.Errorf("open after the cleanup: %v, %v", open, err)
	}
	if n := messages(t, b, jobStream); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// Sweep deletes what jobs that are over left behind, and keeps what stored jobs use.
func TestSweep(t *testing.T) {
	b := newBus(t, testQueue)
	alive, dead := newTask(1, 0), newTask(2, 0)
	_, err := b.CreateSpec(t.Context(), alive.Job, []byte(`{"spec":{"model":"`+digest("a")+`"}}`))
	must(t, err)
	for _, task := range []job.Task{alive, dead} {
		publish(t, b, task)
		_, err := b.PublishResult(t.Context(), newResult(newTask(task.Spec.Seed, 1), "a"))
		must(t, err)
		must(t, b.SetAside(t.Context(), job.Quarantine{Job: task.Job, Shard: 2}))
		_, err = b.Put(t.Context(), PartialName(task.Job, 1, "a"), random(chunkBytes+1))
		must(t, err)
		_, err = b.js.Publish(t.Context(), chunkPrefix+newToken(ShardName(task.Job, 0)), []byte("unnamed"))
		must(t, err)
	}
	must(t, b.SetProgress(t.Context(), Progress{Job: dead.Job}))
	for _, c := range []string{"a", "b"} {
		_, err := b.Put(t.Context(), ModelName(digest(c)), random(10))
		must(t, err)
		_, err = b.js.Publish(t.Context(), chunkPrefix+newToken(ModelName(digest(c))), []byte("unnamed"))
		must(t, err)
	}
	must(t, b.Sweep(t.Context()))
	for stream, want := range map[string]uint64{tasksStream: 1, resultsStream: 1, quarantineStream: 1, jobStream: 1, blobStream: 3 + 1 + 2 + 1} {
		if n := messages(t, b, stream); n != want {
			t.Errorf("%d messages in %s, expected %d", n, stream, want)
		}
	}
	must(t, b.Cleanup(t.Context(), alive.Job))
	for _, stream := range []string{tasksStream, resultsStream, quarantineStream, jobStream, blobStream} {
		if n := messages(t, b, stream); n != 0 {
			t.Errorf("%d messages in %s after the cleanup", n, stream)
		}
	}
}

// A look for room leaves nothing behind, whether there is room or not, and if its time is over after the blob is stored.
func TestHasRoom(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stored := 0
	b := connect(t, Config{Server: startServer(t, embedded.Config{}), Name: "test", Around: func(what string, request func() error) error {
		err := request()
		if strings.HasPrefix(what, "name blob partial/") {
			if stored++; stored == 2 {
				cancel()
			}
		}
		return err
	}})
	setUp(t, b, testQueue)
	room := func(bytes int64) {
		s, err := b.js.Stream(t.Context(), blobStream)
		must(t, err)
		config := s.CachedInfo().Config
		config.MaxBytes, config.Discard = bytes, jetstream.DiscardNew
		_, err = b.js.UpdateStream(t.Context(), config)
		must(t, err)
	}
	for _, want := range []bool{true, false} {
		if got, err := b.HasRoom(t.Context(), testJob, 300_000); got != want || err != nil {
			t.Errorf("room for 300,000 bytes: %t, %v, expected %t", got, err, want)
		}
		room(200_000)
	}
	room(-1)
	_, _ = b.HasRoom(ctx, testJob, 1000)
	if names, err := b.Blobs(t.Context(), testJob, "partial"); err != nil || len(names) > 0 || stored != 2 {
		t.Errorf("%q, %v: %d blobs were stored, and none may be left", names, err, stored)
	}
}
