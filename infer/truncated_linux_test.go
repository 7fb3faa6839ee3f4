package infer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/planted"
)

// If another process truncates the file of an open model, Logits returns an error and the
// process continues.
func TestTruncated(t *testing.T) {
	p, err := planted.New(planted.Config{Fields: []string{"a", "b"}, FieldDims: []int{50_000, 50_000}, Informative: 2, Silent: 2, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if _, err := checkpoint.WriteDense(path, p.Checkpoint); err != nil {
		t.Fatal(err)
	}
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	logits, ids := make([]float64, 1), []int32{40_000, 49_999}
	if err := m.Logits(logits, ids, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	if err := m.Logits(logits, ids, nil); !errors.Is(err, ErrTruncated) {
		t.Errorf("error %v, expected ErrTruncated", err)
	}
}
