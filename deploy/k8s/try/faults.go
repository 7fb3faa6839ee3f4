//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"shaver/deploy/internal/trial"
)

const (
	workers = "app.kubernetes.io/name=worker"
	servers = "app.kubernetes.io/name=nats"
)

// ready returns the pods of a selector that are ready and not leaving.
func (s *suite) ready(t *trial.Step, selector string) []podEnd {
	return slices.DeleteFunc(s.pods(t, selector), func(p podEnd) bool { return !p.Ready || p.Leaving })
}

// settled waits until n workers and three servers are ready.
func (s *suite) settled(t *trial.Step, n int) {
	ok := t.Wait(3*time.Minute, func() bool { return len(s.ready(t, workers)) == n && len(s.ready(t, servers)) == 3 })
	t.Need(ok, fmt.Sprintf("%d workers and 3 servers are ready", n), fmt.Sprintf("%d and %d", len(s.ready(t, workers)), len(s.ready(t, servers))))
}

// last returns the pod of a Job that runs now.
func (s *suite) last(t *trial.Step, job string) podEnd {
	var found podEnd
	t.Need(t.Wait(2*time.Minute, func() bool {
		for _, p := range s.job(t, job).Pods {
			if p.Phase == "Running" && !p.Leaving {
				found = p
			}
		}
		return found.Name != ""
	}), "a pod of "+job+" runs", s.job(t, job).String())
	return found
}

// kill kills the processes of a pod as the kernel does when memory is short.
func (s *suite) kill(t *trial.Step, what string, pod podEnd) {
	pids := s.processes(pod)
	t.Need(len(pids) > 0, "processes of "+what, fmt.Sprintf("%d", len(pids)))
	for _, pid := range pids {
		t.Check(syscall.Kill(pid, syscall.SIGKILL))
	}
	t.Say("`kill -9` of %s in pod %s.", what, pod.Name)
}

// killAll kills the coordinator, a worker and a server of a job.
func (s *suite) killAll(t *trial.Step) {
	s.settled(t, 2)
	s.create(t, score{name: "killed", args: []string{"--passes=" + passes}})
	s.checkpointed(t, "killed")
	s.kill(t, "the coordinator", s.last(t, "killed"))
	s.kill(t, "a worker", s.ready(t, workers)[0])
	s.kill(t, "a NATS server", s.ready(t, servers)[1])
	end := s.complete(t, "killed", "long", 4*time.Minute)
	codes := fmt.Sprint(end)
	t.Contains("the pods", codes, "exit code 137", "exit code 0")
	t.Equal("pods that count as failed", fmt.Sprint(end.Failed), "1")
	var merged float64
	for line := range strings.SplitSeq(s.logs(t, "killed"), "\n") {
		var l struct {
			Msg    string
			Merged float64
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "scoring" {
			merged = max(merged, l.Merged)
		}
	}
	t.Expect(merged > 0, "the second pod begins with rows that the first one merged", fmt.Sprintf("%.0f rows", merged))
	var spec struct{ Spec struct{ BackoffLimit int } }
	t.Check(s.Read(t.Ctx, "/apis/batch/v1/namespaces/"+space+"/jobs/killed", &spec))
	t.Point("11", "a killed pod counts 1 of backoffLimit %d, and the next pod resumed with %.0f rows merged", spec.Spec.BackoffLimit, merged)
	s.remove(t, "killed")
	s.settled(t, 2)
}

// checkpointed waits until a job has saved a checkpoint.
func (s *suite) checkpointed(t *trial.Step, job string) {
	s.running(t, job)
	pod := s.last(t, job)
	seen := ""
	ok := t.Wait(time.Minute, func() bool {
		page, err := s.page("http://" + pod.IP + ":9090/metrics")
		if err == nil {
			seen = metric(page, "shaver_job_merged_shards")
			saved := metric(page, "shaver_job_checkpoint_timestamp_seconds")
			return seen != "" && seen != "0" && saved != "" && saved != "0"
		}
		return false
	})
	t.Need(ok, "a checkpoint with merged shards within a minute", "merged shards: "+seen)
}

// leave watches a pod from now on, and returns a function that waits for its last state.
func (s *suite) leave(t *trial.Step, pod podEnd) func() podEnd {
	ctx, stop := context.WithTimeout(t.Ctx, 2*time.Minute)
	seen := make(chan podEnd, 1)
	client := *s.HTTP()
	client.Timeout = 0
	go func() {
		defer stop()
		last := pod
		defer func() { seen <- last }()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.API()+"/api/v1/namespaces/"+space+"/pods?watch=1&fieldSelector=metadata.name="+pod.Name, nil)
		resp, err := client.Do(req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e struct {
				Type   string
				Object struct {
					Status struct {
						Phase             string
						Conditions        []struct{ Type, Status, Reason string }
						ContainerStatuses []struct {
							State struct{ Terminated *struct{ ExitCode int } }
						}
					}
				}
			}
			if json.Unmarshal(lines.Bytes(), &e) != nil {
				return
			}
			for _, c := range e.Object.Status.Conditions {
				if c.Type == "DisruptionTarget" && c.Status == "True" {
					last.Disrupted = c.Reason
				}
			}
			for _, c := range e.Object.Status.ContainerStatuses {
				if c.State.Terminated != nil {
					last.Exit, last.Phase = c.State.Terminated.ExitCode, e.Object.Status.Phase
				}
			}
			if e.Type == "DELETED" || last.Exit >= 0 {
				return
			}
		}
	}()
	return func() podEnd { return <-seen }
}

// evict asks the eviction API for a pod, and returns the status code.
func (s *suite) evict(t *trial.Step, pod string) int {
	body := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`, pod, space)
	resp, err := s.HTTP().Post(s.API()+"/api/v1/namespaces/"+space+"/pods/"+pod+"/eviction", "application/json", strings.NewReader(body))
	t.Check(err)
	resp.Body.Close()
	t.Say("Eviction of pod %s: HTTP status %d.", pod, resp.StatusCode)
	return resp.StatusCode
}

// evictions evicts the coordinator and servers, and drains the node of its workers.
func (s *suite) evictions(t *trial.Step) {
	s.settled(t, 2)
	s.create(t, score{name: "evicted", args: []string{"--passes=" + passes}})
	s.checkpointed(t, "evicted")
	pod := s.last(t, "evicted")
	state := s.leave(t, pod)
	t.Expect(s.evict(t, pod.Name) == http.StatusCreated, "the eviction of the coordinator is accepted", pod.Name)
	left := state()
	t.Expect(left.Exit == 130 && left.Disrupted == "EvictionByEvictionAPI", "exit code 130, EvictionByEvictionAPI", left.String())

	one, two := s.evict(t, "nats-0"), s.evict(t, "nats-1")
	t.Expect(one == http.StatusCreated && two == http.StatusTooManyRequests, "one server may be evicted, and a second one at once may not", fmt.Sprint(one, two))

	var states []func() podEnd
	for _, w := range s.ready(t, workers) {
		states = append(states, s.leave(t, w))
	}
	t.Do(s.kubectl("drain", "node1", "--pod-selector="+workers, "--delete-emptydir-data", "--ignore-daemonsets"))
	for _, state := range states {
		left := state()
		t.Expect(left.Exit == 75, "a drained worker ends with exit code 75", left.String())
	}
	t.Do(s.kubectl("uncordon", "node1"))
	end := s.complete(t, "evicted", "long", 5*time.Minute)
	t.Equal("pods that count as failed", fmt.Sprint(end.Failed), "0")
	s.remove(t, "evicted")
	s.settled(t, 2)
}

// memory gives the workers less memory than the model needs, and then enough.
func (s *suite) memory(t *trial.Step) {
	s.settled(t, 2)
	resources := func(request, limit string) trial.Command {
		return s.kubectl("set", "resources", "deployment/worker", "--requests=memory="+request, "--limits=memory="+limit)
	}
	t.Do(resources("8Mi", "12Mi"))
	s.create(t, score{name: "memory", model: "large.safetensors", values: []string{"score.dataset=/data/large"}})
	var killed podEnd
	ok := t.Wait(2*time.Minute, func() bool {
		out := s.kubectl("get", "pods", "--selector="+workers, "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].lastState.terminated.reason}{.status.containerStatuses[0].state.terminated.reason} {.status.containerStatuses[0].state.waiting.message}{"\n"}{end}`).Do(t.Ctx).Out
		killed.Reason = trial.Short(out, 200)
		return strings.Contains(out, "OOMKilled") || strings.Contains(out, "OOM-killed")
	})
	t.Need(ok, "the kernel kills a worker that exceeds its memory limit", killed.Reason)
	t.Do(resources("461Mi", "512Mi"))
	s.complete(t, "memory", "large", 5*time.Minute)
	s.remove(t, "memory")
	s.settled(t, 2)
}

// noServers deletes all servers at once while a job runs.
func (s *suite) noServers(t *trial.Step) {
	s.settled(t, 2)
	s.create(t, score{name: "no-servers", args: []string{"--passes=" + passes}})
	s.checkpointed(t, "no-servers")
	t.Do(s.kubectl("delete", "pods", "--selector="+servers, "--wait=false"))
	end := s.complete(t, "no-servers", "long", 5*time.Minute)
	t.Equal("pods of the Job", fmt.Sprint(len(end.Pods)), "1")
	s.remove(t, "no-servers")
	s.settled(t, 2)
}
