package model

import (
	"sync"

	"shaver/internal/kernel"
)

// head is a model's network, packed for evaluation. It has a cross part (DCN-Mix,
// DCNv2) and an MLP (all but FM). Either may read the row's embedding x0; the
// first linear map of one that does is kept up by rank-one updates during a walk,
// in which one entry of x0 changes at a time: its outputs are called pre.
type head struct {
	kind    Kind
	players int // D

	// the cross part; none for FM and DeepFM
	first       *kernel.RowMatrix // the first cross layer's linear map
	firstBias   []float32         // its bias, padded
	mix         []mixStage
	cross       []*kernel.Outputs // DCNv2
	crossOutput []float32         // [D]; DCNv2 in parallel, whose output layer reads the cross layers' output too

	// the MLP; none for FM
	deep    *kernel.RowMatrix // the first layer, if it reads x0
	begins  []float32         // its bias, padded
	stacked *kernel.Outputs   // the first layer, if it reads the cross layers' output
	layers  []*kernel.Matrix  // ReLU after each; without the first one if that is stacked
	output  []float32         // [last layer's width]
	bias    float32

	transposed func() *transposedHead // made once, when derivatives are asked for
}

// mixStage is one DCN-Mix cross layer.
type mixStage struct {
	inner *kernel.Outputs   // D to experts*rank + experts: V of every expert, then the gates
	c     []*kernel.Outputs // per expert, rank to rank
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
	if a.Kind == DeepFM || a.Structure == Parallel {
		h.deep, h.begins = packRows(&hidden[0])
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

// packRows returns a layer for walks, and its padded bias.
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
