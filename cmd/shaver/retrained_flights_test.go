package main

import (
	"math"
	"path/filepath"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
)

// On real flights, a paired job after a light retraining of the table costs a tenth of a
// full job's row evaluations. Its error is at most 1.3 times that between two full jobs with
// different seeds, and at most a third of that of a sample of the same cost. The rows are
// those of val, or with SHAVER_LONG=2 those of train and val.
func testFlightsRetrained(t *testing.T) {
	t.Parallel()
	flights, dir := importFlights(t)
	splits := "val"
	if long.Hours() {
		splits = "train,val"
	}
	before, after := filepath.Join(flights, "deepfm.pth"), filepath.Join(t.TempDir(), "after.safetensors")
	moved := retrainTable(t, before, dir, after)
	out := t.TempDir()
	score := func(name, modelFile, seed string, more ...string) (string, *scores.File) {
		t.Helper()
		file := filepath.Join(out, name+".arrow")
		shaver(t, nil, append([]string{"nightly", "score", "--model", modelFile, "--dataset", dir, "--splits", splits, "--baseline", "codebook", "--estimator", "multilinear", "--seed", seed, "--out", file}, more...)...)
		f, err := scores.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		return file, f
	}
	old, yesterday := score("old", before, "1")
	_, full := score("full", after, "1")
	_, other := score("other", after, "2")
	_, twice := score("twice", after, "1", "--sample", "0.1")
	_, paired := score("paired", after, "1", "--sample", "0.05", "--previous", old, "--previous-model", before)
	change, noise, plain, found := apart(yesterday, full), apart(other, full), apart(twice, full), apart(paired, full)
	t.Logf("the table moved by %.1f%% and the values by %.4f; error %.4f, predicted %.4f; %.4f between full jobs, %.4f for a sample of the same cost",
		100*moved, change, found, paired.Lineage.Error, noise, plain)
	if change < .05 {
		t.Errorf("the values moved by %.4f only, expected at least .05", change)
	}
	if found > 1.3*noise || found > plain/3 {
		t.Errorf("error %.4f, expected at most 1.3 times %.4f, and a third of %.4f", found, noise, plain)
	}
	if math.Abs(found/paired.Lineage.Error-1) > .25 {
		t.Errorf("error %.4f, but the job predicts %.4f", found, paired.Lineage.Error)
	}
}

// retrainTable trains the table of a model on every tenth row of train in one pass of Adam,
// as testdata/nightly/retrain.py trains all weights, and writes the model. It returns the root
// mean square of the change, relative to the table.
func retrainTable(t *testing.T, from, data, to string) (moved float64) {
	t.Helper()
	ck, err := checkpoint.Read(from)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ck.Model()
	if err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	old, err := ck.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	const batch, rate, beta1, beta2 = 2048, 1e-4, .9, .999
	table := append([]float32(nil), old...)
	slope, mean, square := make([]float64, len(table)), make([]float64, len(table)), make([]float64, len(table))
	g, dim, steps, rows := m.NewGradient(), m.Dim, 0.0, 0
	step := func() {
		steps++
		for i := range table {
			s := slope[i] / float64(rows)
			mean[i] = beta1*mean[i] + (1-beta1)*s
			square[i] = beta2*square[i] + (1-beta2)*s*s
			table[i] -= float32(rate / (1 - math.Pow(beta1, steps)) * mean[i] / (math.Sqrt(square[i]/(1-math.Pow(beta2, steps))) + 1e-8))
		}
		clear(slope)
		rows = 0
	}
	logit := make([]float64, 1)
	if err := d.Scan(t.Context(), []string{dataset.Train}, 4096, func(all *model.Rows) error {
		for r := range all.Len() {
			if all.Number[r]%10 != 0 {
				continue
			}
			row := all.Row(r)
			x := g.Set(0, all, r)
			for j, id := range row {
				copy(x[j*dim:(j+1)*dim], table[int(id)*dim:])
			}
			g.Slopes(logit)
			off := evaluate.Probability(logit[0]) - float64(all.Label[r])
			for j, id := range row {
				for c, s := range g.Slope(0)[j*dim : (j+1)*dim] {
					slope[int(id)*dim+c] += off * float64(s)
				}
			}
			if rows++; rows == batch {
				step()
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	step()
	if _, err := checkpoint.WriteDense(to, ck.WithEmbedding(table)); err != nil {
		t.Fatal(err)
	}
	off, size := 0.0, 0.0
	for i, w := range old {
		off += float64(table[i]-w) * float64(table[i]-w)
		size += float64(w) * float64(w)
	}
	return math.Sqrt(off / size)
}
