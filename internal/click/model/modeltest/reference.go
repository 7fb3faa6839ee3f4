package modeltest

import (
	"math"
	"math/rand/v2"
	"slices"

	"shaver/internal/click/model"
)

// Logit computes the logit of one row with the embedding x, [D], in float64, directly
// from the formulas of the papers. It shares no code with package model and is slow.
func Logit(a *model.Architecture, w *model.Weights, row []int32, x []float64) float64 {
	logit := float64(w.Bias)
	for _, f := range row {
		if w.FirstOrder != nil {
			logit += float64(w.FirstOrder[f])
		}
	}
	for i, v := range w.Linear {
		logit += float64(v) * x[i]
	}
	if a.Kind == model.FM || a.Kind == model.DeepFM {
		for j := range a.Fields() {
			for k := range j {
				for c := range a.Dim {
					logit += x[j*a.Dim+c] * x[k*a.Dim+c]
				}
			}
		}
	}
	if a.Kind == model.FM {
		return logit
	}
	for c, v := range w.Product {
		column := a.Dim/2 + c
		logit += float64(v) * x[column] * x[a.Dim+column]
	}
	crossed := Crossed(a, w, x)
	in := crossed
	if a.Structure == model.Parallel {
		in = x
	}
	for l := range w.Hidden {
		in = linear(in, &w.Hidden[l])
		for i := range in {
			in[i] = math.Max(in[i], 0)
		}
	}
	if a.Structure == model.Parallel {
		in = slices.Concat(crossed, in)
	}
	return logit + linear(in, &w.Output)[0]
}

func linear(x []float64, l *model.Linear) []float64 {
	y := make([]float64, l.Out)
	for o := range y {
		y[o] = float64(l.Bias[o])
		for i, v := range x {
			y[o] += v * float64(l.Weight[o*l.In+i])
		}
	}
	return y
}

// Crossed returns the output of the cross layers in float64, or a copy of x if the model has
// no cross layers.
func Crossed(a *model.Architecture, w *model.Weights, x []float64) []float64 {
	out := slices.Clone(x)
	for l := range w.Mix {
		out = mix(a, w.Gates, &w.Mix[l], x, out)
	}
	for l := range w.Cross {
		for i, z := range linear(out, &w.Cross[l]) {
			out[i] += x[i] * z
		}
	}
	return out
}

// mix returns the output of one DCN-Mix layer with input in. x is x0.
func mix(a *model.Architecture, gates []float32, layer *model.MixLayer, x, in []float64) []float64 {
	players := len(x)
	out := slices.Clone(in)
	for k := range a.Experts {
		gate := 0.0
		low, mid := make([]float64, a.Rank), make([]float64, a.Rank)
		for i, v := range in {
			gate += v * float64(gates[k*players+i])
			for r := range low {
				low[r] += v * float64(layer.V[(k*players+i)*a.Rank+r])
			}
		}
		for q := range low {
			low[q] = math.Tanh(low[q])
			for r := range mid {
				mid[r] += low[q] * float64(layer.C[(k*a.Rank+q)*a.Rank+r])
			}
		}
		for r := range mid {
			mid[r] = math.Tanh(mid[r])
		}
		for i := range out {
			u := float64(layer.Bias[i])
			for r := range mid {
				u += mid[r] * float64(layer.U[(k*a.Rank+r)*players+i])
			}
			out[i] += gate * x[i] * u
		}
	}
	return out
}

// Calibrated returns a model with random weights, and a baseline. In each hidden layer,
// the given share of units is active over the states of walks of random rows. The
// baseline is 0 if zero is set; otherwise its values are drawn from the embedding.
func Calibrated(a model.Architecture, active float64, zero bool) (*model.Model, model.Baseline) {
	w := Weights(a, 1)
	for i := range w.Embedding {
		w.Embedding[i] *= 0.3
	}
	for l := range w.Mix { // like a trained model's weights
		for i := range w.Mix[l].U {
			w.Mix[l].U[i] *= float32(2 / math.Sqrt(float64(a.Experts*a.Rank)))
		}
	}
	for i := range w.Gates {
		w.Gates[i] /= float32(math.Sqrt(float64(a.Players())))
	}
	r := rand.New(rand.NewPCG(2, 2))
	baseline := a.Zero()
	for i := range baseline.Values {
		if !zero {
			baseline.Values[i] = w.Embedding[r.IntN(len(w.Embedding))]
		}
	}
	samples := 300
	if a.CrossLayers > 0 { // cross layers are slow in float64
		samples = 100
	}
	rows := Rows(a, samples, 7)
	states := make([][]float64, samples)
	for s := range states {
		x := make([]float64, a.Players())
		present := r.Float64()
		for i := range x {
			x[i] = float64(baseline.Values[i])
			if r.Float64() < present {
				x[i] = float64(w.Embedding[int(rows.Row(s)[i/a.Dim])*a.Dim+i%a.Dim])
			}
		}
		if a.Structure != model.Parallel {
			x = Crossed(&a, &w, x)
		}
		states[s] = x
	}
	for l := range w.Hidden {
		calibrate(&w.Hidden[l], states, active)
	}
	m, err := model.New(a, w)
	if err != nil {
		panic(err)
	}
	return m, baseline
}

// calibrate sets the biases of a layer so that the given share of units is active. It
// replaces the states by the layer's output.
func calibrate(l *model.Linear, states [][]float64, active float64) {
	clear(l.Bias)
	for s := range states {
		states[s] = linear(states[s], l)
	}
	column := make([]float64, len(states))
	for o := range l.Out {
		for s := range states {
			column[s] = states[s][o]
		}
		slices.Sort(column)
		l.Bias[o] = float32(-column[int(float64(len(column))*(1-active))])
		for s := range states {
			states[s][o] = math.Max(0, states[s][o]+float64(l.Bias[o]))
		}
	}
}
