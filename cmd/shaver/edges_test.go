package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"shaver/internal/app/cli"
	"shaver/internal/app/launch"
)

// guardedServer starts a NATS server that only one user may use, with or without
// JetStream.
func guardedServer(t *testing.T, user, password string, jetStream bool) (host string) {
	t.Helper()
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: jetStream, StoreDir: t.TempDir(), Users: []*server.User{{Username: user, Password: password}}})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not become ready")
	}
	return ns.Addr().String()
}

// metricsOf returns the URL at which a process serves its health and metrics.
func metricsOf(t *testing.T, p *process) string {
	t.Helper()
	p.await("metrics", 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.log {
		var e struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Msg == "metrics" {
			if !strings.HasPrefix(e.Address, "127.0.0.1:") {
				t.Errorf("it listens on %s, expected 127.0.0.1", e.Address)
			}
			return "http://" + e.Address
		}
	}
	t.Fatal("the log has no address for metrics")
	return ""
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	defer http.DefaultClient.CloseIdleConnections()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// A worker serves metrics of its work, and reports whether it is ready. The password is
// in no log, no argument and no file.
func TestEdges(t *testing.T) {
	const password = "s3cret:word"
	host := guardedServer(t, "me", password, true)
	file := filepath.Join(t.TempDir(), "user")
	if err := os.WriteFile(file, []byte("me:"+password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := func(where, text string) {
		t.Helper()
		if strings.Contains(text, "s3cret") {
			t.Errorf("the password is in %s: %s", where, text)
		}
	}
	dir, job := plantedJob(t, 300)
	worker := start(t, nil, "worker", "--nats", "nats://"+host, "--user-file", file, "--metrics", ":0", "-v", "--log", "json")
	address := metricsOf(t, worker)
	worker.await("worker ready", 1)
	if line, err := os.ReadFile("/proc/" + strconv.Itoa(worker.cmd.Process.Pid) + "/cmdline"); err == nil {
		secret("the arguments", string(line))
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200} {
		if code, text := fetch(t, address+path); code != want {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	out := filepath.Join(dir, "scores.arrow")
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	quoted := strings.ReplaceAll(password, ":", "%3A")
	coordinator := start(t, nil, "coordinator", slices.Concat([]string{"--nats", "nats://me:" + quoted + "@" + host, "--out", out, "--passes", "2",
		"--metrics", "127.0.0.1:0", "-v", "--log", "json"}, job)...)
	metricsOf(t, coordinator)
	coordinator.wantExit(cli.ExitDone)

	var report launch.JobReport
	readJSON(t, strings.TrimSuffix(out, ".arrow")+".job.json", &report)
	rows, end := report.Rows, time.Now().Add(patience)
	for metric, want := range map[string]string{"shaver_rows_total": fmt.Sprint(rows), "shaver_walks_total": fmt.Sprint(2 * rows),
		"shaver_redeliveries_total": "0", `shaver_blob_bytes_total\{direction="sent"\}`: `[1-9].*`} {
		for line := regexp.MustCompile(`(?m)^` + metric + ` ` + want + `$`); ; time.Sleep(20 * time.Millisecond) {
			_, text := fetch(t, address+"/metrics")
			if line.MatchString(text) {
				break
			}
			if time.Now().After(end) { // the last task may end after the job
				t.Fatalf("no %s in\n%s", line, text)
			}
		}
	}
	worker.signal(syscall.SIGTERM)
	worker.wantExit(cli.ExitDrained)
	for _, p := range []*process{worker, coordinator} {
		secret("a log", strings.Join(p.log, "\n"))
	}
	for _, name := range []string{out, strings.TrimSuffix(out, ".arrow") + ".job.json"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		secret(name, string(content))
	}
}
