package checkpoint

import (
	"math"

	"shaver/internal/click/model"
)

// logit computes the forward pass in float64 in the simplest way, straight from the
// papers' definitions, so that the goldens prove that every weight has the right role.
func logit(m *model.Model, features []int) float64 {
	d, players := m.Dim, m.Players()
	x := make([]float64, 0, players)
	for _, f := range features {
		for c := range d {
			x = append(x, float64(m.Weights.Embedding[f*d+c]))
		}
	}
	switch m.Kind {
	case model.FM, model.DeepFM:
		sum := float64(m.Weights.Bias)
		for _, f := range features {
			sum += float64(m.Weights.FirstOrder[f])
		}
		for c := range d {
			total, squares := 0.0, 0.0
			for j := range features {
				total += x[j*d+c]
				squares += x[j*d+c] * x[j*d+c]
			}
			sum += (total*total - squares) / 2
		}
		if m.Kind == model.DeepFM {
			sum += linear(m.Weights.Output, mlp(m, x))[0]
		}
		return sum
	case model.NeuMF:
		sum := float64(m.Weights.Bias) + linear(m.Weights.Output, mlp(m, x))[0]
		for c, w := range m.Weights.Product {
			sum += float64(w) * x[d/2+c] * x[d+d/2+c]
		}
		return sum
	case model.DCNMix:
		return linear(m.Weights.Output, mlp(m, mix(m, x)))[0]
	}
	crossed := x
	for _, l := range m.Weights.Cross {
		next := linear(l, crossed)
		for i := range next {
			next[i] = crossed[i] + x[i]*next[i]
		}
		crossed = next
	}
	if m.Structure == model.Parallel {
		return linear(m.Weights.Output, append(crossed, mlp(m, x)...))[0]
	}
	return linear(m.Weights.Output, mlp(m, crossed))[0]
}

func linear(l model.Linear, x []float64) []float64 {
	y := make([]float64, l.Out)
	for o := range y {
		y[o] = float64(l.Bias[o])
		for i, v := range x {
			y[o] += float64(l.Weight[o*l.In+i]) * v
		}
	}
	return y
}

func mlp(m *model.Model, x []float64) []float64 {
	for _, l := range m.Weights.Hidden {
		x = linear(l, x)
		for i := range x {
			x[i] = max(x[i], 0)
		}
	}
	return x
}

func mix(m *model.Model, first []float64) []float64 {
	players, rank := m.Players(), m.Rank
	x := first
	for _, l := range m.Weights.Mix {
		next := append([]float64(nil), x...)
		for k := range m.Experts {
			gate := 0.0
			low, inner := make([]float64, rank), make([]float64, rank)
			for i := range players {
				gate += x[i] * float64(m.Weights.Gates[k*players+i])
				for r := range rank {
					low[r] += x[i] * float64(l.V[(k*players+i)*rank+r])
				}
			}
			for r := range rank {
				for q := range rank {
					inner[r] += math.Tanh(low[q]) * float64(l.C[(k*rank+q)*rank+r])
				}
			}
			for i := range players {
				high := float64(l.Bias[i])
				for r := range rank {
					high += math.Tanh(inner[r]) * float64(l.U[(k*rank+r)*players+i])
				}
				next[i] += gate * first[i] * high
			}
		}
		x = next
	}
	return x
}
