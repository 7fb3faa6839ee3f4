package train

import (
	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
)

// linear is a linear layer y = x W' + b with its derivatives. Its products are those of
// kernel.Matrix. They are cut over outputs and never over the index of a sum, so the bits do
// not depend on the number of cores.
type linear struct {
	in, out  int
	weight   *tensor        // [out, in]
	bias     *tensor        // [out], or nil
	forwards *kernel.Matrix // weight
	back     *kernel.Matrix // its transpose
	inputs   *kernel.Matrix // the batch's inputs, as a layer from rows to inputs
	across   kernel.Tile    // [out, rows], the transpose of the gradient of y
}

// newLinear returns a layer for batches of at most the given number of rows. The layer keeps
// the memory of l. A layer without a bias has a nil Bias.
func newLinear(name string, l model.Linear, rows int) *linear {
	n := &linear{in: l.In, out: l.Out}
	gradient := kernel.NewTile(l.Out, l.In)
	n.weight = newTensor(name+".weight", l.Weight, l.In, gradient.Stride)
	n.weight.gradient = gradient.Values
	if l.Bias != nil {
		n.bias = newVector(name+".bias", l.Bias)
	}
	n.forwards, n.back = kernel.NewBlankMatrix(l.In, l.Out), kernel.NewBlankMatrix(l.Out, l.In)
	n.inputs = kernel.NewBlankMatrix(rows, l.In)
	n.across = newTile(kernel.Pad(l.Out), rows+kernel.Columns) // the stride is no power of two, which would make rows share lines of the cache
	return n
}

func (n *linear) tensors() []*tensor {
	if n.bias == nil {
		return []*tensor{n.weight}
	}
	return []*tensor{n.weight, n.bias}
}

// pack prepares the layer for a step. It must follow every change of the weights.
func (n *linear) pack() {
	var bias []float32
	if n.bias != nil {
		bias = n.bias.values
	}
	parts(n.out, columns, func(from, to int) { n.forwards.Set(n.weight.values, bias, from, to) })
	weight := kernel.Tile{Values: n.weight.values, Stride: n.in}
	parts(n.in, columns, func(from, to int) { n.back.SetRows(weight, from, to) })
}

// product computes the layer m for some rows on all cores.
func product(m *kernel.Matrix, y, x kernel.Tile, rows int) {
	parts(rows, layerRows, func(from, to int) { m.Layer(part(y, from), part(x, from), to-from, nil, false, nil) })
}

// part returns the tile from a row on.
func part(t kernel.Tile, row int) kernel.Tile {
	return kernel.Tile{Values: t.Values[row*t.Stride:], Stride: t.Stride}
}

// right returns the tile from a column on, which is a multiple of kernel.Columns. The tile
// must come from newTile.
func right(t kernel.Tile, column int) kernel.Tile {
	return kernel.Tile{Values: t.Values[column:], Stride: t.Stride}
}

// newTile is like kernel.NewTile, with memory for a tile that begins at a later column.
func newTile(rows, width int) kernel.Tile { return kernel.NewTile(rows+kernel.Columns, width) }

// forward computes y for some rows of x.
func (n *linear) forward(y, x kernel.Tile, rows int) { product(n.forwards, y, x, rows) }

// backward computes the gradients of the weights from g, the gradient of y, and from x. It
// writes the gradient of x to dx, unless dx has no memory.
func (n *linear) backward(dx, g, x kernel.Tile, rows int) {
	parts(n.out, columns, func(from, to int) { kernel.Transpose(n.across, g, rows, from, to) })
	n.inputs.Resize(rows)
	parts(n.in, columns, func(from, to int) { n.inputs.SetRows(x, from, to) })
	product(n.inputs, kernel.Tile{Values: n.weight.gradient, Stride: n.weight.stride}, n.across, n.out)
	if dx.Values != nil {
		product(n.back, dx, g, rows)
	}
}
