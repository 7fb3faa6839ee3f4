package execute_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/num/kernel"
	"shaver/internal/onnx/execute"
	"shaver/internal/onnx/graph"
)

// builder adds nodes to a graph and fails the test on an error.
type builder struct {
	*graph.Graph
	t    *testing.T
	r    *rand.Rand
	wild bool // random graphs also have operators that are not continuous
}

func newBuilder(t *testing.T, seed uint64) *builder {
	return &builder{Graph: new(graph.Graph), t: t, r: rand.New(rand.NewPCG(seed, 1))}
}

func (b *builder) node(op string, attributes graph.Attributes, inputs ...graph.Value) graph.Value {
	b.t.Helper()
	out, err := b.Add(graph.Node{Name: fmt.Sprintf("%s_%d", op, len(b.Nodes)), Op: op, Inputs: inputs, Attributes: attributes})
	if err != nil {
		b.t.Fatal(err)
	}
	return out[0]
}

func (b *builder) ints(values ...int64) graph.Value {
	return b.AddConstant(&graph.Tensor{Type: graph.Int, Shape: []int{len(values)}, Ints: values})
}

func (b *builder) constant(shape ...int) graph.Value { return b.AddConstant(b.tensor(shape)) }

// tensor returns a tensor of random numbers.
func (b *builder) tensor(shape []int) *graph.Tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	t := &graph.Tensor{Type: graph.Float, Shape: shape, Floats: make([]float32, n)}
	for i := range t.Floats {
		t.Floats[i] = float32(b.r.NormFloat64())
	}
	return t
}

// sum makes a weighted sum of v the output.
func (b *builder) sum(v graph.Value) {
	if b.Values[v].Type != graph.Float {
		v = b.node("Cast", graph.Attributes{"to": int64(1)}, v)
	}
	v = b.node("Reshape", nil, v, b.ints(-1))
	v = b.node("Mul", nil, v, b.constant(b.Values[v].Shape...))
	b.Output = b.node("ReduceSum", graph.Attributes{"keepdims": int64(0)}, v)
}

// check compares a program for the graph with graph.Graph.Run in some states. The states run
// together, and each must give the same bits alone.
func (b *builder) check(players []graph.Value, states int, tolerance float64) {
	b.t.Helper()
	p, err := execute.Compile(b.Graph, players)
	if err != nil {
		b.t.Fatal(err)
	}
	r := p.NewRunner()
	others := map[graph.Value]*graph.Tensor{}
	for _, v := range b.Inputs {
		if !slices.Contains(players, v) {
			others[v] = b.tensor(b.Values[v].Shape)
		}
	}
	if _, err := execute.CompileGradient(b.Graph, players); err != nil {
		b.t.Fatal(err)
	}
	inputs := make([][]*graph.Tensor, states)
	for t := range inputs {
		for _, v := range b.Inputs {
			in := others[v]
			if in == nil {
				in = b.tensor(b.Values[v].Shape)
			}
			inputs[t] = append(inputs[t], in)
		}
	}
	set := func(t int, in []*graph.Tensor) {
		k, o := 0, 0
		for _, v := range players {
			for _, x := range in[slices.Index(b.Inputs, v)].Floats {
				r.Players().Element(k)[t] = x
				k++
			}
		}
		for i, v := range b.Inputs {
			if !slices.Contains(players, v) {
				for _, x := range in[i].Floats {
					r.Others().Element(o)[t] = x
					o++
				}
			}
		}
		if k != p.Players() || o != p.Others() {
			b.t.Fatalf("%d players and %d others, expected %d and %d", p.Players(), p.Others(), k, o)
		}
	}
	for t := range inputs {
		set(t, inputs[t])
	}
	got := make([]float64, states)
	r.Prepare(states)
	r.Run(got)
	for t, in := range inputs {
		want, err := b.Graph.Run(in)
		if err != nil {
			b.t.Fatal(err)
		}
		x := float64(want.Floats[0])
		if !(math.Abs(got[t]-x) <= tolerance*(1+math.Abs(x))) && !(math.IsNaN(x) && math.IsNaN(got[t])) {
			b.t.Fatalf("state %d: %v, expected %v", t, got[t], x)
		}
		one := make([]float64, 1)
		set(0, in)
		r.Prepare(1)
		if r.Run(one); math.Float64bits(one[0]) != math.Float64bits(got[t]) {
			b.t.Fatalf("state %d: %v alone, %v with others", t, one[0], got[t])
		}
	}
}

// operand is an input of an operator in a test.
type operand struct {
	shape []int
	ints  []int64 // elements of a constant of whole numbers; nil = the operand is random
	bool  bool    // whether the elements are bools; otherwise they are numbers
	plus  bool    // whether the elements are above 0
	fixed bool    // whether the operand is always constant
}

func number(shape ...int) operand   { return operand{shape: shape} }
func positive(shape ...int) operand { return operand{shape: shape, plus: true} }
func boolean(shape ...int) operand  { return operand{shape: shape, bool: true} }
func fixed(shape ...int) operand    { return operand{shape: shape, fixed: true} }
func above(shape ...int) operand    { return operand{shape: shape, fixed: true, plus: true} }
func ints(values ...int64) operand  { return operand{ints: values} }

type operatorTest struct {
	op         string
	attributes graph.Attributes
	operands   []operand
}

func attribute(list ...any) graph.Attributes {
	all := graph.Attributes{}
	for i := 0; i < len(list); i += 2 {
		all[list[i].(string)] = list[i+1]
	}
	return all
}

var operatorTests = func() []operatorTest {
	var all []operatorTest
	add := func(op string, attributes graph.Attributes, operands ...operand) {
		all = append(all, operatorTest{op, attributes, operands})
	}
	add("MatMul", nil, number(5, 7), number(7, 3))
	add("MatMul", nil, number(2, 5, 7), number(7, 3))
	add("MatMul", nil, number(2, 1, 5, 7), number(3, 7, 4))
	add("MatMul", nil, number(7), number(2, 7, 3))
	add("MatMul", nil, number(2, 3, 7), number(7))
	add("Gemm", nil, number(1, 20), number(20, 9), number(9))
	add("Gemm", attribute("transA", int64(1), "alpha", float32(0.5)), number(6, 2), number(6, 4))
	add("Gemm", attribute("transB", int64(1), "alpha", float32(0.5), "beta", float32(2)), number(4, 6), number(5, 6), number(4, 1))
	add("Conv", nil, number(2, 6, 5), number(4, 6, 1), number(4))
	add("Conv", attribute("group", int64(2)), number(2, 6, 2, 3), number(4, 3, 1, 1), number(4))
	for _, equation := range []string{"bik,bjk->bij", "bik,bkj->bij", "bij,bjk->ki", "bij,kj->bki"} {
		shapes := map[string][]int{"bik": {2, 3, 4}, "bjk": {2, 5, 4}, "bkj": {2, 4, 5}, "bij": {2, 3, 4}, "bjk->ki": {2, 4, 5}, "kj": {6, 4}}
		left, right, _ := strings.Cut(strings.Split(equation, "->")[0], ",")
		b := shapes[right]
		if equation == "bij,bjk->ki" {
			b = []int{2, 4, 5}
		}
		add("Einsum", attribute("equation", equation), number(shapes[left]...), number(b...))
	}
	add("Einsum", attribute("equation", "bi,bj->bij"), number(2, 3), number(2, 4))
	add("Einsum", attribute("equation", "bij->bj"), number(2, 3, 4))
	add("Einsum", attribute("equation", "...d,d->...d"), number(2, 3, 4), number(4))
	for _, op := range []string{"Add", "Sub", "Mul", "Div", "Max", "Min", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"} {
		add(op, nil, number(2, 3, 4), number(3, 1))
		add(op, nil, number(1, 4), number(3, 1))
	}
	add("Sum", nil, number(2, 3), number(3), number(1, 1))
	add("Mean", nil, number(2, 3), number(3), number(1, 1))
	add("Max", nil, number(2, 3), number(3), number(1, 1))
	add("Mod", attribute("fmod", int64(1)), number(2, 3), positive(3))
	add("PRelu", nil, number(2, 3), number(3))
	add("Pow", nil, positive(2, 3), number(3))
	for _, op := range []string{"And", "Or", "Xor"} {
		add(op, nil, boolean(2, 3, 4), boolean(3, 1))
	}
	add("Where", nil, boolean(3, 1), number(2, 3, 4), number(4))
	add("Not", nil, boolean(2, 3))
	add("Clip", nil, number(3, 3), number(), positive())
	for _, op := range []string{"Neg", "Abs", "Sign", "Relu", "Reciprocal", "Exp", "Erf", "Tanh", "Sigmoid", "Softplus", "Floor", "Ceil", "Round", "Sin", "Cos", "Atan",
		"LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "Mish", "Gelu", "IsNaN", "IsInf"} {
		add(op, nil, number(3, 5))
	}
	add("Sqrt", nil, positive(3, 5))
	add("Log", nil, positive(3, 5))
	add("LeakyRelu", attribute("alpha", float32(0.2)), number(3, 5))
	add("Elu", attribute("alpha", float32(0.7)), number(3, 5))
	add("Celu", attribute("alpha", float32(0.7)), number(3, 5))
	add("Gelu", attribute("approximate", "tanh"), number(3, 5))
	for _, op := range []string{"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"} {
		add(op, nil, positive(2, 3, 4), ints(1))
		add(op, attribute("keepdims", int64(0)), positive(2, 3, 4), ints(0, -1))
		add(op, nil, positive(2, 3, 4))
		add(op, attribute("noop_with_empty_axes", int64(1)), positive(2, 3, 4))
	}
	for _, axis := range []int64{0, 1, -1} {
		add("Softmax", attribute("axis", axis), number(2, 3, 4))
		add("LogSoftmax", attribute("axis", axis), number(2, 3, 4))
	}
	add("LayerNormalization", nil, number(2, 3, 4), fixed(4), fixed(4))
	add("LayerNormalization", attribute("axis", int64(1), "epsilon", float32(1e-3)), number(2, 3, 4), fixed(3, 4))
	add("BatchNormalization", nil, number(2, 3, 4), fixed(3), fixed(3), fixed(3), above(3))
	add("TopK", nil, number(2, 3, 4), ints(2))
	add("TopK", attribute("axis", int64(1), "largest", int64(0)), number(2, 3, 4), ints(3))
	for _, op := range []string{"ArgMax", "ArgMin"} {
		add(op, attribute("axis", int64(1)), number(2, 3, 4))
		add(op, attribute("keepdims", int64(0), "select_last_index", int64(1)), number(3, 2))
	}
	add("CumSum", nil, number(2, 3), ints(1))
	add("CumSum", attribute("exclusive", int64(1), "reverse", int64(1)), number(2, 3), ints(0))
	add("Transpose", attribute("perm", []int64{2, 0, 1}), number(2, 3, 4))
	add("Slice", nil, number(5, 4), ints(4), ints(0), ints(0), ints(-2))
	add("Concat", attribute("axis", int64(1)), number(2, 3), number(2, 1))
	add("Pad", nil, number(2, 3), ints(1, 0, 0, 2))
	add("Expand", nil, number(3, 1), ints(2, 3, 2))
	add("Tile", nil, number(3, 1), ints(2, 3))
	add("Gather", attribute("axis", int64(1)), number(2, 3), ints(2, 0, 2))
	add("GatherND", nil, number(2, 3), operand{shape: []int{2, 2}, ints: []int64{1, 0, 0, 2}})
	add("Trilu", nil, number(3, 3))
	return all
}()

// kinds are the ways in which a test gives an operand.
const (
	player = iota
	other
	constant
	kinds
)

// Each operator gives the results that package graph defines. Each of its inputs may be
// players, constants of the row, or constant.
func TestOperators(t *testing.T) {
	tested := map[string]bool{"Cast": true} // builder.sum adds one
	for i, test := range operatorTests {
		tested[test.op] = true
		for combination := range test.combinations() - 1 {
			t.Run(fmt.Sprintf("%s/%d/%d", test.op, i, combination), func(t *testing.T) { test.run(t, uint64(i), combination) })
		}
	}
	for _, op := range graph.Operators() {
		if !tested[op] && !slices.Contains(folded, op) {
			t.Errorf("operator %s has no test", op)
		}
	}
}

// folded are operators of package graph that only move elements, as others in operatorTests
// do, or whose results are always constant.
var folded = []string{"Constant", "ConstantOfShape", "Dropout", "EyeLike", "Flatten", "GatherElements", "Identity", "NonZero", "OneHot", "Range", "Reshape", "ScatterElements", "ScatterND", "Shape", "Size", "Split", "Squeeze", "Unsqueeze"}

func (test *operatorTest) run(t *testing.T, seed uint64, combination int) {
	b := newBuilder(t, seed)
	b.check(test.build(b, combination), 20, 2e-5)
}

// combinations returns the number of ways in which the operands can be given. In the last
// one all are constant.
func (test *operatorTest) combinations() int {
	free := 0
	for _, o := range test.operands {
		if o.ints == nil && !o.fixed {
			free++
		}
	}
	return int(math.Pow(kinds, float64(free)))
}

// build makes a graph with the operator, and returns its players.
func (test *operatorTest) build(b *builder, combination int) (players []graph.Value) {
	var inputs []graph.Value
	for _, o := range test.operands {
		if o.ints != nil {
			shape := o.shape
			if shape == nil {
				shape = []int{len(o.ints)}
			}
			inputs = append(inputs, b.AddConstant(&graph.Tensor{Type: graph.Int, Shape: shape, Ints: o.ints}))
			continue
		}
		kind := constant
		if !o.fixed {
			kind = combination % kinds
			combination /= kinds
		}
		var v graph.Value
		if kind == constant {
			v = b.constant(o.shape...)
		} else {
			v = b.AddInput(fmt.Sprintf("input %d", len(inputs)), graph.Float, o.shape)
		}
		if kind == player {
			players = append(players, v)
		}
		if o.plus {
			v = b.node("Add", nil, b.node("Abs", nil, v), b.AddConstant(&graph.Tensor{Type: graph.Float, Floats: []float32{0.1}}))
		}
		if o.bool {
			v = b.node("Greater", nil, v, b.AddConstant(&graph.Tensor{Type: graph.Float, Floats: []float32{0}}))
		}
		inputs = append(inputs, v)
	}
	b.sum(b.node(test.op, test.attributes, inputs...))
	return players
}

// Random graphs give the results of graph.Graph.Run, although values reuse the rows of
// earlier ones.
func TestRandomGraphs(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			b := newBuilder(t, seed)
			b.check(b.randomHead(30), 48, 1e-3)
		})
	}
}

// Random graphs give the same bits as with CompileApart, so reusing rows of the arena changes
// nothing. Half of the inputs are constants of a row. SHAVER_LONG=2 tries 5000 graphs.
func TestReuse(t *testing.T) {
	graphs, reused := uint64(150), 0
	if long.Hours() {
		graphs = 5000
	}
	for seed := range graphs {
		b := newBuilder(t, seed)
		b.wild = true
		players := b.randomHead(10 + b.r.IntN(60))
		var programs [2]*execute.Program
		var runners [2]*execute.Runner
		for i, compile := range []func(*graph.Graph, []graph.Value) (*execute.Program, error){execute.Compile, execute.CompileApart} {
			p, err := compile(b.Graph, players)
			if err != nil {
				t.Fatalf("graph %d: %v", seed, err)
			}
			programs[i], runners[i] = p, p.NewRunner()
		}
		if programs[0].Rows() < programs[1].Rows() {
			reused++
		}
		// Several rows of data and blocks of states, as in walks. What an earlier one leaves
		// in the arena must not matter.
		for row := range 3 {
			in := b.tensor([]int{programs[0].Others()}).Floats
			for _, r := range runners {
				for i, x := range in {
					for t := range kernel.States {
						r.Others().Element(i)[t] = x
					}
				}
				r.Prepare(kernel.States)
			}
			for block, states := range []int{kernel.States, 1, 17} {
				in := b.tensor([]int{programs[0].Players(), states}).Floats
				var got [2][]float64
				for i, r := range runners {
					for k := range programs[0].Players() {
						copy(r.Players().Element(k), in[k*states:(k+1)*states])
					}
					got[i] = make([]float64, states)
					r.Run(got[i])
				}
				for s := range got[0] {
					if math.Float64bits(got[0][s]) != math.Float64bits(got[1][s]) && !(math.IsNaN(got[0][s]) && math.IsNaN(got[1][s])) {
						t.Fatalf("graph %d, row %d, block %d, state %d: %v, expected %v", seed, row, block, s, got[0][s], got[1][s])
					}
				}
				// The last state gives the same bits alone.
				one, r := make([]float64, 1), runners[0]
				for k := range programs[0].Players() {
					r.Players().Element(k)[0] = in[(k+1)*states-1]
				}
				if r.Run(one); math.Float64bits(one[0]) != math.Float64bits(got[0][states-1]) {
					t.Fatalf("graph %d, row %d, block %d: %v alone, %v with other states", seed, row, block, one[0], got[0][states-1])
				}
			}
		}
	}
	if reused < int(graphs)*9/10 {
		t.Errorf("%d of %d programs reuse rows", reused, graphs)
	}
}

// randomHead makes a random graph of about n operators with the inputs x, y and z. It returns
// the inputs that are players.
func (b *builder) randomHead(n int) []graph.Value {
	shape := []int{1, 6, 4}
	values := []graph.Value{b.AddInput("x", graph.Float, shape), b.AddInput("y", graph.Float, shape), b.AddInput("z", graph.Float, shape)}
	players := []graph.Value{values[1], values[0]}
	if b.wild {
		players = players[:1+b.r.IntN(2)]
	}
	for range n {
		values = append(values, b.random(values))
	}
	last := values[len(values)-6:]
	if b.wild { // some early values and a constant of the row, late
		last = append(slices.Clone(last), values[2], values[b.r.IntN(len(values))], values[3])
	}
	b.sum(b.node("Concat", attribute("axis", int64(1)), last...))
	b.Trim()
	return players
}

// random adds some nodes that compute a value of shape [1, 6, 4] from earlier ones.
func (b *builder) random(values []graph.Value) graph.Value {
	pick := func() graph.Value {
		if b.wild && b.r.IntN(2) == 0 { // chains, in which operands are reused
			return values[max(0, len(values)-1-b.r.IntN(4))]
		}
		return values[b.r.IntN(len(values))]
	}
	if b.wild && b.r.IntN(2) == 0 {
		return b.wilder(pick)
	}
	switch b.r.IntN(12) {
	case 0:
		return b.node("Add", nil, pick(), pick())
	case 1:
		return b.node("Tanh", nil, b.node("Mul", nil, pick(), pick()))
	case 2:
		return b.node("Tanh", nil, b.node("Add", nil, b.node("Mul", nil, pick(), pick()), pick()))
	case 3:
		return b.node("Relu", nil, b.node("Add", nil, b.node("MatMul", nil, pick(), b.constant(4, 4)), b.constant(4)))
	case 4:
		flat := b.node("Reshape", nil, pick(), b.ints(1, 24))
		return b.node("Reshape", nil, b.node("Tanh", nil, b.node("Gemm", nil, flat, b.constant(24, 24), b.constant(24))), b.ints(1, 6, 4))
	case 5:
		scores := b.node("Softmax", nil, b.node("MatMul", nil, pick(), b.node("Transpose", attribute("perm", []int64{0, 2, 1}), pick())))
		return b.node("MatMul", nil, scores, pick())
	case 6:
		v := pick()
		scores := b.node("Tanh", nil, b.node("MatMul", nil, v, b.node("Transpose", attribute("perm", []int64{0, 2, 1}), v)))
		return b.node("Slice", nil, scores, b.ints(1), b.ints(5), b.ints(2))
	case 7:
		return b.node("LayerNormalization", nil, pick(), b.constant(4), b.constant(4))
	case 8:
		return b.node("Mul", nil, pick(), b.node("Sigmoid", nil, b.node("ReduceMean", nil, pick(), b.ints(2))))
	case 9:
		halves := b.node("Concat", attribute("axis", int64(1)), b.node("Slice", nil, pick(), b.ints(0), b.ints(3), b.ints(1)), b.node("Slice", nil, pick(), b.ints(3), b.ints(6), b.ints(1)))
		return b.node("Sub", nil, halves, pick())
	case 10:
		return b.node("Transpose", attribute("perm", []int64{0, 2, 1}), b.node("Reshape", nil, pick(), b.ints(1, 4, 6)))
	default:
		return b.node("Einsum", attribute("equation", "bik,bjk->bij"), pick(), b.node("Reshape", nil, b.constant(1, 4, 4), b.ints(1, 4, 4)))
	}
}

// wilder adds some nodes as random does, with the operators that random does not use.
func (b *builder) wilder(pick func() graph.Value) graph.Value {
	one := func(list ...string) string { return list[b.r.IntN(len(list))] }
	axis := b.ints(int64(1 + b.r.IntN(2)))
	switch b.r.IntN(12) {
	case 0:
		return b.node(one("Neg", "Abs", "Relu", "Sigmoid", "Tanh", "Erf", "Floor", "Sign", "Elu", "Selu", "Celu", "Gelu", "HardSigmoid", "HardSwish", "Mish", "LeakyRelu"), nil, pick())
	case 1:
		return b.node(one("Add", "Sub", "Max", "Min", "PRelu"), nil, pick(), pick())
	case 2: // a value and itself
		v := pick()
		return b.node("Tanh", nil, b.node(one("Add", "Sub", "Mul"), nil, v, v))
	case 3: // one operand is broadcast
		return b.node("Tanh", nil, b.node(one("Add", "Mul", "Sub", "Max"), nil, b.node(one("ReduceMax", "ReduceMin", "ReduceMean", "ReduceL2"), nil, pick(), axis), pick()))
	case 4:
		halves, err := b.Add(graph.Node{Name: fmt.Sprint("split ", len(b.Nodes)), Op: "Split", Inputs: []graph.Value{pick(), b.ints(2, 4)}, Outputs: make([]graph.Value, 2), Attributes: attribute("axis", int64(1))})
		if err != nil {
			b.t.Fatal(err)
		}
		changed := b.node("Tanh", nil, halves[0])
		return b.node("Concat", attribute("axis", int64(1)), halves[1], b.node("Neg", nil, changed))
	case 5: // part of a value changes while the rest is still needed
		v := pick()
		part := b.node("Slice", nil, v, b.ints(0), b.ints(3), b.ints(1))
		rest := b.node("Slice", nil, v, b.ints(3), b.ints(6), b.ints(1))
		return b.node("Concat", attribute("axis", int64(1)), b.node("Sigmoid", nil, part), b.node("Tanh", nil, b.node("Mul", nil, rest, part)))
	case 6:
		return b.node("Where", nil, b.node(one("Greater", "Less", "LessOrEqual"), nil, pick(), pick()), pick(), pick())
	case 7:
		return b.node(one("Softmax", "LogSoftmax"), attribute("axis", int64(b.r.IntN(3))), pick())
	case 8:
		return b.node("Tanh", nil, b.node("Mean", nil, pick(), pick(), pick()))
	case 9:
		return b.node("Clip", nil, b.node("CumSum", attribute("exclusive", int64(b.r.IntN(2)), "reverse", int64(b.r.IntN(2))), pick(), b.ints(int64(1+b.r.IntN(2)))),
			b.AddConstant(&graph.Tensor{Type: graph.Float, Floats: []float32{-3}}), b.AddConstant(&graph.Tensor{Type: graph.Float, Floats: []float32{3}}))
	case 10: // a sum of a product and what the product reads
		v, w := pick(), pick()
		return b.node("Tanh", nil, b.node("Add", nil, w, b.node("Mul", nil, v, w)))
	default:
		v := pick()
		batch := b.node("Tanh", nil, b.node("MatMul", nil, b.node("Expand", nil, v, b.ints(2, 6, 4)), b.constant(2, 4, 4)))
		return b.node("Reshape", nil, b.node("Slice", nil, batch, b.ints(int64(b.r.IntN(2))), b.ints(2), b.ints(0), b.ints(2)), b.ints(1, 6, 4))
	}
}

// Many goroutines share a program. Neither Prepare nor Run allocates memory.
func TestSharing(t *testing.T) {
	b := newBuilder(t, 7)
	x, y := b.AddInput("x", graph.Float, []int{1, 6, 4}), b.AddInput("y", graph.Float, []int{1, 6, 4})
	values := []graph.Value{x, y}
	for range 30 {
		values = append(values, b.random(values))
	}
	b.sum(values[len(values)-1])
	p, err := execute.Compile(b.Graph, []graph.Value{x})
	if err != nil {
		t.Fatal(err)
	}
	in := b.tensor([]int{1, 12, 4}).Floats
	run := func(r *execute.Runner, out []float64) {
		for i, v := range in[:24] {
			for t := range kernel.States {
				r.Players().Element(i)[t], r.Others().Element(i)[t] = v*float32(t), in[24+i]
			}
		}
		r.Prepare(len(out))
		r.Run(out)
	}
	want := make([]float64, kernel.States)
	first := p.NewRunner()
	run(first, want)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			r, got := p.NewRunner(), make([]float64, kernel.States)
			for range 10 {
				if run(r, got); !slices.Equal(got, want) {
					t.Errorf("%v, expected %v", got, want)
				}
			}
		})
	}
	group.Wait()
	if n := testing.AllocsPerRun(10, func() { run(first, want) }); n != 0 {
		t.Errorf("%v allocations in a run", n)
	}
}

// A graph that cannot be compiled is refused with an error that names the node or the value.
func TestCompileErrors(t *testing.T) {
	for name, test := range map[string]struct {
		build func(b *builder) []graph.Value
		want  string
	}{
		"output": {func(b *builder) []graph.Value {
			b.Output = b.AddInput("x", graph.Float, []int{2})
			return []graph.Value{b.Output}
		}, "output x has shape [2]"},
		"player": {func(b *builder) []graph.Value {
			x := b.AddInput("x", graph.Float, []int{2})
			b.sum(x)
			return []graph.Value{b.Output}
		}, "is not an input"},
		"twice": {func(b *builder) []graph.Value {
			x := b.AddInput("x", graph.Float, []int{2})
			b.sum(x)
			return []graph.Value{x, x}
		}, "input x is listed twice"},
		"index": {func(b *builder) []graph.Value {
			x := b.AddInput("x", graph.Float, []int{2})
			index := b.node("Reshape", nil, b.node("Cast", graph.Attributes{"to": int64(7)}, x), b.ints(2, 1))
			b.sum(b.node("ScatterND", nil, b.constant(5), index, b.constant(2)))
			return []graph.Value{x}
		}, "(ScatterND)"},
		"whole power": {func(b *builder) []graph.Value {
			x := b.AddInput("x", graph.Float, []int{2})
			b.sum(b.node("Pow", nil, b.ints(3), x))
			return []graph.Value{x}
		}, "(Pow): a power of whole numbers"},
		"large": {func(b *builder) []graph.Value {
			x := b.AddInput("x", graph.Float, []int{2, 1})
			b.sum(b.node("Mul", nil, x, b.node("Reshape", nil, b.AddInput("y", graph.Float, []int{1 << 21, 1}), b.ints(1, 1<<21))))
			return []graph.Value{x}
		}, "elements"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBuilder(t, 1)
			players := test.build(b)
			if _, err := execute.Compile(b.Graph, players); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, expected %q", err, test.want)
			}
		})
	}
}

// An operator with operands of any number, type, shape and origin is refused, or gives the
// result of package graph.
func TestAnyOperands(t *testing.T) {
	computed := 0
	for i, op := range graph.Operators() {
		r := rand.New(rand.NewPCG(uint64(i), 3))
		for range 400 {
			b := newBuilder(t, r.Uint64())
			x, y := b.AddInput("x", graph.Float, []int{2, 2}), b.AddInput("y", graph.Float, []int{2, 2})
			var operands []graph.Value
			for range 1 + r.IntN(1+r.IntN(5)) {
				operands = append(operands, b.operand(x, y))
			}
			attributes := graph.Attributes{}
			switch op {
			case "Cast":
				attributes["to"] = []int64{1, 7, 9}[r.IntN(3)] // float, int64, bool
			case "Mod":
				attributes["fmod"] = int64(r.IntN(2))
			case "Einsum":
				attributes["equation"] = []string{"ij,jk->ik", "i,i->", "bij,bjk->bik"}[r.IntN(3)]
			}
			if r.IntN(2) == 0 {
				attributes["axis"] = int64(r.IntN(3) - 1)
			}
			if indexed := strings.HasPrefix(op, "Gather") || op == "ScatterElements"; indexed && len(operands) > 1 && operands[1] != graph.Absent && b.Values[operands[1]].Type == graph.Int {
				operands[1] = b.node("Clip", nil, operands[1], b.AddConstant(graph.NewInts([]int64{-1})), b.AddConstant(graph.NewInts([]int64{0})))
			}
			out, err := b.Add(graph.Node{Name: "node", Op: op, Inputs: operands, Attributes: attributes})
			if err != nil || slices.Contains(b.Values[out[0]].Shape, 0) {
				continue
			}
			b.sum(out[0])
			if _, err := execute.Compile(b.Graph, []graph.Value{x}); err != nil {
				if !strings.Contains(err.Error(), "node node ("+op+"): ") {
					t.Errorf("error %v, expected the node and its operator", err)
				}
				continue
			}
			computed++
			t.Run(op, func(t *testing.T) {
				b.t = t
				b.check([]graph.Value{x}, 3, 1e-3)
				b.checkGradient([]graph.Value{x}, b.states([]graph.Value{x}, 2), 1e-3)
			})
		}
	}
	if computed < 1000 {
		t.Errorf("only %d graphs were computed", computed)
	}
}

// operand returns a random value of any type: absent, constant, or elements of x or y.
func (b *builder) operand(x, y graph.Value) graph.Value {
	shape := [][]int{{}, {1}, {2}, {2, 2}, {1, 2, 2}}[b.r.IntN(5)]
	n, sizes := 1, []int64{}
	for _, s := range shape {
		n *= s
		sizes = append(sizes, int64(s))
	}
	switch kind := b.r.IntN(16); kind {
	case 0:
		return graph.Absent
	case 1, 2, 3:
		return b.constant(shape...)
	case 4, 5, 6:
		list := make([]int64, n)
		for i := range list {
			list[i] = int64(b.r.IntN(4) - 1)
		}
		return b.AddConstant(&graph.Tensor{Type: graph.Int, Shape: shape, Ints: list})
	case 7, 8:
		list := make([]bool, n)
		for i := range list {
			list[i] = b.r.IntN(2) == 0
		}
		return b.AddConstant(&graph.Tensor{Type: graph.Bool, Shape: shape, Bools: list})
	default:
		if kind%2 == 0 {
			x = y
		}
		v := b.node("Slice", nil, b.node("Reshape", nil, x, b.ints(4)), b.ints(0), b.ints(int64(n)))
		v = b.node("Reshape", nil, v, b.ints(sizes...))
		if to := []int64{0, 0, 7, 9}[b.r.IntN(4)]; to > 0 {
			v = b.node("Cast", attribute("to", to), v)
		}
		return v
	}
}
