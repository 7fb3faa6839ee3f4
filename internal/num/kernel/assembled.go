//go:build (amd64 || arm64) && !purego

package kernel

// The functions of this file make primitives of generated functions, whose arguments are pointers
// and numbers. They serve the levels of all architectures.

type (
	stepsFunc     func(out *float32, outStride int, pre *float32, w *float32, wStride int, rows *int32, a *float32, n int, panels int, floor float32, mask *uint64)
	productFunc   func(out *float32, in *float32, w *float32, wStride int, bias *float32, units *int32, list *int32, n int, panels int, floor float32, next *[8]*float32)
	crossFunc     func(out *float32, x *float32, x0 *float32, z *float32, list *int32, n int, panels int)
	tanhFunc      func(out *float32, in *float32, scale *float32, n int, panels int)
	transposeFunc func(out *float32, outStride int, in *float32, inStride int, n int)
	dotFunc       func(dst *[Columns]float32, x *float32, w *float32, panels int)
)

func stepsWith(f stepsFunc) func(m *RowMatrix, out Tile, pre []float32, row []int32, change []float32, floor float32, mask Mask) {
	return func(m *RowMatrix, out Tile, pre []float32, row []int32, change []float32, floor float32, mask Mask) {
		f(&out.Values[0], out.Stride*4, &pre[0], &m.values[0], len(pre)*4, &row[0], &change[0], len(row), len(pre)/Columns, floor, first(mask))
	}
}

func prefetchWith(f func(w *float32, wStride int, rows *int32, n int)) func(m *RowMatrix, row []int32) {
	return func(m *RowMatrix, row []int32) { f(&m.values[0], Pad(m.Out)*4, &row[0], len(row)) }
}

// productWith returns a product that computes group units at a time. If the last group is
// incomplete, it is filled with copies of the last unit.
func productWith(f productFunc, group int) func(m *Outputs, out, in Block, states int, units, list []int32, floor float32) {
	return func(m *Outputs, out, in Block, states int, units, list []int32, floor float32) {
		panels := (states + Columns - 1) / Columns
		var last [8]int32
		var next [8]*float32
		for u := 0; u < len(units); u += group {
			these := units[u:]
			if len(these) < group {
				copy(last[:], these)
				for i := len(these); i < group; i++ {
					last[i] = these[len(these)-1]
				}
				these = last[:]
			}
			for i := range group {
				next[i] = first(m.weight[int(units[min(u+group+i, len(units)-1)])*m.In:])
			}
			copy(next[group:], next[:])
			f(&out[0], first(in), first(m.weight), m.In*4, &m.bias[0], &these[0], first(list), len(list), panels, floor, &next)
		}
	}
}

func crossWith(f crossFunc) func(out, x, x0, z Block, panels int, list []int32) {
	return func(out, x, x0, z Block, panels int, list []int32) {
		f(&out[0], &x[0], &x0[0], &z[0], &list[0], len(list), panels)
	}
}

func tanhWith(f tanhFunc) func(out, in, scale []float32, panels int) {
	return func(out, in, scale []float32, panels int) {
		f(&out[0], &in[0], &scale[0], len(in)/States, panels)
	}
}

func transposeWith(f transposeFunc, side int) func(out []float32, outStride int, in []float32, inStride, rows, columns int) {
	return func(out []float32, outStride int, in []float32, inStride, rows, columns int) {
		for t := 0; t < rows; t += side {
			f(&out[t], outStride*4, &in[t*inStride], inStride*4, columns/side)
		}
	}
}

func setWith(f func(mask *uint64, in *float32, stride int, rows int, panels int)) func(m Mask, t Tile, rows, panels int) {
	return func(m Mask, t Tile, rows, panels int) { f(&m[0], &t.Values[0], t.Stride*4, rows, panels) }
}

func kinksWith(f func(dst *float32, change *float32, w *float32, off *int32, offs int, on *int32, ons int, pre *float32, slope *float32)) func(dst, change, weight []float32, off, on []int32, pre, slope []float32) {
	return func(dst, change, weight []float32, off, on []int32, pre, slope []float32) {
		f(&dst[0], &change[0], &weight[0], first(off), len(off), first(on), len(on), &pre[0], &slope[0])
	}
}

func gateWith(f func(dst *float32, x *float32, v *float32, panels int)) func(dst, x, v []float32) {
	return func(dst, x, v []float32) { f(&dst[0], &x[0], &v[0], len(dst)/Columns) }
}

func dotWith(f dotFunc) func(x, y []float32) float64 {
	return func(x, y []float32) float64 {
		whole := len(x) / Columns * Columns
		var sum0, sum1, sum2, sum3 float64
		if whole > 0 {
			var lanes [Columns]float32
			f(&lanes, &x[0], &y[0], whole/Columns)
			for i := range 4 { // four independent sums
				sum0 += float64(lanes[i])
				sum1 += float64(lanes[i+4])
				sum2 += float64(lanes[i+8])
				sum3 += float64(lanes[i+12])
			}
		}
		return (sum0 + sum1) + (sum2 + sum3) + dotPortable(x[whole:], y[whole:])
	}
}

// The functions of each level, in the order of the constants.
type (
	applyFuncs   [functions]func(b *float32, out *uint32, x *uint32, n int, panels int)
	combineFuncs [operations]func(b *float32, out *uint32, x *uint32, y *uint32, n int, panels int)
	reduceFuncs  [reductions]func(b *float32, out *uint32, outs int, x *uint32, n int, panels int)
	pairsFunc    func(b *float32, tile *uint32, tiles int, steps *int32, n int)
)

func (f *applyFuncs) run(name Function, b Block, out, x []uint32, panels int) {
	f[name](&b[0], &out[0], &x[0], len(out), panels)
}

func (f *combineFuncs) run(name Operation, b Block, out, x, y []uint32, panels int) {
	f[name](&b[0], &out[0], &x[0], &y[0], len(out), panels)
}

func (f *reduceFuncs) run(name Reduction, b Block, out, x []uint32, panels int) {
	f[name](&b[0], &out[0], len(out), &x[0], len(x)/len(out), panels)
}

// tiledPairs implements Pairs.Compute with generated functions. A call computes one vector
// of states of all tiles, so that the first cache has to hold only these states.
type tiledPairs struct {
	lanes int                                              // number of states of a vector
	call  []pairsFunc                                      // functions of the first shapes in level.shapes
	dots  func(b *float32, tile *uint32, tiles int, n int) // function of the last shape, which is diagonal
}

func (f *tiledPairs) run(p *Pairs, b Block, panels int) {
	if p.tiles == 0 {
		return
	}
	for t := 0; t < panels*Columns; t += f.lanes {
		if p.shape < len(f.call) {
			f.call[p.shape](&b[t], &p.words[0], p.tiles, first(p.steps), p.inner)
		} else {
			f.dots(&b[t], &p.words[0], p.tiles, p.inner)
		}
	}
}

func softmaxWith(f func(b *float32, out *uint32, x *uint32, n int, rows int, panels int)) func(b Block, out, x []uint32, n, panels int) {
	return func(b Block, out, x []uint32, n, panels int) {
		f(&b[0], &out[0], &x[0], n, len(x)/n, panels)
	}
}

func linearWith(f func(b *float32, out *uint32, x *uint32, n int, w *float32, bias *float32, groups int, panels int, floor float32)) func(l *Linear, b Block, panels int, floor float32) {
	return func(l *Linear, b Block, panels int, floor float32) {
		for row := range l.batch {
			f(&b[0], &l.outputs[row*len(l.bias)], first(l.x[row*l.m.In:]), l.m.In, first(l.packed), &l.bias[0], len(l.bias)/l.units, panels, floor)
		}
	}
}

func updateWith(f func(b *float32, out *uint32, x *uint32, rows *uint32, n int, w *float32, bias *float32, groups int, panels int, floor float32), units int) func(b Block, out, x, rows []uint32, w, bias []float32, panels int, floor float32) {
	return func(b Block, out, x, rows []uint32, w, bias []float32, panels int, floor float32) {
		f(&b[0], &out[0], first(x), first(rows), len(x), first(w), &bias[0], len(out)/units, panels, floor)
	}
}

func tripleWith(f func(b *float32, out *uint32, x *uint32, y *uint32, z *uint32, n int, panels int)) func(b Block, out, x, y, z []uint32, panels int) {
	return func(b Block, out, x, y, z []uint32, panels int) {
		f(&b[0], &out[0], &x[0], &y[0], &z[0], len(out), panels)
	}
}

func affineWith(f func(b *float32, out *uint32, x *uint32, scale *float32, offset *float32, n int, panels int)) func(b Block, out, x []uint32, scale, offset []float32, panels int) {
	return func(b Block, out, x []uint32, scale, offset []float32, panels int) {
		f(&b[0], &out[0], &x[0], &scale[0], &offset[0], len(out), panels)
	}
}

// first returns the address of the first element, or nil if s is empty.
func first[S ~[]E, E any](s S) *E {
	if len(s) == 0 {
		return nil
	}
	return &s[0]
}

// resized returns a slice of n elements, reusing the memory of s if it can. The elements
// may have any value.
func resized[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}
