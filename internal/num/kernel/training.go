package kernel

import "math"

// The primitives of training. They exist in portable Go at every level, except where they
// call Layer.

// NewBlankMatrix returns a matrix of zeros with room for in inputs and out outputs. Its
// values come from Set or SetRows. It never has digits, so the level AMX computes with it
// as AVX-512 does.
func NewBlankMatrix(in, out int) *Matrix {
	m := &Matrix{In: in, Out: out, panels: make([]float32, in*Pad(out)), bias: make([]float32, Pad(out)), all: make([]int32, in, in+listAhead)}
	for i := range m.all {
		m.all[i] = int32(i)
	}
	return m
}

// Set replaces the weights of outputs [from, to) by those of weight, [Out, In], and their
// biases by those of bias, [Out], which may be nil. from is a multiple of Columns, and to
// is too unless it is Out. Goroutines may set different outputs at once.
func (m *Matrix) Set(weight, bias []float32, from, to int) {
	if len(weight) != m.In*m.Out || from%Columns != 0 || to > m.Out || to%Columns != 0 && to != m.Out {
		panic("kernel: Set: weight or outputs do not fit the matrix")
	}
	for o := from; o < to; o++ {
		panel := m.panels[o/Columns*m.In*Columns+o%Columns:]
		for i, v := range weight[o*m.In : (o+1)*m.In] {
			panel[i*Columns] = v
		}
	}
	if bias != nil {
		copy(m.bias[from:to], bias[from:to])
	}
}

// Resize changes the number of inputs to at most that of NewBlankMatrix. The caller must
// then set all rows.
func (m *Matrix) Resize(in int) {
	m.all = m.all[:in]
	m.In = in
}

// SetRows replaces the weights of all inputs for some outputs by columns of t: the weight of
// input k for output o becomes t[k][o], for o in [from, to). from is a multiple of Columns.
// Goroutines may set different outputs at once.
func (m *Matrix) SetRows(t Tile, from, to int) {
	if from%Columns != 0 || to > m.Out || len(t.Values) < (m.In-1)*t.Stride+to {
		panic("kernel: SetRows: tile or outputs do not fit the matrix")
	}
	for o := from; o < to; o += Columns {
		panel, n := m.panels[o*m.In:], min(Columns, to-o)
		for k := range m.In {
			copy(panel[k*Columns:][:n], t.Values[k*t.Stride+o:])
		}
	}
}

// Transpose sets out[o][t] to in[t][o] for t < rows and o in [from, to). from is a multiple
// of Columns. It rounds rows and to up to multiples of Columns and also copies these
// elements, for which both tiles need memory.
func Transpose(out, in Tile, rows, from, to int) {
	rows, to = Pad(rows), Pad(to)
	if from%Columns != 0 || to > in.Stride || rows > out.Stride || len(in.Values) < rows*in.Stride || len(out.Values) < to*out.Stride {
		panic("kernel: Transpose: tile is too small")
	}
	if from < to && rows > 0 {
		current.transpose(out.Values[from*out.Stride:], out.Stride, in.Values[from:], in.Stride, rows, to-from)
	}
}

// AddRows adds rows [from, to) of t to sum: sum[o] += t[k][o], with k ascending.
func AddRows(sum []float32, t Tile, from, to int) {
	for k := from; k < to; k++ {
		for o, v := range t.Values[k*t.Stride:][:len(sum)] {
			sum[o] += v
		}
	}
}

// AddSquares adds the squares of the distances from mean of rows [from, to) of t to sum:
// sum[o] += (t[k][o] - mean[o])^2, with k ascending.
func AddSquares(sum, mean []float32, t Tile, from, to int) {
	mean = mean[:len(sum)]
	for k := from; k < to; k++ {
		for o, v := range t.Values[k*t.Stride:][:len(sum)] {
			d := v - mean[o]
			sum[o] += float32(d * d)
		}
	}
}

// Activate computes a unit of BatchNorm, ReLU and dropout for a row: dst[o] is
// max(0, (scale[o]*x[o] + offset[o]) * gain) if bit o of keep is set, and else 0. A nil keep
// means that all bits are set. NaN stays NaN where it is kept.
func Activate(dst, x, scale, offset []float32, keep []uint64, gain float32) {
	x, scale, offset = x[:len(dst)], scale[:len(dst)], offset[:len(dst)]
	for o := range dst {
		dst[o] = float32((float32(scale[o]*x[o]) + offset[o]) * gain)
	}
	Gate(dst, dst, dst)
	for w, word := range keep {
		part := dst[min(w*64, len(dst)):min(w*64+64, len(dst))]
		for o, y := range part { // without branches, because the processor could not predict them
			part[o] = math.Float32frombits(math.Float32bits(y) & -(uint32(word>>o) & 1))
		}
	}
}

// Deactivate is the derivative of Activate for a row, up to BatchNorm. It multiplies
// gradient[o] by gain where y[o], the result of Activate, is above 0 or NaN, and sets it to 0
// elsewhere. It adds the gradient to sum, and its product with the normalised input,
// (x[o]-mean[o])*inverse[o], to product.
func Deactivate(gradient, y, x, mean, inverse []float32, gain float32, sum, product []float32) {
	n := len(gradient)
	y, x, mean, inverse, sum, product = y[:n], x[:n], mean[:n], inverse[:n], sum[:n], product[:n]
	Gate(gradient, y, gradient)
	for o, g := range gradient {
		g = float32(g * gain)
		gradient[o] = g
		sum[o] += g
		product[o] += float32(g * float32((x[o]-mean[o])*inverse[o]))
	}
}

// Denormalize is the derivative of BatchNorm in training mode for a row:
//
//	gradient[o] = scale[o] * (gradient[o] - sum[o] - (x[o]-mean[o])*inverse[o]*product[o])
//
// sum and product are the means over the batch of what Deactivate adds, and scale is gamma
// times inverse.
func Denormalize(gradient, x, mean, inverse, scale, sum, product []float32) {
	n := len(gradient)
	x, mean, inverse, scale, sum, product = x[:n], mean[:n], inverse[:n], scale[:n], sum[:n], product[:n]
	for o, g := range gradient {
		g -= sum[o]
		g -= float32(float32((x[o]-mean[o])*inverse[o]) * product[o])
		gradient[o] = float32(scale[o] * g)
	}
}

// AdamStep holds the numbers of one step of Adam that all weights share.
type AdamStep struct {
	Decay         float32 // weight decay, which is added to the gradient
	First, Second float32 // 1-beta1 and 1-beta2
	Keep          float32 // beta2
	Rate          float32 // learning rate divided by 1-beta1^t
	Root          float32 // sqrt(1-beta2^t), by which the root of v is divided; 1 in SparseAdam
	Epsilon       float32
}

// adamFloor is the magnitude below which Adam replaces a second moment by 0. Without it, the
// moments of weights that have no gradient would become subnormal.
const adamFloor = 1.0 / (1 << 100)

// Adam moves the weights w, which have the gradient g and the moments m and v, by one step.
// It computes as PyTorch's Adam does:
//
//	g += Decay*w
//	m += (g-m)*First
//	v = v*Keep + Second*g*g, or 0 below 2^-100
//	w -= Rate * m / (sqrt(v)/Root + Epsilon)
//
// A nil g means gradients of 0.
func Adam(w, g, m, v []float32, s *AdamStep) {
	m, v = m[:len(w)], v[:len(w)]
	for i, x := range w {
		d := float32(s.Decay * x)
		if g != nil {
			d += g[i]
		}
		first := m[i] + float32((d-m[i])*s.First)
		second := float32(v[i]*s.Keep) + float32(float32(s.Second*d)*d)
		if second < adamFloor {
			second = 0
		}
		root := float32(math.Sqrt(float64(second)))
		m[i], v[i] = first, second
		w[i] = x - float32(s.Rate*first)/(float32(root/s.Root)+s.Epsilon)
	}
}
