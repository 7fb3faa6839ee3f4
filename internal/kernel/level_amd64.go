//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

//go:generate go -C _asm run . -level avx512 -out ../avx512_amd64.s -stubs ../avx512_amd64.go -pkg kernel
//go:generate go -C _asm run . -level avx2 -out ../avx2_amd64.s -stubs ../avx2_amd64.go -pkg kernel

// accelerated returns the levels in assembly. AVX-512 machines have AVX2; a test
// that turns AVX2 off means both.
func accelerated() (faster []*level) {
	x := &cpu.X86
	if !x.HasAVX2 || !x.HasFMA {
		return nil
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		layer := assembled{group: 3, tile: 8, call: [13]layerFunc{4: layer4AVX512, 8: layer8AVX512}}
		faster = append(faster, &level{
			name: "avx512", rows: 8, layer: layer.run, steps: stepsWith(stepsAVX512), prefetch: prefetchWith(prefetchAVX512),
			list: compress, dot: dotWith(dotAVX512), fma: fmaAVX512, flop: 12 * 16 * 2,
		})
	}
	layer := assembled{group: 1, tile: 6, call: [13]layerFunc{3: layer3AVX2, 6: layer6AVX2}}
	return append(faster, &level{
		name: "avx2", rows: 6, layer: layer.run, steps: stepsWith(stepsAVX2), prefetch: prefetchWith(prefetchAVX2),
		list: listPortable, dot: dotWith(dotAVX2), fma: fmaAVX2, flop: 12 * 8 * 2,
	})
}

type (
	layerFunc func(out *float32, outStride int, in *float32, inStride int, w *float32, panelStride int, bias *float32, list *int32, n int, panels int, floor float32, mask *uint64, maskByte int)
	stepsFunc func(out *float32, outStride int, pre *float32, w *float32, wStride int, rows *int32, a *float32, n int, panels int, floor float32, mask *uint64)
	dotFunc   func(dst *[Columns]float32, x *float32, w *float32, panels int)
)

// assembled is Layer by generated functions, one for each of some numbers of rows.
type assembled struct {
	group int           // panels a function works on at once
	tile  int           // the most rows that one takes
	call  [13]layerFunc // by rows
}

func (a *assembled) run(m *Matrix, out, in Tile, rows int, list []int32, floor float32, mask Mask) {
	panels := len(m.bias) / Columns
	if rows <= a.tile {
		a.panels(m, out, in, 0, rows, 0, panels, list, floor, mask)
		return
	}
	// A group of panels stays in the cache while all rows use it.
	for p := 0; p < panels; p += a.group {
		for t := 0; t < rows; t += a.tile {
			a.panels(m, out, in, t, min(a.tile, rows-t), p, min(a.group, panels-p), list, floor, mask)
		}
	}
}

// panels computes n panels from p on of some rows from t on.
func (a *assembled) panels(m *Matrix, out, in Tile, t, rows, p, n int, list []int32, floor float32, mask Mask) {
	for a.call[rows] == nil {
		rows++
	}
	a.call[rows](&out.Values[t*out.Stride+p*Columns], out.Stride*4, first(in.Values[t*in.Stride:]), in.Stride*4,
		first(m.panels[p*m.In*Columns:]), m.In*Columns*4, &m.bias[p*Columns], first(list), len(list), n, floor, first(mask), p*2)
}

func stepsWith(f stepsFunc) func(m *Rows, out Tile, pre []float32, row []int32, change []float32, floor float32, mask Mask) {
	return func(m *Rows, out Tile, pre []float32, row []int32, change []float32, floor float32, mask Mask) {
		f(&out.Values[0], out.Stride*4, &pre[0], &m.values[0], len(pre)*4, &row[0], &change[0], len(row), len(pre)/Columns, floor, first(mask))
	}
}

func prefetchWith(f func(w *float32, wStride int, rows *int32, n int)) func(m *Rows, row []int32) {
	return func(m *Rows, row []int32) { f(&m.values[0], Pad(m.Out)*4, &row[0], len(row)) }
}

// compress is List into a list that has room for what listAVX512 overwrites.
func compress(m Mask, list []int32) []int32 {
	n := len(list)
	if cap(list)-n < listRoom(m) {
		return listPortable(m, list)
	}
	list = list[:n+listRoom(m)]
	return list[:n+listAVX512(&list[n], &m[0], len(m))]
}

func dotWith(f dotFunc) func(x, y []float32) float64 {
	return func(x, y []float32) float64 {
		whole := len(x) / Columns * Columns
		var sum0, sum1, sum2, sum3 float64
		if whole > 0 {
			var lanes [Columns]float32
			f(&lanes, &x[0], &y[0], whole/Columns)
			for i := range 4 { // four sums that do not wait for each other
				sum0 += float64(lanes[i])
				sum1 += float64(lanes[i+4])
				sum2 += float64(lanes[i+8])
				sum3 += float64(lanes[i+12])
			}
		}
		return (sum0 + sum1) + (sum2 + sum3) + dotPortable(x[whole:], y[whole:])
	}
}

// first returns the address of the first element, nil if there is none.
func first[S ~[]E, E any](s S) *E {
	if len(s) == 0 {
		return nil
	}
	return &s[0]
}
