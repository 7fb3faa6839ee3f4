package match

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/onnx/graph"
)

const (
	fields = 3
	dim    = 2
	wide   = 4 // width of the hidden layers
)

// style is one of the ways in which a graph can be written, and what it computes.
type style struct {
	order    []int // of the fields in the input of the layers; nil = ascending
	products bool  // each pair of fields is a product
	square   string
	split    bool // MatMul and Add instead of Gemm
	left     bool // the matrix of a MatMul is on its left
	norm     bool
	scaled   bool // BatchNorm as products and sums
	shuffled bool // the outputs of hidden layers change places
	half     float32
	cross    int
	parallel bool
	outside  bool // the biases of the cross layers are outside the product
	activity string
	missing  bool // a pair is missing
	residual bool // the network reads a field twice
	noPairs  bool
	noDeep   bool
	linear   bool // the logit has weights of the entries
}

// built builds graphs.
type built struct {
	t *testing.T
	g graph.Graph
	r *rand.Rand
	style
	lookUps []LookUp
}

func (b *built) add(op string, attributes graph.Attributes, inputs ...graph.Value) graph.Value {
	b.t.Helper()
	out, err := b.g.Add(graph.Node{Name: op, Op: op, Inputs: inputs, Attributes: attributes})
	if err != nil {
		b.t.Fatal(err)
	}
	return out[0]
}

func (b *built) random(shape ...int) graph.Value {
	n := 1
	for _, size := range shape {
		n *= size
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(b.r.NormFloat64())
	}
	return b.g.AddConstant(graph.NewFloats(values, shape...))
}

func (b *built) number(v float32) graph.Value { return b.g.AddConstant(graph.NewFloats([]float32{v})) }

func (b *built) ints(v ...int64) graph.Value { return b.g.AddConstant(graph.NewInts(v, len(v))) }

func (b *built) lookUp(field, dim int, player bool) graph.Value {
	v := b.g.AddInput("look-up", graph.Float, []int{1, dim})
	l := LookUp{Field: field, Player: player, Value: v}
	for range Samples * dim {
		l.Sample = append(l.Sample, float32(b.r.NormFloat64()))
	}
	b.lookUps = append(b.lookUps, l)
	return v
}

// layer adds a linear layer.
func (b *built) layer(x graph.Value, in, out int) graph.Value {
	switch {
	case b.left:
		x = b.add("Transpose", nil, x)
		x = b.add("Add", nil, b.add("MatMul", nil, b.random(out, in), x), b.random(out, 1))
		return b.add("Transpose", nil, x)
	case b.split:
		return b.add("Add", nil, b.random(out), b.add("MatMul", nil, x, b.random(in, out)))
	}
	return b.add("Gemm", graph.Attributes{"transB": int64(1)}, x, b.random(out, in), b.random(out))
}

// sum adds numbers.
func (b *built) sum(parts ...graph.Value) graph.Value { return b.add("Sum", nil, parts...) }

func (b *built) build() error {
	order := b.order
	if order == nil {
		order = []int{0, 1, 2}
	}
	e := make([]graph.Value, fields)
	var firsts []graph.Value
	for j := range fields {
		firsts = append(firsts, b.lookUp(j, 1, false))
		e[j] = b.lookUp(j, dim, true)
	}
	parts := append(firsts, b.number(0.25))
	if !b.noPairs {
		parts = append(parts, b.pairs(e))
	}
	var concat []graph.Value
	for _, j := range order {
		concat = append(concat, e[j])
	}
	if b.residual {
		concat[0] = concat[1]
	}
	x0 := b.add("Concat", graph.Attributes{"axis": int64(1)}, concat...)
	players := fields * dim
	if b.linear {
		parts = append(parts, b.add("MatMul", nil, x0, b.random(players, 1)))
	}
	crossed := x0
	for range b.cross {
		var by graph.Value
		if b.outside {
			by = b.add("Add", nil, b.add("Mul", nil, x0, b.add("MatMul", nil, crossed, b.random(players, players))), b.random(players))
		} else {
			by = b.add("Mul", nil, b.layer(crossed, players, players), x0)
		}
		crossed = b.add("Add", nil, by, crossed)
	}
	if !b.noDeep {
		x, in := crossed, players
		if b.parallel {
			x = x0
		}
		for range 2 {
			x = b.hidden(x, in)
			in = wide
		}
		if b.parallel {
			x, in = b.add("Concat", graph.Attributes{"axis": int64(-1)}, crossed, x), in+players
		}
		parts = append(parts, b.layer(x, in, 1))
	}
	for i, p := range parts {
		parts[i] = b.add("Reshape", nil, p, b.ints(1))
	}
	b.g.Output = b.sum(parts...)
	_, err := b.find()
	return err
}

func (b *built) hidden(x graph.Value, in int) graph.Value {
	x = b.layer(x, in, wide)
	positive := func() graph.Value {
		return b.add("Add", nil, b.add("Mul", nil, b.random(wide), b.number(0.01)), b.number(1))
	}
	if b.norm {
		x = b.add("BatchNormalization", graph.Attributes{"epsilon": float32(1e-3)}, x, b.random(wide), b.random(wide), b.random(wide), positive())
	}
	if b.scaled {
		x = b.add("Add", nil, b.add("Div", nil, b.add("Sub", nil, x, b.random(wide)), positive()), b.random(wide))
	}
	x = b.add(b.activity, nil, x)
	if b.shuffled {
		x = b.add("Gather", graph.Attributes{"axis": int64(1)}, x, b.ints(2, 0, 3, 1))
	}
	return x
}

func (b *built) pairs(e []graph.Value) graph.Value {
	if b.products {
		var products []graph.Value
		for j := range e {
			for k := range j {
				if !b.missing || j+k > 1 {
					products = append(products, b.add("Mul", nil, e[j], e[k]))
				}
			}
		}
		return b.add("ReduceSum", nil, b.sum(products...), b.ints(0, 1))
	}
	square := func(x graph.Value) graph.Value {
		if b.square == "Mul" {
			return b.add("Mul", nil, x, x)
		}
		return b.add("Pow", nil, x, b.number(2))
	}
	all := b.add("Concat", graph.Attributes{"axis": int64(0)}, e...)
	sum := b.add("ReduceSum", graph.Attributes{"keepdims": int64(0)}, all, b.ints(0))
	difference := b.add("Sub", nil, square(sum), b.add("ReduceSum", graph.Attributes{"keepdims": int64(0)}, square(all), b.ints(0)))
	if b.square == "" {
		difference = b.add("Neg", nil, b.add("Neg", nil, difference))
	}
	return b.add("ReduceSum", nil, b.add("Mul", nil, difference, b.number(b.half)))
}

func (b *built) find() (*Network, error) { return Find(&b.g, fields, b.lookUps) }

func newBuilt(t *testing.T, s style) *built {
	if s.half == 0 {
		s.half = 0.5
	}
	if s.activity == "" {
		s.activity = "Relu"
	}
	return &built{t: t, r: rand.New(rand.NewPCG(3, 4)), style: s}
}

// styles are graphs that are models of our kinds.
var styles = map[string]struct {
	style
	kind model.Kind
}{
	"fm":                 {style{noDeep: true}, model.FM},
	"fm, products":       {style{noDeep: true, products: true}, model.FM},
	"fm, linear":         {style{noDeep: true, square: "Mul", linear: true}, model.FM},
	"deepfm":             {style{}, model.DeepFM},
	"deepfm, order":      {style{order: []int{2, 0, 1}, square: "Mul"}, model.DeepFM},
	"deepfm, split":      {style{split: true, shuffled: true}, model.DeepFM},
	"deepfm, left":       {style{left: true, norm: true}, model.DeepFM},
	"deepfm, norm":       {style{norm: true, shuffled: true, linear: true}, model.DeepFM},
	"deepfm, scaled":     {style{scaled: true, shuffled: true, split: true}, model.DeepFM},
	"widedeep":           {style{noPairs: true}, model.WideDeep},
	"widedeep, linear":   {style{noPairs: true, linear: true, order: []int{1, 2, 0}}, model.WideDeep},
	"stacked":            {style{noPairs: true, cross: 3, order: []int{1, 2, 0}}, model.DCNv2},
	"stacked, left":      {style{noPairs: true, cross: 1, left: true, shuffled: true}, model.DCNv2},
	"parallel":           {style{noPairs: true, cross: 2, parallel: true, linear: true}, model.DCNv2},
	"parallel, shuffled": {style{noPairs: true, cross: 3, parallel: true, shuffled: true, norm: true, order: []int{2, 1, 0}}, model.DCNv2},
}

// A model is recognized in whatever way its graph is written. Find itself compares the
// logits of the two.
func TestFind(t *testing.T) {
	for name, s := range styles {
		b := newBuilt(t, s.style)
		if err := b.build(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		n, err := b.find()
		if err != nil || n.Kind != s.kind || len(n.Cross) != s.cross || (n.Structure == model.Parallel) != s.parallel || len(n.Hidden) != map[bool]int{false: 2}[s.noDeep] {
			t.Errorf("%s: it is a %s %s with %d hidden and %d cross layers (%v)", name, n.Kind, n.Structure, len(n.Hidden), len(n.Cross), err)
		}
		a := n.Architecture([]int{2, 3, 4})
		if err := a.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Graphs that differ from our kinds in one part are of none.
func TestNear(t *testing.T) {
	for _, c := range []struct {
		style
		want string
	}{
		{style{half: 1}, "a sum that no kind has"},
		{style{half: 0.25}, "a sum that no kind has"},
		{style{products: true, missing: true}, "some pairs of fields, but not all"},
		{style{activity: "Tanh"}, "no kind has such an operator"},
		{style{activity: "Identity"}, "no hidden layers with ReLU"},
		{style{residual: true}, "neither the embeddings of all fields"},
		{style{noPairs: true, noDeep: true}, "neither pairs of fields nor hidden layers"},
		{style{noPairs: true, cross: 2, outside: true}, "not as in the cross layers"},
		{style{cross: 2}, "pairs of fields and cross layers"},
		{style{noPairs: true, cross: 1, noDeep: true}, "neither pairs of fields nor hidden layers"},
	} {
		err := newBuilt(t, c.style).build()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, expected %q", c.style, err, c.want)
		}
	}
}

// A model that has other logits than its graph is not recognized.
func TestCompare(t *testing.T) {
	for name, s := range styles {
		b := newBuilt(t, s.style)
		if err := b.build(); err != nil {
			t.Fatal(name, err)
		}
		n, err := b.find()
		if err != nil {
			t.Fatal(name, err)
		}
		for what, change := range map[string]func(){
			"bias":        func() { n.Bias++ },
			"first order": func() { n.FirstOrder = slices.Repeat([]float64{2}, len(b.lookUps)) },
		} {
			saved := *n
			if change(); n.compare(&b.g, b.lookUps) == nil {
				t.Errorf("%s: the %s is wrong, but the comparison passes", name, what)
			}
			*n = saved
		}
		if err := n.compare(&b.g, b.lookUps); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Graphs with inputs that are no look-ups, and look-ups that do not fit, are refused.
func TestInputs(t *testing.T) {
	for what, change := range map[string]func(b *built){
		"dense inputs":      func(b *built) { b.g.AddInput("dense", graph.Float, []int{1, 1}) },
		"no embedding":      func(b *built) { b.lookUps[1].Field = 2; b.lookUps[5].Field = 1; b.lookUps[5].Player = false },
		"several embedding": func(b *built) { b.lookUps[1].Field = 2 },
	} {
		b := newBuilt(t, style{})
		if err := b.build(); err != nil {
			t.Fatal(err)
		}
		change(b)
		if n, err := b.find(); err == nil {
			t.Errorf("%s: it is a %s", what, n.Kind)
		}
	}
}
