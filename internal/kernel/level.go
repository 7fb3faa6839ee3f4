package kernel

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

// level is an implementation of the primitives. Arguments have been checked.
type level struct {
	name  string
	rows  int // of a tile
	layer func(m *Matrix, out, in Tile, rows int, list []int32, floor float32, mask Mask)
	steps func(m *RowMatrix, out Tile, pre []float32, row []int32, change []float32, floor float32, mask Mask)
	// prefetch is a hint that may do nothing. row is not empty.
	prefetch func(m *RowMatrix, row []int32)
	list     func(m Mask, list []int32) []int32
	set      func(m Mask, t Tile, rows, panels int) // of a mask of zeros
	dot      func(x, y []float32) float64
	expand   func(x []float32, values []byte, parts []Part) // none is empty

	// of Blocks; units and list are not empty
	product   func(m *Outputs, out, in Block, states int, units, list []int32, floor float32)
	cross     func(out, x, x0, z Block, panels int, list []int32)
	tanh      func(out, in, scale []float32, panels int)
	transpose func(out []float32, outStride int, in []float32, inStride, rows, columns int)

	digits bool // whether layer and product go by digits, which are packed if so

	fma  func(n int) // n*flop floating point operations in registers; nil if unknown
	flop int
}

// current is the level in use, chosen once. Tests go through all of levels().
var current = levels()[0]

// levels returns the implementations that this machine can run, fastest first.
// GODEBUG=cpu.amxtile=off, cpu.avx512f=off and cpu.avx2=off take the faster ones
// away, and so does the build tag purego.
func levels() []*level {
	return append(accelerated(), &level{name: portableName(), rows: 4, layer: layerPortable, steps: stepsPortable, prefetch: func(*RowMatrix, []int32) {}, list: listPortable, set: setPortable, dot: dotPortable, expand: expandPortable,
		product: productPortable, cross: crossPortable, tanh: tanhPortable, transpose: transposePortable})
}

// Names returns the names of the levels that this machine can run, fastest first.
func Names() []string {
	var names []string
	for _, l := range levels() {
		names = append(names, l.name+built)
	}
	return names
}

// Use chooses a level by its name; without it the fastest runs. It is for the
// beginning of a process, before anything is packed, and for machines that are to
// give the same bits as slower ones. It reports whether this machine has the level.
func Use(name string) bool {
	for _, l := range levels() {
		if l.name+built == name {
			current = l
			return true
		}
	}
	return false
}

// Name identifies the arithmetic: two machines with the same Name give the same
// bits. It is part of every job's identity. The processor is in the portable
// level's because math.Exp, which the losses need, has its own code per
// architecture, and on amd64 another for processors without FMA; and in each level's
// whether the build is one for GOAMD64=v3, which computes math.Log1p another way.
func Name() string { return current.name + built }

// Peak does floating point operations in registers, about n, and returns how
// many: what the processor could do at best, for benchmarks. The portable level
// has no such loop and returns 0.
func Peak(n int) int {
	if current.fma == nil {
		return 0
	}
	n = max(1, n/current.flop)
	current.fma(n)
	return n * current.flop
}

func portableName() string {
	if runtime.GOARCH == "amd64" && !cpu.X86.HasFMA {
		return "portable-amd64-nofma"
	}
	return "portable-" + runtime.GOARCH
}
