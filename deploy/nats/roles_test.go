// Package nats_test runs servers with the configuration files of the chart and of
// docker-compose.yml, on other ports and folders, and checks the rights of each role.
package nats_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"shaver/internal/app/cli"
	"shaver/internal/app/score"
	"shaver/internal/app/work"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/planted"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
)

// site is a folder with certificates, configuration files and the seeds of the roles.
type site struct {
	t   *testing.T
	dir string
}

func (s *site) file(name string) string { return filepath.Join(s.dir, name) }

func (s *site) write(name string, data []byte) {
	s.t.Helper()
	if err := os.WriteFile(s.file(name), data, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t, t.TempDir()}
	// The documented way to create the secrets.
	if out, err := exec.CommandContext(t.Context(), "go", "run", "./keys", "--out", s.file("secrets")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if info, err := os.Stat(s.file("secrets")); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
		t.Errorf("other users can enter the folder of secrets: %v, %v", info, err)
	}
	env, err := os.ReadFile(s.file("secrets/nkeys.env"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(env)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		t.Setenv(name, value)
	}
	return s
}

// start starts a server from a file of the chart, after change was applied to the
// file's text.
func (s *site) start(config, name string, change *strings.Replacer) *server.Server {
	s.t.Helper()
	home := s.file(name)
	if err := os.Mkdir(home, 0o700); err != nil {
		s.t.Fatal(err)
	}
	paths := strings.NewReplacer("/etc/nats/tls", filepath.ToSlash(s.file("secrets")), "/data", filepath.ToSlash(home)+"/data", "0.0.0.0:4222", "127.0.0.1:-1")
	for _, file := range []string{"roles.conf", "server.conf", "cluster.conf"} {
		text, err := os.ReadFile(filepath.Join("..", "helm", "shaver", "files", file))
		if err != nil {
			s.t.Fatal(err)
		}
		s.write(filepath.Join(name, file), []byte(change.Replace(paths.Replace(string(text)))))
	}
	s.t.Setenv("NATS_NAME", name)
	options, err := server.ProcessConfigFile(filepath.Join(home, config))
	if err != nil {
		s.t.Fatal(err)
	}
	options.NoSigs = true
	if !options.SyncAlways || options.TLSConfig == nil || options.HTTPPort != 0 {
		s.t.Errorf("%s: writes may be lost, TLS is off, or a port has no TLS", config)
	}
	ns, err := server.NewServer(options)
	if err != nil {
		s.t.Fatal(err)
	}
	ns.Start()
	s.t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	return ns
}

func ready(t *testing.T, ns *server.Server) string {
	t.Helper()
	if !ns.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not become ready")
	}
	return "tls://" + ns.Addr().String()
}

// flags returns the connection flags of a role.
func (s *site) flags(url, role string) []string {
	return []string{"--nats", url, "--nkey", s.file("secrets/" + role + ".nk"), "--tlsca", s.file("secrets/ca.crt")}
}

// run runs a command and returns what it printed.
func run(ctx context.Context, c *cobra.Command, args ...string) (string, error) {
	var out bytes.Buffer
	c.SetArgs(args)
	c.SetOut(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

// plant creates a model and a dataset, and returns the flags that name them.
func (s *site) plant() []string {
	t := s.t
	t.Helper()
	p, err := planted.New(planted.Config{Fields: []string{"a", "b"}, FieldDims: []int{9, 5}, Informative: 2, Silent: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.WriteDense(s.file("model.safetensors"), p.Checkpoint); err != nil {
		t.Fatal(err)
	}
	var rows model.Rows
	p.Rows(&rows, 0, 200)
	csv := "label,a,b\n"
	for i := range rows.Len() {
		csv += fmt.Sprintf("%v,%d,%d\n", rows.Label[i], rows.Row(i)[0], rows.Row(i)[1])
	}
	s.write("rows.csv", []byte(csv))
	s.write("val.csv", []byte(csv+csv[len("label,a,b\n"):])) // not the same file twice
	config := ingest.EncodedConfig{Train: []string{s.file("rows.csv")}, Val: []string{s.file("val.csv")}, Sizes: p.FieldDims, Global: true, Out: s.file("dataset")}
	if _, err := ingest.ImportEncoded(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return []string{"--model", s.file("model.safetensors"), "--dataset", s.file("dataset"), "--splits", "train", "--rows-per-shard", "40", "--log", "json"}
}

// job runs a job with a worker that has the worker's rights, and returns the scores.
func (s *site) job(url string, more ...string) []byte {
	t := s.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	working, drain := context.WithCancel(ctx)
	group := new(errgroup.Group)
	group.Go(func() error {
		_, err := run(working, work.Command("worker"), append(s.flags(url, "worker"), "--threads", "1")...)
		return err
	})
	out := filepath.Join(t.TempDir(), "scores.arrow")
	args := append(append(s.flags(url, "coordinator"), "--out", out), more...)
	if _, err := run(ctx, score.CoordinatorCommand(), args...); err != nil {
		t.Fatal(err)
	}
	drain()
	if err := group.Wait(); !errors.Is(err, cli.ErrDrained) {
		t.Errorf("the worker ended with %v", err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// ranged runs a job whose sums are kept by mergers with the coordinator's rights. Its scores must be
// those of want.
func (s *site) ranged(url string, want []byte, flags []string) {
	t := s.t
	t.Helper()
	merging, stop := context.WithCancel(t.Context())
	group := new(errgroup.Group)
	for range 2 {
		group.Go(func() error {
			_, err := run(merging, score.CoordinatorCommand(), append([]string{"merge", "--log", "json"}, s.flags(url, "coordinator")...)...)
			return err
		})
	}
	if got := s.job(url, append([]string{"--ranges", "2"}, flags...)...); !bytes.Equal(got, want) {
		t.Error("the scores of a job with two ranges differ")
	}
	stop()
	if err := group.Wait(); !errors.Is(err, cli.ErrDrained) {
		t.Errorf("a merger ended with %v", err)
	}
}

// build builds shaver once.
func (s *site) build() {
	s.t.Helper()
	program := s.file("shaver.exe") // a name that every system accepts
	if _, err := os.Stat(program); err == nil {
		return
	}
	if out, err := exec.CommandContext(s.t.Context(), "go", "build", "-o", program, "shaver/cmd/shaver").CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
}

// watched runs shaver job serve with the monitor's rights from before f is called until it
// has returned. Every reading must succeed, and one of them must have counted tasks. The monitor sees how the
// job of f ends.
func (s *site) watched(url string, f func()) {
	t := s.t
	t.Helper()
	s.build()
	args := append([]string{"job", "serve", "--metrics", "127.0.0.1:0", "--every", "1s", "--log", "json"}, s.flags(url, "monitor")...)
	c := exec.CommandContext(t.Context(), s.file("shaver.exe"), args...)
	log, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	address := ""
	for lines := bufio.NewScanner(log); address == "" && lines.Scan(); {
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "metrics" {
			address = line.Address
		}
	}
	go func() { _, _ = io.Copy(io.Discard, log) }()
	read := func() string {
		answer, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	b, err := bus.Connect(t.Context(), bus.Config{URL: url, Role: cli.RoleMonitor, Name: "test", Access: bus.Access{NKey: s.file("secrets/monitor.nk"), TLSCA: s.file("secrets/ca.crt")}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ended := make(chan string, 10)
	if err := b.Ends(func(p bus.Progress) { ended <- p.State }); err != nil {
		t.Fatal(err)
	}
	f()
	select {
	case state := <-ended:
		if state != bus.Finished {
			t.Errorf("the monitor sees that the job ended as %s", state)
		}
	case <-time.After(20 * time.Second):
		t.Error("the monitor does not see that the job ended")
	}
	for end := time.Now().Add(20 * time.Second); !strings.Contains(read(), `shaver_cluster_tasks_waiting{kernel=`); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no task was counted:\n%s", read())
		}
	}
	if body := read(); !strings.Contains(body, `shaver_read_failures_total{source="nats"} 0`) {
		t.Errorf("a reading failed:\n%s", body)
	}
}

// counted checks that the monitor sees the tasks of a job without workers at a server. The
// coordinator may still be publishing them.
func (s *site) counted(url, where string) {
	t := s.t
	t.Helper()
	b, err := bus.Connect(t.Context(), bus.Config{URL: url, Role: cli.RoleMonitor, Name: "test", Access: bus.Access{NKey: s.file("secrets/monitor.nk"), TLSCA: s.file("secrets/ca.crt")}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const shards = 5 // of 200 rows
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		o, err := b.Overview(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		if len(o.Kernels) == 1 && o.Kernels[0].Waiting == shards && o.Kernels[0].Held == 0 && len(o.Jobs) == 1 && o.Jobs[0].Epoch == 1 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %+v, expected %d waiting tasks", where, o, shards)
		}
	}
}

// operator runs a command of "shaver job" with the operator's rights.
func (s *site) operator(url, name string, args ...string) (string, error) {
	s.t.Helper()
	s.build()
	return output(exec.CommandContext(s.t.Context(), s.file("shaver.exe"), append(append([]string{"job", name}, args...), s.flags(url, "operator")...)...))
}

// output runs a process and returns what it printed. Its error has what it wrote to stderr.
func output(c *exec.Cmd) (string, error) {
	var failure bytes.Buffer
	c.Stderr = &failure
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, &failure)
	}
	return string(out), err
}

// night runs shaver nightly with the coordinator's rights and a worker with the worker's. The
// programs exist.
func (s *site) night(url string) {
	t := s.t
	t.Helper()
	if err := os.CopyFS(s.file("days/day-1"), os.DirFS(s.file("dataset"))); err != nil {
		t.Fatal(err)
	}
	s.write("nightly.yaml", []byte("model: model.safetensors\ndays: days\nout: nights\nscore:\n  splits: [train]\n  nats: "+url+
		"\n  nkey: secrets/coordinator.nk\n  tlsca: secrets/ca.crt\n  replicas: 1\n  wait: 1m\nprune:\n  sparsity: 0.5\ncalibrate: false\ncheck:\n  split: val\n  max-auc-drop: 1\n  max-logloss-rise: 9\n"))
	working, drain := context.WithCancel(t.Context())
	group := new(errgroup.Group)
	group.Go(func() error {
		_, err := run(working, work.Command("worker"), append(s.flags(url, "worker"), "--threads", "1")...)
		return err
	})
	text, err := output(exec.CommandContext(t.Context(), s.file("shaver.exe"), "nightly", "--config", s.file("nightly.yaml")))
	if err != nil || !strings.Contains(text, "published") {
		t.Errorf("the night: %q, %v", text, err)
	}
	drain()
	if err := group.Wait(); !errors.Is(err, cli.ErrDrained) {
		t.Errorf("the worker ended with %v", err)
	}
}

// Every role can do its work with its own rights, and cannot do the work of another role.
func TestRoles(t *testing.T) {
	long.Test(t)
	s := newSite(t)
	url := ready(t, s.start("server.conf", "nats-0", strings.NewReplacer()))
	flags := s.plant()
	var want []byte
	s.watched(url, func() { want = s.job(url, flags...) })
	s.ranged(url, want, flags)
	if out, err := s.operator(url, "list", "-o", "json"); err != nil || strings.TrimSpace(out) != "[]" {
		t.Errorf("jobs after the job: %q, %v", out, err)
	}
	if _, err := run(t.Context(), work.Command("worker"), append(s.flags(url, "worker"), "--threads", "1", "--leave-after", "100ms")...); err != nil {
		t.Errorf("a worker that ends when there is no job: %v", err)
	}
	s.night(url)
	s.cancelled(url, flags, func() {})
	// A program with another role's key reports the missing permission and does not hang.
	_, err := run(t.Context(), score.CoordinatorCommand(), append(append(s.flags(url, "operator"), "--out", s.file("no.arrow")), flags...)...)
	if err == nil || !strings.Contains(strings.ToLower(err.Error()), "permissions violation") {
		t.Errorf("a coordinator with the operator's key: %v", err)
	}
	for role, refused := range map[string][]string{
		"coordinator": {"$JS.API.STREAM.DELETE.SHAVER_TASKS", "$JS.API.CONSUMER.DELETE.SHAVER_TASKS.workers-x", "$JS.API.CONSUMER.MSG.NEXT.SHAVER_TASKS.workers-x",
			"shaver.result.x.0", "$JS.ACK.SHAVER_TASKS.x", "anything"},
		"worker": {"$JS.API.STREAM.DELETE.SHAVER_TASKS", "$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.UPDATE.SHAVER_TASKS", "$JS.API.STREAM.PURGE.SHAVER_TASKS",
			"$JS.API.STREAM.PURGE.KV_SHAVER_JOBS", "$JS.API.STREAM.MSG.DELETE.OBJ_SHAVER_BLOBS", "$JS.API.STREAM.MSG.GET.SHAVER_TASKS", "$JS.API.STREAM.NAMES", "$JS.API.INFO",
			"$JS.API.CONSUMER.CREATE.SHAVER_TASKS.mine", "$JS.API.CONSUMER.CREATE.SHAVER_RESULTS.mine", "$JS.API.CONSUMER.DELETE.SHAVER_TASKS.workers-x",
			"shaver.task.x.y.0", "$KV.SHAVER_JOBS.x.spec", "$KV.SHAVER_JOBS.x.checkpoint", "anything"},
		"operator": {"$JS.API.STREAM.DELETE.SHAVER_TASKS", "$JS.API.STREAM.CREATE.MINE", "$JS.API.CONSUMER.CREATE.SHAVER_TASKS.mine",
			"shaver.task.x.y.0", "shaver.result.x.0", "$O.SHAVER_BLOBS.C.x", "$KV.SHAVER_JOBS.x.spec"},
		"monitor": {"$JS.API.STREAM.DELETE.SHAVER_TASKS", "$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.PURGE.SHAVER_TASKS", "$JS.API.STREAM.MSG.GET.SHAVER_TASKS",
			"$JS.API.STREAM.MSG.GET.SHAVER_RESULTS", "$JS.API.STREAM.MSG.GET.OBJ_SHAVER_BLOBS", "$JS.API.STREAM.INFO.OBJ_SHAVER_BLOBS", "$JS.API.DIRECT.GET.OBJ_SHAVER_BLOBS",
			"$JS.API.CONSUMER.CREATE.SHAVER_TASKS.mine", "$JS.API.CONSUMER.CREATE.OBJ_SHAVER_BLOBS.mine", "$JS.API.CONSUMER.MSG.NEXT.SHAVER_TASKS.workers-x", "$JS.ACK.SHAVER_TASKS.x",
			"shaver.task.x.y.0", "shaver.result.x.0", "shaver.quarantine.x.0", "$KV.SHAVER_JOBS.x.cancel", "$KV.SHAVER_JOBS.x.spec", "$O.SHAVER_BLOBS.C.x"},
	} {
		t.Run(role, func(t *testing.T) { s.refused(t, url, role, refused) })
	}
}

// cancelled submits a job without workers that can compute it, calls f while it runs, and
// lets the operator cancel it. The operator sees the worker of another build that is
// connected.
func (s *site) cancelled(url string, flags []string, f func()) {
	t := s.t
	t.Helper()
	group := new(errgroup.Group)
	group.Go(func() error {
		_, err := run(t.Context(), score.CoordinatorCommand(), append(append(s.flags(url, "coordinator"), "--out", s.file("no.arrow"), "--seed", "2"), flags...)...)
		return err
	})
	var id string
	for end := time.Now().Add(time.Minute); id == ""; time.Sleep(20 * time.Millisecond) {
		out, err := s.operator(url, "list")
		if err != nil || time.Now().After(end) {
			t.Fatalf("no job is listed: %v", err)
		}
		// On a slow machine the job is stalled before this loop sees it running.
		if lines := strings.Split(out, "\n"); len(lines) > 1 && (strings.Contains(lines[1], "running") || strings.Contains(lines[1], "stalled")) {
			id = strings.Fields(lines[1])[0]
		}
	}
	other, err := bus.Connect(t.Context(), bus.Config{URL: url, Role: cli.RoleWorker, Name: "other", Access: bus.Access{NKey: s.file("secrets/worker.nk"), TLSCA: s.file("secrets/ca.crt")}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Announce(job.Build{Name: "other", Kernel: "k", Protocol: 77, Program: "shaver v9"}); err != nil {
		t.Fatal(err)
	}
	if err := other.Ready(); err != nil {
		t.Fatal(err)
	}
	if out, err := s.operator(url, "status", id); err != nil || !strings.Contains(out, "protocol 77") {
		t.Errorf("the status has no worker with protocol 77: %q, %v", out, err)
	}
	f()
	for _, command := range []string{"status", "quarantine", "cancel"} {
		if _, err := s.operator(url, command, id); err != nil {
			t.Errorf("job %s: %v", command, err)
		}
	}
	if err := group.Wait(); err == nil || !strings.Contains(err.Error(), "cancelled") {
		t.Errorf("the coordinator ended with %v", err)
	}
}

// A key that may ask workers who they are cannot make a worker write what the key itself may not write.
func TestDeputies(t *testing.T) {
	s := newSite(t)
	url := ready(t, s.start("server.conf", "nats-0", strings.NewReplacer()))
	connect := func(role string) *bus.Bus {
		b, err := bus.Connect(t.Context(), bus.Config{URL: url, Role: role, Name: role, Access: bus.Access{NKey: s.file("secrets/" + role + ".nk"), TLSCA: s.file("secrets/ca.crt")}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	if err := connect(cli.RoleCoordinator).Setup(t.Context(), bus.DefaultQueue, "k"); err != nil {
		t.Fatal(err)
	}
	if err := connect(cli.RoleWorker).Announce(job.Build{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	seed, err := nats.NkeyOptionFromSeed(s.file("secrets/monitor.nk"))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(url, seed, nats.RootCAs(s.file("secrets/ca.crt")), nats.CustomInboxPrefix("_INBOX.monitor"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	id := strings.Repeat("e", 20)
	for _, subject := range []string{"$KV.SHAVER_JOBS." + id + ".cancel", "$KV.SHAVER_JOBS." + id + ".checkpoint", "$KV.SHAVER_JOBS." + id + ".spec", "shaver.task.k." + id + ".0", "shaver.result." + id + ".0", "shaver.quarantine." + id + ".0", "$O.SHAVER_BLOBS.C.x"} {
		if err := nc.PublishRequest("shaver.who", subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := nc.Request("shaver.who", nil, 10*time.Second); err != nil || len(m.Data) == 0 {
		t.Fatalf("a worker that is asked correctly: %v", err)
	}
	time.Sleep(200 * time.Millisecond) // the server stores what it has received
	operator := connect(cli.RoleOperator)
	if jobs, err := operator.Jobs(t.Context()); err != nil || len(jobs) > 0 {
		t.Errorf("jobs: %+v, %v", jobs, err)
	}
	for _, stream := range []string{"SHAVER_TASKS", "SHAVER_RESULTS", "SHAVER_QUARANTINE", "KV_SHAVER_JOBS"} {
		m, err := nc.Request("$JS.API.STREAM.INFO."+stream, nil, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var info struct {
			State *struct{ Messages int }
		}
		if err := json.Unmarshal(m.Data, &info); err != nil || info.State == nil || info.State.Messages != 0 {
			t.Errorf("%s: %s, %v", stream, m.Data, err)
		}
	}
}

// refused checks that the server accepts none of these subjects from the role, and that
// the role can subscribe only to its own inbox.
func (s *site) refused(t *testing.T, url, role string, subjects []string) {
	seed, err := nats.NkeyOptionFromSeed(s.file("secrets/" + role + ".nk"))
	if err != nil {
		t.Fatal(err)
	}
	complaints := make(chan error, 100)
	nc, err := nats.Connect(url, seed, nats.RootCAs(s.file("secrets/ca.crt")), nats.CustomInboxPrefix("_INBOX."+role),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { complaints <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	want := func(text, verb string) {
		t.Helper()
		select {
		case err := <-complaints:
			if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(verb+` to "`+text+`"`)) {
				t.Errorf("%s to %s: %v", verb, text, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s to %s is not refused", verb, text)
		}
	}
	for _, subject := range subjects {
		if err := nc.Publish(subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		want(subject, "publish")
	}
	for _, subject := range []string{">", "shaver.>", "_INBOX.>", "_INBOX.someone.>", "$KV.>", "$O.>", "$JS.>"} {
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		want(subject, "subscription")
	}
	if err := nc.Flush(); err != nil || len(complaints) > 0 {
		t.Errorf("unexpected further errors: %d, %v", len(complaints), err)
	}
}

// The server refuses clients without a known key and clients without TLS.
func TestStrangers(t *testing.T) {
	s := newSite(t)
	url := ready(t, s.start("server.conf", "nats-0", strings.NewReplacer()))
	ca := nats.RootCAs(s.file("secrets/ca.crt"))
	stranger, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := stranger.PublicKey()
	for name, options := range map[string][]nats.Option{
		"nobody": {ca}, "a password": {ca, nats.UserInfo("worker", "worker")}, "another key": {ca, nats.Nkey(public, stranger.Sign)}, "another authority": nil,
	} {
		if nc, err := nats.Connect(url, options...); err == nil {
			nc.Close()
			t.Errorf("the server admitted a client with %s", name)
		}
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "tls://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	buffer := make([]byte, 64<<10)
	n, err := conn.Read(buffer)
	if err != nil || !strings.Contains(string(buffer[:n]), `"tls_required":true`) {
		t.Errorf("without TLS: %q, %v", buffer[:n], err)
	}
}

// Three servers of cluster.conf hold three copies of each stream. A coordinator that asks
// for fewer copies does not reduce the number. Each server gives the same counts of tasks.
func TestCluster(t *testing.T) {
	long.Test(t)
	s := newSite(t)
	var ports []string
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().String())
		l.Close()
	}
	var servers []*server.Server
	for i, own := range ports {
		servers = append(servers, s.start("cluster.conf", fmt.Sprintf("nats-%d", i), strings.NewReplacer("0.0.0.0:6222", own,
			"nats-0.nats:6222", ports[0], "nats-1.nats:6222", ports[1], "nats-2.nats:6222", ports[2])))
	}
	var urls []string
	for _, ns := range servers {
		urls = append(urls, ready(t, ns))
	}
	url := strings.Join(urls, ",")
	job := s.plant()
	first := s.job(url, append(job, "--replicas", "3")...)
	second := s.job(url, job...)
	if !bytes.Equal(first, second) {
		t.Error("the scores of the second job differ")
	}
	s.cancelled(url, job, func() {
		for i, replica := range urls {
			s.counted(replica, fmt.Sprintf("at nats-%d", i))
		}
	})
	for _, ns := range servers {
		info, err := ns.Jsz(&server.JSzOptions{Streams: true, Config: true, Accounts: true})
		if err != nil {
			t.Fatal(err)
		}
		streams := 0
		for _, account := range info.AccountDetails {
			for _, stream := range account.Streams {
				streams++
				if stream.Config.Replicas != 3 {
					t.Errorf("%s: stream %s has %d replicas", ns.Name(), stream.Name, stream.Config.Replicas)
				}
			}
		}
		if streams != 5 {
			t.Errorf("%s holds %d streams, expected 5", ns.Name(), streams)
		}
	}
}
