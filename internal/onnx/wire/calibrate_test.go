package wire

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/wire/onnxtest"
)

// ending is a graph with the logit l and the given last nodes and outputs.
func ending(kind int64, outputs []string, nodes ...onnxtest.Message) onnxtest.Graph {
	g := onnxtest.Graph{Inputs: []onnxtest.Message{onnxtest.Value("x", kind, -1, 1)}}
	g.Nodes = append([]onnxtest.Message{onnxtest.Node("Neg", onnxtest.Names{"x"}, onnxtest.Names{"l"})}, nodes...)
	for _, name := range outputs {
		g.Outputs = append(g.Outputs, onnxtest.Value(name, kind, -1, 1))
	}
	return g
}

// A calibration adds two nodes and two constants. Nothing else of the file changes.
func TestCalibration(t *testing.T) {
	type names = onnxtest.Names
	node := onnxtest.Node
	one := []int{1, 1}
	for name, c := range map[string]struct {
		graph onnxtest.Graph
		end   End
		want  string // the nodes
	}{
		"sigmoid": {ending(1, []string{"y"}, node("Sigmoid", names{"l"}, names{"p"}), node("Reshape", names{"p", "x"}, names{"y"})), End{Output: "y", Op: "Sigmoid", Shape: one},
			"Neg x>l Mul l,scale>scaled Add scaled,offset>logit Sigmoid logit>p Reshape p,x>y"},
		"double": {ending(11, []string{"y"}, node("Sigmoid", names{"l"}, names{"y"})), End{Output: "y", Op: "Sigmoid", Shape: one},
			"Neg x>l Mul l,scale>scaled Add scaled,offset>logit Sigmoid logit>y"},
		"logit": {ending(1, []string{"l"}), End{Output: "l", Shape: one}, "Neg x>logit Mul logit,scale>scaled Add scaled,offset>l"},
		"softmax": {ending(1, []string{"y"}, node("Softmax", names{"l"}, names{"y"})), End{Output: "y", Op: "Softmax", Shape: []int{1, 2}, Axis: 1},
			"Neg x>l Mul l,scale>scaled Add scaled,offset>logit Softmax logit>y"},
		"another task": {ending(1, []string{"z", "y"}, node("Sigmoid", names{"l"}, names{"y"}), node("Neg", names{"l"}, names{"z"})), End{Output: "y", Op: "Sigmoid", Shape: one},
			"Neg x>l Mul l,scale>scaled Add scaled,offset>logit Sigmoid logit>y Neg l>z"},
		"taken": {ending(1, []string{"y"}, node("Neg", names{"l"}, names{calibrationPrefix + "scale"}), node("Sigmoid", names{"l"}, names{"y"})), End{Output: "y", Op: "Sigmoid", Shape: one},
			"Neg x>l Neg l>scale Mul l,scale.2>scaled Add scaled,offset>logit Sigmoid logit>y"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, version := range []int64{8, 3} {
				data := onnxtest.Model(18, c.graph.Message(), onnxtest.Message(nil).Text(99, "unknown"))
				data[1] = byte(version)
				m, err := Read("m.onnx", bytes.NewReader(data), int64(len(data)))
				if err != nil {
					t.Fatal(err)
				}
				r, err := m.Rewrite(nil, Options{Calibration: &Calibration{End: c.end, Scale: .5, Offset: 2}})
				if err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				if n, err := r.WriteTo(&out); err != nil || n != r.Bytes || !bytes.HasSuffix(out.Bytes(), data[bytes.Index(data, []byte("unknown")):]) {
					t.Fatalf("%d of %d bytes, %v", n, r.Bytes, err)
				}
				again, err := Read("again.onnx", bytes.NewReader(out.Bytes()), r.Bytes)
				if err != nil {
					t.Fatal(err)
				}
				var text []string
				for _, n := range again.Graph.Nodes {
					text = append(text, n.Op+" "+strings.Join(n.Inputs, ",")+">"+strings.Join(n.Outputs, ","))
				}
				if got := strings.ReplaceAll(strings.Join(text, " "), calibrationPrefix, ""); got != c.want {
					t.Errorf("the nodes are %s, expected %s", got, c.want)
				}
				if len(again.Graph.Inputs) != 1 || fmt.Sprint(again.Graph.Outputs) != fmt.Sprint(m.Graph.Outputs) || again.IR != int(version) {
					t.Errorf("inputs %v and outputs %v, expected %v and %v", again.Graph.Inputs, again.Graph.Outputs, m.Graph.Inputs, m.Graph.Outputs)
				}
				var constants [][]float32
				for _, tensor := range again.Graph.Initializers {
					values := make([]float32, tensor.Elements())
					if err := tensor.ReadFloats(values, 0); err != nil || tensor.Type != m.Graph.Outputs[0].Type {
						t.Fatalf("constant %s of %s: %v", tensor.Name, tensor.Type, err)
					}
					constants = append(constants, values)
				}
				want := [][]float32{{.5}, {2}}
				if c.end.Op == "Softmax" {
					want[1] = []float32{2, 0}
				}
				if !slices.EqualFunc(constants, want, slices.Equal[[]float32]) {
					t.Errorf("constants %v, expected %v", constants, want)
				}
			}
		})
	}
}

// A graph that a calibration would change elsewhere, or whose logit is not found, is refused.
func TestCalibrationRefused(t *testing.T) {
	type names = onnxtest.Names
	node := onnxtest.Node
	sigmoid := node("Sigmoid", names{"l"}, names{"y"})
	inner := onnxtest.Graph{Nodes: []onnxtest.Message{node("Neg", names{"y"}, names{"n"})}, Outputs: []onnxtest.Message{onnxtest.Value("n", 1, -1, 1)}}
	for want, c := range map[string]struct {
		graph onnxtest.Graph
		op    string
		more  onnxtest.Message
		shape []int
	}{
		"node n_z (Neg) reads y too":                                      {graph: ending(1, []string{"y"}, sigmoid, node("Neg", names{"y"}, names{"z"}))},
		"node n_n (Neg) reads y too":                                      {graph: ending(1, []string{"y"}, sigmoid, node("If", names{"x"}, names{"z"}, onnxtest.Attribute("then_branch", inner), onnxtest.Attribute("else_branch", inner)))},
		"the output p has the same value":                                 {graph: ending(1, []string{"p", "y"}, node("Sigmoid", names{"l"}, names{"p"}), node("Identity", names{"p"}, names{"y"}))},
		"node n_y (Clip) is between the Sigmoid and the output y":         {graph: ending(1, []string{"y"}, node("Sigmoid", names{"l"}, names{"p"}), node("Clip", names{"p"}, names{"y"}))},
		"its output y comes from no node":                                 {graph: ending(1, []string{"y"}, node("Identity", names{"x"}, names{"y"}))},
		"its logit is of type float16, expected":                          {graph: ending(10, []string{"y"}, sigmoid)},
		"its logit is of type undefined, expected":                        {graph: ending(1, []string{"y"}, node("Sigmoid", names{"l"}, names{"p"}), node("Cast", names{"p"}, names{"y"}))},
		"the Sigmoid before its output y has the shape [1 3] for one row": {graph: ending(1, []string{"y"}, sigmoid), shape: []int{1, 3}},
		"(Sigmoid) is in a local function": {graph: ending(1, []string{"y"}, onnxtest.Domain(node("f", names{"l"}, names{"y"}), "d")),
			more: onnxtest.Function("d", "f", names{"a"}, names{"b"}, node("Sigmoid", names{"a"}, names{"b"}))},
	} {
		data := onnxtest.Model(18, c.graph.Message(), c.more)
		m, err := Read("m.onnx", bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		if c.shape == nil {
			c.shape = []int{1, 1}
		}
		err = m.CheckEnd(End{Output: "y", Op: "Sigmoid", Shape: c.shape})
		if !fault.IsInput(err) || !strings.Contains(err.Error(), "m.onnx: the graph cannot be calibrated: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected %q", err, want)
		}
	}
}
