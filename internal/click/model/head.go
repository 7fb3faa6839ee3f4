package model

import (
	"sync"

	"shaver/internal/num/kernel"
)

// head is the network of a model, packed for evaluation. It has a cross part (DCN-Mix and
// DCNv2) and an MLP (all except FM). Either part may read the row's embedding x0. During
// a walk, one entry of x0 changes at a time, so rank-one updates keep the first linear
// map of such a part current. The outputs of this map are called pre.
type head struct {
	kind    Kind
	players int // D, the number of players of a row

	// The cross part; empty for FM, DeepFM, WideDeep and NeuMF.
	first       *kernel.RowMatrix // linear map of the first cross layer
	firstBias   []float32         // bias of first, padded
	mix         []mixStage
	cross       []*kernel.Outputs // DCNv2
	crossOutput []float32         // [D], the output layer's weights of the cross layers' output; parallel DCNv2 only

	// The MLP; empty for FM.
	deep     *kernel.RowMatrix // the first layer, if it reads x0
	deepBias []float32         // bias of deep, padded
	stacked  *kernel.Outputs   // the first layer, if it reads the cross layers' output
	layers   []*kernel.Matrix  // each with ReLU after it; the first layer is missing if it is stacked
	output   []float32         // [width of the last layer], weights of the output layer
	bias     float32

	transposed func() *transposedHead // weights for derivatives, made at the first call
}

// mixStage is one DCN-Mix cross layer.
type mixStage struct {
	inner *kernel.Outputs   // D to experts*rank + experts: V of every expert, then the gates
	c     []*kernel.Outputs // rank to rank, one per expert
	u     *kernel.Outputs   // experts*rank + 1 to D: U of every expert, then the bias
}

// newHead packs the network's weights.
func newHead(a *Architecture, w *Weights) *head {
	h := &head{kind: a.Kind, players: a.Players(), output: w.Output.Weight}
	h.transposed = sync.OnceValue(func() *transposedHead { return newTransposedHead(a, w) })
	if a.Kind == FM {
		return h
	}
	h.bias = w.Output.Bias[0]
	hidden := w.Hidden
	if a.CrossLayers == 0 || a.Structure == Parallel {
		h.deep, h.deepBias = packRows(&hidden[0])
	} else {
		h.stacked = packOutputs(&hidden[0])
		hidden = hidden[1:]
	}
	for l := range hidden {
		h.layers = append(h.layers, kernel.NewMatrix(hidden[l].Weight, hidden[l].Bias, hidden[l].In, hidden[l].Out))
	}
	for l := range w.Mix {
		h.mix = append(h.mix, packMix(a, w.Gates, &w.Mix[l]))
	}
	for l := range w.Cross {
		h.cross = append(h.cross, packOutputs(&w.Cross[l]))
	}
	switch a.Kind {
	case DCNMix:
		first := Linear{In: h.players, Out: a.Experts * (a.Rank + 1), Weight: mixInner(a, w.Gates, &w.Mix[0])}
		h.first, h.firstBias = packRows(&first)
	case DCNv2:
		h.first, h.firstBias = packRows(&w.Cross[0])
	}
	if a.Structure == Parallel {
		h.crossOutput, h.output = h.output[:h.players], h.output[h.players:]
	}
	return h
}

func packOutputs(l *Linear) *kernel.Outputs {
	return kernel.NewOutputs(l.Weight, l.Bias, l.In, l.Out)
}

// packRows returns a layer packed for walks, and its padded bias.
func packRows(l *Linear) (*kernel.RowMatrix, []float32) {
	bias := make([]float32, kernel.Pad(l.Out))
	copy(bias, l.Bias)
	return kernel.NewRowMatrix(l.Weight, l.In, l.Out), bias
}

// mixInner returns V of every expert, then the gates, [experts*rank + experts, D].
func mixInner(a *Architecture, gates []float32, layer *MixLayer) []float32 {
	players := a.Players()
	inner := make([]float32, 0, a.Experts*(a.Rank+1)*players)
	for k := range a.Experts {
		inner = append(inner, kernel.Pack(layer.V[k*players*a.Rank:(k+1)*players*a.Rank], a.Rank, players)...)
	}
	return append(inner, gates...)
}

func packMix(a *Architecture, gates []float32, layer *MixLayer) mixStage {
	players, rank, vectors := a.Players(), a.Rank, a.Experts*a.Rank
	s := mixStage{inner: kernel.NewOutputs(mixInner(a, gates, layer), nil, players, vectors+a.Experts)}
	for k := range a.Experts {
		c := kernel.Pack(layer.C[k*rank*rank:(k+1)*rank*rank], rank, rank)
		s.c = append(s.c, kernel.NewOutputs(c, nil, rank, rank))
	}
	u := make([]float32, 0, players*(vectors+1))
	for p := range players {
		for r := range vectors {
			u = append(u, layer.U[r*players+p])
		}
		u = append(u, layer.Bias[p])
	}
	s.u = kernel.NewOutputs(u, nil, vectors+1, players)
	return s
}
