package execute_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"shaver/internal/num/kernel"
	"shaver/internal/onnx/execute"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/graph/graphtest"
)

// state is one setting of a graph's inputs.
type state [][]float64

// differences returns the derivatives of the graph's output with respect to its players, by
// central differences in float64. NaN stands for a derivative near a kink or a jump.
func (b *builder) differences(players []graph.Value, in state) (slopes []float64) {
	b.t.Helper()
	tensors := make([]*graph.Tensor, len(in))
	for i, v := range b.Inputs {
		tensors[i] = graph.NewDoubles(in[i], b.Values[v].Shape...)
	}
	logit := func() float64 {
		out, err := b.Graph.Run(tensors)
		if err != nil {
			b.t.Fatal(err)
		}
		return out.Doubles()[0]
	}
	middle := logit()
	for _, v := range players {
		i := slices.Index(b.Inputs, v)
		for k, x := range in[i] {
			const h = 1e-6
			at := func(x float64) float64 {
				in[i][k] = x
				tensors[i] = graph.NewDoubles(in[i], b.Values[v].Shape...)
				return logit()
			}
			up, down := at(x+h), at(x-h)
			at(x)
			slope := (up - down) / (2 * h)
			if !(math.Abs(up-2*middle+down) <= 1e-3*h*(1+math.Abs(slope))) || math.Abs(up-down) > 1e-2 {
				slope = math.NaN()
			}
			slopes = append(slopes, slope)
		}
	}
	return slopes
}

// run computes the outputs of some states.
func (b *builder) run(r *execute.Runner, players []graph.Value, states []state) []float64 {
	for t, in := range states {
		k, o := 0, 0
		for _, v := range players {
			for _, x := range in[slices.Index(b.Inputs, v)] {
				r.Players().Element(k)[t] = float32(x)
				k++
			}
		}
		for i, v := range b.Inputs {
			if !slices.Contains(players, v) {
				for _, x := range in[i] {
					r.Others().Element(o)[t] = float32(x)
					o++
				}
			}
		}
	}
	logits := make([]float64, len(states))
	r.Prepare(len(states))
	r.Run(logits)
	return logits
}

// gradient computes the outputs and the derivatives of some states.
func (b *builder) gradient(p *execute.Program, players []graph.Value, states []state) (logits []float64, slopes [][]float32) {
	r := p.NewRunner()
	logits = b.run(r, players, states)
	r.Differentiate(len(states))
	for t := range states {
		var list []float32
		for k := range p.Players() {
			list = append(list, r.Slopes().Element(k)[t])
		}
		slopes = append(slopes, list)
	}
	return logits, slopes
}

// checkGradient compares the derivatives of some states with differences. It returns how
// many it compared and how many were near a kink. It fails if the logits are not those of
// Compile, or if the bits depend on the other states or on the rows of values.
func (b *builder) checkGradient(players []graph.Value, states []state, tolerance float64) (compared, kinks int) {
	b.t.Helper()
	p, err := execute.CompileGradient(b.Graph, players)
	if err != nil {
		b.t.Fatal(err)
	}
	logits, slopes := b.gradient(p, players, states)
	for t, in := range states {
		want := b.differences(players, in)
		steep := 0.0
		for _, w := range want {
			if w == w {
				steep = max(steep, math.Abs(w))
			}
		}
		for k, w := range want {
			if w != w {
				kinks++
				continue
			}
			compared++
			if got := float64(slopes[t][k]); !(math.Abs(got-w) <= tolerance*(1e-2+steep)) {
				b.t.Fatalf("state %d, player %d: the derivative is %v, expected %v", t, k, got, w)
			}
		}
	}
	plain, err := execute.Compile(b.Graph, players)
	if err != nil {
		b.t.Fatal(err)
	}
	same := func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) || x != x && y != y }
	same32 := func(x, y []float32) bool {
		return slices.EqualFunc(x, y, func(x, y float32) bool { return same(float64(x), float64(y)) })
	}
	if want := b.run(plain.NewRunner(), players, states); !slices.EqualFunc(logits, want, same) {
		b.t.Fatalf("outputs %v, expected %v as from Compile", logits, want)
	}
	apart, err := execute.CompileGradientApart(b.Graph, players)
	if err != nil {
		b.t.Fatal(err)
	}
	again, others := b.gradient(apart, players, states)
	if !slices.EqualFunc(logits, again, same) || !slices.EqualFunc(slopes, others, same32) {
		b.t.Fatalf("derivatives %v, expected %v as with rows of their own", slopes, others)
	}
	for t := range states {
		logit, slope := b.gradient(p, players, states[t:t+1])
		if !same(logit[0], logits[t]) || !same32(slope[0], slopes[t]) {
			b.t.Fatalf("state %d: derivatives %v alone, %v with others", t, slope[0], slopes[t])
		}
	}
	return compared, kinks
}

// states returns random states. Inputs that are not players are the same in all.
func (b *builder) states(players []graph.Value, n int) []state {
	list := make([]state, n)
	for t := range list {
		for i, v := range b.Inputs {
			if t > 0 && !slices.Contains(players, v) {
				list[t] = append(list[t], list[0][i])
				continue
			}
			var x []float64
			for _, f := range b.tensor(b.Values[v].Shape).Floats {
				x = append(x, float64(f))
			}
			list[t] = append(list[t], x)
		}
	}
	return list
}

// The derivatives of each operator agree with differences in float64. Each of its inputs may
// be players, constants of the row, or constant.
func TestGradientsOfOperators(t *testing.T) {
	kinks, compared := 0, 0
	for i, test := range operatorTests {
		for combination := range test.combinations() - 1 {
			b := newBuilder(t, uint64(i))
			players := test.build(b, combination)
			if len(players) == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d/%d", test.op, i, combination), func(t *testing.T) {
				b.t = t
				c, k := b.checkGradient(players, b.states(players, 5), 5e-5)
				compared, kinks = compared+c, kinks+k
			})
		}
	}
	if kinks > compared/100 {
		t.Errorf("%d derivatives are near a kink, %d are not", kinks, compared)
	}
}

// The derivatives at the points of ONNX's own vectors agree with differences in float64.
func TestGradientsOfVectors(t *testing.T) {
	cases, err := graphtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	graphs, kinks, compared := 0, 0, 0
	for i, c := range cases {
		b := newBuilder(t, uint64(i))
		n := graph.Node{Name: c.Name, Op: c.Op, Attributes: c.Attributes, Outputs: make([]graph.Value, len(c.Outputs))}
		var in state
		for k, x := range c.Inputs {
			switch {
			case x == nil:
				n.Inputs = append(n.Inputs, graph.Absent)
			case x.Type == graph.Float && len(x.Floats) > 0 && len(x.Floats) <= 300 && !mustBeConstant(c.Op, k):
				n.Inputs = append(n.Inputs, b.AddInput(fmt.Sprint("x", k), graph.Float, x.Shape))
				in = append(in, x.Doubles())
			default:
				n.Inputs = append(n.Inputs, b.AddConstant(x))
			}
		}
		if len(in) == 0 {
			continue
		}
		out, err := b.Add(n)
		if err != nil || len(b.Nodes) == 0 || b.Values[out[0]].Type == graph.Int && c.Op == "Pow" {
			continue // the inputs must be constant, or only their shapes matter
		}
		var parts []graph.Value
		for _, v := range out {
			if b.Values[v].Type != graph.Float {
				v = b.node("Cast", graph.Attributes{"to": int64(1)}, v)
			}
			parts = append(parts, b.node("Reshape", nil, v, b.ints(-1)))
		}
		b.sum(b.node("Concat", attribute("axis", int64(0)), parts...))
		t.Run(c.Name, func(t *testing.T) {
			b.t = t
			graphs++
			c, k := b.checkGradient(b.Inputs, []state{in}, 1e-4)
			compared, kinks = compared+c, kinks+k
		})
	}
	if graphs < 300 || kinks > compared/10 {
		t.Errorf("%d graphs, %d derivatives near a kink, %d others", graphs, kinks, compared)
	}
}

// mustBeConstant reports whether package execute needs a constant for input k of an
// operator.
func mustBeConstant(op string, k int) bool {
	return k > 0 && slices.Contains([]string{"Dropout", "LayerNormalization", "BatchNormalization", "Pad"}, op)
}

// The derivatives of random graphs agree with differences in float64.
func TestGradientsOfRandomGraphs(t *testing.T) {
	kinks, compared := 0, 0
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			b := newBuilder(t, seed)
			b.wild = seed%2 == 1
			players := b.randomHead(20)
			c, k := b.checkGradient(players, b.states(players, 3), 2e-3)
			compared, kinks = compared+c, kinks+k
		})
	}
	if kinks > compared/20 {
		t.Errorf("%d derivatives are near a kink, %d are not", kinks, compared)
	}
}

// The derivatives at kinks are those of PyTorch 2.8.
func TestGradientsAtKinks(t *testing.T) {
	one := []int{1}
	for _, test := range []struct {
		op         string
		attributes graph.Attributes
		x          []float64 // players
		rest       []any     // further inputs: float32 constants, or []int64
		want       []float32
	}{
		{"Relu", nil, []float64{0}, nil, []float32{0}},
		{"Abs", nil, []float64{0}, nil, []float32{0}},
		{"Sign", nil, []float64{0}, nil, []float32{0}},
		{"LeakyRelu", attribute("alpha", float32(0.25)), []float64{0}, nil, []float32{0.25}},
		{"PRelu", nil, []float64{0}, []any{float32(0.25)}, []float32{0.25}},
		{"Elu", attribute("alpha", float32(0.5)), []float64{0}, nil, []float32{0.5}},
		{"Celu", attribute("alpha", float32(0.5)), []float64{0}, nil, []float32{1}},
		{"Selu", attribute("alpha", float32(2), "gamma", float32(1.5)), []float64{0}, nil, []float32{3}},
		{"HardSigmoid", attribute("alpha", float32(0.5), "beta", float32(0.5)), []float64{-1, 1, 0}, nil, []float32{0, 0, 0.5}},
		{"HardSwish", nil, []float64{-3, 3, 0}, nil, []float32{0, 1, 0.5}},
		{"Clip", nil, []float64{-1, 1, 2}, []any{float32(-1), float32(1)}, []float32{1, 1, 0}},
		{"Max", nil, []float64{2, 1}, []any{float32(2)}, []float32{0.5, 0}},
		{"Min", nil, []float64{2, 1}, []any{float32(2)}, []float32{0.5, 1}},
		{"ReduceMax", nil, []float64{1, 3, 3}, []any{[]int64{0}}, []float32{0, 0.5, 0.5}},
		{"ReduceMin", nil, []float64{1, 1, 1, 3}, []any{[]int64{0}}, []float32{1. / 3, 1. / 3, 1. / 3, 0}},
		{"ReduceL1", nil, []float64{0, -1}, []any{[]int64{0}}, []float32{0, -1}},
		{"ReduceL2", nil, []float64{0, 0}, []any{[]int64{0}}, []float32{0, 0}},
		{"ReduceProd", nil, []float64{0, 3}, []any{[]int64{0}}, []float32{3, 0}},
		{"Sqrt", nil, []float64{0}, nil, []float32{float32(math.Inf(1))}},
		{"Pow", nil, []float64{0}, []any{float32(1.5)}, []float32{0}},
		{"Round", nil, []float64{0.5}, nil, []float32{0}},
		{"Softplus", nil, []float64{-200, 200}, nil, []float32{0, 1}},
		{"Sigmoid", nil, []float64{-200, 200}, nil, []float32{0, 0}},
	} {
		t.Run(test.op, func(t *testing.T) {
			b := newBuilder(t, 1)
			x := b.AddInput("x", graph.Float, []int{len(test.x)})
			inputs := []graph.Value{x}
			for _, v := range test.rest {
				switch v := v.(type) {
				case float32:
					shape := one
					if test.op == "Clip" {
						shape = nil
					}
					inputs = append(inputs, b.AddConstant(graph.NewFloats([]float32{v}, shape...)))
				case []int64:
					inputs = append(inputs, b.ints(v...))
				}
			}
			out := b.node(test.op, test.attributes, inputs...)
			b.Output = b.node("ReduceSum", graph.Attributes{"keepdims": int64(0)}, out)
			p, err := execute.CompileGradient(b.Graph, []graph.Value{x})
			if err != nil {
				t.Fatal(err)
			}
			_, slopes := b.gradient(p, []graph.Value{x}, []state{{test.x}})
			for k, w := range test.want {
				if got := slopes[0][k]; got != w {
					t.Errorf("the derivatives are %v, expected %v", slopes[0], test.want)
					break
				}
			}
		})
	}
}

// A value that a comparison or a cast computes passes no derivative, although what follows
// has one.
func TestNoDerivative(t *testing.T) {
	b := newBuilder(t, 1)
	x := b.AddInput("x", graph.Float, []int{3})
	whole := b.node("Cast", attribute("to", int64(7)), x)
	positive := b.node("Greater", nil, x, b.AddConstant(graph.NewFloats([]float32{0})))
	sum := b.node("Mul", nil, b.node("Cast", attribute("to", int64(1)), whole), b.node("Cast", attribute("to", int64(1)), positive))
	b.sum(b.node("Where", nil, positive, sum, b.node("Floor", nil, x)))
	p, err := execute.CompileGradient(b.Graph, []graph.Value{x})
	if err != nil {
		t.Fatal(err)
	}
	logits, slopes := b.gradient(p, []graph.Value{x}, []state{{{1.5, 2.5, -0.5}}})
	if logits[0] == 0 || !slices.Equal(slopes[0], []float32{0, 0, 0}) {
		t.Errorf("output %v with derivatives %v, expected 0", logits[0], slopes[0])
	}
}

// Neither Run nor Differentiate allocates memory, and many rows of data can follow each
// other in one runner.
func TestGradientRunner(t *testing.T) {
	for seed := range uint64(20) {
		b := newBuilder(t, seed)
		b.wild = true
		players := b.randomHead(30)
		p, err := execute.CompileGradient(b.Graph, players)
		if err != nil {
			t.Fatal(err)
		}
		r, sizes := p.NewRunner(), rand.New(rand.NewPCG(seed, 9))
		for range 3 {
			states := b.states(players, 1+sizes.IntN(kernel.States))
			_, want := b.gradient(p, players, states)
			b.run(r, players, states)
			logits := make([]float64, len(states))
			run := func() {
				r.Prepare(len(states))
				r.Run(logits)
				r.Differentiate(len(states))
			}
			run()
			for i := range states {
				for k, w := range want[i] {
					if got := r.Slopes().Element(k)[i]; math.Float32bits(got) != math.Float32bits(w) {
						t.Fatalf("graph %d, state %d, player %d: %v, expected %v", seed, i, k, got, w)
					}
				}
			}
			if n := testing.AllocsPerRun(2, run); n != 0 {
				t.Errorf("%v allocations", n)
			}
		}
	}
}

// A graph whose values fit into an arena, but not together with those that its derivatives
// need, is refused.
func TestGradientTooLarge(t *testing.T) {
	b := newBuilder(t, 1)
	x, y := b.AddInput("x", graph.Float, []int{2, 1}), b.AddInput("y", graph.Float, []int{1, 200_000})
	v := b.node("Mul", nil, x, y)
	for range 3 {
		v = b.node("Tanh", nil, v)
	}
	b.Output = b.node("ReduceSum", graph.Attributes{"keepdims": int64(0)}, v)
	if _, err := execute.Compile(b.Graph, []graph.Value{x}); err != nil {
		t.Fatal(err)
	}
	_, err := execute.CompileGradient(b.Graph, []graph.Value{x})
	if err == nil || !strings.Contains(err.Error(), "with derivatives: the values of a row have more than") {
		t.Errorf("error %v, expected too many values", err)
	}
}

// A graph with many products that share one matrix is refused, because each of them copies
// the matrix.
func TestSharedWeights(t *testing.T) {
	const n = 2000
	for nodes, fits := range map[int]bool{3: true, 20: false} {
		b := newBuilder(t, 1)
		x := b.AddInput("x", graph.Float, []int{1, n})
		w, v := b.AddConstant(graph.NewFloats(make([]float32, n*n), n, n)), x
		for range nodes {
			v = b.node("MatMul", nil, v, w)
		}
		b.Output = b.node("ReduceSum", graph.Attributes{"keepdims": int64(0)}, v)
		_, err := execute.Compile(b.Graph, []graph.Value{x})
		if fits && err != nil || !fits && (err == nil || !strings.Contains(err.Error(), "share weights")) {
			t.Errorf("%d nodes: error %v", nodes, err)
		}
	}
}
