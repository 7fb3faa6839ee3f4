package graph

import (
	"fmt"
	"math"
	"slices"
)

// test returns an operator that tests floats.
func test(f func(c *call, x float64) bool) operator {
	return operator{inputs: "f", infer: inferTest, evaluate: func(c *call, out []*Tensor) error {
		for i := range out[0].Bools {
			out[0].Bools[i] = f(c, c.tensor(0).float(i))
		}
		return nil
	}}
}

func inferTest(c *call) ([]Info, error) { return one(Bool, c.shape(0)), nil }

func isInf(c *call, x float64) bool {
	return math.IsInf(x, 1) && c.int("detect_positive", 1) != 0 || math.IsInf(x, -1) && c.int("detect_negative", 1) != 0
}

// weighing are the operators whose constants are weights, which must be finite. Other
// operators may have infinite constants, which mask what a softmax or a maximum must not see.
var weighing = []string{"BatchNormalization", "Conv", "Einsum", "Gemm", "LayerNormalization", "MatMul", "PRelu"}

// CheckConstants returns the first node that reads a constant which is NaN, or which is
// infinite although it is a weight, and an error that names the node.
func (g *Graph) CheckConstants() (*Node, error) {
	for k := range g.Nodes {
		n := &g.Nodes[k]
		for _, v := range n.Inputs {
			if v == Absent || g.Values[v].Constant == nil {
				continue
			}
			t := g.Values[v].Constant
			i := slices.IndexFunc(t.Floats, func(x float32) bool { return x-x != 0 })
			if i >= 0 && !slices.Contains(weighing, n.Op) {
				i = slices.IndexFunc(t.Floats, func(x float32) bool { return x != x })
			}
			if i < 0 {
				continue
			}
			if x := t.Floats[i]; x == x {
				return n, fmt.Errorf("node %.100q (%s) has the weight %v at position %d: weights must be finite, check that the training did not diverge", n.Name, n.Op, x, i)
			}
			return n, fmt.Errorf("node %.100q (%s) reads a constant that is NaN at position %d: check that the training did not diverge, and mask with torch.where or masked_fill, because 0 times -inf is NaN", n.Name, n.Op, i)
		}
	}
	return nil, nil
}
