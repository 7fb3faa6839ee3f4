//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"shaver/internal/app/cli"
	"shaver/internal/app/launch"
	"shaver/internal/base/long"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/num/kernel"
)

// build is a folder with programs of another version, perhaps with another protocol.
type build string

// newBuild compiles the coordinator and the worker from this checkout. An overlay changes
// the number of the protocol, so that the number is a constant in real builds.
func newBuild(t *testing.T, release string, protocol int) build {
	t.Helper()
	dir, root := t.TempDir(), filepath.Join("..", "..")
	original, err := filepath.Abs(filepath.Join(root, "internal", "jobs", "job", "protocol.go"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf("const Protocol = %d\n", job.Protocol)
	if !bytes.Contains(text, []byte(line)) {
		t.Fatalf("%s has no line %q", original, line)
	}
	changed := filepath.Join(dir, "protocol.go.txt")
	text = bytes.Replace(text, []byte(line), fmt.Appendf(nil, "const Protocol = %d\n", protocol), 1)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	for path, content := range map[string][]byte{changed: text, filepath.Join(dir, "overlay.json"): overlay} {
		if err == nil {
			err = os.WriteFile(path, content, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	c := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", filepath.Join(dir, "overlay.json"),
		"-ldflags", "-s -w -X shaver/internal/app/cli.release="+release, "-o", bin+string(filepath.Separator), "./cmd/coordinator", "./cmd/worker")
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return build(bin)
}

func (b build) program(name string) string {
	if b == "" { // this build
		return name
	}
	return filepath.Join(string(b), name)
}

func (b build) worker(t *testing.T, url, name string) *process {
	t.Helper()
	p := start(t, nil, b.program("worker"), "--nats", url, "--name", name, "--threads", "1", "--hold", "0", "-v", "--log", "json")
	p.await("worker ready", 1)
	return p
}

func (b build) coordinate(t *testing.T, l *lasting, url, out string) *process {
	t.Helper()
	return start(t, nil, b.program("coordinator"), slices.Concat([]string{"--nats", url, "--out", out, "--lease", "2s", "--checkpoint-every", "1ms", "--log", "json", "-v"}, l.flags)...)
}

// leave asks a worker to leave, as a rolling update does.
func leave(p *process) {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	p.wantExit(cli.ExitDrained)
}

// Workers and coordinators can be replaced by those of another build while a job runs. If
// the protocol is the same, they work together. If it differs, each task goes to a worker of
// its coordinator's protocol, and the other workers stay idle. The scores have the same bytes
// in both cases.
func TestUpgrade(t *testing.T) {
	long.Test(t)
	t.Parallel()
	const ours build = ""
	l := longJob(t)
	same := newBuild(t, "v9.0.0", job.Protocol)
	newer := newBuild(t, "v10.0.0", job.Protocol+1)
	t.Run("same protocol", func(t *testing.T) { t.Parallel(); testSameProtocol(t, l, ours, same) })
	t.Run("other workers", func(t *testing.T) { t.Parallel(); testOtherWorkers(t, l, ours, newer) })
	t.Run("other coordinator", func(t *testing.T) { t.Parallel(); testOtherCoordinator(t, l, ours, newer) })
	t.Run("back", func(t *testing.T) { t.Parallel(); testBack(t, l, ours, newer) })
}

// Workers are replaced one by one and the coordinator in between.
func testSameProtocol(t *testing.T, l *lasting, older, newer build) {
	url, out := natsServer(t), filepath.Join(t.TempDir(), "s.arrow")
	first, second := older.worker(t, url, "old-1"), older.worker(t, url, "old-2")
	coordinator := older.coordinate(t, l, url, out)
	first.await("task begun", 1)
	third := newer.worker(t, url, "new-1")
	leave(first)
	third.await("task begun", 1)
	coordinator.await("checkpoint", 1)
	coordinator.signal(syscall.SIGKILL)
	coordinator.wantExit(-1)
	coordinator = newer.coordinate(t, l, url, out)
	leave(second)
	newer.worker(t, url, "new-2")
	coordinator.wantExit(cli.ExitDone)
	wantSameFile(t, out, l.reference)
	if resumed := len(coordinator.having("resumed")); resumed != 1 {
		t.Errorf("the newer coordinator resumed %d times", resumed)
	}
	for _, e := range coordinator.having("result discarded") {
		if e.Why != "the shard is in the checkpoint" {
			t.Errorf("the newer coordinator discarded a result: %s", e.Why)
		}
	}
	var report launch.JobReport
	readJSON(t, strings.TrimSuffix(out, ".arrow")+".job.json", &report)
	if report.Workers["old-1"] == 0 || report.Workers["new-1"] == 0 {
		t.Errorf("the shards were computed by %v, expected both builds", report.Workers)
	}
	wantNothingLeft(t, url, l.report.Job, nil)
}

// The job waits for a worker of its protocol and says so.
func testOtherWorkers(t *testing.T, l *lasting, ours, other build) {
	url, out := natsServer(t), filepath.Join(t.TempDir(), "s.arrow")
	idle := other.worker(t, url, "other")
	coordinator := ours.coordinate(t, l, url, out)
	coordinator.await("no worker with this protocol", 1)
	var status struct {
		bus.Status
		Connected []job.Build
	}
	want := []job.Build{{Name: "other", Kernel: l.report.Kernel, Protocol: job.Protocol + 1, Program: "shaver v10.0.0, commit unknown"}}
	if names := kernel.Candidates(); len(names) > 1 {
		want[0].Kernels = strings.Join(names, ",")
	}
	waits := fmt.Sprintf("a worker with kernel %s and protocol %d; connected workers: 1 with kernel %s and protocol %d (shaver v10.0.0", l.report.Kernel, job.Protocol, want[0].AllKernels(), job.Protocol+1)
	for deadline := time.Now().Add(patience); ; { // the progress is written after the log line
		shaver(t, &status, "job", "status", l.report.Job, "--nats", url)
		if !slices.Equal(status.Connected, want) {
			t.Fatalf("connected: %+v, expected %+v", status.Connected, want)
		}
		if strings.HasPrefix(status.Progress.Waiting, waits) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the job waits for %q, expected %q", status.Progress.Waiting, waits)
		}
		time.Sleep(100 * time.Millisecond)
	}
	ours.worker(t, url, "ours")
	coordinator.wantExit(cli.ExitDone)
	wantSameFile(t, out, l.reference)
	if begun := idle.having("task begun"); len(begun) > 0 {
		t.Errorf("the worker with another protocol began %v", begun)
	}
	leave(idle)
	wantNothingLeft(t, url, l.report.Job, nil)
}

// A coordinator with a higher protocol resumes the job of an older one. It withdraws the
// tasks of the older coordinator, and discards the results of older workers.
func testOtherCoordinator(t *testing.T, l *lasting, older, newer build) {
	url, out := natsServer(t), filepath.Join(t.TempDir(), "s.arrow")
	coordinator := older.coordinate(t, l, url, out)
	worker := older.worker(t, url, "old")
	coordinator.await("checkpoint", 1)
	coordinator.signal(syscall.SIGKILL)
	coordinator.wantExit(-1)
	done := len(worker.having("task done"))
	worker.await("task done", done+1) // its result has to be discarded, because nobody merges it before
	worker.signal(syscall.SIGSTOP)    // so that some tasks remain
	coordinator = newer.coordinate(t, l, url, out)
	coordinator.await("resumed", 1)
	coordinator.await("withdrew the tasks of a coordinator with another protocol", 1)
	coordinator.await("result discarded", 1)
	newer.worker(t, url, "new")
	coordinator.wantExit(cli.ExitDone)
	wantSameFile(t, out, l.reference)
	worker.signal(syscall.SIGCONT)
	leave(worker)
	var report launch.JobReport
	readJSON(t, strings.TrimSuffix(out, ".arrow")+".job.json", &report)
	if report.Workers["old"] == 0 || report.Workers["new"] == 0 || report.Workers["old"]+report.Workers["new"] != longShards {
		t.Errorf("the shards were computed by %v, expected both builds", report.Workers)
	}
	wantNothingLeft(t, url, l.report.Job, nil)
}

// A job that a higher protocol submitted is not resumed, and the error says what to do.
func testBack(t *testing.T, l *lasting, older, newer build) {
	url, out := natsServer(t), filepath.Join(t.TempDir(), "s.arrow")
	coordinator := newer.coordinate(t, l, url, out)
	coordinator.await("scoring", 1)
	coordinator.signal(syscall.SIGKILL)
	coordinator.wantExit(-1)
	refused := older.coordinate(t, l, url, out)
	refused.wantExit(cli.ExitBadInput)
	want := fmt.Sprintf(`submitted by shaver v10.0.0, commit unknown with protocol %d, and this build has protocol %d: continue with that build, or remove the job with "shaver job cancel %s"`, job.Protocol+1, job.Protocol, l.report.Job)
	if text := strings.Join(refused.log, "\n"); !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), want) {
		t.Errorf("the older coordinator wrote %q, expected %q", text, want)
	}
	shaver(t, nil, "job", "cancel", l.report.Job, "--nats", url)
	coordinator = older.coordinate(t, l, url, out)
	older.worker(t, url, "old")
	coordinator.wantExit(cli.ExitDone)
	wantSameFile(t, out, l.reference)
}
