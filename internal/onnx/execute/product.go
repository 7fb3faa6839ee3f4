package execute

import (
	"errors"
	"fmt"
	"slices"

	"shaver/internal/num/kernel"
	"shaver/internal/onnx/graph"
)

// contraction is a product of matrices for each element of a batch:
//
//	out[b][i][j] = sum over k of left[b][i][k] * right[b][j][k]
//
// left and right hold positions in the elements of the operands a and b.
type contraction struct {
	a, b        graph.Value
	batch       int
	m, n, k     int
	left, right []int32 // [batch, m, k] and [batch, n, k]
	out         graph.Value
	place       []int32   // position in out of each result, [batch, m, n]; nil = in order
	scale       float32   // factor of the products, without the bias; 0 = 1; only with a constant operand
	bias        []float32 // added to each element of out; nil = 0; only with a constant operand
	relu        bool      // whether the result is max(out, 0); only with a constant operand
	alone       bool      // whether absorb must not extend it
}

// swapped returns the contraction with its operands exchanged.
func (x *contraction) swapped() *contraction {
	y := *x
	y.a, y.b, y.m, y.n, y.left, y.right = x.b, x.a, x.n, x.m, x.right, x.left
	y.place = make([]int32, x.batch*x.m*x.n)
	for b := range x.batch {
		for i := range x.m {
			for j := range x.n {
				at := (b*x.m+i)*x.n + j
				if x.place != nil {
					y.place[(b*x.n+j)*x.m+i] = x.place[at]
				} else {
					y.place[(b*x.n+j)*x.m+i] = int32(at)
				}
			}
		}
	}
	return &y
}

// contract compiles x. If an operand is constant, x may absorb the nodes after it.
func (c *compiler) contract(x *contraction) {
	if c.constant(x.b) == nil && c.constant(x.a) != nil {
		x = x.swapped()
	}
	left := pick(c.read(x.a), x.left)
	if c.depends(left) || c.constant(x.b) == nil && c.depends(c.read(x.b)) {
		c.p.products += x.batch * x.m * x.n * x.k
	}
	if c.constant(x.b) != nil {
		c.weigh(x, left)
		return
	}
	right := pick(c.read(x.b), x.right)
	out := c.allocate(x.batch*x.m*x.n, left, right)
	in := &pairsOp{out: out, x: left, y: right, batch: x.batch, m: x.m, n: x.n, k: x.k}
	if in.symmetric = x.m == x.n && slices.Equal(left, right); in.symmetric {
		in.out = slices.Clone(out)
		for i := range in.out {
			if row, column := i/x.n%x.m, i%x.n; column > row {
				out[i], in.out[i] = out[i+(column-row)*(x.n-1)], none
			}
		}
	}
	c.emit(in)
	c.setPlaced(x, out)
}

// pairsOp is a batch of products of matrices that both depend on the row, as
// kernel.NewPairs describes it.
type pairsOp struct {
	out, x, y      []int32
	batch, m, n, k int
	symmetric      bool // whether x and y are the same; out then has none above the diagonals
}

func (o *pairsOp) results() []int32    { return o.out }
func (o *pairsOp) operands() [][]int32 { return [][]int32{o.x, o.y} }
func (o *pairsOp) overlays() bool      { return false }

func (o *pairsOp) step(at func([]int32) []int32) step {
	return &pairsStep{kernel.NewPairs(at(o.out), at(o.x), at(o.y), o.batch, o.m, o.n, o.k)}
}

type pairsStep struct{ *kernel.Pairs }

func (s *pairsStep) run(arena kernel.Block, states int) { s.Compute(arena, states) }

// setPlaced makes rows of results the elements of x.out.
func (c *compiler) setPlaced(x *contraction, rows []int32) {
	if x.place != nil {
		rows = place(rows, x.place)
	}
	c.set(x.out, rows)
}

// weigh compiles a contraction whose right operand is constant. left are the rows of the
// left operand.
func (c *compiler) weigh(x *contraction, left []int32) {
	if !x.alone {
		c.absorb(x)
	}
	weights := pick(c.constant(x.b).Floats, x.right)
	if x.scale != 0 {
		for i := range weights {
			weights[i] *= x.scale
		}
	}
	bias := x.unitBias()
	out := c.allocate(x.batch*x.m*x.n, left)
	for b := 0; b < x.batch && c.err == nil; {
		w, unit := weights[b*x.n*x.k:(b+1)*x.n*x.k], []float32(nil)
		if bias != nil {
			unit = bias[b*x.n : (b+1)*x.n]
		}
		same := 1 // elements of the batch with the same weights and bias
		for b+same < x.batch && slices.Equal(w, weights[(b+same)*x.n*x.k:(b+same+1)*x.n*x.k]) && (bias == nil || slices.Equal(unit, bias[(b+same)*x.n:(b+same+1)*x.n])) {
			same++
		}
		if c.weights -= len(w); c.weights < 0 {
			c.err = fmt.Errorf("the nodes that share weights need more than %d elements of copies", maxShared)
			return
		}
		vectors := same * x.m
		c.linear(kernel.NewOutputs(slices.Clone(w), unit, x.k, x.n), out[b*x.m*x.n:][:vectors*x.n], left[b*x.m*x.k:][:vectors*x.k], vectors, x.relu)
		b += same
	}
	c.setPlaced(x, out)
}

// linear emits a linear layer on the given number of vectors.
func (c *compiler) linear(m *kernel.Outputs, out, in []int32, vectors int, relu bool) {
	if len(out) == 0 {
		return
	}
	if !kernel.Lists() && min(m.In, m.Out) >= gathered { // this level needs adjacent rows for its fastest loop
		for i := 0; i < len(in); i += m.In {
			if !c.contiguous(in[i : i+m.In]) {
				in = c.gather(in)
				break
			}
		}
	}
	c.emit(&linearOp{m, out, in, vectors, relu})
}

// gathered is the number of inputs and outputs from which on a layer is slow compared to
// copying its inputs to adjacent rows.
const gathered = 128

// linearOp is a linear layer on some vectors.
type linearOp struct {
	m       *kernel.Outputs
	out, x  []int32 // [vectors, m.Out] and [vectors, m.In]
	vectors int
	relu    bool // whether the result is max(out, 0)
}

func (o *linearOp) results() []int32    { return o.out }
func (o *linearOp) operands() [][]int32 { return [][]int32{o.x} }
func (o *linearOp) overlays() bool      { return false }

func (o *linearOp) step(at func([]int32) []int32) step {
	return &linearStep{kernel.NewLinear(o.m, at(o.out), at(o.x), o.vectors, o.relu)}
}

type linearStep struct{ *kernel.Linear }

func (s *linearStep) run(arena kernel.Block, states int) { s.Compute(arena, states) }

// unitBias returns the bias of each unit, [batch, n], or nil if x has no bias. The caller
// has checked with perUnit that the bias does not depend on m.
func (x *contraction) unitBias() []float32 {
	if x.bias == nil {
		return nil
	}
	bias := make([]float32, x.batch*x.n)
	for b := range x.batch {
		for j := range x.n {
			at := b*x.m*x.n + j
			if x.place != nil {
				at = int(x.place[at])
			}
			if x.m > 0 {
				bias[b*x.n+j] = x.bias[at]
			}
		}
	}
	return bias
}

// perUnit reports whether bias, one number for each element of out, is the same for all m.
func (x *contraction) perUnit(bias []float32) bool {
	for b := range x.batch {
		for i := range x.m {
			for j := range x.n {
				at, first := (b*x.m+i)*x.n+j, b*x.m*x.n+j
				if x.place != nil {
					at, first = int(x.place[at]), int(x.place[first])
				}
				if bias[at] != bias[first] {
					return false
				}
			}
		}
	}
	return true
}

// absorb extends x by the Add of a finite constant and by the Relu that follow it, if no other node
// reads their inputs.
func (c *compiler) absorb(x *contraction) {
	shape := c.shape(x.out)
	if next, n := c.only(x.out); n != nil && n.Op == "Add" && x.bias == nil {
		other := n.Inputs[0]
		if other == x.out {
			other = n.Inputs[1]
		}
		if t := c.constant(other); t != nil && slices.Equal(c.shape(n.Outputs[0]), shape) {
			if bias := pick(t.Floats, broadcast(t.Shape, shape)); x.perUnit(bias) && allFinite(bias) {
				x.bias, x.out, c.fused[next] = bias, n.Outputs[0], true
			}
		}
	}
	if next, n := c.only(x.out); n != nil && n.Op == "Relu" {
		x.relu, x.out, c.fused[next] = true, n.Outputs[0], true
	}
}

// only returns the node that reads v, if there is exactly one and it reads v once.
func (c *compiler) only(v graph.Value) (int, *graph.Node) {
	if c.uses[v] != 1 || c.readers[v] < 0 || v == c.g.Output {
		return 0, nil
	}
	i := c.readers[v]
	return i, &c.g.Nodes[i]
}

// matMul compiles MatMul.
func matMul(c *compiler, n *graph.Node) error {
	a, b, out := c.shape(n.Inputs[0]), c.shape(n.Inputs[1]), n.Outputs[0]
	sa, sb := stridesOf(a), stridesOf(b)
	if len(a) == 1 {
		a, sa = []int{1, a[0]}, []int{0, 1}
	}
	if len(b) == 1 {
		b, sb = []int{b[0], 1}, []int{1, 0}
	}
	la, lb := len(a)-2, len(b)-2
	x := &contraction{a: n.Inputs[0], b: n.Inputs[1], m: a[la], n: b[lb+1], k: a[la+1], out: out}
	lead := make([]int, max(la, lb))
	for i := range lead {
		lead[i] = 1
		if d := i - len(lead) + la; d >= 0 {
			lead[i] = max(lead[i], a[d])
			if a[d] == 0 {
				lead[i] = 0
			}
		}
		if d := i - len(lead) + lb; d >= 0 && b[d] != 1 {
			lead[i] = b[d]
		}
	}
	x.batch = elements(lead)
	if elements(b[:lb]) == 1 && c.constant(n.Inputs[1]) != nil { // one matrix for the whole batch
		x.m, x.batch, lead = x.m*x.batch, 1, nil
		x.left = walk([]int{x.m, x.k}, []int{x.k, 1})
	} else {
		x.left = walk(append(slices.Clone(lead), x.m, x.k), append(leadStrides(lead, a[:la], sa), sa[la], sa[la+1]))
	}
	x.right = walk(append(slices.Clone(lead), x.n, x.k), append(leadStrides(lead, b[:lb], sb), sb[lb+1], sb[lb]))
	c.contract(x)
	return nil
}

// leadStrides returns the strides of the axes lead for an operand whose own leading axes
// have the given shape, with broadcasting.
func leadStrides(lead, shape, strides []int) []int {
	all := make([]int, len(lead))
	for i := range shape {
		if shape[i] != 1 {
			all[i+len(lead)-len(shape)] = strides[i]
		}
	}
	return all
}

// gemm compiles Gemm.
func gemm(c *compiler, n *graph.Node) error {
	a, b := c.shape(n.Inputs[0]), c.shape(n.Inputs[1])
	sa, sb := []int{a[1], 1}, []int{1, b[1]} // strides of (m, k) and of (n, k)
	m, k, units := a[0], a[1], b[1]
	if integer(n, "transA", 0) != 0 {
		sa, m, k = []int{1, a[1]}, a[1], a[0]
	}
	if integer(n, "transB", 0) != 0 {
		sb, units = []int{b[1], 1}, b[0]
	}
	alpha, beta := real(n, "alpha", 1), real(n, "beta", 1)
	x := &contraction{a: n.Inputs[0], b: n.Inputs[1], batch: 1, m: m, n: units, k: k, out: n.Outputs[0],
		left: walk([]int{m, k}, sa), right: walk([]int{units, k}, sb)}
	weighed := c.constant(x.a) != nil || c.constant(x.b) != nil // by weigh
	if weighed && alpha != 1 {
		x.scale, alpha = alpha, 1
	}
	addend := graph.Absent
	if len(n.Inputs) > 2 {
		addend = n.Inputs[2]
	}
	if t := c.constant(addend); t != nil && weighed {
		bias := pick(t.Floats, broadcast(t.Shape, c.shape(x.out)))
		for i := range bias {
			bias[i] *= beta
		}
		if x.fits(c, bias) {
			x.bias, addend = bias, graph.Absent
		}
	}
	x.alone = alpha != 1 || addend != graph.Absent
	c.contract(x)
	if !x.alone {
		return nil
	}
	rows := c.values[x.out]
	if alpha != 1 {
		rows = c.affine(rows, []float32{alpha}, []float32{0})
	}
	if addend != graph.Absent {
		added := c.readAs(addend, c.shape(x.out))
		if beta != 1 {
			added = c.affine(added, []float32{beta}, []float32{0})
		}
		rows = c.combine(kernel.Add, rows, added)
	}
	c.set(x.out, rows)
	return nil
}

// fits reports whether bias, one number for each element of out, is the same for all
// elements that a unit of the constant operand computes.
func (x *contraction) fits(c *compiler, bias []float32) bool {
	if c.constant(x.b) == nil {
		return x.swapped().perUnit(bias)
	}
	return x.perUnit(bias)
}

// conv compiles a convolution with kernels of one element.
func conv(c *compiler, n *graph.Node) error {
	in, w, groups := c.shape(n.Inputs[0]), c.shape(n.Inputs[1]), int(integer(n, "group", 1))
	batch, places, channels, units := in[0], elements(in[2:]), w[1], w[0]/groups
	x := &contraction{a: n.Inputs[0], b: n.Inputs[1], batch: groups, m: batch * places, n: units, k: channels, out: n.Outputs[0],
		left:  walk([]int{groups, batch, places, channels}, []int{channels * places, in[1] * places, 1, places}),
		right: walk([]int{groups, units, channels}, []int{units * channels, channels, 1}),
		place: walk([]int{groups, batch, places, units}, []int{units * places, w[0] * places, 1, places})}
	if len(n.Inputs) < 3 || n.Inputs[2] == graph.Absent {
		c.contract(x)
		return nil
	}
	shape := append([]int{w[0]}, slices.Repeat([]int{1}, len(in)-2)...) // of the bias, to broadcast
	if t := c.constant(n.Inputs[2]); t != nil && (c.constant(x.a) != nil || c.constant(x.b) != nil) {
		bias := pick(t.Floats, broadcast(shape, c.shape(x.out)))
		if x.fits(c, bias) {
			x.bias = bias
			c.contract(x)
			return nil
		}
	}
	x.alone = true
	c.contract(x)
	bias := pick(c.read(n.Inputs[2]), broadcast(shape, c.shape(x.out)))
	c.set(x.out, c.combine(kernel.Add, c.values[x.out], bias))
	return nil
}

// einsum compiles an Einsum of one or two operands.
func einsum(c *compiler, n *graph.Node) error {
	equation, _ := n.Attributes["equation"].(string)
	var shapes [][]int
	for _, v := range n.Inputs {
		shapes = append(shapes, c.shape(v))
	}
	e, err := graph.ParseEinsum(equation, shapes)
	if err != nil {
		return err
	}
	// The labels of both operands, of the first only, of the second only, and of the sum.
	var batch, first, second, summed []int
	for l := range e.Sizes {
		a, b := e.Strides[0][l] != 0, len(e.Strides) > 1 && e.Strides[1][l] != 0
		switch {
		case l >= e.Kept:
			summed = append(summed, l)
		case a && b:
			batch = append(batch, l)
		case b:
			second = append(second, l)
		default:
			first = append(first, l)
		}
	}
	out := append(stridesOf(e.Sizes[:e.Kept]), make([]int, len(e.Sizes)-e.Kept)...)
	size := func(labels []int) int { return elements(pick(e.Sizes, labels)) }
	positions := func(strides []int, lists ...[]int) []int32 {
		labels := slices.Concat(lists...)
		return walk(pick(e.Sizes, labels), pick(strides, labels))
	}
	if len(n.Inputs) == 1 {
		x := pick(c.read(n.Inputs[0]), positions(e.Strides[0], first, summed))
		if len(x) == 0 {
			return errors.New("the input has no elements")
		}
		c.set(n.Outputs[0], place(c.reduce(kernel.Sum, x, size(summed)), positions(out, first)))
		return nil
	}
	c.contract(&contraction{a: n.Inputs[0], b: n.Inputs[1], batch: size(batch), m: size(first), n: size(second), k: size(summed), out: n.Outputs[0],
		left: positions(e.Strides[0], batch, first, summed), right: positions(e.Strides[1], batch, second, summed), place: positions(out, batch, first, second)})
	return nil
}

// integer returns an attribute that is a whole number, or otherwise if n does not have it.
func integer(n *graph.Node, name string, otherwise int64) int64 {
	if v, ok := n.Attributes[name].(int64); ok {
		return v
	}
	return otherwise
}

// real returns an attribute that is a float32, or otherwise if n does not have it.
func real(n *graph.Node, name string, otherwise float32) float32 {
	if v, ok := n.Attributes[name].(float32); ok {
		return v
	}
	return otherwise
}
