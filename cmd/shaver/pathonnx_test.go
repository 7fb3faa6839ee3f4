package main

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"shaver/internal/base/long"
)

// An AutoInt, a DIN with histories and both tasks of a model with two go from rows to an .onnx file that
// a path pruned. The file has the logits of the pruned dense file, and its pads are kept.
// testdata/path/pruned.py runs such files in onnxruntime.
func TestPathToONNX(t *testing.T) {
	long.Test(t)
	data := filepath.Join("..", "..", "testdata")
	histories, tasks := filepath.Join(data, "histories"), filepath.Join(data, "tasks")
	rows := filepath.Join(t.TempDir(), "rows.csv")
	encodedRows(t, rows, 300, 7, 11, 5, 4, 3)
	raw := func(task string) []string {
		return []string{"--raw", filepath.Join(tasks, "log.csv"), "--label", task, "--columns", "user,item,category,city,device", "--vocabulary", filepath.Join(tasks, "vocabulary.csv"), "--oov", "none", "--split", "1:0:0"}
	}
	bottom := filepath.Join(tasks, "shared-bottom.onnx")
	ranks := map[string][]byte{}
	for _, c := range []struct {
		name, export, output string
		rows, pads           []string // flags of the import; tables of which row 0 is a pad
	}{
		{"autoint", filepath.Join(data, "onnx", "fuxictr-autoint.legacy.onnx"), "", []string{"--train", rows}, nil},
		{"din", filepath.Join(histories, "din.onnx"), "", []string{"--train", filepath.Join(histories, "log.csv")}, []string{"item", "category"}},
		{"click", bottom, "click", raw("click"), nil},
		{"buy", bottom, "buy", raw("buy"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			path := func(name string) string { return filepath.Join(folder, name) }
			model := []string{"--model", c.export}
			if c.output != "" {
				model = append(model, "--model-output", c.output)
			}
			command(t, "shaver", slices.Concat([]string{"dataset", "import", "csv", "--out", path("data")}, model, c.rows)...)
			command(t, "shaver", slices.Concat([]string{"score", "--estimator", "path"}, model, []string{"--dataset", path("data"), "--splits", "train", "--baseline", "codebook", "--sparsity", "0.9", "--out", path("p.arrow")})...)
			ranks[c.name] = command(t, "shaver", "scores", "export", path("p.arrow"))
			prune := slices.Concat([]string{"prune"}, model, []string{"--scores", path("p.arrow"), "--sparsity", "0.9"})
			command(t, "shaver", append(prune, "--dense", "--out", path("dense.safetensors"))...)
			var p pruning
			shaver(t, &p, append(prune, "--out", path("pruned.onnx"))...)
			if p.Method != "path" || p.Dropped*10 < p.Entries*8 {
				t.Errorf("%s drops %d of %d entries", p.Method, p.Dropped, p.Entries)
			}
			logits := func(name string, model ...string) (all []float64) {
				command(t, "shaver", append([]string{"evaluate", "--dataset", path("data"), "--split", "train", "--predictions", path(name)}, model...)...)
				for _, record := range readCSV(t, path(name))[1:] {
					v, err := strconv.ParseFloat(record[2], 64)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, v)
				}
				return all
			}
			before := logits("before.csv", model...)
			model[1] = path("pruned.onnx")
			got, want := logits("pruned.csv", model...), logits("dense.csv", "--model", path("dense.safetensors"))
			if len(got) < 300 || !slices.Equal(got, want) {
				t.Errorf("%d logits of the .onnx file differ from those of the dense file", len(got))
			}
			change := 0.0
			for i, v := range got {
				change = max(change, math.Abs(v-before[i]))
			}
			if change < .01 {
				t.Errorf("the logits change by %v at most", change)
			}
			if c.pads == nil {
				return
			}
			whole, pruned := tablesIn(t, c.export), tablesIn(t, path("pruned.onnx"))
			for _, pad := range c.pads {
				if !slices.Equal(whole[pad][:4], pruned[pad][:4]) {
					t.Errorf("the pad row of %s was %v and is %v", pad, whole[pad][:4], pruned[pad][:4])
				}
			}
		})
	}
	if string(ranks["click"]) == string(ranks["buy"]) {
		t.Error("both tasks have the same order")
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
