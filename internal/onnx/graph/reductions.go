package graph

import (
	"errors"
	"fmt"
	"math"
)

// reductions has the operators that combine the elements along some axes.
var reductions = map[string]operator{
	"ReduceSum":       reduction(reducer{floats: plus, ints: func(a, b int64) int64 { return a + b }}),
	"ReduceMean":      reduction(reducer{floats: plus, finish: func(sum float64, n int) float64 { return sum / float64(n) }}),
	"ReduceMax":       reduction(reducer{start: math.Inf(-1), startInt: math.MinInt64, floats: math.Max, ints: func(a, b int64) int64 { return max(a, b) }}),
	"ReduceMin":       reduction(reducer{start: math.Inf(1), startInt: math.MaxInt64, floats: math.Min, ints: func(a, b int64) int64 { return min(a, b) }}),
	"ReduceProd":      reduction(reducer{start: 1, startInt: 1, floats: func(a, b float64) float64 { return a * b }, ints: func(a, b int64) int64 { return a * b }}),
	"ReduceL1":        reduction(reducer{floats: func(a, b float64) float64 { return a + math.Abs(b) }, ints: func(a, b int64) int64 { return a + max(b, -b) }}),
	"ReduceL2":        reduction(reducer{floats: plusSquare, finish: func(sum float64, _ int) float64 { return math.Sqrt(sum) }}),
	"ReduceSumSquare": reduction(reducer{floats: plusSquare, ints: func(a, b int64) int64 { return a + b*b }}),
	"ReduceLogSum":    reduction(reducer{floats: plus, finish: func(sum float64, _ int) float64 { return math.Log(sum) }}),
	"ReduceLogSumExp": {inputs: "f i?!", attributes: "keepdims:i noop_with_empty_axes:i", infer: inferReduction, evaluate: evaluateLogSumExp},
	"CumSum":          {inputs: "N i!", attributes: "exclusive:i reverse:i", infer: inferCumSum, evaluate: evaluateCumSum},
}

// reducer combines elements from left to right. Without elements the result is start.
type reducer struct {
	start    float64
	startInt int64
	floats   func(a, b float64) float64
	ints     func(a, b int64) int64           // nil = floats only
	finish   func(sum float64, n int) float64 // nil = the sum is the result
}

func plus(a, b float64) float64 { return a + b }

func plusSquare(a, b float64) float64 { return a + b*b }

func reduction(r reducer) operator {
	o := operator{inputs: "N i?!", attributes: "keepdims:i noop_with_empty_axes:i", infer: inferReduction, evaluate: r.evaluate}
	if r.ints == nil {
		o.inputs = "f i?!"
	}
	return o
}

// reduced reports for each axis of the first input whether it is combined.
func (c *call) reduced() ([]bool, error) {
	list, err := c.list(1)
	if err != nil {
		return nil, err
	}
	out, err := axes(list, len(c.shape(0)))
	if len(list) == 0 && c.int("noop_with_empty_axes", 0) == 0 {
		for i := range out {
			out[i] = true
		}
	}
	return out, err
}

func inferReduction(c *call) ([]Info, error) {
	drop, err := c.reduced()
	if err != nil {
		return nil, err
	}
	out := []int{}
	for i, size := range c.shape(0) {
		switch {
		case !drop[i]:
			out = append(out, size)
		case c.int("keepdims", 1) != 0:
			out = append(out, 1)
		}
	}
	return one(c.in[0].Type, out), nil
}

// groups calls visit for each element of the result, with the element of the first input
// where it starts, and the shape and strides of the elements that are combined.
func (c *call) groups(visit func(i, start int, shape, step []int)) {
	drop, _ := c.reduced()
	var kept, keptStep, shape, step []int
	for i, s := range strides(c.shape(0)) {
		if size := c.shape(0)[i]; drop[i] {
			shape, step = append(shape, size), append(step, s)
		} else {
			kept, keptStep = append(kept, size), append(keptStep, s)
		}
	}
	n := 0
	each(kept, func(at []int) {
		visit(n, at[0], shape, step)
		n++
	}, keptStep)
}

func (r *reducer) evaluate(c *call, out []*Tensor) error {
	t := c.tensor(0)
	c.groups(func(i, start int, shape, step []int) {
		if t.Type == Int {
			sum := r.startInt
			each(shape, func(at []int) { sum = r.ints(sum, t.Ints[start+at[0]]) }, step)
			out[0].Ints[i] = sum
			return
		}
		sum := r.start
		each(shape, func(at []int) { sum = r.floats(sum, t.float(start+at[0])) }, step)
		if r.finish != nil {
			sum = r.finish(sum, count(shape))
		}
		out[0].setFloat(i, sum)
	})
	return nil
}

// evaluateLogSumExp subtracts the largest element before it takes exponentials.
func evaluateLogSumExp(c *call, out []*Tensor) error {
	x := c.tensor(0)
	c.groups(func(i, start int, shape, step []int) {
		most, sum := math.Inf(-1), 0.0
		each(shape, func(at []int) { most = max(most, x.float(start+at[0])) }, step)
		if math.IsInf(most, 0) {
			out[0].setFloat(i, most)
			return
		}
		each(shape, func(at []int) { sum += math.Exp(x.float(start+at[0]) - most) }, step)
		out[0].setFloat(i, math.Log(sum)+most)
	})
	return nil
}

func inferCumSum(c *call) ([]Info, error) {
	if len(c.shape(0)) == 0 {
		return nil, errors.New("a single number, expected at least one axis")
	}
	a, err := c.one(1)
	if err != nil {
		return nil, err
	}
	if _, err := axis(a, len(c.shape(0))); err != nil {
		return nil, err
	}
	return inferSame(c)
}

func evaluateCumSum(c *call, out []*Tensor) error {
	a, _ := c.one(1)
	exclusive, reverse := c.int("exclusive", 0) != 0, c.int("reverse", 0) != 0
	t := c.tensor(0)
	c.lines(a, func(start, size, step int) {
		sum, whole := 0.0, int64(0)
		for i := range size {
			at := start + i*step
			if reverse {
				at = start + (size-1-i)*step
			}
			if t.Type == Int {
				before := whole
				whole += t.Ints[at]
				if out[0].Ints[at] = whole; exclusive {
					out[0].Ints[at] = before
				}
				continue
			}
			before := sum
			sum += t.float(at)
			if out[0].setFloat(at, sum); exclusive {
				out[0].setFloat(at, before)
			}
		}
	})
	return nil
}

// lines calls visit for each line of elements along an axis of the first input. It passes
// the line's first element, the number of its elements, and how far apart they are.
func (c *call) lines(a int64, visit func(start, size, step int)) {
	shape := c.shape(0)
	at, _ := axis(a, len(shape))
	size, step := shape[at], count(shape[at+1:])
	for i := range count(shape[:at]) {
		for j := range step {
			visit(i*size*step+j, size, step)
		}
	}
}

// checkChannels fails if an input is not one number for each of n channels.
func (c *call) checkChannels(i, n int) error {
	if s := c.shape(i); len(s) != 1 || s[0] != n {
		return fmt.Errorf("input %d has the shape %v, expected [%d]", i+1, s, n)
	}
	return nil
}
