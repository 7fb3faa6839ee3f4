package kernel

import "math/bits"

// The portable level. Its products are rounded to float32 before they are added,
// so that no compiler fuses them and every architecture gives the same bits.

func layerPortable(m *Matrix, out, in Tile, rows int, list []int32, floor float32, mask Mask) {
	for p := 0; p < len(m.bias); p += Columns {
		panel, bias := m.panels[p*m.In:(p+Columns)*m.In], m.bias[p:p+Columns]
		t := 0
		for ; t+1 < rows; t += 2 {
			panel2(out.Row(t)[p:], out.Row(t + 1)[p:], in.Row(t)[:m.In], in.Row(t + 1)[:m.In], panel, bias, list)
		}
		if t < rows {
			panel1(out.Row(t)[p:], in.Row(t)[:m.In], panel, bias, list)
		}
		for t := range rows {
			clamp(out.Row(t)[p:p+Columns], p, floor, mask)
		}
	}
}

// panel2 computes 16 columns of two rows, four columns at a time: what fits the
// registers of any processor.
func panel2(out0, out1, in0, in1, panel, bias []float32, list []int32) {
	in1 = in1[:len(in0)]
	for c := 0; c < Columns; c += 4 {
		a0, a1, a2, a3 := bias[c], bias[c+1], bias[c+2], bias[c+3]
		b0, b1, b2, b3 := a0, a1, a2, a3
		for _, k := range list {
			w := (*[4]float32)(panel[int(k)*Columns+c:])
			x, y := in0[k], in1[k]
			a0 += float32(x * w[0])
			b0 += float32(y * w[0])
			a1 += float32(x * w[1])
			b1 += float32(y * w[1])
			a2 += float32(x * w[2])
			b2 += float32(y * w[2])
			a3 += float32(x * w[3])
			b3 += float32(y * w[3])
		}
		out0[c], out0[c+1], out0[c+2], out0[c+3] = a0, a1, a2, a3
		out1[c], out1[c+1], out1[c+2], out1[c+3] = b0, b1, b2, b3
	}
}

func panel1(out, in, panel, bias []float32, list []int32) {
	for c := 0; c < Columns; c += 4 {
		a0, a1, a2, a3 := bias[c], bias[c+1], bias[c+2], bias[c+3]
		for _, k := range list {
			w := (*[4]float32)(panel[int(k)*Columns+c:])
			x := in[k]
			a0 += float32(x * w[0])
			a1 += float32(x * w[1])
			a2 += float32(x * w[2])
			a3 += float32(x * w[3])
		}
		out[c], out[c+1], out[c+2], out[c+3] = a0, a1, a2, a3
	}
}

// clamp applies the floor to a row's columns from column on, and notes in mask
// which are not 0.
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

func stepsPortable(m *Rows, out Tile, pre []float32, row []int32, change []float32, floor float32, mask Mask) {
	for t, i := range row {
		Axpy(pre, change[t], m.values[int(i)*len(pre):(int(i)+1)*len(pre)])
		h := out.Values[t*out.Stride:][:len(pre)]
		copy(h, pre)
		clamp(h, 0, floor, mask)
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
