package kernel

import (
	"math"
	"slices"
	"sync"
)

// Linear applies one linear layer to a batch of vectors whose elements are elements of a
// block. It is at least as fast as a call of Product with all inputs for each vector, and
// faster for small layers. A Linear is read-only and may be shared by all goroutines.
//
// At levels with digits, Linear calls Product for a large layer if the elements of each
// vector are adjacent. Otherwise it does not use digits. At other levels, Linear and Product
// agree to the last bit, except perhaps for the sign of a 0.
type Linear struct {
	m       *Outputs
	batch   int
	relu    bool
	out, x  []uint32
	size    int       // number of elements that a block needs
	units   int       // number of units of a group; 0 at the portable level, which needs no packed weights
	packed  []float32 // [groups, In, units], at levels in assembly; incomplete groups repeat the last unit
	bias    []float32 // [groups, units]
	outputs []uint32  // [batch, groups, units]
	product bool      // whether Compute calls Product
	listing bool      // whether Compute leaves out inputs that are 0
}

// fewestListed is the number of inputs and of outputs from which Linear leaves out inputs that are 0.
const fewestListed = 64

// fewestDigits is the number of inputs and of outputs from which Linear uses digits.
const fewestDigits = 128

// NewLinear prepares Compute for x, [batch, m.In], and out, [batch, m.Out]. Both are lists
// of elements in row-major order. Elements of x may occur several times. No element of out
// may occur twice, or be an element of x. The weights are packed for the level in use.
func NewLinear(m *Outputs, out, x []int32, batch int, relu bool) *Linear {
	if batch < 0 || len(out) != batch*m.Out || len(x) != batch*m.In {
		panic("kernel: NewLinear: a list has the wrong length")
	}
	to, from := NewElements(out), NewElements(x)
	l := &Linear{m: m, batch: batch, relu: relu, out: to.offset, x: from.offset, size: max(to.size, from.size)}
	if !disjoint(out, x) {
		panic("kernel: NewLinear: an element of out occurs twice or is an operand")
	}
	if m.digits != nil && min(m.In, m.Out) >= fewestDigits && adjacent(l.out, m.Out) && adjacent(l.x, m.In) {
		l.product = true
		return l
	}
	n := current.units
	if l.units = n; n == 0 || len(out) == 0 {
		return l
	}
	l.listing = min(m.In, m.Out) >= fewestListed && !slices.ContainsFunc(m.weight, func(w float32) bool { return w-w != 0 }) // 0 times infinity is NaN
	for u := 0; u < m.Out; u += n {
		for i := range n {
			l.bias = append(l.bias, m.bias[min(u+i, m.Out-1)])
		}
		for k := range m.In {
			for i := range n {
				l.packed = append(l.packed, m.weight[min(u+i, m.Out-1)*m.In+k])
			}
		}
	}
	for row := range batch {
		for i := range len(l.bias) {
			l.outputs = append(l.outputs, l.out[row*m.Out+min(i, m.Out-1)])
		}
	}
	return l
}

// adjacent reports whether the elements of each vector of n elements are adjacent.
func adjacent(list []uint32, n int) bool {
	for i, v := range list {
		if v != list[i-i%n]+uint32(i%n*States) {
			return false
		}
	}
	return true
}

// disjoint reports whether no element of out occurs twice or is in one of the other lists.
// Discarded may occur several times.
func disjoint(out []int32, others ...[]int32) bool {
	seen := make(map[int32]bool, len(out))
	for _, k := range out {
		if k != Discarded && seen[k] {
			return false
		}
		seen[k] = true
	}
	for _, list := range others {
		for _, k := range list {
			if seen[k] {
				return false
			}
		}
	}
	return true
}

// Compute computes the layer for all vectors and for the states t < states, at most 48. It
// rounds states up to a multiple of 16.
//
//	out[n][u] = m.bias[u]; for k < m.In: out[n][u] += x[n][k] * m[u][k]
//	if relu: out[n][u] = max(out[n][u], 0)
//
// A state's result depends on that state alone, except perhaps for the sign of a 0. NaN stays NaN. Compute allocates
// only memory that later calls use again.
func (l *Linear) Compute(b Block, states int) {
	b.check(states)
	if len(b)/States < l.size {
		panic("kernel: an element is outside the block")
	}
	if l.product {
		for n := range l.batch {
			l.m.Product(b[l.out[n*l.m.Out]:], b[l.x[n*l.m.In]:], states, nil, nil, l.relu)
		}
		return
	}
	switch {
	case len(l.out) == 0:
	case l.listing:
		l.listed(b, panelsOf(states))
	default:
		current.linear(l, b, panelsOf(states), floor(l.relu))
	}
}

// listed implements Compute, and leaves out inputs that are 0 in all states, such as those that ReLU made 0. This changes no bit of the
// result, except perhaps the sign of a 0.
func (l *Linear) listed(b Block, panels int) {
	s := listings.Get().(*listing)
	defer listings.Put(s)
	floor, in, width := floor(l.relu), l.m.In, len(l.bias)
	v := &s.vector
	*v = *l
	v.batch = 1
	for n := range l.batch {
		v.x, v.outputs = l.x[n*in:(n+1)*in], l.outputs[n*width:(n+1)*width]
		if !s.list(b, v.x, panels, l.units) {
			current.linear(v, b, panels, floor)
			continue
		}
		for u := 0; u < width; u += l.units {
			current.update(b, v.outputs[u:u+l.units], s.x, s.rows, l.packed[u*in:], l.bias[u:u+l.units], panels, floor)
		}
	}
}

// listing lists inputs of a vector.
type listing struct {
	vector Linear
	x      []uint32 // their elements
	rows   []uint32 // where their weights begin in those of a group
}

var listings = sync.Pool{New: func() any { return new(listing) }}

// list lists the inputs that are not 0 in some state of the panels. It reports whether they are few, at most 7 in 8. It does not
// list them if none of a sample of the inputs is 0 in all states.
func (s *listing) list(b Block, x []uint32, panels, units int) bool {
	const sample = 16
	dense := true
	for i := 0; dense && i < sample; i++ {
		dense = !zero(b, x[i*len(x)/sample], panels)
	}
	if dense {
		return false
	}
	s.x, s.rows = s.x[:0], s.rows[:0]
	for k, from := range x {
		if !zero(b, from, panels) {
			s.x, s.rows = append(s.x, from), append(s.rows, uint32(k*units))
		}
	}
	return 8*len(s.x) <= 7*len(x)
}

// zero reports whether an element is 0 in all states of the panels.
func zero(b Block, element uint32, panels int) bool {
	for t := element; t < element+uint32(panels*Columns); t += 8 {
		v := (*[8]float32)(b[t:])
		if magnitude(v[0])|magnitude(v[1])|magnitude(v[2])|magnitude(v[3])|magnitude(v[4])|magnitude(v[5])|magnitude(v[6])|magnitude(v[7]) != 0 {
			return false
		}
	}
	return true
}

// magnitude returns the bits of a number without the sign. They are 0 only for 0.
func magnitude(v float32) uint32 { return math.Float32bits(v) << 1 }

func linearPortable(l *Linear, b Block, panels int, floor float32) {
	m := l.m
	for i, to := range l.out {
		row, u := i/m.Out, i%m.Out
		bias, w, x := m.bias[u], m.weight[u*m.In:(u+1)*m.In], l.x[row*m.In:(row+1)*m.In]
		for t := uint32(0); t < uint32(panels*Columns); t += 8 {
			a0, a1, a2, a3, a4, a5, a6, a7 := bias, bias, bias, bias, bias, bias, bias, bias
			for k, from := range x {
				y, v := w[k], (*[8]float32)(b[from+t:])
				a0 += float32(y * v[0])
				a1 += float32(y * v[1])
				a2 += float32(y * v[2])
				a3 += float32(y * v[3])
				a4 += float32(y * v[4])
				a5 += float32(y * v[5])
				a6 += float32(y * v[6])
				a7 += float32(y * v[7])
			}
			y := b[to+t:][:8]
			y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7] = a0, a1, a2, a3, a4, a5, a6, a7
			clamp(y, 0, floor, nil)
		}
	}
}
