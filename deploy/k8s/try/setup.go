//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"shaver/deploy/internal/trial"
	"shaver/deploy/k8s/try/cluster"
	"shaver/internal/app/cli"
)

// join starts the node.
func (s *suite) join(t *trial.Step) {
	t.Check(s.Join(t.Ctx))
	out := t.Do(s.Kubectl("get", "nodes,pods", "--all-namespaces"))
	t.Contains("the list", out, "node1", "coredns")
}

// images builds the programs as the Dockerfile does, and gives the node images of them.
func (s *suite) images(t *trial.Step) {
	s.checkoutCopy(t)
	s.bin = filepath.Join(s.work, "bin")
	for _, b := range []struct{ show, pkg string }{
		{"go build -trimpath -buildvcs=false -ldflags='-s -w' -o bin/ ./cmd/shaver ./cmd/coordinator ./cmd/worker", "./cmd/shaver ./cmd/coordinator ./cmd/worker"},
		{"go build -trimpath -o bin/ github.com/nats-io/nats-server/v2", "github.com/nats-io/nats-server/v2"},
	} {
		args := append([]string{"go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", s.bin + "/"}, strings.Fields(b.pkg)...)
		t.Do(trial.Command{Args: args, Show: b.show, Dir: s.copy, Env: []string{"CGO_ENABLED=0"}, Limit: 10 * time.Minute})
	}
	config := filepath.Join(s.work, "nats-server.conf")
	t.Check(os.WriteFile(config, []byte("port: 4222\nhttp_port: 8222\n"), 0o644))
	links := map[string]string{}
	for _, name := range []string{"sh", "tar", "cat", "ls", "cp", "mv", "sleep", "mkdir", "rm", "id", "stat", "wget", "nc", "sha256sum", "df", "dd", "du", "find", "echo", "chmod"} {
		links["/bin/"+name] = "busybox"
	}
	ca := "/etc/ssl/certs/ca-certificates.crt"
	t.Check(s.Load(t.Ctx, cluster.Image{
		Name: "shaver:" + cli.Release(), Entrypoint: []string{"/bin/shaver"}, User: "65532:65532", Temporary: []string{"/tmp"},
		Files: map[string]string{"/bin/shaver": s.bin + "/shaver", "/bin/coordinator": s.bin + "/coordinator", "/bin/worker": s.bin + "/worker", ca: ca},
	}))
	t.Check(s.Load(t.Ctx, cluster.Image{
		Name: "nats:2.15.2", Entrypoint: []string{"/nats-server"}, Command: []string{"--config", "nats-server.conf"},
		Files: map[string]string{"/nats-server": s.bin + "/nats-server", "/nats-server.conf": config},
	}))
	t.Check(s.Load(t.Ctx, cluster.Image{
		Name: "busybox:1.37.0", Entrypoint: []string{"/bin/sh"}, Files: map[string]string{"/bin/busybox": "/bin/busybox"}, Links: links, Temporary: []string{"/tmp"},
	}))
	t.Say("The images shaver:%s, nats:2.15.2 and busybox:1.37.0 are on the node.", cli.Release())
}

// checkoutCopy copies the files of the checkout, so that commands of README.md may write
// into it.
func (s *suite) checkoutCopy(t *trial.Step) {
	s.copy = filepath.Join(s.work, "shaver")
	list, err := exec.CommandContext(t.Ctx, "git", "-C", s.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	t.Check(err)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(s.root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		t.Check(err)
		file := filepath.Join(s.copy, name)
		t.Check(os.MkdirAll(filepath.Dir(file), 0o755))
		t.Check(os.WriteFile(file, text, 0o644))
	}
}

// readme returns the indented block of deploy/k8s/README.md that starts with this text.
func (s *suite) readme(t *trial.Step, start string) string {
	text, err := os.ReadFile(filepath.Join(s.copy, "deploy", "k8s", "README.md"))
	t.Check(err)
	_, rest, ok := strings.Cut(string(text), "\n    "+start)
	if !ok {
		t.Fail("deploy/k8s/README.md has no command %q", start)
	}
	var lines []string
	for line := range strings.SplitSeq(start+rest, "\n") {
		if len(lines) > 0 && !strings.HasPrefix(line, "    ") {
			break
		}
		lines = append(lines, strings.TrimPrefix(line, "    "))
	}
	return strings.Join(lines, "\n")
}

// literally runs commands of README.md as they are.
func (s *suite) literally(t *trial.Step, commands string) string {
	c := s.shell("set -e\n" + commands)
	c.Show, c.Limit = commands, 5*time.Minute
	return t.Do(c)
}

// namespace follows README.md until everything is there that the chart needs.
func (s *suite) namespace(t *trial.Step) {
	s.literally(t, s.readme(t, "kubectl create namespace shaver"))
	t.Do(s.kubectl("label", "namespace", space, "pod-security.kubernetes.io/warn=restricted"))
	s.literally(t, s.readme(t, "go run ./deploy/nats/keys"))
}

// install installs the chart as README.md says, with the values for small clusters.
func (s *suite) install(t *trial.Step) {
	install := strings.ReplaceAll(s.readme(t, "helm install shaver deploy/helm/shaver"), " --set image.repository=REGISTRY/shaver --set image.tag=TAG", " --set "+ownImage+" --values deploy/helm/shaver/values-small.yaml")
	s.literally(t, install)
	s.literally(t, s.readme(t, "kubectl rollout status statefulset/nats"))
	t.Do(s.kubectl("get", "pods,persistentvolumeclaims,networkpolicies,poddisruptionbudgets"))
	warnings := t.Do(s.kubectl("get", "events", "--field-selector=type=Warning,reason=FailedCreate"))
	t.Equal("pods that admission refused", warnings, "")
	t.Point("6", "the commands of README.md were run as they are, in their order")
	requests := t.Do(s.kubectl("get", "pods", "-o", "jsonpath={range .items[*]}{.metadata.name} {.spec.containers[0].resources.requests.cpu} {.spec.containers[0].resources.requests.memory}{\"\\n\"}{end}"))
	t.Point("8", "with values-small.yaml all pods were scheduled on a node of 2 cores; the five pods ask for %s", trial.Short(requests, 300))
}

// load copies model and dataset into the volume, as README.md says.
func (s *suite) load(t *trial.Step) {
	commands := strings.NewReplacer("model.pth loader:/data/model.pth", s.data.file("model.safetensors")+" loader:/data/model.safetensors", "cp dataset ", "cp "+s.data.file("dataset")+" ").
		Replace(s.readme(t, "kubectl apply -f deploy/k8s/loader.yaml"))
	seen := s.literally(t, commands)
	t.Contains("the volume", seen, "model.safetensors", "dataset")
	for _, name := range []string{"overflow.safetensors", "garbage.safetensors", "large.safetensors", "large"} {
		c := s.kubectl("cp", s.data.file(name), "loader:/data/"+name)
		c.Lines = -1
		t.Do(c)
	}
}

// idle checks what workers log before the first job.
func (s *suite) idle(t *trial.Step) {
	logs := s.kubectl("logs", "--selector="+workers, "--tail=-1").Do(t.Ctx).Text()
	n := 0
	for line := range strings.SplitSeq(logs, "\n") {
		if strings.Contains(line, "coordinator") && strings.Contains(line, `"level":"warn"`) {
			n++
		}
	}
	t.Expect(n == 0, "workers do not warn that no coordinator has come yet", fmt.Sprintf("%d such warnings in %d lines", n, strings.Count(logs, "\n")+1))
	t.Point("18", "two idle workers logged %d lines before the first job, and %d warnings that no coordinator has come", strings.Count(logs, "\n")+1, n)
	t.Point("C4", "two idle workers logged %d warnings that no coordinator has come", n)
}
