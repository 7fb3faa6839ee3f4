package dissect

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/graph/graphtest"
	"shaver/internal/onnx/wire"
)

// wireNode returns the case's node as a file has it, with its inputs x0, x1, ...
func wireNode(c graphtest.Case) *wire.Node {
	n := &wire.Node{Name: c.Name, Op: c.Op, Opset: 22, Attributes: map[string]*wire.Attribute{}}
	for name, a := range c.Attributes {
		switch v := a.(type) {
		case int64:
			n.Attributes[name] = &wire.Attribute{Kind: wire.KindInt, Int: v}
		case float32:
			n.Attributes[name] = &wire.Attribute{Kind: wire.KindFloat, Float: v}
		case string:
			n.Attributes[name] = &wire.Attribute{Kind: wire.KindString, String: v}
		case []int64:
			n.Attributes[name] = &wire.Attribute{Kind: wire.KindInts, Ints: v}
		case []string:
			n.Attributes[name] = &wire.Attribute{Kind: wire.KindStrings, Strings: v}
		}
	}
	for i, in := range c.Inputs {
		n.Inputs = append(n.Inputs, "")
		if in != nil {
			n.Inputs[i] = fmt.Sprint("x", i)
		}
	}
	for i := range c.Outputs {
		n.Outputs = append(n.Outputs, fmt.Sprint("y", i))
	}
	return n
}

// rewritten builds the case's node. Inputs that are floats depend on the row if varied is set.
func rewritten(c graphtest.Case, varied bool) (b *builder, out []*value, inputs []*graph.Tensor, err error) {
	b = &builder{plan: &plan{common: newCommon(), decisions: map[string][]int64{}}, batch: 1, readers: map[*wire.Tensor]string{}, added: map[any]graph.Value{}}
	s := &scope{values: map[string]*value{}}
	for i, in := range c.Inputs {
		switch {
		case in == nil:
		case varied && in.Type == graph.Float:
			s.values[fmt.Sprint("x", i)] = inHead(b.head.AddInput(fmt.Sprint("x", i), in.Type, in.Shape))
			inputs = append(inputs, in)
		default:
			s.values[fmt.Sprint("x", i)] = inHead(b.head.AddConstant(in))
		}
	}
	out, err = b.node(wireNode(c), s, "")
	return b, out, inputs, err
}

// An operator that is converted to others gives the results of ONNX's own vectors, whether or
// not its inputs depend on the row.
func TestRewrittenVectors(t *testing.T) {
	cases, err := graphtest.Rewritten()
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, c := range cases {
		tested[c.Op] = true
		for _, varied := range []bool{false, true} {
			b, out, inputs, err := rewritten(c, varied)
			if err != nil {
				t.Errorf("%s: %v", c.Name, err)
				continue
			}
			if len(out) < len(c.Outputs) {
				t.Errorf("%s: %d outputs, expected %d", c.Name, len(out), len(c.Outputs))
				continue
			}
			for i, want := range c.Outputs {
				if want == nil {
					continue
				}
				b.head.Output = out[i].head
				got, err := b.head.Run(inputs)
				if err == nil {
					err = graphtest.Compare(got, want, 4e-4, 2e-6)
				}
				if err != nil {
					t.Errorf("%s, varied %v, output %d: %v", c.Name, varied, i, err)
				}
			}
		}
	}
	for _, op := range []string{"Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "InstanceNormalization", "GRU", "LSTM", "RNN"} {
		if !tested[op] {
			t.Errorf("there is no vector for %s", op)
		}
	}
}

// What cannot be converted is refused with the name of the node and the reason.
func TestRewrittenRefused(t *testing.T) {
	cases, err := graphtest.Rewritten()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, attribute string
		value           any
		input           int // to replace; -1 = none
		shape           []int
		want            string
	}{
		{"test_lstm_defaults", "input_forget", int64(1), -1, nil, "input_forget"},
		{"test_lstm_defaults", "activations", []string{"Sigmoid", "Tanh", "Affine"}, -1, nil, `activation "Affine" is not supported`},
		{"test_lstm_defaults", "activations", []string{"Sigmoid"}, -1, nil, "1 activations, expected 3"},
		{"test_lstm_defaults", "direction", "sideways", -1, nil, "expected forward, reverse or bidirectional"},
		{"test_gru_defaults", "", nil, 1, []int{1, 2, 2}, "expected [length rows n]"},
		{"test_gru_defaults", "", nil, 2, []int{2, 2}, "input 3 is float[2 2], expected floats with three axes"},
		{"test_gru_defaults", "", nil, 0, []int{0, 3, 2}, "expected [length rows n]"},
		{"test_basic_conv_with_padding", "strides", []int64{0, 1}, -1, nil, "strides [0 1], expected 2 numbers from 1"},
		{"test_basic_conv_with_padding", "pads", []int64{1, 1}, -1, nil, "pads [1 1], expected 4 numbers from 0"},
		{"test_basic_conv_with_padding", "kernel_shape", []int64{2, 2}, -1, nil, "the shape of the weights"},
		{"test_basic_conv_with_padding", "auto_pad", "MOST", -1, nil, "auto_pad \"MOST\""},
		{"test_basic_conv_with_padding", "dilations", []int64{9, 9}, -1, nil, "windows of 19 elements on axis 2, which has 7"},
		{"test_maxpool_1d_default", "pads", []int64{2, 0}, -1, nil, "a window has pads only"},
		{"test_maxpool_1d_default", "kernel_shape", []int64{2, 2}, -1, nil, "expected 1 sizes"},
		{"test_instancenorm_example", "", nil, 1, []int{3}, "input 2 has the shape [3], expected [2]"},
		{"test_globalmaxpool", "", nil, 0, []int{3, 2}, "expected floats with rows, channels"},
	} {
		i := slices.IndexFunc(cases, func(c graphtest.Case) bool { return c.Name == test.name })
		if i < 0 {
			t.Errorf("there is no case %s", test.name)
			continue
		}
		c := cases[i]
		attributes := graph.Attributes{}
		for name, value := range c.Attributes {
			attributes[name] = value
		}
		if test.attribute != "" {
			attributes[test.attribute] = test.value
		}
		c.Attributes, c.Inputs = attributes, slices.Clone(c.Inputs)
		if test.input >= 0 {
			n, _ := graph.Count(test.shape)
			c.Inputs[test.input] = graph.NewFloats(make([]float32, n), test.shape...)
		}
		_, _, _, err := rewritten(c, true)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.name) {
			t.Errorf("%s with %s %v: error %v, expected %q", test.name, test.attribute, test.value, err, test.want)
		}
	}
}
