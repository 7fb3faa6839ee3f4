package main

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"shaver/internal/app/cli"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
)

// overflowing writes a copy of the model with a very large entry. The losses of one row
// of the dataset, and of no other row, are then not numbers.
func overflowing(t *testing.T, dir string) (path string) {
	t.Helper()
	d, err := dataset.Open(filepath.Join(dir, "dataset"))
	if err != nil {
		t.Fatal(err)
	}
	counts, err := d.Frequencies(dataset.Train, dataset.Val)
	if err != nil {
		t.Fatal(err)
	}
	feature := slices.Index(counts, 1)
	ck, err := checkpoint.Read(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	table, dim := ck.Tensors[ck.EmbeddingKey], ck.Architecture.Dim
	table.Data = slices.Clone(table.Data)
	for k := range dim {
		binary.LittleEndian.PutUint32(table.Data[4*(feature*dim+k):], math.Float32bits(3e38))
	}
	ck.Tensors[ck.EmbeddingKey] = table
	path = filepath.Join(dir, "overflowing.safetensors")
	if _, err := checkpoint.WriteDense(path, ck); err != nil {
		t.Fatal(err)
	}
	return path
}

// A local job with a shard that cannot be computed is kept. The same command tries only
// that shard again, or finishes without it.
func TestLocalQuarantine(t *testing.T) {
	long.Test(t)
	dir, _ := plantedJob(t, 400)
	flags := []string{"--model", overflowing(t, dir), "--dataset", filepath.Join(dir, "dataset"), "--rows-per-shard", "40", "--log", "json", "-v"}
	run := func(out string, more ...string) *process {
		return start(t, nil, "shaver", slices.Concat([]string{"score", "--out", out}, flags, more)...)
	}
	start(t, nil, "shaver", "plan", "--model", flags[1], "--dataset", flags[3]).wantExit(cli.ExitBadInput) // no other try helps
	folder := t.TempDir()
	out := filepath.Join(folder, "s.arrow")
	first := run(out)
	first.wantExit(cli.ExitBadInput)
	if done := len(first.having("task done")); done < 5 {
		t.Fatalf("%d tasks were done", done)
	}
	wantFiles(t, folder, ".s.job")
	second := run(out)
	second.wantExit(cli.ExitBadInput)
	third := run(out, "--allow-quarantined")
	third.wantExit(cli.ExitIncomplete)
	for _, p := range []*process{second, third} {
		if begun := len(p.having("task begun")); begun != 1 {
			t.Errorf("%d tasks were started again, expected only the one that was set aside", begun)
		}
	}
	wantFiles(t, folder, "s.arrow", "s.job.json")
	whole := filepath.Join(t.TempDir(), "s.arrow")
	run(whole, "--allow-quarantined").wantExit(cli.ExitIncomplete)
	wantSameFile(t, out, whole)
	if _, err := os.Stat(filepath.Join(filepath.Dir(whole), ".s.job")); !os.IsNotExist(err) {
		t.Errorf("the folder of the job is still there: %v", err)
	}
}

// A local job whose folder cannot be written, or that may open too few files, ends with an
// error that says so. Without the limit the same command completes it.
func TestLocalFolderFails(t *testing.T) {
	long.Test(t)
	if runtime.GOOS != "linux" {
		t.Skip("the test sets limits with a shell of Linux")
	}
	dir, _ := plantedJob(t, 400)
	for limit, want := range map[string]string{
		"-f 4":  "the state of the job cannot be stored in FOLDER: file too large",
		"-n 10": "the limit on open files is 10, but a local job needs at least 64",
	} {
		folder := t.TempDir()
		flags := []string{"score", "--out", filepath.Join(folder, "s.arrow"), "--model", filepath.Join(dir, "model.safetensors"), "--dataset", filepath.Join(dir, "dataset"), "--log", "json"}
		limited := start(t, nil, "sh", slices.Concat([]string{"-c", "ulimit " + limit + `; exec shaver "$@"`, "sh"}, flags)...)
		limited.wantExit(cli.ExitFailed)
		want = `"msg":"` + strings.ReplaceAll(want, "FOLDER", filepath.Join(folder, ".s.job"))
		if last := limited.log[len(limited.log)-1]; !strings.Contains(last, want) {
			t.Errorf("ulimit %s: the last line is %q, expected %q", limit, last, want)
		}
		for _, line := range limited.log {
			if strings.Contains(line, "nats") {
				t.Errorf("ulimit %s: the log speaks of NATS: %s", limit, line)
			}
		}
		wantFiles(t, folder, ".s.job")
		start(t, nil, "shaver", flags...).wantExit(cli.ExitDone)
		wantFiles(t, folder, "s.arrow", "s.job.json")
	}
}
