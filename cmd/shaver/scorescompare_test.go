package main

import (
	"math"
	"path/filepath"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/jobs/scores"
)

// If two samples of the same rows differ only by noise, about 5% of the differences exceed
// two standard errors. If all values of one file are larger by half, most do.
func TestCompareNights(t *testing.T) {
	long.Test(t)
	dir := t.TempDir()
	q := filepath.Join(dir, "q")
	shaver(t, nil, "quickstart", "--rows", "12000", "--out", q)
	file := func(name string) string { return filepath.Join(dir, name+".arrow") }
	for _, seed := range []string{"1", "2"} {
		shaver(t, nil, "score", "--model", filepath.Join(q, "model.safetensors"), "--dataset", filepath.Join(q, "dataset"), "--baseline", "codebook", "--sample", "0.2", "--seed", seed, "--out", file(seed))
	}
	f, err := scores.Read(file("2"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.RMS {
		f.RMS[i], f.Abs[i] = 1.5*f.RMS[i], 1.5*f.Abs[i]
	}
	if err := scores.Write(file("changed"), f); err != nil {
		t.Fatal(err)
	}
	var noise, change scores.Comparison
	shaver(t, &noise, "scores", "compare", file("1"), file("2"))
	shaver(t, &change, "scores", "compare", file("changed"), file("1"))
	t.Logf("%d entries: %.4f beyond two standard errors, shift %+.4f; changed %.4f, %+.4f", noise.Known, *noise.Beyond, *noise.Shift, *change.Beyond, *change.Shift)
	if noise.Known < 1000 || !(*noise.Beyond > .005) || !(*noise.Beyond < .1) || math.Abs(*noise.Shift) > .1 {
		t.Errorf("noise: %d entries, %v beyond, shift %v", noise.Known, *noise.Beyond, *noise.Shift)
	}
	if !(*change.Beyond > 3**noise.Beyond) || math.Abs(*change.Shift-.5) > .15 {
		t.Errorf("change: %v beyond, shift %v", *change.Beyond, *change.Shift)
	}
	most := 0.
	for _, part := range change.Fields {
		most = max(most, math.Abs(*part.Shift-.5))
	}
	if len(change.Fields) != 10 || most > .3 {
		t.Errorf("%d fields, whose shifts differ from 0.5 by up to %v", len(change.Fields), most)
	}
}
