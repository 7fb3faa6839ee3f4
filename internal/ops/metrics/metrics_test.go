package metrics

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"shaver/internal/base/fault"
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

// The project's own metrics have the expected values after some work, and docs/reference/metrics.md
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
	s.Job(Job{Rows: 5, RowsTotal: 50, Shards: 1, ShardsTotal: 10, Open: 4, Quarantined: 2, Epoch: 3, Checkpoint: time.UnixMilli(1_500), Stalled: true})
	s.Merged(20 * time.Millisecond)
	s.Merged(-time.Second) // the clocks of two machines may differ
	half, eight, nine := .5, 8., 9.
	s.Night(&Night{Number: 1, AUC: &half, Churn: &half})
	s.Night(&Night{
		Number: 2, Generation: 3, Finished: time.UnixMilli(2_500), LastPublished: time.UnixMilli(1_500), Seconds: 4, CoreSeconds: 5, Rows: 6, Evaluations: 7,
		RelativeError: &half, Reduction: &half, AUC: &half, PrunedAUC: &half, AUCDrop: &half, LogLoss: &eight, PrunedLogLoss: &nine, LogLossRise: &half, PlainChurn: &half, Sparsity: .9, Bytes: 10,
	})
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
shaver_job_stalled 1
shaver_merge_lag_seconds_sum 0.02
shaver_merge_lag_seconds_count 2
shaver_night_auc{model="full"} 0.5
shaver_night_auc{model="pruned"} 0.5
shaver_night_auc_drop 0.5
shaver_night_bytes 10
shaver_night_core_seconds 5
shaver_night_evaluations 7
shaver_night_finished_timestamp_seconds 2.5
shaver_night_generation 3
shaver_night_log_loss{model="full"} 8
shaver_night_log_loss{model="pruned"} 9
shaver_night_log_loss_rise 0.5
shaver_night_number 2
shaver_night_plain_churn 0.5
shaver_night_published 0
shaver_night_published_timestamp_seconds 1.5
shaver_night_relative_error 0.5
shaver_night_rows 6
shaver_night_seconds 4
shaver_night_sparsity 0.9
shaver_night_variance_reduction 0.5
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
	readme, err := os.ReadFile("../../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`(?m)^# HELP (shaver_\w+)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(string(readme), "`"+name[1]) {
			t.Errorf("docs/reference/metrics.md does not describe %s", name[1])
		}
	}
}

// A textfile has the metrics of the night and nothing else, and replaces an earlier one.
func TestWriteNight(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shaver.prom")
	for number := 1; number <= 2; number++ {
		if err := WriteNight(path, &Night{Number: number, Published: true}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\nshaver_night_number 2\n") || !strings.Contains(string(text), "\nshaver_night_published 1\n") || strings.Contains(string(text), "go_") || strings.Contains(string(text), "churn") {
		t.Errorf("the file has\n%s", text)
	}
	if !NightWritten(path) || NightWritten("metrics_test.go") || NightWritten(path+"x") {
		t.Error("only the file that WriteNight wrote is one of its files")
	}
	if err := WriteNight(filepath.Join(path, "below"), &Night{}); err == nil {
		t.Error("no error for a path inside a file")
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

// A Reader exports what was read, keeps it when a reading fails, and counts a state that it
// does not know as unknown.
func TestReader(t *testing.T) {
	s := New()
	m := serve(t, s)
	r := s.Read([]string{"running", "failed", "unknown"}, []string{FromNATS, FromKubernetes})
	ours := func() string {
		var b strings.Builder
		_, text := get(t, m, "/metrics")
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "shaver_cluster") || strings.HasPrefix(line, "shaver_read_") || strings.HasPrefix(line, "shaver_scale") {
				b.WriteString(line)
			}
		}
		return b.String()
	}
	const before = `shaver_read_failures_total{source="kubernetes"} 0
shaver_read_failures_total{source="nats"} 0
shaver_read_timestamp_seconds{source="kubernetes"} 0
shaver_read_timestamp_seconds{source="nats"} 0
`
	if got := ours(); got != before {
		t.Errorf("before the first reading:\n%s", got)
	}
	at := func(seconds float64) time.Time { return time.UnixMilli(int64(seconds * 1000)) }
	r.Cluster(&Cluster{
		Jobs: []ClusterJob{
			{ID: "a", State: "running", Kernel: "amx", Rows: 1, RowsTotal: 2, Shards: 3, ShardsTotal: 4, Results: 5, Quarantined: 6, Workers: 7, Rate: 8.5, Epoch: 9, Submitted: at(10), Progress: at(11), Stored: at(12.5)},
			{ID: "b", State: "new", Submitted: at(20)},
			{ID: "c", State: "unknown"},
		},
		Kernels: []ClusterKernel{{"amx", 1, 2, 3}},
	}, at(30))
	r.Scale(Scale{Wanted: 4, Replicas: 3}, at(31))
	r.Failed(FromNATS)
	const want = `shaver_cluster_job_checkpoint_timestamp_seconds{job_id="a"} 12.5
shaver_cluster_job_checkpoint_timestamp_seconds{job_id="b"} 20
shaver_cluster_job_epoch{job_id="a"} 9
shaver_cluster_job_epoch{job_id="b"} 0
shaver_cluster_job_epoch{job_id="c"} 0
shaver_cluster_job_info{job_id="a",kernel="amx",state="running"} 1
shaver_cluster_job_info{job_id="b",kernel="",state="unknown"} 1
shaver_cluster_job_info{job_id="c",kernel="",state="unknown"} 1
shaver_cluster_job_merged_rows{job_id="a"} 1
shaver_cluster_job_merged_rows{job_id="b"} 0
shaver_cluster_job_merged_rows{job_id="c"} 0
shaver_cluster_job_merged_shards{job_id="a"} 3
shaver_cluster_job_merged_shards{job_id="b"} 0
shaver_cluster_job_merged_shards{job_id="c"} 0
shaver_cluster_job_progress_timestamp_seconds{job_id="a"} 11
shaver_cluster_job_progress_timestamp_seconds{job_id="b"} 20
shaver_cluster_job_quarantined_shards{job_id="a"} 6
shaver_cluster_job_quarantined_shards{job_id="b"} 0
shaver_cluster_job_quarantined_shards{job_id="c"} 0
shaver_cluster_job_results{job_id="a"} 5
shaver_cluster_job_results{job_id="b"} 0
shaver_cluster_job_results{job_id="c"} 0
shaver_cluster_job_rows{job_id="a"} 2
shaver_cluster_job_rows{job_id="b"} 0
shaver_cluster_job_rows{job_id="c"} 0
shaver_cluster_job_rows_per_second{job_id="a"} 8.5
shaver_cluster_job_rows_per_second{job_id="b"} 0
shaver_cluster_job_rows_per_second{job_id="c"} 0
shaver_cluster_job_shards{job_id="a"} 4
shaver_cluster_job_shards{job_id="b"} 0
shaver_cluster_job_shards{job_id="c"} 0
shaver_cluster_job_submitted_timestamp_seconds{job_id="a"} 10
shaver_cluster_job_submitted_timestamp_seconds{job_id="b"} 20
shaver_cluster_job_workers{job_id="a"} 7
shaver_cluster_job_workers{job_id="b"} 0
shaver_cluster_job_workers{job_id="c"} 0
shaver_cluster_jobs{state="failed"} 0
shaver_cluster_jobs{state="running"} 1
shaver_cluster_jobs{state="unknown"} 2
shaver_cluster_tasks_held{kernel="amx"} 2
shaver_cluster_tasks_waiting{kernel="amx"} 1
shaver_cluster_workers_idle{kernel="amx"} 3
shaver_read_failures_total{source="kubernetes"} 0
shaver_read_failures_total{source="nats"} 1
shaver_read_timestamp_seconds{source="kubernetes"} 31
shaver_read_timestamp_seconds{source="nats"} 30
shaver_scale_replicas 3
shaver_scale_wanted_replicas 4
`
	if got := ours(); got != want {
		t.Errorf("got\n%s\nexpected\n%s", got, want)
	}
	docs, err := os.ReadFile("../../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(want) {
		name, _, _ := strings.Cut(strings.Fields(line)[0], "{")
		if !strings.Contains(string(docs), "`"+name+"`") {
			t.Errorf("docs/reference/metrics.md does not describe %s", name)
		}
	}
}
