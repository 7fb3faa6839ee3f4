package main

import (
	"path/filepath"
	"strconv"
	"testing"

	"shaver/internal/click/checkpoint"
)

// A calibrated model keeps to its budget in bytes, although calibration stores the weights
// that it changes as float32.
func TestCalibratedBudget(t *testing.T) {
	dir := t.TempDir()
	model, rows, scores, out := filepath.Join(dir, "model.safetensors"), filepath.Join(dir, "rows"), filepath.Join(dir, "scores.arrow"), filepath.Join(dir, "out.safetensors")
	ck, err := checkpoint.Read(filepath.Join(goldenDir, "deepfm.pth"))
	if err != nil {
		t.Fatal(err)
	}
	for key, tensor := range ck.Tensors {
		if tensor.DType == checkpoint.F32 {
			ck.Tensors[key] = bfloat16(tensor)
		}
	}
	size, err := checkpoint.WriteDense(model, ck)
	if err != nil {
		t.Fatal(err)
	}
	csv := filepath.Join(goldenDir, "deepfm.rows.csv")
	command(t, "shaver", "dataset", "import", "csv", "--ids", "global", "--train", csv, "--val", csv, "--model", model, "--out", rows)
	command(t, "shaver", "score", "--model", model, "--dataset", rows, "--splits", "train", "--out", scores)
	prune := func(bytes int64) int64 {
		var result pruning
		shaver(t, &result, "prune", "--model", model, "--scores", scores, "--bytes", strconv.FormatInt(bytes, 10), "--calibrate", "--dataset", rows, "--out", out)
		return result.Bytes
	}
	budget := prune(10*size) - 1 // 10*size is enough for all entries
	if got := prune(budget); got > budget {
		t.Errorf("%d bytes exceed the budget of %d", got, budget)
	}
}

// bfloat16 truncates float32 values to bfloat16.
func bfloat16(t checkpoint.Tensor) checkpoint.Tensor {
	cut := checkpoint.Tensor{DType: checkpoint.BF16, Shape: t.Shape}
	for i := 0; i < len(t.Data); i += 4 {
		cut.Data = append(cut.Data, t.Data[i+2:i+4]...)
	}
	return cut
}
