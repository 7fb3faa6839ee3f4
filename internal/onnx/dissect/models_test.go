package dissect

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

const exports = "../../../testdata/onnx"

// export describes a file of testdata/onnx, with the results of onnxruntime.
type export struct {
	File   string
	Batch  int
	Fields []exportField
	Dense  []struct {
		Name, Input string
		Column      int
	}
	Fixed   map[string]int
	Output  string
	Logit   string
	Tensor  string
	IDs     [][]int
	Values  [][]float32
	Raw     map[string][][]int64 // inputs, if ids follow from them
	Logits  []float64
	Outputs [][]float64
}

// exportField is a field of an export. It is a list if it has a length.
type exportField struct {
	Name, Input          string
	Column, Rows, Length int
	Computed             bool
}

func openModel(t *testing.T, path string) *wire.Model {
	t.Helper()
	m, err := wire.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// forward computes the logit of a row with the reference execution. The ids and the
// numbers are those of the model's fields, position by position, and of its dense inputs.
func forward(t *testing.T, n *Network, ids []int, numbers []float32) float64 {
	t.Helper()
	var in []*graph.Tensor
	from := make([]int, len(n.Fields)+1) // first id of each field
	for j, f := range n.Fields {
		from[j+1] = from[j] + f.Length
	}
	for _, l := range n.LookUps {
		table := &n.Tables[l.Table]
		var rows []float32
		for _, id := range ids[from[l.Field]:from[l.Field+1]] {
			row := make([]float32, table.Dim)
			if err := table.Read(row, id+l.Offset); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, row...)
		}
		in = append(in, graph.NewFloats(rows, len(rows)/table.Dim, table.Dim))
	}
	for i := range n.Dense {
		in = append(in, graph.NewFloats(numbers[i:i+1], 1, 1))
	}
	for _, d := range n.IDs {
		var row []float32
		for _, id := range ids[from[d.Field]:from[d.Field+1]] {
			row = append(row, float32(id))
		}
		in = append(in, graph.NewFloats(row, 1, len(row)))
	}
	out, err := n.Head.Run(in)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Floats) != 1 {
		t.Fatalf("the head gives %d values", len(out.Floats))
	}
	return float64(out.Floats[0])
}

// Dissect finds the fields and dense inputs of every exported model, and the head gives the
// logits of onnxruntime.
func TestExportedModels(t *testing.T) {
	files, err := filepath.Glob(exports + "/*.json")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d files in %s, expected the exports: %v", len(files), exports, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var e export
		if err := json.Unmarshal(data, &e); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		t.Run(strings.TrimSuffix(e.File, ".onnx"), func(t *testing.T) {
			m := openModel(t, filepath.Join(exports, e.File))
			n, err := Dissect(m, Options{Output: e.Output})
			if err != nil {
				t.Fatal(err)
			}
			noted := e.Batch > 1 || e.File == "embedding-bags.dynamo.onnx" // whose last bag has a node of its own
			if noted != (len(n.Notes) == 1) {
				t.Errorf("notes: %q", n.Notes)
			}
			if len(n.Bound) != len(e.Fixed) {
				t.Errorf("offsets of bags are %q, expected %v", n.Bound, e.Fixed)
			}
			var order []int // columns of the ids, by field and position
			if len(n.Fields) != len(e.Fields) {
				t.Fatalf("fields %v, expected %v", n.Fields, e.Fields)
			}
			for j, f := range n.Fields {
				from, found := 0, false
				for _, want := range e.Fields {
					length := max(1, want.Length)
					if found = f.Input == want.Input && f.Column == want.Column && f.Rows == want.Rows && f.Length == length && (f.Computed != nil) == want.Computed && (f.Computed == nil || f.Name == want.Name); found {
						break
					}
					from += length
				}
				if !found || f.Pad != max(-1, min(f.Length-2, 0)) {
					t.Fatalf("field %d is %+v, expected one of %+v", j, f, e.Fields)
				}
				for i := range f.Length {
					order = append(order, from+i)
				}
			}
			if len(n.Dense) != len(e.Dense) {
				t.Fatalf("dense inputs %v, expected %v", n.Dense, e.Dense)
			}
			for i, d := range n.Dense {
				if d.Input != e.Dense[i].Input || d.Column != e.Dense[i].Column {
					t.Fatalf("dense inputs %v, expected %v", n.Dense, e.Dense)
				}
			}
			if len(e.IDs) != len(e.Logits) || len(e.IDs) == 0 {
				t.Fatalf("%d rows and %d logits", len(e.IDs), len(e.Logits))
			}
			for r, row := range e.IDs {
				ids := make([]int, len(order))
				for j, k := range order {
					ids[j] = row[k]
				}
				got, want := forward(t, n, ids, e.Values[r]), e.Logits[r]
				if e.Logit == "probability" && e.Tensor == "" { // a float32 probability says less about its logit
					got, want = 1/(1+math.Exp(-got)), e.Outputs[r][0]
				}
				if math.Abs(got-want) > 2e-6*max(1, math.Abs(want)) {
					t.Fatalf("row %d: logit %v, expected %v", r, got, want)
				}
			}
		})
	}
}
