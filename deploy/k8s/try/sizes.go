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
)

// policies asks for what network policies allow and refuse.
func (s *suite) policies(t *trial.Step) {
	t.Do(s.kubectl("apply", "--filename="+s.manifest("strangers.yaml")))
	t.Do(s.kubectl("wait", "--namespace=elsewhere", "--for=condition=Ready", "pod/stranger", "pod/prometheus", "--timeout=2m"))
	worker, server := s.ready(t, workers)[0], s.ready(t, servers)[0]
	get := func(from, target string) bool { // NATS speaks first, and HTTP answers
		host, port, _ := strings.Cut(target, ":")
		r := s.kubectl("exec", "--namespace=elsewhere", from, "--", "sh", "-c", `printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 3 `+host+" "+port).Do(t.Ctx)
		return strings.Contains(r.Out, "HTTP/1") || strings.Contains(r.Out, "INFO")
	}
	t.Need(t.Wait(30*time.Second, func() bool { return get("prometheus", worker.IP+":9090") }), "a pod labelled as Prometheus reaches port 9090 of a worker", "connected")
	for _, c := range []struct {
		from, target, what string
		want               bool
	}{
		{"stranger", worker.IP + ":9090", "metrics of a worker", false},
		{"stranger", server.IP + ":4222", "clients' port of NATS", false},
		{"stranger", server.IP + ":6222", "servers' port of NATS", false},
		{"stranger", server.IP + ":8222", "monitoring port of NATS", false},
		{"prometheus", server.IP + ":4222", "clients' port of NATS", false},
		{"prometheus", server.IP + ":8222", "monitoring port of NATS", false},
	} {
		got := get(c.from, c.target)
		t.Expect(got == c.want, fmt.Sprintf("%s reaches the %s: %v", c.from, c.what, c.want), fmt.Sprint(got))
	}
	page, err := s.page("http://" + worker.IP + ":9090/readyz")
	t.Expect(err == nil, "probes of the node are answered", strings.TrimSpace(page))
	t.Point("17", "readiness is asked every %s s", t.Do(s.kubectl("get", "deployment/worker", "-o", "jsonpath={.spec.template.spec.containers[0].readinessProbe.periodSeconds}")))
	t.Do(s.kubectl("delete", "namespace", "elsewhere", "--wait=false"))
}

// upgrade changes values of the release.
func (s *suite) upgrade(t *trial.Step, values ...string) {
	args := []string{"upgrade", "shaver", chart, "--reuse-values"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	c := s.helm(args...)
	c.Lines = 4
	t.Do(c)
}

// replicas returns the number of workers that the Deployment asks for.
func (s *suite) replicas(t *trial.Step) string {
	var d struct{ Spec struct{ Replicas int } }
	if err := s.Read(t.Ctx, "/apis/apps/v1/namespaces/"+space+"/deployments/worker", &d); err != nil {
		return err.Error()
	}
	return fmt.Sprint(d.Spec.Replicas)
}

// scale lets "shaver job serve" size the Deployment of the workers.
func (s *suite) scale(t *trial.Step) {
	s.settled(t, 2)
	s.upgrade(t, "serve.enabled=true", "serve.scale.enabled=true", "serve.scale.maxWorkers=4", `serve.args={--every=2s,--scale-down-after=15s,--tasks-per-worker=2}`)
	t.Do(s.kubectl("rollout", "status", "deployment/serve", "--timeout=2m"))
	zero := func() bool { return s.replicas(t) == "0" && len(s.pods(t, workers)) == 0 }
	t.Need(t.Wait(2*time.Minute, zero), "without a job there are 0 workers", s.replicas(t))
	s.create(t, score{name: "scaled", args: []string{"--passes=" + passes}})
	t.Need(t.Wait(time.Minute, func() bool { return s.replicas(t) == "4" }), "with a job there are 4 workers", s.replicas(t))
	page, err := s.page("http://" + s.ready(t, "app.kubernetes.io/name=serve")[0].IP + ":9090/metrics")
	t.Check(err)
	t.Equal("metric shaver_scale_wanted_replicas", metric(page, "shaver_scale_wanted_replicas"), "4")
	end := s.complete(t, "scaled", "long", 4*time.Minute)
	t.Need(t.Wait(3*time.Minute, zero), "after the job there are 0 workers again", s.replicas(t))
	t.Point("9", "shaver job serve scaled the workers 0 -> 4 -> 0, and the job completed (%s); its metrics were there before and after the coordinator", end)
	s.remove(t, "scaled")
	s.upgrade(t, "serve.enabled=false", "serve.scale.enabled=false", "workers.replicas=2")
	s.settled(t, 2)
}

// workerJob replaces the Deployment of the workers by a Job.
func (s *suite) workerJob(t *trial.Step) {
	s.upgrade(t, "workers.kind=Job")
	t.Need(t.Wait(2*time.Minute, func() bool {
		return len(s.ready(t, "job-name=worker")) == 2 && s.kubectl("get", "deployment/worker").Do(t.Ctx).Code != 0
	}), "two workers of the Job, and no Deployment", t.Try(s.kubectl("get", "deployment,job,pods", "--selector="+workers)).Text())
	pod := s.ready(t, "job-name=worker")[0]
	state := s.leave(t, pod)
	t.Do(s.kubectl("delete", "pod", pod.Name, "--wait=false"))
	left := state()
	t.Expect(left.Exit == 75, "a deleted worker ends with exit code 75", left.String())
	t.Need(t.Wait(2*time.Minute, func() bool { return len(s.ready(t, "job-name=worker")) == 2 }), "it is replaced", fmt.Sprint(len(s.ready(t, "job-name=worker"))))
	t.Equal("pods that count as failed", fmt.Sprint(s.job(t, "worker").Failed), "0")
	t.Do(s.kubectl("patch", "job/worker", "--type=merge", `--patch={"spec":{"suspend":true}}`))
	t.Need(t.Wait(time.Minute, func() bool { return len(s.pods(t, "job-name=worker")) == 0 }), "a suspended Job has no pods", s.job(t, "worker").String())
	s.upgrade(t, "workers.kind=Deployment")
	s.settled(t, 2)
	t.Point("16", "helm upgrade with workers.kind=Job removed the Deployment, and back; a deleted worker left with 75 and was replaced, failed stayed 0")
}

// mostEnded is the number of records that NATS keeps of jobs that have ended.
const mostEnded = 20

// leftovers looks for what jobs left in NATS and in the volume.
func (s *suite) leftovers(t *trial.Step) {
	for _, id := range s.jobs(t) {
		t.Say("Job %s is still in NATS.", id)
	}
	t.Equal("jobs in NATS", fmt.Sprint(len(s.jobs(t))), "0")
	for _, p := range s.ready(t, servers) {
		text, err := s.page("http://" + p.IP + ":8222/jsz?streams=true&accounts=true")
		t.Check(err)
		var z struct {
			Accounts []struct {
				Streams []struct {
					Name  string
					State struct{ Messages, Bytes int }
				} `json:"stream_detail"`
			} `json:"account_details"`
		}
		t.Check(json.Unmarshal([]byte(text), &z))
		var streams, full []string
		for _, a := range z.Accounts {
			for _, st := range a.Streams {
				streams = append(streams, fmt.Sprintf("%s %d", st.Name, st.State.Messages))
				least, most := 0, 0
				if st.Name == "KV_SHAVER_JOBS" { // it keeps the record of a cancelled run for a week, and those of the last jobs that ended
					least, most = s.cancelled, s.cancelled+mostEnded
				}
				if st.State.Messages < least || st.State.Messages > most {
					full = append(full, st.Name)
				}
			}
		}
		t.Expect(len(streams) > 0 && len(full) == 0, fmt.Sprintf("the streams of %s hold no message, except a record of each cancelled run (%d) and those of at most %d jobs that have ended", p.Name, s.cancelled, mostEnded), strings.Join(streams, ", "))
	}
	t.Point("14", "after all jobs the streams of every server hold no message except the records of cancelled runs, so no model stays")
	log := s.kubectl("logs", "--selector="+workers, "--tail=-1").Do(t.Ctx).Text()
	lines, bad := onlyJSON(log)
	t.Expect(bad == "", "every line of the workers' logs is JSON", fmt.Sprintf("%d lines, not JSON: %s", lines, bad))
	readme, err := os.ReadFile(filepath.Join(s.source(), "deploy", "k8s", "README.md"))
	t.Check(err)
	t.Expect(!strings.Contains(string(readme), "has run on Kubernetes"), "README.md does not say that nothing has run", "it does not")
	t.Point("22", "README.md refers to this page")
	if _, err := os.Stat(filepath.Join(s.source(), ".dockerignore")); err == nil {
		t.Point("21", ".dockerignore is there")
	}
}
