package delta_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
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

// A delta has one word for each field. A model with several, before or after, is bad input that the error names.
func TestSeveralWords(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	ck, err := checkpoint.Read(filepath.Join("..", "..", "..", "testdata", "golden", "fm.pth"))
	if err != nil {
		t.Fatal(err)
	}
	a := &ck.Architecture // fields of 3, 4 and 3 features, with 3 columns
	dropped, one, several := make([]bool, a.Parameters()), a.Zero(), a.Zero()
	dropped[0], dropped[3] = true, true
	several.Values, several.Words, several.Numbers = append(several.Values, 1, 2, 3), []int{2, 1, 1}, append([]uint8{1}, make([]uint8, 9)...)
	for name, b := range map[string]model.Baseline{"one": one, "several": several} {
		if _, err := checkpoint.WriteCompact(path(name), ck, dropped, b, compact.Float32); err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range []string{"", "one", "several"} {
		in, o := "several", delta.Options{}
		if from != "" {
			o = delta.Options{From: path(from), Generation: 2}
		}
		if from == "several" {
			in = "one"
		}
		if _, err := delta.Write(path(in), o, path("delta")); !fault.IsInput(err) || !strings.Contains(err.Error(), path("several")+" has several words for what is dropped") {
			t.Errorf("from %q: %v", from, err)
		}
	}
}
