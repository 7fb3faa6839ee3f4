package metrics

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"shaver/internal/fault"
)

func get(t *testing.T, m *Server, path string) (int, string) {
	t.Helper()
	answer, err := http.Get("http://" + m.Addr() + path)
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

func serve(t *testing.T, s *Set) *Server {
	t.Helper()
	m, err := Serve(":0", s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Stop()
		http.DefaultClient.CloseIdleConnections()
	})
	return m
}

// The project's own metrics have the expected values after some work, and docs/metrics.md
// describes each.
func TestMetrics(t *testing.T) {
	s := New()
	m := serve(t, s)
	s.Rows(3)
	s.Rows(4)
	s.Task("done", 1, 70, 2*time.Second)
	s.Task("failed", 2, 0, time.Millisecond)
	s.Blob(true, 10)
	s.Blob(false, 20)
	s.Lead()
	s.Job(Job{Rows: 5, RowsTotal: 50, Shards: 1, ShardsTotal: 10, Open: 4, Quarantined: 2, Epoch: 3, Checkpoint: time.UnixMilli(1_500)})
	s.Merged(20 * time.Millisecond)
	s.Merged(-time.Second) // the clocks of two machines may differ
	code, text := get(t, m, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("status %d: %s", code, text)
	}
	var ours strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "shaver_") && !regexp.MustCompile(`_bucket`).MatchString(line) {
			ours.WriteString(line)
		}
	}
	const want = `shaver_blob_bytes_total{direction="received"} 20
shaver_blob_bytes_total{direction="sent"} 10
shaver_job_checkpoint_timestamp_seconds 1.5
shaver_job_epoch 3
shaver_job_merged_rows 5
shaver_job_merged_shards 1
shaver_job_open_shards 4
shaver_job_quarantined_shards 2
shaver_job_rows 50
shaver_job_shards 10
shaver_merge_lag_seconds_sum 0.02
shaver_merge_lag_seconds_count 2
shaver_redeliveries_total 1
shaver_rows_total 7
shaver_task_seconds_sum{outcome="done"} 2
shaver_task_seconds_count{outcome="done"} 1
shaver_task_seconds_sum{outcome="failed"} 0.001
shaver_task_seconds_count{outcome="failed"} 1
shaver_walks_total 70
`
	if ours.String() != want {
		t.Errorf("got\n%s\nexpected\n%s", &ours, want)
	}
	for _, name := range []string{"go_memstats_heap_alloc_bytes ", "go_goroutines "} {
		if !strings.Contains(text, "\n"+name) {
			t.Errorf("%s is missing", name)
		}
	}
	readme, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`(?m)^# HELP (shaver_\w+)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(string(readme), "`"+name[1]) {
			t.Errorf("docs/metrics.md does not describe %s", name[1])
		}
	}
}

func TestHealth(t *testing.T) {
	m := serve(t, New())
	if host, _, _ := net.SplitHostPort(m.Addr()); host != "127.0.0.1" {
		t.Errorf("listens on %s without a host in the address, expected 127.0.0.1", m.Addr())
	}
	var down error
	for _, step := range []struct {
		path, want string
		code       int
		before     func()
	}{
		{"/healthz", "ok\n", 200, func() {}},
		{"/readyz", "starting\n", 503, func() {}},
		{"/readyz", "ok\n", 200, func() { m.SetReady(func() error { return down }) }},
		{"/readyz", "no server\n", 503, func() { down = errors.New("no server") }},
		{"/healthz", "ok\n", 200, func() {}},
		{"/debug/pprof/", "404 page not found\n", 404, func() {}},
	} {
		step.before()
		if code, body := get(t, m, step.path); code != step.code || body != step.want {
			t.Errorf("%s: %d %q, expected %d %q", step.path, code, body, step.code, step.want)
		}
	}
	if answer, err := http.Post("http://"+m.Addr()+"/metrics", "text/plain", nil); err != nil || answer.StatusCode != 405 {
		t.Errorf("POST: %v, %v", answer, err)
	} else {
		answer.Body.Close()
	}
}

func TestServeRefuses(t *testing.T) {
	taken := serve(t, New())
	for address, usage := range map[string]bool{"": true, "9090": true, "127.0.0.1": true, "127.0.0.1:": true, taken.Addr(): false, "127.0.0.1:port": false} {
		m, err := Serve(address, New())
		if err == nil {
			m.Stop()
			t.Errorf("address %q is accepted", address)
		} else if fault.IsUsage(err) != usage {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// Stop frees the port.
func TestStop(t *testing.T) {
	m, err := Serve(":0", New())
	if err != nil {
		t.Fatal(err)
	}
	address := m.Addr()
	m.Stop()
	again, err := Serve(address, New())
	if err != nil {
		t.Fatal(err)
	}
	again.Stop()
}
