package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var functionNames = [functions]string{"Copy", "Negate", "Absolute", "ReLU", "SquareRoot", "Reciprocal", "Exp", "Log", "Sigmoid", "HyperbolicTangent", "Erf", "Softplus"}

// functionsIn64 are the definitions of the functions, in float64.
var functionsIn64 = [functions]func(x float64) float64{
	Copy:              func(x float64) float64 { return x },
	Negate:            func(x float64) float64 { return -x },
	Absolute:          math.Abs,
	ReLU:              func(x float64) float64 { return max(x, 0) },
	SquareRoot:        math.Sqrt,
	Reciprocal:        func(x float64) float64 { return 1 / x },
	Exp:               math.Exp,
	Log:               math.Log,
	Sigmoid:           func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
	HyperbolicTangent: math.Tanh,
	Erf:               math.Erf,
	Softplus:          func(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) },
}

// ulp returns the distance between neighbouring float32 numbers at x.
func ulp(x float64) float64 {
	_, exponent := math.Frexp(x)
	return math.Ldexp(1, max(exponent-24, -149))
}

// applied returns f of any number of values.
func applied(f Function, x []float32) []float32 {
	n := (len(x) + States - 1) / States
	b := make(Block, 2*n*States)
	copy(b[n*States:], x)
	Apply(f, b, States, consecutive(0, n), consecutive(n, n))
	return b[:len(x)]
}

// Every function has the accuracy that its comment states, over all of float32.
func TestFunctionsArePrecise(t *testing.T) {
	within := [functions]float64{.5, .5, .5, .5, .5, .5, 2, 3, 4, 2.5, math.Inf(1), 4} // ulp
	var x []float32
	for bits := uint32(0); bits < 0x7f800000; bits += 19997 {
		x = append(x, math.Float32frombits(bits), math.Float32frombits(bits|1<<31))
	}
	for bits := math.Float32bits(1e-3); bits < math.Float32bits(110); bits += 797 {
		x = append(x, math.Float32frombits(bits), -math.Float32frombits(bits))
	}
	everyLevel(t, func(t *testing.T) {
		for f := range functions {
			worst, worstULP := 0.0, 0.0
			at := float32(0)
			for i, got := range applied(f, x) {
				want := functionsIn64[f](float64(x[i]))
				if f >= Exp && math.Abs(want) < 0x1p-126 && f != Erf && f != Log || f == HyperbolicTangent && math.Abs(want) < Tiny {
					if got != 0 && math.Abs(float64(got)-want) > 0x1p-126 {
						t.Fatalf("%s(%v) = %v, want %v or 0", functionNames[f], x[i], got, want)
					}
					continue
				}
				if math.IsNaN(want) || math.IsInf(float64(float32(want)), 0) {
					if got == got && float64(got) != float64(float32(want)) || got != got && want == want {
						t.Fatalf("%s(%v) = %v, want %v", functionNames[f], x[i], got, want)
					}
					continue
				}
				off := math.Abs(float64(got) - want)
				if !(off/ulp(want) <= worstULP) {
					worstULP, at = off/ulp(want), x[i]
				}
				worst = max(worst, off)
			}
			t.Logf("%s: %.2f ulp, at %v", functionNames[f], worstULP, at)
			if worstULP > within[f] {
				t.Errorf("%s(%v) is off by %.2f ulp, want at most %.1f", functionNames[f], at, worstULP, within[f])
			}
			if f == Erf {
				if t.Logf("Erf: %.2g", worst); worst > 1e-7 {
					t.Errorf("Erf is off by %.2g, want at most 1e-7", worst)
				}
			}
		}
	})
}

// alike reports whether x equals y or both are NaN.
func alike(x, y float32) bool { return x == y || x != x && y != y }

// same reports whether all elements of x and y are alike.
func same(x, y []float32) bool { return slices.EqualFunc(x, y, alike) }

// The functions have the right values at NaN, infinities, zeros and the limits of Exp.
func TestFunctionsOfSpecialValues(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	x := []float32{nan, inf, -inf, 0, float32(math.Copysign(0, -1)), 1, -1, 88.7, 89, -87.4, 1e-45, 1e30}
	everyLevel(t, func(t *testing.T) {
		for f, want := range map[Function][]float32{
			Copy:              x,
			Negate:            {nan, -inf, inf, 0, 0, -1, 1, -88.7, -89, 87.4, -1e-45, -1e30},
			Absolute:          {nan, inf, inf, 0, 0, 1, 1, 88.7, 89, 87.4, 1e-45, 1e30},
			ReLU:              {nan, inf, 0, 0, 0, 1, 0, 88.7, 89, 0, 1e-45, 1e30},
			SquareRoot:        {nan, inf, nan, 0, 0, 1, nan},
			Reciprocal:        {nan, 0, 0, inf, -inf, 1, -1},
			Exp:               {nan, inf, 0, 1, 1},
			Log:               {nan, inf, nan, -inf, -inf, 0, nan},
			Sigmoid:           {nan, 1, 0, .5, .5},
			HyperbolicTangent: {nan, 1, -1, 0, 0},
			Erf:               {nan, 1, -1, 0, 0},
			Softplus:          {nan, inf, 0, 0.6931472, 0.6931472},
		} {
			if got := applied(f, x)[:len(want)]; !same(got, want) {
				t.Errorf("%s of %v is %v, want %v", functionNames[f], x[:len(want)], got, want)
			}
		}
		if got := applied(Exp, x); got[8] != inf || got[9] != 0 || !(got[7] > 3e38) || got[7] == inf || got[10] != 1 || got[11] != inf {
			t.Errorf("Exp of %v is %v", x, got)
		}
	})
}

// headBlock returns a block surrounded by NaN, and four disjoint lists of n of its elements
// each, in random order.
func headBlock(r *rand.Rand, n int) (b Block, whole []float32, lists [4][]int32) {
	b, whole = guardedBlock(r, 4*n+3)
	order := r.Perm(4*n + 3)
	for i := range 4 * n {
		lists[i/n] = append(lists[i/n], int32(order[i]))
	}
	return b, whole, lists
}

// changed fails the test if b differs from old in an element that is not in out, or in a
// state beyond those that a call with these states may write.
func changed(t *testing.T, b, old Block, out []int32, states int) {
	t.Helper()
	for k := range len(b) / States {
		for s := range States {
			if (s >= Pad(states) || !slices.Contains(out, int32(k))) && !alike(b.Element(k)[s], old.Element(k)[s]) {
				t.Fatalf("state %d of element %d changed", s, k)
			}
		}
	}
}

// The functions compute the listed elements of the given states and change no others. A
// list may contain an element several times, and out may be an operand.
func TestApplyIsItsDefinition(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(31, 32))
		for f := range functions {
			for n := 1; n < 6; n++ {
				b, whole, lists := headBlock(r, n)
				old, states := slices.Clone(b), 1+r.IntN(States)
				out, x := lists[0], slices.Clone(lists[1])
				x[r.IntN(n)] = x[0]
				if r.IntN(3) == 0 {
					x = out
				}
				Apply(f, b, states, NewElements(out), NewElements(x))
				guardsHold(t, whole)
				changed(t, b, old, out, states)
				for i := range out {
					if got, want := b.Element(int(out[i]))[:states], applied(f, old.Element(int(x[i]))[:states]); !same(got, want) {
						t.Fatalf("%s: element %d is %v, want %v", functionNames[f], i, got, want)
					}
				}
			}
		}
	})
}

var operationNames = [operations]string{"Add", "Subtract", "Multiply", "Divide", "Maximum", "Minimum", "Leaky", "Equal", "Less", "LessOrEqual"}

// combined is the definition of Combine.
func combined(op Operation, x, y float64) float64 {
	if op < Equal && (math.IsNaN(x) || math.IsNaN(y) && (op != Leaky || x < 0)) {
		return math.NaN()
	}
	b := false
	switch op {
	case Add:
		return x + y
	case Subtract:
		return x - y
	case Multiply:
		return x * y
	case Divide:
		return x / y
	case Maximum:
		return max(x, y)
	case Minimum:
		return min(x, y)
	case Leaky:
		if x < 0 {
			return x * y
		}
		return x
	case Equal:
		b = x == y
	case Less:
		b = x < y
	case LessOrEqual:
		b = x <= y
	}
	if b {
		return 1
	}
	return 0
}

// Combine has the results of combined, and writes only out.
func TestCombineIsItsDefinition(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(33, 34))
		for op := range operations {
			for n := 1; n < 8; n++ {
				b, whole, lists := headBlock(r, n)
				for range len(b) { // few different values, so that some are equal
					b[r.IntN(len(b))] = []float32{nan, inf, -inf, 0, 1, -1, 2, -3}[r.IntN(8)]
				}
				old, states := Block(slices.Clone(b)), 1+r.IntN(States)
				out, x, y := lists[0], lists[1], slices.Clone(lists[2])
				switch r.IntN(4) {
				case 0:
					x = out
				case 1:
					y = out
				case 2:
					y[n-1] = y[0]
				}
				Combine(op, b, states, NewElements(out), NewElements(x), NewElements(y))
				guardsHold(t, whole)
				changed(t, b, old, out, states)
				for i := range out {
					for s := range states {
						v, w := old.Element(int(x[i]))[s], old.Element(int(y[i]))[s]
						want := float32(combined(op, float64(v), float64(w)))
						if got := b.Element(int(out[i]))[s]; !alike(got, want) {
							t.Fatalf("%s of %v and %v is %v, want %v", operationNames[op], v, w, got, want)
						}
					}
				}
			}
		}
	})
}

// MultiplyAdd, Choose and Affine agree with float64 within rounding, and write only out.
func TestTriplesAreTheirDefinition(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(35, 36))
		for n := 1; n < 8; n++ {
			b, whole, lists := headBlock(r, n)
			for range len(b) / 3 {
				b[r.IntN(len(b))] = 0
			}
			old, states := Block(slices.Clone(b)), 1+r.IntN(States)
			out, x, y, z := lists[0], lists[1], lists[2], lists[3]
			if n%2 == 0 {
				z = out
			}
			at := func(b Block, list []int32, i, s int) float64 { return float64(b.Element(int(list[i]))[s]) }
			check := func(want func(i, s int) float64) {
				t.Helper()
				guardsHold(t, whole)
				changed(t, b, old, out, states)
				for i := range out {
					for s := range states {
						near(t, b.Element(int(out[i]))[s], want(i, s), 10, 1)
					}
				}
				copy(b, old)
			}
			MultiplyAdd(b, states, NewElements(out), NewElements(x), NewElements(y), NewElements(z))
			check(func(i, s int) float64 { return at(old, x, i, s)*at(old, y, i, s) + at(old, z, i, s) })
			Choose(b, states, NewElements(out), NewElements(x), NewElements(y), NewElements(z))
			check(func(i, s int) float64 {
				if at(old, x, i, s) != 0 {
					return at(old, y, i, s)
				}
				return at(old, z, i, s)
			})
			scale, offset := normal(r, n), normal(r, n)
			Affine(b, states, NewElements(out), NewElements(z), scale, offset)
			check(func(i, s int) float64 { return at(old, z, i, s)*float64(scale[i]) + float64(offset[i]) })
		}
	})
}

// Reduce agrees with float64 within rounding, keeps NaN, and writes only out.
func TestReduceIsItsDefinition(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(37, 38))
		for op := range reductions {
			for n := 1; n < 12; n++ {
				for outs := 1; outs < 4; outs++ {
					b, whole, lists := headBlock(r, n*outs)
					old, states := Block(slices.Clone(b)), 1+r.IntN(States)
					out, x := lists[0][:outs], lists[1]
					x[n*outs-1] = x[0]
					Reduce(op, b, states, NewElements(out), NewElements(x))
					guardsHold(t, whole)
					changed(t, b, old, out, states)
					for i := range outs {
						for s := range states {
							want, size := float64(old.Element(int(x[i*n]))[s]), 0.0
							for _, k := range x[i*n+1 : (i+1)*n] {
								v := float64(old.Element(int(k))[s])
								size += math.Abs(v)
								want = []float64{want + v, max(want, v), min(want, v)}[op]
							}
							if op != Sum {
								size = 0
							}
							near(t, b.Element(int(out[i]))[s], want, size+math.Abs(want), n)
						}
					}
				}
			}
			for at := range 3 { // NaN stays, wherever it is
				b := NewBlock(4)
				b.Element(at)[5] = float32(math.NaN())
				Reduce(op, b, 6, consecutive(3, 1), consecutive(0, 3))
				if v := b.Element(3); v[5] == v[5] || v[4] != 0 {
					t.Errorf("reduction %d with NaN at %d is %v", op, at, v[:6])
				}
			}
		}
		Reduce(Sum, nil, 1, NewElements(nil), NewElements(nil))
	})
}

// Softmax agrees with float64, has the documented results at NaN and infinities, and writes
// only out.
func TestSoftmaxIsItsDefinition(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(45, 46))
		for n := 1; n < 20; n++ {
			b, whole, lists := headBlock(r, 3*n)
			for i := range b {
				b[i] *= 10
			}
			old, states := Block(slices.Clone(b)), 1+r.IntN(States)
			out, x := lists[0], slices.Clone(lists[1])
			x[n-1] = x[0]
			if n%2 == 0 {
				x = out
			}
			Softmax(b, states, NewElements(out), NewElements(x), n)
			guardsHold(t, whole)
			changed(t, b, old, out, states)
			for i := 0; i < 3*n; i += n {
				for s := range states {
					largest, sum := math.Inf(-1), 0.0
					for _, k := range x[i : i+n] {
						largest = max(largest, float64(old.Element(int(k))[s]))
					}
					for _, k := range x[i : i+n] {
						sum += math.Exp(float64(old.Element(int(k))[s]) - largest)
					}
					for j := range n {
						below := largest - float64(old.Element(int(x[i+j]))[s]) // rounded before exp
						want := math.Exp(-below) / sum
						if got := float64(b.Element(int(out[i+j]))[s]); !(math.Abs(got-want) <= (1e-6+1e-7*below)*want+1e-18) {
							t.Fatalf("softmax of %d elements is %v, want %v", n, got, want)
						}
					}
				}
			}
		}
		for _, c := range []struct{ x, want []float32 }{
			{[]float32{nan, 1, 2}, []float32{nan, nan, nan}},
			{[]float32{1, nan, 2}, []float32{nan, nan, nan}},
			{[]float32{1, 2, nan}, []float32{nan, nan, nan}},
			{[]float32{inf, 1, 2}, []float32{nan, nan, nan}},
			{[]float32{-inf, -inf, -inf}, []float32{nan, nan, nan}},
			{[]float32{-inf, 1, -inf}, []float32{0, 1, 0}},
			{[]float32{-1e9, 3e38, 3e38}, []float32{0, .5, .5}},
			{[]float32{-42, 0, -100}, []float32{0, 1, 0}},
		} {
			b := NewBlock(3)
			for i, v := range c.x {
				b.Element(i)[2] = v
			}
			Softmax(b, 3, consecutive(0, 3), consecutive(0, 3), 3)
			if got := []float32{b.Element(0)[2], b.Element(1)[2], b.Element(2)[2]}; !same(got, c.want) || b.Element(0)[1] != float32(1)/3 {
				t.Errorf("softmax of %v is %v, want %v", c.x, got, c.want)
			}
		}
	})
}

// pairsShapes are the batch, rows, columns and inner of products. Some consist of whole
// tiles, some do not, and some have a vector as an operand.
var pairsShapes = [][4]int{{1, 5, 5, 3}, {1, 3, 4, 7}, {2, 6, 11, 2}, {1, 1, 1, 9}, {29, 1, 1, 4}, {3, 1, 13, 5}, {2, 17, 1, 5}, {3, 2, 2, 3}, {1, 39, 2, 4}, {1, 4, 9, 0}, {2, 3, 17, 4}, {0, 2, 2, 2}, {1, 0, 3, 1}}

// Pairs agrees with float64 within rounding, and writes only the outputs that are not
// Discarded.
func TestPairsAreTheirDefinition(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(39, 40))
		for _, shape := range pairsShapes {
			for try := range 3 {
				batch, rows, columns, inner := shape[0], shape[1], shape[2], shape[3]
				operands := batch*(rows+columns)*inner + 1
				b, whole := guardedBlock(r, batch*rows*columns+operands)
				order := r.Perm(len(b) / States)
				out, x, y := make([]int32, batch*rows*columns), make([]int32, batch*rows*inner), make([]int32, batch*columns*inner)
				for i := range out {
					out[i] = int32(order[i])
				}
				for i := range x {
					x[i] = int32(order[len(out)+r.IntN(operands)])
				}
				for i := range y {
					y[i] = int32(order[len(out)+r.IntN(operands)])
				}
				if try > 0 {
					for i := range out {
						if r.IntN(1+try) > 0 {
							out[i] = Discarded
						}
					}
				}
				old, states := Block(slices.Clone(b)), 1+r.IntN(States)
				NewPairs(out, x, y, batch, rows, columns, inner).Compute(b, states)
				guardsHold(t, whole)
				changed(t, b, old, out, states)
				for o, to := range out {
					if to == Discarded {
						continue
					}
					for s := range states {
						n, i, j := o/columns/rows, o/columns%rows, o%columns
						want, size := 0.0, 0.0
						for k := range inner {
							p := float64(old.Element(int(x[(n*rows+i)*inner+k]))[s]) * float64(old.Element(int(y[(n*columns+j)*inner+k]))[s])
							want, size = want+p, size+math.Abs(p)
						}
						near(t, b.Element(int(to))[s], want, size, inner)
					}
				}
			}
		}
	})
}

// An output has the same bits in every product and in every tile, and depends on no other
// state. NaN stays in its state and in the outputs that need it.
func TestPairsOfOneState(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(41, 42))
		const rows, columns, inner = 13, 22, 9
		b, _ := guardedBlock(r, (rows+columns)*inner+2*rows*columns)
		list := func(first, n int) []int32 {
			l := make([]int32, n)
			for i := range l {
				l[i] = int32(first + i)
			}
			return l
		}
		x, y, out := list(0, rows*inner), list(rows*inner, columns*inner), list((rows+columns)*inner, rows*columns)
		alone := int32((rows+columns)*inner + rows*columns)
		b.Element(3*inner + 2)[7] = float32(math.NaN())
		b.Element((rows + 5) * inner)[9] = float32(math.Inf(1))
		NewPairs(out, x, y, 1, rows, columns, inner).Compute(b, States)
		for o := range out {
			i, j := o/columns, o%columns
			NewPairs([]int32{alone}, x[i*inner:][:inner], y[j*inner:][:inner], 1, 1, 1, inner).Compute(b, States)
			got, want := b.Element(int(out[o])), b.Element(int(alone))
			if !same(got, want) {
				t.Fatalf("output %d, %d is %v in a matrix and %v alone", i, j, got, want)
			}
			for s, v := range got {
				if (v != v) != (s == 7 && i == 3) || math.IsInf(float64(v), 0) != (s == 9 && j == 5) {
					t.Fatalf("output %d, %d of state %d is %v", i, j, s, v)
				}
			}
		}
		one := NewBlock(len(b) / States) // a state alone
		s, to := 11, 30
		for k := range (rows + columns) * inner {
			one.Element(k)[to] = b.Element(k)[s]
		}
		NewPairs(out, x, y, 1, rows, columns, inner).Compute(one, to+1)
		for _, o := range out {
			if got, want := one.Element(int(o))[to], b.Element(int(o))[s]; got != want {
				t.Fatalf("element %d of a state is %v alone and %v with others", o, got, want)
			}
		}
	})
}

// Linear has the results of Product for each vector. They agree to the last bit unless
// Product uses digits.
func TestLinearIsProduct(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(43, 44))
		for _, in := range []int{0, 1, 2, 16, 37} {
			for _, out := range []int{1, 5, 6, 7, 8, 9, 24, 31} {
				for batch := range 3 {
					m := NewOutputs(normal(r, in*out), normal(r, out), in, out)
					b, whole := guardedBlock(r, in+1+batch*out)
					order := r.Perm(len(b) / States)
					x, to := make([]int32, batch*in), make([]int32, batch*out)
					for i := range x {
						x[i] = int32(order[r.IntN(in+1)])
					}
					for i := range to {
						to[i] = int32(order[in+1+i])
					}
					if in > 0 {
						b.Element(order[0])[3] = float32(math.NaN())
					}
					relu, states := r.IntN(2) == 0, 1+r.IntN(States)
					old := Block(slices.Clone(b))
					NewLinear(m, to, x, batch, relu).Compute(b, states)
					guardsHold(t, whole)
					gathered, want := NewBlock(in), NewBlock(out)
					for n := range batch {
						for k := range in {
							copy(gathered.Element(k), old.Element(int(x[n*in+k])))
						}
						m.Product(want, gathered, states, nil, nil, relu)
						for u := range out {
							got := b.Element(int(to[n*out+u]))
							for s, v := range want.Element(u)[:states] {
								if !alike(got[s], v) && !(current.digits && math.Abs(float64(got[s]-v)) < 1e-4) {
									t.Fatalf("in %d out %d: unit %d of state %d is %v, want %v", in, out, u, s, got[s], v)
								}
							}
						}
					}
					changed(t, b, old, to, states)
				}
			}
		}
	})
}

// A Linear leaves out exactly the inputs that are 0 in all states of the panels, and gives the same result as one that does not. It
// leaves out none if a weight is infinite.
func TestLinearLeavesOut(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(49, 50))
		const in, out, batch = fewestListed + 9, fewestListed + 5, 2
		for _, large := range []float32{1, float32(math.Inf(1))} {
			weight := normal(r, in*out)
			weight[5*in+7] = large
			m := NewOutputs(weight, normal(r, out), in, out)
			b, whole := guardedBlock(r, batch*(in+out))
			list := make([]int32, batch*(in+out))
			for i, k := range r.Perm(len(list)) {
				list[i] = int32(k)
			}
			for i, k := range list[:batch*in] {
				for s := range b.Element(int(k)) {
					switch {
					case i%in == 7 || i%3 == 0 || i < in && i%2 == 0 || i%3 == 1 && s != i%States: // the second vector has more inputs
						b.Element(int(k))[s] = float32(math.Copysign(0, float64(s%2)-.5))
					case i == 2*in-1 && s == 17:
						b.Element(int(k))[s] = float32(math.NaN())
					}
				}
			}
			for _, states := range []int{1, 17, States} {
				for _, relu := range []bool{false, true} {
					l := NewLinear(m, list[batch*in:], list[:batch*in], batch, relu)
					if want := large == 1 && current.units > 0; l.listing != want {
						t.Errorf("Linear leaves out inputs: %t, want %t", l.listing, want)
					}
					for n := 0; l.listing && n < batch; n++ {
						var found listing
						var want []uint32
						x := l.x[n*in : (n+1)*in]
						for _, from := range x {
							if slices.ContainsFunc(b[from:][:panelsOf(states)*Columns], func(v float32) bool { return v != 0 }) {
								want = append(want, from)
							}
						}
						if !found.list(b, x, panelsOf(states), l.units) || !slices.Equal(found.x, want) {
							t.Errorf("inputs %v, want %v of %v", found.x, want, x)
						}
					}
					old := Block(slices.Clone(b))
					l.Compute(b, states)
					got := slices.Clone(b)
					guardsHold(t, whole)
					changed(t, b, old, list[batch*in:], states)
					copy(b, old)
					l.listing = false
					l.Compute(b, states)
					for _, to := range list[batch*in:] {
						for s, v := range b.Element(int(to))[:states] {
							if !alike(Block(got).Element(int(to))[s], v) {
								t.Fatalf("state %d of %d, infinite weight %t, ReLU %t: %v, want %v", s, states, large > 1, relu, Block(got).Element(int(to))[s], v)
							}
						}
					}
					copy(b, old)
				}
			}
		}
	})
}

// A Linear that calls Product gives the same result as one that does not.
func TestLinearCallsProduct(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(47, 48))
		const in, out, batch = fewestDigits, fewestDigits + 3, 2
		m := NewOutputs(normal(r, in*out), normal(r, out), in, out)
		b, whole := guardedBlock(r, batch*(in+out))
		list := make([]int32, batch*(in+out))
		for i := range list {
			list[i] = int32(i)
		}
		l := NewLinear(m, list[batch*in:], list[:batch*in], batch, true)
		if l.product != current.digits {
			t.Errorf("Linear calls Product: %t, want %t", l.product, current.digits)
		}
		if list[1], list[2] = 2, 1; NewLinear(m, list[batch*in:], list[:batch*in], batch, true).product {
			t.Error("Linear calls Product although the elements are not adjacent")
		}
		old := Block(slices.Clone(b))
		l.Compute(b, States)
		want := slices.Clone(b)
		copy(b, old)
		l.product = true
		l.Compute(b, States)
		guardsHold(t, whole)
		changed(t, b, old, list[batch*in:], States)
		if !slices.Equal(b, want) {
			t.Error("the result differs if Linear calls Product")
		}
	})
}

// No call of the primitives allocates memory.
func TestHeadsAllocateNothing(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		b := NewBlock(40)
		two := consecutive(20, 2)
		x, y, z := consecutive(0, 8), consecutive(8, 8), consecutive(16, 8)
		p := NewPairs([]int32{30, 31, 32, 33}, []int32{0, 1, 2, 3}, []int32{4, 5, 6, 7}, 1, 2, 2, 2)
		l := NewLinear(NewOutputs(make([]float32, 6), nil, 2, 3), []int32{34, 35, 36}, []int32{0, 3}, 1, true)
		numbers := make([]float32, 8)
		if n := testing.AllocsPerRun(5, func() {
			for f := range functions {
				Apply(f, b, 48, x, y)
			}
			for op := range operations {
				Combine(op, b, 48, x, y, z)
			}
			Reduce(Largest, b, 48, two, y)
			MultiplyAdd(b, 48, x, y, z, x)
			Choose(b, 48, x, y, z, x)
			Softmax(b, 48, x, y, 4)
			Affine(b, 48, x, y, numbers, numbers)
			p.Compute(b, 48)
			l.Compute(b, 48)
		}); n != 0 {
			t.Errorf("%v allocations, want none", n)
		}
	})
}

// BenchmarkPairs measures the dot products of FM, all and half of them, the attention of
// AutoInt, and the attention of one query.
func BenchmarkPairs(b *testing.B) {
	for _, shape := range []struct {
		name                        string
		batch, rows, columns, inner int
		half                        bool
	}{
		{"39x39x16", 1, 39, 39, 16, false},
		{"39x39x16/half", 1, 39, 39, 16, true},
		{"39x39x32", 1, 39, 39, 32, false},
		{"39x39x64", 1, 39, 39, 64, false},
		{"39x16x39", 1, 39, 16, 39, false},
		{"39x32x39", 1, 39, 32, 39, false},
		{"39x64x39", 1, 39, 64, 39, false},
		{"2x39x32x39", 2, 39, 32, 39, false},
		{"1x50x16", 1, 1, 50, 16, false},
	} {
		b.Run(shape.name, func(b *testing.B) {
			benchEveryLevel(b, func(b *testing.B) (int, func()) {
				nx, ny, n := shape.batch*shape.rows*shape.inner, shape.batch*shape.columns*shape.inner, shape.batch*shape.rows*shape.columns
				block, _ := guardedBlock(rand.New(rand.NewPCG(1, 2)), nx+ny+n)
				list := make([]int32, nx+ny+n)
				for i := range list {
					list[i] = int32(i)
				}
				out := slices.Clone(list[nx+ny:])
				if shape.half {
					for o := range out {
						if o%39 <= o/39 {
							out[o], n = Discarded, n-1
						}
					}
				}
				p := NewPairs(out, list[:nx], list[nx:nx+ny], shape.batch, shape.rows, shape.columns, shape.inner)
				return 2 * 48 * n * shape.inner, func() { p.Compute(block, 48) }
			})
		})
	}
}

// BenchmarkLinear measures a layer on 39 vectors, as AutoInt and FiBiNET have them, and
// larger layers on one vector.
func BenchmarkLinear(b *testing.B) {
	for _, shape := range [][3]int{{39, 16, 16}, {39, 16, 64}, {39, 64, 64}, {39, 64, 32}, {1, 624, 400}, {1, 400, 400}, {1, 624, 624}} {
		b.Run(fmt.Sprintf("%dx%dx%d", shape[0], shape[1], shape[2]), func(b *testing.B) {
			benchEveryLevel(b, func(b *testing.B) (int, func()) {
				r := rand.New(rand.NewPCG(1, 2))
				rows, in, out := shape[0], shape[1], shape[2]
				x, _ := guardedBlock(r, rows*(in+out))
				list := make([]int32, rows*(in+out))
				for i := range list {
					list[i] = int32(i)
				}
				l := NewLinear(NewOutputs(normal(r, in*out), nil, in, out), list[rows*in:], list[:rows*in], rows, false)
				return 2 * 48 * rows * in * out, func() { l.Compute(x, 48) }
			})
		})
	}
}

// BenchmarkAttention measures one layer of AutoInt: 39 fields, 64 columns, 2 heads. Only the
// products count as operations.
func BenchmarkAttention(b *testing.B) {
	benchEveryLevel(b, func(b *testing.B) (int, func()) {
		const fields, width, heads, depth = 39, 64, 2, 32
		r := rand.New(rand.NewPCG(1, 2))
		elements := 0
		value := func(n int) []int32 { // the elements of a new value
			v := make([]int32, n)
			for i := range v {
				v[i] = int32(elements)
				elements++
			}
			return v
		}
		x, scores := value(fields*width), value(heads*fields*fields)
		var projected [4][]int32 // queries, keys, values, residual
		var layers []*Linear
		for i := range projected {
			projected[i] = value(fields * width)
			layers = append(layers, NewLinear(NewOutputs(normal(r, width*width), nil, width, width), projected[i], x, fields, false))
		}
		byHead := func(v []int32, transposed bool) (list []int32) {
			for h := range heads {
				for i := range fields * depth {
					field, column := i/depth, i%depth
					if transposed {
						field, column = i%fields, i/fields
					}
					list = append(list, v[field*width+h*depth+column])
				}
			}
			return list
		}
		y := value(fields * width)
		dots := NewPairs(scores, byHead(projected[0], false), byHead(projected[1], false), heads, fields, fields, depth)
		mix := NewPairs(byHead(y, false), scores, byHead(projected[2], true), heads, fields, depth, fields)
		block, _ := guardedBlock(r, elements)
		s, out, residual := NewElements(scores), NewElements(y), NewElements(projected[3])
		return 2 * 48 * (4*fields*width*width + 2*heads*fields*fields*depth), func() {
			for _, l := range layers {
				l.Compute(block, 48)
			}
			dots.Compute(block, 48)
			Softmax(block, 48, s, s, fields)
			mix.Compute(block, 48)
			Combine(Add, block, 48, out, out, residual)
			Apply(ReLU, block, 48, out, out)
		}
	})
}

// BenchmarkElements measures functions and operations on 256 elements. An element of a state
// counts as one operation.
func BenchmarkElements(b *testing.B) {
	const n = 256
	x, y, z := consecutive(0, n), consecutive(n, n), consecutive(2*n, n)
	numbers := make([]float32, n)
	run := func(name string, f func(block Block)) {
		b.Run(name, func(b *testing.B) {
			benchEveryLevel(b, func(b *testing.B) (int, func()) {
				block, _ := guardedBlock(rand.New(rand.NewPCG(1, 2)), 3*n)
				for i, v := range block {
					block[i] = absoluteOf(v) + 1
				}
				return n * 48, func() { f(block) }
			})
		})
	}
	for f := range functions {
		run(functionNames[f], func(block Block) { Apply(f, block, 48, x, y) })
	}
	for op := range operations {
		run(operationNames[op], func(block Block) { Combine(op, block, 48, x, y, z) })
	}
	run("MultiplyAdd", func(block Block) { MultiplyAdd(block, 48, x, y, z, z) })
	run("Affine", func(block Block) { Affine(block, 48, x, y, numbers, numbers) })
	run("Softmax32", func(block Block) { Softmax(block, 48, x, y, 32) })
	for op, name := range []string{"Sum", "Largest"} {
		for _, length := range []int{16, 64} {
			out := consecutive(0, n/length)
			run(fmt.Sprintf("%s%d", name, length), func(block Block) { Reduce(Reduction(op), block, 48, out, y) })
		}
	}
}

// consecutive returns the list of the elements first, first+1, ..., first+n-1.
func consecutive(first, n int) Elements {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(first + i)
	}
	return NewElements(list)
}
