package graph

import (
	"math"
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
