// Package infertest has models and rows for tests of programs that use package infer.
package infertest

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shaver/infer"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/onnx/dissect"
)

// Words returns a baseline with 2, 3, ... words for the spans of a in turn, all of different values, which the rows read in turn.
func Words(a *model.Architecture) model.Baseline {
	b := a.Zero()
	for j, s := range a.Spans() {
		words := 2 + j%3
		b.Words, b.Values = append(b.Words, words), append(b.Values, make([]float32, (words-1)*s.Dim)...)
		for i := range s.Rows {
			b.Numbers = append(b.Numbers, uint8(i%words))
		}
	}
	for i := range b.Values {
		b.Values[i] = float32(i)/64 - .25
	}
	for _, s := range a.Spans() {
		for _, r := range s.Sharers {
			copy(b.Values[r.Baseline:], b.Values[s.Baseline:][:s.Dim])
		}
	}
	return b
}

// Models returns the paths of compact files by name, without half of their entries: a DeepFM with several words for what is
// dropped, and an AutoInt that has dense inputs. testdata is the folder of that name at the top of the module.
func Models(t testing.TB, testdata string) map[string]string {
	t.Helper()
	dir, paths := t.TempDir(), map[string]string{}
	for name, source := range map[string]string{"deepfm": "golden/deepfm.pth", "autoint": "onnx/deepctr-torch-autoint.dynamo.onnx"} {
		c, err := checkpoint.ReadPart(filepath.Join(testdata, filepath.FromSlash(source)), checkpoint.Options{Generic: true, ONNX: dissect.Options{}})
		if err != nil {
			t.Fatal(err)
		}
		dropped := make([]bool, c.Architecture.Parameters())
		for i := range dropped {
			dropped[i] = i%2 == 1
		}
		baseline := c.Architecture.Zero()
		if name == "deepfm" {
			baseline = Words(&c.Architecture)
		}
		paths[name] = filepath.Join(dir, name+".safetensors")
		if _, err := checkpoint.WriteCompact(paths[name], c, dropped, baseline, compact.Float32); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// Rows returns n rows of the model in the file at path, and their logits by package infer.
func Rows(t testing.TB, path string, n int) (ids []int32, dense []float32, logits []float64) {
	t.Helper()
	m, err := infer.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r := rand.New(rand.NewPCG(3, 4))
	lengths := m.Lengths()
	for range n {
		for j, size := range m.Sizes() {
			for range lengths[j] {
				ids = append(ids, r.Int32N(int32(size)))
			}
		}
		for range m.DenseInputs() {
			dense = append(dense, float32(r.NormFloat64()))
		}
	}
	logits = make([]float64, n)
	if err := m.Logits(logits, ids, dense); err != nil {
		t.Fatal(err)
	}
	return ids, dense, logits
}

// Program returns the path of a program. If it is missing, the test is skipped, but fails on CI.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("required on CI: %v", err)
	}
	if err != nil {
		t.Skip(err)
	}
	return path
}

// Go runs the go command with more environment variables, such as GOOS=js, and returns what it prints.
func Go(t testing.TB, environment []string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", args...)
	c.Env = append(os.Environ(), environment...)
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("go %q: %v\n%s", args, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}
