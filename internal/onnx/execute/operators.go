package execute

import (
	"math"

	"shaver/internal/num/kernel"
	"shaver/internal/onnx/graph"
)

// compileFunc compiles a node of one operator. Errors about the size of the arena are in
// compiler.err.
type compileFunc func(c *compiler, n *graph.Node) error

// operators has the operators that compute something. graph.Graph.Relabel handles those that
// only move elements.
var operators map[string]compileFunc

func init() {
	operators = map[string]compileFunc{
		"MatMul": matMul, "Gemm": gemm, "Conv": conv, "Einsum": einsum,

		"Add": arithmetic(kernel.Add, func(x float32, _ bool) (scale, offset float32) { return 1, x }),
		"Sub": arithmetic(kernel.Subtract, func(x float32, swapped bool) (scale, offset float32) {
			if swapped {
				return -1, x
			}
			return 1, -x
		}),
		"Mul": arithmetic(kernel.Multiply, func(x float32, _ bool) (scale, offset float32) { return x, 0 }),
		"Div": divide, "Pow": power, "Sum": operation(kernel.Add), "Max": operation(kernel.Maximum), "Min": operation(kernel.Minimum), "Mean": mean,
		"Where": where, "Clip": clip, "Cast": cast,

		"And": operation(kernel.Multiply), "Or": operation(kernel.Maximum), "Equal": operation(kernel.Equal),
		"Xor":  binary(func(c *compiler, x, y []int32) []int32 { return c.not(c.combine(kernel.Equal, x, y)) }),
		"Less": operation(kernel.Less), "LessOrEqual": operation(kernel.LessOrEqual),
		"Greater":        binary(func(c *compiler, x, y []int32) []int32 { return c.combine(kernel.Less, y, x) }),
		"GreaterOrEqual": binary(func(c *compiler, x, y []int32) []int32 { return c.combine(kernel.LessOrEqual, y, x) }),
		"PRelu":          operation(kernel.Leaky),
		"Mod":            modulo,
		"Not":            unary(func(c *compiler, _ *graph.Node, x []int32) []int32 { return c.not(x) }),

		"IsNaN": unary(func(c *compiler, _ *graph.Node, x []int32) []int32 { return c.not(c.combine(kernel.Equal, x, x)) }),
		"IsInf": unary(isInf),

		"Neg": function(kernel.Negate), "Abs": function(kernel.Absolute), "Relu": function(kernel.ReLU), "Sqrt": function(kernel.SquareRoot),
		"Reciprocal": function(kernel.Reciprocal), "Exp": function(kernel.Exp), "Log": function(kernel.Log), "Sigmoid": function(kernel.Sigmoid),
		"Tanh": function(kernel.HyperbolicTangent), "Erf": function(kernel.Erf), "Softplus": function(kernel.Softplus),
		"Sin":  smooth(math.Sin, math.Cos),
		"Cos":  smooth(math.Cos, func(x float64) float64 { return -math.Sin(x) }),
		"Atan": smooth(math.Atan, func(x float64) float64 { return 1 / (1 + x*x) }),

		"Floor": rounding(math.Floor), "Ceil": rounding(math.Ceil), "Round": rounding(math.RoundToEven),
		"Sign": unary(func(c *compiler, _ *graph.Node, x []int32) []int32 {
			zero := c.same(0, len(x))
			return c.combine(kernel.Subtract, c.combine(kernel.Less, zero, x), c.combine(kernel.Less, x, zero))
		}),
		"LeakyRelu": unary(func(c *compiler, n *graph.Node, x []int32) []int32 {
			return c.combine(kernel.Leaky, x, c.same(real(n, "alpha", 0.01), len(x)))
		}),
		"Elu": unary(func(c *compiler, n *graph.Node, x []int32) []int32 { return c.elu(x, 1, real(n, "alpha", 1), 1) }),
		"Celu": unary(func(c *compiler, n *graph.Node, x []int32) []int32 {
			alpha := real(n, "alpha", 1)
			return c.elu(x, 1/alpha, alpha, 1)
		}),
		"Selu": unary(func(c *compiler, n *graph.Node, x []int32) []int32 {
			return c.elu(x, 1, real(n, "alpha", 1.67326319217681884765625), real(n, "gamma", 1.05070102214813232421875))
		}),
		"HardSigmoid": unary(func(c *compiler, n *graph.Node, x []int32) []int32 {
			return c.limit(c.affine(x, []float32{real(n, "alpha", 0.2)}, []float32{real(n, "beta", 0.5)}))
		}),
		"HardSwish": unary(func(c *compiler, _ *graph.Node, x []int32) []int32 {
			return c.combine(kernel.Multiply, x, c.limit(c.affine(x, []float32{1. / 6}, []float32{0.5})))
		}),
		"Mish": unary(func(c *compiler, _ *graph.Node, x []int32) []int32 {
			return c.combine(kernel.Multiply, x, c.apply(kernel.HyperbolicTangent, c.apply(kernel.Softplus, x)))
		}),
		"Gelu": unary(gelu),

		"ReduceSum":  reduction(func(c *compiler, x []int32, n int) []int32 { return c.reduce(kernel.Sum, x, n) }),
		"ReduceMax":  reduction(func(c *compiler, x []int32, n int) []int32 { return c.reduce(kernel.Largest, x, n) }),
		"ReduceMin":  reduction(func(c *compiler, x []int32, n int) []int32 { return c.reduce(kernel.Smallest, x, n) }),
		"ReduceMean": reduction((*compiler).meanOf),
		"ReduceL1": reduction(func(c *compiler, x []int32, n int) []int32 {
			return c.reduce(kernel.Sum, c.apply(kernel.Absolute, x), n)
		}),
		"ReduceL2": reduction(func(c *compiler, x []int32, n int) []int32 {
			return c.norm(c.reduce(kernel.Sum, c.combine(kernel.Multiply, x, x), n))
		}),
		"ReduceSumSquare": reduction(func(c *compiler, x []int32, n int) []int32 {
			return c.reduce(kernel.Sum, c.combine(kernel.Multiply, x, x), n)
		}),
		"ReduceLogSum": reduction(func(c *compiler, x []int32, n int) []int32 {
			return c.apply(kernel.Log, c.reduce(kernel.Sum, x, n))
		}),
		"ReduceLogSumExp": reduction(func(c *compiler, x []int32, n int) []int32 {
			_, sum, largest := c.exponents(x, n, true)
			return c.combine(kernel.Add, c.apply(kernel.Log, sum), largest)
		}),
		"ReduceProd": reduction(func(c *compiler, x []int32, n int) []int32 {
			at := func(k int) []int32 {
				rows := make([]int32, len(x)/n)
				for i := range rows {
					rows[i] = x[i*n+k]
				}
				return rows
			}
			rows := at(0)
			for k := 1; k < n; k++ {
				rows = c.combine(kernel.Multiply, rows, at(k))
			}
			return rows
		}),

		"TopK": topK, "ArgMax": arg, "ArgMin": arg, "Gather": gather, "GatherElements": gatherElements, "GatherND": gatherND, "ScatterElements": scatterElements,

		"CumSum": cumSum, "Softmax": softmax, "LogSoftmax": softmax, "LayerNormalization": layerNormalization, "BatchNormalization": batchNormalization,
	}
}

// elu returns rows of gamma*x for x >= 0 and gamma*alpha*(e^(scale*x)-1) for other x. The
// derivative at 0 is that of the exponential.
func (c *compiler) elu(x []int32, scale, alpha, gamma float32) []int32 {
	zero := c.same(0, len(x))
	e := c.apply(kernel.Exp, c.scale(c.extreme(kernel.Minimum, x, zero, first), scale))
	e = c.affine(e, []float32{alpha * gamma}, []float32{-alpha * gamma})
	return c.combine(kernel.Add, e, c.scale(c.extreme(kernel.Maximum, x, zero, second), gamma))
}

// limit returns rows of min(max(x, 0), 1). The derivatives at 0 and 1 are 0.
func (c *compiler) limit(x []int32) []int32 {
	return c.extreme(kernel.Minimum, c.extreme(kernel.Maximum, x, c.same(0, len(x)), second), c.same(1, len(x)), second)
}

// gelu compiles x * (1 + erf(x/sqrt(2))) / 2, or its approximation by tanh.
func gelu(c *compiler, n *graph.Node, x []int32) []int32 {
	var y []int32
	if s, _ := n.Attributes["approximate"].(string); s == "tanh" {
		y = c.affine(c.combine(kernel.Multiply, x, x), []float32{0.044715}, []float32{1})
		y = c.scale(c.combine(kernel.Multiply, y, x), float32(math.Sqrt(2/math.Pi)))
		y = c.apply(kernel.HyperbolicTangent, y)
	} else {
		y = c.apply(kernel.Erf, c.scale(x, math.Sqrt2/2))
	}
	return c.combine(kernel.Multiply, c.affine(y, []float32{0.5}, []float32{0.5}), x)
}

// mean compiles Mean, the mean of several values.
func mean(c *compiler, n *graph.Node) error {
	if err := operation(kernel.Add)(c, n); err != nil || len(n.Inputs) == 1 {
		return err
	}
	c.set(n.Outputs[0], c.scale(c.values[n.Outputs[0]], 1/float32(len(n.Inputs))))
	return nil
}
