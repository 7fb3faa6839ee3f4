package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// kinkCase is a call of Terms with random arguments.
type kinkCase struct {
	k                       *Kinks
	weight                  []float32
	change, pre, slope, dst Tile
	guards                  []float32 // memory of dst
	off, on                 []int32
}

// newKinkCase returns a case whose outputs before ReLU are distance times as large as the
// changes that a single input makes.
func newKinkCase(r *rand.Rand, rows, in, out int, distance float32) *kinkCase {
	c := &kinkCase{weight: normal(r, in*out), off: NewList(out), on: NewList(out)}
	for i := range c.weight {
		if i%in%5 == 1 { // inputs that no unit reads
			c.weight[i] = 0
		}
	}
	c.k = NewKinks(c.weight, in, out)
	c.change = c.k.NewTile(rows)
	c.pre, c.slope = NewTile(rows, out), NewTile(rows, out)
	for t := range rows {
		for i := range in {
			if r.IntN(4) > 0 {
				c.change.Row(t)[i] = float32(r.NormFloat64())
			}
		}
		for o := range out {
			c.slope.Row(t)[o] = float32(r.NormFloat64())
			if r.IntN(9) > 0 {
				c.pre.Row(t)[o] = distance * float32(r.NormFloat64())
			}
		}
	}
	c.dst, c.guards = guarded(r, rows, c.change.Stride, 0)
	return c
}

func (c *kinkCase) run(rows int) { c.k.Terms(c.dst, c.change, c.pre, c.slope, rows, c.off, c.on) }

func TestKinksAreTheirDefinition(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(29, 30))
		for _, in := range []int{1, 16, 63, 64, 65, 176, 200} {
			for _, out := range lengths {
				rows := 1 + r.IntN(4)
				c := newKinkCase(r, rows, in, out, float32(r.IntN(4)))
				c.run(rows)
				guardsHold(t, c.guards)
				for row := range rows {
					pre, slope, change := c.pre.Row(row), c.slope.Row(row), c.change.Row(row)
					for i := range in {
						want, size, null := 0.0, 0.0, true
						for h := range out {
							w, s := float64(c.weight[h*in+i]), -1.0
							if pre[h] > 0 {
								s = 1
							}
							v := float64(slope[h]) * max(0, -s*(float64(pre[h])+w*float64(change[i])))
							want += v
							size += math.Abs(float64(slope[h])) * (math.Abs(float64(pre[h])) + math.Abs(w*float64(change[i])))
							null = null && w == 0
						}
						got := c.dst.Row(row)[i]
						near(t, got, want, size, out)
						if (null || change[i] == 0) && got != 0 {
							t.Fatalf("%dx%d: the term of a null input is %v", in, out, got)
						}
					}
				}
			}
		}
	})
}

// A row does not depend on other rows, to the last bit.
func TestKinksOfARowDependOnTheRowAlone(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		c := newKinkCase(rand.New(rand.NewPCG(31, 32)), 5, 130, 70, 1)
		c.run(5)
		want := append([]float32(nil), c.dst.Row(0)...)
		c.run(1)
		for i, v := range c.dst.Row(0) {
			if v != want[i] {
				t.Fatalf("input %d: %v, in a batch %v", i, v, want[i])
			}
		}
	})
}

// BenchmarkKinks400 measures Terms for 48 states of a layer with 400 units, half of which a
// change may switch. The floating point operations are those of these units: two for the
// output before ReLU, two for the sum. Compare with the ns/call of BenchmarkForward400.
func BenchmarkKinks400(b *testing.B) {
	for _, in := range []int{176, 624} {
		b.Run(fmt.Sprintf("P=%d", in), func(b *testing.B) {
			benchEveryLevel(b, func(b *testing.B) (int, func()) {
				c := newKinkCase(rand.New(rand.NewPCG(1, 2)), States, in, 400, 11)
				units := 0
				for t := range States {
					for g := 0; g < c.change.Stride; g += kinkInputs {
						offs, ons := current.reached(c.off[:cap(c.off)], c.on[:cap(c.on)], c.pre.Row(t), c.k.reach[g/kinkInputs*400:][:400], c.change.Row(t)[g:g+kinkInputs])
						units += offs + ons
					}
				}
				b.ReportMetric(float64(units)/float64(States*(c.change.Stride/kinkInputs)), "units")
				return 4 * units * kinkInputs, func() { c.run(States) }
			})
		})
	}
}

// BenchmarkForward400 measures the layers in-400-400-400 for 48 states, which BenchmarkKinks400
// is compared with.
func BenchmarkForward400(b *testing.B) {
	for _, in := range []int{176, 624} {
		b.Run(fmt.Sprintf("P=%d", in), func(b *testing.B) {
			benchEveryLevel(b, func(b *testing.B) (int, func()) {
				r := rand.New(rand.NewPCG(1, 2))
				x, _ := guarded(r, States, in, 0)
				first, second := NewMatrix(normal(r, in*400), nil, in, 400), NewMatrix(normal(r, 400*400), nil, 400, 400)
				y, z := NewTile(States, 400), NewTile(States, 400)
				return 2 * States * (in*400 + 2*400*400), func() {
					first.Layer(y, x, States, nil, true, nil)
					second.Layer(z, y, States, nil, true, nil)
					second.Layer(y, z, States, nil, true, nil)
				}
			})
		})
	}
}
