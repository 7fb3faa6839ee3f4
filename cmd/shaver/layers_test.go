package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/infer"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
)

// The file of prune --layers through each layer has the logits of the file of its sparsity with the same options, and commands read
// it. What layers cannot share is refused by name.
func TestPruneLayers(t *testing.T) {
	long.Test(t)
	dir := t.TempDir()
	q := filepath.Join(dir, "q")
	shaver(t, nil, "quickstart", "--rows", "2000", "--out", q)
	model, rows, values, out := filepath.Join(q, "model.safetensors"), filepath.Join(q, "dataset"), filepath.Join(q, "scores.arrow"), filepath.Join(dir, "layers.safetensors")
	args := []string{"prune", "--model", model, "--scores", values, "--calibrate", "--dataset", rows, "--out"}
	var pruned struct {
		Sparsity float64
		Bytes    int64
		Layers   []checkpoint.Layer
	}
	shaver(t, &pruned, append(args, out, "--layers", "0.5,.97,0.9")...)
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(pruned.Layers) != 3 || pruned.Layers[0].Sparsity != .97 || pruned.Sparsity != .5 || pruned.Bytes != int64(len(data)) || pruned.Layers[2].Bytes != pruned.Bytes {
		t.Fatalf("%+v in a file of %d bytes", pruned, len(data))
	}
	for _, l := range pruned.Layers {
		single, prefix := filepath.Join(dir, fmt.Sprint(l.Sparsity)), filepath.Join(dir, fmt.Sprint("prefix", l.Sparsity))
		shaver(t, nil, append(args, single, "--sparsity", fmt.Sprint(l.Sparsity))...)
		if err := os.WriteFile(prefix, data[:l.Bytes], 0o600); err != nil {
			t.Fatal(err)
		}
		var logits [2][]float64
		var losses [2]struct {
			Loss float64 `json:"log_loss"`
		}
		for i, path := range []string{single, prefix} {
			m, err := infer.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			var ids []int32
			for i := range int32(300) {
				for _, n := range m.Sizes() {
					ids = append(ids, i%int32(n))
				}
			}
			logits[i] = make([]float64, 300)
			if err := m.Logits(logits[i], ids, nil); err != nil {
				t.Fatal(err)
			}
			m.Close()
			shaver(t, &losses[i], "evaluate", "--model", path, "--dataset", rows)
		}
		if !slices.Equal(logits[0], logits[1]) || losses[0] != losses[1] || losses[0].Loss == 0 {
			t.Errorf("sparsity %v: losses %v, logits %v and %v", l.Sparsity, losses, logits[0][:3], logits[1][:3])
		}
	}
	for _, c := range []struct {
		args []string
		text string
	}{
		{[]string{"--values", "int8"}, "--layers and --values int8 exclude each other"},
		{[]string{"--values", "auto"}, "expected float32 or float16"},
		{[]string{"--sparsity", "0.5"}, "--layers are one budget"},
		{[]string{"--max-rise", "0.5"}, "--layers and --max-rise exclude each other"},
		{[]string{"--columns", "4"}, "--layers and --columns exclude each other"},
		{[]string{"--previous", filepath.Join(dir, "none.safetensors")}, "--layers and --previous exclude each other"},
		{[]string{"--dense"}, "--layers and --dense exclude each other"},
		{[]string{"--layers", "0.5"}, "expected at most 256 different numbers"},
		{[]string{"--layers", "1.5"}, "expected at most 256 different numbers"},
		{[]string{"--out", filepath.Join(dir, "x.shaver")}, "--out with the extension .safetensors"},
	} {
		code, _, stderr := run(t, "shaver", append(append(args, filepath.Join(dir, "none.safetensors"), "--layers", "0.5,0.9"), c.args...)...)
		if code != 2 && code != 42 || !strings.Contains(stderr, c.text) {
			t.Errorf("%v: code %d, %s", c.args, code, stderr)
		}
	}
}
