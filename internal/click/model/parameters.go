package model

import (
	"fmt"
	"math"
	"slices"
)

// BatchNormMomentum is PyTorch's default: the part of a running statistic that a batch
// replaces in training.
const BatchNormMomentum = .1

// Norm is a BatchNorm. Its vectors have an element for each unit.
type Norm struct {
	Gamma, Beta    []float32
	Mean, Variance []float32 // running statistics, which evaluation uses
	Batches        int64     // number of batches in the running statistics
}

// Parameters are the weights of a model as training changes them. In contrast to Weights,
// BatchNorm is not folded into the linear layers. The Architecture determines which fields
// are set, as in Weights. A model of Kind Graph has no Parameters.
type Parameters struct {
	Embedding  []float32 // [Features, Dim]
	FirstOrder []float32 // [Features], or nil
	Bias       []float32 // [1], or nil if the logit has no bias of its own
	Product    []float32 // [d/2]; NeuMF
	Hidden     []Linear  // in a NeuMF, the first layer reads only the MLP columns, [out, d], the user's before the item's
	Norms      []*Norm   // for each hidden layer, the BatchNorm between it and its ReLU, or nil
	Output     Linear
	Gates      []float32 // [Experts, D]
	Mix        []MixLayer
	Cross      []Linear
}

// Weights returns the weights that evaluate p, with BatchNorm folded into the linear
// layers, and with the first layer of a NeuMF as in Widen. They share the memory of everything
// else with p.
func (p *Parameters) Weights() Weights {
	w := Weights{Embedding: p.Embedding, FirstOrder: p.FirstOrder, Product: p.Product, Output: p.Output, Gates: p.Gates, Mix: p.Mix, Cross: p.Cross}
	if p.Bias != nil {
		w.Bias = p.Bias[0]
	}
	for l, hidden := range p.Hidden {
		if n := p.Norms[l]; n != nil {
			hidden = FoldBatchNorm(hidden, n.Gamma, n.Beta, n.Mean, n.Variance)
		}
		if l == 0 && p.Product != nil {
			hidden = Widen(hidden)
		}
		w.Hidden = append(w.Hidden, hidden)
	}
	return w
}

// Clone returns a deep copy of p.
func (p *Parameters) Clone() *Parameters {
	linear := func(l Linear) Linear { return Linear{l.In, l.Out, slices.Clone(l.Weight), slices.Clone(l.Bias)} }
	c := &Parameters{
		Embedding: slices.Clone(p.Embedding), FirstOrder: slices.Clone(p.FirstOrder), Bias: slices.Clone(p.Bias), Product: slices.Clone(p.Product),
		Output: linear(p.Output), Gates: slices.Clone(p.Gates),
	}
	for l, hidden := range p.Hidden {
		c.Hidden = append(c.Hidden, linear(hidden))
		var norm *Norm
		if n := p.Norms[l]; n != nil {
			norm = &Norm{slices.Clone(n.Gamma), slices.Clone(n.Beta), slices.Clone(n.Mean), slices.Clone(n.Variance), n.Batches}
		}
		c.Norms = append(c.Norms, norm)
	}
	for _, m := range p.Mix {
		c.Mix = append(c.Mix, MixLayer{slices.Clone(m.U), slices.Clone(m.C), slices.Clone(m.V), slices.Clone(m.Bias)})
	}
	for _, l := range p.Cross {
		c.Cross = append(c.Cross, linear(l))
	}
	return c
}

// Check returns an error that names the first of the parameters that does not fit a, or is
// NaN or infinite.
func (p *Parameters) Check(a *Architecture) error {
	if len(p.Norms) != len(p.Hidden) {
		return fmt.Errorf("parameters have %d hidden layers and %d places for a BatchNorm", len(p.Hidden), len(p.Norms))
	}
	for l, n := range p.Norms {
		if n == nil {
			continue
		}
		for _, v := range [][]float32{n.Gamma, n.Beta, n.Mean, n.Variance} {
			if len(v) != p.Hidden[l].Out {
				return fmt.Errorf("the BatchNorm of hidden layer %d has %d values, expected %d", l, len(v), p.Hidden[l].Out)
			}
			for i, x := range v { // a folded layer may be finite with an infinite variance
				if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
					return fmt.Errorf("the BatchNorm of hidden layer %d has the value %v at position %d: weights must be finite", l, x, i)
				}
			}
		}
	}
	if p.Bias != nil && len(p.Bias) != 1 {
		return fmt.Errorf("bias has %d values, expected 1", len(p.Bias))
	}
	w := p.Weights()
	return w.check(a, true)
}
