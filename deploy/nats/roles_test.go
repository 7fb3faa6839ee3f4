// Package nats_test runs servers with the configuration files of this folder, on other
// ports and folders, and checks the rights of each role.
package nats_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
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

	"shaver/internal/checkpoint"
	"shaver/internal/cli"
	"shaver/internal/ingest"
	"shaver/internal/launch"
	"shaver/internal/model"
	"shaver/internal/planted"
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

// start starts a server from a file of this folder, after change was applied to the
// file's text.
func (s *site) start(config, name string, change *strings.Replacer) *server.Server {
	s.t.Helper()
	home := s.file(name)
	if err := os.Mkdir(home, 0o700); err != nil {
		s.t.Fatal(err)
	}
	paths := strings.NewReplacer("/etc/nats/tls", filepath.ToSlash(s.file("secrets")), "/data", filepath.ToSlash(home)+"/data", "0.0.0.0:4222", "127.0.0.1:-1")
	for _, file := range []string{"roles.conf", "server.conf", "cluster.conf"} {
		text, err := os.ReadFile(file)
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
		csv += fmt.Sprintf("%d,%d,%d\n", rows.Label[i], rows.Row(i)[0], rows.Row(i)[1])
	}
	s.write("rows.csv", []byte(csv))
	config := ingest.EncodedConfig{Train: []string{s.file("rows.csv")}, Sizes: p.FieldDims, Global: true, Out: s.file("dataset")}
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
		_, err := run(working, launch.WorkCommand("worker"), append(s.flags(url, "worker"), "--threads", "1")...)
		return err
	})
	out := filepath.Join(t.TempDir(), "scores.arrow")
	args := append(append(s.flags(url, "coordinator"), "--out", out), more...)
	if _, err := run(ctx, launch.ScoreCommand("coordinator", true), args...); err != nil {
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

// operator runs a command of "shaver job" with the operator's rights.
func (s *site) operator(url, name string, args ...string) (string, error) {
	s.t.Helper()
	program := s.file("shaver.exe") // a name that every system accepts
	if _, err := os.Stat(program); err != nil {
		if out, err := exec.CommandContext(s.t.Context(), "go", "build", "-o", program, "shaver/cmd/shaver").CombinedOutput(); err != nil {
			s.t.Fatalf("%v: %s", err, out)
		}
	}
	var failure bytes.Buffer
	c := exec.CommandContext(s.t.Context(), program, append(append([]string{"job", name}, args...), s.flags(url, "operator")...)...)
	c.Stderr = &failure
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, &failure)
	}
	return string(out), err
}

// Every role can do its work with its own rights, and cannot do the work of another role.
func TestRoles(t *testing.T) {
	s := newSite(t)
	url := ready(t, s.start("server.conf", "nats-0", strings.NewReplacer()))
	job := s.plant()
	s.job(url, job...)
	if out, err := s.operator(url, "list", "-o", "json"); err != nil || strings.TrimSpace(out) != "[]" {
		t.Errorf("jobs after the job: %q, %v", out, err)
	}
	s.cancelled(url, job)
	// A program with another role's key reports the missing permission and does not hang.
	_, err := run(t.Context(), launch.ScoreCommand("coordinator", true), append(append(s.flags(url, "operator"), "--out", s.file("no.arrow")), job...)...)
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
	} {
		t.Run(role, func(t *testing.T) { s.refused(t, url, role, refused) })
	}
}

// cancelled submits a job without workers and lets the operator cancel it.
func (s *site) cancelled(url string, job []string) {
	t := s.t
	t.Helper()
	group := new(errgroup.Group)
	group.Go(func() error {
		_, err := run(t.Context(), launch.ScoreCommand("coordinator", true), append(append(s.flags(url, "coordinator"), "--out", s.file("no.arrow"), "--seed", "2"), job...)...)
		return err
	})
	var id string
	for end := time.Now().Add(20 * time.Second); id == ""; time.Sleep(20 * time.Millisecond) {
		out, err := s.operator(url, "list")
		if err != nil || time.Now().After(end) {
			t.Fatalf("no job is listed: %v", err)
		}
		if lines := strings.Split(out, "\n"); len(lines) > 1 && strings.Contains(lines[1], "running") {
			id = strings.Fields(lines[1])[0]
		}
	}
	for _, command := range []string{"status", "quarantine", "cancel"} {
		if _, err := s.operator(url, command, id); err != nil {
			t.Errorf("job %s: %v", command, err)
		}
	}
	if err := group.Wait(); err == nil || !strings.Contains(err.Error(), "cancelled") {
		t.Errorf("the coordinator ended with %v", err)
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
// for fewer copies does not reduce the number.
func TestCluster(t *testing.T) {
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
