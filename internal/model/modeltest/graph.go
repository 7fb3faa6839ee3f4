package modeltest

import (
	"fmt"
	"testing"

	"shaver/internal/graph"
	"shaver/internal/model"
)

// Builder builds a head for tests. A node that package graph refuses fails the test.
type Builder struct {
	graph.Graph
	t testing.TB
}

// NewBuilder returns a builder of an empty head.
func NewBuilder(t testing.TB) *Builder { return &Builder{t: t} }

// Node adds a node and returns its first output.
func (b *Builder) Node(op string, attributes graph.Attributes, inputs ...graph.Value) graph.Value {
	b.t.Helper()
	out, err := b.Add(graph.Node{Name: fmt.Sprintf("%s_%d", op, len(b.Nodes)), Op: op, Inputs: inputs, Attributes: attributes})
	if err != nil {
		b.t.Fatal(err)
	}
	return out[0]
}

// Ints adds a constant list of whole numbers.
func (b *Builder) Ints(values ...int64) graph.Value {
	return b.AddConstant(&graph.Tensor{Type: graph.Int, Shape: []int{len(values)}, Ints: values})
}

// Floats adds a constant.
func (b *Builder) Floats(name string, values []float32, shape ...int) graph.Value {
	return b.AddConstant(&graph.Tensor{Name: name, Type: graph.Float, Shape: shape, Floats: values})
}

// Linear adds a linear layer, with or without ReLU.
func (b *Builder) Linear(name string, x graph.Value, l *model.Linear, relu bool) graph.Value {
	y := b.Node("Gemm", graph.Attributes{"transB": int64(1)}, x, b.Floats(name+".weight", l.Weight, l.Out, l.In), b.Floats(name+".bias", l.Bias, l.Out))
	if relu {
		y = b.Node("Relu", nil, y)
	}
	return y
}

// Graph returns a model of Kind Graph that computes what a model with the given
// architecture and weights computes. The architecture is a DeepFM or a DCNv2.
func Graph(t testing.TB, a model.Architecture, w model.Weights) *model.Model {
	t.Helper()
	b := NewBuilder(t)
	head := &model.GraphHead{Graph: &b.Graph}
	for j := range a.FieldDims {
		head.LookUps = append(head.LookUps, b.AddInput(fmt.Sprintf("field %d", j), graph.Float, []int{1, a.Dim}))
	}
	axis := graph.Attributes{"axis": int64(1)}
	x0 := b.Node("Concat", axis, head.LookUps...)
	mlp := func(x graph.Value) graph.Value {
		for l := range w.Hidden {
			x = b.Linear(fmt.Sprintf("mlp.%d", l), x, &w.Hidden[l], true)
		}
		return x
	}
	switch a.Kind {
	case model.DeepFM:
		logit := b.Linear("output", mlp(x0), &w.Output, false)
		cube := b.Node("Reshape", nil, x0, b.Ints(1, int64(a.Fields()), int64(a.Dim)))
		sum := b.Node("ReduceSum", graph.Attributes{"keepdims": int64(0)}, cube, b.Ints(1))
		squares := b.Node("ReduceSum", graph.Attributes{"keepdims": int64(0)}, b.Node("Mul", nil, cube, cube), b.Ints(1))
		pairs := b.Node("ReduceSum", nil, b.Node("Sub", nil, b.Node("Pow", nil, sum, b.Floats("", []float32{2})), squares), b.Ints(1))
		logit = b.Node("Add", nil, logit, b.Node("Mul", nil, pairs, b.Floats("", []float32{0.5})))
		var first []graph.Value
		for j, offset := range a.Offsets() {
			v := b.AddInput(fmt.Sprintf("first %d", j), graph.Float, []int{1, 1})
			head.Constants = append(head.Constants, model.ConstantLookUp{Name: fmt.Sprint("first ", j), Field: j, Dim: 1, Values: w.FirstOrder[offset:][:a.FieldDims[j]], Input: v})
			first = append(first, v)
		}
		logit = b.Node("Add", nil, logit, b.Node("Sum", nil, first...))
		b.Output = b.Node("Add", nil, logit, b.Floats("bias", []float32{w.Bias}, 1))
	case model.DCNv2:
		x := x0
		for l := range w.Cross {
			x = b.Node("Add", nil, b.Node("Mul", nil, x0, b.Linear(fmt.Sprintf("cross.%d", l), x, &w.Cross[l], false)), x)
		}
		if a.Structure == model.Parallel {
			x = b.Node("Concat", axis, x, mlp(x0))
		} else {
			x = mlp(x)
		}
		b.Output = b.Linear("output", x, &w.Output, false)
	default:
		t.Fatalf("no graph for kind %s", a.Kind)
	}
	b.Trim()
	m, err := model.New(model.Architecture{Kind: model.Graph, FieldDims: a.FieldDims, Dim: a.Dim}, model.Weights{Embedding: w.Embedding, Graph: head})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
