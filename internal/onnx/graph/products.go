package graph

import (
	"fmt"
	"slices"
)

// products has the operators that multiply and add.
var products = map[string]operator{
	"MatMul": {inputs: "f f", infer: inferMatMul, evaluate: evaluateMatMul, work: workMatMul},
	"Gemm":   {inputs: "f f f?", attributes: "alpha:f beta:f transA:i transB:i", infer: inferGemm, evaluate: evaluateGemm, work: workGemm},
	"Conv":   {inputs: "f f f?", attributes: "auto_pad:s dilations:is group:i kernel_shape:is pads:is strides:is", infer: inferConv, evaluate: evaluateConv, work: workConv},
	"Einsum": {inputs: "f*", attributes: "equation:s", infer: inferEinsum, evaluate: evaluateEinsum, work: workEinsum},
}

// matrices returns the shapes of the inputs of MatMul as matrices. A vector gets another
// axis of size 1, which is the first one in the first input and the last one in the second.
func (c *call) matrices() (a, b []int) {
	a, b = c.shape(0), c.shape(1)
	if len(a) == 1 {
		a = []int{1, a[0]}
	}
	if len(b) == 1 {
		b = []int{b[0], 1}
	}
	return a, b
}

func inferMatMul(c *call) ([]Info, error) {
	if len(c.shape(0)) == 0 || len(c.shape(1)) == 0 {
		return nil, fmt.Errorf("shapes %v and %v, expected matrices", c.shape(0), c.shape(1))
	}
	a, b := c.matrices()
	batchA, rows, inner := a[:len(a)-2], a[len(a)-2], a[len(a)-1]
	batchB, innerB, columns := b[:len(b)-2], b[len(b)-2], b[len(b)-1]
	if inner != innerB {
		return nil, fmt.Errorf("shapes %v and %v do not fit", c.shape(0), c.shape(1))
	}
	out, err := broadcast(batchA, batchB)
	if err != nil {
		return nil, err
	}
	if len(c.shape(0)) > 1 {
		out = append(out, rows)
	}
	if len(c.shape(1)) > 1 {
		out = append(out, columns)
	}
	return one(Float, out), nil
}

func workMatMul(c *call, out []Info) int64 {
	inner := c.shape(0)[len(c.shape(0))-1]
	return int64(count(out[0].Shape)) * int64(max(inner, 1))
}

func evaluateMatMul(c *call, out []*Tensor) error {
	a, b := c.matrices()
	rows, inner, columns := a[len(a)-2], a[len(a)-1], b[len(b)-1]
	batch, _ := broadcast(a[:len(a)-2], b[:len(b)-2])
	x, y, z := c.tensor(0), c.tensor(1), out[0]
	next := 0
	each(batch, func(at []int) {
		u, v := at[0]*rows*inner, at[1]*inner*columns
		for i := range rows {
			for j := range columns {
				sum := 0.0
				for k := range inner {
					sum += x.float(u+i*inner+k) * y.float(v+k*columns+j)
				}
				z.setFloat(next, sum)
				next++
			}
		}
	}, broadcastStrides(a[:len(a)-2], batch), broadcastStrides(b[:len(b)-2], batch))
	return nil
}

// transposed returns the numbers of rows and columns of a matrix, which is transposed if
// swap is true, and how far apart its rows and its columns are.
func transposed(shape []int, swap bool) (rows, columns, down, right int) {
	if swap {
		return shape[1], shape[0], 1, shape[1]
	}
	return shape[0], shape[1], shape[1], 1
}

func inferGemm(c *call) ([]Info, error) {
	if len(c.shape(0)) != 2 || len(c.shape(1)) != 2 {
		return nil, fmt.Errorf("shapes %v and %v, expected matrices", c.shape(0), c.shape(1))
	}
	rows, inner, _, _ := transposed(c.shape(0), c.int("transA", 0) != 0)
	innerB, columns, _, _ := transposed(c.shape(1), c.int("transB", 0) != 0)
	if inner != innerB {
		return nil, fmt.Errorf("shapes %v and %v do not fit", c.shape(0), c.shape(1))
	}
	out := []int{rows, columns}
	if c.has(2) {
		if b, err := broadcast(out, c.shape(2)); err != nil || !slices.Equal(b, out) {
			return nil, fmt.Errorf("input 3 of the shape %v does not broadcast to %v", c.shape(2), out)
		}
	}
	return one(Float, out), nil
}

func workGemm(c *call, out []Info) int64 {
	_, inner, _, _ := transposed(c.shape(0), c.int("transA", 0) != 0)
	return int64(count(out[0].Shape)) * int64(max(inner, 1))
}

func evaluateGemm(c *call, out []*Tensor) error {
	rows, inner, downA, rightA := transposed(c.shape(0), c.int("transA", 0) != 0)
	_, columns, downB, rightB := transposed(c.shape(1), c.int("transB", 0) != 0)
	alpha, beta := c.float("alpha", 1), c.float("beta", 1)
	x, y, z := c.tensor(0), c.tensor(1), out[0]
	step := []int{0, 0}
	if c.has(2) {
		step = broadcastStrides(c.shape(2), out[0].Shape)
	}
	for i := range rows {
		for j := range columns {
			sum := 0.0
			for k := range inner {
				sum += x.float(i*downA+k*rightA) * y.float(k*downB+j*rightB)
			}
			sum *= alpha
			if c.has(2) {
				sum += beta * c.tensor(2).float(i*step[0]+j*step[1])
			}
			z.setFloat(i*columns+j, sum)
		}
	}
	return nil
}

// inferConv accepts only convolutions whose kernel has a single element. They multiply the
// channels at each position by a matrix.
func inferConv(c *call) ([]Info, error) {
	x, w := c.shape(0), c.shape(1)
	if len(x) < 3 || len(w) != len(x) {
		return nil, fmt.Errorf("shapes %v and %v, expected [n channels ...] and [outputs channels ...]", x, w)
	}
	ones := func(list []int64, want int64) bool {
		return !slices.ContainsFunc(list, func(v int64) bool { return v != want })
	}
	list := func(name string) []int64 {
		v, _ := c.attributes[name].([]int64)
		return v
	}
	if count(w[2:]) != 1 || slices.Contains(w[2:], 0) || !ones(list("kernel_shape"), 1) || !ones(list("pads"), 0) || !ones(list("strides"), 1) {
		return nil, fmt.Errorf("kernel %v, pads %v, strides %v: only kernels of a single element, without pads and strides, are supported", w[2:], list("pads"), list("strides"))
	}
	group := c.int("group", 1)
	if group < 1 || group > int64(w[0]) || int64(w[0])%group != 0 || int64(x[1]) != int64(w[1])*group {
		return nil, fmt.Errorf("shapes %v and %v do not fit with %d groups", x, w, group)
	}
	if c.has(2) && !slices.Equal(c.shape(2), w[:1]) {
		return nil, fmt.Errorf("bias of the shape %v, expected %v", c.shape(2), w[:1])
	}
	return one(Float, slices.Concat(x[:1], w[:1], x[2:])), nil
}

func workConv(c *call, out []Info) int64 {
	return int64(count(out[0].Shape)) * int64(max(c.shape(1)[1], 1))
}

func evaluateConv(c *call, out []*Tensor) error {
	x, w := c.shape(0), c.shape(1)
	places, inner := count(x[2:]), w[1]
	perGroup := w[0] / int(c.int("group", 1))
	for n := range x[0] {
		for unit := range w[0] {
			first := n*x[1] + unit/perGroup*inner // channel
			for p := range places {
				sum := 0.0
				if c.has(2) {
					sum = c.tensor(2).float(unit)
				}
				for k := range inner {
					sum += c.tensor(1).float(unit*inner+k) * c.tensor(0).float((first+k)*places+p)
				}
				out[0].setFloat((n*w[0]+unit)*places+p, sum)
			}
		}
	}
	return nil
}
