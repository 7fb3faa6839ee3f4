package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shaver/internal/app/cli"
	"shaver/internal/base/long"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/num/kernel"
	"shaver/internal/value/estimator"
)

// run runs a program to its end.
func run(t *testing.T, name string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	var out, log bytes.Buffer
	c.Stdout, c.Stderr = &out, &log
	code, err := exitCode(c.Run())
	if err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return code, out.String(), log.String()
}

// freeAddress returns an address at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	return port.Addr().String()
}

// Every command that needs a server says what it waits for, gives up after --wait with
// exit code 1, and names the server and the reason.
func TestCommandsGiveUp(t *testing.T) {
	long.Test(t)
	_, flags := plantedJob(t, 200)
	score := slices.Concat([]string{"--out", filepath.Join(t.TempDir(), "s.arrow")}, flags)
	id := strings.Repeat("0", 20)
	for _, args := range [][]string{
		{"shaver", "job", "list"}, {"shaver", "job", "status", id}, {"shaver", "job", "watch", id},
		{"shaver", "job", "cancel", id}, {"shaver", "job", "quarantine", id},
		slices.Concat([]string{"shaver", "score"}, score), slices.Concat([]string{"coordinator"}, score), {"worker"},
	} {
		t.Run(strings.Join(args[:min(3, len(args))], " "), func(t *testing.T) {
			t.Parallel()
			address := "nats://" + freeAddress(t)
			code, stdout, stderr := run(t, args[0], append(args[1:], "--nats", address, "--wait", "1500ms")...)
			lines := strings.Split(strings.TrimSpace(stderr), "\n")
			if code != cli.ExitFailed || stdout != "" {
				t.Errorf("exit code %d, stdout %q", code, stdout)
			}
			if strings.Contains(lines[0], "the job runs on a NATS server") {
				lines = lines[1:]
			}
			if first := lines[0]; !strings.Contains(first, "waiting for the NATS server") || !strings.Contains(first, address) || !strings.Contains(first, "refused") {
				t.Errorf("the first line is %q", first)
			}
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, args[0]+": ") || !strings.Contains(last, "gave up after 1.5s") || !strings.Contains(last, address) || !strings.Contains(last, "refused") {
				t.Errorf("the last line is %q", last)
			}
		})
	}
}

// The default of --wait is ten seconds for people, and no limit in a cluster. --wait cannot
// be negative.
func TestWaitFlag(t *testing.T) {
	for _, args := range [][]string{{"shaver", "job", "list"}, {"shaver", "score"}, {"coordinator"}, {"worker"}} {
		want := "(default no limit)"
		if args[0] == "shaver" {
			want = "(default 10s)"
		}
		_, help, _ := run(t, args[0], append(args[1:], "--help-all")...)
		_, help, _ = strings.Cut(help, "--wait ")
		help, _, _ = strings.Cut(help, "\n      --")
		help, _, _ = strings.Cut(help, "\n\n") // the end of the group
		if help = strings.Join(strings.Fields(help), " "); !strings.HasSuffix(help, want) {
			t.Errorf("%q: the help of --wait is %q", args, help)
		}
	}
	if code, _, stderr := run(t, "shaver", "job", "list", "--nats", "nats://127.0.0.1:1", "--wait", "-1s"); code != cli.ExitUsage || !strings.Contains(stderr, "--wait") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// The port of --metrics is open before the inputs are there. /readyz says what the process
// waits for.
func TestReadyWhileInputsAreLate(t *testing.T) {
	for _, model := range []string{"late.pth", "file://" + filepath.ToSlash(t.TempDir()) + "/late.pth"} {
		address := freeAddress(t)
		p := start(t, nil, "coordinator", "--nats", "nats://"+freeAddress(t), "--model", model, "--dataset", t.TempDir(), "--out", filepath.Join(t.TempDir(), "s.arrow"),
			"--wait-inputs", "1h", "--metrics", address, "--log", "json")
		p.await("waiting for inputs", 1)
		for path, want := range map[string]string{"/healthz": "200 ok", "/readyz": "503 waiting for inputs"} {
			answer, err := http.Get("http://" + address + path)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if found := fmt.Sprintf("%d %s", answer.StatusCode, bytes.TrimSpace(text)); err != nil || found != want {
				t.Errorf("%s: %s: %q, %v", model, path, found, err)
			}
		}
		p.signal(os.Interrupt)
		p.wantExit(cli.ExitInterrupted)
	}
}

// submitted is a job of a test that no coordinator has ever led.
func submitted(t *testing.T, b *bus.Bus) (id string) {
	t.Helper()
	spec := job.Spec{Version: job.SpecVersion, Model: strings.Repeat("a", 64), Dataset: strings.Repeat("b", 64), Splits: []string{"train"},
		Sample: 1, Baseline: "zero", Options: estimator.Options{Estimator: "permutation", Passes: 1}, Kernel: kernel.Name()}
	body, err := json.Marshal(job.Submission{Spec: spec, Plan: job.Plan{Rows: 10, RowsPerShard: 5}})
	if err == nil {
		err = b.Setup(t.Context(), bus.DefaultQueue, kernel.Name())
	}
	if err == nil {
		_, err = b.CreateSpec(t.Context(), spec.ID(), body)
	}
	if err != nil {
		t.Fatal(err)
	}
	return spec.ID()
}

// A specification that cannot be read is listed and named, does not hide other jobs, and
// can be cancelled.
func TestUnreadableJob(t *testing.T) {
	url := natsServer(t)
	b := connect(t, url)
	good, bad := submitted(t, b), strings.Repeat("0", 20)
	if _, err := b.CreateSpec(t.Context(), bad, []byte("[\x1b[31m")); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run(t, "shaver", "job", "list", "--nats", url)
	if code != cli.ExitDone || !strings.Contains(stdout, good) || !strings.Contains(stdout, bad+"  unreadable") {
		t.Errorf("exit code %d: %s", code, stdout)
	}
	if !strings.Contains(stderr, bad) || !strings.Contains(stderr, "invalid character") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("stderr is %q", stderr)
	}
	var listed []bus.Status
	shaver(t, &listed, "job", "list", "--nats", url)
	if len(listed) != 2 || listed[0].Progress.State != bus.Unreadable || !strings.Contains(listed[0].Error, "invalid character") {
		t.Errorf("listed %+v", listed)
	}
	for _, verb := range []string{"status", "watch", "quarantine"} {
		if code, _, stderr := run(t, "shaver", "job", verb, bad, "--nats", url); code != cli.ExitBadInput || !strings.Contains(stderr, "shaver job cancel removes it") {
			t.Errorf("%s: exit code %d: %s", verb, code, stderr)
		}
	}
	shaver(t, nil, "job", "cancel", bad, "--nats", url)
	shaver(t, &listed, "job", "list", "--nats", url)
	if len(listed) != 1 || listed[0].ID != good {
		t.Errorf("after the cancel %+v is listed", listed)
	}
}

// Text that others stored on the server reaches the terminal without escape sequences,
// and a job that nobody leads has no time in the year 1.
func TestJobOutput(t *testing.T) {
	url := natsServer(t)
	b := connect(t, url)
	id := submitted(t, b)
	check := func(verb string, parts ...string) {
		t.Helper()
		for _, format := range []string{"table", "json"} {
			args := []string{"job", verb, id, "--nats", url, "-o", format}
			if verb == "list" {
				args = slices.Delete(args, 2, 3)
			}
			code, stdout, stderr := run(t, "shaver", args...)
			if code != cli.ExitDone || strings.ContainsAny(stdout+stderr, "\x1b\x07\r\u009b\u202e") {
				t.Errorf("%s: exit code %d, %q, %q", verb, code, stdout, stderr)
			}
			for _, part := range parts {
				if format == "table" && !strings.Contains(stdout, part) {
					t.Errorf("%s does not print %q: %s", verb, part, stdout)
				}
			}
			if format == "table" && strings.Contains(stdout, "0001") {
				t.Errorf("%s prints a time in the year 1: %s", verb, stdout)
			}
		}
	}
	check("list", "interrupted")
	check("status", "interrupted", "none yet")
	hostile := "\x1b[31mred\x1b]0;title\x07 \u009b2J \u202eback\r\n\tforged"
	if err := b.SetAside(t.Context(), job.Quarantine{Job: id, Shard: 1, Reason: hostile, Worker: hostile}); err != nil {
		t.Fatal(err)
	}
	check("quarantine", `\u001b[31mred\u001b]0;title\u0007 \u009b2J \u202eback forged`)
	p := bus.Progress{Job: id, State: bus.Finished, Epoch: 3, Waiting: hostile, Workers: []bus.Worker{{Name: hostile, Shards: 1}}}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, name := range []string{"worker-a", "worker-b", hostile} {
		p.Lost = append(p.Lost, bus.Lost{Worker: name, Seen: at, At: at.Add(34 * time.Second)})
	}
	if err := b.SetProgress(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	escaped := `\u001b[31mred\u001b]0;title\u0007 \u009b2J \u202eback\r\n\tforged`
	check("list", "finished")
	silent := "no word from worker %s for 34 s: if it holds a task, another worker gets it"
	one, two := fmt.Sprintf(silent, "worker-a"), fmt.Sprintf(silent, "worker-b")
	check("status", escaped, "since -", one, two)
	check("watch", escaped, one, two)
}

// TestOldServers runs jobs on the oldest supported NATS server and on some later ones.
// For that it installs them, which needs the module proxy and some minutes.
func TestOldServers(t *testing.T) {
	if !long.Hours() {
		t.Skip("SHAVER_LONG=2 installs old NATS servers and runs jobs on them")
	}
	l := longJob(t)
	const tooOld = "v2.9.25"
	for _, version := range []string{tooOld, "v2.10.0", "v2.10.29", "v2.11.0", "v2.12.0"} {
		t.Run(version, func(t *testing.T) {
			url := oldServer(t, version)
			if version == tooOld {
				code, _, stderr := run(t, "shaver", "job", "list", "--nats", url)
				if code != cli.ExitFailed || !strings.Contains(stderr, "2.9.25, and shaver needs 2.10.0") {
					t.Errorf("exit code %d: %s", code, stderr)
				}
				return
			}
			testCancel(t, l, url, l.report.Job)
			out := filepath.Join(t.TempDir(), "s.arrow")
			worker := startWorker(t, url, "worker")
			l.coordinate(t, url, out).wantExit(cli.ExitDone)
			wantSameFile(t, out, l.reference)
			wantNothingLeft(t, url, l.report.Job, nil)
			worker.signal(os.Interrupt)
			worker.wantExit(cli.ExitDrained)
		})
	}
}

// oldServer installs and starts a NATS server.
func oldServer(t *testing.T, version string) (url string) {
	t.Helper()
	dir := t.TempDir()
	install := exec.CommandContext(t.Context(), "go", "install", "github.com/nats-io/nats-server/v2@"+version)
	install.Dir, install.Env = dir, append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	host, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	start(t, nil, filepath.Join(dir, "nats-server"), "-js", "-a", host, "-p", port, "-sd", filepath.Join(dir, "store"))
	url = fmt.Sprintf("nats://%s:%s", host, port)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err == nil {
			_ = conn.Close()
			return url
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
