package compact

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"shaver/internal/click/model"
)

// MaxLayers is the largest number of layers.
const MaxLayers = 256

// Layer is what a layer adds to the tables of the layers before it.
type Layer struct {
	Values    []byte // the entries that it adds, row by row
	Positions []byte // arithmetic code of which entries these are
}

// rowStates is the number of kinds of rows that have chances of their own: those of which the layers before keep 0,
// 1, 2, or more entries.
const rowStates = 4

// layerCoder codes which entries a layer adds, row by row.
type layerCoder [rowStates]*positions

func newLayerCoder(c *coder) (l layerCoder) {
	for i := range l {
		l[i] = newPositions(c)
	}
	return l
}

// begin begins a field.
func (l *layerCoder) begin(dim int) {
	for _, p := range l {
		p.begin(dim)
	}
}

// row codes the entries of a row that the layer adds to those of had, and returns their number. Without add it
// reads them; add must then be 0 before.
func (l *layerCoder) row(had, add []uint16) int {
	kept, some := 0, 0
	for k, mask := range had {
		kept += bits.OnesCount16(mask)
		if add[k] != 0 {
			some = 1
		}
	}
	p := l[min(kept, rowStates-1)]
	if kept == p.dim || p.codeListed(some) == 0 {
		return 0
	}
	return p.codeColumns(add, had)
}

// LayersOf reports whether the values of v do not depend on what else is kept, so that layers can share them.
func LayersOf(v Encoding) bool { return v == Float32 || v == Float16 }

// EncodeLayers returns the tables of a in layers. The first layers, up to any one, are the tables that Encode stores for its
// mask, [Parameters]. LayersOf must hold for v. A layer that drops an entry of the one before is an error, as are
// those of Encode.
func EncodeLayers(a *model.Architecture, tables []float32, masks [][]bool, baseline model.Baseline, v Encoding) ([]Layer, error) {
	if !LayersOf(v) || len(masks) < 1 || len(masks) > MaxLayers {
		panic(fmt.Sprintf("compact: EncodeLayers: %d layers as %q", len(masks), v))
	}
	if _, err := Encode(a, tables, masks[len(masks)-1], baseline, v); err != nil {
		return nil, err
	}
	if err := checkPads(a, masks[0]); err != nil {
		return nil, err
	}
	layers, before := make([]Layer, len(masks)), slices.Repeat([]bool{true}, len(tables))
	for k, dropped := range masks {
		l, w := &layers[k], newWriter()
		c := newLayerCoder(w)
		for _, s := range a.Spans() {
			c.begin(s.Dim)
			had, add, gone := make([]uint16, segments(s.Dim)), make([]uint16, segments(s.Dim)), make([]bool, s.Dim)
			for at := s.Entry; at < s.Entry+s.Rows*s.Dim; at += s.Dim {
				for c := range gone {
					if gone[c] = dropped[at+c] || !before[at+c]; dropped[at+c] && !before[at+c] {
						return nil, fmt.Errorf("layer %d drops entry %d, which the layer before keeps: expected layers that only add entries", k, at+c)
					}
				}
				maskOf(had, before[at:at+s.Dim])
				maskOf(add, gone)
				c.row(had, add)
				l.Values, _, _, _ = v.appendValues(l.Values, tables[at:at+s.Dim], gone, false, 0, s.Dim) // Encode checked them
			}
		}
		l.Positions, before = append(w.data, w.end()...), dropped
	}
	if short := leastMixed(a, len(baseline.Values)) - layers[0].bytes(); short > 0 {
		layers[0].Positions = append(layers[0].Positions, make([]byte, short)...)
	}
	return layers, nil
}

func (l *Layer) bytes() int { return len(l.Values) + len(l.Positions) }

// Union returns parts that have the kept entries of all layers, with their values multiplied by factor, which is 1 unless v
// is Float32. They lack the baseline and the words.
func Union(a *model.Architecture, v Encoding, layers []Layer, factor float32) (*Parts, error) {
	if least := leastMixed(a, a.BaselineSize()); layers[0].bytes() < least {
		return nil, fmt.Errorf("%s in a first layer of %d bytes: expected at least %d bytes", a.Size(), layers[0].bytes(), least)
	}
	coders, values, size := make([]layerCoder, len(layers)), make([][]byte, len(layers)), v.Size()
	for k, l := range layers {
		coders[k], values[k] = newLayerCoder(newDecoder(l.Positions)), l.Values
	}
	parts := &Parts{Positions: layers[0].Positions} // which New counts
	for _, s := range a.Spans() {
		f, present := Field{Form: None}, make([]byte, bitBytes(s.Rows))
		had, add, owner := make([]uint16, segments(s.Dim)), make([]uint16, segments(s.Dim)), make([]uint8, s.Dim)
		for k := range coders {
			coders[k].begin(s.Dim)
		}
		for i := range s.Rows {
			clear(had)
			kept := 0
			for k := range coders {
				clear(add)
				n := coders[k].row(had, add)
				if kept += n; n*size > len(values[k]) {
					return nil, fmt.Errorf("%s: layer %d ends before the values of row %d", spanName(a, &s), k, i)
				}
				for g, mask := range add {
					for had[g] |= mask; mask != 0; mask &= mask - 1 {
						owner[g*maxNarrow+bits.TrailingZeros16(mask)] = uint8(k)
					}
				}
			}
			if kept == 0 {
				continue
			}
			present[i/8] |= 1 << (i % 8)
			f = Field{Bitmap, f.Rows + 1, f.Kept + kept}
			for at := 0; at < s.Dim; at += 8 {
				parts.Columns = append(parts.Columns, byte(had[at/maxNarrow]>>(at%maxNarrow)))
			}
			for g, mask := range had {
				for ; mask != 0; mask &= mask - 1 {
					k := owner[g*maxNarrow+bits.TrailingZeros16(mask)]
					parts.Values, values[k] = append(parts.Values, values[k][:size]...), values[k][size:]
				}
			}
		}
		if f.Rows > 0 && f.Rows < s.Rows {
			parts.Rows = append(parts.Rows, present...)
		}
		parts.Fields = append(parts.Fields, f)
	}
	for k, rest := range values {
		if len(rest) > 0 {
			return nil, fmt.Errorf("layer %d has %d bytes after its last value", k, len(rest))
		}
	}
	for data := parts.Values; factor != 1 && len(data) > 0; data = data[4:] {
		e := float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
		binary.LittleEndian.PutUint32(data, math.Float32bits(float32(float64(float64(factor)*e)+0))) // as checkpoint.Checkpoint.Calibrated
	}
	return parts, nil
}
