//go:build !race

package kernel

import "testing"

// A Linear that leaves out inputs uses the memory of earlier calls. The race detector is excluded because sync.Pool
// drops some of its items under it.
func TestLinearDoesNotAllocate(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		const in, out = fewestListed, fewestListed
		list := make([]int32, in+out)
		for i := range list {
			list[i] = int32(i)
		}
		l := NewLinear(NewOutputs(make([]float32, in*out), nil, in, out), list[in:], list[:in], 1, true)
		b := NewBlock(in + out)
		for k := 1; k < in; k += 2 {
			b.Element(k)[0] = 1
		}
		if n := testing.AllocsPerRun(5, func() { l.Compute(b, States) }); n != 0 {
			t.Errorf("%v allocations, want none", n)
		}
	})
}
