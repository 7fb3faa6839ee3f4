package model

import (
	"errors"
	"fmt"
	"math"
)

// BatchNormEpsilon is PyTorch's default. All reference models use it.
const BatchNormEpsilon = 1e-5

// Linear is the layer y = x W' + b, stored as in PyTorch: Weight is [Out, In], row-major,
// and Bias is [Out].
type Linear struct {
	In, Out int
	Weight  []float32
	Bias    []float32
}

// MixLayer is one cross layer of DCN-Mix:
//
//	x' = x + sum over k of (x . g_k) * (x_0 * (tanh(tanh(x V_k) C_k) U_k + b))
//
// g_k are the gates, which all layers share.
type MixLayer struct {
	U    []float32 // [Experts, Rank, D]
	C    []float32 // [Experts, Rank, Rank]
	V    []float32 // [Experts, D, Rank]
	Bias []float32 // [D]
}

// Weights are the numbers of a model. BatchNorm is already folded into the linear layers.
// The Architecture determines which fields are set.
type Weights struct {
	Embedding  []float32  // [Parameters], the tables one after another, [Features, Dim] if there is a single one: the players of the whole game; nil with NewWithEmbedder
	FirstOrder []float32  // [Features]; nil if the model has none, but an FM must have them. These are not players: never dropped and never counted
	Bias       float32    // bias of the whole logit
	Linear     []float32  // [D], weights of the entries themselves in the logit; nil in a model without them
	Hidden     []Linear   // the MLP's hidden layers, ReLU after each; in a NeuMF the first one is that of Widen
	Product    []float32  // [d/2], weights of the products of the GMF columns; NeuMF
	Output     Linear     // maps the last hidden layer to one logit; in a parallel DCNv2 its first D inputs are the cross layers' output
	Gates      []float32  // [Experts, D]; DCN-Mix, shared by all cross layers
	Mix        []MixLayer // DCN-Mix
	Cross      []Linear   // DCNv2: x' = x + x_0 * (W x + b)
	Graph      *GraphHead // Graph, which has none of the other weights except Embedding
}

// FoldBatchNorm returns a linear layer that computes BatchNorm(l(x)) in evaluation mode,
// which is gamma * (l(x) - mean) / sqrt(variance + BatchNormEpsilon) + beta. Each vector
// has length l.Out. FoldBatchNorm computes in float64. The result shares no memory with
// l.
func FoldBatchNorm(l Linear, gamma, beta, mean, variance []float32) Linear {
	folded := Linear{l.In, l.Out, make([]float32, len(l.Weight)), make([]float32, l.Out)}
	for o := range l.Out {
		scale := float64(gamma[o]) / math.Sqrt(float64(variance[o])+BatchNormEpsilon)
		for i := o * l.In; i < (o+1)*l.In; i++ {
			folded.Weight[i] = float32(float64(l.Weight[i]) * scale)
		}
		folded.Bias[o] = float32((float64(l.Bias[o])-float64(mean[o]))*scale + float64(beta[o]))
	}
	return folded
}

// Widen returns the first hidden layer of a NeuMF with d columns as a layer that reads the
// whole embedding, [out, 2d]. l reads the MLP columns only, [out, d], the user's before the
// item's. The weights of the GMF columns are 0. The result shares the bias with l.
func Widen(l Linear) Linear {
	half := l.In / 2
	wide := Linear{2 * l.In, l.Out, make([]float32, 2*l.In*l.Out), l.Bias}
	for k := range 2 * l.Out {
		copy(wide.Weight[2*k*half:], l.Weight[k*half:(k+1)*half])
	}
	return wide
}

// checkProduct returns an error if the MLP of a NeuMF reads a GMF column.
func (w *Weights) checkProduct(a *Architecture) error {
	for i, v := range w.Hidden[0].Weight {
		if i%a.Dim >= a.Dim/2 && v != 0 {
			return fmt.Errorf("hidden layer 0 weight has the value %v at position %d: expected 0, because the MLP of a neumf reads only the first half of the columns", v, i)
		}
	}
	return nil
}

// check returns an error that names the first weight of w that has the wrong length for
// a, or is NaN or infinite. embedding states whether w must have an embedding.
func (w *Weights) check(a *Architecture, embedding bool) error {
	var err error
	has := func(name string, values []float32, want int) {
		if err != nil {
			return
		}
		if len(values) != want {
			err = fmt.Errorf("%s has %d values, expected %d for this %s", name, len(values), want, a.Kind)
			return
		}
		for i, v := range values {
			if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
				err = fmt.Errorf("%s has the value %v at position %d: weights must be finite", name, v, i)
				return
			}
		}
	}
	linear := func(name string, l *Linear, in, out int) {
		if err == nil && (l.In != in || l.Out != out) {
			err = fmt.Errorf("%s maps %d values to %d, expected %d to %d for this %s", name, l.In, l.Out, in, out, a.Kind)
		}
		has(name+" weight", l.Weight, in*out)
		has(name+" bias", l.Bias, out)
	}
	players := a.Players()
	if embedding {
		has("embedding", w.Embedding, a.Parameters())
	}
	if a.Kind == Graph {
		if err == nil && w.Graph == nil {
			err = errors.New("the model has no head")
		}
		if err == nil {
			err = w.Graph.check(a)
		}
		return err
	}
	has("bias", []float32{w.Bias}, 1)
	if a.Kind == FM || a.Wide() && w.Linear == nil || w.FirstOrder != nil {
		has("first-order weight", w.FirstOrder, a.Features())
	}
	if w.Linear != nil {
		has("linear weight", w.Linear, players)
	}
	if len(w.Hidden) != len(a.Hidden) || len(w.Mix)+len(w.Cross) != a.CrossLayers {
		return fmt.Errorf("weights have %d hidden and %d cross layers, the architecture has %d and %d",
			len(w.Hidden), len(w.Mix)+len(w.Cross), len(a.Hidden), a.CrossLayers)
	}
	if a.Kind == DCNMix {
		has("gates", w.Gates, a.Experts*players)
		for l := range w.Mix {
			mix := &w.Mix[l]
			has(fmt.Sprintf("cross layer %d U", l), mix.U, a.Experts*a.Rank*players)
			has(fmt.Sprintf("cross layer %d C", l), mix.C, a.Experts*a.Rank*a.Rank)
			has(fmt.Sprintf("cross layer %d V", l), mix.V, a.Experts*players*a.Rank)
			has(fmt.Sprintf("cross layer %d bias", l), mix.Bias, players)
		}
	}
	for l := range w.Cross {
		linear(fmt.Sprintf("cross layer %d", l), &w.Cross[l], players, players)
	}
	in := players
	for l := range w.Hidden {
		linear(fmt.Sprintf("hidden layer %d", l), &w.Hidden[l], in, a.Hidden[l])
		in = a.Hidden[l]
	}
	if a.Kind == NeuMF {
		has("product weight", w.Product, a.Dim/2)
		if err == nil {
			err = w.checkProduct(a)
		}
	}
	if a.Kind != FM {
		if a.Structure == Parallel {
			in += players
		}
		linear("output layer", &w.Output, in, 1)
	}
	return err
}
