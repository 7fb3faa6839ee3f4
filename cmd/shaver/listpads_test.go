package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"shaver/infer"
	"shaver/internal/onnx/wire/onnxtest"
)

// A model that reads the last position of a list has the logits of lists that are filled at their front, if the import fills
// them there. If they are filled at their end, it reads pads, which import, score and evaluate report. A file that knows its dataset, and what
// is pruned from it, knows the side, says it to programs, and refuses datasets of the other side. A model that weighs positions asks for the side.
func TestListPads(t *testing.T) {
	dir := t.TempDir()
	run := inFolder(t, dir)
	path := func(name string) string { return filepath.Join(dir, name) }
	table, weight := []float32{0, 0, 1, 2, 3, 5, -2, 4}, []float32{.5, -.25}
	type names = onnxtest.Names
	g := onnxtest.Graph{
		Inputs: []onnxtest.Message{onnxtest.Value("hist", 7, -1, 3)}, Outputs: []onnxtest.Message{onnxtest.Value("y", 1, -1, 1)},
		Initializers: []onnxtest.Message{onnxtest.Floats("items", table, 4, 2), onnxtest.Floats("w", weight, 2, 1), onnxtest.Ints("last", []int64{2})},
		Nodes: []onnxtest.Message{
			onnxtest.Node("Gather", names{"items", "hist"}, names{"rows"}), onnxtest.Node("Gather", names{"rows", "last"}, names{"row"}, onnxtest.Attribute("axis", 1)),
			onnxtest.Node("MatMul", names{"row", "w"}, names{"y"}),
		},
	}
	lists := [][]int{{1, 2}, {3}, {1, 2, 3}, {2}}
	text := "label,hist\n"
	for i, list := range lists {
		text += fmt.Sprintf("%d,%s\n", i%2, strings.ReplaceAll(strings.Trim(fmt.Sprint(list), "[]"), " ", "|"))
	}
	for name, data := range map[string]string{"m.onnx": string(onnxtest.Model(18, g.Message())), "log.csv": text} {
		if err := os.WriteFile(path(name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const warning = "field hist: the model reads nothing of a list of one value that is filled at its end, as those of the dataset are: import the rows with --list-pads front"
	for _, side := range []string{"end", "front"} {
		said := func(what string, args ...string) {
			t.Helper()
			if code, stderr := run(args...); code != 0 || strings.Contains(stderr, warning) != (side == "end") {
				t.Errorf("%s with the pads at the %s: code %d and %s", what, side, code, stderr)
			}
		}
		said("import", "dataset", "import", "csv", "--train", path("log.csv"), "--model", path("m.onnx"), "--list-pads", side, "--out", path(side))
		said("evaluate", "evaluate", "--model", path("m.onnx"), "--dataset", path(side), "--split", "train", "--predictions", path(side+".csv"))
		said("score", "score", "--model", path("m.onnx"), "--dataset", path(side), "--out", path(side+".arrow"))
	}
	g.Nodes = append(g.Nodes[:1:1], onnxtest.Node("Reshape", names{"rows", "flat"}, names{"row"}), onnxtest.Node("MatMul", names{"row", "w6"}, names{"y"}))
	g.Initializers = append(g.Initializers[:1:1], onnxtest.Ints("flat", []int64{-1, 6}, 2), onnxtest.Floats("w6", []float32{1, 2, 3, 4, 5, 6}, 6, 1))
	if err := os.WriteFile(path("flat.onnx"), onnxtest.Model(18, g.Message()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"--list-pads", "end"}} {
		code, stderr := run(append([]string{"dataset", "import", "csv", "--train", "log.csv", "--model", "flat.onnx", "--out", fmt.Sprint("flat", len(flags))}, flags...)...)
		if said := strings.Contains(stderr, "the logit depends on the side on which lists are filled, here their end"); code != 0 || said != (flags == nil) {
			t.Errorf("%q: code %d and %s", flags, code, stderr)
		}
	}
	file, err := os.Open(path("front.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	predictions, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for i, list := range lists {
		last := list[len(list)-1]
		want := float64(table[2*last]*weight[0] + table[2*last+1]*weight[1])
		if got, err := strconv.ParseFloat(predictions[1+i][2], 64); err != nil || math.Abs(got-want) > 1e-6 {
			t.Errorf("row %d: logit %v, expected %v of the item %d (%v)", i, got, want, last, err)
		}
	}
	command(t, "shaver", "model", "convert", path("m.onnx"), path("known.safetensors"), "--dataset", path("front"))
	command(t, "shaver", "score", "--model", path("known.safetensors"), "--dataset", path("front"), "--out", path("known.arrow"))
	command(t, "shaver", "prune", "--model", path("known.safetensors"), "--scores", path("known.arrow"), "--sparsity", "0.5", "--out", path("pruned.safetensors"))
	command(t, "shaver", "evaluate", "--model", path("pruned.safetensors"), "--dataset", path("front"), "--split", "train")
	refusedLine(t, "its lists are filled at the end, those of the model at the front: import the rows with --list-pads front", "evaluate", "--model", path("pruned.safetensors"), "--dataset", path("end"), "--split", "train")
	command(t, "shaver", "dataset", "import", "csv", "--train", path("log.csv"), "--model", path("pruned.safetensors"), "--out", path("again")) // on the side of the model
	command(t, "shaver", "evaluate", "--model", path("pruned.safetensors"), "--dataset", path("again"), "--split", "train")
	m, err := infer.Open(path("pruned.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if front := m.PadsFront(); len(front) != 1 || !front[0] {
		t.Errorf("PadsFront returns %v", front)
	}
}
