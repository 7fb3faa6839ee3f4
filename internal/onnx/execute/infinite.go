package execute

import (
	"math"

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
