package model

import (
	"slices"

	"shaver/internal/kernel"
)

// crossGradient evaluates cross layers for up to kernel.States states, and takes
// derivatives back through them. It keeps what each layer computed. The formulas,
// for one state, with dv for the derivative of the logit by v:
//
//	x[l+1] = x[l] + x0 * z[l]:  dz[l] = x0 * dx[l+1]; dx0 += z[l] * dx[l+1]; dx[l] = dx[l+1] + (z[l] by x[l])' dz[l]
//
// and x[0] is x0 itself.
type crossGradient struct {
	h      *head
	by     *transposedHead
	all    []int32        // 0 ... D-1
	x      []kernel.Block // x0, then each layer's output, [D]
	z      []kernel.Block // of each layer, [D]
	mix    []mixStates    // of each DCN-Mix layer
	unit   kernel.Block   // stacked: the MLP's first layer
	output []float64      // [States]; as block's

	d, d0  kernel.Block // derivatives by the running cross state and by x0, [D]
	dz, t  kernel.Block // [D]
	zero   kernel.Block // [D]
	one    kernel.Block // [D]
	dMid   kernel.Block // DCN-Mix [experts*rank + 1]
	dLow   kernel.Block // DCN-Mix [rank]
	dInner kernel.Block // DCN-Mix [experts*(rank+1)]
}

// mixStates are what a DCN-Mix layer computes on its way.
type mixStates struct {
	inner kernel.Block // [experts*(rank+1)]: V of every expert, then the gates
	low   kernel.Block // [experts*rank], tanh of V's
	pre   kernel.Block // [rank], C's output of one expert
	tanh  kernel.Block // [experts*rank], its tanh
	mid   kernel.Block // [experts*rank + 1], the same times the gates, then the gates' sum
}

func newCrossGradient(h *head, by *transposedHead) *crossGradient {
	block := func() kernel.Block { return kernel.NewBlock(h.players) }
	c := &crossGradient{h: h, by: by, all: make([]int32, h.players), output: make([]float64, kernel.States),
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

// forward evaluates n states, whose embeddings are in's.
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

// mlpInput sets out to the MLP's first layer, for stacked heads.
func (c *crossGradient) mlpInput(out kernel.Tile, n int) {
	c.h.stacked.Product(c.unit, c.x[len(c.z)], n, nil, nil, true)
	kernel.ToTile(out, c.unit, n, c.h.stacked.Out)
}

// backward sets slope to the derivatives by x0. first are the derivatives by the
// MLP's first layer, before ReLU; for an MLP beside the cross layers, slope has what
// goes through it.
func (c *crossGradient) backward(slope, first kernel.Tile, n int) {
	if c.h.stacked != nil {
		kernel.ToBlock(c.unit, first, n, c.h.stacked.Out)
		c.by.stacked.Product(c.d, c.unit, n, nil, nil, false)
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
			c.by.cross[l].Product(c.t, c.dz, n, nil, nil, false)
		}
		kernel.Cross(c.d, c.d, c.one, c.t, n, c.all)
	}
	kernel.Cross(c.d, c.d, c.one, c.d0, n, c.all)
	kernel.ToTile(slope, c.d, n, c.h.players)
}

// mixBackward sets t to the derivatives by layer l's input, through what dz are
// the derivatives by.
func (c *crossGradient) mixBackward(l, n int) {
	layer, by, s := &c.h.mix[l], &c.by.mix[l], &c.mix[l]
	rank, vectors := layer.c[0].In, layer.u.In-1
	by.u.Product(c.dMid, c.dz, n, nil, nil, false)
	for k, matrix := range by.c {
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
	by.inner.Product(c.t, c.dInner, n, nil, nil, false)
}

// untiny returns 0 for what kernel.Tanh takes for 0, and for the same reason.
func untiny(v float32) float32 {
	if v < kernel.Tiny && v > -kernel.Tiny {
		return 0
	}
	return v
}
