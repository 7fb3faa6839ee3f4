package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"shaver/infer"
)

// Each task of a model with two outputs goes through convert, import, scores, sweep, prune
// and evaluation, with its own label, and is served. The unpruned model has the
// probabilities of onnxruntime.
func TestTwoTasks(t *testing.T) {
	tasks := filepath.Join("..", "..", "testdata", "tasks")
	export := filepath.Join(tasks, "shared-bottom.onnx")
	text, err := os.ReadFile(filepath.Join(tasks, "shared-bottom.json"))
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		IDs     [][]int32
		Outputs map[string][]float64
	}
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	refusedLine(t, "it has 2 outputs: choose one of: click, buy", "evaluate", "--model", export, "--dataset", "none")
	var digests []string
	for _, task := range []string{"click", "buy"} {
		folder := t.TempDir()
		path := func(name string) string { return filepath.Join(folder, name) }
		command(t, "shaver", "model", "convert", export, path("model.safetensors"), "--model-output", task)
		var facts struct {
			Digest string `json:"digest"`
		}
		shaver(t, &facts, "model", "inspect", path("model.safetensors"))
		digests = append(digests, facts.Digest)

		served, err := infer.Open(path("model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		logits := make([]float64, len(said.IDs))
		err = served.Logits(logits, slices.Concat(said.IDs...), nil)
		served.Close()
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range said.Outputs[task] {
			if got := infer.Probability(logits[i]); math.Abs(got-want) > 1e-6 {
				t.Errorf("%s: row %d has the probability %v, onnxruntime gives %v", task, i, got, want)
			}
		}

		command(t, "shaver", "dataset", "import", "csv", "--raw", filepath.Join(tasks, "log.csv"), "--label", task, "--columns", "user,item,category,city,device", "--vocabulary", filepath.Join(tasks, "vocabulary.csv"),
			"--oov", "none", "--model", path("model.safetensors"), "--out", path("data"))
		var before struct {
			AUC float64 `json:"auc"`
		}
		shaver(t, &before, "evaluate", "--model", path("model.safetensors"), "--dataset", path("data"), "--split", "train")
		if before.AUC < .6 { // with the labels of the other task it is below .5
			t.Errorf("%s: AUC %v", task, before.AUC)
		}
		command(t, "shaver", "score", "--model", path("model.safetensors"), "--dataset", path("data"), "--splits", "train", "--estimator", "permutation", "--out", path("scores.arrow"))
		command(t, "shaver", "sweep", "--model", path("model.safetensors"), "--scores", path("scores.arrow"), "--dataset", path("data"))
		prunedGraph(t, folder, path("model.safetensors"), path("scores.arrow"), path("data"))
	}
	if digests[0] == digests[1] {
		t.Error("both tasks have the same model")
	}
}
