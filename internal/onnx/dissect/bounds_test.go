package dissect_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/dissect"
	"shaver/internal/onnx/wire"
	"shaver/internal/onnx/wire/onnxtest"
)

// A small file that would take minutes or gigabytes is refused with an error that names the
// bound.
func TestBounds(t *testing.T) {
	type names = onnxtest.Names
	type message = onnxtest.Message
	node, ints := onnxtest.Node, onnxtest.Ints
	number := func(name string) message { return onnxtest.Value(name, 7) }
	loop := func(in, out string, nodes []message, result string, scans ...message) message {
		body := onnxtest.Graph{
			Nodes:   append([]message{node("Identity", names{"c"}, names{"c2"})}, nodes...),
			Inputs:  []message{number("i"), onnxtest.Value("c", 9), number("x")},
			Outputs: append([]message{onnxtest.Value("c2", 9), number(result)}, scans...),
		}
		outputs := names{out}
		for i := range scans {
			outputs = append(outputs, fmt.Sprint(out, i))
		}
		return node("Loop", names{"turns", "yes", in}, outputs, onnxtest.Attribute("body", body))
	}
	// chain applies an operator n times, to its last result and to a second value.
	chain := func(op, from, second string, n int) (nodes []message, last string) {
		for k := range n {
			next := fmt.Sprint(op, k)
			nodes = append(nodes, node(op, names{from, second}, names{next}))
			from = next
		}
		return nodes, from
	}
	file := func(index string, initializers, inputs []message, nodes ...message) []byte {
		g := onnxtest.Graph{
			Inputs:  append([]message{onnxtest.Value("ids", 7, -1, 1)}, inputs...),
			Outputs: []message{onnxtest.Value("y", 1, -1, 1)},
			Initializers: append([]message{onnxtest.Floats("table", make([]float32, 20), 10, 2), onnxtest.Floats("w", []float32{1, 2}, 2, 1),
				ints("one", []int64{1}, 1), ints("turns", []int64{4000}), onnxtest.Raw("yes", 9, []byte{1})}, initializers...),
			Nodes: append(nodes, node("Gather", names{"table", index}, names{"e"}), node("ReduceSum", names{"e", "one"}, names{"s"}, onnxtest.Attribute("keepdims", 0)),
				node("MatMul", names{"s", "w"}, names{"l"}), node("Sigmoid", names{"l"}, names{"y"})),
		}
		return onnxtest.Model(18, g.Message())
	}
	deep, deepest := chain("Add", "x", "one", 30)
	far, farthest := chain("Add", "x", "one", 4)
	listed, list := chain("SequenceInsert", "empty", "one", 3000)
	wide, widest := chain("Add", "big", "zeros", 40)
	constant := node("Constant", nil, names{"k"}, onnxtest.Attribute("value", onnxtest.Floats("k0", make([]float32, 100000), 100000)))
	folds, folded := chain("Add", "k", "k", 3)
	var many, first []message
	for k := range 40 {
		many = append(many, onnxtest.Value(fmt.Sprint("in", k), 7, -1, 16384))
		first = append(first, node("Slice", names{fmt.Sprint("in", k), "one", "two", "one"}, names{fmt.Sprint("part", k)}))
	}
	parts := names{}
	for k := range 40 {
		parts = append(parts, fmt.Sprint("part", k))
	}
	var constants []message
	for k := range 3000 {
		constants = append(constants, ints(fmt.Sprint("k", k), []int64{1}))
	}
	full := node("Loop", names{"turns", "yes", "ids"}, names{"out"}, onnxtest.Attribute("body", onnxtest.Graph{
		Nodes: []message{node("Identity", names{"c"}, names{"c2"})}, Initializers: constants,
		Inputs: []message{number("i"), onnxtest.Value("c", 9), number("x")}, Outputs: []message{onnxtest.Value("c2", 9), number("x")}}))
	squares := []message{
		node("Gather", names{"table", "ids"}, names{"row"}), node("Expand", names{"row", "shape"}, names{"a"}),
		node("Transpose", names{"a"}, names{"b"}, onnxtest.Attribute("perm", []int64{0, 2, 1})), node("MatMul", names{"a", "b"}, names{"c"}),
		node("MatMul", names{"c", "c"}, names{"d"}), node("ReduceMax", names{"d", "axes"}, names{"f"}, onnxtest.Attribute("keepdims", 0)), node("Unsqueeze", names{"f", "one"}, names{"g"})}
	squared := onnxtest.Model(18, onnxtest.Graph{
		Inputs: []message{onnxtest.Value("ids", 7, -1, 1)}, Outputs: []message{onnxtest.Value("g", 1, -1, 1)}, Nodes: squares,
		Initializers: []message{onnxtest.Floats("table", make([]float32, 20), 10, 2), ints("shape", []int64{1, 1100, 2}, 3), ints("axes", []int64{1, 2}, 2), ints("one", []int64{1}, 1)}}.Message())

	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"many iterations":    {file("out", nil, nil, loop("ids", "out", deep, deepest)), "takes more than 32768 operators with its loops unrolled"},
		"many constants":     {file("out", nil, nil, full), "takes more than 32768 operators with its loops unrolled"},
		"one id, far away":   {file("idx", []message{ints("shape", []int64{1, 16384}, 2)}, nil, loop("ids", "out", far, farthest), node("Expand", names{"out", "shape"}, names{"idx"})), "id 0 reads row 16000"},
		"sequences":          {file("idx", nil, nil, append(append([]message{node("SequenceEmpty", nil, names{"empty"})}, listed...), node("SequenceLength", names{list}, names{"n"}), node("Add", names{"ids", "n"}, names{"idx"}))...), "the sequences of the graph have more than 4194304 values together"},
		"wide ids":           {file("idx", []message{ints("zeros", make([]int64, 16384), 16384)}, []message{onnxtest.Value("big", 7, -1, 16384)}, append(wide, node("ReduceSum", names{widest, "one"}, names{"idx"}))...), "is too large for a value that depends on inputs only"},
		"wide inputs":        {file("idx", []message{ints("two", []int64{2}, 1)}, many, append(first, node("Concat", parts, names{"idx"}, onnxtest.Attribute("axis", 1)))...), "the inputs together have too many"},
		"repeated constants": {file("out", nil, nil, loop("ids", "out", append([]message{constant}, folds...), "x", number(folded))), "the constants that are computed have more than"},
		"work of a row":      {squared, "multiplications, expected a click model"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := wire.Read("m.onnx", bytes.NewReader(c.data), int64(len(c.data)))
			if err == nil {
				_, err = dissect.Dissect(m, dissect.Options{})
			}
			if err == nil || !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%.300v, expected an error with %q", err, c.want)
			}
		})
	}
}
