package dissect

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
	"shaver/internal/onnx/wire/onnxtest"
)

// The ids of computed fields follow from the inputs of onnxruntime as in the exported model,
// also at the powers of two between buckets and for ids above 2^32.
func TestComputedIDs(t *testing.T) {
	for _, name := range []string{"buckets.dynamo", "buckets.legacy", "last-item.dynamo", "last-item.legacy"} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(exports, name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var e export
			if err := json.Unmarshal(data, &e); err != nil {
				t.Fatal(err)
			}
			n, err := Dissect(openModel(t, filepath.Join(exports, name+".onnx")), Options{})
			if err != nil {
				t.Fatal(err)
			}
			computed := 0
			for _, f := range n.Fields {
				if f.Computed == nil {
					continue
				}
				computed++
				column := 0 // of the field in e.IDs
				for _, want := range e.Fields {
					if want.Name == f.Name {
						break
					}
					column += max(1, want.Length)
				}
				for r, ids := range e.IDs {
					var in []*graph.Tensor
					for _, s := range f.Computed.Sources {
						in = append(in, graph.NewInts([]int64{e.Raw[s.Input][r][s.Column]}))
					}
					out, err := f.Computed.Graph.Run(in)
					if err != nil {
						t.Fatal(err)
					}
					if out.Ints[0] != int64(ids[column]) {
						t.Errorf("row %d: field %s has the id %d, expected %d", r, f.Name, out.Ints[0], ids[column])
					}
				}
			}
			if want := map[bool]int{true: 4, false: 1}[name[0] == 'b']; computed != want {
				t.Errorf("%d fields are computed, expected %d", computed, want)
			}
		})
	}
}

// A row number that is not the id plus a constant is a field of its own, which is named after
// what it is computed from. A remainder is one even if the table has as many rows.
func TestComputedFields(t *testing.T) {
	gather := node("Gather", names{"a", "k"}, names{"ea"})
	for name, c := range map[string]struct {
		nodes   []onnxtest.Message // that compute k, the row of table a, from i and j
		field   string
		sources int
		id      func(i, j int64) int64
	}{
		"remainder": {[]onnxtest.Message{node("Mod", names{"i", "5"}, names{"k"})}, "ids[0] % 5", 1, func(i, _ int64) int64 { return i % 5 }},
		"quotient":  {[]onnxtest.Message{node("Div", names{"i", "3"}, names{"k"})}, "ids[0] / 3", 1, func(i, _ int64) int64 { return i / 3 }},
		"hash": {[]onnxtest.Message{node("Mul", names{"i", "3"}, names{"q"}), node("Mod", names{"q", "5"}, names{"k"})},
			"computed from ids[0]", 1, func(i, _ int64) int64 { return 3 * i % 5 }},
		"clipped": {[]onnxtest.Message{node("Clip", names{"i", "0", "2"}, names{"k"})}, "computed from ids[0]", 1, func(i, _ int64) int64 { return min(i, 2) }},
		"crossed": {[]onnxtest.Message{node("Add", names{"i", "j"}, names{"k"})}, "computed from ids", 2, func(i, j int64) int64 { return i + j }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSample()
			s.ea(append(c.nodes, gather)...)
			n, err := s.dissect(t, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(n.Fields) != 2 || n.Fields[0].Name != "ids[1]" || n.Fields[1].Name != c.field || n.Fields[1].Rows != 5 {
				t.Fatalf("fields %+v, expected ids[1] and %s", n.Fields, c.field)
			}
			computed := n.Fields[1].Computed
			if n.Fields[0].Computed != nil || computed == nil || len(computed.Sources) != c.sources {
				t.Fatalf("field %s is computed from %+v, expected %d sources", c.field, computed, c.sources)
			}
			for i := range int64(12) {
				ids := []int64{i, i / 4}
				var in []*graph.Tensor
				for _, s := range computed.Sources {
					in = append(in, graph.NewInts([]int64{ids[s.Column]}))
				}
				out, err := computed.Graph.Run(in)
				if err != nil {
					t.Fatal(err)
				}
				if want := c.id(ids[0], ids[1]); out.Ints[0] != want {
					t.Errorf("the ids %v give %d, expected %d", ids, out.Ints[0], want)
				}
			}
		})
	}
}

// A list of remainders is a list, whose positions are computed from the columns of the input.
func TestComputedList(t *testing.T) {
	ids := onnxtest.Value("ids", 7, -1, 3)
	g := onnxtest.Graph{
		Inputs: []onnxtest.Message{ids}, Outputs: []onnxtest.Message{onnxtest.Value("y", 1, -1, 1)},
		Initializers: []onnxtest.Message{onnxtest.Floats("a", sequence(10), 5, 2), onnxtest.Floats("w", []float32{1, 2}, 2, 1), onnxtest.Ints("5", []int64{5}), onnxtest.Ints("[1]", []int64{1}, 1)},
		Nodes: []onnxtest.Message{node("Mod", names{"ids", "5"}, names{"k"}), node("Gather", names{"a", "k"}, names{"e"}),
			node("ReduceSum", names{"e", "[1]"}, names{"s"}, attr("keepdims", 0)), node("MatMul", names{"s", "w"}, names{"y"})},
	}
	data := onnxtest.Model(18, g.Message())
	m, err := wire.Read("m.onnx", bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	n, err := Dissect(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(n.Fields) != 1 || n.Fields[0].Name != "ids % 5" || n.Fields[0].Length != 3 || n.Fields[0].Computed == nil {
		t.Fatalf("fields %+v, expected a list of 3", n.Fields)
	}
	if at := n.Fields[0].Computed.At(2); len(at) != 1 || at[0] != (Source{"ids[2]", "ids", 2}) {
		t.Errorf("position 2 has the sources %v, expected ids[2]", at)
	}
}
