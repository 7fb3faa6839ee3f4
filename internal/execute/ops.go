package execute

import (
	"math"

	"shaver/internal/graph"
	"shaver/internal/kernel"
)

func add(out, a, b []float32) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = a[i] + b[i]
	}
}

func subtract(out, a, b []float32) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = a[i] - b[i]
	}
}

func multiply(out, a, b []float32) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = a[i] * b[i]
	}
}

func quotient(out, a, b []float32) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = a[i] / b[i]
	}
}

func maximum(out, a, b []float32) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = max(a[i], b[i])
	}
}

func minimum(out, a, b []float32) {
	a, b = a[:len(out)], b[:len(out)]
	for i := range out {
		out[i] = min(a[i], b[i])
	}
}

// perPair returns a function that applies f to each pair of elements.
func perPair(f func(a, b float32) float32) binary {
	return func(out, a, b []float32) {
		a, b = a[:len(out)], b[:len(out)]
		for i := range out {
			out[i] = f(a[i], b[i])
		}
	}
}

// perElement returns a function that applies f to each element.
func perElement(f func(x float32) float32) unary {
	return func(out, in []float32) {
		in = in[:len(out)]
		for i := range out {
			out[i] = f(in[i])
		}
	}
}

// in64 returns a function that computes in float64.
func in64(f func(x float64) float64) unary {
	return perElement(func(x float32) float32 { return float32(f(float64(x))) })
}

func truth(is bool) float32 {
	if is {
		return 1
	}
	return 0
}

// fixed is for operators without attributes.
func fixed(f unary) func(*graph.Node) unary { return func(*graph.Node) unary { return f } }

// pairs computes products of matrices that both differ from state to state.
type pairs struct {
	out         int32
	left, right []int32 // [batch, m, k] and [batch, n, k]
	batch, m, n, k int
}

func newPairs(out int32, left, right []int32, batch, m, n, k int) *pairs {
	return &pairs{out, left, right, batch, m, n, k}
}

func (s *pairs) run(arena kernel.Block, states int) {
	at := int(s.out)
	for b := range s.batch {
		for i := range s.m {
			left := s.left[(b*s.m+i)*s.k:][:s.k]
			for j := range s.n {
				right := s.right[(b*s.n+j)*s.k:][:s.k]
				out := arena.Element(at)
				clear(out)
				for k, l := range left {
					x, y := arena.Element(int(l)), arena.Element(int(right[k]))
					for t := range out {
						out[t] += float32(x[t] * y[t])
					}
				}
				at++
			}
		}
	}
}

func sigmoid(x float64) float64 {
	if x >= 0 {
		return 1 / (1 + math.Exp(-x))
	}
	e := math.Exp(x)
	return e / (1 + e)
}

func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }
