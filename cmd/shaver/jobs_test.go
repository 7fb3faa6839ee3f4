package main

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/app/cli"
	"shaver/internal/base/long"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/num/kernel"
)

// A job on a server is listed, watched and cancelled, and continues after a quarantine.
func TestJobCommands(t *testing.T) {
	long.Test(t)
	t.Parallel()
	l := longJob(t)
	url, id := natsServer(t), l.report.Job
	if code, stdout, stderr := run(t, "shaver", "job", "list", "--nats", url); code != 0 || stdout != "no jobs\n" {
		t.Errorf("the list of a server without jobs is %q, with the exit code %d: %s", stdout, code, stderr)
	}
	t.Run("cancel", func(t *testing.T) { testCancel(t, l, url, id) })
	t.Run("quarantine", func(t *testing.T) { testQuarantine(t, l, url, id) })
}

func testCancel(t *testing.T, l *lasting, url, id string) {
	coordinator := l.coordinate(t, url, filepath.Join(t.TempDir(), "s.arrow"))
	coordinator.await("scoring", 1)
	var listed []bus.Status
	shaver(t, &listed, "job", "list", "--nats", url)
	if len(listed) != 1 || listed[0].ID != id || listed[0].Plan.Shards() != longShards {
		t.Fatalf("the list is %+v", listed)
	}
	var short struct {
		ID string `json:"id"`
	}
	for _, args := range [][]string{{id[:5]}, nil} {
		shaver(t, &short, append(append([]string{"job", "status"}, args...), "--nats", url)...)
		if short.ID != id {
			t.Errorf("job status %q is of job %q, expected %s", args, short.ID, id)
		}
	}
	watch := exec.CommandContext(t.Context(), "shaver", "job", "watch", id, "--nats", url, "-o", "json")
	stdout, err := watch.StdoutPipe()
	if err == nil {
		err = watch.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	events := 0
	for lines := bufio.NewScanner(stdout); lines.Scan(); events++ {
		var p bus.Progress
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil || p.Job != id {
			t.Errorf("event %q: %v", lines.Text(), err)
		}
		if events == 0 {
			shaver(t, nil, "job", "cancel", id, "--nats", url)
		}
	}
	if err := watch.Wait(); err != nil || events == 0 {
		t.Errorf("watching ended with %v after %d events", err, events)
	}
	coordinator.wantExit(cli.ExitCancelled)
	if log, _ := coordinator.entries(); log[len(log)-1].Code != cli.ExitCancelled || !strings.Contains(log[len(log)-1].Message, "somebody cancelled this job") {
		t.Errorf("the last line of the log is %+v", log[len(log)-1])
	}
	shaver(t, &listed, "job", "list", "--nats", url)
	if len(listed) != 0 {
		t.Errorf("after its end the list is %+v", listed)
	}
	wantNothingLeft(t, url, id, nil)
	b := connect(t, url) // wantNothingLeft wrote a specification
	if err := b.Cleanup(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

func testQuarantine(t *testing.T, l *lasting, url, id string) {
	out := filepath.Join(t.TempDir(), "s.arrow")
	coordinator := l.coordinate(t, url, out)
	d, err := connect(t, url).NextTask(t.Context(), kernel.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Quarantine(t.Context(), "row 7: the loss is NaN", true); err != nil {
		t.Fatal(err)
	}
	startWorker(t, url, "worker")
	coordinator.wantExit(cli.ExitBadInput)
	var aside []job.Quarantine
	shaver(t, &aside, "job", "quarantine", id, "--nats", url)
	if len(aside) != 1 || aside[0].Shard != d.Task.Shard || aside[0].Reason != "row 7: the loss is NaN" {
		t.Errorf("the quarantine is %+v", aside)
	}
	var status bus.Status
	shaver(t, &status, "job", "status", id, "--nats", url)
	if status.Progress.State != bus.Failed || status.Progress.Shards != longShards-1 {
		t.Errorf("%+v", status.Progress)
	}
	shaver(t, nil, "job", "quarantine", id, "--retry", "--nats", url)
	l.coordinate(t, url, out).wantExit(cli.ExitDone)
	wantSameFile(t, out, l.reference)
	l.coordinate(t, url, out).wantExit(cli.ExitDone) // returns at once
	wantSameFile(t, out, l.reference)
}

// A watched job counts the connected workers that can compute it before they send a result.
func TestConnectedFor(t *testing.T) {
	t.Parallel()
	url := natsServer(t)
	for name, build := range map[string]job.Build{
		"fit":            {Kernel: kernel.Name(), Protocol: job.Protocol},
		"other kernel":   {Kernel: "none", Protocol: job.Protocol},
		"other protocol": {Kernel: kernel.Name(), Protocol: job.Protocol + 1},
	} {
		build.Name = name
		if err := connect(t, url).Announce(build); err != nil {
			t.Fatal(err)
		}
	}
	s := bus.Status{Spec: job.Spec{Kernel: kernel.Name()}}
	if n, err := connectedFor(t.Context(), connect(t, url), &s); err != nil || n != 1 {
		t.Errorf("%d workers, %v, expected 1", n, err)
	}
}

// The line of a large job that runs fits 80 columns.
func TestWatchedFits(t *testing.T) {
	p := &bus.Progress{State: bus.Running, Rows: 123_456_789, RowsTotal: 1_234_567_890, Rate: 123_456, Left: 35_999}
	if line := "15:04:05 " + p.State + ": " + watched(p, 1000); len(line) > 80 {
		t.Errorf("%d columns: %s", len(line), line)
	}
}
