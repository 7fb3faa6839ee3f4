package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"shaver/internal/app/cli"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/sweep"
)

// frozenJob returns the folder and the flags of a job of a graph with several tables.
func frozenJob(t *testing.T) (dir string, flags []string) {
	t.Helper()
	dir = t.TempDir()
	model, rows, data := "../../testdata/onnx/fuxictr-deepfm-numeric.dynamo.onnx", filepath.Join(dir, "rows.csv"), filepath.Join(dir, "data")
	text := "label,user,item,category,city,device,age,price\n1,0,0,0,0,0,46,-0.7\n0,6,10,4,3,2,36,0.4\n0,5,6,1,1,0,35,0.3\n1,1,5,4,0,1,34,-1.4\n1,0,7,4,1,0,38,0\n1,3,5,4,1,0,30,-1.2\n"
	if err := os.WriteFile(rows, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	shaver(t, nil, "dataset", "import", "csv", "--train", rows, "--val", rows, "--test", rows, "--model", model, "--dense", "age,price", "--out", data)
	return dir, []string{"--model", model, "--dataset", data}
}

// A frozen field keeps the bytes of all its entries in a pruned model, whatever the budget, the form of the file and the order
// are, and budgets count the others. Everything else is dropped at a sparsity of 1.
func TestFrozenFieldsStay(t *testing.T) {
	long.Test(t)
	t.Parallel()
	for name, makeJob := range map[string]func(*testing.T) (string, []string){
		"deepfm": func(t *testing.T) (string, []string) { return plantedJob(t, 600) }, "graph": frozenJob,
	} {
		dir, job := makeJob(t)
		model, file := job[1], func(name string) string { return filepath.Join(dir, name) }
		before, err := checkpoint.Read(model)
		if err != nil {
			t.Fatal(err)
		}
		table, err := before.Embedding()
		if err != nil {
			t.Fatal(err)
		}
		spans := before.Architecture.Spans()
		frozen := 0
		for _, s := range spans {
			if s.Field == 1 { // item, in both
				frozen += s.Rows * s.Dim
			}
		}
		for _, estimator := range []string{"path", "permutation"} {
			scores := file(estimator + ".arrow")
			shaver(t, nil, append([]string{"score", "--freeze", "item", "--splits", "train", "--estimator", estimator, "--baseline", "codebook", "--out", scores}, job...)...)
			for _, budget := range [][]string{{"--sparsity", "1"}, {"--sparsity", "0.5"}, {"--sparsity", "0.25", "--values", "auto", "--dataset", job[3]}} {
				if len(budget) > 2 && estimator != "path" {
					continue
				}
				out := file("pruned.safetensors")
				var c cut.Choice
				shaver(t, &c, append([]string{"prune", "--force", "--model", model, "--scores", scores, "--out", out}, budget...)...)
				if want := len(table) - frozen; c.Entries != want || c.Sparsity > 1 || budget[1] == "1" && c.Dropped != want || budget[1] == "0.5" && c.Dropped != want/2 {
					t.Errorf("%s, %s, %v: %d of %d entries are dropped, expected those of %d", name, estimator, budget, c.Dropped, c.Entries, want)
				}
				after, err := checkpoint.Read(out)
				if err != nil {
					t.Fatal(err)
				}
				pruned, err := after.Embedding()
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range spans {
					from, to := s.Entries()
					for i := from; i < to && s.Field == 1; i++ {
						if math.Float32bits(table[i]) != math.Float32bits(pruned[i]) {
							t.Fatalf("%s, %s, %v: entry %d of the frozen field is %v, expected %v", name, estimator, budget, i-from, pruned[i], table[i])
						}
					}
				}
			}
		}
		for code, flags := range map[int][]string{cli.ExitBadInput: {"--values", "int8", "--sparsity", "0.5"}, cli.ExitUsage: {"--max-rise", "0.1", "--dataset", job[3]}} { // would change frozen entries
			start(t, nil, "shaver", append([]string{"prune", "--force", "--model", model, "--scores", file("path.arrow"), "--out", file("refused.safetensors")}, flags...)...).wantExit(code)
		}
		// Rivals drop nothing of the field either, and all methods have the same number of entries.
		var d sweep.Document
		shaver(t, &d, append([]string{"sweep", "--scores", file("permutation.arrow"), "--sparsities", "1", "--methods", "magnitude,random", "--out", file("sweep.json")}, job...)...)
		if d.Entries != len(table)-frozen || len(d.Points) != 4 {
			t.Errorf("%s: a sweep of %d entries with %d points, expected %d and 4", name, d.Entries, len(d.Points), len(table)-frozen)
		}
		for _, p := range d.Points {
			if p.Parameters != before.Architecture.BaselineSize() || slices.ContainsFunc(d.Points, func(o sweep.Point) bool { return *o.LogLoss != *p.LogLoss }) {
				t.Errorf("%s: %s keeps %d parameters with the loss %v, expected only the codebook and the same loss for all methods", name, p.Method, p.Parameters, *p.LogLoss)
			}
		}
	}
}
