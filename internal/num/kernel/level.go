package kernel

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

//go:generate go -C _asm run . -level amx -out ../amx_amd64.s -stubs ../amx_amd64.go -pkg kernel
//go:generate go -C _asm run . -level avx512 -out ../avx512_amd64.s -stubs ../avx512_amd64.go -pkg kernel
//go:generate go -C _asm run . -level avx2 -out ../avx2_amd64.s -stubs ../avx2_amd64.go -pkg kernel
//go:generate go -C _asm run . -level neon -out ../neon_arm64.s -stubs ../neon_arm64.go -pkg kernel

// level is an implementation of the primitives. The callers have checked the arguments.
type level struct {
	name  string
	rows  int // rows of a tile
	layer func(m *Matrix, out, in Tile, rows int, list []int32, floor float32, mask Mask)
	// sparse is like layer for tiles of few rows, each with a list of its own. It may read
	// listAhead elements behind a list. The level has no such function if few is 0.
	sparse func(m *Matrix, out, in Tile, rows int, lists [][]int32, floor float32)
	few    int
	steps  func(m *RowMatrix, out Tile, pre []float32, row []int32, change []float32, floor float32, mask Mask)
	// prefetch may do nothing. row is not empty.
	prefetch func(m *RowMatrix, row []int32)
	list     func(m Mask, list []int32) []int32
	set      func(m Mask, t Tile, rows, panels int) // m is all zeros before the call
	dot      func(x, y []float32) float64
	gate     func(dst, x, v []float32)                      // implements Gate; the length is a multiple of Columns and not 0
	expand   func(x []float32, values []byte, parts []Part) // no argument is empty
	// unpack may read unpackAhead bytes of packed from the first byte of a part on. No argument is empty.
	unpack func(x []float32, packed []byte, parts []Packed)
	// reached lists the units of a group that a change of one of its inputs may switch: off
	// those with pre at most 0, on the others. It may write up to 16 elements more.
	reached func(off, on []int32, pre, reach, change []float32) (offs, ons int)
	// kinks computes Kinks.Terms for a group of kinkInputs inputs, along these lists.
	kinks func(dst, change, weight []float32, off, on []int32, pre, slope []float32)

	// The following work on Blocks. units and list are not empty.
	product   func(m *Outputs, out, in Block, states int, units, list []int32, floor float32)
	cross     func(out, x, x0, z Block, panels int, list []int32)
	tanh      func(out, in, scale []float32, panels int)
	transpose func(out []float32, outStride int, in []float32, inStride, rows, columns int)

	// The following functions work on elements of one Block. out is not empty. panels is
	// the number of groups of 16 states.
	apply       func(f Function, b Block, out, x []uint32, panels int)
	combine     func(op Operation, b Block, out, x, y []uint32, panels int)
	multiplyAdd func(b Block, out, x, y, z []uint32, panels int)
	choose      func(b Block, out, x, y, z []uint32, panels int)
	affine      func(b Block, out, x []uint32, scale, offset []float32, panels int)
	reduce      func(op Reduction, b Block, out, x []uint32, panels int)
	pairs       func(p *Pairs, b Block, panels int)
	softmax     func(b Block, out, x []uint32, n, panels int)
	linear      func(l *Linear, b Block, panels int, floor float32)
	// update is the loop of Sums.Continue for one vector. out and bias are whole groups of
	// units. rows has the index in w of the first weight of each input.
	update func(b Block, out, x, rows []uint32, w, bias []float32, panels int, floor float32)
	units  int          // number of units of a group of linear and update; 0 if they need no groups
	shapes []pairsShape // tiles for which pairs has a function; nil if it needs no tiles

	digits bool // whether layer and product use digits, which are then packed

	fma  func(n int) // performs n*flop floating point operations in registers; nil if unavailable
	flop int
}

// current is the level in use, chosen once. Tests run with each of levels().
var current = levels()[0]

// levels returns the implementations that this machine can run, fastest first.
// GODEBUG=cpu.amxtile=off, cpu.avx512f=off and cpu.avx2=off each remove the faster
// levels, and the build tag purego removes all except the portable one.
func levels() []*level {
	return append(accelerated(), &level{name: portableName(), rows: 4, layer: layerPortable, steps: stepsPortable, prefetch: func(*RowMatrix, []int32) {}, list: listPortable, set: setPortable, dot: dotPortable, gate: gatePortable, expand: expandPortable, unpack: unpackPortable, reached: reachedPortable, kinks: kinksPortable,
		product: productPortable, cross: crossPortable, tanh: tanhPortable, transpose: transposePortable,
		apply: applyPortable, combine: combinePortable, multiplyAdd: multiplyAddPortable, choose: choosePortable, affine: affinePortable, reduce: reducePortable, softmax: softmaxPortable, pairs: pairsPortable, linear: linearPortable, update: updatePortable})
}

// Names returns the names of the levels that this machine can run, fastest first.
func Names() []string {
	var names []string
	for _, l := range levels() {
		names = append(names, l.name+built)
	}
	return names
}

// Candidates returns the names of the levels that may be the fastest for some job: those in
// assembly or, on a machine without them, the portable one. They have the order of Names.
func Candidates() []string {
	names := Names()
	return names[:max(1, len(names)-1)]
}

// Use selects a level by name and reports whether this machine has it. Without Use, the
// first of Names runs. A fast machine can thus produce the same bits as a slower one. What
// is packed at one level must be used at that level only, and nothing may compute while Use
// is called.
func Use(name string) bool {
	for _, l := range levels() {
		if l.name+built == name {
			current = l
			return true
		}
	}
	return false
}

// Name identifies the arithmetic: two machines with the same Name compute the same bits.
// It is part of every job's identity.
//
// The losses need math.Exp, which has its own code on each architecture. On amd64 it also
// has separate code for processors without FMA. The name of the portable level therefore
// includes the processor. A build for GOAMD64=v3 computes math.Log1p differently, so it
// adds a suffix to the name of every level.
func Name() string { return current.name + built }

// Peak performs about n floating point operations in registers and returns the exact
// number. This is the best that the processor can do, and serves as the reference for
// benchmarks. The portable level has no such loop; there Peak returns 0.
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
