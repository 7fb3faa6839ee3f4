package dissect

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/wire"
	"shaver/internal/onnx/wire/onnxtest"
)

type names = onnxtest.Names

var (
	node = onnxtest.Node
	attr = onnxtest.Attribute
)

// Types of elements in ONNX.
const (
	float32s = 1
	int64s   = 7
	bools    = 9
)

// sample is a click model with the tables a [5, 2] and b [3, 2], which the columns i and j
// of ids choose, and a dense input x. A test changes its parts.
type sample struct {
	opset        int64
	inputs       []onnxtest.Message
	outputs      []onnxtest.Message
	initializers []onnxtest.Message
	before       []onnxtest.Message // nodes
	rows         []onnxtest.Message // nodes that make ea and eb, of shape [batch, 2]
	after        []onnxtest.Message // nodes that make y of h, the concatenation of ea, eb and x
}

func sequence(n int) []float32 {
	list := make([]float32, n)
	for i := range list {
		list[i] = float32(i%7) - 2.5
	}
	return list
}

func newSample() *sample {
	return &sample{
		opset:   18,
		inputs:  []onnxtest.Message{onnxtest.Value("ids", int64s, -1, 2), onnxtest.Value("x", float32s, -1, 1)},
		outputs: []onnxtest.Message{onnxtest.Value("y", float32s, -1, 1)},
		initializers: []onnxtest.Message{
			onnxtest.Floats("a", sequence(10), 5, 2), onnxtest.Floats("b", sequence(6), 3, 2), onnxtest.Floats("w", sequence(5), 5, 1),
			onnxtest.Ints("0", []int64{0}), onnxtest.Ints("1", []int64{1}), onnxtest.Ints("[0]", []int64{0}, 1), onnxtest.Ints("[1]", []int64{1}, 1),
			onnxtest.Ints("2", []int64{2}), onnxtest.Ints("3", []int64{3}), onnxtest.Ints("4", []int64{4}), onnxtest.Ints("5", []int64{5}), onnxtest.Ints("[-1]", []int64{-1}, 1),
			onnxtest.Floats("one", []float32{1}),
		},
		before: []onnxtest.Message{
			node("Gather", names{"ids", "0"}, names{"i"}, attr("axis", 1)),
			node("Gather", names{"ids", "1"}, names{"j"}, attr("axis", 1)),
		},
		rows:  []onnxtest.Message{node("Gather", names{"a", "i"}, names{"ea"}), node("Gather", names{"b", "j"}, names{"eb"})},
		after: []onnxtest.Message{node("MatMul", names{"h", "w"}, names{"z"}), node("Sigmoid", names{"z"}, names{"y"})},
	}
}

func (s *sample) bytes() []byte {
	return onnxtest.Model(s.opset, onnxtest.Graph{
		Inputs: s.inputs, Outputs: s.outputs, Initializers: s.initializers,
		Nodes: slices.Concat(s.before, s.rows, []onnxtest.Message{node("Concat", names{"ea", "eb", "x"}, names{"h"}, attr("axis", 1))}, s.after),
	}.Message())
}

func (s *sample) dissect(t *testing.T, o Options) (*Network, error) {
	t.Helper()
	data := s.bytes()
	m, err := wire.Read("m.onnx", bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return Dissect(m, o)
}

// ea sets the nodes that make ea.
func (s *sample) ea(nodes ...onnxtest.Message) { s.rows = slices.Concat(nodes, s.rows[1:]) }

// The parts of a plain model are found.
func TestDissect(t *testing.T) {
	n, err := newSample().dissect(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []Field{{Name: "ids[0]", Input: "ids", Length: 1, Rows: 5, Pad: -1}, {Name: "ids[1]", Input: "ids", Column: 1, Length: 1, Rows: 3, Pad: -1}}; !reflect.DeepEqual(n.Fields, want) {
		t.Errorf("fields %+v, expected %+v", n.Fields, want)
	}
	if len(n.Tables) != 2 || n.Tables[0].Name != "a" || n.Tables[0].Rows != 5 || n.Tables[0].Dim != 2 || n.Tables[1].Name != "b" {
		t.Errorf("tables %+v", n.Tables)
	}
	if len(n.Dense) != 1 || n.Dense[0].Name != "x" || n.Output != "y" || n.Logit != "the input of Sigmoid n_y" {
		t.Errorf("dense inputs %+v, output %q, logit %q", n.Dense, n.Output, n.Logit)
	}
	if want := []Operator{{"Concat", 1}, {"MatMul", 1}}; !slices.Equal(n.Operators, want) {
		t.Errorf("operators %v, expected %v", n.Operators, want)
	}
	for i, l := range n.LookUps {
		if !l.Player || n.Head.Inputs[i] != l.Value || !slices.Equal(n.Head.Values[l.Value].Shape, []int{1, 2}) {
			t.Errorf("look-up %d is %+v", i, l)
		}
	}
	// Row 4 of a is -1.5 -0.5 (elements 8 and 9), row 1 of b is -0.5 0.5, w is -2.5 ... 1.5.
	if got, want := forward(t, n, []int{4, 1}, []float32{2}), -1.5*-2.5+-0.5*-1.5+-0.5*-0.5+0.5*0.5+2*1.5; math.Abs(got-want) > 1e-6 {
		t.Errorf("logit %v, expected %v", got, want)
	}
}

// Files compute row numbers from ids in many ways. In each of these ways, the model has the
// same fields and the same logit as the plain model.
func TestWaysOfIDs(t *testing.T) {
	plain, err := newSample().dissect(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ids, x := []int{4, 1}, []float32{2}
	want := forward(t, plain, ids, x)
	gather := node("Gather", names{"a", "k"}, names{"ea"})
	for name, change := range map[string]func(s *sample){
		"cast":     func(s *sample) { s.ea(node("Cast", names{"i"}, names{"k"}, attr("to", 6)), gather) },
		"identity": func(s *sample) { s.ea(node("Identity", names{"i"}, names{"k"}), gather) },
		"clip":     func(s *sample) { s.ea(node("Clip", names{"i", "0", "4"}, names{"k"}), gather) },
		"where": func(s *sample) {
			s.ea(node("Equal", names{"i", "0"}, names{"p"}), node("Where", names{"p", "0", "i"}, names{"k"}), gather)
		},
		"up and down": func(s *sample) {
			s.ea(node("Add", names{"i", "3"}, names{"q"}), node("Sub", names{"q", "3"}, names{"k"}), gather)
		},
		"shapes": func(s *sample) {
			s.ea(node("Unsqueeze", names{"i", "[0]"}, names{"q"}), node("Transpose", names{"q"}, names{"r"}), node("Reshape", names{"r", "[-1]"}, names{"k"}), gather)
		},
		"rows by GatherND": func(s *sample) {
			s.ea(node("Unsqueeze", names{"i", "[1]"}, names{"k"}), node("GatherND", names{"a", "k"}, names{"ea"}))
		},
		"table renamed": func(s *sample) {
			s.ea(node("Identity", names{"a"}, names{"a2"}), node("Gather", names{"a2", "i"}, names{"ea"}))
		},
		"twice": func(s *sample) {
			s.ea(node("Gather", names{"a", "i"}, names{"e1"}), node("Gather", names{"a", "i"}, names{"e2"}), node("Add", names{"e1", "e2"}, names{"e3"}),
				node("Mul", names{"e3", "half"}, names{"ea"}))
			s.initializers = append(s.initializers, onnxtest.Floats("half", []float32{0.5}))
		},
		"split": func(s *sample) {
			s.before = []onnxtest.Message{node("Split", names{"ids"}, names{"i1", "j1"}, attr("axis", 1)),
				node("Squeeze", names{"i1", "[1]"}, names{"i"}), node("Squeeze", names{"j1", "[1]"}, names{"j"})}
			s.opset = 13
		},
		"slice, flatten": func(s *sample) {
			s.before = []onnxtest.Message{node("Slice", names{"ids", "[0]", "[1]", "[1]"}, names{"i1"}), node("Reshape", names{"i1", "[-1]"}, names{"i"}),
				node("Gather", names{"ids", "1"}, names{"j"}, attr("axis", 1))}
		},
		"float ids": func(s *sample) {
			s.inputs = []onnxtest.Message{onnxtest.Value("ids", float32s, -1, 3)}
			s.before = []onnxtest.Message{
				node("Cast", names{"ids"}, names{"whole"}, attr("to", int64s)),
				node("Gather", names{"whole", "0"}, names{"i"}, attr("axis", 1)), node("Gather", names{"whole", "1"}, names{"j"}, attr("axis", 1)),
				node("Gather", names{"ids", "2"}, names{"x1"}, attr("axis", 1)), node("Unsqueeze", names{"x1", "[1]"}, names{"x"}),
			}
		},
		"rows on the last axis": func(s *sample) {
			s.inputs[0] = onnxtest.Value("ids", int64s, 2, -1)
			s.before = []onnxtest.Message{node("Gather", names{"ids", "0"}, names{"i"}), node("Gather", names{"ids", "1"}, names{"j"})}
		},
		"a column of its own": func(s *sample) {
			s.inputs = append(s.inputs, onnxtest.Value("i", int64s, -1), onnxtest.Value("j", int64s, -1))[1:]
			s.inputs[0], s.inputs[1], s.inputs[2] = s.inputs[1], s.inputs[2], s.inputs[0]
			s.before = nil
		},
		"half precision": func(s *sample) {
			var raw []byte
			for _, f := range sequence(10) { // halves are exact
				bits := math.Float32bits(f)
				raw = binary.LittleEndian.AppendUint16(raw, uint16(bits>>16&0x8000|(bits>>23&0xff-112)<<10|bits>>13&0x3ff))
			}
			s.initializers[0] = onnxtest.Raw("a", 10, raw, 5, 2)
			s.ea(node("Cast", names{"a"}, names{"a2"}, attr("to", float32s)), node("Gather", names{"a2", "i"}, names{"ea"}))
		},
		"half precision in varints": func(s *sample) {
			var varints []byte
			for _, f := range sequence(10) {
				varints = binary.AppendUvarint(varints, uint64(math.Float32bits(f)>>16)) // bfloat16, which is exact too
			}
			s.initializers[0] = onnxtest.Message(nil).Int(1, 5).Int(1, 2).Int(2, 16).Text(8, "a").Text(5, string(varints))
		},
		"if": func(s *sample) {
			s.ea(node("Shape", names{"i"}, names{"count"}), node("Equal", names{"count", "[1]"}, names{"single"}),
				node("If", names{"single"}, names{"ea"},
					attr("then_branch", onnxtest.Graph{Nodes: []onnxtest.Message{node("Neg", names{"x"}, names{"t"})}, Outputs: []onnxtest.Message{onnxtest.Value("t", float32s)}}),
					attr("else_branch", onnxtest.Graph{Nodes: []onnxtest.Message{node("Gather", names{"a", "i"}, names{"e"})}, Outputs: []onnxtest.Message{onnxtest.Value("e", float32s)}})))
		},
		"one row at a time": func(s *sample) {
			s.inputs = []onnxtest.Message{onnxtest.Value("ids", int64s, 1, 2), onnxtest.Value("x", float32s, 1, 1)}
		},
		"batches of 4": func(s *sample) {
			s.inputs = []onnxtest.Message{onnxtest.Value("ids", int64s, 4, 2), onnxtest.Value("x", float32s, 4, 1)}
		},
		"batches of 2, squeezed": func(s *sample) {
			s.inputs = []onnxtest.Message{onnxtest.Value("ids", int64s, 2, 2), onnxtest.Value("x", float32s, 2, 1)}
			s.after = append(s.after[:1:1], node("Squeeze", names{"z"}, names{"z1"}), node("Sigmoid", names{"z1"}, names{"y"}))
		},
		"squeeze of everything": func(s *sample) {
			s.after = append(s.after[:1:1], node("Squeeze", names{"z"}, names{"z1"}), node("Sigmoid", names{"z1"}, names{"y"}))
		},
		"old squeeze": func(s *sample) {
			s.opset = 11
			s.after = append(s.after[:1:1], node("Squeeze", names{"z"}, names{"z1"}, attr("axes", []int64{1})), node("Sigmoid", names{"z1"}, names{"y"}))
		},
		"loop": func(s *sample) {
			body := onnxtest.Graph{
				Inputs:  []onnxtest.Message{onnxtest.Value("turn", int64s), onnxtest.Value("go", bools), onnxtest.Value("sum", float32s)},
				Nodes:   []onnxtest.Message{node("Add", names{"sum", "quarter"}, names{"next"}), node("Identity", names{"go"}, names{"on"})},
				Outputs: []onnxtest.Message{onnxtest.Value("on", bools), onnxtest.Value("next", float32s)},
			}
			s.initializers = append(s.initializers, onnxtest.Floats("quarter", []float32{0.25}))
			s.after = append(s.after[:1:1], node("Loop", names{"4", "", "z"}, names{"z2"}, attr("body", body)), node("Sub", names{"z2", "one"}, names{"z3"}), node("Sigmoid", names{"z3"}, names{"y"}))
		},
		"two classes": func(s *sample) {
			s.after = []onnxtest.Message{node("MatMul", names{"h", "w"}, names{"z1"}), node("Mul", names{"z1", "zero"}, names{"z0"}),
				node("Concat", names{"z0", "z1"}, names{"z"}, attr("axis", 1)), node("Softmax", names{"z"}, names{"y"}, attr("axis", 1))}
			s.initializers = append(s.initializers, onnxtest.Floats("zero", []float32{0}))
		},
		"one of two classes": func(s *sample) {
			s.initializers = append(s.initializers, onnxtest.Floats("zero", []float32{0}))
			s.after = []onnxtest.Message{node("MatMul", names{"h", "w"}, names{"z1"}), node("Mul", names{"z1", "zero"}, names{"z0"}),
				node("Concat", names{"z1", "z0"}, names{"z"}, attr("axis", 1)), node("Softmax", names{"z"}, names{"p"}, attr("axis", -1)), node("Gather", names{"p", "0"}, names{"y"}, attr("axis", 1))}
		},
		"without sigmoid": func(s *sample) { s.after = []onnxtest.Message{node("MatMul", names{"h", "w"}, names{"y"})} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSample()
			change(s)
			n, err := s.dissect(t, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "batches") {
				if len(n.Notes) != 1 || !strings.Contains(n.Notes[0], "batches of") {
					t.Errorf("notes %q", n.Notes)
				}
				n.Notes = nil
			}
			if len(n.Fields) != 2 || n.Fields[0].Rows != 5 || n.Fields[1].Rows != 3 || len(n.LookUps) != 2 || len(n.Notes) != 0 {
				t.Errorf("fields %+v, look-ups %+v, notes %q", n.Fields, n.LookUps, n.Notes)
			}
			if got := forward(t, n, ids, x); math.Abs(got-want) > 1e-5 {
				t.Errorf("logit %v, expected %v", got, want)
			}
		})
	}
}

// A table that fields share with offsets has a look-up for each field.
func TestJointTable(t *testing.T) {
	s := newSample()
	s.initializers = append(s.initializers, onnxtest.Floats("t", sequence(16), 8, 2), onnxtest.Floats("t1", sequence(8), 8), onnxtest.Ints("offsets", []int64{0, 5}, 2))
	s.before = append(s.before, node("Add", names{"ids", "offsets"}, names{"k"}), node("Gather", names{"t", "k"}, names{"e"}), node("Gather", names{"t1", "k"}, names{"f"}))
	s.rows = []onnxtest.Message{node("Gather", names{"e", "0"}, names{"ea"}, attr("axis", 1)), node("Gather", names{"e", "1"}, names{"eb"}, attr("axis", 1))}
	s.after = []onnxtest.Message{node("MatMul", names{"h", "w"}, names{"z1"}), node("ReduceSum", names{"f", "[1]"}, names{"z2"}), node("Add", names{"z1", "z2"}, names{"z"}), node("Sigmoid", names{"z"}, names{"y"})}
	n, err := s.dissect(t, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(n.Tables) != 2 || n.Tables[0].Name != "t" || n.Tables[1].Dim != 1 {
		t.Fatalf("tables %+v", n.Tables)
	}
	var got []LookUp
	for _, l := range n.LookUps {
		l.Value = 0
		got = append(got, l)
	}
	want := []LookUp{{0, 0, 0, true, 0}, {1, 0, 5, true, 0}, {0, 1, 0, false, 0}, {1, 1, 5, false, 0}}
	if !slices.Equal(got, want) || n.Fields[0].Rows != 5 || n.Fields[1].Rows != 3 {
		t.Errorf("look-ups %+v of fields %+v, expected %+v", got, n.Fields, want)
	}
}

// always is how the logit follows from a probability of which a user says that it is a logit.
const always = "the output as it is, which is always between 0 and 1: right only if it predicts labels that are numbers"

// A user chooses the output, and says that it is a logit if it does not look like one.
func TestOutput(t *testing.T) {
	s := newSample()
	s.outputs = append(s.outputs, onnxtest.Value("e", float32s, -1, 1), onnxtest.Value("c", float32s, -1, 5))
	s.after = append(s.after, node("Exp", names{"z"}, names{"e"}), node("Identity", names{"h"}, names{"c"}))
	for _, c := range []struct {
		o        Options
		want     string // part of the error, or of how the logit follows
		settings []string
	}{
		{Options{}, "choose one of: y, e, c", []string{OutputSetting}},
		{Options{Output: "z"}, "there is no output z", []string{OutputSetting}},
		{Options{Output: "c"}, "has the shape [1 5]", []string{OutputSetting}},
		{Options{Output: "e"}, "comes from Exp", []string{OutputSetting, LogitSetting}},
		{Options{Output: "y"}, "the input of Sigmoid n_y", nil},
		{Options{Output: "y[0]"}, "the input of Sigmoid n_y", nil},
		{Options{Output: "y[1]"}, "there is no y[1]", []string{OutputSetting}},
		{Options{Output: "y[-1]"}, "there is no output y[-1]", []string{OutputSetting}},
		{Options{Output: "c[4]", Logit: true}, "the output as it is", nil},
		{Options{Output: "e", Logit: true}, "the output as it is", nil},
		{Options{Output: "y", Logit: true}, always, nil},
		{Options{Output: "y,y[0]"}, "the input of Sigmoid n_y; the input of Sigmoid n_y", nil},
		{Options{Output: "y,z"}, "there is no output z", []string{OutputSetting}},
		{Options{Output: "y,c"}, "output c has the shape [1 5]", []string{OutputSetting}},
		{Options{Output: "y,e"}, "output e has the shape [1 1] and comes from Exp", []string{OutputSetting, LogitSetting}},
	} {
		n, err := s.dissect(t, c.o)
		if c.settings == nil {
			if err != nil || n.Logit != c.want {
				t.Errorf("%+v: %v, %+v", c.o, err, n)
			}
			continue
		}
		if err == nil || !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) || !slices.Equal(fault.Settings(err), c.settings) {
			t.Errorf("%+v: error %v with the settings %q, expected %q with %q", c.o, err, fault.Settings(err), c.want, c.settings)
		}
	}
}

// A logit may be one of several that are divided by a constant, or the largest of several.
func TestOutputOfSeveral(t *testing.T) {
	s := newSample()
	s.initializers = append(s.initializers, onnxtest.Floats("half", []float32{.5}))
	s.outputs = append(s.outputs, onnxtest.Value("d", float32s, -1, 5), onnxtest.Value("m", float32s, -1), onnxtest.Value("p", float32s, -1))
	s.after = append(s.after, node("Add", names{"h", "h"}, names{"v"}), node("Div", names{"v", "half"}, names{"d"}), node("ReduceMax", names{"d", "[1]"}, names{"m"}, attr("keepdims", 0)),
		node("Sigmoid", names{"d"}, names{"s"}), node("ReduceMax", names{"s", "[1]"}, names{"p"}, attr("keepdims", 0)))
	for output, want := range map[string]string{"d[3]": "the output, which has no Sigmoid", "m": "the output, which has no Sigmoid", "p": "comes from ReduceMax"} {
		n, err := s.dissect(t, Options{Output: output})
		if err == nil && n.Logit != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %+v, expected %q", output, err, n, want)
		}
	}
}

// The logit of a product of probabilities is exact where the product, or one minus it, is too
// small for float32. A factor that is no probability is refused.
func TestProductOfProbabilities(t *testing.T) {
	logit := func(x, y float64) float64 { return -math.Log(math.Exp(-x) + math.Exp(-y) + math.Exp(-x-y)) }
	for _, scale := range []float32{-20, -1, .5, 20} {
		s := newSample()
		s.initializers = append(s.initializers, onnxtest.Floats("scale", []float32{scale}))
		s.outputs = []onnxtest.Message{onnxtest.Value("p", float32s, -1, 5), onnxtest.Value("q", float32s, -1, 5)}
		s.after = append(s.after, node("Mul", names{"z", "scale"}, names{"u"}), node("Sigmoid", names{"u"}, names{"v"}), node("Sigmoid", names{"h"}, names{"w5"}),
			node("Mul", names{"v", "w5"}, names{"vw"}), node("Mul", names{"y", "vw"}, names{"p"}), node("Mul", names{"v", "u"}, names{"q"}))
		n, err := s.dissect(t, Options{Output: "p[4]"})
		if err != nil || n.Logit != "log(p) - log(1-p) of the output p, which is computed from other probabilities" {
			t.Fatalf("%v, %+v", err, n)
		}
		want := logit(logit(8*float64(scale), 2), 8) // z is 8, and h[4] is 2
		if got := forward(t, n, []int{4, 1}, []float32{2}); math.Abs(got-want) > 1e-6*math.Max(1, math.Abs(want)) {
			t.Errorf("scale %v: logit %v, expected %v", scale, got, want)
		}
		if _, err := s.dissect(t, Options{Output: "q[0]"}); err == nil || !strings.Contains(err.Error(), "comes from Mul, expected") {
			t.Errorf("a factor that is no probability: %v", err)
		}
	}
}

// What is computed from probabilities and stays in [0, 1] is no logit, unless that is said. A rating is one.
func TestArithmeticOfProbabilities(t *testing.T) {
	s := newSample()
	s.initializers = append(s.initializers, onnxtest.Floats("half", []float32{.5}), onnxtest.Floats("two", []float32{2}))
	s.after = append(s.after, node("Sigmoid", names{"h"}, names{"v"}), node("Mul", names{"v", "half"}, names{"halves"}), node("Add", names{"halves", "half"}, names{"scaled"}),
		node("Mul", names{"v", "v"}, names{"vv"}), node("Add", names{"v", "vv"}, names{"both"}), node("Div", names{"both", "two"}, names{"mean"}),
		node("Sub", names{"two", "v"}, names{"less"}), node("Sub", names{"less", "half"}, names{"lesser"}), node("Add", names{"v", "h"}, names{"mixed"}))
	for output, op := range map[string]string{"scaled": "Add", "mean": "Div", "both": "", "less": "", "lesser": "", "mixed": ""} {
		s.outputs = []onnxtest.Message{onnxtest.Value(output, float32s, -1, 5)}
		n, err := s.dissect(t, Options{Output: output + "[2]"})
		if op == "" {
			if err != nil || n.Logit != "the output, which has no Sigmoid" {
				t.Errorf("%s: %v, %+v", output, err, n)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "comes from "+op+", expected") || !slices.Equal(fault.Settings(err), []string{OutputSetting}) {
			t.Errorf("%s: error %v, %+v", output, err, n)
		}
		if n, err := s.dissect(t, Options{Output: output + "[2]", Logit: true}); err != nil || n.Logit != always {
			t.Errorf("%s as a logit: %v, %+v", output, err, n)
		}
	}
}

// A mean of probabilities is refused however it is computed, and the error has no way out that
// leads to a wrong logit. The same operators over hidden units give a logit.
func TestMeanOfProbabilities(t *testing.T) {
	for name, c := range map[string]struct {
		nodes []onnxtest.Message // of z, two logits z2, two probabilities p2, and five hidden units h5
		op    string             // what the error names; "" if it is a logit
	}{
		"stack": {[]onnxtest.Message{node("Sigmoid", names{"z"}, names{"p"}), node("Sigmoid", names{"half"}, names{"q"}), node("Unsqueeze", names{"p", "[0]"}, names{"p1"}),
			node("Unsqueeze", names{"q", "[0]"}, names{"q1"}), node("Concat", names{"p1", "q1"}, names{"pq"}, attr("axis", 0)), node("ReduceMean", names{"pq", "[0]"}, names{"y"}, attr("keepdims", 0))}, "ReduceMean"},
		"mean":       {[]onnxtest.Message{node("ReduceMean", names{"p2", "[1]"}, names{"y"})}, "ReduceMean"},
		"weights":    {[]onnxtest.Message{node("Mul", names{"p2", "w2"}, names{"wp"}), node("ReduceSum", names{"wp", "[1]"}, names{"y"})}, "ReduceSum"},
		"matrix":     {[]onnxtest.Message{node("MatMul", names{"p2", "w21"}, names{"y"})}, "MatMul"},
		"layer":      {[]onnxtest.Message{node("Gemm", names{"p2", "w21"}, names{"y"})}, "Gemm"},
		"tanh":       {[]onnxtest.Message{node("Tanh", names{"z"}, names{"t"}), node("Add", names{"t", "one"}, names{"t1"}), node("Mul", names{"t1", ".5"}, names{"y"})}, "Mul"},
		"logistic":   {[]onnxtest.Message{node("Neg", names{"z"}, names{"m"}), node("Exp", names{"m"}, names{"e"}), node("Add", names{"one", "e"}, names{"e1"}), node("Div", names{"one", "e1"}, names{"y"})}, "Div"},
		"clip":       {[]onnxtest.Message{node("Sigmoid", names{"z"}, names{"p"}), node("Clip", names{"p", ".1", ".5"}, names{"y"})}, "Clip"},
		"complement": {[]onnxtest.Message{node("Sigmoid", names{"z"}, names{"p"}), node("Sub", names{"one", "p"}, names{"y"})}, "Sub"},
		"hidden":     {[]onnxtest.Message{node("MatMul", names{"h5", "w"}, names{"y"})}, ""},
		"bias":       {[]onnxtest.Message{node("Gemm", names{"p2", "w21", "bias"}, names{"y"})}, ""},
		"attention":  {[]onnxtest.Message{node("Softmax", names{"z2"}, names{"s"}), node("Mul", names{"s", "z2"}, names{"sz"}), node("ReduceSum", names{"sz", "[1]"}, names{"y"})}, ""},
		"gate":       {[]onnxtest.Message{node("Mul", names{"h5", "h"}, names{"g"}), node("ReduceMean", names{"g", "[1]"}, names{"y"})}, ""},
		"logits":     {[]onnxtest.Message{node("ReduceMean", names{"z2", "[1]"}, names{"y"})}, ""},
	} {
		s := newSample()
		s.initializers = append(s.initializers, onnxtest.Floats(".1", []float32{.1}), onnxtest.Floats(".5", []float32{.5}), onnxtest.Floats("bias", []float32{-.5}),
			onnxtest.Floats("w2", []float32{.7, .3}, 2), onnxtest.Floats("w21", []float32{.7, .3}, 2, 1))
		s.after = append([]onnxtest.Message{node("MatMul", names{"h", "w"}, names{"z"}), node("Mul", names{"z", ".5"}, names{"half"}), node("Concat", names{"z", "half"}, names{"z2"}, attr("axis", 1)),
			node("Sigmoid", names{"z2"}, names{"p2"}), node("Sigmoid", names{"h"}, names{"h5"})}, c.nodes...)
		n, err := s.dissect(t, Options{})
		if c.op == "" {
			if err != nil || n.Logit != "the output, which has no Sigmoid" {
				t.Errorf("%s: %v, %+v", name, err, n)
			}
			continue
		}
		want := "comes from " + c.op + ", expected a Sigmoid, a Softmax of two classes, a product of these, or a logit. It is always between 0 and 1, as a probability is: " +
			"export the logit, which is the value before the Sigmoid, or end the graph with the Sigmoid"
		if err == nil || !strings.HasSuffix(err.Error(), want) || fault.Settings(err) != nil {
			t.Errorf("%s: error %v with the settings %q, %+v", name, err, fault.Settings(err), n)
		}
	}
}

// A sum of probabilities with the weights of a softmax is a probability. One with part of the
// weights is refused, and one of other numbers is taken for a logit.
func TestMixtureOfProbabilities(t *testing.T) {
	s := newSample()
	s.outputs = []onnxtest.Message{onnxtest.Value("p", float32s, -1, 1), onnxtest.Value("part", float32s, -1, 1), onnxtest.Value("q", float32s, -1, 1)}
	s.after = append(s.after, node("Softmax", names{"h"}, names{"w5"}, attr("axis", -1)), node("Sigmoid", names{"h"}, names{"s5"}), node("Unsqueeze", names{"w5", "[1]"}, names{"w15"}),
		node("Unsqueeze", names{"s5", "[-1]"}, names{"s51"}), node("MatMul", names{"w15", "s51"}, names{"p11"}), node("Squeeze", names{"p11", "[1]"}, names{"p"}),
		node("Mul", names{"w5", "s5"}, names{"ws"}), node("Slice", names{"ws", "[0]", "[1]", "[1]"}, names{"ws1"}), node("ReduceSum", names{"ws1", "[1]"}, names{"part"}),
		node("Unsqueeze", names{"h", "[-1]"}, names{"h51"}), node("MatMul", names{"w15", "h51"}, names{"q11"}), node("Squeeze", names{"q11", "[1]"}, names{"q"}))
	n, err := s.dissect(t, Options{Output: "p"})
	if err != nil || !strings.HasPrefix(n.Logit, "log(p) - log(1-p)") {
		t.Fatalf("%v, %+v", err, n)
	}
	var p, sum float64
	for _, h := range []float64{-1.5, -.5, -.5, .5, 2} { // see TestDissect
		p += math.Exp(h) / (1 + math.Exp(-h))
		sum += math.Exp(h)
	}
	want := math.Log(p / (sum - p))
	if got := forward(t, n, []int{4, 1}, []float32{2}); math.Abs(got-want) > 1e-6 {
		t.Errorf("logit %v, expected %v", got, want)
	}
	if n, err := s.dissect(t, Options{Output: "part"}); err == nil || !strings.Contains(err.Error(), "comes from ReduceSum, expected") {
		t.Errorf("%v, %+v", err, n)
	}
	if n, err := s.dissect(t, Options{Output: "q"}); err != nil || n.Logit != "the output, which has no Sigmoid" {
		t.Errorf("%v, %+v", err, n)
	}
}

// The logit of a model of several tasks is that of the one that the selector chooses, and the sum of their multiples
// for any other selector. Tables that one of the outputs reads are those of the model.
func TestTasks(t *testing.T) {
	s := newSample()
	s.outputs = append(s.outputs, onnxtest.Value("only a", float32s, -1, 2), onnxtest.Value("both", float32s, -1, 1))
	s.after = append(s.after, node("Sigmoid", names{"ea"}, names{"only a"}), node("Neg", names{"z"}, names{"minus z"}), node("Sigmoid", names{"minus z"}, names{"not"}), node("Mul", names{"y", "not"}, names{"both"}))
	outputs := []string{"only a[1]", "y", "both"}
	n, err := s.dissect(t, Options{Output: strings.Join(outputs, ",")})
	if err != nil {
		t.Fatal(err)
	}
	if n.Output != "only a[1],y,both" || n.Tasks != 3 || len(n.Tables) != 2 || len(n.Dense) != 4 || n.Dense[0].Name != "x" || n.Dense[3].Name != "task.2" || len(n.Head.Inputs) != 6 {
		t.Fatalf("%+v", n)
	}
	ids := []int{4, 1}
	sum, selector := 0.0, []float32{.5, -3, 2}
	for i, output := range outputs {
		one, err := s.dissect(t, Options{Output: output})
		if err != nil || one.Tasks != 0 {
			t.Fatal(err)
		}
		want := forward(t, one, ids, []float32{2})
		chosen := []float32{2, 0, 0, 0}
		chosen[1+i] = 1
		if got := forward(t, n, ids, chosen); got != want {
			t.Errorf("logit of %s is %v, expected %v", output, got, want)
		}
		sum += float64(selector[i]) * want
	}
	if got := forward(t, n, ids, append([]float32{2}, selector...)); math.Abs(got-sum) > 1e-5 {
		t.Errorf("the logit is %v, expected %v", got, sum)
	}
}

// One of several numbers of an output gives the logit of its own task.
func TestOneOfSeveralTasks(t *testing.T) {
	s := newSample()
	want := forwardOf(t, s, Options{})
	s.after = []onnxtest.Message{node("MatMul", names{"h", "w"}, names{"z"}), node("Neg", names{"z"}, names{"z0"}), node("Sigmoid", names{"z0"}, names{"p0"}), node("Sigmoid", names{"z"}, names{"p1"}),
		node("Concat", names{"p0", "p1"}, names{"y"}, attr("axis", 1))}
	for output, want := range map[string]float64{"y[0]": -want, "y[1]": want} {
		if got := forwardOf(t, s, Options{Output: output}); math.Abs(got-want) > 1e-6 {
			t.Errorf("logit of %s is %v, expected %v", output, got, want)
		}
	}
	if _, err := s.dissect(t, Options{}); err == nil || !strings.Contains(err.Error(), "choose one of them, such as y[0]") {
		t.Errorf("without a choice the error is %v", err)
	}
}

// Of an output that has a probability and its complement, the error suggests the probability.
func TestComplement(t *testing.T) {
	for output, order := range map[string]names{"y[1]": {"q", "p"}, "y[0]": {"p", "q"}} {
		s := newSample()
		s.after = []onnxtest.Message{node("MatMul", names{"h", "w"}, names{"z"}), node("Sigmoid", names{"z"}, names{"p"}), node("Sub", names{"one", "p"}, names{"q"}),
			node("Concat", order, names{"y"}, attr("axis", 1))}
		if _, err := s.dissect(t, Options{}); err == nil || !strings.Contains(err.Error(), "such as "+output+", which comes from a Sigmoid,") {
			t.Errorf("%v: %v, expected %s", order, err, output)
		}
		if _, err := s.dissect(t, Options{Output: output}); err != nil {
			t.Error(err)
		}
	}
}

// forwardOf returns the logit of s for some row.
func forwardOf(t *testing.T, s *sample, o Options) float64 {
	t.Helper()
	n, err := s.dissect(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return forward(t, n, []int{4, 1}, []float32{2})
}

// refusals has models that must be refused, with a part of the error.
var refusals = map[string]struct {
	change func(s *sample)
	want   string
}{
	"sequence": {func(s *sample) {
		s.ea(node("Gather", names{"a", "ids"}, names{"e"}), node("ReduceMean", names{"e", "[1]"}, names{"ea"}, attr("keepdims", 0)))
	}, "ids is a list, but table b is read from row 0 on for some of its positions and not for position 0"},
	"shared in part": {func(s *sample) {
		s.initializers = append(s.initializers, onnxtest.Floats("a1", sequence(3), 3, 1))
		s.rows[1] = node("Gather", names{"a", "j"}, names{"eb"})
		s.after = append(s.after[:1:1], node("Gather", names{"a1", "j"}, names{"g"}), node("Add", names{"z", "g"}, names{"y"}))
	}, "ids[0] chooses from 5 rows of table a and ids[1] from 3, which other tables limit"},
	"two strides": {func(s *sample) {
		s.initializers = append(s.initializers, onnxtest.Ints("01", []int64{0, 1}, 2), onnxtest.Floats("c", sequence(12), 6, 2))
		s.rows[1] = node("Gather", names{"c", "j"}, names{"eb"})
		s.before = append(s.before, node("Unsqueeze", names{"i", "[1]"}, names{"i1"}), node("Mul", names{"i1", "2"}, names{"i2"}), node("Add", names{"i2", "01"}, names{"ik"}),
			node("Gather", names{"c", "ik"}, names{"ec"}))
		s.after = append(s.after[:1:1], node("ReduceSum", names{"ec"}, names{"g"}), node("Add", names{"z", "g"}, names{"y"}))
	}, "it reads table c by the row numbers id*1 + k, and another node by id*2 + k"},
	"tied weights": {func(s *sample) {
		s.after = []onnxtest.Message{node("Transpose", names{"a"}, names{"at"}), node("MatMul", names{"ea", "at"}, names{"m"}), node("ReduceSum", names{"m", "[1]"}, names{"y"})}
	}, "node n_at reads table a other than by a look-up"},
	"constant row": {func(s *sample) {
		s.after = append(s.after[:1:1], node("Gather", names{"a", "0"}, names{"g"}), node("ReduceSum", names{"g"}, names{"gs"}), node("Add", names{"z", "gs"}, names{"y"}))
	}, "node n_g reads table a other than by a look-up"},
	"edges": {func(s *sample) {
		s.initializers = append(s.initializers, onnxtest.Floats("edges", sequence(6), 6))
		s.after = append(s.after[:1:1], node("Gather", names{"edges", "i"}, names{"gi"}), node("Unsqueeze", names{"gi", "[1]"}, names{"g"}), node("ReduceSum", names{"edges"}, names{"all"}),
			node("Add", names{"z", "g"}, names{"zg"}), node("Add", names{"zg", "all"}, names{"y"}))
	}, "an entry would count in every row; if it holds the edges of a bucketize, export the module with (x.unsqueeze(-1) > edges).sum(-1) in its place"},
	"computed table": {func(s *sample) {
		s.ea(node("Mul", names{"a", "one"}, names{"a2"}), node("Gather", names{"a2", "i"}, names{"ea"}))
	}, "node n_ea (Gather): the ids choose rows of a table that is computed"},
	"ids from 1": {func(s *sample) {
		s.ea(node("Sub", names{"i", "1"}, names{"k"}), node("Gather", names{"a", "k"}, names{"ea"}))
	}, "id 0 reads row -1 of table a: the ids of a dataset begin at 0, so put a row in front of the table, and export the module without what it subtracts from the ids"},
	"ids from 2": {func(s *sample) {
		s.ea(node("Sub", names{"i", "1"}, names{"i1"}), node("Sub", names{"i1", "1"}, names{"k"}), node("Gather", names{"a", "k"}, names{"ea"}))
	}, "id 0 reads row -2 of table a: the ids of a dataset begin at 0, so put 2 rows in front of the table"},
	"columns": {func(s *sample) { s.ea(node("Gather", names{"a", "i"}, names{"ea"}, attr("axis", 1))) }, "along axis 1"},
	"logits of two classes": {func(s *sample) {
		s.after = []onnxtest.Message{node("MatMul", names{"h", "w"}, names{"z"}), node("Neg", names{"z"}, names{"z0"}), node("Concat", names{"z0", "z"}, names{"y"}, attr("axis", 1))}
	}, "export their difference, y[1] - y[0], if a Softmax"},
	"products in uint64": {func(s *sample) {
		s.ea(node("Cast", names{"i"}, names{"q"}, attr("to", 13)), node("Mul", names{"q", "q"}, names{"r"}), node("Cast", names{"r"}, names{"k"}, attr("to", 7)), node("Gather", names{"a", "k"}, names{"ea"}))
	}, "node n_r (Mul): it computes in uint64"},
	"rows touch by a mean": {func(s *sample) {
		s.after = []onnxtest.Message{node("ReduceMean", names{"h", "[0]"}, names{"m"}), node("Sub", names{"h", "m"}, names{"h2"}), node("MatMul", names{"h2", "w"}, names{"y"})}
	}, "depends on the other rows of its batch"},
	"rows touch by a softmax": {func(s *sample) {
		s.after = []onnxtest.Message{node("Softmax", names{"h"}, names{"h2"}, attr("axis", 0)), node("MatMul", names{"h2", "w"}, names{"y"})}
	}, "depends on the other rows of its batch"},
	"rows are summed": {func(s *sample) {
		s.after = []onnxtest.Message{node("MatMul", names{"h", "w"}, names{"z"}), node("ReduceSum", names{"z", "[0]"}, names{"y"})}
	}, "expected an axis with the rows"},
	"training": {func(s *sample) {
		s.initializers = append(s.initializers, onnxtest.Floats("v", make([]float32, 5), 5))
		s.after = append([]onnxtest.Message{node("BatchNormalization", names{"h", "v", "v", "v", "v"}, names{"h2"}, attr("training_mode", 1))}, s.after...)
		s.after[1] = node("MatMul", names{"h2", "w"}, names{"z"})
	}, "node n_h2 (BatchNormalization): it is in training mode"},
	"strings":         {func(s *sample) { s.inputs[1] = onnxtest.Value("x", 8, -1, 1) }, "input x is of string"},
	"sequence length": {func(s *sample) { s.inputs[0] = onnxtest.Value("ids", int64s, -1, -1) }, "input ids: axis 1 has no fixed size"},
	"huge input":      {func(s *sample) { s.inputs[0] = onnxtest.Value("ids", int64s, -1, 1<<40) }, "input ids has"},
	"fixed batch whose rows touch": {func(s *sample) {
		s.inputs = []onnxtest.Message{onnxtest.Value("ids", int64s, 4, 2), onnxtest.Value("x", float32s, 4, 1)}
		s.after = []onnxtest.Message{node("ReduceMean", names{"h", "[0]"}, names{"m"}), node("Sub", names{"h", "m"}, names{"h2"}), node("MatMul", names{"h2", "w"}, names{"y"})}
	}, "output y has the shape [4 1] for one row"},
	"two outputs in one": {func(s *sample) {
		s.after = []onnxtest.Message{node("MatMul", names{"h", "w"}, names{"z"}), node("Concat", names{"z", "z"}, names{"z2"}, attr("axis", 1)), node("Sigmoid", names{"z2"}, names{"y"})}
	}, "output y has the shape [1 2] for one row"},
	"no table":         {func(s *sample) { s.after = []onnxtest.Message{node("Sigmoid", names{"x"}, names{"y"})} }, "no input chooses the rows of a table"},
	"constant":         {func(s *sample) { s.after = []onnxtest.Message{node("Sigmoid", names{"one"}, names{"y"})} }, "output y"},
	"unknown operator": {func(s *sample) { s.after = []onnxtest.Message{node("Det", names{"h"}, names{"y"})} }, "n_y\" (Det)"},
	"scan": {func(s *sample) {
		s.after = []onnxtest.Message{node("Scan", names{"h"}, names{"y"}, attr("body", onnxtest.Graph{}))}
	}, "node n_y (Scan)"},
	"condition of rows": {func(s *sample) {
		s.after = []onnxtest.Message{node("Cast", names{"h"}, names{"c"}, attr("to", bools)), node("If", names{"c"}, names{"y"}, attr("then_branch", onnxtest.Graph{}), attr("else_branch", onnxtest.Graph{}))}
	}, "node n_y (If) depends on the row"},
	"endless loop": {func(s *sample) {
		body := onnxtest.Graph{
			Inputs:  []onnxtest.Message{onnxtest.Value("turn", int64s), onnxtest.Value("go", bools), onnxtest.Value("sum", float32s)},
			Nodes:   []onnxtest.Message{node("Identity", names{"sum"}, names{"next"})},
			Outputs: []onnxtest.Message{onnxtest.Value("go", bools), onnxtest.Value("next", float32s)},
		}
		s.after = append(s.after[:1:1], node("Loop", names{"", "", "z"}, names{"y"}, attr("body", body)))
	}, "node n_y (Loop): loops take more than"},
	"loops in loops": {func(s *sample) {
		body := onnxtest.Graph{Nodes: []onnxtest.Message{node("Add", names{"z", "z"}, names{"q"})}}
		for i := range 6 {
			suffix := string(rune('a' + i))
			body.Inputs = []onnxtest.Message{onnxtest.Value("turn"+suffix, int64s), onnxtest.Value("go"+suffix, bools)}
			body.Outputs = []onnxtest.Message{onnxtest.Value("go"+suffix, bools), onnxtest.Value("z", float32s)}
			body = onnxtest.Graph{Nodes: []onnxtest.Message{node("Loop", names{"many", ""}, names{"r" + suffix}, attr("body", body))}}
		}
		s.initializers = append(s.initializers, onnxtest.Ints("many", []int64{1000}))
		s.after = append(s.after[:1:1], slices.Concat(body.Nodes, []onnxtest.Message{node("Identity", names{"rf"}, names{"y"})})...)
	}, "loops take more than"},
	"too many operators": {func(s *sample) {
		body := onnxtest.Graph{
			Inputs:  []onnxtest.Message{onnxtest.Value("turn", int64s), onnxtest.Value("go", bools), onnxtest.Value("sum", float32s)},
			Outputs: []onnxtest.Message{onnxtest.Value("go", bools), onnxtest.Value("sum", float32s)},
		}
		for i := range 100 {
			body.Nodes = append(body.Nodes, node("Identity", names{"turn"}, names{fmt.Sprint("v", i)}))
		}
		s.initializers = append(s.initializers, onnxtest.Ints("many", []int64{4000}))
		s.after = append(s.after[:1:1], node("Loop", names{"many", "", "z"}, names{"y"}, attr("body", body)))
	}, "operators with its loops unrolled"},
	"too much work": {func(s *sample) {
		s.initializers = append(s.initializers, onnxtest.Ints("wide", []int64{2000, 2000}, 2), onnxtest.Ints("[0,1]", []int64{0, 1}, 2))
		s.after = []onnxtest.Message{node("Reshape", names{"h", "[-1]"}, names{"f"}), node("Gather", names{"f", "[0]"}, names{"s"}), node("Expand", names{"s", "wide"}, names{"m"}),
			node("MatMul", names{"m", "m"}, names{"p"}), node("ReduceSum", names{"p", "[0,1]"}, names{"y"}, attr("keepdims", 0))}
	}, "output y takes more than"},
	"too large a shape": {func(s *sample) {
		s.initializers = append(s.initializers, onnxtest.Ints("wide", []int64{1 << 40, 5}, 2))
		s.after = []onnxtest.Message{node("Expand", names{"h", "wide"}, names{"y"})}
	}, "n_y"},
	"too many ids": {func(s *sample) {
		s.initializers = append(s.initializers, onnxtest.Ints("wide", []int64{1 << 20, 2}, 2))
		s.ea(node("Expand", names{"ids", "wide"}, names{"k"}), node("Gather", names{"a", "k"}, names{"ea"}))
	}, "node n_k (Expand): its result"},
	"rows that shrink": {func(s *sample) {
		s.ea(node("Cast", names{"i"}, names{"k"}, attr("to", 2)), node("Gather", names{"big", "k"}, names{"ea"}))
		s.initializers = append(s.initializers, onnxtest.Floats("big", make([]float32, 600), 300, 2))
	},
		"id 256 reads row 0, expected row 256"},
}

// A model that is not supported is refused within bounded memory, with one line that says
// why.
func TestRefusals(t *testing.T) {
	for name, c := range refusals {
		t.Run(name, func(t *testing.T) {
			s := newSample()
			c.change(s)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			n, err := s.dissect(t, Options{})
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatalf("no error, but %+v", n)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 128<<20 {
				t.Errorf("%d MiB were allocated", took>>20)
			}
			if !fault.IsInput(err) || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "m.onnx: ") {
				t.Errorf("error %q, expected one line of bad input that names the file", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q, expected %q", err, c.want)
			}
		})
	}
}

// A graph whose batch axis has no fixed size, but which computes only single rows, is
// accepted with a note.
func TestSingleRows(t *testing.T) {
	s := newSample()
	s.initializers = append(s.initializers, onnxtest.Ints("[1,5]", []int64{1, 5}, 2))
	s.after = []onnxtest.Message{node("Reshape", names{"h", "[1,5]"}, names{"h2"}), node("MatMul", names{"h2", "w"}, names{"y"})}
	n, err := s.dissect(t, Options{})
	if err != nil || len(n.Notes) != 1 || !strings.Contains(n.Notes[0], "one row at a time only") {
		t.Errorf("%v, %+v, expected a note", err, n)
	}
}

// An input that nothing reads gets a note, because an exporter that was given one tensor
// for two inputs connects only one of them.
func TestIgnoredInput(t *testing.T) {
	s := newSample()
	s.inputs = append(s.inputs, onnxtest.Value("user", int64s, -1))
	n, err := s.dissect(t, Options{})
	if err != nil || len(n.Notes) != 1 || !strings.Contains(n.Notes[0], "does not depend on the input user: ") || n.Ignored != n.Notes[0] {
		t.Errorf("%v, %+v, expected a note", err, n)
	}
	s.inputs = append(s.inputs, onnxtest.Value("time", int64s, -1))
	if n, err = s.dissect(t, Options{}); err != nil || !strings.Contains(n.Ignored, "does not depend on the inputs user, time: ") {
		t.Errorf("%v, %+v, expected a note", err, n)
	}
}

// A constant with the values of a table, transposed or not, gets a note.
func TestCopiedTable(t *testing.T) {
	for _, transposed := range []bool{false, true} {
		s := newSample()
		table, product := sequence(10), node("MatMul", names{"ea", "copy"}, names{"q"})
		copied := onnxtest.Floats("copy", table, 5, 2)
		if transposed {
			turned := make([]float32, len(table))
			for i, x := range table {
				turned[i%2*5+i/2] = x
			}
			copied = onnxtest.Floats("copy", turned, 2, 5)
		} else {
			product = node("Gemm", names{"ea", "copy"}, names{"q"}, attr("transB", 1))
		}
		s.initializers = append(s.initializers, copied)
		s.after = []onnxtest.Message{
			product, node("ReduceSum", names{"q", "[-1]"}, names{"s"}), node("MatMul", names{"h", "w"}, names{"u"}),
			node("Add", names{"u", "s"}, names{"z"}), node("Sigmoid", names{"z"}, names{"y"}),
		}
		n, err := s.dissect(t, Options{})
		if err != nil || len(n.Notes) != 1 || !strings.HasPrefix(n.Notes[0], "the constant copy has the values of table a, but scores and pruning leave it as it is: ") {
			t.Errorf("transposed %t: %v, %+v, expected a note", transposed, err, n)
		}
	}
}

// hole is a file with a head, a tail and zeros between them, such as a sparse file.
type hole struct {
	head, tail []byte
	size       int64
}

func (h *hole) ReadAt(b []byte, at int64) (int, error) {
	clear(b)
	if at < int64(len(h.head)) {
		copy(b, h.head[at:])
	}
	for i := range b {
		if place := at + int64(i) - (h.size - int64(len(h.tail))); place >= 0 && place < int64(len(h.tail)) {
			b[i] = h.tail[place]
		}
	}
	return int(min(int64(len(b)), h.size-at)), nil
}

// A table of 4 GiB is taken apart without reading it.
func TestLargeTable(t *testing.T) {
	const rows, dim = 1 << 26, 16
	const size = rows * dim * 4
	s := newSample()
	table := onnxtest.Message(nil).Int(1, rows).Int(1, dim).Int(2, 1).Text(8, "big")
	table = append(table, 0x4a)
	table = binary.AppendUvarint(table, size)
	s.rows[0] = node("Gather", names{"big", "i"}, names{"e"})
	s.rows = append(s.rows, node("ReduceSum", names{"e", "[1]"}, names{"ea"}))
	s.initializers[2] = onnxtest.Floats("w", sequence(4), 4, 1)
	rest := s.bytes()
	at := bytes.IndexByte(rest, 0x3a) // the graph
	length, n := binary.Uvarint(rest[at+1:])
	graph := rest[at+1+n : at+1+n+int(length)]
	after := rest[at+1+n+int(length):]
	entry := append([]byte{0x2a}, binary.AppendUvarint(nil, uint64(len(table))+size)...)
	entry = append(entry, table...)
	head := slices.Concat(rest[:at], []byte{0x3a}, binary.AppendUvarint(nil, uint64(len(graph)+len(entry))+size), graph, entry)
	f := &hole{head, after, int64(len(head)+len(after)) + size}
	var before, later runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := wire.Read("m.onnx", f, f.size)
	if err != nil {
		t.Fatal(err)
	}
	network, err := Dissect(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&later)
	if took := later.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("%d bytes were allocated", took)
	}
	if network.Fields[0].Rows != rows {
		t.Errorf("fields %+v", network.Fields)
	}
}

// Any graph is refused as bad input, or gives a network that computes the logit of a row.
func FuzzDissect(f *testing.F) {
	f.Add(newSample().bytes())
	for _, c := range refusals {
		s := newSample()
		c.change(s)
		f.Add(s.bytes())
	}
	for _, name := range []string{"dlrm-offsets.legacy", "dlrm-offsets.dynamo", "fuxictr-pnn.legacy", "two-classes.legacy", "ncf.opset9"} {
		data, err := os.ReadFile(filepath.Join(exports, name+".onnx"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := wire.Read("m.onnx", bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		for _, o := range []Options{{}, {Output: "y", Logit: true}} {
			n, err := Dissect(m, o)
			if err != nil {
				if !fault.IsInput(err) {
					t.Fatalf("%v is not bad input", err)
				}
				continue
			}
			var ids []int
			for _, field := range n.Fields {
				ids = append(ids, slices.Repeat([]int{field.Rows - 1}, field.Length)...)
			}
			forward(t, n, ids, make([]float32, len(n.Dense)))
		}
	})
}
