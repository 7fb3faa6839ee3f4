package kernel

import "math"

// The functions of this file apply operators to lists of elements of one block. With them,
// and with Pairs and Linear, any head can be computed. A value of the head is a list, so
// reshaping, transposing, slicing, concatenating and broadcasting only make new lists.
//
// The functions compute the states t < states, at most 48. They round states up to a
// multiple of 16. A state's result depends on that state alone. They allocate no memory.
//
// The functions panic if an element is outside the block, if an operation or a function is
// unknown, or if lengths do not agree. An element that a call writes may be read by the same
// call only at the same position of the lists. For example, Combine(Add, b, 48, x, x, y)
// adds y to x.

// Elements is a list of elements of a block, in any order. An element may occur several
// times, except in a list that is written. Elements is read-only and may be shared by all
// goroutines.
type Elements struct {
	offset []uint32 // index of the element's first float32
	size   int      // number of elements that a block needs
}

// maxElements is the largest number of elements of a block that Elements can name.
const maxElements = math.MaxInt32 / States

// NewElements returns the list of the given elements.
func NewElements(list []int32) Elements {
	e := Elements{offset: make([]uint32, len(list))}
	for i, k := range list {
		if k < 0 || int(k) >= maxElements {
			panic("kernel: NewElements: element is negative or too large")
		}
		e.offset[i] = uint32(k) * States
		e.size = max(e.size, int(k)+1)
	}
	return e
}

// Len returns the length of the list.
func (e Elements) Len() int { return len(e.offset) }

// check panics if states is not 1 to 48, or if an element of the lists is outside b.
func (b Block) check(states int, lists ...*Elements) {
	if states < 1 || states > States {
		panic("kernel: a block has 1 to 48 states")
	}
	for _, e := range lists {
		if len(b)/States < e.size {
			panic("kernel: an element is outside the block")
		}
	}
}

// panelsOf returns the number of groups of 16 states.
func panelsOf(states int) int { return (states + Columns - 1) / Columns }

// Function is a function of one number, for Apply. The function of NaN is NaN. Unless the
// comment of a constant says otherwise, results are correctly rounded.
type Function uint8

// The functions.
const (
	Copy              Function = iota // x; gathers elements that are not adjacent
	Negate                            // -x
	Absolute                          // |x|
	ReLU                              // max(x, 0)
	SquareRoot                        // NaN for x < 0
	Reciprocal                        // 1/x
	Exp                               // within 2 ulp; results below 2^-126 become 0
	Log                               // within 3 ulp; -Inf for 0, NaN for x < 0
	Sigmoid                           // 1/(1+exp(-x)), within 4 ulp; results below 2^-126 may become 0
	HyperbolicTangent                 // as Tanh with scale 1
	Erf                               // within 1e-7
	Softplus                          // log(1+exp(x)), within 4 ulp; results below 2^-126 may become 0
	functions
)

// Apply sets element out[i] of each state to f of element x[i].
func Apply(f Function, b Block, states int, out, x Elements) {
	b.check(states, &out, &x)
	if f >= functions || out.Len() != x.Len() {
		panic("kernel: Apply: unknown function, or lists of different lengths")
	}
	if out.Len() > 0 {
		current.apply(f, b, out.offset, x.offset, panelsOf(states))
	}
}

// Operation is a function of two numbers, for Combine. Results are correctly rounded. If an
// operand is NaN, the result of an operation other than a comparison is NaN.
type Operation uint8

// The operations.
const (
	Add         Operation = iota // x + y
	Subtract                     // x - y
	Multiply                     // x * y
	Divide                       // x / y
	Maximum                      // the larger one
	Minimum                      // the smaller one
	Leaky                        // x if x >= 0, else x * y; y may have any value if x >= 0
	Equal                        // 1 if x = y, else 0
	Less                         // 1 if x < y, else 0
	LessOrEqual                  // 1 if x <= y, else 0
	operations
)

// Combine sets element out[i] of each state to op of the elements x[i] and y[i].
func Combine(op Operation, b Block, states int, out, x, y Elements) {
	b.check(states, &out, &x, &y)
	if op >= operations || out.Len() != x.Len() || out.Len() != y.Len() {
		panic("kernel: Combine: unknown operation, or lists of different lengths")
	}
	if out.Len() > 0 {
		current.combine(op, b, out.offset, x.offset, y.offset, panelsOf(states))
	}
}

// MultiplyAdd sets element out[i] of each state to x[i] * y[i] + z[i].
func MultiplyAdd(b Block, states int, out, x, y, z Elements) {
	b.check(states, &out, &x, &y, &z)
	if out.Len() != x.Len() || out.Len() != y.Len() || out.Len() != z.Len() {
		panic("kernel: MultiplyAdd: lists of different lengths")
	}
	if out.Len() > 0 {
		current.multiplyAdd(b, out.offset, x.offset, y.offset, z.offset, panelsOf(states))
	}
}

// Choose sets element out[i] of each state to y[i] if x[i] is not 0, else to z[i].
func Choose(b Block, states int, out, x, y, z Elements) {
	b.check(states, &out, &x, &y, &z)
	if out.Len() != x.Len() || out.Len() != y.Len() || out.Len() != z.Len() {
		panic("kernel: Choose: lists of different lengths")
	}
	if out.Len() > 0 {
		current.choose(b, out.offset, x.offset, y.offset, z.offset, panelsOf(states))
	}
}

// Affine sets element out[i] of each state to scale[i] * x[i] + offset[i], where scale and
// offset are the same for all states.
func Affine(b Block, states int, out, x Elements, scale, offset []float32) {
	b.check(states, &out, &x)
	if out.Len() != x.Len() || out.Len() != len(scale) || out.Len() != len(offset) {
		panic("kernel: Affine: lists of different lengths")
	}
	if out.Len() > 0 {
		current.affine(b, out.offset, x.offset, scale, offset, panelsOf(states))
	}
}

// Reduction is a function of several numbers, for Reduce. If one of them is NaN, the
// result is NaN.
type Reduction uint8

// The reductions.
const (
	Sum Reduction = iota // added in the order of the list
	Largest
	Smallest
	reductions
)

// Reduce sets element out[i] of each state to the reduction of the elements x[i*n],
// x[i*n+1], ..., x[i*n+n-1], where n is the length of x divided by that of out. The length
// of x must be a positive multiple of that of out, or both must be 0. The two lists must not
// share elements.
func Reduce(op Reduction, b Block, states int, out, x Elements) {
	b.check(states, &out, &x)
	if out.Len() == 0 && x.Len() == 0 {
		return
	}
	if op >= reductions || out.Len() == 0 || x.Len() == 0 || x.Len()%out.Len() != 0 {
		panic("kernel: Reduce: unknown reduction, or the length of x is not a multiple of that of out")
	}
	current.reduce(op, b, out.offset, x.offset, panelsOf(states))
}

// Softmax sets each row of n elements of out to the softmax of that row of x, for each
// state:
//
//	e[i] = exp(x[i] - the largest element of the row); out[i] = e[i] * (1 / (e[0] + ... + e[n-1]))
//
// The lengths of the lists are a multiple of n. exp is that of Apply, except that results
// below 1e-18 become 0, for the reason that Tiny gives. If an element of a row is NaN or
// +Inf, or all are -Inf, the row becomes NaN.
func Softmax(b Block, states int, out, x Elements, n int) {
	b.check(states, &out, &x)
	if out.Len() != x.Len() || n < 1 || x.Len()%n != 0 {
		panic("kernel: Softmax: lists of different lengths, or not a multiple of n")
	}
	if out.Len() > 0 {
		current.softmax(b, out.offset, x.offset, n, panelsOf(states))
	}
}

// The portable functions follow, which all levels can run.

func applyPortable(f Function, b Block, out, x []uint32, panels int) {
	n := panels * Columns
	for i, o := range out {
		to, from := b[o:][:n], b[x[i]:][:n]
		switch f {
		case Copy:
			copy(to, from)
		case Negate:
			each(to, from, func(v float32) float32 { return -v })
		case Absolute:
			each(to, from, absoluteOf)
		case ReLU:
			each(to, from, func(v float32) float32 { return larger(v, 0) })
		case SquareRoot:
			each(to, from, func(v float32) float32 { return float32(math.Sqrt(float64(v))) })
		case Reciprocal:
			each(to, from, func(v float32) float32 { return 1 / v })
		case Exp:
			each(to, from, exponential)
		case Log:
			each(to, from, logarithm)
		case Sigmoid:
			each(to, from, sigmoid)
		case HyperbolicTangent:
			each(to, from, func(v float32) float32 { return flush(hyperbolic(v)) })
		case Erf:
			each(to, from, errorFunction)
		case Softplus:
			each(to, from, softplus)
		}
	}
}

// each sets out[t] to f(x[t]).
func each(out, x []float32, f func(v float32) float32) {
	for t, v := range x {
		out[t] = f(v)
	}
}

func combinePortable(op Operation, b Block, out, x, y []uint32, panels int) {
	n := panels * Columns
	for i, o := range out {
		to, p, q := b[o:][:n], b[x[i]:][:n], b[y[i]:][:n]
		switch op {
		case Add:
			pairwise(to, p, q, func(v, w float32) float32 { return v + w })
		case Subtract:
			pairwise(to, p, q, func(v, w float32) float32 { return v - w })
		case Multiply:
			pairwise(to, p, q, func(v, w float32) float32 { return v * w })
		case Divide:
			pairwise(to, p, q, func(v, w float32) float32 { return v / w })
		case Maximum:
			pairwise(to, p, q, larger)
		case Minimum:
			pairwise(to, p, q, smaller)
		case Leaky:
			pairwise(to, p, q, func(v, w float32) float32 {
				if v < 0 {
					return v * w
				}
				return v
			})
		case Equal:
			pairwise(to, p, q, func(v, w float32) float32 { return truth(v == w) })
		case Less:
			pairwise(to, p, q, func(v, w float32) float32 { return truth(v < w) })
		case LessOrEqual:
			pairwise(to, p, q, func(v, w float32) float32 { return truth(v <= w) })
		}
	}
}

// pairwise sets out[t] to f(x[t], y[t]).
func pairwise(out, x, y []float32, f func(v, w float32) float32) {
	for t, v := range x {
		out[t] = f(v, y[t])
	}
}

// truth returns 1 for true and 0 for false.
func truth(b bool) float32 {
	if b {
		return 1
	}
	return 0
}

// larger returns the larger number, or NaN if either is NaN.
func larger(v, w float32) float32 {
	if v > w || v != v {
		return v
	}
	return w
}

// smaller returns the smaller number, or NaN if either is NaN.
func smaller(v, w float32) float32 {
	if v < w || v != v {
		return v
	}
	return w
}

func multiplyAddPortable(b Block, out, x, y, z []uint32, panels int) {
	for i, o := range out {
		for t := range uint32(panels * Columns) {
			b[o+t] = float32(b[x[i]+t]*b[y[i]+t]) + b[z[i]+t]
		}
	}
}

func choosePortable(b Block, out, x, y, z []uint32, panels int) {
	for i, o := range out {
		for t := range uint32(panels * Columns) {
			from := z[i]
			if b[x[i]+t] != 0 {
				from = y[i]
			}
			b[o+t] = b[from+t]
		}
	}
}

func affinePortable(b Block, out, x []uint32, scale, offset []float32, panels int) {
	for i, o := range out {
		for t := range uint32(panels * Columns) {
			b[o+t] = float32(scale[i]*b[x[i]+t]) + offset[i]
		}
	}
}

func reducePortable(op Reduction, b Block, out, x []uint32, panels int) {
	n := len(x) / len(out)
	for i, o := range out {
		to := b[o:][:panels*Columns]
		copy(to, b[x[i*n]:])
		for _, k := range x[i*n+1 : (i+1)*n] {
			from := b[k:][:panels*Columns]
			switch op {
			case Sum:
				for t, v := range from {
					to[t] += v
				}
			case Largest:
				pairwise(to, to, from, larger)
			case Smallest:
				pairwise(to, to, from, smaller)
			}
		}
	}
}

// softmaxSmallest is the number below which Softmax replaces its exponential by 0.
const softmaxSmallest = -41.5

func softmaxPortable(b Block, out, x []uint32, n, panels int) {
	for i := 0; i < len(out); i += n {
		for t := range uint32(panels * Columns) {
			largest, sum := b[x[i]+t], float32(0)
			for _, k := range x[i : i+n] {
				largest = larger(b[k+t], largest)
			}
			for j, to := range out[i : i+n] {
				e, below := float32(0), b[x[i+j]+t]-largest
				if !(below < softmaxSmallest) {
					e = exponential(below)
				}
				b[to+t] = e
				sum += e
			}
			sum = 1 / sum
			for _, to := range out[i : i+n] {
				b[to+t] *= sum
			}
		}
	}
}
