package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/planted"
)

// leaveWithin is the time in which every command must end after SIGTERM, on a machine that
// is not busy.
const leaveWithin = 2 * time.Second

// moments are the times at which SIGTERM comes, counted from the first file or connection
// that the command opens.
var moments = []time.Duration{0, 150 * time.Millisecond, 600 * time.Millisecond}

// Every command ends within leaveWithin after SIGTERM, at every moment. It leaves no
// temporary files, and no output unless the output was whole when the signal came.
func TestTerminate(t *testing.T) {
	long.Test(t)
	in := makeLong(t)
	url := natsServer(t)
	models := []string{"--model", in + "/model.safetensors", "--dataset", in + "/ds"}
	scored := append([]string{"--scores", in + "/s.arrow"}, models...)
	with := func(command string, more ...string) []string { return append(strings.Fields(command), more...) }
	files := func(name string, n int) (list []string) {
		for range n {
			list = append(list, in+"/"+name)
		}
		return list
	}
	var stopped atomic.Int64
	t.Cleanup(func() { // the others are done within a second
		if n := stopped.Load(); n < 15 && !t.Failed() {
			t.Errorf("SIGTERM stopped only %d commands: the inputs are too small", n)
		}
	})
	coordinated := with("coordinator --nats "+url+" --rows-per-shard 100 --out out", models...)
	for name, args := range map[string][]string{
		"import raw":       with("shaver dataset import csv --raw "+in+"/raw.csv.gz", "--out", "out"),
		"import encoded":   with("shaver dataset import csv --train "+in+"/ids.csv.gz", "--out", "out"),
		"import criteo":    with("shaver dataset import criteo "+in+"/criteo.tsv.gz", "--out", "out"),
		"import arrow":     with("shaver dataset import arrow --out out", files("ds/train.arrow", 100)...),
		"synth":            with("shaver dataset synth --shape criteo --rows 1000000000 --out out"),
		"dataset inspect":  with("shaver dataset inspect "+in+"/ds", "--html", "out"),
		"model inspect":    with("shaver model inspect " + in + "/model.safetensors"),
		"model convert":    with("shaver model convert " + in + "/model.safetensors out"),
		"plan":             with("shaver plan", models...),
		"score":            with("shaver score --passes 1000 --out out", models...),
		"score in shards":  with("shaver score --rows-per-shard 10 --out out", models...),
		"score by Taylor":  with("shaver score --estimator taylor --out out", models...),
		"score in rounds":  with("shaver score --until overlap --passes 200 --out out", models...),
		"prune":            with("shaver prune --sparsity 0.9 --calibrate --out out", scored...),
		"evaluate":         with("shaver evaluate --split train", models...),
		"check":            with("shaver check --split train --against "+in+"/model.safetensors --out out", models...),
		"sweep":            with("shaver sweep --methods all --calibrate", scored...),
		"study":            with("shaver study --out study", models...),
		"report":           with("shaver report --out out", scored...),
		"scores compare":   with("shaver scores compare " + in + "/s.arrow " + in + "/t.arrow"),
		"scores export":    with("shaver scores export --out out " + in + "/s.arrow"),
		"scores parquet":   with("shaver scores export --out out.parquet " + in + "/s.arrow"),
		"scores frequency": with("shaver scores frequency "+in+"/s.arrow", models...),
		"quickstart":       with("shaver quickstart --rows 3000000"),
		"simulated nights": with("shaver quickstart --rows 3000000 --nights 3"),
		"nightly":          with("shaver nightly --config " + in + "/nightly.yaml"),
		"worker":           with("worker --nats " + url),
		"coordinator":      coordinated,
		"job watch":        with("shaver job watch 0123456789abcdef0123 --nats nats://" + silent(t)),
		"stubborn":         with("stubborn"),
	} {
		want := 130
		if name == "worker" {
			want = 75
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cut := 0
			for _, moment := range moments {
				if terminate(t, args, moment, want) {
					cut++
				}
			}
			if cut > 0 {
				stopped.Add(1)
			}
		})
	}
}

// terminate runs a command in an empty folder, sends SIGTERM at the given moment and checks
// how the command ends. It reports whether the signal ended the command.
func terminate(t *testing.T, args []string, moment time.Duration, want int) (stopped bool) {
	t.Helper()
	dir, temporary := t.TempDir(), t.TempDir()
	c := exec.CommandContext(t.Context(), args[0], args[1:]...)
	c.Dir = dir
	c.Env = append(os.Environ(), "TMPDIR="+temporary, "GOMAXPROCS=2")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	if !working(c.Process.Pid, patience) {
		select {
		case <-ended:
			return false
		case <-time.After(patience):
			t.Fatalf("%q neither works nor ends", args)
		}
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%q ended by itself: %v\n%s", args, err, &stderr)
		}
		return false
	case <-time.After(moment):
	}
	begun := time.Now()
	if err := c.Process.Signal(syscall.SIGTERM); errors.Is(err, os.ErrProcessDone) {
		return false
	}
	var code int
	select {
	case err := <-ended:
		took := time.Since(begun)
		code, _ = exitCode(err)
		if limit := time.Duration(float64(leaveWithin) * load()); took > limit {
			t.Errorf("%q took %v to end after SIGTERM at %v, expected at most %v", args, took, moment, limit)
		}
	case <-time.After(patience):
		_ = c.Process.Kill()
		t.Fatalf("%q still runs %v after SIGTERM at %v", args, patience, moment)
	}
	if code == 0 { // it was about to end
		return false
	}
	if code != want {
		t.Errorf("%q: exit code %d (%v) after SIGTERM at %v, expected %d\n%s", args, code, c.ProcessState, moment, want, &stderr)
	}
	left, _ := os.ReadDir(temporary)
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if strings.TrimSuffix(f.Name(), ".parquet") == "out" && !whole(t, filepath.Join(dir, f.Name()), args) || strings.Contains(f.Name(), "tmp") {
			left = append(left, f)
		}
	}
	if len(left) > 0 {
		t.Errorf("%q left %v after SIGTERM at %v", args, left, moment)
	}
	return true
}

// whole reports whether out, which a command left, is what the command writes without a
// signal.
func whole(t *testing.T, out string, args []string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Dir = t.TempDir()
	if err := c.Run(); err != nil {
		return false
	}
	return maps.Equal(contents(t, out), contents(t, filepath.Join(c.Dir, filepath.Base(out))))
}

// contents returns the files at or below a path, by their paths relative to it.
func contents(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, root)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// working waits until a process has opened a file of this test or a socket. If the process
// ends before that, working returns false. A process with one thread has not begun yet, and
// may still have files of its parent.
func working(pid int, within time.Duration) bool {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(time.Millisecond) {
		folder := fmt.Sprintf("/proc/%d/fd", pid)
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		open, err := os.ReadDir(folder)
		if err != nil {
			return false
		}
		if len(threads) < 2 {
			continue
		}
		for _, fd := range open {
			target, err := os.Readlink(filepath.Join(folder, fd.Name()))
			inherited, _ := os.Readlink("/proc/self/fd/" + fd.Name())
			if err == nil && target != inherited && (strings.HasPrefix(target, "socket:") || strings.Contains(target, "TestTerminate")) {
				return true
			}
		}
	}
	return false
}

// makeLong makes inputs that keep commands busy, and returns their folder.
func makeLong(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	p, err := planted.New(planted.Config{Fields: []string{"a", "b", "c", "d"}, FieldDims: []int{100_000, 100_000, 100_000, 100_000}, Informative: 2, Silent: 1, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.WriteDense(file("model.safetensors"), p.Checkpoint); err != nil {
		t.Fatal(err)
	}
	rows, err := os.Create(file("rows.csv"))
	if err == nil {
		err = errors.Join(p.WriteCSV(rows, 60_000), rows.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	command(t, "shaver", "dataset", "import", "csv", "--train", file("rows.csv"), "--split", "8:1:1", "--model", file("model.safetensors"), "--out", file("ds"))
	for _, seed := range []string{"s", "t"} {
		command(t, "shaver", "score", "--model", file("model.safetensors"), "--dataset", file("ds"), "--splits", "train", "--estimator", "taylor", "--max-rows", "1000",
			"--seed", fmt.Sprint(len(seed)+int(seed[0])), "--out", file(seed+".arrow"))
	}
	configuration := fmt.Sprintf("model: %[1]s/model.safetensors\ndays: %[1]s/days\nout: %[1]s/out\nscore:\n  passes: 100\nprune:\n  sparsity: 0.9\n", dir)
	if err := errors.Join(os.WriteFile(file("nightly.yaml"), []byte(configuration), 0o644), os.CopyFS(file("days/one"), os.DirFS(file("ds")))); err != nil {
		t.Fatal(err)
	}
	var raw, ids, criteo strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&raw, "%d,value%d,other%d\n", i%2, i, i%97)
		fmt.Fprintf(&ids, "%d,%d,%d\n", i%2, i, i%97)
		fmt.Fprintf(&criteo, "%d\t%s%s%x\n", i%2, strings.Repeat(fmt.Sprintf("%d\t", i), 13), strings.Repeat(fmt.Sprintf("%08x\t", i), 25), i)
	}
	for name, text := range map[string][2]string{
		"raw.csv.gz": {"label,x,y\n", raw.String()}, "ids.csv.gz": {"label,x,y\n", ids.String()}, "criteo.tsv.gz": {"", criteo.String()},
	} {
		f, err := os.Create(file(name))
		if err != nil {
			t.Fatal(err)
		}
		packed := [2]bytes.Buffer{}
		for i := range text {
			z := gzip.NewWriter(&packed[i])
			_, _ = io.WriteString(z, text[i])
			err = errors.Join(err, z.Close())
		}
		for i := range 1000 { // a gzip file may have any number of members
			_, failed := f.Write(packed[min(i, 1)].Bytes())
			err = errors.Join(err, failed)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
