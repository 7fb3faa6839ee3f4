package main

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
)

// prunable makes the dataset and the scores of an exported model in a folder.
func prunable(t *testing.T, export, folder string, sizes ...int) {
	t.Helper()
	path := func(name string) string { return filepath.Join(folder, name) }
	encodedRows(t, path("rows.csv"), 200, sizes...)
	command(t, "shaver", "dataset", "import", "csv", "--train", path("rows.csv"), "--split", "8:1:1", "--model", export, "--out", path("data"))
	command(t, "shaver", "score", "--model", export, "--dataset", path("data"), "--estimator", "permutation", "--passes", "1", "--baseline", "codebook", "--out", path("s.arrow"))
}

// failure runs the program, and returns what it writes to standard error and its exit code.
func failure(t *testing.T, args ...string) (message string, code int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "shaver", args...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	code, err := exitCode(c.Run())
	if err != nil {
		t.Fatal(err)
	}
	return stderr.String(), code
}

// A pruned .onnx file is the same model as the pruned dense file, for graphs with external
// data and with infinite masks, and for a recognized model. It is not replaced without --force, and neither are
// external data.
func TestPruneONNX(t *testing.T) {
	exports := filepath.Join("..", "..", "testdata", "onnx")
	for _, c := range []struct {
		name     string
		external bool
		sizes    []int
	}{{"ncf.external.onnx", true, []int{7, 11}}, {"pytorch-fm-deepfm.legacy.onnx", false, []int{7, 11, 5, 4, 3}}, {"masked-fignn.dynamo.onnx", false, []int{7, 11, 5, 4, 3}}} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			path := func(name string) string { return filepath.Join(folder, name) }
			export := filepath.Join(exports, c.name)
			prunable(t, export, folder, c.sizes...)
			prune := []string{"prune", "--model", export, "--scores", path("s.arrow"), "--sparsity", "0.8"}
			command(t, "shaver", append(prune, "--dense", "--out", path("dense.safetensors"))...)
			command(t, "shaver", append(prune, "--out", path("pruned.onnx"))...)
			command(t, "shaver", append(prune, "--dense=false", "--out", path("compact.onnx"))...)
			want, err := checkpoint.Read(path("dense.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"pruned.onnx", "compact.onnx"} {
				got, err := checkpoint.Read(path(name))
				if err != nil {
					t.Fatal(err)
				}
				if got.Digest() != want.Digest() {
					t.Errorf("%s has the digest %s, expected %s", name, got.Digest(), want.Digest())
				}
				if _, err := os.Stat(path(name + ".data")); (err == nil) != c.external {
					t.Errorf("external data of %s: %v", name, err)
				}
			}
			refused := func(text string, args ...string) {
				t.Helper()
				message, code := failure(t, args...)
				if code != 2 || !strings.Contains(message, text) {
					t.Errorf("shaver %q ended with code %d: %s, expected 2 and %q", args, code, message, text)
				}
			}
			refused("already exists", append(prune, "--out", path("pruned.onnx"))...)
			command(t, "shaver", append(prune, "--force", "--out", path("pruned.onnx"))...)
			if c.external {
				if err := os.WriteFile(path("other.onnx.data"), []byte("mine"), 0o600); err != nil {
					t.Fatal(err)
				}
				refused("other.onnx.data: it already exists", append(prune, "--out", path("other.onnx"))...)
			}
			refused("--values is for the compact file", append(prune, "--values", "int8", "--dense", "--out", path("new.onnx"))...)
			refused("--compact-onnx is now --dense=false", append(prune, "--compact-onnx", "--out", path("new.onnx"))...)
			budget := "the model without any embedding entry takes"
			if c.external {
				budget = "has external data: a budget in bytes is for a single file"
			}
			refused(budget, "prune", "--model", export, "--scores", path("s.arrow"), "--bytes", "10", "--out", path("new.onnx"))
			refused("is not an .onnx file: an .onnx file is written from an .onnx file only", "model", "convert", path("dense.safetensors"), path("new.onnx"))
			refused("it is an input of this command", "model", "convert", path("pruned.onnx"), path("pruned.onnx"), "--force")
			if _, err := os.Stat(path("new.onnx")); !os.IsNotExist(err) {
				t.Errorf("a refused command wrote a file: %v", err)
			}
		})
	}
}

// Without pruning, convert writes the same bytes, and the external data of the file.
func TestConvertONNX(t *testing.T) {
	exports := filepath.Join("..", "..", "testdata", "onnx")
	for _, name := range []string{"keras.onnx", "fuxictr-deepfm.external.onnx"} {
		out := filepath.Join(t.TempDir(), name)
		command(t, "shaver", "model", "convert", filepath.Join(exports, name), out)
		for _, extension := range []string{"", ".data"} {
			want, err := os.ReadFile(filepath.Join(exports, name) + extension)
			if os.IsNotExist(err) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(out + extension); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s%s has other bytes: %v", name, extension, err)
			}
		}
	}
}

// An .onnx file with encoded values has the logits of the safetensors file of the same encoding, and is smaller, the fewer bits it has. A budget in bytes is
// that of the .onnx file.
func TestPruneONNXValues(t *testing.T) {
	long.Test(t)
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	const features = 20000
	encodedRows(t, path("rows.csv"), 40000, features, features)
	export := path("model.onnx")
	if err := os.WriteFile(export, steepGraph(features, false), 0o666); err != nil {
		t.Fatal(err)
	}
	command(t, "shaver", "dataset", "import", "csv", "--train", path("rows.csv"), "--split", "8:1:1", "--model", export, "--out", path("data"))
	command(t, "shaver", "score", "--model", export, "--dataset", path("data"), "--estimator", "permutation", "--passes", "1", "--splits", "train", "--baseline", "codebook", "--out", path("s.arrow"))
	logits := func(model string) []float64 {
		command(t, "shaver", "evaluate", "--model", model, "--dataset", path("data"), "--predictions", path("p.csv"), "--force")
		text, err := os.ReadFile(path("p.csv"))
		if err != nil {
			t.Fatal(err)
		}
		var all []float64
		for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
			z, err := strconv.ParseFloat(strings.Split(line, ",")[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, z)
		}
		return all
	}
	size := func(name string) int64 {
		info, err := os.Stat(path(name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	prune := []string{"prune", "--model", export, "--scores", path("s.arrow")}
	last := size("model.onnx")
	for _, values := range []string{"float32", "float16", "int8", "auto"} {
		args := append(slices.Clone(prune), "--sparsity", "0.8", "--values", values)
		if values == "auto" {
			args = append(args, "--dataset", path("data"))
		}
		command(t, "shaver", append(slices.Clone(args), "--out", path(values+".onnx"))...)
		command(t, "shaver", append(slices.Clone(args), "--out", path(values+".safetensors"))...)
		if now := size(values + ".onnx"); now >= last {
			t.Errorf("%s takes %d bytes, and what has more bits %d", values, now, last)
		} else {
			last = now
		}
		if values == "auto" {
			continue // which chooses the bits for the bytes of each form
		}
		want := logits(path(values + ".safetensors"))
		for i, z := range logits(path(values + ".onnx")) {
			if math.Abs(z-want[i]) > 1e-6*max(1, math.Abs(z)) {
				t.Fatalf("%s: row %d has the logit %v, expected %v", values, i, z, want[i])
			}
		}
	}
	refusedLine(t, "table table_a is compact, and an .onnx file does not get its entries back", "model", "convert", path("int8.onnx"), path("dense.onnx"), "--dense")
	command(t, "shaver", "model", "convert", path("int8.onnx"), path("copy.onnx"))
	for _, values := range []string{"float32", "auto"} {
		budget := size(values+".onnx") * 9 / 10
		args := append(slices.Clone(prune), "--bytes", strconv.FormatInt(budget, 10), "--values", values, "--out", path("bytes.onnx"), "--force")
		if values == "auto" {
			args = append(args, "--dataset", path("data"))
		}
		command(t, "shaver", args...)
		if now := size("bytes.onnx"); now > budget || now < budget-budget/20-100 {
			t.Errorf("%s: the file has %d bytes, expected at most %d", values, now, budget)
		}
	}
}
