package execute

import (
	"fmt"
	"math"
	"slices"

	"shaver/internal/graph"
	"shaver/internal/kernel"
)

// stretch is a part of an elementwise step: n rows from out on, computed from n rows from
// a on and from b on. If an operand has the stride 0, all n rows read the same row.
type stretch struct {
	out, a, b, n     int32
	strideA, strideB int32
}

// runsOf returns stretches that compute out[i] from a[i] and b[i]. b may be nil.
func runsOf(out, a, b []int32) []stretch {
	if b == nil {
		b = a
	}
	var runs []stretch
	for i := 0; i < len(out); {
		r := stretch{out: out[i], a: a[i], b: b[i], n: 1, strideA: 1, strideB: 1}
		if i+1 < len(out) && out[i+1] == out[i]+1 {
			da, db := a[i+1]-a[i], b[i+1]-b[i]
			if da>>1 == 0 && db>>1 == 0 { // both are 0 or 1
				r.strideA, r.strideB = da, db
				j := i + 1
				for j < len(out) && out[j]-out[j-1] == 1 && a[j]-a[j-1] == da && b[j]-b[j-1] == db {
					j++
				}
				r.n = int32(j - i)
			}
		}
		runs = append(runs, r)
		i += int(r.n)
	}
	return runs
}

// copies copies rows.
type copies struct{ runs []stretch }

func (s *copies) run(arena kernel.Block, states int) {
	for i := range s.runs {
		r := &s.runs[i]
		if r.strideA == 1 {
			copy(arena[int(r.out)*kernel.States:int(r.out+r.n)*kernel.States], arena[int(r.a)*kernel.States:])
			continue
		}
		for k := range int(r.n) {
			copy(arena.Element(int(r.out)+k), arena.Element(int(r.a)))
		}
	}
}

// binaries computes a function of two operands.
type binaries struct {
	runs []stretch
	f    binary
}

// binary sets the elements of out to a function of those of a and b.
type binary func(out, a, b []float32)

func (s *binaries) run(arena kernel.Block, states int) {
	for i := range s.runs {
		r := &s.runs[i]
		if r.strideA == 1 && r.strideB == 1 {
			n := int(r.n) * kernel.States
			s.f(arena.From(int(r.out))[:n], arena.From(int(r.a))[:n], arena.From(int(r.b))[:n])
			continue
		}
		for k := range r.n {
			s.f(arena.Element(int(r.out+k)), arena.Element(int(r.a+k*r.strideA)), arena.Element(int(r.b+k*r.strideB)))
		}
	}
}

// unaries computes a function of one operand.
type unaries struct {
	runs []stretch
	f    unary
}

// unary sets the elements of out to a function of those of in.
type unary func(out, in []float32)

func (s *unaries) run(arena kernel.Block, states int) {
	for i := range s.runs {
		r := &s.runs[i]
		if r.strideA == 1 {
			n := int(r.n) * kernel.States
			s.f(arena.From(int(r.out))[:n], arena.From(int(r.a))[:n])
			continue
		}
		for k := range r.n {
			s.f(arena.Element(int(r.out+k)), arena.Element(int(r.a)))
		}
	}
}

// selects sets rows to those of a where the condition is not 0, else to those of b.
type selects struct {
	condition, a, b []int32
	out             int32
}

func (s *selects) run(arena kernel.Block, states int) {
	for i, r := range s.condition {
		out, a, b := arena.Element(int(s.out)+i), arena.Element(int(s.a[i])), arena.Element(int(s.b[i]))
		for t, is := range arena.Element(int(r)) {
			if out[t] = b[t]; is != 0 {
				out[t] = a[t]
			}
		}
	}
}

// apply emits a binary function of rows and returns the rows of the results.
func (c *compiler) apply(f binary, a, b []int32, each bool) (span, error) {
	s, err := c.allocate(len(a), each)
	if err == nil && len(a) > 0 {
		c.emit(&binaries{runsOf(s.list(), a, b), f}, each)
	}
	return s, err
}

// map1 emits a function of rows and returns the rows of the results. It computes an element
// that occurs several times once.
func (c *compiler) map1(f unary, in []int32, each bool) (rows []int32, s span, err error) {
	distinct := slices.Compact(slices.Sorted(slices.Values(in)))
	if len(distinct) == len(in) {
		distinct = in
	}
	s, err = c.allocate(len(distinct), each)
	if err != nil || len(in) == 0 {
		return nil, s, err
	}
	c.emit(&unaries{runsOf(s.list(), distinct, nil), f}, each)
	if len(distinct) == len(in) {
		return s.list(), s, nil
	}
	rows = make([]int32, len(in))
	for i, r := range in {
		at, _ := slices.BinarySearch(distinct, r)
		rows[i] = s.first + int32(at)
	}
	return rows, s, nil
}

// combine replaces v by f(v, factor*other), or by f(v, factor) if other is absent and
// factor is not 1.
func (c *compiler) combine(f binary, v graph.Value, number float32, other graph.Value, factor float32) error {
	rows, err := c.operand(other, c.shape(v), number)
	if err != nil {
		return err
	}
	if other == graph.Absent && number == 1 {
		return nil
	}
	each := c.each(v, other)
	if factor != 1 {
		scale, err := c.splat(factor)
		if err != nil {
			return err
		}
		s, err := c.apply(multiply, rows, slices.Repeat([]int32{scale}, len(rows)), each)
		if err != nil {
			return err
		}
		rows = s.list()
	}
	old := c.values[v]
	s, err := c.apply(f, old.rows, rows, each)
	if err != nil {
		return err
	}
	c.set(v, s.list(), each, s)
	return nil
}

// operand returns the rows of v, broadcast to shape. If v is absent, all are the row of
// number.
func (c *compiler) operand(v graph.Value, shape []int, number float32) ([]int32, error) {
	if v == graph.Absent {
		row, err := c.splat(number)
		return slices.Repeat([]int32{row}, elements(shape)), err
	}
	from, err := c.read(v)
	if err != nil {
		return nil, err
	}
	return pick(from.rows, broadcast(c.shape(v), shape)), nil
}

// binaryOperator compiles an operator that applies f to two or more operands, from left to
// right.
func binaryOperator(f binary) func(c *compiler, n *graph.Node) error {
	return func(c *compiler, n *graph.Node) error {
		out := n.Outputs[0]
		shape, each := c.shape(out), c.each(n.Inputs...)
		rows, err := c.operand(n.Inputs[0], shape, 0)
		if err != nil {
			return err
		}
		s, spare := span{}, span{}
		for i, v := range n.Inputs[1:] {
			other, err := c.operand(v, shape, 0)
			if err != nil {
				return err
			}
			spare = s
			if s, err = c.apply(f, rows, other, each); err != nil {
				return err
			}
			if rows = s.list(); i > 0 && each {
				c.insert(spare)
			}
		}
		if len(n.Inputs) == 1 {
			c.copyOf(out, n.Inputs[0])
			return nil
		}
		c.set(out, rows, each, s)
		return nil
	}
}

// unaryOperator compiles an operator that applies a function to each element. f returns
// the function of a node.
func unaryOperator(f func(n *graph.Node) unary) func(c *compiler, n *graph.Node) error {
	return func(c *compiler, n *graph.Node) error {
		return c.each1(n.Outputs[0], n.Inputs[0], f(n))
	}
}

// each1 makes v a function of the elements of from.
func (c *compiler) each1(v, from graph.Value, f unary) error {
	in, err := c.read(from)
	if err != nil {
		return err
	}
	rows, s, err := c.map1(f, in.rows, in.each)
	if err == nil {
		c.set(v, rows, in.each, s)
	}
	return err
}

// copyOf makes v the same elements as from.
func (c *compiler) copyOf(v, from graph.Value) error {
	in, err := c.read(from)
	if err != nil {
		return err
	}
	c.share(v, in.rows, in)
	return nil
}

// share makes rows the elements of v. They belong to the given values.
func (c *compiler) share(v graph.Value, rows []int32, from ...*value) {
	shared := &value{rows: rows}
	for _, f := range from {
		shared.each = shared.each || f.each
		for _, r := range f.regions {
			if !slices.Contains(shared.regions, r) {
				shared.regions = append(shared.regions, r)
				r.values++
			}
		}
	}
	c.values[v] = shared
}

// cast compiles Cast. A bool is 0 or 1, and a whole number is a float32.
func cast(c *compiler, n *graph.Node) error {
	from, to := c.g.Values[n.Inputs[0]].Type, c.g.Values[n.Outputs[0]].Type
	switch {
	case from == graph.Float && to == graph.Int:
		return c.each1(n.Outputs[0], n.Inputs[0], perElement(func(x float32) float32 { return float32(math.Trunc(float64(x))) }))
	case from != graph.Bool && to == graph.Bool:
		return c.each1(n.Outputs[0], n.Inputs[0], perElement(func(x float32) float32 { return truth(x != 0) }))
	}
	return c.copyOf(n.Outputs[0], n.Inputs[0])
}

// where compiles Where. A constant condition moves elements and computes nothing.
func where(c *compiler, n *graph.Node) error {
	out := n.Outputs[0]
	shape := c.shape(out)
	a, err := c.operand(n.Inputs[1], shape, 0)
	if err != nil {
		return err
	}
	b, err := c.operand(n.Inputs[2], shape, 0)
	if err != nil {
		return err
	}
	if t := c.constant(n.Inputs[0]); t != nil {
		rows := make([]int32, len(a))
		for i, at := range broadcast(t.Shape, shape) {
			if rows[i] = b[i]; t.Bools[at] {
				rows[i] = a[i]
			}
		}
		var from []*value
		for _, v := range n.Inputs[1:] {
			if c.dynamic(v) {
				from = append(from, c.values[v])
			}
		}
		c.share(out, rows, from...)
		return nil
	}
	condition, err := c.operand(n.Inputs[0], shape, 0)
	if err != nil {
		return err
	}
	each := c.each(n.Inputs...)
	s, err := c.define(out, len(a), each)
	if err == nil {
		c.emit(&selects{condition, a, b, s.first}, each)
	}
	return err
}

// clip compiles Clip, whose bounds are inputs.
func clip(c *compiler, n *graph.Node) error {
	if err := c.copyOf(n.Outputs[0], n.Inputs[0]); err != nil {
		return err
	}
	for i, f := range []binary{maximum, minimum} {
		if len(n.Inputs) <= i+1 || n.Inputs[i+1] == graph.Absent {
			continue
		}
		old := c.values[n.Outputs[0]]
		if err := c.combine(f, n.Outputs[0], 0, n.Inputs[i+1], 1); err != nil {
			return err
		}
		for _, r := range old.regions {
			if r.values--; r.values == 0 {
				c.insert(r.span)
			}
		}
	}
	return nil
}

// divide compiles Div.
func divide(c *compiler, n *graph.Node) error {
	if c.g.Values[n.Outputs[0]].Type != graph.Float {
		return fmt.Errorf("a division of whole numbers depends on the row")
	}
	return binaryOperator(quotient)(c, n)
}
