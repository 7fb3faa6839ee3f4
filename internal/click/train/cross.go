package train

import (
	"fmt"

	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
)

// cross is the cross layers of a model. dx is the gradient of the output; backward
// overwrites it with that of the input x0.
type cross interface {
	tensors() []*tensor
	pack()
	forward(x0 kernel.Tile, rows int) kernel.Tile
	backward(dx, x0 kernel.Tile, rows int)
	store(p *model.Parameters)
}

// fullCross is the cross layers of DCNv2: x' = x + x0 * (W x + b).
type fullCross struct {
	width  int
	layers []*linear
	x, z   []kernel.Tile // output of each layer; W x + b
	dz, d0 kernel.Tile   // gradients of z and of x0
	sums   *sums
}

func newFullCross(p *model.Parameters, width, rows int) *fullCross {
	c := &fullCross{width: width, dz: newTile(rows, width), d0: newTile(rows, width), sums: newSums(rows, width)}
	for i, l := range p.Cross {
		c.layers = append(c.layers, newLinear(fmt.Sprintf("cross.%d", i), l, rows))
		c.x, c.z = append(c.x, newTile(rows, width)), append(c.z, newTile(rows, width))
	}
	return c
}

func (c *fullCross) tensors() (all []*tensor) {
	for _, l := range c.layers {
		all = append(all, l.tensors()...)
	}
	return all
}

func (c *fullCross) pack() {
	for _, l := range c.layers {
		l.pack()
	}
}

func (c *fullCross) store(*model.Parameters) {}

func (c *fullCross) forward(x0 kernel.Tile, rows int) kernel.Tile {
	x := x0
	for i, l := range c.layers {
		l.forward(c.z[i], x, rows)
		crossRows(c.x[i], x, x0, c.z[i], rows, c.width)
		x = c.x[i]
	}
	return x
}

// crossRows computes out = x + x0*z.
func crossRows(out, x, x0, z kernel.Tile, rows, width int) {
	parts(rows, chunkRows, func(from, to int) {
		for t := from; t < to; t++ {
			o, a, b, c := out.Row(t)[:width], x.Row(t)[:width], x0.Row(t)[:width], z.Row(t)[:width]
			for i := range o {
				o[i] = a[i] + float32(b[i]*c[i])
			}
		}
	})
}

// gradients computes dz = x0*dx and adds z*dx to d0.
func gradients(dz, d0, dx, x0, z kernel.Tile, rows, width int) {
	parts(rows, chunkRows, func(from, to int) {
		for t := from; t < to; t++ {
			o, s, d, a, b := dz.Row(t)[:width], d0.Row(t)[:width], dx.Row(t)[:width], x0.Row(t)[:width], z.Row(t)[:width]
			for i, v := range d {
				o[i] = float32(v * a[i])
				s[i] += float32(v * b[i])
			}
		}
	})
}

// addRows adds the rows of x to those of sum.
func addRows(sum, x kernel.Tile, rows, width int) {
	parts(rows, chunkRows, func(from, to int) {
		for t := from; t < to; t++ {
			kernel.Axpy(sum.Row(t)[:width], 1, x.Row(t))
		}
	})
}

func (c *fullCross) backward(dx, x0 kernel.Tile, rows int) {
	clear(c.d0.Values)
	for i := len(c.layers) - 1; i >= 0; i-- {
		l, x := c.layers[i], x0
		if i > 0 {
			x = c.x[i-1]
		}
		gradients(c.dz, c.d0, dx, x0, c.z[i], rows, c.width)
		c.sums.rows(l.bias.gradient, c.dz, rows)
		l.backward(c.z[i], c.dz, x, rows) // z is not needed any more
		addRows(dx, c.z[i], rows, c.width)
	}
	addRows(dx, c.d0, rows, c.width)
}

// mixCross is the cross layers of DCN-Mix; see model.MixLayer. Expert k has the columns from
// k*wide on of a tile, of which the first rank are in use. The weights of the others are 0
// and stay 0.
type mixCross struct {
	width, experts, rank, wide int
	layers                     []*mixLayer
	gates                      *linear
	gateSum                    []float32 // gradient of gates, added up over the layers
	dz, d0, dGate, dExperts    kernel.Tile
	dInner                     kernel.Tile
	added                      kernel.Tile
	sums                       *sums
}

// mixLayer is one layer. v, c and u are transposed in comparison with model.MixLayer.
type mixLayer struct {
	v, u   *linear
	c      []*linear
	bias   *tensor
	t1, t2 kernel.Tile // [rows, experts*wide], after the first and the second tanh
	mid    kernel.Tile // t2 times the gates
	gate   kernel.Tile // [rows, experts]
	x, z   kernel.Tile // output of the layer; what multiplies x0
}

func newMixCross(a *model.Architecture, p *model.Parameters, rows int) *mixCross {
	width := a.Players()
	c := &mixCross{width: width, experts: a.Experts, rank: a.Rank, wide: kernel.Pad(a.Rank), sums: newSums(rows, width)}
	inner := c.experts * c.wide
	c.gates = newLinear("gates", model.Linear{In: width, Out: c.experts, Weight: p.Gates}, rows)
	c.gateSum = make([]float32, len(c.gates.weight.gradient))
	c.dz, c.d0, c.added = newTile(rows, width), newTile(rows, width), newTile(rows, width)
	c.dGate, c.dExperts, c.dInner = newTile(rows, c.experts), newTile(rows, inner), newTile(rows, inner)
	for i := range p.Mix {
		m, name := &p.Mix[i], fmt.Sprintf("mix.%d", i)
		l := &mixLayer{
			v:    newLinear(name+".v", model.Linear{In: width, Out: inner, Weight: make([]float32, inner*width)}, rows),
			u:    newLinear(name+".u", model.Linear{In: inner, Out: width, Weight: make([]float32, inner*width)}, rows),
			bias: newVector(name+".bias", m.Bias),
			t1:   newTile(rows, inner), t2: newTile(rows, inner), mid: newTile(rows, inner),
			gate: newTile(rows, c.experts), x: newTile(rows, width), z: newTile(rows, width),
		}
		for k := range c.experts {
			l.c = append(l.c, newLinear(fmt.Sprintf("%s.c.%d", name, k), model.Linear{In: c.rank, Out: c.rank, Weight: make([]float32, c.rank*c.rank)}, rows))
		}
		c.layers = append(c.layers, l)
		c.exchange(m, l, func(theirs, own *float32) { *own = *theirs })
	}
	return c
}

// exchange calls f for the place of each weight in m and in l, except for the bias.
func (c *mixCross) exchange(m *model.MixLayer, l *mixLayer, f func(theirs, own *float32)) {
	inner := c.experts * c.wide
	for k := range c.experts {
		for r := range c.rank {
			for i := range c.width {
				f(&m.U[(k*c.rank+r)*c.width+i], &l.u.weight.values[i*inner+k*c.wide+r])
				f(&m.V[(k*c.width+i)*c.rank+r], &l.v.weight.values[(k*c.wide+r)*c.width+i])
			}
			for i := range c.rank {
				f(&m.C[(k*c.rank+i)*c.rank+r], &l.c[k].weight.values[r*c.rank+i])
			}
		}
	}
}

// store writes the weights to p.
func (c *mixCross) store(p *model.Parameters) {
	for i, l := range c.layers {
		c.exchange(&p.Mix[i], l, func(theirs, own *float32) { *theirs = *own })
	}
}

func (c *mixCross) tensors() []*tensor {
	all := c.gates.tensors()
	for _, l := range c.layers {
		all = append(all, l.v.weight, l.u.weight, l.bias)
		for _, e := range l.c {
			all = append(all, e.weight)
		}
	}
	return all
}

func (c *mixCross) pack() {
	c.gates.pack()
	for _, l := range c.layers {
		l.v.pack()
		l.u.pack()
		for _, e := range l.c {
			e.pack()
		}
	}
}

func (c *mixCross) forward(x0 kernel.Tile, rows int) kernel.Tile {
	x := x0
	for _, l := range c.layers {
		l.v.forward(l.t1, x, rows)
		tanh(l.t1, rows)
		for k, e := range l.c {
			e.forward(right(l.t2, k*c.wide), right(l.t1, k*c.wide), rows)
		}
		tanh(l.t2, rows)
		c.gates.forward(l.gate, x, rows)
		parts(rows, chunkRows, func(from, to int) {
			for t := from; t < to; t++ {
				for k, g := range l.gate.Row(t)[:c.experts] {
					scaled(l.mid.Row(t)[k*c.wide:][:c.wide], g, l.t2.Row(t)[k*c.wide:])
				}
			}
		})
		l.u.forward(l.z, l.mid, rows)
		parts(rows, chunkRows, func(from, to int) {
			for t := from; t < to; t++ {
				kernel.Axpy(l.z.Row(t)[:c.width], total(l.gate.Row(t)[:c.experts]), l.bias.values)
			}
		})
		crossRows(l.x, x, x0, l.z, rows, c.width)
		x = l.x
	}
	return x
}

// tanh replaces the elements of the rows of a tile by their hyperbolic tangents.
func tanh(t kernel.Tile, rows int) {
	const group = 12 // rows of a multiple of kernel.States elements
	parts((rows+group-1)/group, 16, func(from, to int) {
		b := kernel.Block(t.Values[from*group*t.Stride : to*group*t.Stride])
		kernel.Tanh(b, b, kernel.States, len(b)/kernel.States, nil)
	})
}

// scaled sets y to a*x.
func scaled(y []float32, a float32, x []float32) {
	for i := range y {
		y[i] = float32(a * x[i])
	}
}

func total(x []float32) (sum float32) {
	for _, v := range x {
		sum += v
	}
	return sum
}

func (c *mixCross) backward(dx, x0 kernel.Tile, rows int) {
	clear(c.d0.Values)
	clear(c.gateSum)
	for i := len(c.layers) - 1; i >= 0; i-- {
		l, x := c.layers[i], x0
		if i > 0 {
			x = c.layers[i-1].x
		}
		gradients(c.dz, c.d0, dx, x0, l.z, rows, c.width)
		round(l.bias.gradient, c.sums.add(rows, func(sum []float32, from, to int) {
			for t := from; t < to; t++ {
				kernel.Axpy(sum, total(l.gate.Row(t)[:c.experts]), c.dz.Row(t))
			}
		}), 1)
		l.u.backward(c.dExperts, c.dz, l.mid, rows)
		parts(rows, chunkRows, func(from, to int) {
			for t := from; t < to; t++ {
				shift := float32(kernel.Dot(l.bias.values, c.dz.Row(t)[:c.width]))
				for k, g := range l.gate.Row(t)[:c.experts] {
					q, t2 := c.dExperts.Row(t)[k*c.wide:][:c.rank], l.t2.Row(t)[k*c.wide:][:c.rank]
					c.dGate.Row(t)[k] = float32(kernel.Dot(q, t2)) + shift
					for r, v := range t2 {
						q[r] = float32(float32(g*q[r]) * (1 - float32(v*v)))
					}
				}
			}
		})
		for k, e := range l.c {
			e.backward(right(c.dInner, k*c.wide), right(c.dExperts, k*c.wide), right(l.t1, k*c.wide), rows)
		}
		parts(rows, chunkRows, func(from, to int) {
			for t := from; t < to; t++ {
				d, t1 := c.dInner.Row(t), l.t1.Row(t)
				for r, v := range t1 {
					d[r] = float32(d[r] * (1 - float32(v*v)))
				}
			}
		})
		l.v.backward(c.added, c.dInner, x, rows)
		addRows(dx, c.added, rows, c.width)
		c.gates.backward(c.added, c.dGate, x, rows)
		addRows(dx, c.added, rows, c.width)
		kernel.Axpy(c.gateSum, 1, c.gates.weight.gradient)
	}
	copy(c.gates.weight.gradient, c.gateSum)
	addRows(dx, c.d0, rows, c.width)
}
