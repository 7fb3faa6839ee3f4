package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/infer"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/jobs/scores"
)

// encodedRows writes a file of random rows for fields of the given sizes.
func encodedRows(t *testing.T, path string, rows int, sizes ...int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	b.WriteString("label")
	for j := range sizes {
		fmt.Fprintf(&b, ",f%d", j)
	}
	for range rows {
		fmt.Fprintf(&b, "\n%d", r.IntN(2))
		for _, size := range sizes {
			fmt.Fprintf(&b, ",%d", r.IntN(size))
		}
	}
	if err := os.WriteFile(path, append(b.Bytes(), '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}

// refusedLine runs the program and expects that it ends with code 42 and one line that
// contains want.
func refusedLine(t *testing.T, want string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "shaver", args...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	code, err := exitCode(c.Run())
	if line := stderr.String(); err != nil || code != 42 || !strings.Contains(line, want) || strings.Count(line, "\n") != 1 {
		t.Errorf("shaver %q ended with code %d (%v): %s, expected 42 and %q", args, code, err, line, want)
	}
}

// A model with tables of two widths that was exported to ONNX goes through import,
// evaluation, plan, scores, sweep and prune. The file that convert writes gives the same
// scores.
func TestGraphEndToEnd(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	export := filepath.Join("..", "..", "testdata", "onnx", "ncf.dynamo.onnx")
	encodedRows(t, path("rows.csv"), 300, 7, 11)
	command(t, "shaver", "dataset", "import", "csv", "--train", path("rows.csv"), "--split", "8:1:1", "--model", export, "--out", path("data"))
	command(t, "shaver", "model", "convert", export, path("ncf.safetensors"))
	var measured [2]struct {
		LogLoss float64 `json:"log_loss"`
		Rows    int     `json:"rows"`
	}
	for i, file := range []string{export, path("ncf.safetensors")} {
		shaver(t, &measured[i], "evaluate", "--model", file, "--dataset", path("data"))
	}
	if measured[0] != measured[1] || measured[0].Rows == 0 {
		t.Errorf("the export gives %+v, the converted file %+v", measured[0], measured[1])
	}
	for _, file := range []string{export, path("ncf.safetensors")} {
		command(t, "shaver", "plan", "--model", file, "--dataset", path("data"), "--estimator", "permutation")
		command(t, "shaver", "score", "--model", file, "--dataset", path("data"), "--splits", "train", "--estimator", "permutation", "--passes", "2", "--out", path(filepath.Base(file)+".arrow"))
	}
	first, err := os.ReadFile(path("ncf.dynamo.onnx.arrow"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(path("ncf.safetensors.arrow"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("the export and the converted file have different scores")
	}
	var scores struct {
		EfficiencyError *float64 `json:"efficiency_error"`
	}
	shaver(t, &scores, "scores", "inspect", path("ncf.dynamo.onnx.arrow"))
	if scores.EfficiencyError == nil || math.Abs(*scores.EfficiencyError) > 1e-6 {
		t.Errorf("the efficiency error is %v", scores.EfficiencyError)
	}
	command(t, "shaver", "sweep", "--model", export, "--scores", path("ncf.dynamo.onnx.arrow"), "--dataset", path("data"), "--values", "int8")
	prunedGraph(t, folder, export, path("ncf.dynamo.onnx.arrow"), path("data"))
}

// prunedGraph prunes an exported model to both forms and all encodings, and compares what
// the files give.
func prunedGraph(t *testing.T, folder, export, scores, data string) {
	t.Helper()
	path := func(name string) string { return filepath.Join(folder, name) }
	type measures struct {
		LogLoss float64 `json:"log_loss"`
		AUC     float64 `json:"auc"`
	}
	measured := map[string]measures{}
	for name, flags := range map[string][]string{
		"dense": {"--dense"}, "compact": nil, "half": {"--values", "float16"}, "bytes": {"--values", "int8"},
		"calibrated": {"--calibrate", "--dataset", data},
	} {
		file := path(name + ".safetensors")
		command(t, "shaver", append([]string{"prune", "--model", export, "--scores", scores, "--sparsity", "0.5", "--out", file}, flags...)...)
		var m measures
		shaver(t, &m, "evaluate", "--model", file, "--dataset", data)
		measured[name] = m
		served, err := infer.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		served.Close()
	}
	want := measured["compact"]
	if want.LogLoss == 0 || measured["dense"] != want || measured["calibrated"] == want {
		t.Errorf("the files measure %+v", measured)
	}
	for _, name := range []string{"half", "bytes"} {
		if math.Abs(measured[name].LogLoss-want.LogLoss) > 1e-3 {
			t.Errorf("%s: %+v, expected %+v up to rounding", name, measured[name], want)
		}
	}
	var small, whole struct {
		Digest     string `json:"digest"`
		Parameters int    `json:"parameters"`
		Kept       *int   `json:"kept"`
	}
	shaver(t, &small, "model", "inspect", path("compact.safetensors"))
	shaver(t, &whole, "model", "inspect", path("dense.safetensors"))
	if small.Digest != whole.Digest || small.Kept == nil || *small.Kept*2 != small.Parameters || whole.Kept != nil {
		t.Errorf("inspect prints %+v for the compact file and %+v for the dense one", small, whole)
	}
	command(t, "shaver", "prune", "--model", export, "--scores", scores, "--bytes", "1000000", "--out", path("budget.safetensors"))
	command(t, "shaver", "model", "convert", path("dense.safetensors"), path("small.safetensors"))
	command(t, "shaver", "model", "convert", path("small.safetensors"), path("again.safetensors"), "--dense")
	first, err := os.ReadFile(path("dense.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(path("again.safetensors"))
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("the dense file changes when it is converted to the compact form and back (%v)", err)
	}
}

// An AutoInt with dense inputs goes through import, scores, prune and evaluation.
func TestGraphWithDenseInputs(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	export := filepath.Join("..", "..", "testdata", "onnx", "torch-rechub-autoint.dynamo.onnx")
	var facts struct {
		Fields []struct {
			Name string `json:"name"`
			Rows int    `json:"rows"`
		} `json:"fields"`
		Dense []struct {
			Name string `json:"name"`
		} `json:"dense"`
	}
	shaver(t, &facts, "model", "inspect", export)
	if len(facts.Dense) == 0 {
		t.Fatal("the model has no dense inputs")
	}
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	b.WriteString("label")
	args := []string{"dataset", "import", "csv", "--train", path("rows.csv"), "--split", "8:1:1", "--model", export, "--out", path("data")}
	for _, f := range facts.Fields {
		fmt.Fprintf(&b, ",%s", f.Name)
	}
	for _, d := range facts.Dense {
		fmt.Fprintf(&b, ",%s", d.Name)
		args = append(args, "--dense", d.Name)
	}
	for range 300 {
		fmt.Fprintf(&b, "\n%d", r.IntN(2))
		for _, f := range facts.Fields {
			fmt.Fprintf(&b, ",%d", r.IntN(f.Rows))
		}
		for range facts.Dense {
			fmt.Fprintf(&b, ",%.3f", r.Float64())
		}
	}
	if err := os.WriteFile(path("rows.csv"), append(b.Bytes(), '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, "shaver", args...)
	command(t, "shaver", "score", "--model", export, "--dataset", path("data"), "--splits", "train", "--estimator", "permutation", "--out", path("scores.arrow"))
	prunedGraph(t, folder, export, path("scores.arrow"), path("data"))
}

// An AutoInt that was exported to ONNX is scored exactly.
func TestGraphExact(t *testing.T) {
	folder := t.TempDir()
	export := filepath.Join("..", "..", "testdata", "onnx", "recbole-autoint.dynamo.onnx")
	var facts struct {
		Fields []struct {
			Rows int `json:"rows"`
		} `json:"fields"`
	}
	shaver(t, &facts, "model", "inspect", export)
	var sizes []int
	for _, f := range facts.Fields {
		sizes = append(sizes, f.Rows)
	}
	encodedRows(t, filepath.Join(folder, "rows.csv"), 10, sizes...)
	command(t, "shaver", "dataset", "import", "csv", "--train", filepath.Join(folder, "rows.csv"), "--split", "8:1:1", "--model", export, "--out", filepath.Join(folder, "data"))
	out := filepath.Join(folder, "exact.arrow")
	command(t, "shaver", "score", "--model", export, "--dataset", filepath.Join(folder, "data"), "--estimator", "exact", "--out", out)
	var scores struct {
		EfficiencyError *float64 `json:"efficiency_error"`
	}
	shaver(t, &scores, "scores", "inspect", out)
	if scores.EfficiencyError == nil || math.Abs(*scores.EfficiencyError) > 1e-6 {
		t.Errorf("the efficiency error is %v", scores.EfficiencyError)
	}
}

// The estimators that need derivatives score exported models whose heads are not ours. The
// scores have the same bytes for one worker and for two, and an audit compares them with
// walks.
func TestGraphDerivatives(t *testing.T) {
	long.Test(t)
	for _, name := range []string{"recbole-autoint.dynamo", "recbole-xdeepfm.legacy", "fuxictr-fibinet.dynamo", "fuxictr-pnn.legacy", "ncf.external"} {
		folder := t.TempDir()
		path := func(name string) string { return filepath.Join(folder, name) }
		export := filepath.Join("..", "..", "testdata", "onnx", name+".onnx")
		var facts struct {
			Fields []struct {
				Rows int `json:"rows"`
			} `json:"fields"`
		}
		shaver(t, &facts, "model", "inspect", export)
		var sizes []int
		for _, f := range facts.Fields {
			sizes = append(sizes, f.Rows)
		}
		encodedRows(t, path("rows.csv"), 400, sizes...)
		command(t, "shaver", "dataset", "import", "csv", "--train", path("rows.csv"), "--split", "8:1:1", "--model", export, "--out", path("data"))
		for _, estimator := range []string{"multilinear", "taylor"} {
			var files [2][]byte
			for i := range files {
				out := path(fmt.Sprintf("%s-%d.arrow", estimator, i+1))
				command(t, "shaver", "score", "--model", export, "--dataset", path("data"), "--estimator", estimator, "--workers", fmt.Sprint(i+1), "--rows-per-shard", "50", "--out", out)
				data, err := os.ReadFile(out)
				if err != nil {
					t.Fatal(err)
				}
				files[i] = data
			}
			if !bytes.Equal(files[0], files[1]) {
				t.Errorf("%s: %s has other bytes with two workers", name, estimator)
			}
			f, err := scores.Read(path(estimator + "-1.arrow"))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(f.Phi, func(v float64) bool { return math.Abs(v) > 1e-4 }) {
				t.Errorf("%s: %s has no value above 1e-4", name, estimator)
			}
		}
		command(t, "shaver", "score", "--model", export, "--dataset", path("data"), "--estimator", "multilinear", "--audit", "0.5", "--out", path("audit.arrow"))
		command(t, "shaver", "plan", "--model", export, "--dataset", path("data"), "--estimator", "taylor")
	}
}

// scoresOf scores all rows and returns the bytes and the content of the scores file.
func scoresOf(t *testing.T, file, data, estimator string) ([]byte, *scores.File) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "scores.arrow")
	command(t, "shaver", "score", "--model", file, "--dataset", data, "--estimator", estimator, "--out", out)
	written, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	f, err := scores.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	return written, f
}

// A model has the same scores whether it is read from a checkpoint or from an .onnx file.
// If the tensors of the checkpoint have our names, even the digest of the model is the same,
// and so is the whole scores file. Otherwise only the digest differs, and what follows from
// it. On the generic path the scores agree within 1e-5.
func TestRecognizedScores(t *testing.T) {
	long.Test(t)
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	families := filepath.Join("..", "..", "testdata", "families")
	encodedRows(t, path("rows.csv"), 200, 7, 11, 5, 4, 3)
	for _, name := range []string{"own-deepfm", "pytorch-fm-deepfm-state"} {
		saved, err := os.ReadFile(filepath.Join(families, name+".pth"))
		if err != nil {
			t.Fatal(err)
		}
		pth, export, generic := path(name+".pth"), filepath.Join(families, name+".onnx"), path(name+"-generic.safetensors")
		for file, content := range map[string]string{pth: string(saved), pth + ".json": `{"kind": "deepfm", "field_dims": [7, 11, 5, 4, 3]}`} {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, err := checkpoint.ReadPart(export, checkpoint.Options{Generic: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := checkpoint.WriteDense(generic, c); err != nil {
			t.Fatal(err)
		}
		data := path(name)
		command(t, "shaver", "dataset", "import", "csv", "--train", path("rows.csv"), "--split", "8:1:1", "--model", export, "--out", data)
		for _, estimator := range []string{"permutation", "multilinear", "taylor"} {
			first, want := scoresOf(t, pth, data, estimator)
			second, got := scoresOf(t, export, data, estimator)
			if same := bytes.Equal(first, second); same != (name == "own-deepfm") {
				t.Errorf("%s, %s: the scores files of the .pth and the .onnx file are the same: %v", name, estimator, same)
			}
			if !reflect.DeepEqual(want.Result, got.Result) || !want.Baseline.Equal(&got.Baseline) {
				t.Errorf("%s, %s: the .pth and the .onnx file have different scores", name, estimator)
			}
			_, slow := scoresOf(t, generic, data, estimator)
			if len(slow.Phi) == 0 || len(slow.Phi) != len(want.Phi) || !slices.Equal(slow.Count, want.Count) {
				t.Fatalf("%s: the generic path has %d values, the fast path %d", name, len(slow.Phi), len(want.Phi))
			}
			for i, v := range slow.Phi {
				if !(math.Abs(v-want.Phi[i]) <= 1e-5) {
					t.Errorf("%s: entry %d has the value %v on the generic path and %v on the fast path", name, i, v, want.Phi[i])
				}
			}
		}
	}
}

// A recognized model is pruned like a state dict.
func TestRecognizedPruned(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	export := filepath.Join("..", "..", "testdata", "onnx", "deepctr-torch-dcn-matrix.legacy.onnx")
	encodedRows(t, path("rows.csv"), 200, 7, 11, 5, 4, 3)
	command(t, "shaver", "dataset", "import", "csv", "--train", path("rows.csv"), "--split", "8:1:1", "--model", export, "--out", path("data"))
	command(t, "shaver", "score", "--model", export, "--dataset", path("data"), "--out", path("scores.arrow"))
	command(t, "shaver", "sweep", "--model", export, "--scores", path("scores.arrow"), "--dataset", path("data"))
	var losses [2]struct {
		LogLoss float64 `json:"log_loss"`
	}
	for i, form := range []string{"--dense=true", "--dense=false"} {
		pruned := path(form + ".safetensors")
		command(t, "shaver", "prune", "--model", export, "--scores", path("scores.arrow"), "--sparsity", "0.5", form, "--out", pruned)
		shaver(t, &losses[i], "evaluate", "--model", pruned, "--dataset", path("data"))
	}
	if losses[0] != losses[1] || losses[0].LogLoss == 0 {
		t.Errorf("the dense and the compact file have the losses %v", losses)
	}
	model, err := infer.Open(path("--dense=false.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	model.Close()
}
