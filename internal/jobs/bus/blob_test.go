package bus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"shaver/internal/base/long"
	"shaver/internal/jobs/bus/embedded"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/job"
)

func random(size int) []byte {
	data := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(size)})
	_, _ = r.Read(data)
	return data
}

var testJob = newTask(1, 0).Job

func TestBlobs(t *testing.T) {
	b := newBus(t, testQueue)
	for _, size := range []int{0, 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 20 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			data, name := random(size), ShardName(testJob, size)
			blob, err := b.Put(t.Context(), name, data)
			must(t, err)
			sum := sha256.Sum256(data)
			if want := (job.Blob{Name: name, Bytes: int64(size), SHA256: hex.EncodeToString(sum[:])}); blob != want {
				t.Errorf("reference %+v, expected %+v", blob, want)
			}
			again, err := b.Put(t.Context(), name, data)
			if must(t, err); again != blob {
				t.Errorf("storing the same bytes again: %+v", again)
			}
			if _, err := b.Put(t.Context(), name, append(data, 1)); !errors.Is(err, ErrConflict) {
				t.Errorf("storing other bytes under the name: %v", err)
			}
			got, err := b.Get(t.Context(), blob, int64(size))
			if must(t, err); !bytes.Equal(got, data) {
				t.Error("Get returned other bytes")
			}
			// The nats command and the library see an ordinary object.
			store, err := b.js.ObjectStore(t.Context(), blobBucket)
			must(t, err)
			if got, err := store.GetBytes(t.Context(), name); err != nil || !bytes.Equal(got, data) {
				t.Errorf("through the library: %d bytes, %v", len(got), err)
			}
			if size > 0 {
				if _, err := b.Get(t.Context(), blob, int64(size)-1); !fault.IsInput(err) {
					t.Errorf("a blob larger than the limit: %v", err)
				}
			}
			must(t, b.Delete(t.Context(), name))
			must(t, b.Delete(t.Context(), name))
			if _, err := b.Get(t.Context(), blob, int64(size)); !errors.Is(err, ErrNotFound) {
				t.Errorf("after the delete: %v", err)
			}
		})
	}
	if n := messages(t, b, blobStream); n != 0 {
		t.Errorf("%d messages left after everything was deleted", n)
	}
	for _, name := range []string{"", "x", "model/", "model/" + digest("A"), "shard/" + testJob + "/01", "shard/" + testJob + "/1/2",
		"partial/" + testJob + "/1/", "partial/" + testJob + "/1/a.b", "partial/*/1/a"} {
		if _, err := b.Put(t.Context(), name, nil); err == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
}

func messages(t *testing.T, b *Bus, stream string) uint64 {
	t.Helper()
	s, err := b.js.Stream(t.Context(), stream)
	must(t, err)
	return s.CachedInfo().State.Msgs
}

func TestRacingBlobs(t *testing.T) {
	b := newBus(t, testQueue)
	data, name := random(1<<20), ModelName(digest("0"))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			blob, err := b.Put(t.Context(), name, data)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := b.Get(t.Context(), blob, 1<<20); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	group.Wait()
	if n := messages(t, b, blobStream); n != 8+1 {
		t.Errorf("%d messages are stored, expected 8 chunks and a description", n)
	}
}

func TestCorruptBlobs(t *testing.T) {
	const size = 3*chunkBytes + 5
	tests := map[string]func(t *testing.T, b *Bus, o *object, s jetstream.Stream) error{
		"a chunk is gone": func(t *testing.T, _ *Bus, o *object, s jetstream.Stream) error {
			return s.DeleteMsg(t.Context(), o.sequence-2)
		},
		"all chunks are gone": func(t *testing.T, b *Bus, o *object, _ jetstream.Stream) error {
			return b.purge(t.Context(), "test", blobStream, chunkPrefix+o.NUID)
		},
		"a chunk is another": func(t *testing.T, b *Bus, o *object, s jetstream.Stream) error {
			if err := s.DeleteMsg(t.Context(), o.sequence-1); err != nil {
				return err
			}
			_, err := b.js.Publish(t.Context(), chunkPrefix+o.NUID, []byte("12345"))
			return err
		},
		"a chunk is longer": func(t *testing.T, b *Bus, o *object, s jetstream.Stream) error {
			if err := s.DeleteMsg(t.Context(), o.sequence-1); err != nil {
				return err
			}
			_, err := b.js.Publish(t.Context(), chunkPrefix+o.NUID, []byte("123456"))
			return err
		},
		"a chunk is shorter": func(t *testing.T, b *Bus, o *object, s jetstream.Stream) error {
			if err := s.DeleteMsg(t.Context(), o.sequence-1); err != nil {
				return err
			}
			_, err := b.js.Publish(t.Context(), chunkPrefix+o.NUID, []byte("1234"))
			return err
		},
		"another name": func(t *testing.T, b *Bus, o *object, _ jetstream.Stream) error {
			_, err := b.js.Publish(t.Context(), metaSubject(o.Name), []byte(`{"name":"y"}`))
			return err
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBus(t, testQueue)
			blob, err := b.Put(t.Context(), ShardName(testJob, 0), random(size))
			must(t, err)
			o, err := b.object(t.Context(), blob.Name)
			must(t, err)
			s, err := b.stream(t.Context(), blobStream)
			must(t, err)
			must(t, spoil(t, b, o, s))
			start := time.Now()
			_, err = b.Get(t.Context(), blob, size)
			if !errors.Is(err, ErrCorrupt) || !fault.IsInput(err) || !bytes.Contains([]byte(err.Error()), []byte(blob.Name)) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("the error took %v", took)
			}
		})
	}
	t.Run("another reference", func(t *testing.T) {
		b := newBus(t, testQueue)
		blob, err := b.Put(t.Context(), ShardName(testJob, 0), random(size))
		must(t, err)
		wrong := blob
		wrong.SHA256 = digest("0")
		if _, err := b.Get(t.Context(), wrong, size); !errors.Is(err, ErrCorrupt) {
			t.Errorf("got %v", err)
		}
	})
}

// The remains of an unfinished delete, or of a delete by the nats command, do not prevent
// storing the blob again.
func TestPutOverRemains(t *testing.T) {
	b := newBus(t, testQueue)
	data, name := random(3*chunkBytes), ShardName(testJob, 0)
	blob, err := b.Put(t.Context(), name, data)
	must(t, err)
	o, err := b.object(t.Context(), name)
	must(t, err)
	must(t, b.purge(t.Context(), "test", blobStream, chunkPrefix+o.NUID))
	put := func() {
		t.Helper()
		_, err := b.Put(t.Context(), name, data)
		must(t, err)
		if got, err := b.Get(t.Context(), blob, 1<<20); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if n := messages(t, b, blobStream); n != 3+1 {
			t.Errorf("%d messages are stored, expected 3 chunks and a description", n)
		}
	}
	put()
	store, err := b.js.ObjectStore(t.Context(), blobBucket)
	must(t, err)
	must(t, store.Delete(t.Context(), name))
	if _, err := b.Get(t.Context(), blob, 1<<20); !errors.Is(err, ErrNotFound) {
		t.Errorf("a tombstone gave %v", err)
	}
	put()
}

func TestCleanup(t *testing.T) {
	b := newBus(t, testQueue)
	streams := []string{tasksStream, resultsStream, quarantineStream, blobStream, jobStream}
	fill := func(seed uint64) string {
		id := newTask(seed, 0).Job
		if stored, err := b.CreateSpec(t.Context(), id, []byte("spec")); err != nil || string(stored) != "spec" {
			t.Fatalf("%s, %v", stored, err)
		}
		if stored, err := b.CreateSpec(t.Context(), id, []byte("other")); err != nil || string(stored) != "spec" {
			t.Errorf("the second spec: %s, %v", stored, err)
		}
		for shard := range 20 {
			for _, name := range []string{ShardName(id, shard), PartialName(id, shard, "a"), PartialName(id, shard, "b")} {
				_, err := b.Put(t.Context(), name, random(chunkBytes+1))
				must(t, err)
			}
			publish(t, b, newTask(seed, shard))
			if shard < 10 {
				_, err := b.PublishResult(t.Context(), newResult(newTask(seed, shard), "a"))
				must(t, err)
			}
		}
		d := next(t, b)
		for d.Task.Job != id { // skip the remaining tasks of the first job
			d = next(t, b)
		}
		must(t, d.Quarantine(t.Context(), "because", true))
		next(t, b) // a worker holds this task
		return id
	}
	counts := func() (all []uint64) {
		for _, stream := range streams {
			all = append(all, messages(t, b, stream))
		}
		return all
	}
	first := fill(1)
	one := counts()
	second := fill(2)
	must(t, b.Cleanup(t.Context(), first))
	if got := counts(); fmt.Sprint(got) != fmt.Sprint(one) {
		t.Errorf("%v messages for the other job, expected %v in %v", got, one, streams)
	}
	if got := len(events(t, b, second, 11)); got != 11 {
		t.Errorf("%d events of the other job", got)
	}
	must(t, b.Cleanup(t.Context(), second))
	must(t, b.Cleanup(t.Context(), second))
	if got := counts(); fmt.Sprint(got) != "[0 0 0 0 0]" {
		t.Errorf("the streams hold %v messages: %v", got, streams)
	}
	if err := b.Cleanup(t.Context(), "*"); err == nil {
		t.Error("a wildcard was accepted as a job id")
	}
}

// The end of a job deletes its models, except a model that another job uses as its new or
// previous model. The same holds for a coordinator that leaves its job.
func TestCleanupKeepsModelsInUse(t *testing.T) {
	b := newBus(t, testQueue)
	jobs := []job.Task{newTask(1, 0), newPairedTask(1, 0), newPairedTask(2, 0), newTask(3, 0)}
	jobs[3].Spec.Model = digest("e") // an ordinary job of the paired jobs' previous model
	jobs[3].Job = jobs[3].Spec.ID()
	for _, task := range jobs {
		submitted, err := json.Marshal(job.Submission{Spec: task.Spec, Plan: job.Plan{Rows: 1, RowsPerShard: 1}})
		must(t, err)
		_, err = b.CreateSpec(t.Context(), task.Job, submitted)
		must(t, err)
	}
	for _, name := range []string{ModelName(digest("a")), ModelName(digest("e")), PreviousBaselineName(jobs[1].Job)} {
		_, err := b.Put(t.Context(), name, random(10))
		must(t, err)
	}
	check := func(when string, want ...string) {
		t.Helper()
		names, err := b.blobs(t.Context(), "test")
		must(t, err)
		slices.Sort(names)
		if !slices.Equal(names, want) {
			t.Errorf("%s: the blobs are %v, expected %v", when, names, want)
		}
	}
	old, earlier := ModelName(digest("a")), ModelName(digest("e"))
	must(t, b.Cleanup(t.Context(), jobs[1].Job))
	check("another paired job is left", old, earlier)
	must(t, b.Sweep(t.Context()))
	check("after a sweep", old, earlier)
	must(t, b.Cleanup(t.Context(), jobs[2].Job))
	check("two ordinary jobs are left", old, earlier)
	must(t, b.Cleanup(t.Context(), jobs[3].Job))
	check("no job needs the previous model", old)
	_, err := b.Put(t.Context(), earlier, random(10))
	must(t, err)
	must(t, b.Leave(t.Context(), &jobs[1].Spec))
	check("a coordinator leaves a paired job", old)
	must(t, b.Cleanup(t.Context(), jobs[0].Job))
	check("no job is left")
}

// A job whose specification is lost takes its model along, and no model of another job.
func TestCleanupWithoutSpec(t *testing.T) {
	b := newBus(t, testQueue)
	lost, other := newTask(1, 0), newTask(2, 0)
	other.Spec.Model = digest("e")
	other.Job = other.Spec.ID()
	for _, task := range []job.Task{lost, other} {
		submitted, err := json.Marshal(job.Submission{Spec: task.Spec, Plan: job.Plan{Rows: 1, RowsPerShard: 1}})
		must(t, err)
		_, err = b.CreateSpec(t.Context(), task.Job, submitted)
		must(t, err)
		_, err = b.Put(t.Context(), ModelName(task.Spec.Model), random(10))
		must(t, err)
	}
	must(t, b.purge(t.Context(), "test", jobStream, jobPrefix+lost.Job+".spec"))
	must(t, b.Cleanup(t.Context(), lost.Job))
	names, err := b.blobs(t.Context(), "test")
	must(t, err)
	if want := []string{ModelName(other.Spec.Model)}; !slices.Equal(names, want) {
		t.Errorf("the blobs are %v, expected %v", names, want)
	}
	must(t, b.Cleanup(t.Context(), other.Job))
	if n := messages(t, b, blobStream); n != 0 {
		t.Errorf("%d messages of blobs are left", n)
	}
}

// slowLink returns the address of a proxy for the server that passes on at most rate bytes per
// second to each client.
func slowLink(t *testing.T, server string, rate int) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				return
			}
			go func() { _, _ = io.Copy(upstream, client); _ = upstream.Close() }()
			go func() {
				defer func() { _ = client.Close() }()
				piece, free := make([]byte, rate/100), time.Now()
				for {
					n, err := upstream.Read(piece)
					if err != nil {
						return
					}
					if _, err := client.Write(piece[:n]); err != nil {
						return
					}
					if now := time.Now(); free.Before(now) {
						free = now
					}
					free = free.Add(time.Duration(n) * time.Second / time.Duration(rate))
					time.Sleep(time.Until(free))
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// A blob arrives over a link on which a chunk takes longer than the client waits for a sign of the
// server, and all chunks in flight take longer than it waits for an answer.
func TestSlowLink(t *testing.T) {
	long.Test(t)
	t.Parallel()
	server := startServer(t, embedded.Config{Listen: "127.0.0.1:0"})
	near := connect(t, Config{Server: server, Name: "near"})
	setUp(t, near, testQueue)
	const rate = 112 << 10
	far := connect(t, Config{URL: "nats://" + slowLink(t, strings.TrimPrefix(server.URL(), "nats://"), rate), Name: "far"})
	far.patience.call, far.patience.heartbeat = 600*time.Millisecond, time.Second
	data := random(8 * chunkBytes)
	blob, err := near.Put(t.Context(), ShardName(testJob, 0), data)
	must(t, err)
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := far.Get(ctx, blob, blob.Bytes)
	if must(t, err); !bytes.Equal(got, data) {
		t.Error("Get returned other bytes")
	}
	took, least := time.Since(begun), time.Duration(len(data))*time.Second/rate
	if took < least/2 {
		t.Errorf("the blob came in %v: the link is not slow", took)
	}
	t.Logf("%v, %.1f times the least time", took, took.Seconds()/least.Seconds())
}

// If the stream is lost between a blob's chunks and its name, nobody else can name it, and the wait for the
// stream would not end. The error says that it is gone, so that the coordinator sets it up again.
func TestStreamLostBeforeName(t *testing.T) {
	var b *Bus
	b = connect(t, Config{Server: startServer(t, embedded.Config{}), Name: "test", Around: func(what string, request func() error) error {
		if strings.HasPrefix(what, "name blob") {
			_ = b.js.DeleteStream(t.Context(), blobStream) // it may be deleted already
		}
		return request()
	}})
	setUp(t, b, testQueue)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := b.Put(ctx, ShardName(testJob, 0), random(9)); !IsGone(err) {
		t.Errorf("error %v, expected one that says that the stream is gone", err)
	}
}
