package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/long"
)

// inFolder returns a function that runs shaver in a folder, and returns the exit code and what
// stderr says.
func inFolder(t *testing.T, dir string) func(args ...string) (code int, stderr string) {
	return func(args ...string) (int, string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "shaver", args...)
		c.Dir = dir
		var stderr bytes.Buffer
		c.Stderr = &stderr
		code, err := 0, c.Run()
		if err != nil {
			if code, err = exitCode(err); err != nil {
				t.Fatal(err)
			}
		}
		return code, stderr.String()
	}
}

// knownFiles makes datasets whose fields have the same sizes: rows, with which the model
// m.safetensors is trained, and others that do not fit the model. It returns a function that runs
// shaver in their folder.
func knownFiles(t *testing.T) (run func(args ...string) (code int, stderr string)) {
	t.Helper()
	dir := t.TempDir()
	run = inFolder(t, dir)
	write := func(name, header, prefix string) {
		text := "click," + header + "\n"
		for i := range 120 {
			text += fmt.Sprintf("%d,%s%d,%[2]s%[4]d\n", i%3/2, prefix, i%5, i%7%5)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".csv"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rows", "user,item", "v")
	write("swapped", "item,user", "v")
	write("others", "user,item", "w")
	mapper := "field,value,id\n"
	for i := range 5 {
		mapper += fmt.Sprintf("user,v%d,%[1]d\nitem,v%[1]d,%[2]d\n", i, 4-i)
	}
	if err := os.WriteFile(filepath.Join(dir, "map.csv"), []byte(mapper), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string][]string{"rows": nil, "swapped": nil, "others": nil, "reordered": {"--vocabulary", "map.csv"}} {
		raw := name
		if flags != nil {
			raw = "rows"
		} else {
			flags = []string{"--min-count", "1"}
		}
		args := append([]string{"dataset", "import", "csv", "--raw", raw + ".csv", "--label", "click", "--split", "6:2:2", "--out", name}, flags...)
		if code, text := run(args...); code != 0 {
			t.Fatalf("%q: %s", args, text)
		}
	}
	for _, args := range [][]string{
		{"train", "--dataset", "rows", "--kind", "fm", "--dim", "2", "--epochs", "1", "--out", "m.safetensors"},
		{"score", "--model", "m.safetensors", "--dataset", "rows", "--splits", "train", "--out", "s.arrow"},
		{"prune", "--model", "m.safetensors", "--scores", "s.arrow", "--sparsity", "0.5", "--out", "p.safetensors"},
	} {
		if code, text := run(args...); code != 0 || strings.Contains(text, "does not say") {
			t.Fatalf("%q: %s", args, text)
		}
	}
	return run
}

// onDataset has the commands that read a model and a dataset. DATASET stands for the dataset.
var onDataset = []string{
	"evaluate --model m.safetensors --dataset DATASET",
	"evaluate --model p.safetensors --dataset DATASET",
	"evaluate --model m.safetensors --against p.safetensors --dataset DATASET",
	"score --model m.safetensors --dataset DATASET --out new.arrow",
	"nightly score --model m.safetensors --dataset DATASET --out new.arrow",
	"plan --model m.safetensors --dataset DATASET",
	"prune --model m.safetensors --scores s.arrow --sparsity .5 --calibrate --dataset DATASET --out new.safetensors",
	"check --model p.safetensors --against m.safetensors --dataset DATASET --max-auc-drop 1 --max-logloss-rise 9",
	"sweep --model m.safetensors --scores s.arrow --sparsities .5 --dataset DATASET",
	"sweep --model m.safetensors --models p.safetensors --sparsities .5 --dataset DATASET",
	"train --model m.safetensors --epochs 1 --dataset DATASET --out new.safetensors",
	"tune --model p.safetensors --epochs 1 --dataset DATASET --out new.safetensors",
	"model inspect m.safetensors --dataset DATASET",
	"model convert m.safetensors new.safetensors --dataset DATASET",
}

// Every command refuses a dataset whose fields are those of a model in another order, or whose
// vocabulary has another order or other values. The error names the field and both files. With the
// dataset of the training, no command says that the model does not know its fields.
func TestModelKnowsFields(t *testing.T) {
	long.Test(t)
	t.Parallel()
	run := knownFiles(t)
	for _, command := range onDataset {
		args := func(name string) []string {
			words := strings.Fields(strings.Replace(command, "DATASET", name, 1))
			if strings.Contains(command, " new.") { // which another command of the test may have written
				words = append(words, "--force")
			}
			return words
		}
		for name, want := range map[string]string{
			"swapped":   "field 0 is item in the dataset swapped and user in the model ",
			"reordered": "field 1 (item): the dataset reordered does not fit the model ",
			"others":    "field 0 (user): the dataset others does not fit the model ",
		} {
			code, text := run(args(name)...)
			if last := text[strings.LastIndexByte(strings.TrimSuffix(text, "\n"), '\n')+1:]; code != 42 || !strings.HasPrefix(last, "shaver: "+want) || !strings.Contains(last, ".safetensors") {
				t.Errorf("%q: exit code %d, %s", args(name), code, text)
			}
		}
		if code, text := run(args("rows")...); code != 0 || strings.Contains(text, "does not say") {
			t.Errorf("%q: exit code %d, %s", args("rows"), code, text)
		}
	}
}

// A model that does not know its fields is used, and a line says so. If it is given them once, it
// is protected.
func TestModelIsGivenFields(t *testing.T) {
	t.Parallel()
	run := inFolder(t, t.TempDir())
	foreign, err := filepath.Abs(filepath.Join(goldenDir, "deepfm.pth"))
	if err != nil {
		t.Fatal(err)
	}
	must := func(args ...string) string {
		t.Helper()
		code, text := run(args...)
		if code != 0 {
			t.Fatalf("%q: exit code %d, %s", args, code, text)
		}
		return text
	}
	rows, err := filepath.Abs(filepath.Join(goldenDir, "deepfm.rows.csv"))
	if err != nil {
		t.Fatal(err)
	}
	for name, column := range map[string]string{"ids": "f0", "renamed": "first"} {
		text, err := os.ReadFile(rows)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "rows.csv")
		if err := os.WriteFile(file, bytes.Replace(text, []byte("f0"), []byte(column), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		must("dataset", "import", "csv", "--train", file, "--test", file, "--ids", "global", "--model", foreign, "--out", name)
	}
	if text := must("evaluate", "--model", foreign, "--dataset", "ids"); strings.Count(text, "does not say which fields") != 1 || !strings.Contains(text, "deepfm.pth") || !strings.Contains(text, "--dataset") {
		t.Errorf("a model that does not know its fields: %s", text)
	}
	must("model", "convert", foreign, "known.safetensors", "--dense", "--dataset", "ids")
	if text := must("evaluate", "--model", "known.safetensors", "--dataset", "ids"); strings.Contains(text, "does not say") {
		t.Errorf("a model that was given its fields: %s", text)
	}
	if code, text := run("evaluate", "--model", "known.safetensors", "--dataset", "renamed"); code != 42 || !strings.Contains(text, "in the dataset renamed and ") {
		t.Errorf("another dataset: exit code %d, %s", code, text)
	}
	must("model", "convert", "known.safetensors", "compact.safetensors")
	if code, text := run("model", "convert", "compact.safetensors", "again.safetensors", "--dataset", "renamed"); code != 42 || !strings.Contains(text, "in the dataset renamed and ") {
		t.Errorf("fields given twice: exit code %d, %s", code, text)
	}
}
