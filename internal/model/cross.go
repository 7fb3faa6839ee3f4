package model

import (
	"math"

	"shaver/internal/kernel"
)

// crossLayers runs DCNv2's cross layers, the first from its linear map.
func (s *tile) crossLayers(x0, pre []float32) []float32 {
	x := s.x
	for i, v := range x0 {
		x[i] = v + float32(v*pre[i])
	}
	for _, l := range s.h.cross {
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
func (s *tile) mixLayers(x0, pre []float32) []float32 {
	x := s.x
	copy(x, x0)
	for l := range s.h.mix {
		layer := &s.h.mix[l]
		inner := pre
		if l > 0 {
			clear(s.inner)
			kernel.AddProduct(s.inner, x, layer.inner)
			inner = s.inner
		}
		experts := len(layer.c)
		rank := len(inner)/experts - 1
		low, gates := s.low[:experts*rank], inner[experts*rank:]
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
