package kernel

// Linear applies one linear layer to a batch of vectors whose elements are elements of a
// block. It is at least as fast as a call of Product with all inputs for each vector, and
// faster for small layers. A Linear is read-only and may be shared by all goroutines.
//
// At levels with digits, Linear calls Product for a large layer if the elements of each
// vector are adjacent. Otherwise it does not use digits. At other levels, Linear and Product
// agree to the last bit.
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
}

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
// A state's result depends on that state alone. NaN stays NaN. Compute allocates no memory.
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
	if len(l.out) > 0 {
		current.linear(l, b, panelsOf(states), floor(l.relu))
	}
}

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
