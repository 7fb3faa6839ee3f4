package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"shaver/deploy/internal/trial"
)

// engine is a Docker Engine, and the programs that talk to it.
type engine struct {
	own     bool     // this program started it
	project string   // name of the Compose project
	env     []string // environment of docker
	under   []string // what runs a program in the Engine's network
	origin  string   // where Engine and Compose come from, for the transcript

	dir    string // of an Engine of our own
	cmd    *exec.Cmd
	ended  chan struct{} // closed when cmd has ended
	cgroup string
}

// docker runs docker without a transcript.
func (e *engine) docker(ctx context.Context, args ...string) trial.Result {
	return trial.Command{Args: append([]string{"docker"}, args...), Env: e.env}.Do(ctx)
}

// findEngine finds an Engine that runs, or starts one in dir.
func findEngine(ctx context.Context, dir string) (*engine, error) {
	if _, err := exec.LookPath("docker"); err != nil {
		return nil, errors.New("there is no docker program: install Docker, for example with apt-get install docker.io")
	}
	e := &engine{project: "shaver-try", origin: "The Engine was running before.", dir: filepath.Join(dir, "engine")}
	probe := e.docker(ctx, "version", "--format", "{{.Server.Version}}")
	if probe.Code == 0 {
		return e, nil
	}
	refused := func(why string) error {
		return fmt.Errorf("no Docker Engine answers, and this program cannot start one because %s: start Docker, then try again (docker version: %s)",
			why, trial.Short(probe.Err, 200))
	}
	switch _, err := exec.LookPath("dockerd"); {
	case !canStart:
		return nil, refused("this is not Linux")
	case os.Getuid() != 0:
		return nil, refused("that needs root")
	case err != nil:
		return nil, refused("there is no program dockerd (apt-get install docker.io installs it)")
	}
	return e, e.start(ctx)
}

// inside prepares the namespaces and becomes dockerd.
const inside = `mount -t proc proc /proc && ip link set lo up && exec dockerd "$@"`

// start starts dockerd. Its namespaces have their own network, mounts and processes. When
// dockerd ends, all its processes, mounts and network devices end with it.
func (e *engine) start(ctx context.Context) error {
	e.own, e.project, e.ended = true, "shaver", make(chan struct{})
	e.cgroup = "shaver-try-" + strconv.Itoa(os.Getpid())
	e.origin = "No Engine was running. `make compose` started Debian's dockerd with a network, mounts and processes of its own, and ended it afterwards."
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
		return err
	}
	path := func(name string) string { return filepath.Join(e.dir, name) }
	log, err := os.Create(path("log"))
	if err != nil {
		return err
	}
	defer log.Close()
	host := "unix://" + path("sock")
	e.cmd = exec.Command("sh", "-c", inside, "sh", "--data-root", path("data"), "--exec-root", path("exec"), "--pidfile", path("pid"),
		"--host", host, "--cgroup-parent", "/"+e.cgroup)
	e.cmd.Stdout, e.cmd.Stderr, e.cmd.SysProcAttr = log, log, namespaces()
	if err := e.cmd.Start(); err != nil {
		return fmt.Errorf("start dockerd: %w", err)
	}
	go func() { _ = e.cmd.Wait(); close(e.ended) }()
	e.env = append(e.env, "DOCKER_HOST="+host, "DOCKER_CONTEXT=")
	e.under = []string{"nsenter", "--net=/proc/" + strconv.Itoa(e.cmd.Process.Pid) + "/ns/net"}
	for end := time.Now().Add(2 * time.Minute); ; {
		if e.docker(ctx, "version").Code == 0 {
			return nil
		}
		select {
		case <-e.ended:
			return e.failed("ended at once")
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), e.stop())
		case <-time.After(500 * time.Millisecond):
		}
		if time.Now().After(end) {
			return errors.Join(e.failed("does not answer"), e.stop())
		}
	}
}

// failed is an error with the end of dockerd's log.
func (e *engine) failed(what string) error {
	text, _ := os.ReadFile(filepath.Join(e.dir, "log"))
	return fmt.Errorf("dockerd %s:\n%s", what, text[max(0, len(text)-1500):])
}

// stop ends an Engine of our own.
func (e *engine) stop() error {
	if !e.own {
		return nil
	}
	terminate(e.cmd.Process)
	select {
	case <-e.ended:
	case <-time.After(time.Minute):
		_ = e.cmd.Process.Kill() // an error only means that it has ended
		<-e.ended
	}
	// The folders of cgroups hold nothing but files that the kernel makes. os.Remove deletes
	// them like empty folders.
	for _, pattern := range []string{"/sys/fs/cgroup/" + e.cgroup, "/sys/fs/cgroup/*/" + e.cgroup} {
		left, _ := filepath.Glob(pattern)
		for _, folder := range left {
			removeFolders(folder)
		}
	}
	return nil
}

// removeFolders removes empty folders, the innermost first. It ignores errors.
func removeFolders(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.IsDir() {
			removeFolders(filepath.Join(dir, entry.Name()))
		}
	}
	_ = os.Remove(dir)
}

const composeModule = "github.com/docker/compose/v2"

// findCompose finds Compose, or builds it and lets docker use it.
func (e *engine) findCompose(ctx context.Context, root string) error {
	if r := e.docker(ctx, "compose", "version"); r.Code == 0 {
		e.origin += " Compose was installed."
		return nil
	}
	folder := filepath.Join(root, "deploy", "compose", "try", "plugin")
	r := trial.Command{Args: []string{"go", "list", "-m", "-f", "{{.Version}}", composeModule}, Dir: folder}.Do(ctx)
	if r.Code != 0 {
		return fmt.Errorf("docker has no Compose, and it cannot be built: %s", r.Text())
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("docker has no Compose, and there is no folder to build it in: %w", err)
	}
	plugins := filepath.Join(cache, "shaver-compose", r.Out)
	program := filepath.Join(plugins, "docker-compose")
	if _, err := os.Stat(program); err != nil {
		fmt.Println("building Compose", r.Out, "which takes minutes the first time")
		build := trial.Command{Args: []string{"nice", "-n", "10", "go", "build", "-trimpath", "-ldflags=-s -w -X " + composeModule + "/internal.Version=" + r.Out,
			"-o", program, composeModule + "/cmd"}, Dir: folder, Env: []string{"CGO_ENABLED=0", "GOFLAGS="}, Limit: time.Hour}.Do(ctx)
		if build.Code != 0 {
			return fmt.Errorf("build Compose: %s", build.Text())
		}
	}
	e.origin += " Compose was built from its Go module."
	// The configuration of the user may name the Engine, so its context has to be resolved
	// before it is replaced.
	if !e.own {
		host := e.docker(ctx, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
		if host.Code != 0 {
			return fmt.Errorf("docker context inspect: %s", host.Text())
		}
		e.env = append(e.env, "DOCKER_HOST="+strings.TrimSpace(host.Out), "DOCKER_CONTEXT=")
	}
	config := filepath.Join(filepath.Dir(e.dir), "config")
	text, err := json.Marshal(map[string]any{"cliPluginsExtraDirs": []string{plugins}})
	if err == nil {
		err = os.MkdirAll(config, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(config, "config.json"), text, 0o600)
	}
	e.env = append(e.env, "DOCKER_CONFIG="+config)
	if r := e.docker(ctx, "compose", "version"); err == nil && r.Code != 0 {
		err = fmt.Errorf("docker does not find Compose in %s: %s", plugins, r.Text())
	}
	return err
}
