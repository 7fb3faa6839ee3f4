//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"shaver/deploy/internal/trial"
)

// source returns the folder of the files that are tried: a copy of the checkout, so that it
// may change meanwhile, or the checkout itself with -validate.
func (s *suite) source() string {
	if s.copy != "" {
		return s.copy
	}
	return s.root
}

const space = "shaver" // the namespace of README.md

// rollout waits for a workload's pods. args are its name, and flags.
func (s *suite) rollout(args ...string) trial.Command {
	c := s.kubectl(append(append([]string{"rollout", "status"}, args...), "--timeout=4m")...)
	c.Limit = 5 * time.Minute
	return c
}

// kubectl returns a command of kubectl in the namespace. README.md makes it the default of
// the context, so the transcript does not show it.
func (s *suite) kubectl(args ...string) trial.Command {
	c := s.Kubectl(args...)
	c.Dir = s.source()
	return c
}

// helm returns a command of helm in the namespace.
func (s *suite) helm(args ...string) trial.Command {
	c := s.Program("helm", args...)
	c.Dir, c.Limit = s.source(), 3*time.Minute
	c.Env = append(c.Env, "HELM_NAMESPACE="+space)
	return c
}

const chart = "deploy/helm/shaver"

// ownImage is the value that names the image on the node.
const ownImage = "image.repository=shaver"

// score is a job that a step creates with the chart's template.
type score struct {
	name   string
	model  string   // file in /data
	args   []string // more flags of the coordinator
	values []string // more values of the chart
}

// base are the flags of every job.
var base = []string{"--baseline=codebook", "--rows-per-shard=250", "--lease=10s", "--checkpoint-every=2s"}

// create creates the Job.
func (s *suite) create(t *trial.Step, j score) {
	if j.model == "" {
		j.model = "model.safetensors"
	}
	args, _ := json.Marshal(append(append([]string{}, base...), j.args...))
	template := s.helm("template", "shaver", chart, "--values", chart+"/values-small.yaml", "--show-only", "templates/score.yaml",
		"--set", ownImage, "--set", "score.enabled=true", "--set", "score.name="+j.name, "--set", "score.model=/data/"+j.model, "--set-json", "score.args="+string(args))
	for _, v := range j.values {
		template.Args = append(template.Args, "--set", v)
	}
	template.Lines = -1
	create := s.kubectl("create", "--filename=-")
	create.Stdin = t.Do(template)
	t.Do(create)
}

// jobEnd is how a Job ended, with its pods.
type jobEnd struct {
	Condition, Reason, Message string
	Failed, Succeeded          int
	Pods                       []podEnd
}

// podEnd is the state of a pod.
type podEnd struct {
	Name, Phase, IP, UID string
	Exit                 int // exit code of the first container, or -1
	Reason               string
	Disrupted            string // reason of the condition DisruptionTarget
	Ready                bool
	Restarts             int
	Leaving              bool
}

func (p podEnd) String() string {
	text := p.Phase
	if p.Exit >= 0 {
		text = fmt.Sprintf("%s with exit code %d", p.Phase, p.Exit)
	}
	if p.Disrupted != "" {
		text += " (" + p.Disrupted + ")"
	}
	return text
}

func (e jobEnd) String() string {
	var pods []string
	for _, p := range e.Pods {
		pods = append(pods, p.String())
	}
	return fmt.Sprintf("Job %s (%s); %d pods: %s", e.Condition, e.Reason, len(e.Pods), strings.Join(pods, ", "))
}

// job reads the state of a Job.
func (s *suite) job(t *trial.Step, name string) jobEnd {
	var j struct {
		Status struct {
			Failed, Succeeded int
			Conditions        []struct{ Type, Status, Reason, Message string }
		}
	}
	if err := s.Read(t.Ctx, "/apis/batch/v1/namespaces/"+space+"/jobs/"+name, &j); err != nil {
		return jobEnd{Reason: err.Error()}
	}
	end := jobEnd{Failed: j.Status.Failed, Succeeded: j.Status.Succeeded}
	for _, c := range j.Status.Conditions {
		if c.Status == "True" && (c.Type == "Complete" || c.Type == "Failed") {
			end.Condition, end.Reason, end.Message = c.Type, c.Reason, c.Message
		}
	}
	end.Pods = s.pods(t, "job-name="+name)
	return end
}

// pods reads the pods that a selector of labels names, the oldest first.
func (s *suite) pods(t *trial.Step, selector string) []podEnd {
	var list struct {
		Items []struct {
			Metadata struct {
				Name, UID         string
				DeletionTimestamp string
			}
			Status struct {
				Phase, PodIP      string
				Conditions        []struct{ Type, Status, Reason string }
				ContainerStatuses []struct {
					RestartCount int
					State        struct {
						Terminated *struct {
							ExitCode int
							Reason   string
						}
					}
				}
			}
		}
	}
	if err := s.Read(t.Ctx, "/api/v1/namespaces/"+space+"/pods?labelSelector="+selector, &list); err != nil {
		return nil
	}
	var pods []podEnd
	for _, i := range list.Items {
		p := podEnd{Name: i.Metadata.Name, UID: i.Metadata.UID, Phase: i.Status.Phase, IP: i.Status.PodIP, Exit: -1, Leaving: i.Metadata.DeletionTimestamp != ""}
		for _, c := range i.Status.Conditions {
			switch {
			case c.Type == "DisruptionTarget" && c.Status == "True":
				p.Disrupted = c.Reason
			case c.Type == "Ready":
				p.Ready = c.Status == "True"
			}
		}
		for _, c := range i.Status.ContainerStatuses {
			p.Restarts += c.RestartCount
			if c.State.Terminated != nil {
				p.Exit, p.Reason = c.State.Terminated.ExitCode, c.State.Terminated.Reason
			}
		}
		pods = append(pods, p)
	}
	return pods
}

// end waits until a Job has ended.
func (s *suite) end(t *trial.Step, name string, limit time.Duration) jobEnd {
	var end jobEnd
	if !t.Wait(limit, func() bool { end = s.job(t, name); return end.Condition != "" }) {
		t.Fail("job %s has not ended after %v: %s; log: %s", name, limit, end, trial.Short(s.logs(t, name), 1500))
	}
	return end
}

// logs returns what all pods of a Job logged.
func (s *suite) logs(t *trial.Step, job string) string {
	return s.kubectl("logs", "--selector=job-name="+job, "--tail=-1", "--all-containers").Do(t.Ctx).Text()
}

// running waits until a job is at work, which its log says.
func (s *suite) running(t *trial.Step, job string) {
	t.Need(t.Wait(2*time.Minute, func() bool { return strings.Contains(s.logs(t, job), `"msg":"scoring"`) }), "job "+job+" is at work within 2 minutes", trial.Short(s.logs(t, job), 800))
}

// complete expects a Job to complete with the bytes of the reference.
func (s *suite) complete(t *trial.Step, name, reference string, limit time.Duration) jobEnd {
	end := s.end(t, name, limit)
	t.Need(end.Condition == "Complete", "the Job completes", end.String()+" "+end.Message)
	s.same(t, name+".arrow", reference)
	return end
}

// same expects a file in the volume to have the bytes of a reference.
func (s *suite) same(t *trial.Step, file, reference string) {
	want := s.data.digest[reference]
	got, _, _ := strings.Cut(t.Do(s.kubectl("exec", "loader", "--", "sha256sum", "/data/"+file)), " ")
	t.Expect(got == want, "the bytes of the local run, sha256 "+want, got)
}

// failed expects a Job to have failed at once, after one pod with this exit code.
func (s *suite) failed(t *trial.Step, name string, code int, limit time.Duration) jobEnd {
	end := s.end(t, name, limit)
	ok := end.Condition == "Failed" && end.Reason == "PodFailurePolicy" && len(end.Pods) == 1 && end.Pods[0].Exit == code
	t.Expect(ok, fmt.Sprintf("the Job fails (PodFailurePolicy) after one pod with exit code %d", code), end.String())
	return end
}

// remove deletes Jobs with their pods.
func (s *suite) remove(t *trial.Step, names ...string) {
	c := s.kubectl(append([]string{"delete", "job", "--wait=false"}, names...)...)
	c.Lines = -1
	t.Try(c)
}

// processes returns the process ids, on this machine, of a pod's containers.
func (s *suite) processes(pod podEnd) []int {
	var pids []int
	for _, pattern := range []string{"/sys/fs/cgroup/pids/shaver-cluster-*", "/sys/fs/cgroup/shaver-cluster-*"} {
		roots, _ := filepath.Glob(pattern)
		for _, root := range roots {
			filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
				if err != nil || info.Name() != "cgroup.procs" || !strings.Contains(path, "pod"+pod.UID) {
					return nil
				}
				text, _ := os.ReadFile(path)
				for _, f := range strings.Fields(string(text)) {
					pid, _ := strconv.Atoi(f)
					if name, _ := os.ReadFile("/proc/" + f + "/comm"); strings.TrimSpace(string(name)) != "pause" {
						pids = append(pids, pid)
					}
				}
				return nil
			})
		}
	}
	return pids
}

// operator runs a command of shaver job as README.md says, through kubectl port-forward.
func (s *suite) operator(t *trial.Step, args ...string) trial.Result {
	s.forward.Lock()
	defer s.forward.Unlock()
	log := filepath.Join(s.work, "forward")
	job := "shaver job " + strings.Join(args, " ")
	c := s.shell("kubectl port-forward pod/nats-0 4222 >" + log + " 2>&1 & forward=$!\n" +
		"for i in $(seq 100); do grep -q Forwarding " + log + " && break; sleep 0.1; done\n" +
		job + " --nats tls://127.0.0.1:4222 --nkey deploy/nats/secrets/operator.nk --tlsca deploy/nats/secrets/ca.crt\n" +
		"code=$?; kill $forward; exit $code")
	c.Show = "kubectl port-forward pod/nats-0 4222 &\n" + job + " $connection # as in README.md\nkill %1"
	r := t.Try(c)
	if args[0] == "cancel" && r.Code == 0 {
		s.cancelled++
	}
	return r
}

// shell returns a command line for a shell in the checkout's copy, with the programs of the
// cluster in its path.
func (s *suite) shell(text string) trial.Command {
	c := s.Inside("sh", "-c", text)
	c.Dir = s.copy
	c.Env = []string{"KUBECONFIG=" + s.Kubeconfig(), "HOME=" + s.Dir, "PATH=" + s.bin + ":" + filepath.Join(s.cache, "bin") + ":" + os.Getenv("PATH"), "GOCACHE=" + s.gocache, "GOMODCACHE=" + s.modcache, "GOFLAGS=-buildvcs=false"}
	return c
}

// jobs returns the ids of the jobs that NATS holds.
func (s *suite) jobs(t *trial.Step) []string {
	r := s.operator(t, "list", "--output=json")
	var list []struct{ ID string }
	if err := json.Unmarshal([]byte(r.Out), &list); err != nil {
		t.Fail("shaver job list: %v: %s", err, trial.Short(r.Text(), 400))
	}
	var ids []string
	for _, j := range list {
		ids = append(ids, j.ID)
	}
	return ids
}

var jobID = regexp.MustCompile(`"job":"([0-9a-f]{20,})"`)

// id returns the id that a Job's log names.
func (s *suite) id(t *trial.Step, name string) string {
	m := jobID.FindStringSubmatch(s.logs(t, name))
	if m == nil {
		t.Fail("the log of %s names no job: %s", name, trial.Short(s.logs(t, name), 600))
	}
	return m[1]
}
