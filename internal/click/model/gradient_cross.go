package model

import (
	"slices"

	"shaver/internal/num/kernel"
)

// crossGradient evaluates cross layers for up to kernel.States states, and propagates
// derivatives back through them. It keeps the output of each layer. For one state, with
// dv for the derivative of the logit with respect to v and x[0] = x0, the formulas are
//
//	x[l+1] = x[l] + x0 * z[l]
//	dz[l] = x0 * dx[l+1]
//	dx0 += z[l] * dx[l+1]
//	dx[l] = dx[l+1] + J' dz[l], where J is the Jacobian of z[l] with respect to x[l]
type crossGradient struct {
	h          *head
	transposed *transposedHead
	all        []int32        // 0 ... D-1
	x          []kernel.Block // [D] each: x0, then each layer's output
	z          []kernel.Block // [D] for each layer
	mix        []mixStates    // one for each DCN-Mix layer
	unit       kernel.Block   // output of the MLP's first layer, if it is stacked
	output     []float64      // [States], what the cross layers add to the logit

	d, d0  kernel.Block // [D], derivatives with respect to the current cross state and to x0
	dz, t  kernel.Block // [D]
	zero   kernel.Block // [D]
	one    kernel.Block // [D]
	dMid   kernel.Block // DCN-Mix [experts*rank + 1]
	dLow   kernel.Block // DCN-Mix [rank]
	dInner kernel.Block // DCN-Mix [experts*(rank+1)]
}

// mixStates holds the intermediate results of a DCN-Mix layer.
type mixStates struct {
	inner kernel.Block // [experts*(rank+1)]: V of every expert, then the gates
	low   kernel.Block // [experts*rank], tanh of V's outputs
	pre   kernel.Block // [rank], C's output for one expert
	tanh  kernel.Block // [experts*rank], tanh of C's outputs
	mid   kernel.Block // [experts*rank + 1], tanh times the gates, then the sum of the gates
}

func newCrossGradient(h *head, transposed *transposedHead) *crossGradient {
	block := func() kernel.Block { return kernel.NewBlock(h.players) }
	c := &crossGradient{h: h, transposed: transposed, all: make([]int32, h.players), output: make([]float64, kernel.States),
		d: block(), d0: block(), dz: block(), t: block(), zero: block(), one: block()}
	for p := range c.all {
		c.all[p] = int32(p)
	}
	for i := range c.one {
		c.one[i] = 1
	}
	c.x = append(c.x, block())
	for range len(h.mix) + len(h.cross) {
		c.x, c.z = append(c.x, block()), append(c.z, block())
	}
	for l := range h.mix {
		inner, vectors := h.mix[l].inner.Out, h.mix[l].u.In-1
		c.mix = append(c.mix, mixStates{kernel.NewBlock(inner), kernel.NewBlock(vectors), kernel.NewBlock(h.mix[l].c[0].Out),
			kernel.NewBlock(vectors), kernel.NewBlock(vectors + 1)})
		if l == 0 {
			c.dMid, c.dLow, c.dInner = kernel.NewBlock(vectors+1), kernel.NewBlock(h.mix[l].c[0].In), kernel.NewBlock(inner)
		}
	}
	if h.stacked != nil {
		c.unit = kernel.NewBlock(h.stacked.Out)
	}
	return c
}

// forward evaluates n states. in holds their embeddings.
func (c *crossGradient) forward(in kernel.Tile, n int) {
	kernel.ToBlock(c.x[0], in, n, c.h.players)
	for l := range c.z {
		if c.mix != nil {
			c.mixForward(l, n)
		} else {
			c.h.cross[l].Product(c.z[l], c.x[l], n, nil, nil, false)
		}
		kernel.Cross(c.x[l+1], c.x[l], c.x[0], c.z[l], n, c.all)
	}
	if c.h.crossOutput == nil {
		return
	}
	output := c.output[:n]
	clear(output)
	for p, weight := range c.h.crossOutput {
		w := float64(weight)
		for t, v := range c.x[len(c.z)].Element(p)[:n] {
			output[t] += float64(w * float64(v))
		}
	}
}

func (c *crossGradient) mixForward(l, n int) {
	layer, s := &c.h.mix[l], &c.mix[l]
	layer.inner.Product(s.inner, c.x[l], n, nil, nil, false)
	rank, vectors := layer.c[0].In, layer.u.In-1
	kernel.Tanh(s.low, s.inner, n, vectors, nil)
	sum := s.mid.Element(vectors)
	clear(sum[:n])
	for k, matrix := range layer.c {
		gate := s.inner.Element(vectors + k)
		matrix.Product(s.pre, s.low.From(k*rank), n, nil, nil, false)
		kernel.Tanh(s.tanh.From(k*rank), s.pre, n, rank, nil)
		kernel.Tanh(s.mid.From(k*rank), s.pre, n, rank, gate)
		for t, g := range gate[:n] {
			sum[t] += g
		}
	}
	layer.u.Product(c.z[l], s.mid, n, nil, nil, false)
}

// mlpInput sets out to the output of the MLP's first layer for n states of a stacked
// head, before ReLU or after it.
func (c *crossGradient) mlpInput(out kernel.Tile, n int, relu bool) {
	c.h.stacked.Product(c.unit, c.x[len(c.z)], n, nil, nil, relu)
	kernel.ToTile(out, c.unit, n, c.h.stacked.Out)
}

// backward sets slope to the derivatives with respect to x0. first holds the derivatives
// with respect to the MLP's first layer, before ReLU. If the MLP is parallel to the cross
// layers, slope must already hold the derivatives through the MLP.
func (c *crossGradient) backward(slope, first kernel.Tile, n int) {
	if c.h.stacked != nil {
		kernel.ToBlock(c.unit, first, n, c.h.stacked.Out)
		c.transposed.stacked.Product(c.d, c.unit, n, nil, nil, false)
		clear(c.d0)
	} else {
		for p, w := range c.h.crossOutput {
			d := c.d.Element(p)
			for t := range d {
				d[t] = w
			}
		}
		kernel.ToBlock(c.d0, slope, n, c.h.players)
	}
	for l := range slices.Backward(c.z) {
		kernel.Cross(c.dz, c.zero, c.x[0], c.d, n, c.all)
		kernel.Cross(c.d0, c.d0, c.z[l], c.d, n, c.all)
		if c.mix != nil {
			c.mixBackward(l, n)
		} else {
			c.transposed.cross[l].Product(c.t, c.dz, n, nil, nil, false)
		}
		kernel.Cross(c.d, c.d, c.one, c.t, n, c.all)
	}
	kernel.Cross(c.d, c.d, c.one, c.d0, n, c.all)
	kernel.ToTile(slope, c.d, n, c.h.players)
}

// mixBackward sets t to the derivatives with respect to layer l's input, given dz, the
// derivatives with respect to its output z.
func (c *crossGradient) mixBackward(l, n int) {
	layer, transposed, s := &c.h.mix[l], &c.transposed.mix[l], &c.mix[l]
	rank, vectors := layer.c[0].In, layer.u.In-1
	transposed.u.Product(c.dMid, c.dz, n, nil, nil, false)
	for k, matrix := range transposed.c {
		gate, dGate := s.inner.Element(vectors + k)[:n], c.dInner.Element(vectors + k)[:n]
		copy(dGate, c.dMid.Element(vectors))
		for r := k * rank; r < (k+1)*rank; r++ {
			d, v := c.dMid.Element(r)[:n], s.tanh.Element(r)[:n]
			for t := range d {
				dGate[t] += float32(v[t] * d[t])
				d[t] = untiny(float32(d[t]*gate[t]) * (1 - float32(v[t]*v[t])))
			}
		}
		matrix.Product(c.dLow, c.dMid.From(k*rank), n, nil, nil, false)
		for r := range rank {
			d, v, from := c.dInner.Element(k*rank + r)[:n], s.low.Element(k*rank + r)[:n], c.dLow.Element(r)[:n]
			for t := range d {
				d[t] = untiny(from[t] * (1 - float32(v[t]*v[t])))
			}
		}
	}
	transposed.inner.Product(c.t, c.dInner, n, nil, nil, false)
}

// untiny returns 0 if v is smaller than kernel.Tiny in magnitude, and v otherwise.
func untiny(v float32) float32 {
	if v < kernel.Tiny && v > -kernel.Tiny {
		return 0
	}
	return v
}
