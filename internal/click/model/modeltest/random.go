// Package modeltest makes random models and rows for tests, and computes reference logits
// in float64.
package modeltest

import (
	"math"
	"math/rand/v2"
	"testing"

	"shaver/internal/click/model"
)

// Architectures returns one small architecture of each kind and structure.
func Architectures() map[string]model.Architecture {
	dims := []int{4, 3, 5}
	return map[string]model.Architecture{
		"fm":              {Kind: model.FM, FieldDims: dims, Dim: 3},
		"deepfm":          {Kind: model.DeepFM, FieldDims: dims, Dim: 3, Hidden: []int{7, 5}},
		"deepfm-one":      {Kind: model.DeepFM, FieldDims: dims, Dim: 2, Hidden: []int{6}},
		"widedeep":        {Kind: model.WideDeep, FieldDims: dims, Dim: 3, Hidden: []int{6, 4}},
		"neumf":           {Kind: model.NeuMF, FieldDims: []int{4, 5}, Dim: 4, Hidden: []int{6, 4}},
		"dcn-mix":         {Kind: model.DCNMix, FieldDims: dims, Dim: 2, Hidden: []int{6, 4}, CrossLayers: 3, Experts: 2, Rank: 3},
		"dcnv2-stacked":   {Kind: model.DCNv2, FieldDims: dims, Dim: 3, Hidden: []int{6, 4}, CrossLayers: 2, Structure: model.Stacked},
		"dcnv2-parallel":  {Kind: model.DCNv2, FieldDims: dims, Dim: 3, Hidden: []int{6, 4}, CrossLayers: 2, Structure: model.Parallel},
		"dcnv2-one-layer": {Kind: model.DCNv2, FieldDims: dims, Dim: 2, Hidden: []int{5}, CrossLayers: 1, Structure: model.Parallel},
	}
}

// LookUps returns the layout of a model with three fields of 2, 3 and 4 features. Field 1
// has two tables. Fields 0 and 2 share a table, in which field 2 comes first.
func LookUps() model.Architecture {
	return model.Architecture{
		FieldDims: []int{2, 3, 4},
		Tables:    []model.Table{{Name: "narrow", Rows: 3, Dim: 1}, {Name: "joint", Rows: 6, Dim: 2}, {Name: "wide", Rows: 3, Dim: 4}},
		LookUps:   []model.LookUp{{Field: 2, Table: 1}, {Field: 1, Table: 2}, {Field: 0, Table: 1, Offset: 4}, {Field: 1, Table: 0}},
	}
}

// Weights returns random weights for a. Their scale is such that players change logits by
// several units.
func Weights(a model.Architecture, seed uint64) model.Weights {
	r := rand.New(rand.NewPCG(seed, 0))
	vector := func(n int, scale float64) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64() * scale)
		}
		return v
	}
	linear := func(in, out int) model.Linear {
		return model.Linear{In: in, Out: out, Weight: vector(in*out, 1.5/math.Sqrt(float64(in))), Bias: vector(out, 0.3)}
	}
	players := a.Players()
	w := model.Weights{Embedding: vector(a.Parameters(), 0.7)}
	if a.Wide() {
		w.FirstOrder, w.Bias = vector(a.Features(), 0.3), float32(r.NormFloat64())
	}
	if a.Kind == model.WideDeep { // any kind may have them
		w.Linear = vector(players, 0.5)
	}
	for range a.CrossLayers {
		switch a.Kind {
		case model.DCNMix:
			scale := 1 / math.Sqrt(float64(players))
			w.Mix = append(w.Mix, model.MixLayer{
				U: vector(a.Experts*a.Rank*players, 0.5), C: vector(a.Experts*a.Rank*a.Rank, 0.7),
				V: vector(a.Experts*players*a.Rank, scale), Bias: vector(players, 0.2),
			})
		case model.DCNv2:
			w.Cross = append(w.Cross, linear(players, players))
		}
	}
	if a.Kind == model.DCNMix {
		w.Gates = vector(a.Experts*players, 0.4)
	}
	in := players
	for _, out := range a.Hidden {
		w.Hidden = append(w.Hidden, linear(in, out))
		in = out
	}
	if a.Kind == model.NeuMF {
		w.Product, w.Bias = vector(a.Dim/2, 1), float32(r.NormFloat64())
		for i := range w.Hidden[0].Weight {
			if i%a.Dim >= a.Dim/2 {
				w.Hidden[0].Weight[i] = 0
			}
		}
	}
	if a.Structure == model.Parallel {
		in += players
	}
	if a.Kind != model.FM {
		w.Output = linear(in, 1)
	}
	return w
}

// Random returns a model of architecture a with Weights(a, seed).
func Random(t testing.TB, a model.Architecture, seed uint64) *model.Model {
	t.Helper()
	m, err := model.New(a, Weights(a, seed))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Rows returns n random rows that fit a, with its dense inputs.
func Rows(a model.Architecture, n int, seed uint64) *model.Rows {
	r := rand.New(rand.NewPCG(seed, 1))
	rows := &model.Rows{Width: a.Width(), Inputs: len(a.Dense)}
	offsets, lengths := a.Offsets(), a.Lengths()
	for i := range n {
		rows.Number = append(rows.Number, int64(i))
		rows.Label = append(rows.Label, float32(r.IntN(2)))
		for j, size := range a.FieldDims {
			for range lengths[j] {
				rows.Features = append(rows.Features, offsets[j]+int32(r.IntN(size)))
			}
		}
	}
	for range n * rows.Inputs {
		rows.Dense = append(rows.Dense, float32(r.NormFloat64()))
	}
	return rows
}

// Words returns a random baseline of a in which each span has at most most words.
func Words(a *model.Architecture, most int, seed uint64) model.Baseline {
	r, b := rand.New(rand.NewPCG(seed, 2)), a.Zero()
	for _, s := range a.Spans() {
		n := 1 + r.IntN(most)
		b.Words, b.Values = append(b.Words, n), append(b.Values, make([]float32, (n-1)*s.Dim)...)
		for range s.Rows {
			b.Numbers = append(b.Numbers, uint8(r.IntN(n)))
		}
	}
	for i := range b.Values {
		b.Values[i] = float32(r.NormFloat64() * .5)
	}
	for _, s := range a.Spans() {
		for _, other := range s.Sharers {
			copy(b.Values[other.Baseline:][:s.Dim], b.Values[s.Baseline:])
		}
	}
	return b
}
