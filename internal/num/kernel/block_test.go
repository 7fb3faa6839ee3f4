package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// guardedBlock returns a block of n normal elements surrounded by NaN.
func guardedBlock(r *rand.Rand, n int) (Block, []float32) {
	whole := slices.Repeat([]float32{float32(math.NaN())}, n*States+32)
	b := whole[16 : 16+n*States : 16+n*States]
	copy(b, normal(r, len(b)))
	return b, whole
}

// randomList returns a random ascending list of numbers below n, with capacity for
// prefetching.
func randomList(r *rand.Rand, n int) []int32 {
	list := NewList(n)
	for k := range n {
		if r.IntN(3) > 0 {
			list = append(list, int32(k))
		}
	}
	return list
}

func TestProductIsItsDefinition(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(11, 12))
		for _, in := range append([]int{0}, lengths...) {
			for _, out := range lengths {
				weight, bias := normal(r, in*out), normal(r, out)
				m := NewOutputs(weight, bias, in, out)
				x, before := guardedBlock(r, in)
				y, after := guardedBlock(r, out)
				old := slices.Clone(y)
				states, relu := 1+r.IntN(States), r.IntN(2) == 0
				units, list := randomList(r, out), randomList(r, in)
				switch r.IntN(4) {
				case 0:
					units, list = nil, nil
				case 1:
					list = slices.Clip(list[:0])
				case 2:
					list = slices.Clip(list)
				}
				m.Product(y, x, states, units, list, relu)
				guardsHold(t, before)
				guardsHold(t, after)
				if list == nil {
					list = m.inputs
				}
				for u := range out {
					if units != nil && !slices.Contains(units, int32(u)) {
						if !slices.Equal(y.Element(u), Block(old).Element(u)) {
							t.Fatalf("Product changed unit %d, which is not in the list", u)
						}
						continue
					}
					for s := range states {
						want, size := float64(bias[u]), math.Abs(float64(bias[u]))
						var xs []float64
						for _, k := range list {
							x := float64(x.Element(int(k))[s])
							p := float64(weight[u*in+int(k)]) * x
							want, size = want+p, size+math.Abs(p)
							xs = append(xs, math.Abs(x))
						}
						if relu {
							want = max(want, 0)
						}
						near(t, y.Element(u)[s], want, size, len(list), byDigits(xs, absolute(weight[u*in:(u+1)*in])))
					}
				}
			}
		}
	})
}

// The output of a state depends only on that state, and the output of a unit only on that
// unit. Steps computes the same output. It agrees to the last bit unless Product uses
// digits.
func TestTransposed(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		const in, out = 5, 3
		weight := make([]float32, in*out)
		for i := range weight {
			weight[i] = float32(i + 1)
		}
		m := NewOutputs(weight, []float32{7, 8, 9}, in, out).Transposed()
		x, y := NewBlock(out), NewBlock(in)
		for o := range out {
			x.Element(o)[0] = float32(o - 1)
		}
		m.Product(y, x, 1, nil, nil, false)
		for i := range in {
			size := float64(weight[i] + weight[2*in+i])
			near(t, y.Element(i)[0], float64(weight[2*in+i]-weight[i]), size, out, byDigits([]float64{1, 0, 1}, absolute(weight)))
			if m.In != out || m.Out != in {
				t.Errorf("%d inputs and %d outputs, expected %d and %d", m.In, m.Out, out, in)
			}
		}
	})
}

func TestProductOfOneState(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(13, 14))
		const in, out = 75, 37
		weight, bias := normal(r, in*out), normal(r, out)
		m, steps := NewOutputs(weight, bias, in, out), NewRowMatrix(weight, in, out)
		x, _ := guardedBlock(r, in)
		for i := range x {
			if r.IntN(2) == 0 {
				x[i] = 0
			}
		}
		y, one, alone := NewBlock(out), NewBlock(in), NewBlock(out)
		m.Product(y, x, States, nil, nil, false)
		for s := range States {
			to, pre := r.IntN(16), make([]float32, Pad(out))
			copy(pre, bias)
			var list []int32
			var value []float32
			for k := range in {
				if one.Element(k)[to] = x.Element(k)[s]; x.Element(k)[s] != 0 {
					list, value = append(list, int32(k)), append(value, x.Element(k)[s])
				}
			}
			steps.Steps(NewTile(len(list), out), pre, list, value, false, nil)
			u := r.IntN(out)
			m.Product(alone, one, to+1, []int32{int32(u)}, list, false)
			if got := alone.Element(u)[to]; got != y.Element(u)[s] || got != pre[u] && !current.digits {
				t.Fatalf("state %d unit %d: %v alone, %v in the block, %v by steps", s, u, got, y.Element(u)[s], pre[u])
			}
		}
	})
}

func TestCrossIsItsDefinition(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(15, 16))
		x, _ := guardedBlock(r, 9)
		x0, _ := guardedBlock(r, 9)
		z, _ := guardedBlock(r, 9)
		y, whole := guardedBlock(r, 9)
		old := slices.Clone(y)
		states := 1 + r.IntN(States)
		Cross(y, x, x0, z, states, []int32{1, 2, 8})
		guardsHold(t, whole)
		for k := range 9 {
			for s := range States {
				if s >= states && s < Pad(states) {
					continue
				}
				want := float64(x.Element(k)[s]) + float64(x0.Element(k)[s])*float64(z.Element(k)[s])
				if k != 1 && k != 2 && k != 8 || s >= states {
					want = float64(Block(old).Element(k)[s])
				}
				near(t, y.Element(k)[s], want, 3, 1)
			}
		}
		Cross(y, x, x0, z, 1, nil)
	})
}

// tanhs returns Tanh of any number of values, times scale.
func tanhs(x []float32, scale float32) []float32 {
	n := (len(x) + States - 1) / States
	b := make(Block, n*States)
	copy(b, x)
	Tanh(b, b, States, n, slices.Repeat(Block{scale}, States))
	return b[:len(x)]
}

// Tanh is accurate over the whole range. The inputs are dense where tanh is neither x nor
// 1.
func TestTanhIsPrecise(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		var x []float32
		for bits := uint32(0); bits < 0x7f800000; bits += 4999 {
			x = append(x, math.Float32frombits(bits), math.Float32frombits(bits|1<<31))
		}
		for bits := math.Float32bits(1e-3); bits < math.Float32bits(12); bits += 101 {
			x = append(x, math.Float32frombits(bits), -math.Float32frombits(bits))
		}
		worst, worstULP := 0.0, 0.0
		for i, got := range tanhs(x, 1) {
			want := math.Tanh(float64(x[i]))
			if math.Abs(want) < Tiny {
				want = 0
			}
			off := math.Abs(float64(got) - want)
			worst = max(worst, off)
			if want != 0 {
				_, exponent := math.Frexp(want)
				if ulp := off / math.Ldexp(1, exponent-24); ulp > worstULP {
					worstULP = ulp
				}
			} else if got != 0 {
				t.Fatalf("tanh(%v) = %v", x[i], got)
			}
			if math.Abs(float64(got)) > 1 {
				t.Fatalf("tanh(%v) = %v", x[i], got)
			}
		}
		t.Logf("largest error %.2g and %.2f ulp", worst, worstULP)
		if worst > 1e-7 || worstULP > 2.5 {
			t.Errorf("error %g, %.2f ulp; want less", worst, worstULP)
		}
	})
}

func TestTanhOfSpecialValues(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		nan, inf := float32(math.NaN()), float32(math.Inf(1))
		negative := float32(math.Copysign(0, -1))
		got := tanhs([]float32{0, negative, inf, -inf, Tiny / 2, -Tiny / 2, 1e-45, -1e-40, Tiny, -Tiny, 30, -1e38, nan}, 1)
		want := []float32{0, 0, 1, -1, 0, 0, 0, 0, Tiny, -Tiny, 1, -1}
		if !slices.Equal(got[:12], want) || got[12] == got[12] {
			t.Errorf("tanh is %v, want %v and NaN", got, want)
		}
		got = tanhs([]float32{0, 30, -30, 1e-10, nan}, 1e-9)
		if want := []float32{0, 1e-9, -1e-9, 0}; !slices.Equal(got[:4], want) || got[4] == got[4] {
			t.Errorf("tanh times 1e-9 is %v, want %v and NaN", got, want)
		}
		if got = tanhs([]float32{1}, nan); got[0] == got[0] {
			t.Errorf("tanh times NaN is %v, want NaN", got)
		}
	})
}

func TestToBlockAndBack(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(17, 18))
		for _, n := range lengths {
			for _, states := range []int{1, 16, 17, 48} {
				x, _ := guarded(r, States, n, 0)
				b, whole := guardedBlock(r, Pad(n))
				ToBlock(b, x, states, n)
				guardsHold(t, whole)
				for s := range states {
					for k := range n {
						if b.Element(k)[s] != x.Row(s)[k] {
							t.Fatalf("n %d state %d: ToBlock copied a wrong element %d", n, s, k)
						}
					}
				}
				y, whole := guarded(r, States, n, 0)
				ToTile(y, b, states, n)
				guardsHold(t, whole)
				for s := range states {
					if !slices.Equal(y.Row(s)[:n], x.Row(s)[:n]) {
						t.Fatalf("n %d state %d: ToTile of ToBlock changed the row", n, s)
					}
				}
			}
		}
	})
}

// BenchmarkProduct measures Product on whole blocks, along full lists and lists of half
// the inputs.
func BenchmarkProduct(b *testing.B) {
	for _, shape := range [][2]int{{624, 624}, {257, 624}, {624, 260}, {64, 64}} {
		for _, part := range []int{1, 2} {
			b.Run(fmt.Sprintf("%dx%d/1in%d", shape[0], shape[1], part), func(b *testing.B) {
				benchEveryLevel(b, func(b *testing.B) (int, func()) {
					r := rand.New(rand.NewPCG(1, 2))
					in, out := shape[0], shape[1]
					m := NewOutputs(normal(r, in*out), nil, in, out)
					x, _ := guardedBlock(r, in)
					y, list := NewBlock(out), NewList(in)
					for k := range in {
						if r.IntN(part) == 0 {
							list = append(list, int32(k))
						}
					}
					return 2 * 48 * len(list) * out, func() { m.Product(y, x, 48, nil, list, false) }
				})
			})
		}
	}
}

func BenchmarkTanh(b *testing.B) {
	benchEveryLevel(b, func(b *testing.B) (int, func()) {
		x, _ := guardedBlock(rand.New(rand.NewPCG(1, 2)), 256)
		y := NewBlock(256)
		return 256 * 48, func() { Tanh(y, x, 48, 256, nil) }
	})
}

func BenchmarkToTile400(b *testing.B) {
	benchEveryLevel(b, func(b *testing.B) (int, func()) {
		x, _ := guardedBlock(rand.New(rand.NewPCG(1, 2)), 400)
		y := NewTile(States, 400)
		return 400 * 48, func() { ToTile(y, x, 48, 400) }
	})
}
