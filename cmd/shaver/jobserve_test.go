package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"shaver/internal/app/cli"
	"shaver/internal/base/long"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/ops/autoscale"
	"shaver/internal/prune/nightly"
)

// freePort returns an address on which nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// scrape returns what a process exports: the value of each metric with its labels.
func scrape(t *testing.T, address string) map[string]string {
	t.Helper()
	values := map[string]string{}
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return values
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			values[line[:i]] = strings.TrimSpace(line[i+1:])
		}
	}
	return values
}

// deployment is an API server of Kubernetes with one Deployment.
type deployment struct {
	mu       sync.Mutex
	replicas int
	largest  int
}

func (d *deployment) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Method == http.MethodPatch {
		var patch struct{ Spec struct{ Replicas int } }
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			http.Error(w, "{}", http.StatusBadRequest)
			return
		}
		d.replicas = patch.Spec.Replicas
		d.largest = max(d.largest, d.replicas)
	}
	fmt.Fprintf(w, `{"kind":"Scale","spec":{"replicas":%d},"status":{"replicas":%d}}`, d.replicas, d.replicas)
}

// cluster returns what finds the Deployment.
func (d *deployment) cluster(t *testing.T) func(namespace, name string) (*autoscale.Kubernetes, error) {
	t.Helper()
	server := httptest.NewTLSServer(d)
	t.Cleanup(server.Close)
	folder := t.TempDir()
	for name, text := range map[string]string{
		"token": "t", "namespace": "n", "ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
	} {
		writeText(t, filepath.Join(folder, name), text)
	}
	return func(namespace, name string) (*autoscale.Kubernetes, error) {
		return autoscale.Open(server.URL, folder, namespace, name)
	}
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// twoNights creates the folder of two nights, of which the first one is published.
func twoNights(t *testing.T) string {
	t.Helper()
	dir, half, text := t.TempDir(), .5, ""
	for number, outcome := range []string{nightly.Published, nightly.Failed} {
		line, err := json.Marshal(nightly.Line{
			Version: nightly.LineVersion, Night: fmt.Sprintf("night%d", number+1), Number: number + 1, Outcome: outcome, Finished: fmt.Sprintf("2026-11-2%dT03:00:00Z", number),
			RelativeError: &half, Reduction: &half, Churn: &half, PlainChurn: &half, AUC: &half, PrunedAUC: &half, AUCDrop: &half, LogLoss: &half, PrunedLogLoss: &half, LogLossRise: &half,
		})
		if err != nil {
			t.Fatal(err)
		}
		text += string(line) + "\n"
	}
	writeText(t, filepath.Join(dir, "history.jsonl"), text)
	writeText(t, filepath.Join(dir, "current.json"), `{"version":"`+nightly.CurrentVersion+`","night":"night1","folder":"nights/night1"}`)
	return dir
}

// Shaver job serve counts the tasks and follows a job while its coordinator lives and after it
// was killed, over a restart of NATS, and sizes the workers from 0 to the largest number and
// back. All names in the alert rules, the dashboard and the query of KEDA are those of metrics
// that it, the coordinator or the worker export.
func TestJobServe(t *testing.T) {
	long.Test(t)
	t.Parallel()
	l := longJob(t)
	config := embedded.Config{StoreDir: t.TempDir(), Listen: freePort(t)}
	server, err := embedded.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { server.Shutdown() }()
	url, id := server.URL(), l.report.Job
	address, coordinating, working := freePort(t), freePort(t), freePort(t)
	d := &deployment{}
	command := serveCommand(d.cluster(t))
	command.SetArgs([]string{"--nats", url, "--metrics", address, "--every", "1s", "--nightly", "file://" + twoNights(t), "--scale", "worker", "--max-workers", "3", "--scale-down-after", "2s", "--log", "json"})
	command.SilenceErrors, command.SilenceUsage = true, true
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- command.ExecuteContext(ctx) }()
	defer func() {
		stop()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Errorf("serve ended with %v", err)
		}
	}()
	seen := map[string]bool{} // metrics with their labels
	await := func(what string, holds func(m map[string]string) bool) map[string]string {
		t.Helper()
		var m map[string]string
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			m = scrape(t, address)
			for name := range m {
				seen[name] = true
			}
			if holds(m) {
				return m
			}
		}
		t.Fatalf("%s: not seen in %v: %v", what, patience, ours(m))
		return nil
	}
	kernel := "{kernel=\"" + l.report.Kernel + "\"}"
	waiting, held := "shaver_cluster_tasks_waiting"+kernel, "shaver_cluster_tasks_held"+kernel
	state := func(m map[string]string, s string) bool { return m[`shaver_cluster_jobs{state="`+s+`"}`] == "1" }

	m := await("a server without jobs, and the nights", func(m map[string]string) bool { // which are read independently
		return m[`shaver_cluster_jobs{state="running"}`] == "0" && m["shaver_night_number"] != ""
	})
	if m["shaver_night_published"] != "0" || m["shaver_night_number"] != "2" || m["shaver_night_published_timestamp_seconds"] != "1.7951436e+09" {
		t.Errorf("the nights: %v", ours(m))
	}
	out := filepath.Join(t.TempDir(), "s.arrow")
	args := slices.Concat([]string{"--nats", url, "--out", out, "--lease", "2s", "--log", "json", "--metrics", coordinating}, l.flags)
	coordinator := start(t, nil, "coordinator", args...)
	await("tasks without workers", func(m map[string]string) bool {
		return m[waiting] == fmt.Sprint(longShards) && state(m, "running") && m["shaver_scale_replicas"] == "3" && m["shaver_scale_wanted_replicas"] == "3"
	})
	for name := range scrape(t, coordinating) {
		seen[name] = true
	}
	page := readPage(t, "http://"+address+"/job/"+id)
	for _, want := range []string{">s.arrow</h1>", "running, 0%", fmt.Sprintf("0 of %d shards are computed", longShards)} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if page = readPage(t, "http://"+address+"/"); !strings.Contains(page, ">night1</a>") || !strings.Contains(page, "published, in use") {
		t.Errorf("the page lacks a night:\n%s", page)
	}

	// Nobody leads the job, but its tasks still count.
	if err := coordinator.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-coordinator.done
	await("an interrupted job", func(m map[string]string) bool { return state(m, "interrupted") && m[waiting] == fmt.Sprint(longShards) })

	// The values stay while NATS is away, and say how old they are.
	server.Shutdown()
	m = await("a failed reading", func(m map[string]string) bool { return m[`shaver_read_failures_total{source="nats"}`] > "0" })
	if m[waiting] != fmt.Sprint(longShards) || m["shaver_scale_replicas"] != "3" {
		t.Errorf("while NATS is away: %v", ours(m))
	}
	last := m[`shaver_read_timestamp_seconds{source="nats"}`]
	if server, err = embedded.Start(config); err != nil {
		t.Fatal(err)
	}
	await("a reading after NATS came back", func(m map[string]string) bool { return m[`shaver_read_timestamp_seconds{source="nats"}`] != last })

	task, err := connect(t, url).NextTask(t.Context(), l.report.Kernel) // a worker may have done all of them between two readings
	if err != nil {
		t.Fatal(err)
	}
	await("a task in work", func(m map[string]string) bool {
		if err := task.Heartbeat(t.Context()); err != nil {
			t.Error(err)
		}
		return m[held] == "1"
	})
	if err := task.Release(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	start(t, nil, "worker", "--nats", url, "--name", "worker", "--threads", "1", "--metrics", working)
	coordinator = start(t, nil, "coordinator", args...)
	m = await("the end of the job", func(m map[string]string) bool {
		for name := range scrape(t, coordinating) {
			seen[name] = true
		}
		return m[`shaver_cluster_jobs{state="running"}`] == "0" && m[`shaver_cluster_jobs{state="interrupted"}`] == "0" && m["shaver_scale_replicas"] == "0"
	})
	if m[waiting] != "0" || m[held] != "0" || d.largest != 3 {
		t.Errorf("after the job, with at most %d workers: %v", d.largest, ours(m))
	}
	if rows := "shaver_cluster_job_rows{job_id=\"" + id + "\"}"; !seen[rows] || m[rows] != "" {
		t.Errorf("%s was seen: %v; after the job it is %q", rows, seen[rows], m[rows])
	}
	await("an idle worker", func(m map[string]string) bool { // it asks again every few seconds, and a reading may fall between two requests
		return m["shaver_cluster_workers_idle"+kernel] == "1"
	})
	coordinator.wantExit(cli.ExitDone)
	wantSameFile(t, out, l.reference)
	later := freePort(t)
	start(t, nil, "shaver", "job", "serve", "--nats", url, "--metrics", later, "--log", "json").await("metrics", 1)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		page = readPage(t, "http://"+later+"/")
		if strings.Contains(page, ">finished.</strong>") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a page that began after the job does not show its end:\n%s", page)
		}
	}
	for _, want := range []string{">s.arrow</h1>", "the scores are at " + out, fmt.Sprintf("%d of %d shards are computed", longShards, longShards), "<th>worker</th>"} {
		if !strings.Contains(page, want) {
			t.Errorf("a page that began after the job lacks %q:\n%s", want, page)
		}
	}
	for name := range scrape(t, working) {
		seen[name] = true
	}
	wantQueries(t, seen)
}

// ours returns the metrics of shaver, for messages of a test.
func ours(m map[string]string) map[string]string {
	found := map[string]string{}
	for name, value := range m {
		if strings.HasPrefix(name, "shaver_") {
			found[name] = value
		}
	}
	return found
}

// targetLabels are the labels that Prometheus adds.
var targetLabels = []string{"instance", "namespace", "pod", "le"}

// wantQueries checks that each metric and each label in the alert rules, in the dashboard and in
// the query of KEDA is one of those that were seen.
func wantQueries(t *testing.T, seen map[string]bool) {
	t.Helper()
	names, labels := map[string]bool{}, map[string]bool{}
	for metric := range seen {
		name, rest, _ := strings.Cut(metric, "{")
		names[name] = true
		for pair := range strings.SplitSeq(strings.TrimSuffix(rest, "}"), ",") {
			label, _, _ := strings.Cut(pair, "=")
			labels[label] = true
		}
	}
	const chart = "../../deploy/helm/shaver/files/"
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	text, err := os.ReadFile(chart + "alerts.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &rules)
	}
	if err != nil {
		t.Fatal(err)
	}
	queries := map[string]string{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			queries["alert "+r.Alert] = r.Expr
		}
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
	}
	readJSON(t, chart+"dashboard.json", &dashboard)
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			queries["panel "+p.Title+" "+target.RefID] = target.Expr
		}
	}
	var scaled struct {
		Spec struct {
			Triggers []struct{ Metadata struct{ Query string } }
		}
	}
	text, err = os.ReadFile("../../deploy/k8s/keda.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &scaled)
	}
	if err != nil || len(scaled.Spec.Triggers) != 1 {
		t.Fatalf("keda.yaml has %d triggers: %v", len(scaled.Spec.Triggers), err)
	}
	queries["keda.yaml"] = scaled.Spec.Triggers[0].Metadata.Query
	if len(queries) < 50 {
		t.Errorf("%d queries were found", len(queries))
	}
	for where, query := range queries {
		metrics, used := inQuery(query)
		for _, name := range metrics {
			if !names[name] {
				t.Errorf("%s: no program exports the metric %s", where, name)
			}
		}
		for _, label := range used {
			if !labels[label] && !slices.Contains(targetLabels, label) {
				t.Errorf("%s: no metric has the label %s", where, label)
			}
		}
		if len(metrics) == 0 {
			t.Errorf("%s: no metric in %q", where, query)
		}
	}
}

// inQuery returns the names of the metrics and of the labels in a query. A name in braces, or in
// the parentheses after by, on and the like, is a label. A name before a parenthesis is a function,
// and a few other names are operators.
func inQuery(query string) (metrics, labels []string) {
	operators := []string{"and", "or", "unless", "by", "on", "ignoring", "without", "group_left", "group_right", "bool", "offset", "sum", "max", "min", "avg", "count"}
	listing := []string{"by", "on", "ignoring", "without", "group_left", "group_right"}
	var word, last strings.Builder // the name that is read, and the one before
	inBraces, inList, quote := false, false, rune(0)
	take := func(next rune) {
		name := word.String()
		if name == "" {
			return
		}
		word.Reset()
		last.Reset()
		last.WriteString(name)
		switch {
		case name[0] >= '0' && name[0] <= '9', name[0] == '$': // a number, a duration or a variable
		case inBraces, inList:
			labels = append(labels, name)
		case slices.Contains(operators, name), next == '(':
		default:
			metrics = append(metrics, name)
		}
	}
	for _, c := range query + " " {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '_' || c == '$' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9':
			word.WriteRune(c)
		default:
			take(c)
			switch c {
			case '{':
				inBraces = true
			case '}':
				inBraces = false
			case '(':
				inList = slices.Contains(listing, last.String())
				last.Reset()
			case ')':
				inList = false
			}
		}
	}
	return metrics, labels
}

// The metrics and the labels of a query are found.
func TestInQuery(t *testing.T) {
	metrics, labels := inQuery(`histogram_quantile(0.5, sum by (le, outcome) (rate(a_bucket{x="b{c}",y!~'d'}[$__rate_interval]))) > 26 * 3600 and on (job_id) e == 1 unless f`)
	if got, want := strings.Join(metrics, " "), "a_bucket e f"; got != want {
		t.Errorf("metrics %q, expected %q", got, want)
	}
	if got, want := strings.Join(labels, " "), "le outcome x y job_id"; got != want {
		t.Errorf("labels %q, expected %q", got, want)
	}
}

// Flags that contradict each other are wrong usage, and no port is opened for them.
func TestJobServeUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"shaver job serve needs --metrics": {"--nats", "nats://127.0.0.1:1"},
		"--scale needs --max-workers":      {"--nats", "nats://127.0.0.1:1", "--metrics", ":0", "--scale", "worker"},
		"--max-workers needs --scale":      {"--nats", "nats://127.0.0.1:1", "--metrics", ":0", "--max-workers", "3"},
		"--min-workers 4":                  {"--nats", "nats://127.0.0.1:1", "--metrics", ":0", "--scale", "worker", "--max-workers", "3", "--min-workers", "4"},
		"--every 1ms":                      {"--nats", "nats://127.0.0.1:1", "--metrics", ":0", "--every", "1ms"},
		"only in a pod of Kubernetes":      {"--nats", "nats://127.0.0.1:1", "--metrics", ":0", "--scale", "worker", "--max-workers", "3"},
	} {
		p := start(t, []string{"KUBERNETES_SERVICE_HOST="}, "shaver", append([]string{"job", "serve"}, args...)...)
		p.wantExit(cli.ExitUsage)
		if log := strings.Join(p.log, "\n"); !strings.Contains(log, want) {
			t.Errorf("%q, expected %q", log, want)
		}
	}
}
