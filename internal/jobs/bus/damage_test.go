package bus

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
)

// ailing is a server, one of whose files is damaged while it is stopped.
type ailing struct {
	*testing.T
	dir    string
	server *embedded.Server
	bus    *Bus
}

func newAiling(t *testing.T) *ailing {
	a := &ailing{T: t, dir: t.TempDir()}
	a.start()
	setUp(t, a.bus, testQueue)
	return a
}

func (a *ailing) start() {
	a.server = startServer(a, embedded.Config{StoreDir: a.dir})
	a.bus = connect(a, Config{Server: a.server, Name: "test"})
	a.bus.patience.call = 300 * time.Millisecond // the server does not answer each request
}

// damage stops the server, changes the file of the records, and starts the server. The server
// trusts its index, and reads the damaged record only when somebody asks for it. change gets the
// bytes that follow the subject of the last record of key.
func (a *ailing) damage(key string, change func(after []byte)) {
	a.Helper()
	a.bus.Close()
	a.server.Shutdown()
	files, err := filepath.Glob(filepath.Join(a.dir, "jetstream", "$G", "streams", jobStream, "msgs", "*.blk"))
	must(a, err)
	found := false
	for _, path := range files {
		data, err := os.ReadFile(path)
		must(a, err)
		if at := bytes.LastIndex(data, []byte(key)); at >= 0 {
			found = true
			change(data[at+len(key):])
			must(a, os.WriteFile(path, data, 0o600))
		}
	}
	if !found {
		a.Fatalf("%v have no record of %s", files, key)
	}
	a.start()
}

// submit stores the records of a job.
func (a *ailing) submit(task job.Task) *Claim {
	a.Helper()
	_, err := a.bus.CreateSpec(a.Context(), task.Job, []byte(`{"spec":{}}`))
	must(a, err)
	claim, err := a.bus.ClaimFor(a.Context(), task.Job, Claimant{Out: "/scores.arrow"})
	must(a, err)
	for range 3 {
		must(a, a.bus.SetProgress(a.Context(), Progress{Job: task.Job, State: Running}))
		must(a, claim.Point(a.Context(), 1, job.Blob{Name: CheckpointName(task.Job, 1, 1), Bytes: 5, SHA256: digest("a")}, true))
	}
	return claim
}

func (a *ailing) end(claim *Claim) {
	a.Helper()
	must(a, claim.End(a.Context()))
	must(a, a.bus.Cleanup(a.Context(), claim.Lead.Job))
}

func (a *ailing) wantStored(n int) {
	a.Helper()
	left, err := a.bus.Stored(a.Context())
	if err != nil || len(left) != n {
		a.Errorf("the server holds %v, %v; expected %d subjects", left, err, n)
	}
}

// The server's checksum of a message does not cover the length of its header. A record with a
// damaged length is read nevertheless.
func TestDamagedLengthOfHeader(t *testing.T) {
	a := newAiling(t)
	want := a.submit(newTask(1, 0))
	for _, by := range []int32{-9, -1, 8} {
		a.damage(leadKey(want.Lead.Job), func(after []byte) {
			binary.LittleEndian.PutUint32(after, uint32(int32(binary.LittleEndian.Uint32(after))+by))
		})
		got, err := a.bus.Leader(t.Context(), want.Lead.Job)
		if err != nil || !reflect.DeepEqual(*got, want.Lead) {
			t.Fatalf("%+d: leader %+v, %v, expected %+v", by, got, err, want.Lead)
		}
	}
}

// A record that the server can neither read nor delete does not stay when the job ends, nor when another
// coordinator starts. Records of jobs that have ended do not keep it.
func TestDamagedRecord(t *testing.T) {
	flip := func(after []byte) { after[55] ^= 1 }
	for _, key := range []string{"spec", "checkpoint", "progress"} {
		t.Run(key, func(t *testing.T) {
			a := newAiling(t)
			task := newTask(1, 0)
			other := newTask(2, 0).Job
			a.bus.KeepEnd(t.Context(), &Ended{Status: Status{ID: other, Progress: Progress{Job: other, State: Finished}}})
			a.submit(task)
			a.damage(jobPrefix+task.Job+"."+key, flip)
			a.end(a.submit(task))
			a.wantStored(0)
			a.submit(task) // the stream works again
			a.damage(jobPrefix+task.Job+"."+key, flip)
			must(t, a.bus.Remove(t.Context(), task.Job))
			must(t, a.bus.Sweep(t.Context()))
			a.wantStored(0)
		})
	}
}

// A damaged record stays while another job is stored, and disappears with it.
func TestDamagedRecordOfOneJob(t *testing.T) {
	a := newAiling(t)
	task, other := newTask(1, 0), newTask(2, 0)
	a.submit(task)
	a.submit(other)
	a.damage(leadKey(task.Job), func(after []byte) { after[55] ^= 1 })
	must(t, a.bus.Remove(t.Context(), task.Job))
	must(t, a.bus.Sweep(t.Context()))
	if open, err := a.bus.IsOpen(t.Context(), other.Job); err != nil || !open {
		t.Errorf("the other job is stored: %v, %v", open, err)
	}
	must(t, a.bus.Remove(t.Context(), other.Job))
	a.wantStored(0)
}

// Of each key the server keeps only the last values, although the limit of the stream is not reached.
func TestOldValuesAreDeleted(t *testing.T) {
	a := newAiling(t)
	task := newTask(1, 0)
	a.submit(task)
	for range 3 * forgetEvery {
		must(t, a.bus.SetProgress(t.Context(), Progress{Job: task.Job, State: Running}))
	}
	stored, err := a.bus.Stored(t.Context())
	if n := stored[jobPrefix+task.Job+".progress"]; err != nil || n < 1 || n > forgetEvery {
		t.Errorf("%d progress records, %v; expected 1 to %d", n, err, forgetEvery)
	}
}
