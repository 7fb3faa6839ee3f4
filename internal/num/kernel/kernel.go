// Package kernel implements the float32 primitives of the hot loop. The loop in the doc
// comment of a primitive defines its result. Each primitive exists at every level:
// portable Go, and assembly, which _asm generates: on amd64 for AVX2, AVX-512 and AMX, and
// on arm64 for NEON.
// Levels round sums differently, so the same input gives slightly different bits at each
// level. [Name] identifies the level in use.
//
// docs/internals/kernels.md explains how the kernels work.
package kernel

// Pack returns the [out, in] matrix w as [in, out].
func Pack(w []float32, in, out int) []float32 {
	if len(w) != in*out {
		panic("kernel: Pack: matrix has the wrong length")
	}
	packed := make([]float32, len(w))
	for o := range out {
		for i := range in {
			packed[i*out+o] = w[o*in+i]
		}
	}
	return packed
}

// Axpy adds a*x to y: y[o] += a*x[o].
func Axpy(y []float32, a float32, x []float32) {
	x = x[:len(y)]
	for o := range y {
		y[o] += float32(a * x[o])
	}
}
