//go:build linux

// Command full takes a synthetic log of any size all the way: it makes and imports the log, trains
// a model, forecasts and runs two jobs, prunes by both and evaluates. Each stage runs the project's
// programs. A job has a NATS server, a coordinator and two workers of one thread, on 127.0.0.1.
//
//	go run ./bench/full -dir FOLDER -shape kdd -rows 150000000
//
// FOLDER gets everything, also full.json with what each stage took. After Ctrl-C the same command
// continues: stages that have ended are skipped, and jobs and trainings resume.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/filelock"
	"shaver/internal/jobs/forecast"
)

func main() {
	var o options
	dir := flag.String("dir", "", "folder of the run (required)")
	flag.StringVar(&o.Shape, "shape", "kdd", "format of the log: kdd or criteo")
	flag.Int64Var(&o.Rows, "rows", 0, "rows of the log (required)")
	flag.Int64Var(&o.TrainRows, "train-rows", 10e6, "first rows of the log, of whose train split the model is trained")
	flag.Int64Var(&o.ScoreRows, "score-rows", 0, "largest number of rows that a job scores; 0 = the whole train split")
	flag.Float64Var(&o.Sparsity, "sparsity", .95, "portion of the entries to drop")
	flag.Parse()
	if *dir == "" || o.Rows < 1 {
		fmt.Fprintln(os.Stderr, "full: expected -dir FOLDER and -rows NUMBER")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "full:", err)
		os.Exit(1)
	}
}

// options say what a run does. A folder has one run.
type options struct {
	Shape     string  `json:"shape"`
	Rows      int64   `json:"rows"`
	TrainRows int64   `json:"train_rows"`
	ScoreRows int64   `json:"score_rows,omitempty"` // 0 = all of the train split
	Sparsity  float64 `json:"sparsity"`
}

// state is the file full.json.
type state struct {
	Options options   `json:"options"`
	Stages  []*record `json:"stages"` // those that have begun, in order
}

// record is what a stage took in all its tries.
type record struct {
	Name     string             `json:"name"`
	Done     bool               `json:"done"`
	Tries    int                `json:"tries"`
	Rows     int64              `json:"rows,omitempty"` // rows that it reads or makes
	Seconds  float64            `json:"seconds"`
	Programs []usage            `json:"programs"`
	Disk     int64              `json:"disk"`              // bytes of its outputs
	Deleted  []string           `json:"deleted,omitempty"` // files of earlier stages that it made superfluous
	Bus      *traffic           `json:"bus,omitempty"`
	Plan     *forecast.Forecast `json:"plan,omitempty"` // what the stage before predicted
}

// run does the stages that are left, and writes a report in Markdown.
func run(ctx context.Context, dir string, o options, report io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	unlock, err := filelock.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	defer unlock()
	r := &runner{dir: dir, file: filepath.Join(dir, "full.json"), state: state{Options: o}}
	if data, err := os.ReadFile(r.file); err == nil {
		if err := json.Unmarshal(data, &r.state); err != nil {
			return fmt.Errorf("%s: %w", r.file, err)
		}
	}
	if r.state.Options != o {
		return fmt.Errorf("%s is of a run with %+v, expected %+v; choose another folder", r.file, r.state.Options, o)
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	for _, s := range stages(o) {
		if err := r.do(ctx, s); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", s.name, err), r.save())
		}
	}
	return write(report, &r.state)
}

// runner runs stages in a folder.
type runner struct {
	dir, file string
	state     state
}

// prepare makes the folder of the logs and builds the programs.
func (r *runner) prepare(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(r.dir, "log"), 0o755); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(r.dir, "bin")+"/", "shaver/cmd/shaver", "shaver/cmd/coordinator", "shaver/cmd/worker", "github.com/nats-io/nats-server/v2")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", build.Args, err, text)
	}
	return nil
}

func (r *runner) save() error {
	return atomicfile.Write(r.file, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(&r.state)
	})
}

// record returns the record of a stage, which is a new one if the stage has not begun.
func (r *runner) record(name string) *record {
	for _, one := range r.state.Stages {
		if one.Name == name {
			return one
		}
	}
	one := &record{Name: name}
	r.state.Stages = append(r.state.Stages, one)
	return one
}

// do runs a stage unless it is done.
func (r *runner) do(ctx context.Context, s stage) (err error) {
	now := r.record(s.name)
	if now.Done {
		return nil
	}
	for _, name := range s.outputs {
		if !s.resumes {
			if err := os.RemoveAll(filepath.Join(r.dir, name)); err != nil {
				return err
			}
		}
	}
	now.Tries++
	if now.Rows, err = s.rows(r.dir); err != nil {
		return err
	}
	if s.plan != "" {
		data, err := os.ReadFile(filepath.Join(r.dir, s.plan))
		if err != nil {
			return err
		}
		now.Plan = &forecast.Forecast{}
		if err := json.Unmarshal(data, now.Plan); err != nil {
			return err
		}
		now.Rows = now.Plan.Rows
	}
	if err := r.save(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s %s, try %d\n", time.Now().Format(time.TimeOnly), s.name, now.Tries)
	begun := time.Now()
	if s.job {
		err = r.cluster(ctx, s, now)
	} else {
		p, failed := r.start(ctx, s, s.programs[0])
		if err = failed; err == nil {
			err = p.end(now)
		}
	}
	now.Seconds += time.Since(begun).Seconds()
	if err != nil {
		return err
	}
	for _, name := range s.outputs {
		bytes, err := size(filepath.Join(r.dir, name))
		if err != nil {
			return err
		}
		now.Disk += bytes
	}
	for _, name := range s.spent {
		if err := os.Remove(filepath.Join(r.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	now.Deleted, now.Done = s.spent, true
	return r.save()
}

// size returns the bytes of a file or of all files in a folder.
func size(path string) (total int64, err error) {
	err = filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}
