package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"shaver/internal/base/long"
)

// updateCase is a layer on elements of a block with guards, and its Sums.
type updateCase struct {
	l               *Linear
	s               *Sums
	b               Block
	whole           []float32
	out, x, scratch []int32
	inputs          []int32 // the distinct elements of x
}

// newUpdateCase returns a layer on random elements, which may occur several times in x. If
// adjacent is set, all vectors are the same adjacent elements.
func newUpdateCase(r *rand.Rand, in, out, batch int, relu, adjacent bool) *updateCase {
	c := new(updateCase)
	most := Changes(in)
	c.b, c.whole = guardedBlock(r, in+1+batch*out+most)
	order := r.Perm(len(c.b) / States)
	if adjacent {
		slices.Sort(order)
	}
	for i := range batch * in {
		k := r.IntN(in + 1)
		if adjacent {
			k = i % in
		}
		c.x = append(c.x, int32(order[k]))
	}
	for i, k := range order[in+1:] {
		if i < batch*out {
			c.out = append(c.out, int32(k))
		} else {
			c.scratch = append(c.scratch, int32(k))
		}
	}
	c.inputs = slices.Compact(slices.Sorted(slices.Values(c.x)))
	c.l = NewLinear(NewOutputs(normal(r, in*out), normal(r, out), in, out), c.out, c.x, batch, relu)
	c.s = NewUpdate(c.l, c.scratch).NewSums()
	return c
}

// next sets the inputs to a block of states that follow the last one, of which changed
// differ. It returns these, and a list of their positions in x and sometimes of others.
func (c *updateCase) next(r *rand.Rand, last []float32, states, changes int) (moved, listed []int32) {
	for i, e := range c.inputs {
		fillElement(c.b.Element(int(e)), last[i])
	}
	for range changes {
		i := r.IntN(len(c.inputs))
		moved = append(moved, c.inputs[i])
		fillElement(c.b.Element(int(c.inputs[i]))[r.IntN(states):], float32(r.NormFloat64()))
	}
	for i, e := range c.x {
		if slices.Contains(moved, e) || r.IntN(20) == 0 {
			listed = append(listed, int32(i))
		}
	}
	for i, e := range c.inputs {
		last[i] = c.b.Element(int(e))[states-1]
	}
	return moved, listed
}

func fillElement(states []float32, v float32) {
	for t := range states {
		states[t] = v
	}
}

// In a walk, Sums agree with Linear up to rounding, and write only the outputs and the scratch
// elements. A state's result does not depend on walks before Return, nor on the other states of
// its block if all states are updated at once.
func TestUpdateIsLinear(t *testing.T) {
	blocks := 40
	if !long.All() {
		blocks = 12
	}
	everyLevel(t, func(t *testing.T) {
		for _, in := range []int{1, 2, 5, 16, 37, fewestDigits} {
			for _, out := range []int{1, 5, 8, 13, fewestDigits} {
				r := rand.New(rand.NewPCG(61, uint64(in*1000+out)))
				c := newUpdateCase(r, in, out, 1+r.IntN(3), r.IntN(2) == 0, in == fewestDigits)
				c.s.Start(c.b)
				start := slices.Clone(c.b)
				if c.l.Compute(c.b, 1); !slices.Equal(c.b, start) {
					t.Fatalf("in %d out %d: Start differs from Compute", in, out)
				}
				var first []float32
				for replay := range 2 {
					copy(c.b, start)
					c.s.Return()
					r, noise := rand.New(rand.NewPCG(62, uint64(in*1000+out))), rand.New(rand.NewPCG(63, 64))
					last := make([]float32, len(c.inputs))
					for i, e := range c.inputs {
						last[i] = start.Element(int(e))[0]
					}
					at := 0
					for block := range blocks {
						states := 2 + r.IntN(States-1)
						moved, listed := c.next(r, last, states, 1+r.IntN(1+block%4*in/4))
						other := -1
						if replay > 0 && in*out <= atOnce { // one state that is not the last has other inputs
							other = noise.IntN(states - 1)
							for _, e := range moved {
								c.b.Element(int(e))[other] = float32(noise.NormFloat64())
							}
						}
						old := slices.Clone(c.b)
						c.s.Continue(c.b, states, listed)
						guardsHold(t, c.whole)
						changed(t, c.b, old, slices.Concat(c.out, c.scratch), states)
						got := slices.Clone(c.b)
						c.l.Compute(c.b, states)
						for _, o := range c.out {
							for s := range states {
								v, want := got.Element(int(o))[s], c.b.Element(int(o))[s]
								if !(math.Abs(float64(v-want)) <= 1e-5*math.Sqrt(float64(in))) {
									t.Fatalf("in %d out %d block %d: element %d of state %d is %v, want %v", in, out, block, o, s, v, want)
								}
								if replay == 0 {
									first = append(first, v)
								} else if s != other && math.Float32bits(v) != math.Float32bits(first[at]) {
									t.Fatalf("in %d out %d block %d: element %d of state %d is %v, and %v with another state", in, out, block, o, s, first[at], v)
								}
								at++
							}
						}
					}
				}
			}
		}
	})
}

// Rounding errors do not grow with the length of a walk, because sums are computed in full
// again.
func TestUpdateStaysPrecise(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(65, 66))
		c := newUpdateCase(r, 64, 8, 1, false, false)
		c.s.Start(c.b)
		last := make([]float32, len(c.inputs))
		for i, e := range c.inputs {
			last[i] = c.b.Element(int(e))[0]
		}
		worst := [2]float64{} // in the first and in the last blocks
		const blocks = 4000
		for block := range blocks {
			_, listed := c.next(r, last, States, 12)
			c.s.Continue(c.b, States, listed)
			got := slices.Clone(c.b)
			c.l.Compute(c.b, States)
			for _, o := range c.out {
				d := math.Abs(float64(got.Element(int(o))[States-1] - c.b.Element(int(o))[States-1]))
				if block < blocks/20 {
					worst[0] = max(worst[0], d)
				} else if block >= blocks*19/20 {
					worst[1] = max(worst[1], d)
				}
			}
		}
		if worst[0] == 0 || worst[1] == 0 || worst[1] > 2*worst[0] { // a full sum has no error here
			t.Errorf("the largest errors are %g in the first blocks and %g in the last", worst[0], worst[1])
		}
	})
}

// If many inputs of a vector change in a block, but few of them from one state to the next, each
// state is the one before plus what RowMatrix.Steps adds for the inputs that differ.
func TestUpdateInSteps(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		for _, out := range []int{53, 64, 70} {
			for _, relu := range []bool{false, true} {
				r := rand.New(rand.NewPCG(69, uint64(out)))
				const in, vectors = 80, 2
				c := newUpdateCase(r, in, out, vectors, relu, true) // both vectors have the same inputs
				m := NewRowMatrix(c.l.m.weight, in, out)
				c.s.Start(c.b)
				x, sums := make([]float32, in), make([]float32, Pad(out))
				for k := range x {
					x[k] = c.b.Element(int(c.x[k]))[0]
				}
				copy(sums, c.s.sums[:out])
				for block := range 5 {
					states := []int{States, 37, 16, 1, States}[block]
					for k := range in {
						fillElement(c.b.Element(int(c.x[k])), x[k])
					}
					var listed []int32
					for k := range 2 * in {
						listed = append(listed, int32(k))
					}
					want := NewTile(States, out)
					for state := range states {
						var input []int32
						var change []float32
						for k := 0; state%5 > 0 && k < in; k++ { // some states are as the one before
							if r.IntN(40) > 0 {
								continue
							}
							v := float32(r.NormFloat64())
							fillElement(c.b.Element(int(c.x[k]))[state:], v)
							input, change = append(input, int32(k)), append(change, v-x[k])
							x[k] = v
						}
						m.Steps(Tile{make([]float32, Pad(out)), 0}, sums, input, change, false, nil)
						copy(want.Row(state), sums)
						if relu {
							clamp(want.Row(state), 0, 0, nil)
						}
					}
					old := slices.Clone(c.b)
					c.s.Continue(c.b, states, listed)
					guardsHold(t, c.whole)
					changed(t, c.b, old, c.out, states)
					for i, o := range c.out {
						for state, v := range c.b.Element(int(o))[:states] {
							if w := want.Row(state)[i%out]; v != w {
								t.Fatalf("%d units, block %d, state %d: output %d is %v, want %v", out, block, state, i, v, w)
							}
						}
					}
				}
			}
		}
	})
}

// NaN and infinity stay in the sums until they are computed in full.
func TestUpdateKeepsNaN(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		b := NewBlock(16)
		s := NewUpdate(NewLinear(NewOutputs([]float32{1, 1, 1, 1}, nil, 4, 1), []int32{4}, []int32{0, 1, 2, 3}, 1, true), []int32{5, 6, 7}).NewSums()
		s.Start(b)
		b.Element(1)[1] = float32(math.Inf(1))
		b.Element(2)[2] = float32(math.NaN())
		s.Continue(b, 3, []int32{1, 2})
		if v := b.Element(4); v[0] != 0 || !math.IsInf(float64(v[1]), 1) || v[2] == v[2] {
			t.Errorf("results %v, want 0, +Inf, NaN", v[:3])
		}
	})
}

// An infinite input does not reach the states after it, in which it is finite. If many inputs change in each
// state, they are updated in all states at once.
func TestUpdateNotInSteps(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(70, 71))
		c := newUpdateCase(r, 64, 110, 1, false, true)
		c.s.Start(c.b)
		var listed []int32
		for k, e := range c.x {
			fillElement(c.b.Element(int(e)), c.b.Element(int(e))[0])
			if k < 40 {
				listed = append(listed, int32(k))
			}
		}
		c.b.Element(int(c.x[7]))[3] = float32(math.Inf(1))
		c.s.Continue(c.b, States, listed)
		for _, o := range c.out {
			for state, v := range c.b.Element(int(o)) {
				if finite := v-v == 0; finite == (state == 3) {
					t.Errorf("state %d is %v", state, v)
				}
			}
		}
		c.b.Element(int(c.x[7]))[3] = 0
		for _, k := range listed[8:20] {
			copy(c.b.Element(int(c.x[k])), normal(r, States))
		}
		c.s.Continue(c.b, States, listed)
		got := Block(slices.Clone(c.b))
		c.l.Compute(c.b, States)
		for _, o := range c.out {
			for state, v := range got.Element(int(o)) {
				if want := c.b.Element(int(o))[state]; !(math.Abs(float64(v-want)) < 1e-4) {
					t.Fatalf("element %d of state %d is %v, want %v", o, state, v, want)
				}
			}
		}
	})
}

// An Update refuses scratch elements that it cannot use, and positions outside x.
func TestUpdateRefuses(t *testing.T) {
	l := NewLinear(NewOutputs(make([]float32, 8), nil, 4, 2), []int32{4, 5}, []int32{0, 1, 2, 3}, 1, false)
	b := NewBlock(16)
	for name, f := range map[string]func(){
		"too few":   func() { NewUpdate(l, []int32{6, 7}) },
		"twice":     func() { NewUpdate(l, []int32{6, 7, 6}) },
		"an input":  func() { NewUpdate(l, []int32{6, 7, 3}) },
		"an output": func() { NewUpdate(l, []int32{6, 7, 4}) },
		"outside x": func() { NewUpdate(l, []int32{6, 7, 8}).NewSums().Continue(b, 1, []int32{4}) },
		"negative":  func() { NewUpdate(l, []int32{6, 7, 8}).NewSums().Continue(b, 1, []int32{-1}) },
		"a block":   func() { NewUpdate(l, []int32{6, 7, 16}).NewSums().Start(b) },
		"states":    func() { NewUpdate(l, []int32{6, 7, 8}).NewSums().Continue(b, 49, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

// BenchmarkUpdate compares blocks of a walk with Linear.Compute. Each block changes the inputs
// that 48 random steps over the given number of vectors change.
func BenchmarkUpdate(b *testing.B) {
	for _, test := range []struct{ vectors, in, out, changed int }{{39, 16, 64, 48}, {39, 16, 16, 48}, {741, 16, 16, 741}, {1, 624, 400, 48}, {1, 624, 624, 48}, {1, 1365, 400, 732}, {50, 64, 36, 295}, {1, 64, 8, 48}} {
		b.Run(fmt.Sprintf("%dx%dx%d,%d", test.vectors, test.in, test.out, test.changed), func(b *testing.B) {
			r := rand.New(rand.NewPCG(67, 68))
			list := make([]int32, test.vectors*(test.in+test.out)+Changes(test.in))
			for i := range list {
				list[i] = int32(i)
			}
			block := NewBlock(len(list) + 64)
			x, rest := list[:test.vectors*test.in], list[test.vectors*test.in:]
			l := NewLinear(NewOutputs(normal(r, test.in*test.out), nil, test.in, test.out), rest[:test.vectors*test.out], x, test.vectors, true)
			s := NewUpdate(l, rest[test.vectors*test.out:]).NewSums()
			var listed []int32
			for k := range x {
				if fillElement(block.Element(k), 1); r.IntN(len(x)) < test.changed {
					listed = append(listed, int32(k))
					fillElement(block.Element(k)[r.IntN(States):], 2)
				}
			}
			s.Start(block)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var full, updated time.Duration
			for b.Loop() {
				start := cpuTime()
				l.Compute(block, States)
				middle := cpuTime()
				s.Return()
				s.Continue(block, States, listed)
				full, updated = full+middle-start, updated+cpuTime()-middle
			}
			b.ReportMetric(float64(full)/float64(updated), "times")
			b.ReportMetric(float64(updated)/float64(b.N), "ns/op")
		})
	}
}
