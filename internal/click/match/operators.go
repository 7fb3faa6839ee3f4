package match

import (
	"errors"
	"math"
	"slices"

	"shaver/internal/onnx/graph"
)

// operators reads the nodes that compute something. A function returns the elements of the
// only output.
var operators = map[string]func(*reader, *graph.Node) ([]polynomial, error){
	"Add":  func(r *reader, n *graph.Node) ([]polynomial, error) { return r.add(n, 1) },
	"Sub":  func(r *reader, n *graph.Node) ([]polynomial, error) { return r.add(n, -1) },
	"Sum":  func(r *reader, n *graph.Node) ([]polynomial, error) { return r.add(n, 1) },
	"Mul":  (*reader).multiply,
	"Div":  (*reader).divide,
	"Pow":  (*reader).power,
	"Neg":  (*reader).negate,
	"Cast": (*reader).cast,

	"ReduceSum":          func(r *reader, n *graph.Node) ([]polynomial, error) { return r.reduce(n, false) },
	"ReduceSumSquare":    func(r *reader, n *graph.Node) ([]polynomial, error) { return r.reduce(n, true) },
	"MatMul":             (*reader).product,
	"Gemm":               (*reader).gemm,
	"BatchNormalization": (*reader).normalise,
	"Relu":               (*reader).relu,
}

// broadcast calls visit for each element of the output of n, in order, with the elements of
// the inputs that it comes from.
func (r *reader) broadcast(n *graph.Node, visit func(terms []polynomial) error) error {
	shape := r.g.Values[n.Outputs[0]].Shape
	size, err := graph.Count(shape)
	if err != nil {
		return err
	}
	inputs := make([][]polynomial, len(n.Inputs))
	steps := make([][]int, len(n.Inputs)) // by axis of shape
	for i, v := range n.Inputs {
		if inputs[i], err = r.elements(v); err != nil {
			return err
		}
		own := r.g.Values[v].Shape
		steps[i] = make([]int, len(shape))
		step := 1
		for axis := len(own) - 1; axis >= 0; axis-- {
			if own[axis] != 1 {
				steps[i][len(shape)-len(own)+axis] = step
			}
			step *= own[axis]
		}
	}
	parts := make([]polynomial, len(inputs))
	for e := range size {
		for i := range inputs {
			at := 0
			for axis, rest := len(shape)-1, e; axis >= 0; axis-- {
				at += rest % shape[axis] * steps[i][axis]
				rest /= shape[axis]
			}
			parts[i] = inputs[i][at]
		}
		if err := visit(parts); err != nil {
			return err
		}
	}
	return nil
}

// add reads a sum, whose inputs after the first have the factor sign. A constant that is
// added to all outputs of a layer without biases is its biases.
func (r *reader) add(n *graph.Node, sign float64) ([]polynomial, error) {
	if out, err := r.bias(n, sign); out != nil || err != nil {
		return out, err
	}
	var out []polynomial
	err := r.broadcast(n, func(parts []polynomial) error {
		var terms []term
		for i, p := range parts {
			if i > 0 {
				p = p.scaled(sign)
			}
			terms = append(terms, p...)
		}
		out = append(out, collect(terms))
		return r.spend(len(terms))
	})
	return out, err
}

// bias reads a node that adds biases to a layer. It returns nil for other nodes.
func (r *reader) bias(n *graph.Node, sign float64) ([]polynomial, error) {
	if len(n.Inputs) != 2 || sign < 0 {
		return nil, nil
	}
	for i, v := range n.Inputs {
		t, parts := r.g.Values[n.Inputs[1-i]].Constant, r.values[v]
		if t == nil || len(parts) == 0 || t.Len() != len(parts) {
			continue
		}
		s := r.places[parts[0].atom()].source // that of atom 0 is nil
		if s == nil || s.linear == nil || s.linear.bias != nil || s.linear.out != len(parts) {
			return nil, nil
		}
		for e, p := range parts {
			if r.places[p.atom()] != (place{s, e}) {
				return nil, nil
			}
		}
		if size, err := graph.Count(r.g.Values[n.Outputs[0]].Shape); err != nil || size != len(parts) {
			return nil, err
		}
		biased := &linear{s.linear.out, s.linear.weight, t.Floats}
		return r.atoms(&source{linear: biased, inputs: s.inputs}, len(parts))
	}
	return nil, nil
}

// times returns the product of two elements.
func (r *reader) times(p, q polynomial) (polynomial, error) {
	if f, ok := q.constant(); ok {
		return p.scaled(f), r.spend(len(p))
	}
	if f, ok := p.constant(); ok {
		return q.scaled(f), r.spend(len(q))
	}
	if err := r.spend(len(p) * len(q)); err != nil {
		return nil, err
	}
	terms := make([]term, 0, len(p)*len(q))
	for _, a := range p {
		for _, b := range q {
			m, err := a.monomial.times(b.monomial)
			if err != nil {
				return nil, err
			}
			terms = append(terms, term{m, a.factor * b.factor})
		}
	}
	return collect(terms), nil
}

func (r *reader) multiply(n *graph.Node) (out []polynomial, err error) {
	return out, r.broadcast(n, func(parts []polynomial) error {
		p, err := r.times(parts[0], parts[1])
		out = append(out, p)
		return err
	})
}

func (r *reader) divide(n *graph.Node) (out []polynomial, err error) {
	return out, r.broadcast(n, func(parts []polynomial) error {
		f, ok := parts[1].constant()
		if !ok || f == 0 {
			return errors.New("no kind divides by what depends on the row")
		}
		p := make(polynomial, 0, len(parts[0]))
		for _, t := range parts[0] {
			p = append(p, term{t.monomial, t.factor / f})
		}
		out = append(out, p)
		return r.spend(len(p))
	})
}

func (r *reader) power(n *graph.Node) (out []polynomial, err error) {
	exponent := r.g.Values[n.Inputs[1]].Constant
	if exponent == nil || exponent.Len() != 1 || exponent.Type == graph.Float && exponent.Floats[0] != 2 || exponent.Type == graph.Int && exponent.Ints[0] != 2 {
		return nil, errors.New("no kind has a power other than a square")
	}
	elements, err := r.elements(n.Inputs[0])
	for _, p := range elements {
		square, err := r.times(p, p)
		if err != nil {
			return nil, err
		}
		out = append(out, square)
	}
	return out, err
}

func (r *reader) negate(n *graph.Node) (out []polynomial, err error) {
	return out, r.broadcast(n, func(parts []polynomial) error {
		out = append(out, parts[0].scaled(-1))
		return r.spend(len(parts[0]))
	})
}

func (r *reader) cast(n *graph.Node) ([]polynomial, error) {
	if r.g.Values[n.Outputs[0]].Type != graph.Float {
		return nil, errors.New("no kind converts numbers")
	}
	return r.elements(n.Inputs[0])
}

// reduce reads a sum of elements or of their squares along axes.
func (r *reader) reduce(n *graph.Node, square bool) ([]polynomial, error) {
	elements, err := r.elements(n.Inputs[0])
	if err != nil {
		return nil, err
	}
	shape := r.g.Values[n.Inputs[0]].Shape
	drop := make([]bool, len(shape))
	var axes []int64
	if len(n.Inputs) > 1 && n.Inputs[1] != graph.Absent {
		axes = r.g.Values[n.Inputs[1]].Constant.Ints
	}
	if noop, _ := n.Attributes["noop_with_empty_axes"].(int64); len(axes) == 0 && noop == 0 {
		drop = slices.Repeat([]bool{true}, len(shape))
	}
	for _, axis := range axes {
		if axis < 0 {
			axis += int64(len(shape))
		}
		drop[axis] = true
	}
	size := 1
	steps := make([]int, len(shape)) // in the output
	for axis := len(shape) - 1; axis >= 0; axis-- {
		if !drop[axis] {
			steps[axis] = size
			size *= shape[axis]
		}
	}
	sums := make([][]term, size)
	for e, p := range elements {
		at := 0
		for axis, rest := len(shape)-1, e; axis >= 0; axis-- {
			at += rest % shape[axis] * steps[axis]
			rest /= shape[axis]
		}
		if square {
			if p, err = r.times(p, p); err != nil {
				return nil, err
			}
		}
		if err := r.spend(len(p)); err != nil {
			return nil, err
		}
		sums[at] = append(sums[at], p...)
	}
	out := make([]polynomial, size)
	for i, terms := range sums {
		out[i] = collect(terms)
	}
	return out, nil
}

// layer adds a linear layer with a matrix whose element (o, i) is at o*down + i*right.
func (r *reader) layer(inputs []polynomial, out int, t *graph.Tensor, down, right int, bias []float32) ([]polynomial, error) {
	if r.used[t] { // and a small file could have very many weights
		return nil, errors.New("no kind has two layers with one matrix")
	}
	r.used[t] = true
	matrix := t.Floats
	l := &linear{out: out, weight: matrix, bias: bias}
	if right != 1 {
		l.weight = make([]float32, 0, len(matrix))
		for o := range out {
			for i := range inputs {
				l.weight = append(l.weight, matrix[o*down+i*right])
			}
		}
	}
	return r.atoms(&source{linear: l, inputs: inputs}, out)
}

var errMatrix = errors.New("no kind has such a product")

// product reads a product with a constant matrix on either side.
func (r *reader) product(n *graph.Node) ([]polynomial, error) {
	for i, v := range n.Inputs {
		t := r.g.Values[v].Constant
		if t == nil || len(t.Shape) != 2 {
			continue
		}
		inputs, err := r.elements(n.Inputs[1-i])
		if err != nil {
			return nil, err
		}
		out, in := t.Shape[i], t.Shape[1-i] // the matrix is on the right if i is 1
		switch {
		case len(inputs) != in:
			return nil, errMatrix
		case i == 0:
			return r.layer(inputs, out, t, in, 1, nil)
		}
		return r.layer(inputs, out, t, 1, out, nil)
	}
	return nil, errMatrix
}

func (r *reader) gemm(n *graph.Node) ([]polynomial, error) {
	scale := func(name string) float32 {
		if v, ok := n.Attributes[name].(float32); ok {
			return v
		}
		return 1
	}
	swap := func(name string) bool { v, _ := n.Attributes[name].(int64); return v != 0 }
	t := r.g.Values[n.Inputs[1]].Constant
	if t == nil || scale("alpha") != 1 || swap("transA") {
		return nil, errMatrix
	}
	inputs, err := r.elements(n.Inputs[0])
	if err != nil {
		return nil, err
	}
	out, in := t.Shape[1], t.Shape[0]
	if swap("transB") {
		out, in = in, out
	}
	if len(inputs) != in {
		return nil, errMatrix
	}
	var bias []float32
	if len(n.Inputs) > 2 && n.Inputs[2] != graph.Absent {
		c := r.g.Values[n.Inputs[2]].Constant
		if c == nil || scale("beta") != 1 || c.Len() != 1 && c.Len() != out {
			return nil, errMatrix
		}
		if bias = c.Floats; c.Len() != out {
			bias = slices.Repeat(bias, out)
		}
	}
	if swap("transB") {
		return r.layer(inputs, out, t, in, 1, bias)
	}
	return r.layer(inputs, out, t, 1, out, bias)
}

func (r *reader) normalise(n *graph.Node) ([]polynomial, error) {
	inputs, err := r.elements(n.Inputs[0])
	if err != nil {
		return nil, err
	}
	epsilon := float32(1e-5)
	if v, ok := n.Attributes["epsilon"].(float32); ok {
		epsilon = v
	}
	var statistics [4][]float32
	for i := range statistics {
		t := r.g.Values[n.Inputs[i+1]].Constant
		if t == nil || t.Len() != len(inputs) { // else each channel has several elements
			return nil, errors.New("no kind has such a BatchNorm")
		}
		statistics[i] = t.Floats
	}
	for i, v := range statistics[3] {
		if !(v >= 0) || math.IsInf(float64(v), 0) || math.IsNaN(float64(statistics[2][i])) {
			return nil, errors.New("its variances are not finite numbers of at least 0")
		}
	}
	return r.atoms(&source{norm: &norm{statistics[0], statistics[1], statistics[2], statistics[3], epsilon}, inputs: inputs}, len(inputs))
}

func (r *reader) relu(n *graph.Node) ([]polynomial, error) {
	inputs, err := r.elements(n.Inputs[0])
	if err != nil {
		return nil, err
	}
	return r.atoms(&source{relu: true, inputs: inputs}, len(inputs))
}
