//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"shaver/deploy/internal/trial"
	"shaver/deploy/k8s/try/cluster"
	"shaver/internal/jobs/job"
)

// workerImage builds the worker as another release, perhaps with another protocol, and loads an
// image of it.
func (s *suite) workerImage(t *trial.Step, tag string, protocol int) {
	dir := filepath.Join(s.work, tag)
	t.Check(os.MkdirAll(dir, 0o755))
	source := filepath.Join(s.copy, "internal", "jobs", "job", "protocol.go")
	text, err := os.ReadFile(source)
	t.Check(err)
	line := fmt.Sprintf("const Protocol = %d\n", job.Protocol)
	if !strings.Contains(string(text), line) {
		t.Fail("internal/jobs/job/protocol.go has no line %q", line)
	}
	changed, overlay := filepath.Join(dir, "protocol.go.txt"), filepath.Join(dir, "overlay.json")
	t.Check(os.WriteFile(changed, []byte(strings.Replace(string(text), line, fmt.Sprintf("const Protocol = %d\n", protocol), 1)), 0o644))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{source: changed}})
	t.Check(err)
	t.Check(os.WriteFile(overlay, replace, 0o644))
	release := "v9.0.0-" + tag
	t.Do(trial.Command{
		Args: []string{"go", "build", "-trimpath", "-buildvcs=false", "-overlay", overlay, "-ldflags=-s -w -X shaver/internal/app/cli.release=" + release, "-o", dir + "/worker", "./cmd/worker"},
		Show: fmt.Sprintf("go build -ldflags='-X shaver/internal/app/cli.release=%s' ./cmd/worker # with protocol %d", release, protocol), Dir: s.copy, Env: []string{"CGO_ENABLED=0"}, Limit: 10 * time.Minute,
	})
	t.Check(s.Load(t.Ctx, cluster.Image{Name: "shaver:" + tag, Files: map[string]string{"/bin/worker": dir + "/worker"}, Entrypoint: []string{"/bin/worker"}, User: "65532:65532", Temporary: []string{"/tmp"}}))
}

// builds replaces the workers by those of another build while a job runs, and then by those
// of a build with another protocol.
func (s *suite) builds(t *trial.Step) {
	s.workerImage(t, "next", job.Protocol)
	s.workerImage(t, "other", job.Protocol+1)
	s.settled(t, 2)
	old := s.ready(t, workers)
	s.create(t, score{name: "upgraded", args: []string{"--passes=" + passes}})
	s.checkpointed(t, "upgraded")
	state := s.leave(t, old[0])
	s.upgrade(t, "image.tag=next")
	left := state()
	t.Expect(left.Exit == 75, "a worker of the old build ends with exit code 75", left.String())
	t.Do(s.rollout("deployment/worker"))
	end := s.complete(t, "upgraded", "long", 4*time.Minute)
	t.Expect(len(end.Pods) == 1, "the coordinator of the old build went on", end.String())
	s.remove(t, "upgraded")

	s.upgrade(t, "image.tag=other")
	t.Do(s.rollout("deployment/worker"))
	s.create(t, score{name: "waiting"})
	s.running(t, "waiting")
	warning := ""
	t.Wait(time.Minute, func() bool {
		for line := range strings.SplitSeq(s.logs(t, "waiting"), "\n") {
			if strings.Contains(line, "no worker with this protocol") {
				warning = line
			}
		}
		return warning != ""
	})
	t.Contains("the coordinator's warning", warning, "no worker with this protocol")
	s.upgrade(t, "image.tag=")
	s.complete(t, "waiting", "base", 4*time.Minute)
	s.remove(t, "waiting")
	s.settled(t, 2)
}
