//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"shaver/deploy/internal/trial"
)

// oneJob follows README.md's section about one job.
func (s *suite) oneJob(t *trial.Step) {
	commands := strings.NewReplacer("deploy/k8s/job.yaml", "deploy/k8s/small-job.yaml").Replace(s.readme(t, "job=$(kubectl create"))
	t.Do(s.kubectl("exec", "loader", "--", "cp", "/data/model.safetensors", "/data/model.pth"))
	out := s.literally(t, commands+"\necho name=$job")
	_, name, _ := strings.Cut(out, "name=")
	name = strings.TrimSpace(name)
	end := s.end(t, name, time.Minute)
	t.Need(end.Condition == "Complete", "the Job completes", end.String())
	s.same(t, name+".arrow", "base")
	lines, bad := onlyJSON(s.kubectl("logs", "--selector=job-name="+name, "--tail=-1").Do(t.Ctx).Text())
	t.Expect(lines > 3 && bad == "", "every line of the log is JSON", fmt.Sprintf("%d lines, not JSON: %s", lines, bad))
	t.Point("2", "the Job %s wrote /data/%s.arrow: no Job writes the file of another", name, name)
	t.Point("3", "model, dataset and scores were copied with the loader pod and the commands of README.md")
	t.Point("10", "all %d lines of a Job's log, progress and report included, are JSON objects on one line", lines)
	t.Point("15", "the command of README.md followed the log of the Job's pod to its end")
	t.Do(s.kubectl("cp", "loader:/data/"+name+".arrow", s.work+"/copied.arrow"))
	s.remove(t, name)
}

// onlyJSON returns the number of lines, and the first one that is no JSON object.
func onlyJSON(log string) (lines int, bad string) {
	for line := range strings.SplitSeq(strings.TrimSpace(log), "\n") {
		lines++
		var object map[string]any
		if json.Unmarshal([]byte(line), &object) != nil && bad == "" {
			bad = line
		}
	}
	return lines, bad
}

// cancel cancels a running job as the operator does.
func (s *suite) cancel(t *trial.Step) {
	s.create(t, score{name: "cancel", args: []string{"--passes=1000", "--seed=2"}})
	s.running(t, "cancel")
	id := s.id(t, "cancel")
	r := s.operator(t, "list")
	t.Contains("the operator's list", r.Out, id)
	t.Point("7", "shaver job list and cancel were run through kubectl port-forward, as README.md says")
	t.Need(s.operator(t, "cancel", id).Code == 0, "the operator cancels the job", id)
	s.failed(t, "cancel", 6, time.Minute)
	quiet := 25 * time.Second // Kubernetes used to start another pod after 20 s
	t.Wait(quiet, func() bool { return len(s.job(t, "cancel").Pods) != 1 })
	end := s.job(t, "cancel")
	t.Expect(len(end.Pods) == 1, "no other pod within 25 s", end.String())
	t.Expect(!strings.Contains(strings.Join(s.jobs(t), " "), id), "NATS holds the job no longer", "not in the list")
	t.Point("1", "shaver job cancel: %s; no second pod after 25 s", end)
	s.remove(t, "cancel")
}

// path creates a job in 21 rounds.
func (s *suite) path(t *trial.Step) {
	s.create(t, score{name: "path", args: rounds})
	s.complete(t, "path", "path", 4*time.Minute)
	s.remove(t, "path")
}

// ranges creates a job whose sums two mergers keep, and deletes one of them meanwhile.
func (s *suite) ranges(t *trial.Step) {
	s.settled(t, 2)
	const mergers = "app.kubernetes.io/name=merger"
	s.upgrade(t, "mergers.replicas=2")
	t.Do(s.rollout("deployment/merger"))
	s.create(t, score{name: "ranges", args: []string{"--ranges=2", "--passes=" + passes}, values: []string{"mergers.replicas=2"}})
	s.checkpointed(t, "ranges")
	t.Do(s.kubectl("delete", "pod", s.ready(t, mergers)[0].Name, "--wait=false"))
	end := s.complete(t, "ranges", "long", 5*time.Minute)
	t.Expect(len(end.Pods) == 1, "the coordinator went on from its checkpoint with the next merger", end.String())
	s.remove(t, "ranges")
	s.upgrade(t, "mergers.replicas=0")
}

// badInput creates Jobs whose inputs are missing or damaged.
func (s *suite) badInput(t *trial.Step) {
	jobs := []score{
		{name: "no-model", model: "none.safetensors"}, {name: "garbage-model", model: "garbage.safetensors"},
		{name: "no-dataset", values: []string{"score.dataset=/data/none"}}, {name: "no-folder", values: []string{"score.out=/data/none/scores.arrow"}},
	}
	for _, j := range jobs {
		s.create(t, j)
	}
	for _, j := range jobs {
		s.failed(t, j.name, 42, time.Minute)
		log := s.logs(t, j.name)
		last := log[strings.LastIndex(log, "\n")+1:]
		t.Contains("the last line of the log of "+j.name, last, "error")
		s.remove(t, j.name)
	}
}

// late creates a Job whose model comes later.
func (s *suite) late(t *trial.Step) {
	s.create(t, score{name: "late", model: "late.safetensors", args: []string{"--seed=7"}, values: []string{"score.waitInputs=3m"}})
	t.Need(t.Wait(time.Minute, func() bool { return strings.Contains(s.logs(t, "late"), "waiting") }), "the coordinator says that it waits", trial.Short(s.logs(t, "late"), 300))
	end := s.job(t, "late")
	t.Need(end.Condition == "" && len(end.Pods) == 1, "the Job waits", end.String())
	t.Do(s.kubectl("exec", "loader", "--", "sh", "-c", "cp /data/model.safetensors /data/late.part && mv /data/late.part /data/late.safetensors"))
	end = s.end(t, "late", 4*time.Minute)
	t.Expect(end.Condition == "Complete" && len(end.Pods) == 1, "the Job completes with the same pod", end.String())
	t.Point("13", "a Job with score.waitInputs=3m waited for its model and completed with its first pod; without it, a missing model is 42 at once")
	s.remove(t, "late")
}

// quarantined creates a Job in which one shard cannot be computed.
func (s *suite) quarantined(t *trial.Step) {
	s.create(t, score{name: "part", model: "overflow.safetensors", args: []string{"--allow-quarantined", "--baseline=zero"}})
	end := s.failed(t, "part", 4, 4*time.Minute)
	t.Do(s.kubectl("exec", "loader", "--", "ls", "-l", "/data/part.arrow"))
	t.Point("4", "exit code 4 (scores without some shards): %s", end)
	s.remove(t, "part")
}

// rivals creates a second Job of the same job: with another file of scores, and with the
// same one.
func (s *suite) rivals(t *trial.Step) {
	args := []string{"--passes=60", "--seed=3"}
	s.create(t, score{name: "first", args: args})
	s.running(t, "first")
	s.create(t, score{name: "second", args: args})
	one, two := s.end(t, "first", 3*time.Minute), s.end(t, "second", 3*time.Minute)
	t.Expect(one.Condition == "Complete" && two.Condition == "Complete" && len(one.Pods) == 1 && len(two.Pods) == 1, "both Jobs complete with one pod each", one.String()+"; "+two.String())
	sums := t.Do(s.kubectl("exec", "loader", "--", "sha256sum", "/data/first.arrow", "/data/second.arrow"))
	f := strings.Fields(sums)
	t.Expect(len(f) == 4 && f[0] == f[2], "both files have the same bytes", strings.Join(f, " "))
	t.Point("5", "two Jobs of one job with two files: both complete, with the same bytes; two with one file: the older one fails at once with 5")
	s.remove(t, "first", "second")

	args = []string{"--passes=240", "--seed=4"}
	s.create(t, score{name: "older", args: args, values: []string{"score.out=/data/shared.arrow"}})
	s.running(t, "older")
	s.create(t, score{name: "newer", args: args, values: []string{"score.out=/data/shared.arrow"}})
	s.failed(t, "older", 5, time.Minute)
	two = s.end(t, "newer", 3*time.Minute)
	t.Expect(two.Condition == "Complete" && len(two.Pods) == 1, "the newer Job completes", two.String())
	s.remove(t, "older", "newer")
}

// kernel creates a Job whose kernel no worker has.
func (s *suite) kernel(t *trial.Step) {
	s.create(t, score{name: "kernel", args: []string{"--kernel=portable-" + runtime.GOARCH, "--seed=5"}, values: []string{"coordinators.activeDeadlineSeconds=90"}})
	s.running(t, "kernel")
	var warning string
	t.Wait(70*time.Second, func() bool {
		for line := range strings.SplitSeq(s.logs(t, "kernel"), "\n") {
			if strings.Contains(line, `"level":"warn"`) && strings.Contains(line, "kernel") {
				warning = line
			}
		}
		return warning != ""
	})
	t.Contains("a warning in the log", warning, "--kernel", "portable")
	pod := s.job(t, "kernel").Pods[0]
	stalled := ""
	t.Wait(30*time.Second, func() bool {
		metrics, _ := s.page("http://" + pod.IP + ":9090/metrics")
		stalled = metric(metrics, "shaver_job_stalled")
		return stalled == "1"
	})
	t.Equal("metric shaver_job_stalled", stalled, "1")
	end := s.end(t, "kernel", 2*time.Minute)
	t.Expect(end.Condition == "Failed" && end.Reason == "DeadlineExceeded", "the Job's deadline ends it", end.String())
	t.Point("12", "a job with a kernel that no worker has: warning %q; the deadline ends the Job (%s)", trial.Short(warning, 200), end.Reason)
	t.Point("C3", "the same warning names the kernel and the flag")
	if ids := s.jobs(t); len(ids) > 0 {
		t.Say("The job stays in NATS, to be resumed, until it is cancelled.")
	}
	if m := jobID.FindStringSubmatch(warning); m != nil {
		s.operator(t, "cancel", m[1])
	}
	s.remove(t, "kernel")
}

// full creates a Job whose volume has no space for the scores.
func (s *suite) full(t *trial.Step) {
	t.Do(s.kubectl("apply", "--filename="+s.manifest("tiny.yaml")))
	t.Do(s.kubectl("wait", "--for=condition=Ready", "pod/filler", "--timeout=2m"))
	for _, name := range []string{"model.safetensors", "dataset"} {
		c := s.kubectl("cp", s.data.file(name), "filler:/data/"+name)
		c.Lines = -1
		t.Do(c)
	}
	fill := t.Do(s.kubectl("exec", "filler", "--", "sh", "-c", "dd if=/dev/zero of=/data/filler bs=1k 2>/dev/null; df -k /data"))
	t.Contains("the volume", fill, "100%")
	s.create(t, score{name: "full", args: []string{"--seed=6"}, values: []string{"data.claim=tiny"}})
	var end jobEnd
	t.Need(t.Wait(4*time.Minute, func() bool { end = s.job(t, "full"); return len(end.Pods) > 0 && end.Pods[0].Exit >= 0 }), "the first pod ends", end.String())
	t.Expect(end.Pods[0].Exit == 1, "exit code 1, which Kubernetes tries again", end.String())
	t.Contains("the log", s.logs(t, "full"), "no space left on device")
	t.Do(s.kubectl("exec", "filler", "--", "rm", "/data/filler"))
	end = s.end(t, "full", 3*time.Minute)
	t.Expect(end.Condition == "Complete", "with space the Job completes by itself", end.String())
	left := t.Do(s.kubectl("exec", "filler", "--", "ls", "-a", "/data"))
	t.Expect(strings.Contains(left, "full.arrow") && !strings.Contains(left, ".tmp"), "the scores are there, and no temporary file", trial.Short(left, 300))
	s.remove(t, "full")
	t.Do(s.kubectl("delete", "pod/filler", "persistentvolumeclaim/tiny", "--wait=false"))
}

// manifest returns the path of a file of the folder data.
func (s *suite) manifest(name string) string {
	return filepath.Join("deploy", "k8s", "try", "data", name)
}

// page returns what a pod answers to the node, whose requests no policy refuses.
func (s *suite) page(url string) (string, error) {
	resp, err := s.HTTP().Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// metric returns the value of the first metric with this name, or "".
func metric(page, name string) string {
	for line := range strings.Lines(page) {
		if f := strings.Fields(line); len(f) > 1 && (f[0] == name || strings.HasPrefix(f[0], name+"{")) {
			return f[len(f)-1]
		}
	}
	return ""
}
