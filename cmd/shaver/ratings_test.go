package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"shaver/infer"
	"shaver/internal/base/long"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/prune/gate"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/compare"
)

// A model of ratings with two outputs, of which one is bounded by a scaled Sigmoid, goes
// through import, evaluation, scores, sweep, prune and check with the squared loss. RMSE, MAE
// and R2 are those that PyTorch measured.
func TestRatings(t *testing.T) {
	long.Test(t)
	ratings := filepath.Join("..", "..", "testdata", "ratings")
	export := filepath.Join(ratings, "ratings.onnx")
	text, err := os.ReadFile(filepath.Join(ratings, "ratings.json"))
	if err != nil {
		t.Fatal(err)
	}
	type figures struct{ RMSE, MAE, R2 float64 }
	var said struct {
		IDs     [][]int32
		Outputs map[string][]float64
		Metrics map[string]map[string]figures
	}
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	file := func(name string) string { return filepath.Join(ratings, name) }
	command(t, "shaver", "dataset", "import", "csv", "--train", file("train.csv"), "--val", file("val.csv"), "--test", file("test.csv"), "--labels", "numbers",
		"--model", export, "--model-output", "rating", "--out", path("data"))
	refusedLine(t, "it has 2 outputs: choose one of: rating, bounded", "evaluate", "--model", export, "--dataset", path("data"))
	refusedLine(t, "the labels of the dataset are numbers: expected the loss squared", "evaluate", "--model", export, "--model-output", "rating", "--dataset", path("data"), "--loss", "logistic")

	// The state of a window with a single day has the scores of an ordinary job.
	window := []string{"nightly", "score", "--model", export, "--model-output", "rating", "--dataset", path("data"), "--estimator", "exact"}
	command(t, "shaver", append(window, "--out", path("plain.arrow"))...)
	command(t, "shaver", append(window, "--state", path("state"), "--out", path("window.arrow"))...)
	plain, err := scores.Read(path("plain.arrow"))
	if err != nil {
		t.Fatal(err)
	}
	if w, err := scores.Read(path("window.arrow")); err != nil || !reflect.DeepEqual(w.Phi, plain.Phi) || w.Spec.Loss != loss.Squared || w.LossFull != plain.LossFull {
		t.Errorf("the scores of a window of ratings differ from those of a job, %v", err)
	}
	// A paired job of an unchanged model keeps all values, although it computes a sample.
	paired := append(window, "--previous", path("plain.arrow"), "--previous-model", export, "--sample", "0.5", "--out", path("paired.arrow"))
	command(t, "shaver", paired...)
	if p, err := scores.Read(path("paired.arrow")); err != nil || !reflect.DeepEqual(p.Phi, plain.Phi) || p.Lineage == nil || p.Spec.Loss != loss.Squared {
		t.Errorf("a paired job of an unchanged model of ratings has other values, %v", err)
	}
	for _, output := range []string{"rating", "bounded"} {
		chosen := func(args ...string) []string {
			return append([]string{args[0], "--model", export, "--model-output", output, "--dataset", path("data")}, args[1:]...)
		}
		for split, want := range said.Metrics {
			var found evaluation
			shaver(t, &found, chosen("evaluate", "--split", split)...)
			for name, pair := range map[string][2]float64{"RMSE": {*found.RMSE, want[output].RMSE}, "MAE": {*found.MAE, want[output].MAE}, "R2": {*found.R2, want[output].R2}} {
				if !(math.Abs(pair[0]-pair[1]) <= 1e-6) {
					t.Errorf("%s, %s: %s is %v, PyTorch has %v", output, split, name, pair[0], pair[1])
				}
			}
			if found.AUC != nil || found.LogLoss != nil {
				t.Errorf("%s: AUC %v, LogLoss %v", output, found.AUC, found.LogLoss)
			}
		}

		phi := map[string][]float64{}
		for name, flags := range map[string][]string{"exact": {"--estimator", "exact"}, "antithetic": {"--estimator", "antithetic", "--passes", "20"}, "multilinear": {"--estimator", "multilinear", "--draws", "16"}} {
			out := path(output + "-" + name + ".arrow")
			command(t, "shaver", chosen(append([]string{"score", "--splits", "train", "--out", out}, flags...)...)...)
			f, err := scores.Read(out)
			if err != nil {
				t.Fatal(err)
			}
			phi[name] = f.Phi
		}
		if off := compare.RelativeRMS(phi["antithetic"], phi["exact"]); off > .01 {
			t.Errorf("%s: the values of 20 walks and their reverses are off by %v", output, off)
		}
		// The slopes of a squared loss differ much between states, so multilinear has a bias.
		if rank := compare.Spearman(phi["multilinear"], phi["exact"]); rank < .95 {
			t.Errorf("%s: the ranks of multilinear agree with the exact ones by %v", output, rank)
		}

		by := path(output + "-antithetic.arrow")
		var swept sweep.Document
		shaver(t, &swept, chosen("sweep", "--scores", by, "--sparsities", "0.2,0.5", "--methods", "magnitude,random", "--calibrate", "--force", "--out", path("sweep.json"))...)
		if swept.Version != sweep.SquaredVersion || swept.Unpruned.AUC != nil || math.Abs(*swept.Unpruned.RMSE-said.Metrics["test"][output].RMSE) > 1e-6 {
			t.Errorf("%s: the sweep is %s and measures %+v", output, swept.Version, swept.Unpruned.Metrics)
		}
		best := &swept.Points[0]
		for i := range swept.Points {
			if p := &swept.Points[i]; p.Sparsity == best.Sparsity && *p.RMSE < *best.RMSE {
				t.Errorf("%s: %s has the RMSE %v at sparsity %v, Shapley values have %v", output, p.Method, *p.RMSE, p.Sparsity, *best.RMSE)
			}
		}
		page := path("report.html")
		command(t, "shaver", chosen("report", "--scores", by, "--sweep", path("sweep.json"), "--out", page, "--force")...)
		if html, err := os.ReadFile(page); err != nil || !bytes.Contains(html, []byte("calibrated RMSE")) || bytes.Contains(html, []byte("LogLoss")) {
			t.Errorf("%s: the page shows another loss than RMSE, %v", output, err)
		}

		shaver(t, nil, chosen("prune", "--scores", by, "--sparsity", "0.2", "--calibrate", "--out", path("calibrated.safetensors"), "--force")...)
		var calibrated evaluation
		shaver(t, &calibrated, "evaluate", "--model", path("calibrated.safetensors"), "--dataset", path("data"))
		if math.Abs(*calibrated.RMSE-*best.CalibratedRMSE) > 1e-5 {
			t.Errorf("%s: the calibrated file has the RMSE %v, the sweep %v", output, *calibrated.RMSE, *best.CalibratedRMSE)
		}
		command(t, "shaver", "prune", "--model", export, "--model-output", output, "--scores", by, "--sparsity", "0.2", "--out", path("pruned.onnx"), "--force")
		var pruned evaluation
		shaver(t, &pruned, "evaluate", "--model", path("pruned.onnx"), "--model-output", output, "--against", export, "--dataset", path("data"))
		if math.Abs(*pruned.RMSE-*best.RMSE) > 1e-9 || pruned.Against.RMSEDifference == nil || math.Abs(pruned.Against.RMSEDifference.Value-best.Difference.RMSE.Value) > 1e-9 {
			t.Errorf("%s: the .onnx file has the RMSE %v, the sweep %v", output, *pruned.RMSE, *best.RMSE)
		}
		checked := func(rise string) []string {
			return append([]string{"check", "--model", path("pruned.onnx"), "--against", export, "--model-output", output, "--dataset", path("data")}, "--split", "test", "--max-rmse-rise", rise)
		}
		var decided gate.Document
		shaver(t, &decided, checked("1")...)
		if !decided.Passed || decided.RMSE == nil || decided.AUC != nil || decided.Version != gate.SquaredVersion {
			t.Errorf("%s: the check says %+v", output, decided)
		}

		command(t, "shaver", "model", "convert", export, path("model.safetensors"), "--model-output", output, "--force")
		served, err := infer.Open(path("model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		outputs := make([]float64, len(said.IDs))
		err = served.Logits(outputs, slices.Concat(said.IDs...), nil)
		served.Close()
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range said.Outputs[output] {
			if math.Abs(outputs[i]-want) > 1e-5 {
				t.Errorf("%s: row %d has the output %v, PyTorch has %v", output, i, outputs[i], want)
			}
		}
	}
	for _, name := range []string{"predictions.csv", "predictions.parquet"} {
		command(t, "shaver", "evaluate", "--model", export, "--model-output", "rating", "--dataset", path("data"), "--predictions", path(name))
	}
	if csv, err := os.ReadFile(path("predictions.csv")); err != nil || !bytes.HasPrefix(csv, []byte("row,label,logit\n0,3.5,")) {
		t.Errorf("the predictions begin with %.40q, %v", csv, err)
	}
}
