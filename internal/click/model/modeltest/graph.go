package modeltest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"shaver/internal/click/model"
	"shaver/internal/onnx/graph"
)

// Builder builds a head. The zero Builder is empty.
type Builder struct{ graph.Graph }

// Node adds a node and returns its first output. It panics if package graph refuses the
// node.
func (b *Builder) Node(op string, attributes graph.Attributes, inputs ...graph.Value) graph.Value {
	out, err := b.Add(graph.Node{Name: fmt.Sprintf("%s_%d", op, len(b.Nodes)), Op: op, Inputs: inputs, Attributes: attributes})
	if err != nil {
		panic(err)
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
func Graph(a model.Architecture, w model.Weights) *model.Model {
	b := new(Builder)
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
		panic("modeltest: Graph: no graph for kind " + string(a.Kind))
	}
	b.Trim()
	m, err := model.New(model.Architecture{Kind: model.Graph, FieldDims: a.FieldDims, Dim: a.Dim}, model.Weights{Embedding: w.Embedding, Graph: head})
	if err != nil {
		panic(err)
	}
	return m
}

// normal returns a function that makes the weights of a layer with the given number of
// inputs.
func normal(seed uint64) func(in int, shape ...int) []float32 {
	r := rand.New(rand.NewPCG(seed, 0))
	return func(in int, shape ...int) []float32 {
		n := 1
		for _, s := range shape {
			n *= s
		}
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64() / math.Sqrt(float64(in)))
		}
		return v
	}
}

// AutoInt returns a model of Kind Graph with fields of 50 features and 16 columns: three
// layers of attention between the fields, with 2 heads of 32 columns, and an MLP of
// 400-400-400 next to them.
func AutoInt(fields int, seed uint64) *model.Model {
	const dim, heads, size, wide = 16, 2, 32, 64
	b, random := new(Builder), normal(seed)
	head := &model.GraphHead{Graph: &b.Graph}
	a := model.Architecture{Kind: model.Graph, Dim: dim}
	for j := range fields {
		a.FieldDims = append(a.FieldDims, 50)
		head.LookUps = append(head.LookUps, b.AddInput(fmt.Sprintf("field %d", j), graph.Float, []int{1, dim}))
	}
	flat := b.Node("Concat", graph.Attributes{"axis": int64(1)}, head.LookUps...)
	x, width := b.Node("Reshape", nil, flat, b.Ints(1, int64(fields), dim)), dim
	permute := func(v graph.Value, order ...int64) graph.Value {
		return b.Node("Transpose", graph.Attributes{"perm": order}, v)
	}
	for l := range 3 {
		part := func(name string) graph.Value {
			v := b.Node("MatMul", nil, x, b.Floats(fmt.Sprintf("%d.%s", l, name), random(width, width, wide), width, wide))
			return b.Node("Reshape", nil, v, b.Ints(1, int64(fields), heads, size))
		}
		query, key, value := permute(part("query"), 0, 2, 1, 3), permute(part("key"), 0, 2, 3, 1), permute(part("value"), 0, 2, 1, 3)
		scores := b.Node("Softmax", graph.Attributes{"axis": int64(-1)}, b.Node("Div", nil, b.Node("MatMul", nil, query, key), b.Floats("", []float32{float32(math.Sqrt(size))})))
		mixed := b.Node("Reshape", nil, permute(b.Node("MatMul", nil, scores, value), 0, 2, 1, 3), b.Ints(1, int64(fields), wide))
		rest := b.Node("MatMul", nil, x, b.Floats(fmt.Sprintf("%d.rest", l), random(width, width, wide), width, wide))
		x, width = b.Node("Relu", nil, b.Node("Add", nil, mixed, rest)), wide
	}
	linear := func(in, out int) *model.Linear {
		return &model.Linear{In: in, Out: out, Weight: random(in, out, in), Bias: random(1, out)}
	}
	deep := flat
	for l, in := range []int{fields * dim, 400, 400} {
		deep = b.Linear(fmt.Sprintf("mlp.%d", l), deep, linear(in, 400), true)
	}
	all := b.Node("Reshape", nil, x, b.Ints(1, int64(fields*wide)))
	b.Output = b.Node("Add", nil, b.Linear("output", all, linear(fields*wide, 1), false), b.Linear("mlp.output", deep, linear(400, 1), false))
	m, err := model.New(a, model.Weights{Embedding: random(1, a.Parameters()), Graph: head})
	if err != nil {
		panic(err)
	}
	return m
}

// FiBiNET returns a model of Kind Graph with fields of 50 features and 16 columns: bilinear
// products of all pairs of fields, of the embeddings and of the embeddings that SENET has
// weighted, and an MLP of 400-400-400 that reads them.
func FiBiNET(fields int, seed uint64) *model.Model {
	const dim = 16
	b, random := new(Builder), normal(seed)
	head := &model.GraphHead{Graph: &b.Graph}
	a := model.Architecture{Kind: model.Graph, Dim: dim}
	for j := range fields {
		a.FieldDims = append(a.FieldDims, 50)
		head.LookUps = append(head.LookUps, b.AddInput(fmt.Sprintf("field %d", j), graph.Float, []int{1, dim}))
	}
	linear := func(in, out int) *model.Linear {
		return &model.Linear{In: in, Out: out, Weight: random(in, out, in), Bias: random(out, out)}
	}
	x := b.Node("Reshape", nil, b.Node("Concat", graph.Attributes{"axis": int64(1)}, head.LookUps...), b.Ints(1, int64(fields), dim))
	mean := b.Node("ReduceMean", graph.Attributes{"keepdims": int64(0)}, x, b.Ints(2))
	weight := b.Linear("senet.1", b.Linear("senet.0", mean, linear(fields, fields/3), true), linear(fields/3, fields), true)
	weighted := b.Node("Mul", nil, x, b.Node("Reshape", nil, weight, b.Ints(1, int64(fields), 1)))
	var left, right []int64
	for i := range fields {
		for j := range i {
			left, right = append(left, int64(j)), append(right, int64(i))
		}
	}
	pairs := int64(len(left))
	var products []graph.Value
	for k, v := range []graph.Value{x, weighted} {
		take := func(list []int64) graph.Value {
			return b.Node("Gather", graph.Attributes{"axis": int64(1)}, v, b.Ints(list...))
		}
		w := b.Floats(fmt.Sprintf("bilinear.%d", k), random(dim, len(left), dim, dim), len(left), dim, dim)
		p := b.Node("MatMul", nil, b.Node("Reshape", nil, take(left), b.Ints(pairs, 1, dim)), w)
		p = b.Node("Mul", nil, b.Node("Reshape", nil, p, b.Ints(1, pairs, dim)), take(right))
		products = append(products, b.Node("Reshape", nil, p, b.Ints(1, pairs*dim)))
	}
	deep := b.Node("Concat", graph.Attributes{"axis": int64(1)}, products...)
	for l, in := range []int{2 * len(left) * dim, 400, 400} {
		deep = b.Linear(fmt.Sprintf("mlp.%d", l), deep, linear(in, 400), true)
	}
	b.Output = b.Linear("output", deep, linear(400, 1), false)
	m, err := model.New(a, model.Weights{Embedding: random(1, a.Parameters()), Graph: head})
	if err != nil {
		panic(err)
	}
	return m
}

// PNN returns a model of Kind Graph with fields of 50 features and 16 columns: an MLP of
// 400-400-400 that reads the embeddings and the inner products of all pairs of fields.
func PNN(fields int, seed uint64) *model.Model {
	const dim = 16
	b, random := new(Builder), normal(seed)
	head := &model.GraphHead{Graph: &b.Graph}
	a := model.Architecture{Kind: model.Graph, Dim: dim}
	for j := range fields {
		a.FieldDims = append(a.FieldDims, 50)
		head.LookUps = append(head.LookUps, b.AddInput(fmt.Sprintf("field %d", j), graph.Float, []int{1, dim}))
	}
	axis := graph.Attributes{"axis": int64(1)}
	flat := b.Node("Concat", axis, head.LookUps...)
	x := b.Node("Reshape", nil, flat, b.Ints(1, int64(fields), dim))
	dots := b.Node("MatMul", nil, x, b.Node("Transpose", graph.Attributes{"perm": []int64{0, 2, 1}}, x))
	var pairs []int64
	for i := range fields {
		for j := range i {
			pairs = append(pairs, int64(i*fields+j))
		}
	}
	dots = b.Node("Gather", axis, b.Node("Reshape", nil, dots, b.Ints(1, int64(fields*fields))), b.Ints(pairs...))
	deep := b.Node("Concat", axis, flat, dots)
	b.Output = b.mlp(deep, random, fields*dim+len(pairs), 400, 400, 400, 1)
	return b.model(a, head, random)
}

// DIN returns a model of Kind Graph with features of 16 columns: an item, a history of items
// and some other fields. A network of 80-40 weighs each item of the history by the item, their
// difference and their product. An MLP of 200-80 reads the weighted sum and the other fields.
func DIN(history, others int, seed uint64) *model.Model {
	const dim = 16
	b, random := new(Builder), normal(seed)
	head := &model.GraphHead{Graph: &b.Graph}
	a := model.Architecture{Kind: model.Graph, Dim: dim}
	for j := range 1 + history + others {
		a.FieldDims = append(a.FieldDims, 50)
		head.LookUps = append(head.LookUps, b.AddInput(fmt.Sprintf("field %d", j), graph.Float, []int{1, dim}))
	}
	axis := graph.Attributes{"axis": int64(1)}
	item := head.LookUps[0]
	past := b.Node("Concat", graph.Attributes{"axis": int64(0)}, head.LookUps[1:1+history]...)
	query := b.Node("Expand", nil, item, b.Ints(int64(history), dim))
	pairs := b.Node("Concat", axis, query, past, b.Node("Sub", nil, query, past), b.Node("Mul", nil, query, past))
	weight := b.Node("Softmax", graph.Attributes{"axis": int64(0)}, b.mlp(pairs, random, 4*dim, 80, 40, 1))
	pooled := b.Node("ReduceSum", nil, b.Node("Mul", nil, past, weight), b.Ints(0))
	deep := b.Node("Concat", axis, append([]graph.Value{item, pooled}, head.LookUps[1+history:]...)...)
	b.Output = b.mlp(deep, random, (2+others)*dim, 200, 80, 1)
	return b.model(a, head, random)
}

// mlp adds layers of the given widths, of which all except the last have ReLU.
func (b *Builder) mlp(x graph.Value, random func(in int, shape ...int) []float32, in int, widths ...int) graph.Value {
	for l, out := range widths {
		layer := &model.Linear{In: in, Out: out, Weight: random(in, out, in), Bias: random(out, out)}
		x, in = b.Linear(fmt.Sprintf("mlp.%d", l), x, layer, l < len(widths)-1), out
	}
	return x
}

// model returns a model with the head and random embeddings.
func (b *Builder) model(a model.Architecture, head *model.GraphHead, random func(in int, shape ...int) []float32) *model.Model {
	b.Trim()
	m, err := model.New(a, model.Weights{Embedding: random(1, a.Parameters()), Graph: head})
	if err != nil {
		panic(err)
	}
	return m
}
