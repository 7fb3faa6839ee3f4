package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"shaver/infer"
	"shaver/internal/app/cli"
	"shaver/internal/base/long"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/gate"
	"shaver/internal/prune/sweep"
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

// A model of two tasks is scored and pruned for both at once. The values by taylor are the weighted means of those for each
// task, whatever the workers and the shards. The pruned .onnx file has both outputs, and is checked for one task and for both. A safetensors file is the
// same model of both tasks.
func TestTasksTogether(t *testing.T) {
	long.Test(t)
	tasks := filepath.Join("..", "..", "testdata", "tasks")
	export, folder := filepath.Join(tasks, "shared-bottom.onnx"), t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	importLabels := func(labels, data string) {
		command(t, "shaver", "dataset", "import", "csv", "--raw", filepath.Join(tasks, "log.csv"), "--label", labels, "--columns", "user,item,category,city,device", "--vocabulary", filepath.Join(tasks, "vocabulary.csv"),
			"--oov", "none", "--model", export, "--model-output", "click,buy", "--out", path(data))
	}
	importLabels("click,buy", "data")
	importLabels("click", "clicks")
	score := func(task, out string, more ...string) *scores.File {
		command(t, "shaver", append([]string{"score", "--model", export, "--task", task, "--dataset", path("data"), "--splits", "train", "--estimator", "taylor", "--baseline", "zero", "--out", path(out)}, more...)...)
		f, err := scores.Read(path(out))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	both, click, buy := score("click=1,buy=.5", "both.arrow"), score("click", "click.arrow"), score("buy", "buy.arrow")
	for i, phi := range both.Phi {
		if want := (2*click.Phi[i] + buy.Phi[i]) / 3; math.Abs(phi-want) > 1e-7 {
			t.Fatalf("entry %d has the value %v, expected %v", i, phi, want)
		}
	}
	if e := both.Sampling(); e.Tasks != 2 {
		t.Errorf("standard errors are those of %d tasks, expected 2", e.Tasks)
	}
	score("click,buy", "equal.arrow")
	again := score("click=4,buy=2", "same.arrow", "--rows-per-shard", "37", "--workers", "3")
	if again.Spec.ID() != both.Spec.ID() || !slices.Equal(again.Phi, both.Phi) || !slices.Equal(again.RMS, both.RMS) {
		t.Error("the scores depend on workers or shards")
	}
	url := natsServer(t)
	worker := start(t, nil, "worker", "--nats", url, "--store", "dir:"+folder, "-v", "--log", "json")
	start(t, nil, "coordinator", "--nats", url, "--store", "dir:"+folder, "--model", export, "--task", "click=2,buy=1", "--dataset", path("data"), "--splits", "train", "--estimator", "taylor", "--baseline", "zero",
		"--kernel", both.Spec.Kernel, "--rows-per-shard", "100", "--out", path("placed.arrow"), "--log", "json").wantExit(cli.ExitDone)
	worker.signal(syscall.SIGTERM)
	worker.wantExit(cli.ExitDrained)
	wantSameFile(t, path("placed.arrow"), path("both.arrow"))
	if waited := worker.having("the task waits until its data is stored again"); len(waited) > 0 {
		t.Errorf("the worker does not find %d shards in its store", len(waited))
	}

	prune := func(out string) {
		command(t, "shaver", "prune", "--model", export, "--scores", path("both.arrow"), "--sparsity", ".3", "--out", path(out))
	}
	prune("pruned.onnx")
	prune("pruned.safetensors")
	check := func(file, task string) *gate.Document {
		var d gate.Document
		shaver(t, &d, "check", "--model", path(file), "--against", export, "--task", task, "--dataset", path("data"), "--split", "val", "--max-auc-drop", "1", "--max-logloss-rise", "1")
		return &d
	}
	// A check of both tasks judges each one, and has the worst differences.
	of, all := []*gate.Document{check("pruned.onnx", "click"), check("pruned.onnx", "buy")}, check("pruned.onnx", "click=1,buy=.5")
	if other := check("pruned.safetensors", "click=1,buy=.5"); !reflect.DeepEqual(all.Tasks, other.Tasks) {
		t.Errorf("the .onnx file has %+v, the safetensors file %+v", all.Tasks, other.Tasks)
	}
	low, high, value := math.Inf(1), math.Inf(-1), math.Inf(1)
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }
	same := func(a, b *gate.Metric) bool {
		x, y := &a.Difference, &b.Difference
		return a.Passed == b.Passed && a.Certain == b.Certain && near(a.Model, b.Model) && near(a.Pruned, b.Pruned) && near(x.Value, y.Value) && near(*x.Low, *y.Low) && near(*x.High, *y.High)
	}
	for i, d := range of {
		if got := all.Tasks[i]; got.Task != []string{"click", "buy"}[i] || got.Rows != d.Rows || !same(got.AUC, d.AUC) || !same(got.LogLoss, d.LogLoss) {
			t.Errorf("%+v, expected %+v", got, d)
		}
		value = min(value, d.AUC.Difference.Value)
		low, high = min(low, *d.AUC.Difference.Low), max(high, *d.LogLoss.Difference.High)
	}
	if mean := (of[0].AUC.Pruned + of[1].AUC.Pruned) / 2; !near(all.AUC.Difference.Value, value) || !near(*all.AUC.Difference.Low, low) || !near(*all.LogLoss.Difference.High, high) || math.Abs(all.AUC.Pruned-mean) > 1e-12 {
		t.Errorf("AUC %+v and LogLoss %+v, expected the lowest end %v, the highest end %v and the mean %v", all.AUC, all.LogLoss, low, high, mean)
	}
	command(t, "shaver", "sweep", "--model", export, "--scores", path("both.arrow"), "--models", path("pruned.onnx"), "--dataset", path("data"), "--split", "val", "--out", path("sweep.json"))
	swept, err := sweep.Read(path("sweep.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range swept.Points {
		lowest := math.Inf(1)
		for k, s := range swept.Slices {
			if s.Task != "" {
				lowest = min(lowest, *p.Slices[k].Difference.AUC.Low)
			}
		}
		if *p.Difference.AUC.Low != lowest {
			t.Errorf("%s at %v: the AUC ends at %v, that of the worst task at %v", p.Method, p.Sparsity, *p.Difference.AUC.Low, lowest)
		}
	}

	scoring := func(args ...string) []string {
		return append([]string{"score", "--model", export, "--dataset", path("data"), "--out", path("none.arrow")}, args...)
	}
	for want, args := range map[string][]string{
		"--task and --model-output exclude each other: write the output after the label, as in --task buy:click": scoring("--task", "buy", "--model-output", "click"),
		"there is no output like, expected one of: click, buy":                                                   scoring("--task", "click,buy:like"),
		`the dataset has the labels ["click" "buy"]: import the rows with --label click,buy,like`:                scoring("--task", "like:buy"),
		"expected a weight above 0":                                                                      scoring("--task", "buy=0"),
		"the values of fields are those of one task":                                                     scoring("--task", "click,buy", "--players", "fields"),
		"the dataset has one label without a name":                                                       {"score", "--model", export, "--task", "click", "--dataset", path("clicks"), "--out", path("none.arrow")},
		"it is a model of 2 tasks, expected 1: buy=1":                                                    {"evaluate", "--model", path("pruned.safetensors"), "--task", "buy", "--dataset", path("data")},
		"expected one label: rows of several tasks have no common order":                                 {"evaluate", "--model", export, "--task", "click,buy", "--dataset", path("data")},
		"pruned.safetensors is a model of several tasks: name their labels, as in --task click=1,buy=.5": {"evaluate", "--model", path("pruned.safetensors"), "--dataset", path("data")},
		"click.arrow has the tasks click=1, expected click=2,buy=1":                                      {"sweep", "--model", export, "--scores", path("both.arrow"), "--scores", path("click.arrow"), "--dataset", path("data"), "--split", "val"},
		"give --task buy in place of --model-output":                                                     {"evaluate", "--model", export, "--model-output", "buy", "--dataset", path("data")},
		"compress judges by the first label":                                                             {"compress", "--model", export, "--model-output", "click", "--scores", path("buy.arrow"), "--dataset", path("data"), "--out", path("none.safetensors")},
		"--task: a state keeps the sums of the first label":                                              {"nightly", "score", "--model", export, "--task", "buy", "--dataset", path("data"), "--state", path("state"), "--out", path("none.arrow")},
		"the scores were computed for another model":                                                     {"prune", "--model", export, "--model-output", "buy", "--scores", path("both.arrow"), "--sparsity", ".5", "--out", path("none.onnx")},
		"its output click,buy is computed from others":                                                   {"prune", "--model", export, "--scores", path("both.arrow"), "--sparsity", ".5", "--calibrate", "--dataset", path("data"), "--out", path("none.onnx")},
		"has the tasks click=1,buy=1, expected click=2,buy=1":                                            {"sweep", "--model", export, "--scores", path("both.arrow"), "--scores", path("equal.arrow"), "--dataset", path("data"), "--split", "val"},
	} {
		c := emulated(t.Context(), "shaver", args...)
		var stderr bytes.Buffer
		c.Stderr = &stderr
		if err := c.Run(); err == nil || !strings.Contains(stderr.String(), want) {
			t.Errorf("shaver %q: %v: %s, expected %q", args, err, &stderr, want)
		}
	}
}
