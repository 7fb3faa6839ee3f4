//go:build !purego

package kernel

import "sync"

// scratch is temporary memory for one call at a level that uses tiles.
type scratch struct {
	sums   [3 * Columns * Columns]int32
	scale  [States]float32
	values []int8   // digits of the input
	bits   []uint16 // digits.inputs or digits.each, restricted to a list
	wanted []uint8  // digits.wanted, restricted to some units
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// layerTiles implements Layer by multiplying the digits of the states with those of the
// weights.
func layerTiles(m *Matrix, out, in Tile, rows int, list []int32, floor float32, mask Mask) {
	d := m.digits
	if d == nil {
		layerAVX512.run(m, out, in, rows, list, floor, mask)
		return
	}
	s := scratches.Get().(*scratch)
	s.values = resized(s.values, d.blocks*3*Columns*digitBlock)
	columns := d.inputs
	if len(list) < m.In {
		s.bits = resized(s.bits, len(d.inputs))
		clear(s.bits)
		for _, k := range list {
			s.bits[k/Columns] |= d.inputs[k/Columns] & (1 << (k % Columns))
		}
		columns = s.bits
	}
	for t := 0; t < rows; t += Columns {
		n := min(Columns, rows-t)
		rowsAMX(&s.values[0], &s.scale[0], &in.Values[t*in.Stride], in.Stride*4, &columns[0], n, d.blocks)
		layerAMX(&out.Values[t*out.Stride], out.Stride*4, &s.values[0], &s.scale[0], n, &d.values[0], &d.scale[0], &m.bias[0], d.blocks, len(m.bias)/Columns, floor, &s.sums[0])
	}
	scratches.Put(s)
	if mask != nil {
		setAVX512(&mask[0], &out.Values[0], out.Stride*4, rows, len(m.bias)/Columns)
	}
}

// noRest is the rest argument of productAMX if every input lies in a block.
var noRest [States]float32

// productTiles implements Product by multiplying digits.
func productTiles(m *Outputs, out, in Block, states int, units, list []int32, floor float32) {
	d := m.digits
	if d == nil {
		productAVX512(m, out, in, states, units, list, floor)
		return
	}
	s := scratches.Get().(*scratch)
	panels := (states + Columns - 1) / Columns
	panel := d.blocks * 3 * Columns * digitBlock
	s.values = resized(s.values, panels*panel)
	each, wanted, rest := d.each, d.wanted, noRest[:]
	if inputs := d.blocks * digitBlock; m.In > inputs && len(list) > 0 && int(list[len(list)-1]) == inputs {
		rest, list = in.Element(inputs), list[:len(list)-1]
	}
	if len(list) < min(m.In, len(d.each)) {
		s.bits = resized(s.bits, len(d.each))
		clear(s.bits)
		for _, k := range list {
			s.bits[k] = d.each[k]
		}
		each = s.bits
	}
	if len(units) < m.Out {
		s.wanted = resized(s.wanted, len(d.wanted))
		clear(s.wanted)
		for _, u := range units {
			s.wanted[u] = 1
		}
		wanted = s.wanted
	}
	for p := range panels {
		statesAMX(&s.values[p*panel], &s.scale[p*Columns], &in[p*Columns], &each[0], d.blocks)
	}
	productAMX(&out[0], &s.values[0], &s.scale[0], &d.values[0], &d.scale[0], &m.bias[0], &rest[0], &d.rest[0], &wanted[0], d.blocks, len(d.wanted)/Columns, panels, floor, &s.sums[0])
	scratches.Put(s)
}
