package main

import (
	"path/filepath"
	"testing"

	"shaver/internal/app/night"
	"shaver/internal/base/long"
	"shaver/internal/prune/nightly"
)

// Simulated nights run from the first to the last. After the first one they cost a part of
// a full job, and pruning loses little. The folder is one in which shaver nightly goes on.
func TestQuickstartNights(t *testing.T) {
	long.Test(t)
	t.Parallel()
	out := filepath.Join(t.TempDir(), "q")
	var found simulatedNights
	shaver(t, &found, "quickstart", "--nights", "3", "--rows", "14000", "--out", out)
	if len(found.Nights) != 3 {
		t.Fatalf("%d nights", len(found.Nights))
	}
	for i, l := range found.Nights {
		t.Logf("%s: evaluations %d of %d, error %.3f, AUC %.4f and %.4f", l.Night, l.Evaluations, l.FullEvaluations, *l.RelativeError, *l.AUC, *l.PrunedAUC)
		// The new day in full, and two models on a twentieth of four days.
		share := float64(l.Evaluations) / float64(l.FullEvaluations)
		if want := map[bool]float64{true: 1, false: .28}[i == 0]; share < want-.02 || share > want+.02 || len(l.Days) != 5 || *l.AUC < .7 || *l.AUCDrop > .02 {
			t.Errorf("night %d: %+v", i, l)
		}
	}
	wantFiles(t, out, "days", "model.safetensors", "nightly", "nightly.yaml")
	var line nightly.Line
	shaver(t, &line, "nightly", "--config", filepath.Join(out, "nightly.yaml"))
	if line.Number != 3 {
		t.Errorf("nothing is new, but there is night %d", line.Number)
	}
	if _, err := readNights(filepath.Join(out, "nightly.yaml")); err != nil {
		t.Error(err)
	}
}

// readNights reads the configuration of nights, and checks its settings.
func readNights(path string) (*nightly.Config, error) {
	return (&night.Runner{}).Read(path)
}
