//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"shaver/internal/base/long"
)

// A run that was interrupted in a job continues with that job. Afterwards the folder has the
// pruned models and the figures of all stages, and a second run has nothing left to do.
func TestRun(t *testing.T) {
	long.Heavy(t)
	dir, o := t.TempDir(), options{Shape: "kdd", Rows: 3000, TrainRows: 1000, ScoreRows: 2000, Sparsity: .5}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { // as soon as the second job has begun
		for ctx.Err() == nil {
			if text, _ := os.ReadFile(filepath.Join(dir, "full.json")); strings.Contains(string(text), `"score multilinear"`) {
				stop()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	var report bytes.Buffer
	if err := run(ctx, dir, o, &report); !errors.Is(err, context.Canceled) || report.Len() > 0 {
		t.Fatalf("interrupted: %v, report %q", err, &report)
	}
	for range 2 {
		report.Reset()
		if err := run(t.Context(), dir, o, &report); err != nil {
			t.Fatal(err)
		}
	}
	var s state
	text, err := os.ReadFile(filepath.Join(dir, "full.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	all := stages(o)
	if len(s.Stages) != len(all) {
		t.Fatalf("%d stages, expected %d", len(s.Stages), len(all))
	}
	for i, one := range s.Stages {
		tries, programs := 1, 1
		if one.Name == "score multilinear" {
			tries = 2
		}
		if all[i].job {
			programs = 4
			if one.Bus.Workers.Sent == 0 || one.Bus.Coordinator.Received == 0 || one.Plan.Rows == 0 {
				t.Errorf("%s: bus %+v, plan %+v", one.Name, *one.Bus, *one.Plan)
			}
		}
		if one.Name != all[i].name || !one.Done || one.Tries != tries || len(one.Programs) != programs || one.Seconds <= 0 || len(all[i].outputs) > 0 && one.Disk == 0 {
			t.Errorf("%+v, expected %s after %d tries of %d programs", *one, all[i].name, tries, programs)
		}
		for _, p := range one.Programs {
			if p.Processor <= 0 || p.Memory < 1<<20 {
				t.Errorf("%s: %+v", one.Name, p)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "log.tsv")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the raw log is left: %v", err)
	}
	for _, line := range []string{`(?m)^\| evaluate path \| [0-9]+ \| [0-9.]+ \| shaver \|`, `(?m)^\| score multilinear: memory of a worker \| [0-9.]+ MiB \| [0-9.]+ MiB \|`} {
		if !regexp.MustCompile(line).MatchString(report.String()) {
			t.Errorf("no line %s in the report\n%s", line, &report)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "ports", "*")); err != nil || len(left) > 0 { // a server that ends in order removes its file
		t.Errorf("the server left %v, %v", left, err)
	}
	workerEnds(t, dir)
	o.Rows++
	if err := run(t.Context(), dir, o, &report); err == nil || !strings.Contains(err.Error(), "choose another folder") {
		t.Errorf("another run in the same folder: %v", err)
	}
}

// workerEnds checks that a stage whose worker ends before the job fails and names the worker.
// The folder has the programs.
func workerEnds(t *testing.T, dir string) {
	r := &runner{dir: dir, file: filepath.Join(dir, "other.json")}
	waits := program{name: "coordinator", args: []string{"--model", "none.pth", "--dataset", "none", "--wait-inputs", "1h", "--out", "none.arrow"}}
	ends := program{name: "worker", args: []string{"--no-such-flag", "--name", "worker-1"}}
	s := stage{name: "score", job: true, rows: func(string) (int64, error) { return 0, nil }, programs: []program{waits, ends}}
	if err := r.do(t.Context(), s); err == nil || !strings.Contains(err.Error(), "worker-1 ended before the job") {
		t.Errorf("a job without its worker: %v", err)
	}
}
