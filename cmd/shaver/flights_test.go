package main

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/app/launch"
	"shaver/internal/base/long"
	"shaver/internal/prune/sweep"
)

// TestFlights needs the dataset of real flights. SHAVER_LONG=2 adds the tests that take minutes.
func TestFlights(t *testing.T) {
	long.Test(t)
	shared(t, "data", "flights")
	t.Run("metrics", testFlightsMetrics)
	t.Run("pruning", testFlightsPruning)
	t.Run("retrained", testFlightsRetrained)
	if long.Hours() {
		t.Run("methods", testFlightsMethods)
		t.Run("intervals", testFlightsIntervals)
	}
}

// importFlights imports the dataset of real flights.
func importFlights(t *testing.T) (flights, dir string) {
	t.Helper()
	flights, dir = shared(t, "data", "flights"), filepath.Join(t.TempDir(), "flights")
	file := func(name string) string { return filepath.Join(flights, name) }
	shaver(t, nil, "dataset", "import", "csv", "--ids", "local", "--train", file("train.csv.gz"), "--val", file("val.csv.gz"), "--test", file("test.csv.gz"),
		"--model", file("deepfm.pth"), "--out", dir)
	return flights, dir
}

// The command evaluate measures what PyTorch measured.
func testFlightsMetrics(t *testing.T) {
	flights, dir := importFlights(t)
	for _, name := range []string{"deepfm", "dcn-mix"} {
		var want map[string]struct {
			AUC     float64 `json:"auc"`
			LogLoss float64 `json:"log_loss"`
		}
		readJSON(t, filepath.Join(flights, name+".metrics.json"), &want)
		var found evaluation
		shaver(t, &found, "evaluate", "--model", filepath.Join(flights, name+".pth"), "--dataset", dir, "--split", "test")
		auc, loss := *found.AUC-want["test"].AUC, *found.LogLoss-want["test"].LogLoss
		t.Logf("%s: AUC %.6f, LogLoss %.6f: %+.2g and %+.2g off PyTorch", name, *found.AUC, *found.LogLoss, auc, loss)
		if !(math.Abs(auc) <= 1e-4) || !(math.Abs(loss) <= 1e-5) {
			t.Errorf("%s: expected AUC %v within 1e-4 and LogLoss %v within 1e-5", name, want["test"].AUC, want["test"].LogLoss)
		}
	}
}

// Shapley values beat magnitude on real data, through all commands. With the portable
// kernel a core needs about 10 ms for a row, so the test scores 1% of the rows, which is
// enough. With SHAVER_LONG=2 it scores 5%.
func testFlightsPruning(t *testing.T) {
	sample := "0.01"
	if long.Hours() {
		sample = "0.05"
	}
	flights, dir := importFlights(t)
	out := t.TempDir()
	modelFile, scoresFile := filepath.Join(flights, "deepfm.pth"), filepath.Join(out, "s.arrow")
	var report launch.JobReport
	shaver(t, &report, "score", "--model", modelFile, "--dataset", dir, "--baseline", "codebook", "--splits", "train", "--sample", sample, "--seed", "1", "--out", scoresFile)
	t.Logf("scored %d rows in %.1f s, %.1f of CPU; mean loss %.4f, %.4f empty; efficiency error %.2g",
		report.Rows, report.Seconds, report.CPUSeconds, report.LossFull, *report.LossEmpty, *report.EfficiencyError)

	pruned := filepath.Join(out, "pruned.safetensors")
	var cut pruning
	shaver(t, &cut, "prune", "--model", modelFile, "--scores", scoresFile, "--sparsity", "0.9", "--out", pruned)
	const entries = 7813 * 16
	if cut.Entries != entries || cut.Dropped != entries*9/10 {
		t.Errorf("dropped %d of %d entries, expected %d of %d", cut.Dropped, cut.Entries, entries*9/10, entries)
	}
	var measured evaluation
	shaver(t, &measured, "evaluate", "--model", pruned, "--dataset", dir)

	var found sweep.Document
	shaver(t, &found, "sweep", "--model", modelFile, "--scores", scoresFile, "--dataset", dir, "--sparsities", "0.9,0.95", "--calibrate")
	points := found.Points
	if err := beats(points, 0); err != nil {
		t.Error(err)
	}
	if at := points[0]; *at.AUC != *measured.AUC || *at.LogLoss != *measured.LogLoss {
		t.Errorf("the sweep has AUC %v and LogLoss %v at 0.9, the pruned file %v and %v", *at.AUC, *at.LogLoss, *measured.AUC, *measured.LogLoss)
	}
	for _, p := range points {
		t.Logf("sparsity %g, %s: AUC %.4f, LogLoss %.4f, calibrated %.4f", p.Sparsity, p.Method, *p.AUC, *p.LogLoss, *p.CalibratedLogLoss)
	}

	// The calibration is folded into the weights, and in a DeepFM into the table and the
	// codebook too. It helps on rows to which it was not fitted.
	for _, form := range []string{"--dense=true", "--dense=false"} {
		calibrated := filepath.Join(out, "calibrated.safetensors")
		shaver(t, nil, "prune", "--model", modelFile, "--scores", scoresFile, "--sparsity", "0.9", "--calibrate", "--dataset", dir, form, "--out", calibrated)
		shaver(t, &measured, "evaluate", "--model", calibrated, "--dataset", dir)
		want := *points[0].CalibratedLogLoss
		if !(math.Abs(*measured.LogLoss-want) <= 1e-6) || !(math.Abs(*measured.AUC-*points[0].AUC) <= 1e-5) || !(want < *points[0].LogLoss-.002) {
			t.Errorf("%s: calibrated to LogLoss %v and AUC %v, the sweep has %v (%v before) and %v", form, *measured.LogLoss, *measured.AUC, want, *points[0].LogLoss, *points[0].AUC)
		}
	}
}

// beats returns an error that names the first sparsity at which the AUC of Shapley values
// does not exceed that of magnitude by more than margin.
func beats(points []sweep.Point, margin float64) error {
	auc := map[string]float64{}
	for _, p := range points {
		auc[fmt.Sprint(p.Method, p.Sparsity)] = *p.AUC
	}
	compared := 0
	for _, p := range points {
		if p.Method == sweep.Magnitude || p.Method == sweep.Nothing {
			continue
		}
		rival, ok := auc[fmt.Sprint(sweep.Magnitude, p.Sparsity)]
		if !ok || !(*p.AUC > rival+margin) {
			return fmt.Errorf("sparsity %g: AUC %.4f by %s, %.4f by magnitude, expected a lead of %g", p.Sparsity, *p.AUC, p.Method, rival, margin)
		}
		compared++
	}
	if compared == 0 {
		return fmt.Errorf("nothing was compared")
	}
	return nil
}

// The figures of docs/evidence/results.md are right: at 99% the aggregate rms leads, and
// calibration repairs its LogLoss.
func testFlightsMethods(t *testing.T) {
	flights, dir := importFlights(t)
	out, modelFile := t.TempDir(), filepath.Join(flights, "deepfm.pth")
	var files []string
	for _, estimator := range []string{"multilinear", "taylor"} {
		file := filepath.Join(out, estimator+".arrow")
		shaver(t, nil, "score", "--model", modelFile, "--dataset", dir, "--baseline", "codebook", "--estimator", estimator, "--out", file)
		files = append(files, file)
	}
	var found sweep.Document
	shaver(t, &found, "sweep", "--model", modelFile, "--scores", strings.Join(files, ","), "--dataset", dir, "--sparsities", "0.99", "--aggregate", "sum,rms", "--methods", "all", "--calibrate")
	want := map[string][3]float64{ // AUC, LogLoss, calibrated
		"shapley": {.7569, .4746, .4685}, "shapley-rms": {.7783, .4703, .4487}, "taylor": {.7606, .4788, .4622}, "taylor-rms": {.7729, .4771, .4513},
		sweep.Magnitude: {.6758, .7555, .5270}, sweep.Frequency: {.7556, .4805, .4664}, sweep.Random: {.6910, .7811, .5086}, "ptq4": {.7903, .4400, .4370}, "ptq8": {.7917, .4412, .4361},
	}
	for _, p := range found.Points {
		w, ok := want[p.Method]
		if !ok {
			continue
		}
		delete(want, p.Method)
		t.Logf("%s: AUC %.4f, LogLoss %.4f, calibrated %.4f", p.Method, *p.AUC, *p.LogLoss, *p.CalibratedLogLoss)
		if math.Abs(*p.AUC-w[0]) > .001 || math.Abs(*p.LogLoss-w[1]) > .001 || math.Abs(*p.CalibratedLogLoss-w[2]) > .001 {
			t.Errorf("%s: expected %v within .001", p.Method, w)
		}
	}
	if len(want) > 0 {
		t.Errorf("not measured: %v", want)
	}
}
