package model

import (
	"math"

	"shaver/internal/kernel"
)

// head is a model's network, packed for evaluation. Every architecture begins
// with one linear map of the row's embedding x0 (the first hidden layer, or the
// first cross layer's matrices and gates); its outputs are called pre. The rest
// of the network is a function of x0 and pre, so that a walk, in which one
// entry of x0 changes at a time, keeps pre by rank-one updates.
type head struct {
	kind      Kind
	players   int       // D
	first     []float32 // [D, width], packed
	firstBias []float32 // [width]
	mix       []mixStage
	cross     []stage // DCNv2: the cross layers after the first
	hidden    []stage // the MLP's layers, but for one that is in first
	output    []float32
	bias      float32
	parallel  bool // DCNv2: the output layer reads the cross layers' output too
	deep      bool // the MLP reads x0: its first layer is (the end of) first
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
	h := &head{kind: a.Kind, players: a.Players(), output: w.Output.Weight, parallel: a.Structure == Parallel}
	for l := range w.Hidden {
		h.hidden = append(h.hidden, pack(&w.Hidden[l]))
	}
	switch a.Kind {
	case FM:
		return h
	case DeepFM:
		h.deep = true
		h.first, h.firstBias = h.hidden[0].weight, h.hidden[0].bias
		h.hidden = h.hidden[1:]
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
		if h.parallel {
			h.deep = true
			h.first = besides(h.first, h.hidden[0].weight, h.players)
			h.firstBias = append(append([]float32{}, h.firstBias...), h.hidden[0].bias...)
			h.hidden = h.hidden[1:]
		}
	}
	h.bias = w.Output.Bias[0]
	return h
}

// besides joins two packed matrices of the same number of rows side by side.
func besides(a, b []float32, rows int) []float32 {
	wa, wb := len(a)/rows, len(b)/rows
	joined := make([]float32, 0, len(a)+len(b))
	for i := range rows {
		joined = append(joined, a[i*wa:(i+1)*wa]...)
		joined = append(joined, b[i*wb:(i+1)*wb]...)
	}
	return joined
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

// scratch is what one goroutine needs to run a head.
type scratch struct {
	pre   []float32 // [width] of first
	x     []float32 // [D], the running cross state
	inner []float32 // [experts*(rank+1)]
	tanh  []float32 // [experts*rank]
	z     []float32 // [D]
	a, b  []float32 // activations of two consecutive MLP layers
}

func (h *head) newScratch() *scratch {
	s := &scratch{pre: make([]float32, len(h.firstBias)), x: make([]float32, h.players), z: make([]float32, h.players)}
	if len(h.mix) > 0 {
		s.inner = make([]float32, len(h.firstBias))
		s.tanh = make([]float32, len(h.firstBias))
	}
	widest := len(h.firstBias) + h.players
	for _, l := range h.hidden {
		widest = max(widest, len(l.bias))
	}
	s.a, s.b = make([]float32, widest), make([]float32, widest)
	return s
}

// begin sets pre to the first linear map of x0.
func (h *head) begin(pre, x0 []float32) { kernel.Affine(pre, x0, h.first, h.firstBias) }

// finish returns the network's logit from x0 and its first linear map. It
// leaves both as they are.
func (h *head) finish(s *scratch, x0, pre []float32) float64 {
	var in []float32
	switch h.kind {
	case FM:
		return 0 // no network
	case DCNMix:
		in = h.mixLayers(s, x0, pre)
	case DCNv2:
		in = h.crossLayers(s, x0, pre[:h.players])
		pre = pre[h.players:]
	}
	logit, weights := float64(h.bias), h.output
	if h.parallel {
		logit += kernel.Dot(in, weights[:h.players])
		weights = weights[h.players:]
	}
	if h.deep {
		in = append(s.a[:0], pre...)
		kernel.ReLU(in)
	}
	return logit + kernel.Dot(h.mlp(s, in), weights)
}

// mlp runs the hidden layers that are not in first. in may lie in s.a.
func (h *head) mlp(s *scratch, in []float32) []float32 {
	out, next := s.b, s.a
	for _, l := range h.hidden {
		out = out[:len(l.bias)]
		kernel.Affine(out, in, l.weight, l.bias)
		kernel.ReLU(out)
		in, out, next = out, next[:cap(next)], out
	}
	return in
}

// crossLayers runs DCNv2's cross layers, the first from its linear map.
func (h *head) crossLayers(s *scratch, x0, pre []float32) []float32 {
	x := s.x
	for i, v := range x0 {
		x[i] = v + float32(v*pre[i])
	}
	for _, l := range h.cross {
		kernel.Affine(s.z, x, l.weight, l.bias)
		for i, v := range x0 {
			x[i] += float32(v * s.z[i])
		}
	}
	return x
}

// mixLayers runs DCN-Mix's cross layers, the first from its V and gates. The
// gate of an expert scales its low-rank vector, so that one product with U
// serves all experts.
func (h *head) mixLayers(s *scratch, x0, pre []float32) []float32 {
	x := s.x
	copy(x, x0)
	for l := range h.mix {
		layer := &h.mix[l]
		inner := pre
		if l > 0 {
			clear(s.inner)
			kernel.AddProduct(s.inner, x, layer.inner)
			inner = s.inner
		}
		experts := len(layer.c)
		rank := len(inner)/experts - 1
		low, gates := s.a[:experts*rank], inner[experts*rank:]
		tanh(low, inner[:experts*rank])
		gateSum := float32(0)
		for k, gate := range gates {
			out := s.tanh[k*rank : (k+1)*rank]
			clear(out)
			kernel.AddProduct(out, low[k*rank:(k+1)*rank], layer.c[k])
			tanh(out, out)
			for i := range out {
				out[i] *= gate
			}
			gateSum += gate
		}
		for i, b := range layer.bias {
			s.z[i] = gateSum * b
		}
		kernel.AddProduct(s.z, s.tanh[:experts*rank], layer.u)
		for i, v := range x0 {
			x[i] += float32(v * s.z[i])
		}
	}
	return x
}

// tiny is where activations are taken for 0. What they add vanishes in float32
// beside the x0 that the cross layers add it to; but products with them may be
// subnormal, which processors compute a hundred times slower, and trained DCN-Mix
// layers that have collapsed (weights of 1e-14) are full of them.
const tiny = 1.0 / (1 << 60)

// tanh sets y to the hyperbolic tangents of x, each rounded from float64.
func tanh(y, x []float32) {
	for i, v := range x {
		t := float32(math.Tanh(float64(v)))
		if t < tiny && t > -tiny {
			t = 0
		}
		y[i] = t
	}
}
