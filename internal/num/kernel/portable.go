package kernel

import (
	"math"
	"math/bits"
)

// The portable level rounds each product to float32 before adding it. The compiler
// therefore cannot fuse products with sums, and every architecture gives the same bits.

func layerPortable(m *Matrix, out, in Tile, rows int, list []int32, floor float32, mask Mask) {
	for p := 0; p < len(m.bias); p += Columns {
		panel, bias := m.panels[p*m.In:(p+Columns)*m.In], m.bias[p:p+Columns]
		for t := range rows {
			row := out.Row(t)[p : p+Columns]
			halfPanel(row[:8], in.Row(t)[:m.In], panel, bias[:8], list)
			halfPanel(row[8:], in.Row(t)[:m.In], panel[min(8, len(panel)):], bias[8:], list)
			clamp(row, p, floor, mask)
		}
	}
}

// halfPanel computes 8 columns of a panel for one row. w[0] is the first of these columns.
// Eight sums fit in the registers of any processor.
func halfPanel(out, in, w, bias []float32, list []int32) {
	_, _ = out[7], bias[7]
	a0, a1, a2, a3, a4, a5, a6, a7 := bias[0], bias[1], bias[2], bias[3], bias[4], bias[5], bias[6], bias[7]
	for _, k := range list {
		x, v := in[k], (*[8]float32)(w[int(k)*Columns:])
		a0 += float32(x * v[0])
		a1 += float32(x * v[1])
		a2 += float32(x * v[2])
		a3 += float32(x * v[3])
		a4 += float32(x * v[4])
		a5 += float32(x * v[5])
		a6 += float32(x * v[6])
		a7 += float32(x * v[7])
	}
	out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7] = a0, a1, a2, a3, a4, a5, a6, a7
}

// clamp raises each element of row to at least floor, and sets the bits of mask whose
// elements are not 0. The first element of row has the number column.
func clamp(row []float32, column int, floor float32, mask Mask) {
	for c, v := range row {
		if v < floor {
			v = floor
			row[c] = v
		}
		if v != 0 && mask != nil {
			mask[(column+c)/64] |= 1 << ((column + c) % 64)
		}
	}
}

func stepsPortable(m *RowMatrix, out Tile, pre []float32, row []int32, change []float32, floor float32, mask Mask) {
	for t, i := range row {
		Axpy(pre, change[t], m.values[int(i)*len(pre):(int(i)+1)*len(pre)])
		h := out.Values[t*out.Stride:][:len(pre)]
		copy(h, pre)
		clamp(h, 0, floor, mask)
	}
}

func setPortable(m Mask, t Tile, rows, panels int) {
	for i := range rows {
		for o, v := range t.Row(i)[:panels*Columns] {
			if v != 0 {
				m[o/64] |= 1 << (o % 64)
			}
		}
	}
}

func listPortable(m Mask, list []int32) []int32 {
	for i, word := range m {
		for ; word != 0; word &= word - 1 {
			list = append(list, int32(i*64+bits.TrailingZeros64(word)))
		}
	}
	return list
}

func dotPortable(x, y []float32) float64 {
	y = y[:len(x)]
	sum := 0.0
	for i, v := range x {
		sum += float64(float64(v) * float64(y[i]))
	}
	return sum
}

func reachedPortable(off, on []int32, pre, reach, change []float32) (offs, ons int) {
	// The bits of floats of one sign have the order of the floats. There are no branches,
	// because the processor could not predict them.
	const magnitude = 1<<31 - 1
	bits := int32(0)
	for _, v := range change {
		bits = max(bits, int32(math.Float32bits(v)&magnitude))
	}
	limit := math.Float32frombits(uint32(bits))
	reach = reach[:len(pre)]
	for h, v := range pre {
		// Both lists get every unit, and the next unit overwrites those that do not belong.
		off[offs], on[ons] = int32(h), int32(h)
		p := int32(math.Float32bits(v))
		near := uint32(p&magnitude-int32(math.Float32bits(float32(limit*reach[h])))) >> 31
		above := uint32(-p&^p) >> 31
		ons += int(near & above)
		offs += int(near &^ above)
	}
	return offs, ons
}

func kinksPortable(dst, change, weight []float32, off, on []int32, pre, slope []float32) {
	clear(dst)
	for _, h := range off {
		w, p, s := weight[int(h)*kinkInputs:][:kinkInputs], pre[h], slope[h]
		for i, u := range change {
			dst[i] += float32(s * max(0, p+float32(w[i]*u)))
		}
	}
	for _, h := range on {
		w, p, s := weight[int(h)*kinkInputs:][:kinkInputs], pre[h], slope[h]
		for i, u := range change {
			dst[i] -= float32(s * min(0, p+float32(w[i]*u)))
		}
	}
}

func gatePortable(dst, x, v []float32) {
	for i, a := range x {
		const magnitude, infinity = 1<<31 - 1, 0xff << 23
		b := int32(math.Float32bits(a))
		keep := ((-b &^ b) | (infinity - b&magnitude)) >> 31 // all bits where a is above 0 or NaN; has no branch
		dst[i] = math.Float32frombits(math.Float32bits(v[i]) & uint32(keep))
	}
}
