package execute

import (
	"errors"
	"math"
	"slices"

	"shaver/internal/num/kernel"
	"shaver/internal/onnx/graph"
)

// grouped returns the positions of the elements of an array, ordered by groups. A group has
// n elements, which differ only in their index along the given axes.
func grouped(shape []int, axes []int) (positions []int32, n int) {
	strides := stridesOf(shape)
	var size, step []int
	for a := range shape {
		if !slices.Contains(axes, a) {
			size, step = append(size, shape[a]), append(step, strides[a])
		}
	}
	n = 1
	for a := range shape {
		if slices.Contains(axes, a) {
			size, step = append(size, shape[a]), append(step, strides[a])
			n *= shape[a]
		}
	}
	return walk(size, step), n
}

// reduction compiles an operator that reduces groups of n rows with f. The axes are the
// second input, which is constant.
func reduction(f func(c *compiler, x []int32, n int) []int32) compileFunc {
	return func(c *compiler, n *graph.Node) error {
		shape := c.shape(n.Inputs[0])
		var axes []int
		if len(n.Inputs) > 1 && n.Inputs[1] != graph.Absent {
			t := c.constant(n.Inputs[1])
			if t == nil {
				return errors.New("the axes depend on the row")
			}
			for _, a := range t.Ints {
				if a < 0 {
					a += int64(len(shape))
				}
				axes = append(axes, int(a))
			}
		}
		if len(axes) == 0 && integer(n, "noop_with_empty_axes", 0) == 0 {
			for a := range shape {
				axes = append(axes, a)
			}
		}
		positions, size := grouped(shape, axes)
		if size == 0 || len(positions) == 0 {
			return errors.New("the input has no elements")
		}
		c.set(n.Outputs[0], f(c, pick(c.read(n.Inputs[0]), positions), size))
		return nil
	}
}

// meanOf returns the mean of each n successive rows of x.
func (c *compiler) meanOf(x []int32, n int) []int32 {
	if n == 1 {
		return x
	}
	return c.scale(c.reduce(kernel.Sum, x, n), 1/float32(n))
}

// spread repeats each element of rows n times.
func spread(rows []int32, n int) []int32 {
	all := make([]int32, 0, len(rows)*n)
	for _, row := range rows {
		for range n {
			all = append(all, row)
		}
	}
	return all
}

// exponents returns e^(x-largest), the sums of each n successive rows of it, and largest,
// which is the largest of each n successive rows of x. What follows from e and sum does not
// depend on largest, except for rounding, so largest counts as a constant. If bounded, largest is
// finite, so e is 0 and not NaN if all of n rows are -Inf.
func (c *compiler) exponents(x []int32, n int, bounded bool) (e, sum, largest []int32) {
	largest = c.allocate(len(x)/n, x)
	c.emit(&reduceOp{op: kernel.Largest, out: largest, x: x, fixed: true})
	if bounded {
		largest = c.combine(kernel.Maximum, largest, c.same(-math.MaxFloat32, len(largest)))
		largest = c.combine(kernel.Minimum, largest, c.same(math.MaxFloat32, len(largest)))
	}
	e = c.apply(kernel.Exp, c.combine(kernel.Subtract, x, spread(largest, n)))
	return e, c.reduce(kernel.Sum, e, n), largest
}

// softmax compiles Softmax and LogSoftmax.
func softmax(c *compiler, n *graph.Node) error {
	shape := c.shape(n.Inputs[0])
	axis := int(integer(n, "axis", -1))
	if axis < 0 {
		axis += len(shape)
	}
	positions, size := grouped(shape, []int{axis})
	if len(positions) == 0 {
		c.set(n.Outputs[0], nil)
		return nil
	}
	x := pick(c.read(n.Inputs[0]), positions)
	var y []int32
	if n.Op == "Softmax" {
		y = c.allocate(len(x), x)
		c.emit(&softmaxOp{y, x, size})
	} else {
		_, sum, largest := c.exponents(x, size, false)
		y = c.combine(kernel.Subtract, x, spread(largest, size))
		y = c.combine(kernel.Subtract, y, spread(c.apply(kernel.Log, sum), size))
	}
	c.set(n.Outputs[0], place(y, positions))
	return nil
}

// place returns a list that has rows[i] at positions[i].
func place(rows, positions []int32) []int32 {
	all := make([]int32, len(rows))
	for i, p := range positions {
		all[p] = rows[i]
	}
	return all
}

// layerNormalization compiles LayerNormalization over the axes from axis on.
func layerNormalization(c *compiler, n *graph.Node) error {
	shape := c.shape(n.Inputs[0])
	axis := int(integer(n, "axis", -1))
	if axis < 0 {
		axis += len(shape)
	}
	x, size := c.read(n.Inputs[0]), elements(shape[axis:])
	if len(x) == 0 {
		c.set(n.Outputs[0], nil)
		return nil
	}
	mean := c.meanOf(x, size)
	d := c.combine(kernel.Subtract, x, spread(mean, size))
	variance := c.affine(c.reduce(kernel.Sum, c.combine(kernel.Multiply, d, d), size), []float32{1 / float32(size)}, []float32{real(n, "epsilon", 1e-5)})
	inverse := c.apply(kernel.Reciprocal, c.apply(kernel.SquareRoot, variance))
	d = c.combine(kernel.Multiply, d, spread(inverse, size))
	scale, offset := c.constant(n.Inputs[1]), (*graph.Tensor)(nil)
	biased := len(n.Inputs) > 2 && n.Inputs[2] != graph.Absent
	if biased {
		offset = c.constant(n.Inputs[2])
	}
	if scale == nil || biased && offset == nil {
		return errors.New("the scale or the offset depends on the row")
	}
	offsets := []float32{0}
	if biased {
		offsets = numbers(offset, shape)
	}
	c.set(n.Outputs[0], c.affine(d, numbers(scale, shape), offsets))
	return nil
}

// batchNormalization compiles BatchNormalization with constant statistics.
func batchNormalization(c *compiler, n *graph.Node) error {
	shape := c.shape(n.Inputs[0])
	var constants [4]*graph.Tensor // scale, offset, mean, variance
	for i := range constants {
		if constants[i] = c.constant(n.Inputs[i+1]); constants[i] == nil {
			return errors.New("the statistics or the scale depend on the row")
		}
	}
	epsilon := float64(real(n, "epsilon", 1e-5))
	inner := 1
	if len(shape) > 2 {
		inner = elements(shape[2:])
	}
	x := c.read(n.Inputs[0])
	scale, offset := make([]float32, len(x)), make([]float32, len(x))
	for i := range x {
		k := 0 // channel
		if len(shape) > 1 {
			k = i / inner % shape[1]
		}
		s := float64(constants[0].Floats[k]) / math.Sqrt(float64(constants[3].Floats[k])+epsilon)
		scale[i], offset[i] = float32(s), float32(float64(constants[1].Floats[k])-float64(constants[2].Floats[k])*s)
	}
	c.set(n.Outputs[0], c.affine(x, scale, offset))
	return nil
}

// cumSum compiles CumSum.
func cumSum(c *compiler, n *graph.Node) error {
	shape := c.shape(n.Inputs[0])
	axis := int(c.constant(n.Inputs[1]).Ints[0])
	if axis < 0 {
		axis += len(shape)
	}
	positions, size := grouped(shape, []int{axis})
	x := pick(c.read(n.Inputs[0]), positions)
	rows := make([]int32, len(x))
	sum := c.same(0, len(x)/max(1, size))
	for k := range size {
		if integer(n, "reverse", 0) != 0 {
			k = size - 1 - k
		}
		next := make([]int32, len(sum))
		for i := range sum {
			next[i] = x[i*size+k]
		}
		next = c.combine(kernel.Add, sum, next)
		kept := next
		if integer(n, "exclusive", 0) != 0 {
			kept = sum
		}
		for i := range sum {
			rows[i*size+k] = kept[i]
		}
		sum = next
	}
	c.set(n.Outputs[0], place(rows, positions))
	return nil
}
