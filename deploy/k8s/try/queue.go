//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"shaver/deploy/internal/trial"
	"shaver/deploy/k8s/try/cluster"
)

// queue lets Kueue admit, suspend, preempt and resume Jobs of the chart, with a quota for two workers and
// one of two coordinators.
func (s *suite) queue(t *trial.Step) {
	s.settled(t, 2)
	s.kueue(t)
	queued := func(class string) []string {
		return []string{"queue=batch", `coordinators.labels.kueue\.x-k8s\.io/priority-class=` + class}
	}
	s.create(t, score{name: "admitted", args: []string{"--passes=" + passes}, values: queued("low")})
	s.upgrade(t, "workers.kind=Job", "workers.leaveAfter=20s", "queue=batch")
	t.Need(t.Wait(2*time.Minute, func() bool { return len(s.ready(t, "job-name=worker")) == 2 }), "Kueue admits the Job of the workers", s.job(t, "worker").String())
	s.create(t, score{name: "pending", args: rounds, values: queued("low")})
	s.checkpointed(t, "admitted")
	second := s.workload(t, "pending")
	t.Expect(second.Suspended && len(s.job(t, "pending").Pods) == 0 && !second.condition("QuotaReserved"), "the quota admits one of the two Jobs, and the other one is suspended without pods", second.String())
	t.Do(s.kubectl("get", "jobs,workloads"))

	// Suspended by its owner: the other Job gets its place.
	pod := s.last(t, "admitted")
	state := s.leave(t, pod)
	s.active(t, "admitted", false)
	left := state()
	t.Expect(left.Exit == 130, "the coordinator of a suspended Job ends with exit code 130", left.String())
	end := s.complete(t, "pending", "path", 4*time.Minute)
	t.Expect(len(end.Pods) == 1, "the second Job ran meanwhile", end.String())
	first := s.workload(t, "admitted")
	t.Expect(first.Suspended && len(s.job(t, "admitted").Pods) == 0, "the first Job is suspended without pods", first.String())
	s.active(t, "admitted", true)
	end = s.complete(t, "admitted", "long", 4*time.Minute) // meanwhile workers may have computed the tasks that were stored
	t.Expect(end.Pods[0].Name != pod.Name && end.Failed == 0, "the first Job went on with another pod, and the suspended one does not count as failed", fmt.Sprintf("%s; failed: %d", end, end.Failed))

	// The workers are suspended while a job runs.
	s.create(t, score{name: "preempted", args: []string{"--passes=" + passes}, values: queued("low")})
	s.checkpointed(t, "preempted")
	state = s.leave(t, s.ready(t, "job-name=worker")[0])
	s.active(t, "worker", false)
	left = state()
	t.Expect(left.Exit == 75, "a worker of a suspended Job ends with exit code 75", left.String())
	t.Need(t.Wait(time.Minute, func() bool { return len(s.pods(t, "job-name=worker")) == 0 }), "the suspended Job has no pods", s.job(t, "worker").String())
	s.active(t, "worker", true)
	t.Need(t.Wait(2*time.Minute, func() bool { return len(s.ready(t, "job-name=worker")) == 2 }), "the workers are there again", s.job(t, "worker").String())

	// A Job of higher priority takes the place.
	pod = s.last(t, "preempted")
	state = s.leave(t, pod)
	s.create(t, score{name: "urgent", values: queued("urgent")})
	left = state()
	t.Expect(left.Exit == 130, "the coordinator of the preempted Job ends with exit code 130", left.String())
	third := s.workload(t, "preempted")
	t.Expect(third.condition("Preempted"), "the third Job is preempted", third.String())
	t.Do(s.kubectl("get", "jobs,workloads"))
	s.complete(t, "urgent", "base", 8*time.Minute) // after the stored tasks of the third Job
	end = s.complete(t, "preempted", "long", 5*time.Minute)
	t.Expect(end.Pods[0].Name != pod.Name && end.Failed == 0, "Kueue resumed the third Job, and the preempted pod does not count as failed", fmt.Sprintf("%s; failed: %d", end, end.Failed))

	// Without a job, the workers end by themselves.
	workers := s.end(t, "worker", 2*time.Minute)
	t.Expect(workers.Condition == "Complete" && workers.Succeeded == 2, "the Job of the workers completes", workers.String())
	t.Do(s.kubectl("get", "jobs,workloads"))
	t.Do(s.kubectl("get", "clusterqueue/all", "-o", "jsonpath={.status.flavorsReservation[0].resources}{\"\\n\"}"))

	s.remove(t, "admitted", "pending", "preempted", "urgent", "worker")
	s.upgrade(t, "workers.kind=Deployment", "queue=", "workers.leaveAfter=10m")
	s.settled(t, 2)
	t.Wait(time.Minute, func() bool { return s.kubectl("get", "workloads", "-o", "name").Do(t.Ctx).Out == "" })
	t.Do(s.kubectl("delete", "--filename="+s.manifest("queue.yaml"), "--timeout=1m"))
	uninstall := s.helm("uninstall", "kueue", "--namespace=kueue-system")
	uninstall.Lines = 4
	t.Do(uninstall)
}

// kueue installs Kueue with its own chart, and a queue.
func (s *suite) kueue(t *trial.Step) {
	version := s.versions["kueue"]
	dir, err := moduleDir(t, "sigs.k8s.io/kueue@"+version)
	t.Check(err)
	t.Check(s.Load(t.Ctx, cluster.Image{
		Name: "localhost/kueue:1", Files: map[string]string{"/manager": filepath.Join(s.cache, "bin", "kueue")}, Entrypoint: []string{"/manager"}, User: "65532:65532", Temporary: []string{"/tmp"},
	}))
	install := s.helm("install", "kueue", filepath.Join(dir, "charts", "kueue"), "--namespace=kueue-system", "--create-namespace", "--values", s.manifest("kueue.yaml"))
	install.Show, install.Lines = "helm install kueue charts/kueue --namespace=kueue-system --create-namespace --values "+s.manifest("kueue.yaml")+" # of the module sigs.k8s.io/kueue "+version, 4
	t.Do(install)
	t.Do(s.rollout("deployment/kueue-controller-manager", "--namespace=kueue-system"))
	apply := s.kubectl("apply", "--filename="+s.manifest("queue.yaml"))
	// The webhooks answer a moment after the controller is ready.
	ok := t.Wait(time.Minute, func() bool { return apply.Do(t.Ctx).Code == 0 })
	t.Need(ok, "Kueue accepts the queue", t.Try(apply).Text())
}

// workload is Kueue's object for a Job.
type workload struct {
	Name       string
	Suspended  bool // the Job
	conditions []condition
}

type condition struct{ Type, Status, Reason, Message string }

func (w workload) String() string {
	text := fmt.Sprintf("suspended: %t", w.Suspended)
	for _, c := range w.conditions {
		text += fmt.Sprintf("; %s %s (%s: %s)", c.Type, c.Status, c.Reason, trial.Short(c.Message, 160))
	}
	return text
}

// condition reports whether the workload has this condition.
func (w workload) condition(name string) bool {
	for _, c := range w.conditions {
		if c.Type == name {
			return c.Status == "True"
		}
	}
	return false
}

// workload reads the workload of a Job, once Kueue has made it.
func (s *suite) workload(t *trial.Step, job string) (w workload) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name            string
				OwnerReferences []struct{ Name string }
			}
			Status struct{ Conditions []condition }
		}
	}
	t.Need(t.Wait(time.Minute, func() bool {
		if s.Read(t.Ctx, "/apis/kueue.x-k8s.io/v1beta2/namespaces/"+space+"/workloads", &list) != nil {
			return false
		}
		for _, i := range list.Items {
			if len(i.Metadata.OwnerReferences) == 1 && i.Metadata.OwnerReferences[0].Name == job {
				w.Name, w.conditions = i.Metadata.Name, i.Status.Conditions
			}
		}
		return w.Name != ""
	}), "Kueue has a workload for "+job, fmt.Sprint(len(list.Items)))
	var j struct{ Spec struct{ Suspend bool } }
	t.Check(s.Read(t.Ctx, "/apis/batch/v1/namespaces/"+space+"/jobs/"+job, &j))
	w.Suspended = j.Spec.Suspend
	return w
}

// active suspends or resumes a Job as its owner does with Kueue.
func (s *suite) active(t *trial.Step, job string, yes bool) {
	t.Do(s.kubectl("patch", "workload/"+s.workload(t, job).Name, "--type=merge", fmt.Sprintf(`--patch={"spec":{"active":%t}}`, yes)))
	ok := t.Wait(2*time.Minute, func() bool { return s.workload(t, job).Suspended == !yes })
	t.Need(ok, fmt.Sprintf("the Job %s has suspend: %t", job, !yes), strings.TrimSpace(s.workload(t, job).String()))
}
