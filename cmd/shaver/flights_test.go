package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"shaver/internal/cli"
	"shaver/internal/sweep"
)

// importFlights makes the dataset of the real flights, or skips the test.
func importFlights(t *testing.T) (flights, dir string) {
	t.Helper()
	flights, dir = shared(t, "data", "flights"), filepath.Join(t.TempDir(), "flights")
	file := func(name string) string { return filepath.Join(flights, name) }
	shaver(t, nil, "dataset", "import", "csv", "--ids", "local", "--train", file("train.csv.gz"), "--val", file("val.csv.gz"), "--test", file("test.csv.gz"),
		"--model", file("deepfm.pth"), "--out", dir)
	return flights, dir
}

// TestFlightsMetrics: evaluate finds what PyTorch measured.
func TestFlightsMetrics(t *testing.T) {
	flights, dir := importFlights(t)
	for _, name := range []string{"deepfm", "dcn-mix"} {
		var want map[string]struct {
			AUC     float64 `json:"auc"`
			LogLoss float64 `json:"log_loss"`
		}
		readJSON(t, filepath.Join(flights, name+".metrics.json"), &want)
		var found evaluation
		shaver(t, &found, "evaluate", "--model", filepath.Join(flights, name+".pth"), "--dataset", dir, "--split", "test")
		auc, loss := *found.AUC-want["test"].AUC, found.LogLoss-want["test"].LogLoss
		t.Logf("%s: AUC %.6f, LogLoss %.6f: %+.2g and %+.2g off PyTorch", name, *found.AUC, found.LogLoss, auc, loss)
		if !(math.Abs(auc) <= 1e-4) || !(math.Abs(loss) <= 1e-5) {
			t.Errorf("%s: expected AUC %v within 1e-4 and LogLoss %v within 1e-5", name, want["test"].AUC, want["test"].LogLoss)
		}
	}
}

// TestFlightsPruning: the whole flow on real data, on which Shapley values beat
// magnitude. With the portable kernel a row takes about 10 ms of a core: 1% of the rows
// suffices for the claim; SHAVER_LONG=1 takes 5%.
func TestFlightsPruning(t *testing.T) {
	sample := "0.01"
	if os.Getenv("SHAVER_LONG") == "1" {
		sample = "0.05"
	}
	flights, dir := importFlights(t)
	out := t.TempDir()
	modelFile, scoresFile := filepath.Join(flights, "deepfm.pth"), filepath.Join(out, "s.arrow")
	var report cli.Report
	shaver(t, &report, "score", "--model", modelFile, "--dataset", dir, "--sample", sample, "--seed", "1", "--out", scoresFile)
	t.Logf("scored %d rows in %.1f s, %.1f of CPU; mean loss %.4f, %.4f empty; efficiency error %.2g",
		report.Rows, report.Seconds, report.CPUSeconds, report.LossFull, report.LossEmpty, report.EfficiencyError)

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
	shaver(t, &found, "sweep", "--model", modelFile, "--scores", scoresFile, "--dataset", dir, "--sparsities", "0.9,0.95")
	points := found.Points
	if err := beats(points, 0); err != nil {
		t.Error(err)
	}
	if at := points[0]; *at.AUC != *measured.AUC || at.LogLoss != measured.LogLoss {
		t.Errorf("the sweep has AUC %v and LogLoss %v at 0.9, the pruned file %v and %v", *at.AUC, at.LogLoss, *measured.AUC, measured.LogLoss)
	}
	for _, p := range points {
		t.Logf("sparsity %g, %s: AUC %.4f, LogLoss %.4f", p.Sparsity, p.Method, *p.AUC, p.LogLoss)
	}
}

// beats reports the first sparsity at which Shapley values do not lead
// magnitude by more than margin in AUC.
func beats(points []sweep.Point, margin float64) error {
	auc := map[string]float64{}
	for _, p := range points {
		auc[fmt.Sprint(p.Method, p.Sparsity)] = *p.AUC
	}
	compared := 0
	for _, p := range points {
		if p.Method != sweep.ByShapley {
			continue
		}
		rival, ok := auc[fmt.Sprint(sweep.Magnitude, p.Sparsity)]
		if !ok || !(*p.AUC > rival+margin) {
			return fmt.Errorf("sparsity %g: AUC %.4f by Shapley values, %.4f by magnitude, expected a lead of %g", p.Sparsity, *p.AUC, rival, margin)
		}
		compared++
	}
	if compared == 0 {
		return fmt.Errorf("nothing was compared")
	}
	return nil
}
