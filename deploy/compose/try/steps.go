package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaver/deploy/internal/trial"
	"shaver/internal/app/cli"
)

// try is the state of the steps.
type try struct {
	*trial.Run
	*engine
	root     string // the repository
	dir      string // the temporary folder
	tree     string // the copy of the repository
	size     int64  // bytes in the copy
	commands []string
	unused   map[string]bool

	running   []*background
	work      float64  // processor seconds of the long job
	standIns  []string // images to delete from an Engine of others
	long      []string // flags that make the job take a while
	short     string   // digest of the scores of the job at the top of docker-compose.yml
	reference string   // digest of the scores of the long job
}

const (
	natsServer = "github.com/nats-io/nats-server/v2"
	rows       = 6000
	wait       = 5 * time.Minute
)

// steps runs all steps. A step that fails ends the run, except that the last step always
// removes what the steps started.
func (t *try) steps(ctx context.Context) {
	all := []struct {
		name string
		do   func(*trial.Step)
	}{
		{"engine", t.stepEngine}, {"commands", t.stepCommands}, {"images", t.stepImages}, {"build context", t.stepContext}, {"scores at home", t.stepHome},
		{"image alone", t.stepAlone}, {"keys and up", t.stepUp}, {"one processor for each worker", t.stepSize}, {"a job", t.stepJob}, {"exit codes", t.stepExit},
		{"scale while jobs run, kill a worker", t.stepScale}, {"kill NATS and the coordinator, down and up", t.stepKill},
		{"workers drain", t.stepDrain},
	}
	whole := true
	for _, s := range all {
		if whole = ctx.Err() == nil && t.Step(ctx, s.name, s.do); !whole {
			break
		}
	}
	// Even after an interrupt.
	t.Step(context.WithoutCancel(ctx), "down", func(s *trial.Step) { t.stepDown(s, whole) })
}

// command is docker-compose.yml's command that starts with text, with more arguments.
func (t *try) command(s *trial.Step, text string, more ...string) trial.Command {
	for _, line := range t.commands {
		if strings.HasPrefix(line, text) {
			delete(t.unused, line)
			return t.shell(append(strings.Fields(line), more...)...)
		}
	}
	s.Fail("docker-compose.yml has no command %q", text)
	panic("unreachable")
}

// shell is a command in the copy of the tree.
func (t *try) shell(args ...string) trial.Command {
	env := append([]string{"CGO_ENABLED=0", "COMPOSE_PROGRESS=plain", "COMPOSE_ANSI=never", "COMPOSE_MENU=false"}, t.env...)
	if !t.own {
		env = append(env, "COMPOSE_PROJECT_NAME="+t.project)
	}
	return trial.Command{Args: args, Dir: t.tree, Env: env, Limit: 15 * time.Minute}
}

const (
	upCommand       = "docker compose up --build"
	jobCommand      = "docker compose run --rm --user"
	operatorCommand = "docker compose run --rm operator"
	scaleCommand    = "docker compose up --detach --scale"
)

// The commands of README.md for the image alone.
var (
	image             = "shaver:" + cli.Release()
	buildCommand      = "docker build --tag " + image + " ."
	quickstartCommand = "docker run --rm " + image + " quickstart"
)

func (t *try) stepEngine(s *trial.Step) {
	s.Say("%s", t.origin)
	s.Do(t.shell("docker", "version", "--format", "client {{.Client.Version}}, Engine {{.Server.Version}}"))
	s.Do(t.shell("docker", "compose", "version"))
	s.Do(t.shell("docker", "info", "--format", "cgroup v{{.CgroupVersion}} ({{.CgroupDriver}}), storage {{.Driver}}, {{.NCPU}} processors, kernel {{.KernelVersion}}"))
}

// stepCommands reads the commands at the top of docker-compose.yml.
func (t *try) stepCommands(s *trial.Step) {
	text, err := os.ReadFile(filepath.Join(t.tree, "docker-compose.yml"))
	s.Check(err)
	t.unused = map[string]bool{}
	t.commands = readCommands(string(text), strconv.Itoa(os.Getuid())+":"+strconv.Itoa(os.Getgid()))
	for _, line := range t.commands {
		t.unused[line] = true
	}
	s.Say("The comment at the top of docker-compose.yml has these commands, with the user's id put in. The steps run them in a copy of the tree.\n\n%s", "    "+strings.Join(t.commands, "\n    "))
	s.Need(len(t.commands) == 7, "7 commands", strconv.Itoa(len(t.commands)))
}

// readCommands returns the commands in the comments of docker-compose.yml, each on one line.
// User replaces the shell's expression for the user's id.
func readCommands(text, user string) (commands []string) {
	joined := strings.ReplaceAll(text, "\\\n#", "")
	for _, m := range regexp.MustCompile(`(?m)^#   (\S.*)$`).FindAllStringSubmatch(joined, -1) {
		line := strings.Join(strings.Fields(m[1]), " ")
		commands = append(commands, strings.ReplaceAll(line, `"$(id -u):$(id -g)"`, user))
	}
	return commands
}

func (t *try) stepImages(s *trial.Step) {
	golang, nats, err := t.baseImages()
	s.Check(err)
	if t.image(s, golang, goEnvironment(s.Ctx), fillGo(s.Ctx, t.tree)) {
		s.Say("The stand-in for `%s` has this machine's Go, sh, mkdir and certificates, and the modules of go.mod.", golang)
		t.standIns = append(t.standIns, golang)
	}
	server := filepath.Join(t.dir, "bin", "nats-server")
	t.build(s, server, natsServer)
	fill := func(w *tar.Writer) error {
		return errors.Join(addFile(w, server, "bin/nats-server"), addFile(w, "/bin/busybox", "bin/wget")) // of Debian's busybox-static
	}
	if t.image(s, nats, nil, fill) {
		s.Say("The stand-in for `%s` is the server of go.mod and wget of busybox.", nats)
		t.standIns = append(t.standIns, nats)
	}
	s.Do(t.shell("docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}} {{.Size}}"))
}

// build builds a program for this machine. It runs in the repository and not in the copy,
// because Go's build cache has results for each folder.
func (t *try) build(s *trial.Step, program, pkg string) {
	c := trial.Command{Args: []string{"go", "build", "-o", program, pkg}, Dir: t.root, Env: []string{"CGO_ENABLED=0"}, Limit: 30 * time.Minute}
	if r := c.Do(s.Ctx); r.Code != 0 {
		s.Fail("build %s: %s", pkg, r.Text())
	}
}

// stepContext builds an image of the whole build context. The secrets exist by then, because
// they must not be in it.
func (t *try) stepContext(s *trial.Step) {
	s.Do(t.command(s, "go run ./deploy/nats/keys"))
	s.Check(os.MkdirAll(filepath.Join(t.tree, ".git"), 0o755))
	s.Check(os.WriteFile(filepath.Join(t.tree, ".git", "HEAD"), []byte("ref: refs/heads/main\n"), 0o644))
	s.Check(os.MkdirAll(filepath.Join(t.tree, "data"), 0o755))
	s.Check(os.WriteFile(filepath.Join(t.tree, "data", "large"), make([]byte, 1<<20), 0o644))
	const image = "shaver-try-context"
	build := t.shell("docker", "build", "--quiet", "--tag", image, "--file", "-", ".")
	build.Stdin, build.Lines = "FROM scratch\nCOPY . /\n", -1
	s.Do(build)
	defer t.docker(context.WithoutCancel(s.Ctx), "image", "rm", image)
	var size int64
	var strangers []string
	n := 0
	for name, bytes := range t.files(s, image) {
		top, _, _ := strings.Cut(name, "/")
		switch {
		case slices.Contains([]string{".dockerenv", "etc", "dev"}, top): // the Engine adds these
			continue
		case !slices.Contains([]string{"go.mod", "go.sum", "cmd", "internal", "schemas"}, top), strings.HasSuffix(name, "_test.go"), strings.Contains(name, "testdata/"):
			strangers = append(strangers, name)
		}
		n, size = n+1, size+bytes
	}
	slices.Sort(strangers)
	seen := fmt.Sprintf("%d files, %.1f MB; the tracked files are %.1f MB", n, float64(size)/1e6, float64(t.size)/1e6)
	s.Expect(n > 100 && len(strangers) == 0, "the build context has go.mod, go.sum, cmd, internal and schemas without tests, and neither secrets, .git nor data",
		seen+" "+strings.Join(strangers[:min(9, len(strangers))], " "))
}

// stepHome computes the scores that the cluster must have, and makes the long job.
func (t *try) stepHome(s *trial.Step) {
	shaver := t.shaver()
	t.build(s, shaver, "shaver/cmd/shaver")
	data := filepath.Join(t.tree, "data")
	s.Check(os.RemoveAll(data))
	quick := t.shell("shaver", "quickstart", "--rows", strconv.Itoa(rows), "--out", "data")
	quick.Path, quick.Lines = shaver, -1
	s.Do(quick)
	s.Check(os.Remove(filepath.Join(data, "scores.arrow"))) // quickstart's own
	score := func(out string, more ...string) (seconds float64, digest string) {
		c := t.shell(append([]string{"shaver", "score", "-o", "json", "--model", "model.safetensors", "--dataset", "dataset", "--out", out,
			"--estimator", "permutation", "--baseline", "zero", "--splits", "train,val"}, more...)...) // as the coordinator has by default
		c.Path, c.Dir, c.Lines = shaver, data, -1
		var report struct {
			CPU float64 `json:"cpu_seconds"`
		}
		text := s.Do(c)
		if err := json.Unmarshal([]byte(text), &report); err != nil || report.CPU <= 0 {
			s.Fail("no cpu_seconds in %q: %v", trial.Short(text, 200), err)
		}
		return report.CPU, t.digest(s, out)
	}
	_, t.short = score("home.arrow")
	s.Say("SHA-256 of home.arrow: %s", t.short)
	shards := []string{"--rows-per-shard", "60"}
	const few = 32
	seconds, _ := score("sample.arrow", append(shards, "--passes", strconv.Itoa(few))...)
	t.long = append(shards, "--passes", strconv.Itoa(max(1, int(few*t.work/seconds))))
	_, t.reference = score("long.arrow", t.long...)
	s.Say("SHA-256 of long.arrow: %s", t.reference)
}

// shaver is the program on this machine.
func (t *try) shaver() string { return filepath.Join(t.dir, "bin", "shaver") }

// digest is the SHA-256 of a file in the data folder.
func (t *try) digest(s *trial.Step, name string) string {
	text, err := os.ReadFile(filepath.Join(t.tree, "data", name))
	s.Check(err)
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// stepAlone builds and runs the image without Compose, with the commands of README.md.
func (t *try) stepAlone(s *trial.Step) {
	build := t.shell(strings.Fields(buildCommand)...)
	build.Lines = 6
	s.Do(build)
	run := t.shell(strings.Fields(quickstartCommand)...)
	run.Lines = 14
	s.Contains("the output", s.Do(run), "unpruned", "shapley-rms")
	run = t.shell("docker", "run", "--rm", "--read-only", "--tmpfs", "/tmp", image, "quickstart", "--rows", "2000")
	run.Lines = -1
	s.Contains("the output in a container that is read-only except for /tmp", s.Do(run), "unpruned", "shapley-rms")
}

func (t *try) stepUp(s *trial.Step) {
	up := t.command(s, upCommand)
	up.Lines = 8
	s.Do(up)
	s.Do(t.shell("docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}} {{.Size}}", "shaver"))
	s.Need(s.Wait(wait, func() bool { _, err := t.jobs(s); return err == nil }), "an operator outside of Docker's network reaches nats-0 at 127.0.0.1:4222", t.listError(s))
	s.Equal("workers", strconv.Itoa(t.workers(s)), "2")
	health := ""
	for _, name := range []string{"nats-0", "nats-1", "nats-2"} {
		for _, id := range t.ids(s, name) {
			health += t.docker(s.Ctx, "inspect", "--format", "{{.State.Health.Status}}", id).Out + " "
		}
	}
	s.Equal("health of the servers, for which the workers waited", strings.TrimSpace(health), "healthy healthy healthy")
	log := t.shell("docker", "compose", "logs", "--no-log-prefix", "worker").Do(s.Ctx).Text()
	stale := 0
	for line := range strings.SplitSeq(log, "\n") {
		if strings.Contains(line, "stream not found") && strings.Contains(line, `"warn"`) {
			stale++
		}
	}
	s.Equal("warnings of the workers that no coordinator has set up a stream yet", strconv.Itoa(stale), "0")
}

// stepSize checks how many threads compute in a worker.
func (t *try) stepSize(s *trial.Step) {
	ids := t.ids(s, "worker")
	s.Need(len(ids) > 0, "a worker", strconv.Itoa(len(ids)))
	address := s.Do(t.shell("docker", "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}} {{.HostConfig.NanoCpus}} {{.HostConfig.Memory}}", ids[0]))
	ip, _, _ := strings.Cut(address, " ")
	self, err := os.Executable()
	s.Check(err)
	get := trial.Command{Args: []string{self, "-get", "http://" + ip + ":9090/metrics"}, Under: t.under}.Do(s.Ctx)
	threads := regexp.MustCompile(`(?m)^go_sched_gomaxprocs_threads .*$`).FindString(get.Out)
	if threads == "" {
		threads = trial.Short(get.Text(), 200)
	}
	s.Equal("the worker's metric", threads, "go_sched_gomaxprocs_threads 1")
}

// stepJob runs the job at the top of docker-compose.yml twice.
func (t *try) stepJob(s *trial.Step) {
	c := t.command(s, jobCommand)
	s.Do(c)
	s.Equal("SHA-256 of scores.arrow", t.digest(s, "scores.arrow"), t.short)
	again := s.Try(c)
	s.Expect(again.Code == 0 && strings.Contains(again.Text(), "exist already"), "the same command again finds the scores", trial.Short(again.Text(), 200))
	s.Do(t.command(s, operatorCommand))
}

// stepExit checks the exit codes that a script sees.
func (t *try) stepExit(s *trial.Step) {
	code := func(want int, args ...string) {
		c := t.shell(append([]string{"docker", "compose", "run", "--rm", "coordinator"}, args...)...)
		s.Equal("exit code", strconv.Itoa(s.Try(c).Code), strconv.Itoa(want))
	}
	code(cli.ExitBadInput, "--model", "missing.safetensors", "--dataset", "dataset", "--out", "x.arrow")
	code(cli.ExitUsage, "--model", "model.safetensors", "--dataset", "dataset", "--out", "x.arrow", "--passes", "none")

	c := t.startJob(s, "cancelled.arrow")
	job := t.await(s, 1, 1)
	s.Do(t.command(s, operatorCommand, "cancel", job))
	s.Equal("exit code of the cancelled coordinator", strconv.Itoa(c.end(s)), strconv.Itoa(cli.ExitCancelled))
	_, err := os.Stat(filepath.Join(t.tree, "data", "cancelled.arrow"))
	s.Expect(errors.Is(err, os.ErrNotExist), "no scores", fmt.Sprint(err))

	other := "portable-" + runtime.GOARCH
	if strings.Contains(c.text(), "kernel=portable") {
		other = "avx2"
	}
	c = t.startJob(s, "x.arrow", "--kernel", other)
	said := ""
	s.Wait(2*time.Minute, func() bool {
		said = regexp.MustCompile(`(?m)^.*no worker with this kernel.*$`).FindString(c.text())
		return said != "" || c.over()
	})
	s.Contains("the warning about a kernel of no worker", said, other)
	t.kill(s, "coordinator", "TERM")
	s.Equal("exit code after SIGTERM", strconv.Itoa(c.end(s)), strconv.Itoa(cli.ExitInterrupted))
	t.end(s)
}

// end cancels all jobs.
func (t *try) end(s *trial.Step) {
	jobs, err := t.jobs(s)
	s.Check(err)
	for _, j := range jobs {
		s.Do(t.command(s, operatorCommand, "cancel", j.ID))
	}
}

// stepScale changes the number of workers while two jobs run.
func (t *try) stepScale(s *trial.Step) {
	first := t.startJob(s, "first.arrow")
	t.await(s, 1, 1)
	scale := t.command(s, scaleCommand)
	scale.Lines = 6
	s.Do(scale)
	s.Equal("workers", strconv.Itoa(t.workers(s)), "8")
	second := t.startJob(s, "second.arrow", "--seed", "2")
	t.await(s, 2, 0)
	s.Equal("workers after a second job was started", strconv.Itoa(t.workers(s)), "8")
	ids := t.ids(s, "worker")
	s.Do(t.shell("docker", "kill", "--signal", "KILL", ids[len(ids)-1]))
	s.Equal("workers after one was killed", strconv.Itoa(t.workers(s)), "7")
	s.Expect(!first.over() && !second.over(), "both coordinators still run", fmt.Sprintf("ended: %t and %t", first.over(), second.over()))
	s.Do(t.command(s, operatorCommand))
	s.Equal("exit code of the first job", strconv.Itoa(first.end(s)), "0")
	s.Equal("SHA-256 of first.arrow", t.digest(s, "first.arrow"), t.reference)
	jobs, _ := t.jobs(s)
	if len(jobs) > 0 { // it differs only by its seed, so it proves nothing more
		s.Do(t.command(s, operatorCommand, "cancel", jobs[0].ID))
	}
	second.end(s)
	s.Equal("workers at the end", strconv.Itoa(t.workers(s)), "7")
}

// stepKill kills a server and the coordinator, and takes the cluster down and up again.
func (t *try) stepKill(s *trial.Step) {
	up := t.command(s, upCommand)
	up.Lines = 6
	s.Do(up)
	s.Equal("workers after up", strconv.Itoa(t.workers(s)), "2")
	c := t.startJob(s, "again.arrow")
	t.await(s, 1, 3)
	t.kill(s, "nats-1", "KILL")
	before := t.shards(s)
	s.Need(s.Wait(wait, func() bool { return t.shards(s) >= before+5 }), "the job goes on with two servers", fmt.Sprintf("%d shards, then %d", before, t.shards(s)))
	s.Do(t.shell("docker", "compose", "start", "nats-1"))
	t.awaitCheckpoint(s, c)
	t.kill(s, "coordinator", "KILL")
	s.Equal("exit code of the command whose coordinator was killed", strconv.Itoa(c.end(s)), "137")
	down := t.command(s, "docker compose down")
	down.Lines = 6
	s.Do(down)
	s.Do(up)
	s.Equal("workers", strconv.Itoa(t.workers(s)), "2")
	c = t.startJob(s, "again.arrow")
	s.Equal("exit code", strconv.Itoa(c.end(s)), "0")
	resumed := regexp.MustCompile(`(?m)^.*resumed.*$`).FindString(c.text())
	s.Contains("the log of the same command again", resumed, "resumed")
	s.Equal("SHA-256 of again.arrow", t.digest(s, "again.arrow"), t.reference)
	jobs, err := t.jobs(s)
	s.Check(err)
	s.Equal("jobs that are left", strconv.Itoa(len(jobs)), "0")
}

// stepDrain stops the workers while they compute.
func (t *try) stepDrain(s *trial.Step) {
	c := t.startJob(s, "drained.arrow")
	job := t.await(s, 1, 1)
	ids := t.ids(s, "worker")
	stop := t.shell("docker", "compose", "stop", "worker")
	stop.Lines = -1
	s.Do(stop)
	codes := s.Do(t.shell(append([]string{"docker", "inspect", "--format", "{{.State.ExitCode}}"}, ids...)...))
	s.Equal("exit codes of the workers", codes, strings.TrimSpace(strings.Repeat(strconv.Itoa(cli.ExitDrained)+"\n", len(ids))))
	said := ""
	for _, id := range ids {
		said += regexp.MustCompile(`(?m)^.*ending after the current task.*$`).FindString(t.docker(s.Ctx, "logs", id).Text()) + "\n"
	}
	// A worker may have been between two tasks.
	s.Contains("the workers' log", strings.TrimSpace(said), "ending after the current task")
	s.Do(t.command(s, operatorCommand, "cancel", job))
	s.Equal("exit code of the cancelled coordinator", strconv.Itoa(c.end(s)), strconv.Itoa(cli.ExitCancelled))
}

// stepDown removes everything, also after a step that failed.
func (t *try) stepDown(s *trial.Step, whole bool) {
	if t.commands == nil {
		return
	}
	defer func() {
		if !t.own {
			for _, image := range t.standIns {
				t.docker(s.Ctx, "image", "rm", image)
			}
		}
	}()
	for _, b := range t.running {
		b.stop()
	}
	down := t.command(s, "docker compose down --volumes")
	down.Lines = 8
	for _, id := range t.ids(s, "coordinator") {
		t.docker(s.Ctx, "rm", "--force", id)
	}
	s.Do(down)
	filter := "label=com.docker.compose.project=" + t.project
	left := t.docker(s.Ctx, "volume", "ls", "--quiet", "--filter", filter).Out + t.docker(s.Ctx, "ps", "--all", "--quiet", "--filter", filter).Out +
		t.docker(s.Ctx, "network", "ls", "--quiet", "--filter", filter).Out
	s.Expect(left == "", "no volume, container or network is left", left)
	if whole {
		unused := slices.Sorted(maps.Keys(t.unused))
		s.Expect(len(unused) == 0, "every command of docker-compose.yml was run, none is left", strings.Join(unused, "; "))
	}
}

// job is a line of "shaver job list".
type job struct {
	ID       string `json:"id"`
	Progress struct {
		State      string    `json:"state"`
		Shards     int       `json:"shards"`
		Checkpoint time.Time `json:"checkpoint"` // when its coordinator stored the last one; zero = none
	} `json:"progress"`
}

// list is an operator outside of Docker's network.
func (t *try) list(s *trial.Step) trial.Result {
	secrets := filepath.Join(t.tree, "deploy", "nats", "secrets")
	c := t.shell(t.shaver(), "job", "list", "--nats", "tls://127.0.0.1:4222", "--nkey", filepath.Join(secrets, "operator.nk"), "--tlsca", filepath.Join(secrets, "ca.crt"), "-o", "json", "--wait", "10s")
	c.Under = t.under
	return c.Do(s.Ctx)
}

func (t *try) listError(s *trial.Step) string {
	r := t.list(s)
	return fmt.Sprintf("exit code %d %s", r.Code, trial.Short(r.Err, 300))
}

func (t *try) jobs(s *trial.Step) (jobs []job, err error) {
	r := t.list(s)
	if r.Code != 0 {
		return nil, errors.New(trial.Short(r.Text(), 300))
	}
	return jobs, json.Unmarshal([]byte(r.Out), &jobs)
}

// shards is the number of merged shards of all jobs.
func (t *try) shards(s *trial.Step) (n int) {
	jobs, _ := t.jobs(s)
	for _, j := range jobs {
		n += j.Progress.Shards
	}
	return n
}

// await waits until the server has this number of jobs, and the first of them this number
// of merged shards. It returns the job's id.
func (t *try) await(s *trial.Step, jobs, shards int) (id string) {
	var seen []job
	var err error
	s.Need(s.Wait(wait, func() bool {
		seen, err = t.jobs(s)
		return err == nil && len(seen) == jobs && (shards == 0 || seen[0].Progress.Shards >= shards)
	}), fmt.Sprintf("number of jobs that the operator lists: %d; shards of the first: at least %d", jobs, shards), describe(seen, err))
	return seen[0].ID
}

// awaitCheckpoint waits until the coordinator of the only job has stored a checkpoint.
func (t *try) awaitCheckpoint(s *trial.Step, coordinator *background) {
	var seen []job
	s.Wait(wait, func() bool {
		seen, _ = t.jobs(s)
		return coordinator.over() || len(seen) == 1 && !seen[0].Progress.Checkpoint.IsZero()
	})
	s.Need(len(seen) == 1 && !seen[0].Progress.Checkpoint.IsZero() && !coordinator.over(), "a checkpoint before the job ends", describe(seen, nil))
}

// describe is a line about the jobs that an operator saw.
func describe(jobs []job, err error) string {
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, j := range jobs {
		line := fmt.Sprintf("%s %s with %d shards", j.ID, j.Progress.State, j.Progress.Shards)
		if at := j.Progress.Checkpoint; !at.IsZero() {
			line += " and a checkpoint of " + at.UTC().Format(time.TimeOnly)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, ", ")
}

// ids are the running containers of a service.
func (t *try) ids(s *trial.Step, service string) []string {
	r := t.docker(s.Ctx, "ps", "--quiet", "--filter", "label=com.docker.compose.project="+t.project, "--filter", "label=com.docker.compose.service="+service)
	return strings.Fields(r.Out)
}

func (t *try) workers(s *trial.Step) int { return len(t.ids(s, "worker")) }

// kill sends a signal to the only container of a service.
func (t *try) kill(s *trial.Step, service, signal string) {
	ids := t.ids(s, service)
	s.Need(len(ids) == 1, "one container of "+service, strconv.Itoa(len(ids)))
	s.Do(t.shell("docker", "kill", "--signal", signal, ids[0]))
}

// startJob starts the long job, with its scores at out.
func (t *try) startJob(s *trial.Step, out string, more ...string) *background {
	c := t.command(s, jobCommand, append(slices.Clone(t.long), more...)...)
	c.Args[slices.Index(c.Args, "scores.arrow")] = out
	return t.start(s, c)
}
