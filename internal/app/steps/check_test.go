package steps

import (
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/ingest"
)

// A check measures both models on the split, and refuses a model of another architecture.
func TestCheckRun(t *testing.T) {
	golden, rows := filepath.Join("..", "..", "..", "testdata", "golden"), filepath.Join(t.TempDir(), "rows")
	model := filepath.Join(golden, "deepfm.pth")
	ck, err := checkpoint.Read(model)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{filepath.Join(golden, "deepfm.rows.csv")}, Global: true, OnBadRow: ingest.Fail, Sizes: ck.Architecture.FieldDims, Out: rows}); err != nil {
		t.Fatal(err)
	}
	c := &Check{Model: model, Pruned: model, Folders: []string{rows}, Split: "train"}
	d, err := c.Run(t.Context())
	if err != nil || !d.Passed || d.Model != ck.Digest() || d.Pruned != d.Model || d.Split != "train" || d.AUC.Difference.Value != 0 {
		t.Fatalf("%+v: %v", d, err)
	}
	c.Given = func(name string) bool { return name == "max-rmse-rise" }
	if _, err := c.Run(t.Context()); !fault.IsUsage(err) || err.Error() != "--max-rmse-rise does not go with the loss logistic" {
		t.Error(err)
	}
	c.Pruned, c.Given = filepath.Join(golden, "fm.pth"), nil
	if _, err := c.Run(t.Context()); !fault.IsInput(err) || !strings.Contains(err.Error(), "shaver evaluate --against") {
		t.Error(err)
	}
}
