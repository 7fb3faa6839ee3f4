package execute_test

import (
	"math"
	"slices"
	"testing"

	"shaver/internal/onnx/execute"
	"shaver/internal/onnx/graph"
)

// mask adds a value of type Bool that hides what is below some quantile of a constant of the
// row, or of the first players.
func (b *builder) mask(from graph.Value, threshold float32) graph.Value {
	return b.node("Less", nil, from, b.AddConstant(graph.NewFloats([]float32{threshold})))
}

func (b *builder) infinity() graph.Value {
	return b.AddConstant(graph.NewFloats([]float32{float32(math.Inf(-1))}))
}

// maskedHeads are heads with -Inf. x are players [3, 4], and hidden says what is masked.
var maskedHeads = map[string]func(b *builder, x, hidden graph.Value) graph.Value{
	"masked_fill": func(b *builder, x, hidden graph.Value) graph.Value {
		w := b.node("Softmax", nil, b.node("Where", nil, hidden, b.infinity(), x))
		return b.node("Mul", nil, b.node("Where", nil, b.node("IsNaN", nil, w), b.constant(1), w), x)
	},
	"added": func(b *builder, x, hidden graph.Value) graph.Value {
		bias := b.node("Where", nil, hidden, b.infinity(), b.AddConstant(graph.NewFloats([]float32{0})))
		w := b.node("Softmax", nil, b.node("Add", nil, b.node("Tanh", nil, x), bias))
		y := b.node("MatMul", nil, w, b.node("Transpose", nil, x)) // NaN times x
		return b.node("Where", nil, b.node("IsNaN", nil, y), b.constant(1), y)
	},
	"scaled": func(b *builder, x, hidden graph.Value) graph.Value {
		w := b.node("Softmax", nil, b.node("Where", nil, hidden, b.infinity(), x))
		w = b.node("Mul", nil, w, b.node("Sigmoid", nil, x))
		w = b.node("Div", nil, w, b.node("Exp", nil, w))
		return b.node("Where", nil, b.node("Not", nil, b.node("IsNaN", nil, w)), w, x)
	},
	"largest": func(b *builder, x, hidden graph.Value) graph.Value {
		most := b.node("ReduceMax", nil, b.node("Where", nil, hidden, b.infinity(), x), b.ints(1))
		return b.node("Where", nil, b.node("IsInf", attribute("detect_positive", int64(0)), most), b.constant(1), b.node("Mul", nil, most, most))
	},
	"largest of NaN": func(b *builder, x, hidden graph.Value) graph.Value {
		w := b.node("Softmax", nil, b.node("Where", nil, hidden, b.infinity(), x))
		most := b.node("ReduceMax", nil, w, b.ints(1))
		return b.node("Where", nil, b.node("IsNaN", nil, most), b.constant(1), most)
	},
	"LogSoftmax": func(b *builder, x, hidden graph.Value) graph.Value {
		w := b.node("LogSoftmax", nil, b.node("Where", nil, hidden, b.infinity(), x))
		other := b.node("Or", nil, b.node("IsNaN", nil, w), b.node("IsInf", nil, w))
		return b.node("Where", nil, other, b.constant(1), w)
	},
	"ReduceLogSumExp": func(b *builder, x, hidden graph.Value) graph.Value {
		y := b.node("ReduceLogSumExp", nil, b.node("Where", nil, hidden, b.infinity(), x), b.ints(1))
		return b.node("Where", nil, b.node("IsInf", attribute("detect_positive", int64(0)), y), b.constant(1), y)
	},
	"normalized": func(b *builder, x, hidden graph.Value) graph.Value {
		w := b.node("Softmax", nil, b.node("Where", nil, hidden, b.infinity(), x))
		y := b.node("LayerNormalization", nil, b.node("Add", nil, w, x), b.constant(4), b.constant(4))
		y = b.node("Sqrt", nil, b.node("Exp", nil, y))
		return b.node("Where", nil, b.node("IsNaN", nil, y), b.constant(1), y)
	},
	"hidden anyway": func(b *builder, x, hidden graph.Value) graph.Value {
		bias := b.node("Where", nil, hidden, b.infinity(), b.AddConstant(graph.NewFloats([]float32{0})))
		w := b.node("Softmax", nil, b.node("Add", nil, x, bias))
		return b.node("Where", nil, hidden, b.constant(1), b.node("Mul", nil, w, x))
	},
}

// Heads with masks of -Inf have the derivatives of differences in float64. They have none that
// is NaN, although a mask may hide a row entirely, and exactly 0 for what is hidden and read
// nowhere else.
func TestInfiniteMasks(t *testing.T) {
	for name, head := range maskedHeads {
		for _, byPlayers := range []bool{false, true} {
			b := newBuilder(t, 3)
			players := []graph.Value{b.AddInput("x", graph.Float, []int{3, 4})}
			from := b.AddInput("from", graph.Float, []int{3, 4})
			if byPlayers {
				players = append(players, from)
			}
			hidden := b.mask(from, 0)
			b.sum(head(b, players[0], hidden))
			b.Trim()
			states := b.states(players, 6)
			for k := range 4 { // hide a row, and show one
				for t := range states {
					states[t][1][k], states[t][1][4+k] = -1, 1
				}
			}
			compared, kinks := b.checkGradient(players, states, 1e-4)
			if kinks > compared/10 {
				t.Errorf("%s: %d derivatives are near a kink, %d are not", name, kinks, compared)
			}
			p, err := execute.CompileGradient(b.Graph, players)
			if err != nil {
				t.Fatal(err)
			}
			logits, slopes := b.gradient(p, players, states)
			for i := range states {
				if math.IsNaN(logits[i]) || slices.ContainsFunc(slopes[i], func(x float32) bool { return x-x != 0 }) {
					t.Errorf("%s: logit %v with the derivatives %v", name, logits[i], slopes[i])
				}
				for k, v := range states[i][1] {
					if slope := slopes[i][k]; v < 0 && slope != 0 && (name == "largest" || name == "LogSoftmax" || name == "largest of NaN") {
						t.Errorf("%s: element %d is hidden and has the derivative %v", name, k, slope)
					}
				}
			}
		}
	}
}

// A walk in which players switch a mask gives the outputs of Run. The layer after it is not
// updated, because sums that were NaN once would stay NaN.
func TestWalksOfInfiniteMasks(t *testing.T) {
	for _, compile := range []func(*graph.Graph, []graph.Value) (*execute.Program, error){execute.Compile, execute.CompileEager} {
		b := newBuilder(t, 8)
		x := b.AddInput("x", graph.Float, []int{60, 2})
		hidden := b.mask(x, -1.5)
		w := b.node("Softmax", nil, b.node("Where", nil, hidden, b.infinity(), x))
		y := b.node("Gemm", nil, b.node("Reshape", nil, w, b.ints(1, 120)), b.constant(120, 30))
		b.sum(b.node("Where", nil, b.node("IsNaN", nil, y), b.constant(1), y))
		p, err := compile(b.Graph, []graph.Value{x})
		if err != nil {
			t.Fatal(err)
		}
		f := newFollower(b, p)
		f.x = make([]float32, p.Players())
		for i := range f.x { // a walk begins where nothing is hidden
			f.x[i] = 1
		}
		f.check(t, 1e-5)
	}
}
