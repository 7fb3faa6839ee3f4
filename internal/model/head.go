package model

import "shaver/internal/kernel"

// head is a model's network, packed for evaluation. It has a cross part (DCN-Mix,
// DCNv2) and an MLP (all but FM). Either may read the row's embedding x0; the
// first linear map of one that does is kept up by rank-one updates during a walk,
// in which one entry of x0 changes at a time: its outputs are called pre.
type head struct {
	kind    Kind
	players int // D

	// the cross part; none for FM and DeepFM
	first       []float32 // [D, width], packed: the first cross layer's matrices and gates
	firstBias   []float32 // [width]
	mix         []mixStage
	cross       []stage   // DCNv2: the cross layers after the first
	crossOutput []float32 // [D]; DCNv2 in parallel, whose output layer reads the cross layers' output too

	// the MLP; none for FM
	deep   *kernel.Rows     // layers[0] once more, if it reads x0
	layers []*kernel.Matrix // ReLU after each
	begins []float32        // layers[0]'s bias, padded
	output []float32        // [last layer's width]
	bias   float32
}

// stage is one packed linear layer.
type stage struct {
	weight []float32 // [in, out]
	bias   []float32 // [out]
}

// mixStage is one DCN-Mix cross layer. The first one's inner is in head.first.
type mixStage struct {
	inner []float32   // [D, experts*rank + experts]: V of every expert, then the gates
	c     [][]float32 // per expert [rank, rank]
	u     []float32   // [experts*rank, D]
	bias  []float32   // [D]
}

func pack(l *Linear) stage { return stage{kernel.Pack(l.Weight, l.In, l.Out), l.Bias} }

// newHead packs the network's weights.
func newHead(a *Architecture, w *Weights) *head {
	h := &head{kind: a.Kind, players: a.Players(), output: w.Output.Weight}
	if a.Kind == FM {
		return h
	}
	h.bias = w.Output.Bias[0]
	for l := range w.Hidden {
		h.layers = append(h.layers, kernel.NewMatrix(w.Hidden[l].Weight, w.Hidden[l].Bias, w.Hidden[l].In, w.Hidden[l].Out))
	}
	switch a.Kind {
	case DCNMix:
		for l := range w.Mix {
			h.mix = append(h.mix, packMix(a, w.Gates, &w.Mix[l]))
		}
		h.first = h.mix[0].inner
		h.firstBias = make([]float32, a.Experts*(a.Rank+1))
	case DCNv2:
		for l := range w.Cross {
			h.cross = append(h.cross, pack(&w.Cross[l]))
		}
		h.first, h.firstBias = h.cross[0].weight, h.cross[0].bias
		h.cross = h.cross[1:]
	}
	if a.Kind == DeepFM || a.Structure == Parallel {
		l := &w.Hidden[0]
		h.deep = kernel.NewRows(l.Weight, l.In, l.Out)
		h.begins = make([]float32, kernel.Pad(l.Out))
		copy(h.begins, l.Bias)
	}
	if a.Structure == Parallel {
		h.crossOutput, h.output = h.output[:h.players], h.output[h.players:]
	}
	return h
}

func packMix(a *Architecture, gates []float32, layer *MixLayer) mixStage {
	players, rank := a.Players(), a.Rank
	width := a.Experts * (rank + 1)
	s := mixStage{inner: make([]float32, players*width), u: layer.U, bias: layer.Bias}
	for k := range a.Experts {
		for i := range players {
			copy(s.inner[i*width+k*rank:], layer.V[(k*players+i)*rank:(k*players+i+1)*rank])
			s.inner[i*width+a.Experts*rank+k] = gates[k*players+i]
		}
		s.c = append(s.c, layer.C[k*rank*rank:(k+1)*rank*rank])
	}
	return s
}
