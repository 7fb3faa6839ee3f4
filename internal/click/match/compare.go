package match

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"shaver/internal/click/model"
	"shaver/internal/onnx/graph"
)

// tolerance bounds the difference of two logits, relative to the largest logit or 1.
const tolerance = 1e-4

// Model returns the weights of n for fields with the given sizes. table has the embeddings
// and firstOrder the first-order weights; firstOrder is not read if n has none.
func (n *Network) Model(fieldDims []int, table, firstOrder []float32) (*model.Model, error) {
	w := model.Weights{Embedding: table, Bias: n.Bias, Linear: n.Linear, Output: n.Output, Cross: n.Cross}
	if n.FirstOrder != nil {
		w.FirstOrder = firstOrder
	}
	for _, l := range n.Hidden {
		if b := l.Norm; b != nil {
			w.Hidden = append(w.Hidden, model.FoldBatchNorm(l.Linear, b.Gamma, b.Beta, b.Mean, b.Variance))
		} else {
			w.Hidden = append(w.Hidden, l.Linear)
		}
	}
	return model.New(n.Architecture(fieldDims), w)
}

// Architecture returns the architecture of n for fields with the given sizes.
func (n *Network) Architecture(fieldDims []int) model.Architecture {
	a := model.Architecture{Kind: n.Kind, FieldDims: fieldDims, Dim: n.Dim, CrossLayers: len(n.Cross), Structure: n.Structure}
	for _, l := range n.Hidden {
		a.Hidden = append(a.Hidden, l.Out)
	}
	return a
}

// compare evaluates g and n on rows of the tables and on as many random rows.
func (n *Network) compare(g *graph.Graph, lookUps []LookUp) error {
	const rows = 2 * Samples
	r := rand.New(rand.NewPCG(1, 2))
	values := make([][]float32, len(lookUps)) // [rows, dim]
	for k, l := range lookUps {
		squares := 0.0
		for _, v := range l.Sample {
			squares += float64(v) * float64(v)
		}
		scale := max(math.Sqrt(squares/float64(len(l.Sample))), 0.01)
		values[k] = append(values[k], l.Sample...)
		for range len(l.Sample) {
			values[k] = append(values[k], float32(r.NormFloat64()*scale))
		}
	}
	var table, firstOrder []float32
	dims := make([]int, len(n.Embedding))
	for j, k := range n.Embedding {
		dims[j] = rows
		table = append(table, values[k]...)
		sums := make([]float32, rows)
		for o, f := range n.FirstOrder {
			if lookUps[o].Field == j && f != 0 {
				for i := range sums {
					sums[i] += float32(f * float64(values[o][i]))
				}
			}
		}
		firstOrder = append(firstOrder, sums...)
	}
	m, err := n.Model(dims, table, firstOrder)
	if err != nil {
		return err
	}
	batch := &model.Rows{Width: len(dims)}
	for i := range rows {
		batch.Number, batch.Label = append(batch.Number, int64(i)), append(batch.Label, 0)
		for j := range dims {
			batch.Features = append(batch.Features, int32(j*rows+i))
		}
	}
	got, want := make([]float64, rows), make([]float64, rows)
	m.NewScorer().Logits(got, batch)
	inputs := make([]*graph.Tensor, len(lookUps))
	largest := 1.0
	for i := range rows {
		for k, l := range lookUps {
			dim := len(values[k]) / rows
			inputs[k] = &graph.Tensor{Type: graph.Float, Shape: g.Values[l.Value].Shape, Floats: values[k][i*dim : (i+1)*dim]}
		}
		out, err := g.Run(inputs)
		if err != nil {
			return err
		}
		if out.Type != graph.Float || out.Len() != 1 {
			return errors.New("its output is not one number")
		}
		want[i] = float64(out.Floats[0])
		largest = max(largest, math.Abs(want[i]))
	}
	for i := range rows {
		if !(math.Abs(got[i]-want[i]) <= tolerance*largest) {
			return fmt.Errorf("it looks like a %s, but has the logit %v where that has %v", n.Kind, want[i], got[i])
		}
	}
	return nil
}
