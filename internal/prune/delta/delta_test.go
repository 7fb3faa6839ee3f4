package delta_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/prune/delta"
	"shaver/internal/value/mask"
)

// A compact file, a dense file and an .onnx file have a delta. That of the compact file has
// the entries that were kept.
func TestWrite(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	ck, err := checkpoint.Read(filepath.Join("..", "..", "..", "testdata", "onnx", "pytorch-fm-deepfm.legacy.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	a := &ck.Architecture // 30 features of 4 columns
	table, err := ck.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	baseline, dropped := a.Zero(), make([]bool, a.Parameters())
	for i := range dropped {
		dropped[i] = i < 96
	}
	_, errCompact := checkpoint.WriteCompact(path("compact.safetensors"), ck, dropped, baseline, compact.Float32)
	pruned := ck.WithEmbedding(mask.Apply(a, table, dropped, baseline))
	_, errDense := checkpoint.WriteDense(path("dense.safetensors"), pruned)
	_, errONNX := checkpoint.WriteONNX(path("pruned.onnx"), pruned, checkpoint.ONNXOptions{})
	if err := errors.Join(errCompact, errDense, errONNX); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"compact.safetensors", "dense.safetensors", "pruned.onnx"} {
		d, err := delta.Write(path(name), delta.Options{}, path("delta of "+name))
		if err != nil {
			t.Fatal(err)
		}
		if d.Rows != 30 || d.Kept != 6 || d.Dropped != 24 || d.Entries != 24 || d.Tables != 1 {
			t.Errorf("%s: %+v", name, d)
		}
		if d.Guessed != (name != "compact.safetensors") {
			t.Errorf("%s: guessed %t what was dropped", name, d.Guessed)
		}
		files, err := filepath.Glob(path("delta of " + name + "/*"))
		want := 3 // the Parquet files; that of a compact model can also be applied
		if !d.Guessed {
			want = 5
		}
		if err != nil || len(files) != want {
			t.Errorf("%s: files %q, %v", name, files, err)
		}
	}
	if _, err := delta.Write(path("pruned.onnx"), delta.Options{}, path("delta of pruned.onnx")); !fault.IsUsage(err) || !strings.Contains(err.Error(), "already exists and is not empty") {
		t.Error(err)
	}
}
