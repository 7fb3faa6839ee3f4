package train

import (
	"fmt"
	"math"

	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
	"shaver/internal/num/random"
)

// hidden is a layer of an MLP: linear, BatchNorm if there is one, ReLU, and dropout.
type hidden struct {
	*linear
	norm        *model.Norm // or nil
	gamma, beta *tensor     // of norm
	number      int         // of the layer
	y, h        kernel.Tile // output of linear; activations
	keep        []uint64    // [rows, words], the units that dropout keeps
	words       int
	// BatchNorm in this batch is h = scale*y + offset, with inverse = 1/sqrt(variance+epsilon).
	mean, inverse, scale, offset []float32
	sum, product                 []float32
	sums                         *sums
	double                       *sums // of two vectors
}

func newHidden(number int, l model.Linear, n *model.Norm, rows int) *hidden {
	name := fmt.Sprintf("hidden.%d", number)
	h := &hidden{linear: newLinear(name, l, rows), norm: n, number: number, y: newTile(rows, l.Out), h: newTile(rows, l.Out), words: (l.Out + 63) / 64}
	h.keep = make([]uint64, rows*h.words)
	for _, v := range []*[]float32{&h.mean, &h.inverse, &h.scale, &h.offset, &h.sum, &h.product} {
		*v = make([]float32, l.Out)
	}
	h.sums, h.double = newSums(rows, l.Out), newSums(rows, 2*l.Out)
	if n != nil {
		h.gamma, h.beta = newVector(name+".gamma", n.Gamma), newVector(name+".beta", n.Beta)
	} else {
		for o := range h.scale {
			h.scale[o] = 1
		}
	}
	return h
}

func (h *hidden) tensors() []*tensor {
	all := h.linear.tensors()
	if h.norm != nil {
		all = append(all, h.gamma, h.beta)
	}
	return all
}

// dropout decides which units are kept. The draws of a row depend on the row's number and
// the epoch only.
type dropout struct {
	seed   uint64
	drop   float64 // probability
	layers int
	epoch  int
	number []int64 // of the batch's rows
}

// forward computes the activations of a batch from x, and moves the running statistics.
func (h *hidden) forward(x kernel.Tile, rows int, d *dropout) {
	h.linear.forward(h.y, x, rows)
	if h.norm != nil {
		h.normalize(rows)
	}
	gain := float32(1)
	if d.drop > 0 {
		gain = float32(1 / (1 - d.drop))
	}
	parts(rows, chunkRows, func(from, to int) {
		for t := from; t < to; t++ {
			var keep []uint64
			if d.drop > 0 {
				keep = h.keep[t*h.words:][:h.words]
				stream := random.At(d.seed, random.Dropout, uint64(d.number[t]), uint64(d.epoch*d.layers+h.number))
				stream.Coins(keep, h.out, uint64((1-d.drop)*(1<<16))<<48)
			}
			kernel.Activate(h.h.Row(t)[:h.out], h.y.Row(t), h.scale, h.offset, keep, gain)
		}
	})
}

// normalize computes BatchNorm's statistics of the batch, and moves the running ones.
func (h *hidden) normalize(rows int) {
	n := h.norm
	round(h.mean, h.sums.add(rows, func(sum []float32, from, to int) { kernel.AddRows(sum, h.y, from, to) }), 1/float64(rows))
	squares := h.sums.add(rows, func(sum []float32, from, to int) { kernel.AddSquares(sum, h.mean, h.y, from, to) })
	for o, s := range squares {
		inverse := 1 / math.Sqrt(s/float64(rows)+model.BatchNormEpsilon)
		scale := float64(n.Gamma[o]) * inverse
		h.inverse[o], h.scale[o] = float32(inverse), float32(scale)
		h.offset[o] = float32(float64(n.Beta[o]) - float64(scale*float64(h.mean[o])))
		unbiased := s / float64(rows-1)
		n.Mean[o] = float32(float64((1-model.BatchNormMomentum)*float64(n.Mean[o])) + float64(model.BatchNormMomentum*float64(h.mean[o])))
		n.Variance[o] = float32(float64((1-model.BatchNormMomentum)*float64(n.Variance[o])) + float64(model.BatchNormMomentum*unbiased))
	}
	n.Batches++
}

// backward computes the gradients of the weights from g, the gradient of h.h, which it
// overwrites, and from the inputs x. It writes the gradient of x to dx, unless dx has no
// memory.
func (h *hidden) backward(dx, g, x kernel.Tile, rows int, d *dropout) {
	gain := float32(1)
	if d.drop > 0 {
		gain = float32(1 / (1 - d.drop))
	}
	total := h.double.add(rows, func(sum []float32, from, to int) {
		for t := from; t < to; t++ {
			kernel.Deactivate(g.Row(t)[:h.out], h.h.Row(t), h.y.Row(t), h.mean, h.inverse, gain, sum[:h.out], sum[h.out:])
		}
	})
	if h.norm == nil {
		round(h.bias.gradient, total[:h.out], 1)
	} else {
		round(h.beta.gradient, total[:h.out], 1)
		round(h.gamma.gradient, total[h.out:], 1)
		round(h.sum, total[:h.out], 1/float64(rows))
		round(h.product, total[h.out:], 1/float64(rows))
		parts(rows, chunkRows, func(from, to int) {
			for t := from; t < to; t++ {
				kernel.Denormalize(g.Row(t)[:h.out], h.y.Row(t), h.mean, h.inverse, h.scale, h.sum, h.product)
			}
		})
		// BatchNorm removes what the bias adds, so its gradient is 0.
	}
	h.linear.backward(dx, g, x, rows)
}
