package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/onnx/wire/onnxtest"
)

// If few rows decide what a path drops, because a drop does more than its derivative says, score warns after
// the first round. The labels are drawn at random, so a lower loss fits the rows. One model has the logarithms
// of its entries, and a dropped one is near 0. The other has the entries themselves, and derivatives
// predict what a drop does.
func TestPathFitsRows(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	const features = 100
	encodedRows(t, path("rows.csv"), 400, features, features)
	for name, warned := range map[string]bool{"logarithms": true, "linear": false} {
		export := path(name + ".onnx")
		if err := os.WriteFile(export, steepGraph(features, warned), 0o666); err != nil {
			t.Fatal(err)
		}
		command(t, "shaver", "dataset", "import", "csv", "--train", path("rows.csv"), "--model", export, "--out", path(name))
		code, _, log := run(t, "shaver", "score", "--model", export, "--dataset", path(name), "--estimator", "path", "--baseline", "codebook", "--sparsity", "0.3", "--out", path(name+".arrow"))
		if code != 0 || strings.Contains(log, "this order fits these rows; score more rows, or compare it with --estimator permutation by shaver sweep") != warned {
			t.Errorf("%s: exit code %d, expected a warning: %t\n%s", name, code, warned, log)
		}
	}
}

// steepGraph returns a click model of two tables with two columns. Its logit is a product of weights and the
// rows, or the logarithms of their magnitudes.
func steepGraph(features int64, logarithms bool) []byte {
	type names = onnxtest.Names
	r := rand.New(rand.NewPCG(1, 2))
	g := onnxtest.Graph{Outputs: []onnxtest.Message{onnxtest.Value("y", 1, -1, 1)}}
	for _, name := range []string{"a", "b"} {
		table := make([]float32, 2*features)
		for i := range table {
			table[i] = (0.02 + 0.06*r.Float32()) * float32(1-2*(i%2^i/2%2))
		}
		g.Inputs = append(g.Inputs, onnxtest.Value("id_"+name, 7, -1))
		g.Initializers = append(g.Initializers, onnxtest.Floats("table_"+name, table, features, 2))
		g.Nodes = append(g.Nodes, onnxtest.Node("Gather", names{"table_" + name, "id_" + name}, names{"row_" + name}))
	}
	weight := float32(0.5)
	if !logarithms {
		weight *= 40
	}
	g.Initializers = append(g.Initializers, onnxtest.Floats("w", []float32{weight, -weight, weight, -weight}, 4, 1), onnxtest.Floats("least", []float32{1e-5}))
	g.Nodes = append(g.Nodes, onnxtest.Node("Concat", names{"row_a", "row_b"}, names{"e"}, onnxtest.Attribute("axis", 1)))
	head := "e"
	if logarithms {
		g.Nodes = append(g.Nodes, onnxtest.Node("Abs", names{"e"}, names{"size"}), onnxtest.Node("Max", names{"size", "least"}, names{"positive"}), onnxtest.Node("Log", names{"positive"}, names{"log"}))
		head = "log"
	}
	g.Nodes = append(g.Nodes, onnxtest.Node("MatMul", names{head, "w"}, names{"l"}), onnxtest.Node("Sigmoid", names{"l"}, names{"y"}))
	return onnxtest.Model(18, g.Message())
}
