package dissect

import (
	"slices"

	"shaver/internal/onnx/graph"
)

// chance is a probability p of the head: log(p) and log(1-p), each of shape [1]. They stay exact
// where p or 1-p is too small for float32.
type chance struct{ yes, no graph.Value }

// maxChances bounds the probabilities from which an output is computed.
const maxChances = 64

// chance returns the probability that the element of n is, if n is a Sigmoid, a Softmax of two
// classes, a product of probabilities, or their sum with the weights of a Softmax. Otherwise ok
// is false. left is how many more probabilities it may be computed from.
func (t *trail) chance(n *graph.Node, left *int) (p chance, ok bool, err error) {
	if *left--; *left < 0 || n == nil {
		return chance{}, false, nil
	}
	c := &chances{builder: t.builder}
	switch n.Op {
	case "Sigmoid", "Softmax":
		z := *t
		if n.Op == "Sigmoid" {
			z.value = n.Inputs[0]
			z.value, err = z.pick()
		} else if _, _, ok, err = z.difference(n); !ok || err != nil {
			return chance{}, false, err
		}
		x := c.one(z.value, err)
		p = chance{yes: c.do("Neg", c.do("Softplus", c.do("Neg", x))), no: c.do("Neg", c.do("Softplus", x))}
	case "Mul":
		var factors []chance
		for _, v := range n.Inputs {
			at, err := t.broadcast(v, t.head.Values[n.Outputs[0]].Shape)
			if err != nil {
				return chance{}, false, err
			}
			node, err := at.back()
			if err != nil {
				return chance{}, false, err
			}
			factor, ok, err := at.chance(node, left)
			if !ok || err != nil {
				return chance{}, false, err
			}
			factors = append(factors, factor)
		}
		p = c.product(factors)
	default:
		terms, err := t.terms(n)
		if len(terms) == 0 || len(terms) > *left || err != nil {
			return chance{}, false, err
		}
		weights, factors, err := t.mixture(terms, left)
		if len(weights) == 0 || err != nil {
			return chance{}, false, err
		}
		p = c.mixture(weights, factors)
	}
	return p, c.err == nil, c.err
}

// broadcast returns the element of v that ONNX's broadcasting reads for that of t, which is one
// of a value with the given shape.
func (t *trail) broadcast(v graph.Value, shape []int) (*trail, error) {
	places, err := broadcast(t.head.Values[v].Shape, shape)
	if err != nil {
		return nil, err
	}
	return &trail{t.builder, v, int(places[t.element])}, nil
}

// terms returns the two factors of each term, if n sums products. n is a MatMul or a ReduceSum.
func (t *trail) terms(n *graph.Node) (terms [][2]*trail, err error) {
	if n.Op == "MatMul" {
		x, y, out := t.head.Values[n.Inputs[0]].Shape, t.head.Values[n.Inputs[1]].Shape, t.head.Values[n.Outputs[0]].Shape
		if len(x) < 2 || len(y) < 2 || len(out) < 2 {
			return nil, nil
		}
		r := len(out) - 2
		rows, columns, inner := out[r], out[r+1], x[len(x)-1]
		left, err := broadcast(x[:len(x)-2], out[:r])
		if err != nil {
			return nil, err
		}
		right, err := broadcast(y[:len(y)-2], out[:r])
		if err != nil {
			return nil, err
		}
		batch, i, j := t.element/(rows*columns), t.element/columns%rows, t.element%columns
		for k := range min(inner, maxChances+1) {
			terms = append(terms, [2]*trail{
				{t.builder, n.Inputs[0], (int(left[batch])*rows+i)*inner + k},
				{t.builder, n.Inputs[1], (int(right[batch])*inner+k)*columns + j},
			})
		}
		return terms, nil
	}
	if n.Op != "ReduceSum" || len(n.Inputs) < 2 || n.Inputs[1] == graph.Absent {
		return nil, nil
	}
	axes, shape := t.head.Values[n.Inputs[1]].Constant, t.head.Values[n.Inputs[0]].Shape
	if axes == nil || len(axes.Ints) != 1 {
		return nil, nil
	}
	axis := int(axes.Ints[0])
	if axis < 0 {
		axis += len(shape)
	}
	inner, err := graph.Count(shape[axis+1:])
	if err != nil {
		return nil, err
	}
	for k := range min(shape[axis], maxChances+1) {
		at := &trail{t.builder, n.Inputs[0], (t.element/inner*shape[axis]+k)*inner + t.element%inner}
		product, err := at.back()
		if product == nil || product.Op != "Mul" || len(product.Inputs) != 2 || err != nil {
			return nil, err
		}
		var factors [2]*trail
		for i, v := range product.Inputs {
			if factors[i], err = at.broadcast(v, t.head.Values[product.Outputs[0]].Shape); err != nil {
				return nil, err
			}
		}
		terms = append(terms, factors)
	}
	return terms, nil
}

// mixture returns the logarithms of the weights of a sum, each of shape [1], and what they
// weigh. It returns none if the weights are not all classes of a Softmax, or if they weigh
// something else than probabilities.
func (t *trail) mixture(terms [][2]*trail, left *int) (weights []graph.Value, factors []chance, err error) {
	var softmax *graph.Node
	var classes []int // elements of the Softmax
	for _, term := range terms {
		var nodes [2]*graph.Node
		for i, at := range term {
			if nodes[i], err = at.back(); nodes[i] == nil || err != nil {
				return nil, nil, err
			}
		}
		w := slices.IndexFunc(nodes[:], func(n *graph.Node) bool {
			return n.Op == "Softmax" && (softmax == nil || n.Outputs[0] == softmax.Outputs[0]) // nodes move if others are added
		})
		if w < 0 {
			return nil, nil, nil
		}
		softmax = nodes[w]
		classes = append(classes, term[w].element)
		factor, ok, err := term[1-w].chance(nodes[1-w], left)
		if !ok || err != nil {
			return nil, nil, err
		}
		factors = append(factors, factor)
	}
	shape := t.head.Values[softmax.Inputs[0]].Shape
	axis := len(shape) - 1
	if a, ok := softmax.Attributes["axis"].(int64); ok && a >= 0 {
		axis = int(a)
	} else if ok {
		axis = len(shape) + int(a)
	}
	inner, err := graph.Count(shape[axis+1:])
	if err != nil || len(classes) != shape[axis] {
		return nil, nil, err
	}
	first := classes[0]/(inner*shape[axis])*inner*shape[axis] + classes[0]%inner
	for k := range shape[axis] {
		if !slices.Contains(classes, first+k*inner) {
			return nil, nil, nil
		}
	}
	c := &chances{builder: t.builder}
	logs := c.with("LogSoftmax", softmax.Attributes, softmax.Inputs[0])
	for _, element := range classes {
		weight := trail{t.builder, logs, element}
		if c.err == nil {
			weights = append(weights, c.one(weight.pick()))
		}
	}
	return weights, factors, c.err
}

// chances computes probabilities in the head. After an error, its methods do nothing.
type chances struct {
	*builder
	err error
}

func (c *chances) do(op string, inputs ...graph.Value) graph.Value { return c.with(op, nil, inputs...) }

func (c *chances) with(op string, attributes graph.Attributes, inputs ...graph.Value) (v graph.Value) {
	if c.err == nil {
		v, c.err = c.compute(op, attributes, inputs...)
	}
	return v
}

// one returns a value of one element with the shape [1].
func (c *chances) one(v graph.Value, err error) graph.Value {
	if c.err == nil {
		c.err = err
	}
	return c.do("Reshape", v, c.head.AddConstant(graph.NewInts([]int64{1}, 1)))
}

// sum returns the logarithm of the sum of the numbers with the given logarithms.
func (c *chances) sum(logs []graph.Value) graph.Value {
	return c.do("ReduceLogSumExp", c.with("Concat", graph.Attributes{"axis": int64(0)}, logs...), c.head.AddConstant(graph.NewInts([]int64{0}, 1)))
}

// product returns the probability that all factors come true. It fails at the first that does
// not, after those before it came true.
func (c *chances) product(factors []chance) chance {
	p := factors[0]
	no := []graph.Value{p.no}
	for _, f := range factors[1:] {
		no = append(no, c.do("Add", p.yes, f.no))
		p.yes = c.do("Add", p.yes, f.yes)
	}
	return chance{p.yes, c.sum(no)}
}

// mixture returns the sum of factors with the weights whose logarithms are given.
func (c *chances) mixture(weights []graph.Value, factors []chance) chance {
	var yes, no []graph.Value
	for k, w := range weights {
		yes, no = append(yes, c.do("Add", w, factors[k].yes)), append(no, c.do("Add", w, factors[k].no))
	}
	return chance{c.sum(yes), c.sum(no)}
}
