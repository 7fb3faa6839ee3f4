package main

import (
	"path/filepath"
	"testing"

	"shaver/internal/prune/sweep"
)

// Of the methods, --select chooses the one that a sweep of the validation split finds
// best, and measures it as a sweep of the test split does.
func TestSelect(t *testing.T) {
	q := filepath.Join(t.TempDir(), "q")
	shaver(t, nil, "quickstart", "--rows", "3000", "--out", q)
	points := func(flags ...string) []sweep.Point {
		var found sweep.Document
		shaver(t, &found, append([]string{"sweep", "--model", filepath.Join(q, "model.safetensors"), "--scores", filepath.Join(q, "scores.arrow"),
			"--dataset", filepath.Join(q, "dataset"), "--sparsities", "0.9,0.99"}, flags...)...)
		return found.Points
	}
	all := []string{"--aggregate", "rms,sum,abs"}
	validation, test, chosen := points(append(all, "--split", "val")...), points(all...), points("--select")
	if len(chosen) != 2 || len(test) != 8 || len(validation) != 8 {
		t.Fatalf("%d chosen of %d and %d", len(chosen), len(validation), len(test))
	}
	for i, c := range chosen {
		best := i * 4
		for j := best; j < i*4+4; j++ {
			if *validation[j].AUC > *validation[best].AUC {
				best = j
			}
		}
		want := test[best]
		if c.ValidationAUC == nil || *c.ValidationAUC != *validation[best].AUC || c.Method != want.Method || *c.AUC != *want.AUC || c.Sparsity != want.Sparsity {
			t.Errorf("chose %+v, expected %+v, which has the validation AUC %v", c, want, *validation[best].AUC)
		}
	}
}
