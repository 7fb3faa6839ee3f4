package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// elementwise has the operators whose result has one element for each element of the
// inputs, which broadcast.
var elementwise = map[string]operator{
	"Add": arithmetic(func(a, b float64) float64 { return a + b }, func(a, b int64) int64 { return a + b }),
	"Sub": arithmetic(func(a, b float64) float64 { return a - b }, func(a, b int64) int64 { return a - b }),
	"Mul": arithmetic(func(a, b float64) float64 { return a * b }, func(a, b int64) int64 { return a * b }),
	"Div": {inputs: "N N", infer: inferBroadcast, evaluate: evaluateDiv},
	"Mod": {inputs: "N N", attributes: "fmod:i", infer: inferMod, evaluate: evaluateMod},
	"Pow": {inputs: "n n", infer: inferBroadcast, evaluate: evaluatePow},

	"Min":  {inputs: "N*", infer: inferBroadcast, evaluate: combineAll(math.Min, func(a, b int64) int64 { return min(a, b) })},
	"Max":  {inputs: "N*", infer: inferBroadcast, evaluate: combineAll(math.Max, func(a, b int64) int64 { return max(a, b) })},
	"Sum":  {inputs: "f*", infer: inferBroadcast, evaluate: func(c *call, out []*Tensor) error { return evaluateSum(c, out, 1) }},
	"Mean": {inputs: "f*", infer: inferBroadcast, evaluate: func(c *call, out []*Tensor) error { return evaluateSum(c, out, len(c.in)) }},
	"Clip": {inputs: "N N? N?", infer: inferClip, evaluate: evaluateClip},

	"Equal":          {inputs: "A A", infer: inferComparison, evaluate: evaluateEqual},
	"Less":           comparison(func(a, b float64) bool { return a < b }, func(a, b int64) bool { return a < b }),
	"LessOrEqual":    comparison(func(a, b float64) bool { return a <= b }, func(a, b int64) bool { return a <= b }),
	"Greater":        comparison(func(a, b float64) bool { return a > b }, func(a, b int64) bool { return a > b }),
	"GreaterOrEqual": comparison(func(a, b float64) bool { return a >= b }, func(a, b int64) bool { return a >= b }),
	"And":            logic(func(a, b bool) bool { return a && b }),
	"Or":             logic(func(a, b bool) bool { return a || b }),
	"Xor":            logic(func(a, b bool) bool { return a != b }),
	"Not":            {inputs: "b", infer: inferSame, evaluate: evaluateNot},

	"Neg":  number(func(x float64) float64 { return -x }, func(x int64) int64 { return -x }),
	"Abs":  number(math.Abs, func(x int64) int64 { return max(x, -x) }),
	"Sign": number(sign, func(x int64) int64 { return min(max(x, -1), 1) }),
	"Relu": number(relu, func(x int64) int64 { return max(x, 0) }),

	"Sqrt":       function(math.Sqrt),
	"Reciprocal": function(func(x float64) float64 { return 1 / x }),
	"Exp":        function(math.Exp),
	"Log":        function(math.Log),
	"Erf":        function(math.Erf),
	"Sin":        function(math.Sin),
	"Cos":        function(math.Cos),
	"Atan":       function(math.Atan),
	"Tanh":       function(math.Tanh),
	"Sigmoid":    function(sigmoid),
	"Softplus":   function(softplus),
	"Mish":       function(func(x float64) float64 { return x * math.Tanh(softplus(x)) }),
	"HardSwish":  function(func(x float64) float64 { return x * min(max(x/6+.5, 0), 1) }),
	"Floor":      function(math.Floor),
	"Ceil":       function(math.Ceil),
	"Round":      function(math.RoundToEven),

	"IsNaN": test(func(c *call, x float64) bool { return math.IsNaN(x) }),
	"IsInf": {inputs: "f", attributes: "detect_negative:i detect_positive:i", infer: inferTest, evaluate: test(isInf).evaluate},

	"PRelu": {inputs: "f f", infer: inferPRelu, evaluate: evaluatePRelu},
	"LeakyRelu": parametric("alpha:f", func(c *call) func(x float64) float64 {
		alpha := c.float("alpha", .01)
		return func(x float64) float64 { return leaky(x, alpha) }
	}),
	"Elu": parametric("alpha:f", func(c *call) func(x float64) float64 {
		alpha := c.float("alpha", 1)
		return func(x float64) float64 { return elu(x, alpha) }
	}),
	"Selu": parametric("alpha:f gamma:f", func(c *call) func(x float64) float64 {
		alpha, gamma := c.float("alpha", 1.67326319217681884765625), c.float("gamma", 1.05070102214813232421875)
		return func(x float64) float64 { return gamma * elu(x, alpha) }
	}),
	"Celu": parametric("alpha:f", func(c *call) func(x float64) float64 {
		alpha := c.float("alpha", 1)
		return func(x float64) float64 { return max(x, 0) + min(0, alpha*math.Expm1(x/alpha)) }
	}),
	"HardSigmoid": parametric("alpha:f beta:f", func(c *call) func(x float64) float64 {
		alpha, beta := c.float("alpha", .2), c.float("beta", .5)
		return func(x float64) float64 { return min(max(alpha*x+beta, 0), 1) }
	}),
	"Gelu": {inputs: "f", attributes: "approximate:s", infer: inferGelu, evaluate: func(c *call, out []*Tensor) error {
		if c.string("approximate", "none") == "tanh" {
			return c.apply(out, geluTanh, nil)
		}
		return c.apply(out, gelu, nil)
	}},
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	default:
		return x
	}
}

func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func relu(x float64) float64 {
	if x < 0 {
		return 0
	}
	return x
}

func leaky(x, alpha float64) float64 {
	if x < 0 {
		return alpha * x
	}
	return x
}

func elu(x, alpha float64) float64 {
	if x < 0 {
		return alpha * math.Expm1(x)
	}
	return x
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func gelu(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) }

func geluTanh(x float64) float64 {
	return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+.044715*x*x*x)))
}

// function returns an operator that applies a function to floats.
func function(f func(x float64) float64) operator { return number(f, nil) }

// number returns an operator that applies a function to numbers. If ints is nil, the
// operator takes floats only.
func number(floats func(x float64) float64, ints func(x int64) int64) operator {
	o := operator{inputs: "N", infer: inferSame, evaluate: func(c *call, out []*Tensor) error {
		return c.apply(out, floats, ints)
	}}
	if ints == nil {
		o.inputs = "f"
	}
	return o
}

// parametric returns an operator that applies a function of floats. The function's
// parameters are attributes.
func parametric(attributes string, f func(c *call) func(x float64) float64) operator {
	return operator{inputs: "f", attributes: attributes, infer: inferSame, evaluate: func(c *call, out []*Tensor) error {
		return c.apply(out, f(c), nil)
	}}
}

// apply applies a function to the first input.
func (c *call) apply(out []*Tensor, floats func(x float64) float64, ints func(x int64) int64) error {
	for i := range c.tensor(0).Floats {
		out[0].setFloat(i, floats(c.tensor(0).float(i)))
	}
	for i, x := range c.tensor(0).Ints {
		out[0].Ints[i] = ints(x)
	}
	return nil
}

// arithmetic returns an operator on two numbers.
func arithmetic(floats func(a, b float64) float64, ints func(a, b int64) int64) operator {
	return operator{inputs: "N N", infer: inferBroadcast, evaluate: func(c *call, out []*Tensor) error {
		c.combine(out, floats, ints)
		return nil
	}}
}

// pairs calls visit for each element of the broadcast of the first two inputs.
func (c *call) pairs(shape []int, visit func(i, a, b int)) {
	n := 0
	each(shape, func(at []int) {
		visit(n, at[0], at[1])
		n++
	}, broadcastStrides(c.shape(0), shape), broadcastStrides(c.shape(1), shape))
}

// combine applies a function to the first two inputs.
func (c *call) combine(out []*Tensor, floats func(a, b float64) float64, ints func(a, b int64) int64) {
	x, y, z := c.tensor(0), c.tensor(1), out[0]
	if z.Type == Float {
		c.pairs(z.Shape, func(i, a, b int) { z.setFloat(i, floats(x.float(a), y.float(b))) })
	} else {
		c.pairs(z.Shape, func(i, a, b int) { z.Ints[i] = ints(x.Ints[a], y.Ints[b]) })
	}
}

// inferBroadcast infers the type of the first input, and the shape to which all inputs
// broadcast.
func inferBroadcast(c *call) ([]Info, error) {
	shapes := make([][]int, len(c.in))
	for i := range c.in {
		shapes[i] = c.shape(i)
	}
	out, err := broadcast(shapes...)
	return one(c.in[0].Type, out), err
}

// checkDivisor fails if the second input has a whole number that is 0.
func (c *call) checkDivisor() error {
	if slices.Contains(c.tensor(1).Ints, 0) {
		return errors.New("division of a whole number by 0")
	}
	return nil
}

func evaluateDiv(c *call, out []*Tensor) error {
	if err := c.checkDivisor(); err != nil {
		return err
	}
	c.combine(out, func(a, b float64) float64 { return a / b }, func(a, b int64) int64 { return a / b })
	return nil
}

func inferMod(c *call) ([]Info, error) {
	if c.in[0].Type == Float && c.int("fmod", 0) == 0 {
		return nil, errors.New("floats with fmod=0, expected fmod=1")
	}
	return inferBroadcast(c)
}

// evaluateMod computes the remainder with the sign of the divisor, or with fmod the one
// with the sign of the dividend.
func evaluateMod(c *call, out []*Tensor) error {
	if err := c.checkDivisor(); err != nil {
		return err
	}
	c.combine(out, math.Mod, func(a, b int64) int64 {
		m := a % b
		if c.int("fmod", 0) == 0 && m != 0 && m < 0 != (b < 0) {
			m += b
		}
		return m
	})
	return nil
}

// evaluatePow computes in float64, or in whole numbers if both inputs are whole and the
// exponent is not negative.
func evaluatePow(c *call, out []*Tensor) error {
	x, y, z := c.tensor(0), c.tensor(1), out[0]
	c.pairs(z.Shape, func(i, a, b int) {
		if x.Type == Int && y.Type == Int && y.Ints[b] >= 0 {
			z.Ints[i] = power(x.Ints[a], y.Ints[b])
			return
		}
		result := math.Pow(x.Number(a), y.Number(b))
		if z.Type == Float {
			z.setFloat(i, result)
		} else {
			z.Ints[i] = truncate(result)
		}
	})
	return nil
}

// power returns a to the power of n, which wraps.
func power(a, n int64) int64 {
	out := int64(1)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			out *= a
		}
		a *= a
	}
	return out
}

// Number returns element i of t, of which true is 1 and false is 0.
func (t *Tensor) Number(i int) float64 {
	switch {
	case t.Type == Float:
		return t.float(i)
	case t.Type == Int:
		return float64(t.Ints[i])
	case t.Bools[i]:
		return 1
	}
	return 0
}

// combineAll returns the evaluation of an operator that combines any number of inputs, from
// the first to the last.
func combineAll(floats func(a, b float64) float64, ints func(a, b int64) int64) func(c *call, out []*Tensor) error {
	return func(c *call, out []*Tensor) error {
		for i := range c.in {
			t, n := c.tensor(i), 0
			each(out[0].Shape, func(at []int) {
				switch {
				case i == 0:
					out[0].set(n, t, at[0])
				case t.Type == Float:
					out[0].setFloat(n, floats(out[0].float(n), t.float(at[0])))
				default:
					out[0].Ints[n] = ints(out[0].Ints[n], t.Ints[at[0]])
				}
				n++
			}, broadcastStrides(t.Shape, out[0].Shape))
		}
		return nil
	}
}

// evaluateSum computes the sum of all inputs, divided by divisor.
func evaluateSum(c *call, out []*Tensor, divisor int) error {
	steps := make([][]int, len(c.in))
	for i := range c.in {
		steps[i] = broadcastStrides(c.shape(i), out[0].Shape)
	}
	n := 0
	each(out[0].Shape, func(at []int) {
		sum := 0.0
		for i, offset := range at {
			sum += c.tensor(i).float(offset)
		}
		out[0].setFloat(n, sum/float64(divisor))
		n++
	}, steps...)
	return nil
}

func inferClip(c *call) ([]Info, error) {
	for i := 1; i <= 2; i++ {
		if c.has(i) && count(c.shape(i)) != 1 {
			return nil, fmt.Errorf("input %d has the shape %v, expected one number", i+1, c.shape(i))
		}
	}
	return inferSame(c)
}

// evaluateClip applies the upper limit last, as ONNX says. NaN stays NaN.
func evaluateClip(c *call, out []*Tensor) error {
	from, to := c.tensor(0), out[0]
	for k := range to.Floats {
		to.setFloat(k, from.float(k))
	}
	copy(to.Ints, from.Ints)
	for i := 1; i <= 2; i++ {
		if !c.has(i) {
			continue
		}
		limit := c.tensor(i)
		for k := range to.Floats {
			if x, l := to.float(k), limit.float(0); i == 1 && x < l || i == 2 && x > l {
				to.setFloat(k, l)
			}
		}
		for k, x := range to.Ints {
			if l := limit.Ints[0]; i == 1 && x < l || i == 2 && x > l {
				to.Ints[k] = l
			}
		}
	}
	return nil
}

func inferComparison(c *call) ([]Info, error) {
	out, err := broadcast(c.shape(0), c.shape(1))
	return one(Bool, out), err
}

func evaluateEqual(c *call, out []*Tensor) error {
	x, y, z := c.tensor(0), c.tensor(1), out[0]
	c.pairs(z.Shape, func(i, a, b int) {
		switch x.Type {
		case Float:
			z.Bools[i] = x.float(a) == y.float(b)
		case Int:
			z.Bools[i] = x.Ints[a] == y.Ints[b]
		case Bool:
			z.Bools[i] = x.Bools[a] == y.Bools[b]
		}
	})
	return nil
}

// comparison returns an operator that compares two numbers.
func comparison(floats func(a, b float64) bool, ints func(a, b int64) bool) operator {
	return operator{inputs: "N N", infer: inferComparison, evaluate: func(c *call, out []*Tensor) error {
		x, y, z := c.tensor(0), c.tensor(1), out[0]
		c.pairs(z.Shape, func(i, a, b int) {
			if x.Type == Float {
				z.Bools[i] = floats(x.float(a), y.float(b))
			} else {
				z.Bools[i] = ints(x.Ints[a], y.Ints[b])
			}
		})
		return nil
	}}
}

// logic returns an operator on two truth values.
func logic(f func(a, b bool) bool) operator {
	return operator{inputs: "b b", infer: inferComparison, evaluate: func(c *call, out []*Tensor) error {
		x, y, z := c.tensor(0), c.tensor(1), out[0]
		c.pairs(z.Shape, func(i, a, b int) { z.Bools[i] = f(x.Bools[a], y.Bools[b]) })
		return nil
	}}
}

func evaluateNot(c *call, out []*Tensor) error {
	for i, x := range c.tensor(0).Bools {
		out[0].Bools[i] = !x
	}
	return nil
}

// inferPRelu requires that the slope broadcasts to the shape of the first input.
func inferPRelu(c *call) ([]Info, error) {
	out, err := broadcast(c.shape(0), c.shape(1))
	if err == nil && !slices.Equal(out, c.shape(0)) {
		err = fmt.Errorf("slope of the shape %v for the shape %v", c.shape(1), c.shape(0))
	}
	return one(Float, out), err
}

func evaluatePRelu(c *call, out []*Tensor) error {
	c.combine(out, leaky, nil)
	return nil
}

func inferGelu(c *call) ([]Info, error) {
	if a := c.string("approximate", "none"); a != "none" && a != "tanh" {
		return nil, fmt.Errorf("approximate is %.100q, expected none or tanh", a)
	}
	return inferSame(c)
}
