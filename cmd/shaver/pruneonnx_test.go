package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
			refused("--values is for the compact safetensors file", append(prune, "--values", "int8", "--out", path("new.onnx"))...)
			refused("--compact-onnx is now --dense=false", append(prune, "--compact-onnx", "--out", path("new.onnx"))...)
			refused("--bytes is a budget for the compact safetensors file", "prune", "--model", export, "--scores", path("s.arrow"), "--bytes", "10", "--out", path("new.onnx"))
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
