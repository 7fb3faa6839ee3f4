package execute

import (
	"fmt"
	"math"

	"shaver/internal/graph"
)

// operators has the compiler of each operator.
var operators map[string]func(c *compiler, n *graph.Node) error

func init() {
	operators = map[string]func(c *compiler, n *graph.Node) error{
		"Cast": cast, "Identity": same, "Dropout": same, "Where": where, "Clip": clip, "Pad": pad,

		"MatMul": matMul, "Gemm": gemm, "Conv": conv, "Einsum": einsum,

		"Add": binaryOperator(add), "Sub": binaryOperator(subtract), "Mul": binaryOperator(multiply), "Div": divide,
		"Sum": binaryOperator(add), "Max": binaryOperator(maximum), "Min": binaryOperator(minimum), "Mean": mean,
		"And": binaryOperator(multiply), "Or": binaryOperator(maximum), "Pow": pow,
		"Xor":            binaryOperator(perPair(func(a, b float32) float32 { return truth(a != b) })),
		"Equal":          binaryOperator(perPair(func(a, b float32) float32 { return truth(a == b) })),
		"Less":           binaryOperator(perPair(func(a, b float32) float32 { return truth(a < b) })),
		"LessOrEqual":    binaryOperator(perPair(func(a, b float32) float32 { return truth(a <= b) })),
		"Greater":        binaryOperator(perPair(func(a, b float32) float32 { return truth(a > b) })),
		"GreaterOrEqual": binaryOperator(perPair(func(a, b float32) float32 { return truth(a >= b) })),
		"PRelu": binaryOperator(perPair(func(x, slope float32) float32 {
			if x < 0 {
				return x * slope
			}
			return x
		})),

		"Softmax": softmax, "LogSoftmax": softmax, "LayerNormalization": layerNormalization, "BatchNormalization": batchNormalization,
	}
	for _, op := range []string{"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Concat", "Expand", "Tile", "Gather", "GatherElements", "GatherND"} {
		operators[op] = relabel
	}
	for op, f := range map[string]unary{
		"Neg":        perElement(func(x float32) float32 { return -x }),
		"Abs":        perElement(func(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }),
		"Not":        perElement(func(x float32) float32 { return 1 - x }),
		"Relu":       perElement(func(x float32) float32 { return max(x, 0) }),
		"Reciprocal": perElement(func(x float32) float32 { return 1 / x }),
		"Sqrt":       in64(math.Sqrt), "Exp": in64(math.Exp), "Log": in64(math.Log), "Erf": in64(math.Erf), "Tanh": in64(math.Tanh),
		"Sigmoid": in64(sigmoid), "Softplus": in64(softplus), "Softsign": in64(func(x float64) float64 { return x / (1 + math.Abs(x)) }),
		"Sign": perElement(func(x float32) float32 { return truth(x > 0) - truth(x < 0) }),
		"Floor": in64(math.Floor), "Ceil": in64(math.Ceil), "Round": in64(math.RoundToEven),
	} {
		operators[op] = unaryOperator(fixed(f))
	}
	for op, f := range map[string]func(n *graph.Node) unary{
		"LeakyRelu": func(n *graph.Node) unary {
			alpha := real(n, "alpha", 0.01)
			return perElement(func(x float32) float32 {
				if x < 0 {
					return alpha * x
				}
				return x
			})
		},
		"Elu": func(n *graph.Node) unary {
			alpha := float64(real(n, "alpha", 1))
			return in64(func(x float64) float64 {
				if x < 0 {
					return alpha * math.Expm1(x)
				}
				return x
			})
		},
		"Selu": func(n *graph.Node) unary {
			alpha, gamma := float64(real(n, "alpha", 1.67326319217681884765625)), float64(real(n, "gamma", 1.05070102214813232421875))
			return in64(func(x float64) float64 {
				if x <= 0 {
					return gamma * alpha * math.Expm1(x)
				}
				return gamma * x
			})
		},
		"HardSigmoid": func(n *graph.Node) unary {
			alpha, beta := real(n, "alpha", 0.2), real(n, "beta", 0.5)
			return perElement(func(x float32) float32 { return max(0, min(1, float32(alpha*x)+beta)) })
		},
		"Gelu": func(n *graph.Node) unary {
			if s, _ := n.Attributes["approximate"].(string); s == "tanh" {
				return in64(func(x float64) float64 {
					return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
				})
			}
			return in64(func(x float64) float64 { return 0.5 * x * (1 + math.Erf(x/math.Sqrt2)) })
		},
		"HardSwish": func(*graph.Node) unary {
			return perElement(func(x float32) float32 { return x * max(0, min(1, float32(x/6)+0.5)) })
		},
		"Mish": func(*graph.Node) unary { return in64(func(x float64) float64 { return x * math.Tanh(softplus(x)) }) },
	} {
		operators[op] = unaryOperator(f)
	}
	for op, r := range reductions {
		operators[op] = r.compile
	}
}

// same compiles an operator whose output is its first input.
func same(c *compiler, n *graph.Node) error {
	if len(n.Outputs) > 1 && c.uses[n.Outputs[1]] > 0 {
		return fmt.Errorf("the second output is in use")
	}
	return c.copyOf(n.Outputs[0], n.Inputs[0])
}

// relabel compiles an operator that moves elements. It applies the operator to the numbers
// of the rows that hold the elements.
func relabel(c *compiler, n *graph.Node) error {
	moved := func(i int) bool { return i == 0 || n.Op == "Concat" }
	var from []*value
	inputs := make([]*graph.Tensor, len(n.Inputs))
	for i, v := range n.Inputs {
		switch {
		case v == graph.Absent:
		case moved(i):
			in, err := c.read(v)
			if err != nil {
				return err
			}
			if c.dynamic(v) {
				from = append(from, in)
			}
			inputs[i] = rowsTensor(in.rows, c.shape(v))
		case c.constant(v) != nil:
			inputs[i] = c.constant(v)
		default:
			return fmt.Errorf("input %s depends on the row: expected a constant", c.g.Values[v].Name)
		}
	}
	return c.move(n, inputs, from)
}

// move makes the outputs of n what the operator returns for inputs, which are numbers of
// rows.
func (c *compiler) move(n *graph.Node, inputs []*graph.Tensor, from []*value) error {
	outputs, err := graph.Evaluate(n.Op, n.Attributes, inputs)
	if err != nil {
		return err
	}
	for i, v := range n.Outputs {
		if v == graph.Absent {
			continue
		}
		rows := make([]int32, len(outputs[i].Ints))
		for k, r := range outputs[i].Ints {
			rows[k] = int32(r)
		}
		c.share(v, rows, from...)
	}
	return nil
}

// rowsTensor returns the numbers of rows as a tensor.
func rowsTensor(rows []int32, shape []int) *graph.Tensor {
	t := &graph.Tensor{Type: graph.Int, Shape: shape, Ints: make([]int64, len(rows))}
	for i, r := range rows {
		t.Ints[i] = int64(r)
	}
	return t
}

// pad compiles Pad. The padding is one more row.
func pad(c *compiler, n *graph.Node) error {
	in, err := c.read(n.Inputs[0])
	if err != nil {
		return err
	}
	inputs := []*graph.Tensor{rowsTensor(in.rows, c.shape(n.Inputs[0]))}
	from := []*value{in}
	for i, v := range n.Inputs[1:] {
		switch {
		case v == graph.Absent:
			inputs = append(inputs, nil)
		case i == 1 && c.dynamic(v):
			return fmt.Errorf("the padding depends on the row")
		default:
			inputs = append(inputs, c.constant(v))
		}
		if i != 1 && v != graph.Absent && c.constant(v) == nil {
			return fmt.Errorf("input %s depends on the row: expected a constant", c.g.Values[v].Name)
		}
	}
	for len(inputs) < 3 {
		inputs = append(inputs, nil)
	}
	padding := float32(0)
	if inputs[2] != nil {
		padding = number(inputs[2], 0)
	}
	row, err := c.splat(padding)
	if err != nil {
		return err
	}
	inputs[2] = rowsTensor([]int32{row}, nil)
	return c.move(n, inputs, from)
}

// pow compiles Pow. Squares, square roots and reciprocals are exact products and roots.
func pow(c *compiler, n *graph.Node) error {
	if t := c.constant(n.Inputs[1]); t != nil && elements(t.Shape) == 1 && elements(c.shape(n.Inputs[0])) == elements(c.shape(n.Outputs[0])) {
		switch number(t, 0) {
		case 1:
			return c.copyOf(n.Outputs[0], n.Inputs[0])
		case 2:
			return c.each1(n.Outputs[0], n.Inputs[0], square)
		case 0.5:
			return c.each1(n.Outputs[0], n.Inputs[0], in64(math.Sqrt))
		case -1:
			return c.each1(n.Outputs[0], n.Inputs[0], perElement(func(x float32) float32 { return 1 / x }))
		}
	}
	return binaryOperator(perPair(func(a, b float32) float32 { return float32(math.Pow(float64(a), float64(b))) }))(c, n)
}

func square(out, in []float32) { multiply(out, in, in) }

// mean compiles Mean, the mean of several values.
func mean(c *compiler, n *graph.Node) error {
	if err := binaryOperator(add)(c, n); err != nil || len(n.Inputs) == 1 {
		return err
	}
	old := c.values[n.Outputs[0]]
	if err := c.combine(quotient, n.Outputs[0], float32(len(n.Inputs)), graph.Absent, 1); err != nil {
		return err
	}
	c.drop(old)
	return nil
}
