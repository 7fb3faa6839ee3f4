package dissect

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
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
		"remainder and offset": {[]onnxtest.Message{node("Mod", names{"i", "4"}, names{"q"}), node("Add", names{"q", "1"}, names{"k"})}, "ids[0] % 4 + 1", 1, func(i, _ int64) int64 { return i%4 + 1 }},
		"map":                  {[]onnxtest.Message{node("Gather", names{"map", "i"}, names{"k"})}, "computed from ids[0]", 1, func(i, _ int64) int64 { return i * i % 5 }},
		"backwards":            {[]onnxtest.Message{node("Sub", names{"4", "i"}, names{"k"})}, "computed from ids[0]", 1, func(i, _ int64) int64 { return 4 - i }},
		"product in int8": {[]onnxtest.Message{node("Cast", names{"i"}, names{"q"}, attr("to", 3)), node("Mul", names{"q", "q"}, names{"r"}), node("Cast", names{"r"}, names{"u"}, attr("to", int64s)), node("Mod", names{"u", "5"}, names{"k"})},
			"computed from ids[0]", 1, func(i, _ int64) int64 { return (int64(int8(i*i))%5 + 5) % 5 }},
		"difference in uint16": {[]onnxtest.Message{node("Cast", names{"i"}, names{"q"}, attr("to", 4)), node("Add", names{"q", "q"}, names{"r"}), node("Sub", names{"q", "r"}, names{"t"}), node("Cast", names{"t"}, names{"u"}, attr("to", int64s)), node("Mod", names{"u", "5"}, names{"k"})},
			"computed from ids[0]", 1, func(i, _ int64) int64 { return int64(uint16(-i)) % 5 }},
		"clipped": {[]onnxtest.Message{node("Clip", names{"i", "0", "2"}, names{"k"})}, "computed from ids[0]", 1, func(i, _ int64) int64 { return min(i, 2) }},
		"crossed": {[]onnxtest.Message{node("Add", names{"i", "j"}, names{"k"})}, "computed from ids", 2, func(i, j int64) int64 { return i + j }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSample()
			squares := make([]int64, 12)
			for i := range squares {
				squares[i] = int64(i * i % 5)
			}
			s.initializers = append(s.initializers, onnxtest.Ints("map", squares, 12))
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

// Whole numbers wrap in the type that the file gives them, also if only the input has it.
func TestWidths(t *testing.T) {
	s := newSample()
	s.inputs[0] = onnxtest.Value("ids", 6, -1, 2) // int32
	s.initializers = append(s.initializers, onnxtest.Raw("k", 6, []byte{0xff, 0xff, 0xff, 0x7f}), onnxtest.Raw("five", 6, []byte{5, 0, 0, 0}))
	s.ea(node("Mul", names{"i", "k"}, names{"q"}), node("Mod", names{"q", "five"}, names{"k5"}), node("Gather", names{"a", "k5"}, names{"ea"}))
	n, err := s.dissect(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(12) {
		out, err := n.Fields[1].Computed.Graph.Run([]*graph.Tensor{graph.NewInts([]int64{i})})
		if err != nil {
			t.Fatal(err)
		}
		if want := (int64(int32(i)*math.MaxInt32)%5 + 5) % 5; out.Ints[0] != want {
			t.Errorf("id %d gives %d, expected %d", i, out.Ints[0], want)
		}
	}
}

// A field whose ids the file guards stays what it is, and its guard gives the row that the file reads
// for each other id. A guard of a field that the head also reads as a number is not known.
func TestGuards(t *testing.T) {
	gather := node("Gather", names{"a", "k"}, names{"ea"})
	for name, c := range map[string]struct {
		nodes []onnxtest.Message
		want  func(i int64) int64
	}{
		"Clip":        {[]onnxtest.Message{node("Clip", names{"i", "0", "4"}, names{"k"}), gather}, func(i int64) int64 { return min(max(i, 0), 4) }},
		"Min and Max": {[]onnxtest.Message{node("Max", names{"i", "0"}, names{"q"}), node("Min", names{"q", "4"}, names{"k"}), gather}, func(i int64) int64 { return min(max(i, 0), 4) }},
		"Where": {[]onnxtest.Message{node("Less", names{"i", "5"}, names{"p"}), node("Where", names{"p", "i", "0"}, names{"k"}), gather}, func(i int64) int64 {
			if i < 5 {
				return i
			}
			return 0
		}},
		"none": {[]onnxtest.Message{node("Gather", names{"a", "i"}, names{"ea"})}, nil},
		"of one look-up": {[]onnxtest.Message{node("Clip", names{"i", "0", "4"}, names{"k"}), node("Gather", names{"a", "k"}, names{"e1"}), node("Gather", names{"a", "i"}, names{"e2"}),
			node("Add", names{"e1", "e2"}, names{"ea"})}, nil},
		"read as numbers": {[]onnxtest.Message{node("Clip", names{"i", "0", "4"}, names{"k"}), node("Gather", names{"a", "k"}, names{"e1"}), node("Cast", names{"ids"}, names{"f"}, attr("to", float32s)),
			node("Add", names{"e1", "f"}, names{"ea"})}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSample()
			s.ea(c.nodes...)
			n, err := s.dissect(t, Options{})
			if err != nil {
				t.Fatal(err)
			}
			f := n.Fields[0]
			if f.Name != "ids[0]" || f.Computed != nil || (f.Guard == nil) != (c.want == nil) {
				t.Fatalf("field %+v", f)
			}
			for _, i := range []int64{0, 3, 4, 5, 6, 1 << 40} {
				if c.want == nil {
					break
				}
				out, err := f.Guard.Graph.Run([]*graph.Tensor{graph.NewInts([]int64{i})})
				if err != nil {
					t.Fatal(err)
				}
				if out.Ints[0] != c.want(i) {
					t.Errorf("id %d reads row %d, expected %d", i, out.Ints[0], c.want(i))
				}
			}
		})
	}
}

// A OneHot of a number of the row is 1 at this number, counted from the end below 0, and nowhere else.
func TestOneHot(t *testing.T) {
	s := newSample()
	s.initializers = append(s.initializers, onnxtest.Ints("off and on", []int64{0, 1}, 2))
	s.after = []onnxtest.Message{node("Cast", names{"x"}, names{"c"}, attr("to", int64s)), node("OneHot", names{"c", "5", "off and on"}, names{"o"}), node("Cast", names{"o"}, names{"of"}, attr("to", float32s)),
		node("ReduceSum", names{"of", "[1]"}, names{"o1"}, attr("keepdims", 0)), node("MatMul", names{"o1", "w"}, names{"ow"}), node("MatMul", names{"h", "w"}, names{"z"}), node("Add", names{"z", "ow"}, names{"y"})}
	n, err := s.dissect(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := sequence(5)
	plain := func(x float32) float64 { return forward(t, n, []int{4, 1}, []float32{x}) - float64(x)*float64(w[4]) }
	none := plain(7)
	for x, want := range map[float32]float32{0: w[0], 3: w[3], 5: 0, -1: w[4], -5: w[0], -6: 0} {
		if got := plain(x) - none; math.Abs(got-float64(want)) > 1e-5 {
			t.Errorf("the number %v adds %v, expected %v", x, got, want)
		}
	}
}

// A table of codebooks that the file reshapes before the look-up is a table.
func TestReshapedTable(t *testing.T) {
	s := newSample()
	want := forwardOf(t, s, Options{})
	s.initializers[0] = onnxtest.Floats("a", sequence(10), 1, 5, 2)
	s.ea(node("Flatten", names{"a"}, names{"flat"}, attr("axis", 2)), node("Gather", names{"flat", "i"}, names{"ea"}))
	if got := forwardOf(t, s, Options{}); got != want {
		t.Errorf("logit %v, expected %v", got, want)
	}
}

// The file is said to compute in 16 bits, if it does.
func TestHalf(t *testing.T) {
	s := newSample()
	s.after = []onnxtest.Message{node("MatMul", names{"h", "w"}, names{"z"}), node("Cast", names{"z"}, names{"z16"}, attr("to", 10)), node("Cast", names{"z16"}, names{"y"}, attr("to", float32s))}
	n, err := s.dissect(t, Options{})
	if err != nil || len(n.Notes) != 1 || !strings.Contains(n.Notes[0], "floats of 16 bits") {
		t.Errorf("%v, notes %q", err, n.Notes)
	}
}
