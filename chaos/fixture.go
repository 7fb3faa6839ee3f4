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
	"slices"
	"strconv"
	"time"

	"shaver/chaos/clock"
	"shaver/internal/num/kernel"
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
	reference map[job][]byte // scores of a run without faults
	clocks    bool           // whether the clocks of the programs can be set
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
	cpu, err := f.score(ctx, "sample.arrow", f.walks(model), "score")
	if err != nil {
		return nil, err
	}
	cores := min(workers, runtime.NumCPU())
	f.passes = max(1, int(few*work.Seconds()*float64(cores)/cpu))
	// The previous model has the shape of the one of quickstart.
	train := exec.CommandContext(ctx, f.program("shaver"), "train", "--dataset", f.file("dataset"), "--kind", "dcnv2", "--dim", "8", "--hidden", "24,12", "--cross-layers", "1", "--epochs", "1", "--seed", "2", "--out", f.file(previousModel))
	if err := quietly(train); err != nil {
		return nil, err
	}
	if _, err := f.score(ctx, previousScores, f.walks(previousModel), "score"); err != nil {
		return nil, err
	}
	f.reference = map[job][]byte{}
	for _, j := range jobs {
		name, command := string(j)+".arrow", []string{"score"}
		if j == pairedJob {
			command = []string{"nightly", "score"}
		}
		if _, err := f.score(ctx, name, f.flags(j), command...); err != nil {
			return nil, err
		}
		if f.reference[j], err = os.ReadFile(f.file(name)); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// The model of a job, and the previous model of a paired job with its scores.
const (
	model          = "model.safetensors"
	previousModel  = "previous.safetensors"
	previousScores = "previous.arrow"
)

func (f *fixture) program(name string) string { return filepath.Join(f.bin, name) }

// file returns the path of a file that all runs share.
func (f *fixture) file(name string) string { return filepath.Join(f.data, name) }

// flags returns the flags that define a job. It has 86 to 216 shards.
func (f *fixture) flags(j job) []string {
	switch j {
	case pathJob:
		return f.of(model, "--baseline", "codebook", "--estimator", "path", "--sparsity", "0.99", "--parts", "4", "--rows-per-shard", "150")
	case pairedJob: // the other settings are those of the previous scores
		return f.of(model, "--previous", f.file(previousScores), "--previous-model", f.file(previousModel), "--sample", "0.4", "--rows-per-shard", "25")
	case fieldsJob:
		return f.of(model, "--players", "fields", "--baseline", "marginal", "--estimator", "antithetic", "--passes", strconv.Itoa(f.passes), "--rows-per-shard", strconv.Itoa(rowsPerShard))
	}
	return f.walks(model)
}

// walks returns the flags of a job of walks.
func (f *fixture) walks(of string) []string {
	return f.of(of, "--baseline", "codebook", "--estimator", "permutation", "--passes", strconv.Itoa(f.passes), "--rows-per-shard", strconv.Itoa(rowsPerShard))
}

// of returns the flags of a job of the given model. They name the kernel: a busy machine may measure that
// another one is faster, and each has bytes of its own.
func (f *fixture) of(model string, args ...string) []string {
	return append([]string{"--model", f.file(model), "--dataset", f.file("dataset"), "--splits", "train,val", "--kernel", kernel.Name()}, args...)
}

// score runs a job in a single process, by a command of shaver, and returns its processor time in seconds.
func (f *fixture) score(ctx context.Context, name string, flags []string, command ...string) (cpu float64, err error) {
	args := slices.Concat(command, []string{"-o", "json", "--out", f.file(name)}, flags)
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
