package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"shaver/chaos/clock"
)

// natsServer is the package of the server. go.mod determines its version.
const natsServer = "github.com/nats-io/nats-server/v2"

// rows and rowsPerShard give about 90 shards of the train and val splits.
const (
	rows         = 6000
	rowsPerShard = 60
	workers      = 4
)

// fixture is what all runs share: the programs, a model, a dataset, and the scores of a
// run without faults.
type fixture struct {
	bin       string // folder of the programs
	data      string // folder of model, dataset and references
	passes    int
	reference map[bool][]byte // scores of a run without faults, by whether it is a path
	clocks    bool            // whether the clocks of the programs can be set
}

// newFixture builds the programs and creates the rest in dir. If bin is not empty, it is
// the folder of existing programs. work is the duration of the job without faults.
func newFixture(ctx context.Context, dir, bin string, work time.Duration) (*fixture, error) {
	f := &fixture{bin: bin, data: filepath.Join(dir, "data")}
	if f.bin == "" {
		f.bin = filepath.Join(dir, "bin")
		list, err := clock.Overlay(dir)
		if err != nil {
			return nil, err
		}
		build := exec.CommandContext(ctx, "go", "build", "-overlay", list, "-o", f.bin+string(filepath.Separator), "shaver/cmd/shaver", "shaver/cmd/coordinator", "shaver/cmd/worker", natsServer)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if err := quietly(build); err != nil {
			return nil, err
		}
	}
	var err error
	if f.clocks, err = settable(ctx, dir, f.program); err != nil {
		return nil, err
	}
	if !f.clocks && bin == "" {
		return nil, errors.New("the clocks of the programs cannot be set")
	}
	if err := quietly(exec.CommandContext(ctx, f.program("shaver"), "quickstart", "--rows", strconv.Itoa(rows), "--out", f.data)); err != nil {
		return nil, err
	}
	const few = 32 // enough that the start of the program hardly counts
	f.passes = few
	cpu, err := f.score(ctx, "sample.arrow", false)
	if err != nil {
		return nil, err
	}
	cores := min(workers, runtime.NumCPU())
	f.passes = max(1, int(few*work.Seconds()*float64(cores)/cpu))
	f.reference = map[bool][]byte{}
	for path, name := range map[bool]string{false: "reference.arrow", true: "path.arrow"} {
		if _, err := f.score(ctx, name, path); err != nil {
			return nil, err
		}
		if f.reference[path], err = os.ReadFile(filepath.Join(f.data, name)); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *fixture) program(name string) string { return filepath.Join(f.bin, name) }

// job returns the flags that define the job. A path has 21 rounds and 216 shards.
func (f *fixture) job(path bool) []string {
	args := []string{"--model", filepath.Join(f.data, "model.safetensors"), "--dataset", filepath.Join(f.data, "dataset"), "--baseline", "codebook", "--splits", "train,val"}
	if path {
		return append(args, "--estimator", "path", "--sparsity", "0.99", "--parts", "4", "--rows-per-shard", "150")
	}
	return append(args, "--estimator", "permutation", "--passes", strconv.Itoa(f.passes), "--rows-per-shard", strconv.Itoa(rowsPerShard))
}

// score runs the job in a single process and returns its processor time in seconds.
func (f *fixture) score(ctx context.Context, name string, path bool) (cpu float64, err error) {
	out := filepath.Join(f.data, name)
	args := append([]string{"score", "-o", "json", "--out", out}, f.job(path)...)
	c := exec.CommandContext(ctx, f.program("shaver"), args...)
	text, err := c.Output()
	if err != nil {
		if exit, ok := err.(*exec.ExitError); ok {
			return 0, fmt.Errorf("shaver score: %w\n%s", err, exit.Stderr)
		}
		return 0, err
	}
	var report struct {
		CPU float64 `json:"cpu_seconds"`
	}
	if err := json.Unmarshal(text, &report); err != nil || report.CPU <= 0 {
		return 0, fmt.Errorf("shaver score: invalid report %q: %v", text, err)
	}
	return report.CPU, nil
}

// quietly runs a command and shows its output only if it fails.
func quietly(c *exec.Cmd) error {
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", c.Args, err, text)
	}
	return nil
}

// settable reports whether the clocks of programs can be set. It starts a node and a
// worker with another time and reads their first log lines.
func settable(ctx context.Context, dir string, program func(name string) string) (bool, error) {
	c, err := clock.New(filepath.Join(dir, "probe.clock"))
	if err != nil {
		return false, err
	}
	defer c.Close()
	const offset = 1000 * 24 * time.Hour
	if err := c.Set(offset); err != nil {
		return false, err
	}
	for name, args := range map[string][]string{
		"nats-server": {"-a", "127.0.0.1", "-p", "-1"},
		"worker":      {"--nats", "nats://127.0.0.1:1", "--log", "json"},
	} {
		p, err := start(birth{name: "probe", dir: dir, env: c.Env()}, program(name), args...)
		if err != nil {
			return false, err
		}
		select {
		case <-p.said:
		case <-ctx.Done():
		}
		p.kill()
		lines := p.tail()
		if len(lines) == 0 {
			return false, fmt.Errorf("%s wrote no log line", name)
		}
		shown, ok := clock.ShownTime(lines[0])
		if !ok {
			return false, fmt.Errorf("%s: no time in its log line %q", name, lines[0])
		}
		if wrong := time.Until(shown); wrong < offset-time.Hour || wrong > offset+time.Hour {
			return false, nil
		}
	}
	return true, nil
}
