package kernel

import (
	"math"
	"slices"
)

// States is the number of states in a Block.
const States = 48

// Block holds the vectors of up to 48 states, element by element: element k of state t is
// Block[k*States+t]. Elements of unused states may have any value. A Tile, in contrast,
// holds one state after the other.
type Block []float32

// NewBlock returns a block of zeros for vectors of n elements, padded to the multiple of
// 16 that ToBlock may write.
func NewBlock(n int) Block { return make(Block, Pad(n)*States) }

// From returns the part of the block that begins at element k.
func (b Block) From(k int) Block { return b[k*States:] }

// Element returns element k of all states.
func (b Block) Element(k int) []float32 { return b[k*States : (k+1)*States] }

// Outputs is a linear layer for Product, with its weights stored output by output. It is
// read-only and may be shared by all goroutines.
type Outputs struct {
	In, Out int
	weight  []float32 // [Out, In]
	bias    []float32 // [Pad(Out)]
	inputs  []int32   // 0 ... In-1
	outputs []int32   // 0 ... Out-1
	digits  *digits   // only at levels that use digits, else nil
}

// NewOutputs returns the layer with the given weight, [out, in], and bias, [out]. A nil
// bias means 0. The layer keeps weight and does not copy it.
func NewOutputs(weight, bias []float32, in, out int) *Outputs {
	if len(weight) != in*out || (bias != nil && len(bias) != out) {
		panic("kernel: NewOutputs: weight or bias has the wrong length")
	}
	m := &Outputs{In: in, Out: out, weight: weight, bias: make([]float32, Pad(out)), inputs: make([]int32, in, in+listAhead), outputs: make([]int32, out)}
	copy(m.bias, bias)
	for i := range m.inputs {
		m.inputs[i] = int32(i)
	}
	for i := range m.outputs {
		m.outputs[i] = int32(i)
	}
	if current.digits {
		m.digits = newDigits(weight, in, out, false)
	}
	return m
}

// Weight returns the weight of an output for an input.
func (m *Outputs) Weight(output, input int) float32 { return m.weight[output*m.In+input] }

// Transposed returns the layer whose weight is the transpose of m's, [In, Out], without a
// bias.
func (m *Outputs) Transposed() *Outputs {
	return NewOutputs(Pack(m.weight, m.In, m.Out), nil, m.Out, m.In)
}

// Product computes the given units for the states t < states:
//
//	out[u][t] = m.bias[u]; for k in list: out[u][t] += in[k][t] * m[u][k]
//	if relu: out[u][t] = max(out[u][t], 0)
//
// Product leaves the other units of out unchanged. units and list are ascending; nil
// means all. If in[k][t] is 0, input k leaves the sum unchanged to the last bit, so list
// may name inputs that a state does not need. out must not overlap in. NaN stays NaN.
//
// Product allocates memory only if list is not from NewList, because it then has to copy
// list.
func (m *Outputs) Product(out, in Block, states int, units, list []int32, relu bool) {
	if list == nil {
		list = m.inputs
	}
	if units == nil {
		units = m.outputs
	}
	switch {
	case states < 1 || states > States:
		panic("kernel: Product: a block has 1 to 48 states")
	case len(list) > 0 && (list[0] < 0 || int(list[len(list)-1]) >= min(m.In, len(in)/States)):
		panic("kernel: Product: list does not fit the matrix or the block")
	case len(units) > 0 && (units[0] < 0 || int(units[len(units)-1]) >= min(m.Out, len(out)/States)):
		panic("kernel: Product: units do not fit the matrix or the block")
	}
	if cap(list)-len(list) < listAhead && len(list) > 0 {
		list = slices.Grow(slices.Clip(list), listAhead)
	}
	if len(units) > 0 {
		current.product(m, out, in, states, units, list, floor(relu))
	}
}

// Cross computes the last step of a cross layer, for k in list and t < states:
//
//	out[k][t] = x[k][t] + x0[k][t] * z[k][t]
//
// list is ascending. out may be x.
func Cross(out, x, x0, z Block, states int, list []int32) {
	if len(list) == 0 || states < 1 {
		return
	}
	if states > States || list[0] < 0 || int(list[len(list)-1]) >= min(len(out), len(x), len(x0), len(z))/States {
		panic("kernel: Cross: states or list do not fit the blocks")
	}
	current.cross(out, x, x0, z, (states+Columns-1)/Columns, list)
}

// Tiny is the magnitude below which Tanh replaces a number by 0. Cross layers add such a
// number to x0, where it is lost to float32 rounding. However, products with it may be
// subnormal, and processors compute with subnormal numbers a hundred times slower.
// Trained DCN-Mix layers that have collapsed to weights near 1e-14 produce many of them.
const Tiny = 1.0 / (1 << 60)

// ones is the scale that Tanh uses if the caller gives none.
var ones = slices.Repeat([]float32{1}, States)

// Tanh sets the first n elements of out's states to scale * tanh of in's elements. scale
// has one element per state; nil means 1. The hyperbolic tangent is accurate to 1e-7 and
// to 2.5 ulp. An input or a result smaller than Tiny in magnitude becomes 0. NaN stays
// NaN. out may be in.
func Tanh(out, in Block, states, n int, scale Block) {
	if n < 1 || states < 1 {
		return
	}
	if scale == nil {
		scale = ones
	}
	if states > States {
		panic("kernel: Tanh: a block has 1 to 48 states")
	}
	current.tanh(out[:n*States], in[:n*States], scale[:States], (states+Columns-1)/Columns)
}

// ToBlock copies a tile to a block: out[k][t] = in[t][k] for k < n and t < states. It
// rounds n and states up to multiples of 16 and also copies the additional elements.
func ToBlock(out Block, in Tile, states, n int) {
	states, n = Pad(states), Pad(n)
	if states > States || n > in.Stride || len(in.Values) < states*in.Stride || len(out) < n*States {
		panic("kernel: ToBlock: tile or block is too small")
	}
	if states > 0 && n > 0 {
		current.transpose(out, States, in.Values, in.Stride, states, n)
	}
}

// ToTile is the inverse of ToBlock: out[t][k] = in[k][t].
func ToTile(out Tile, in Block, states, n int) {
	states, n = Pad(states), Pad(n)
	if states > States || n > out.Stride || len(out.Values) < states*out.Stride || len(in) < n*States {
		panic("kernel: ToTile: tile or block is too small")
	}
	if states > 0 && n > 0 {
		current.transpose(out.Values, out.Stride, in, States, n, states)
	}
}

func productPortable(m *Outputs, out, in Block, states int, units, list []int32, floor float32) {
	for t := 0; t < states; t += 8 {
		for _, u := range units {
			b, w := m.bias[u], m.weight[int(u)*m.In:(int(u)+1)*m.In]
			a0, a1, a2, a3, a4, a5, a6, a7 := b, b, b, b, b, b, b, b
			for _, k := range list {
				x, v := w[k], (*[8]float32)(in[int(k)*States+t:])
				a0 += float32(x * v[0])
				a1 += float32(x * v[1])
				a2 += float32(x * v[2])
				a3 += float32(x * v[3])
				a4 += float32(x * v[4])
				a5 += float32(x * v[5])
				a6 += float32(x * v[6])
				a7 += float32(x * v[7])
			}
			y := out[int(u)*States+t:][:8]
			y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7] = a0, a1, a2, a3, a4, a5, a6, a7
			clamp(y, 0, floor, nil)
		}
	}
}

func crossPortable(out, x, x0, z Block, panels int, list []int32) {
	for _, k := range list {
		o, a, b, c := out.Element(int(k)), x.Element(int(k)), x0.Element(int(k)), z.Element(int(k))
		for t := range panels * Columns {
			o[t] = a[t] + float32(b[t]*c[t])
		}
	}
}

func tanhPortable(out, in, scale []float32, panels int) {
	for i := 0; i < len(in); i += States {
		for t := range panels * Columns {
			out[i+t] = flush(float32(hyperbolic(in[i+t]) * scale[t]))
		}
	}
}

func flush(v float32) float32 {
	if v < Tiny && v > -Tiny {
		return 0
	}
	return v
}

// hyperbolic returns tanh(x), computed from e^y-1 with y = 2|x|:
//
//	y = e*ln(2) + r; e^r-1 = r + r^2 * a polynomial; tanh = (e^y-1) / (e^y-1 + 2)
//
// No step cancels digits, so tanh of a small x is as precise as tanh of a large one. The
// polynomial is the one in expf of the Cephes library.
func hyperbolic(x float32) float32 {
	x = flush(x)
	y := x + x
	if x < 0 {
		y = -y
	}
	if y > 20 { // tanh rounds to 1 here
		y = 20
	}
	if y != y {
		return y
	}
	e := float32(math.RoundToEven(float64(float32(y * math.Log2E))))
	r := y + float32(e*-0.693145751953125)
	r += float32(e * -1.428606765330187e-06)
	q := float32(1.9875691500e-4)
	for _, c := range [...]float32{1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1} {
		q = float32(q*r) + c
	}
	q = float32(q*float32(r*r)) + r
	power := float32(math.Ldexp(1, int(e)))
	s := float32(power*q) + (power - 1)
	s /= s + 2
	if x < 0 {
		s = -s
	}
	return s
}

func transposePortable(out []float32, outStride int, in []float32, inStride, rows, columns int) {
	for t := range rows {
		for k, v := range in[t*inStride:][:columns] {
			out[k*outStride+t] = v
		}
	}
}
