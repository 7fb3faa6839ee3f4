package execute

import (
	"math"
	"slices"

	"shaver/internal/num/kernel"
	"shaver/internal/onnx/graph"
)

// isInf compiles IsInf.
func isInf(c *compiler, n *graph.Node, x []int32) []int32 {
	infinity := float32(math.Inf(1))
	switch positive, negative := integer(n, "detect_positive", 1) != 0, integer(n, "detect_negative", 1) != 0; {
	case positive && negative:
		x = c.apply(kernel.Absolute, x)
	case negative:
		infinity = -infinity
	case !positive:
		return c.same(0, len(x))
	}
	return c.combine(kernel.Equal, x, c.same(infinity, len(x)))
}

// finite reports whether x is neither NaN nor infinite.
func finite(x float32) bool { return x-x == 0 }

func allFinite(list []float32) bool {
	return !slices.ContainsFunc(list, func(x float32) bool { return !finite(x) })
}

// special says where infinite constants of a graph lead to. A mask of -Inf makes the scores
// of what it hides infinite, and the softmax of a row that it hides entirely is NaN.
type special struct {
	value []bool // by row: whether it may be infinite or NaN
	test  []bool // by row: whether it is a test for such a value
}

// findSpecial returns where infinite constants lead to. Both lists are nil if the graph has only finite constants.
func (c *compiler) findSpecial() special {
	var s special
	mark := func(row int32) {
		if s.value == nil {
			s = special{make([]bool, len(c.region)), make([]bool, len(c.region))}
		}
		s.value[row] = true
	}
	for bits, row := range c.constants {
		if !finite(math.Float32frombits(bits)) {
			mark(row)
		}
	}
	for _, list := range [...][]instruction{c.once, c.each} {
		for _, in := range list {
			if o, ok := in.(*affineOp); ok {
				for i, row := range o.out {
					if !finite(o.scale[i]) || !finite(o.offset[i]) {
						mark(row)
					}
				}
			}
			if s.value != nil {
				s.follow(in)
			}
		}
	}
	return s
}

// follow sets what the results of an instruction are.
func (s *special) follow(in instruction) {
	results, operands := in.results(), in.operands()
	value, test := false, false
	each := in.overlays() // whether each result reads the operands at its position
	if _, ok := in.(*softmaxOp); ok || !each {
		each = false
		for _, rows := range operands {
			for _, x := range rows {
				value, test = value || s.value[x], test || s.test[x]
			}
		}
	}
	for i, row := range results {
		if row == none {
			continue
		}
		if each {
			value, test = false, false
			for _, rows := range operands {
				value, test = value || s.value[rows[i]], test || s.test[rows[i]]
			}
		}
		switch o := in.(type) {
		case *combineOp:
			if o.op == kernel.Equal || o.op == kernel.Less || o.op == kernel.LessOrEqual {
				value, test = false, test || value
			}
		case *chooseOp:
			value, test = (s.value[o.y[i]] || s.value[o.z[i]]) && !s.test[o.x[i]], s.test[o.y[i]] || s.test[o.z[i]]
		}
		s.value[row], s.test[row] = s.value[row] || value, test
	}
}

// has reports whether one of the rows may be infinite or NaN.
func (s *special) has(rows []int32) bool {
	for _, row := range rows {
		if int(row) < len(s.value) && row != none && s.value[row] {
			return true
		}
	}
	return false
}
