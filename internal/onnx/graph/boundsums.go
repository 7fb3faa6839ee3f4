package graph

import "math"

// reduce returns the interval of p, an element of n, which combines elements.
func (b *bounds) reduce(n *Node, c *call, p place) Interval {
	start := Interval{}
	var add func(sum, x Interval) Interval
	switch n.Op {
	case "ReduceSum", "ReduceMean":
		add = Interval.plus
	case "ReduceL1":
		add = func(sum, x Interval) Interval { return sum.plus(x.abs()) }
	case "ReduceL2", "ReduceSumSquare":
		add = func(sum, x Interval) Interval { return sum.plus(x.square()) }
	case "ReduceProd":
		start, add = Interval{1, 1}, Interval.times
	case "ReduceMax":
		start, add = Interval{math.Inf(-1), math.Inf(-1)}, greatest
	case "ReduceMin":
		start, add = Interval{math.Inf(1), math.Inf(1)}, least
	default:
		return anything
	}
	var from []place
	b.left -= count(c.shape(0))
	c.groups(func(i, start int, shape, step []int) {
		if i == p.element {
			each(shape, func(at []int) { from = append(from, place{n.Inputs[0], start + at[0]}) }, step)
		}
	})
	x := start
	for _, q := range from {
		if x = add(x, b.of(q)); x == anything {
			return anything
		}
	}
	switch n.Op {
	case "ReduceSum":
		terms := make([][2]place, len(from))
		for i, q := range from {
			q = b.origin(q)
			product := b.producers[q.value]
			if product == nil || product.Op != "Mul" {
				return x
			}
			for k := range product.Inputs {
				terms[i][k] = b.operand(product, k, q)
			}
		}
		return b.mean(x, terms)
	case "ReduceMean":
		return x.times(around(1 / float64(max(1, len(from)))))
	case "ReduceL2":
		return around(math.Sqrt(x.Low), math.Sqrt(x.High))
	}
	return x
}

// product returns the interval of p, an element of n, which sums products.
func (b *bounds) product(n *Node, c *call, p place) Interval {
	var terms [][2]place
	term := func(x, y int) { terms = append(terms, [2]place{{n.Inputs[0], x}, {n.Inputs[1], y}}) }
	scale, bias := 1.0, Interval{}
	switch n.Op {
	case "MatMul":
		x, y := c.matrices()
		rows, inner, columns := x[len(x)-2], x[len(x)-1], y[len(y)-1]
		batch, _ := broadcast(x[:len(x)-2], y[:len(y)-2])
		at, i, j := p.element/(rows*columns), p.element/columns%rows, p.element%columns
		u := offset(at, batch, broadcastStrides(x[:len(x)-2], batch)) * rows * inner
		v := offset(at, batch, broadcastStrides(y[:len(y)-2], batch)) * inner * columns
		for k := range inner {
			term(u+i*inner+k, v+k*columns+j)
		}
	case "Gemm":
		_, inner, downA, rightA := transposed(c.shape(0), c.int("transA", 0) != 0)
		_, columns, downB, rightB := transposed(c.shape(1), c.int("transB", 0) != 0)
		i, j := p.element/columns, p.element%columns
		for k := range inner {
			term(i*downA+k*rightA, k*downB+j*rightB)
		}
		scale = c.float("alpha", 1)
		if c.has(2) {
			bias = b.of(b.operand(n, 2, p)).times(around(c.float("beta", 1)))
		}
	case "Einsum":
		e, err := c.einsum()
		if err != nil || len(n.Inputs) != 2 {
			return anything
		}
		x := offset(p.element, e.Sizes[:e.Kept], e.Strides[0][:e.Kept])
		y := offset(p.element, e.Sizes[:e.Kept], e.Strides[1][:e.Kept])
		each(e.Sizes[e.Kept:], func(at []int) { term(x+at[0], y+at[1]) }, e.Strides[0][e.Kept:], e.Strides[1][e.Kept:])
	}
	b.left -= len(terms)
	sum := Interval{}
	for _, t := range terms {
		if sum = sum.plus(b.of(t[0]).times(b.of(t[1]))); sum == anything {
			return anything
		}
	}
	return b.mean(sum, terms).times(around(scale)).plus(bias)
}

// mean returns the interval of the sum of terms, which is within sum. It is that of the
// factors that a Softmax weighs, if the terms have all its classes.
func (b *bounds) mean(sum Interval, terms [][2]place) Interval {
	if len(terms) == 0 {
		return sum
	}
	for _, first := range terms[0] {
		softmax := b.origin(first).value
		n := b.producers[softmax]
		if n == nil || n.Op != "Softmax" {
			continue
		}
		shape := b.Values[softmax].Shape
		c, _ := newCall(n.Op, n.Attributes, b.infos(n.Inputs))
		a, _ := c.axis(-1, len(shape))
		inner := count(shape[a+1:])
		lines, classes, joined := map[int]bool{}, map[int]bool{}, Interval{math.Inf(1), math.Inf(-1)}
		for _, t := range terms {
			for k := range t {
				if w := b.origin(t[k]); w.value == softmax && !classes[w.element] {
					lines[w.element/(inner*shape[a])*inner+w.element%inner] = true
					classes[w.element] = true
					joined = joined.join(b.of(t[1-k]))
					break
				}
			}
		}
		if len(lines) == 1 && len(classes) == len(terms) && len(terms) == shape[a] {
			return sum.meet(joined)
		}
	}
	return sum
}
