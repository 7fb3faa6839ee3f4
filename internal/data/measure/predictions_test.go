package measure_test

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/data/measure"
)

// The predictions in a file are those of the model, for the rows of the split in their order.
func TestPredictions(t *testing.T) {
	golden, dir := filepath.Join("..", "..", "..", "testdata", "golden"), t.TempDir()
	rows, file := filepath.Join(dir, "rows"), filepath.Join(dir, "p.csv")
	ck, m, err := checkpoint.ReadModel(filepath.Join(golden, "deepfm.pth"), "")
	if err != nil {
		t.Fatal(err)
	}
	encoded := []string{filepath.Join(golden, "deepfm.rows.csv")}
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: encoded, Val: encoded, Global: true, OnBadRow: ingest.Fail, Sizes: ck.Architecture.FieldDims, Out: rows}); err != nil {
		t.Fatal(err)
	}
	b, err := measure.Open([]string{rows}, dataset.Val, "", m, nil)
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	measured, err := b.Predict(t.Context(), m, func(n int) { read += n })
	if err != nil || int64(read) != b.Rows {
		t.Fatalf("%d of %d rows: %v", read, b.Rows, err)
	}
	if measure.IsPredictions(file) {
		t.Error("a file that does not exist has predictions")
	}
	if err := measure.WritePredictions(file, measured); err != nil || !measure.IsPredictions(file) {
		t.Fatal(err)
	}

	var want struct{ Logits []float64 }
	text, err := os.ReadFile(filepath.Join(golden, "deepfm.json"))
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
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
	if m, n := p.Metrics(), measured.Metrics(); m != n || m.Rows != int64(len(want.Logits)) {
		t.Errorf("the predictions have %+v, the model %+v", m, n)
	}
}

// A split that the dataset lacks is bad input, which names those that it has.
func TestOpenRefuses(t *testing.T) {
	golden := filepath.Join("..", "..", "..", "testdata", "golden")
	_, m, err := checkpoint.ReadModel(filepath.Join(golden, "fm.pth"), "")
	if err != nil {
		t.Fatal(err)
	}
	rows := filepath.Join(t.TempDir(), "rows")
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{filepath.Join(golden, "fm.rows.csv")}, Global: true, OnBadRow: ingest.Fail, Sizes: m.FieldDims, Out: rows}); err != nil {
		t.Fatal(err)
	}
	if _, err := measure.Open([]string{rows}, dataset.Test, "", m, nil); err == nil || err.Error() != "dataset "+rows+" has no split \"test\": it has [train]" {
		t.Error(err)
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
