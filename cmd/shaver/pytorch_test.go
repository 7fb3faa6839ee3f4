package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/checkpoint"
)

// PyTorch loads what shaver writes.
func TestPyTorch(t *testing.T) {
	python := pythonWithTorch(t)
	t.Run("pruned", func(t *testing.T) { testPyTorchLoads(t, python) })
	t.Run("trained", func(t *testing.T) { testTrainedLoadsStrictly(t, python) })
}

// The line of Python in README.md loads a dense file into a PyTorch model that has the
// parameters of the checkpoint.
func testPyTorchLoads(t *testing.T, python string) {
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile("`(model\\.load_state_dict\\([^`]*)`").FindSubmatch(readme)
	if line == nil || !bytes.Contains(readme, []byte("`safetensors.torch`")) {
		t.Fatal("README does not say how to load a file in PyTorch")
	}
	lines := "from safetensors.torch import load_file\n" + string(line[1])
	script, err := filepath.Abs(filepath.Join("testdata", "python", "load.py"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"deepfm", "dcn-mix", "dcnv2-parallel"} {
		original, err := filepath.Abs(filepath.Join(goldenDir, name+".pth"))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		file := func(name string) string { return filepath.Join(dir, name) }
		shaver(t, nil, "dataset", "import", "csv", "--ids", "global", "--train", filepath.Join(goldenDir, name+".rows.csv"), "--model", original, "--out", file("rows"))
		shaver(t, nil, "score", "--model", original, "--dataset", file("rows"), "--splits", "train", "--baseline", "codebook", "--out", file("s.arrow"))
		shaver(t, nil, "prune", "--model", original, "--scores", file("s.arrow"), "--sparsity", "0.6", "--out", file("pruned.safetensors"))
		shaver(t, nil, "model", "convert", file("pruned.safetensors"), file("dense.safetensors"), "--dense")
		out, err := exec.Command(python, script, original, lines, dir).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		got := map[string]string{}
		for line := range strings.Lines(string(out)) {
			key, sum, _ := strings.Cut(strings.TrimSpace(line), " ")
			got[key] = sum
		}
		pruned, err := checkpoint.Read(file("pruned.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for key, tensor := range pruned.Tensors {
			want[key] = fmt.Sprintf("%x", sha256.Sum256(tensor.Data))
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: PyTorch's model has the digests %v, the file has %v", name, got, want)
		}
	}
}

// pythonWithTorch returns a Python with PyTorch. It prefers that of Debian.
func pythonWithTorch(t *testing.T) string {
	t.Helper()
	tried := []string{"/usr/bin/python3", "python3"}
	i := slices.IndexFunc(tried, func(python string) bool { return exec.Command(python, "-c", "import torch").Run() == nil })
	if i < 0 {
		t.Skip("no Python with PyTorch: apt-get install python3-torch")
	}
	return tried[i]
}
