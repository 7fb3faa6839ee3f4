package main

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"shaver/internal/click/evaluate"
)

// The predictions have the metrics that evaluate prints, for the rows of the split in their
// order.
func TestPredictions(t *testing.T) {
	dir := t.TempDir()
	rows, file := filepath.Join(dir, "rows"), filepath.Join(dir, "p.csv")
	golden := filepath.Join(goldenDir, "deepfm.rows.csv")
	model := filepath.Join(goldenDir, "deepfm.pth")
	shaver(t, nil, "dataset", "import", "csv", "--ids", "global", "--train", golden, "--val", golden, "--model", model, "--out", rows)
	var measured evaluation
	shaver(t, &measured, "evaluate", "--model", model, "--dataset", rows, "--split", "val", "--predictions", file)

	var want struct{ Logits []float64 }
	readJSON(t, filepath.Join(goldenDir, "deepfm.json"), &want)
	var p evaluate.Predictions
	for i, record := range readCSV(t, file)[1:] {
		var numbers [4]float64
		for j, text := range record {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			numbers[j] = v
		}
		if numbers[0] != float64(i) || math.Abs(numbers[2]-want.Logits[i]) > 1e-5 || math.Abs(numbers[3]-1/(1+math.Exp(-numbers[2]))) > 1e-12 {
			t.Errorf("row %d: %v, expected the logit %v", i, record, want.Logits[i])
		}
		p.Labels, p.Logits = append(p.Labels, float32(numbers[1])), append(p.Logits, numbers[2])
	}
	if m := p.Metrics(); m.Rows != measured.Rows || m.AUC != *measured.AUC || m.Loss != *measured.LogLoss || m.Rows != int64(len(want.Logits)) {
		t.Errorf("the predictions have %+v, evaluate printed %+v", m, measured)
	}
}

func readCSV(t *testing.T, path string) [][]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return records
}
