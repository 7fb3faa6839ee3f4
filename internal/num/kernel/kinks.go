package kernel

// kinkInputs is the number of inputs of a group: one call of level.kinks computes them.
const kinkInputs = 4 * Columns

// kinkRows is the number of rows that use the weights of a group one after the other.
const kinkRows = 64

// Kinks is a linear layer with a ReLU after it, packed for Terms. It is read-only and may be
// shared by all goroutines.
type Kinks struct {
	In, Out int
	weight  []float32 // [groups, Out, 64]; inputs beyond In are 0
	reach   []float32 // [groups, Pad(Out)], largest magnitude of a unit's weights in a group
}

// NewKinks packs a copy of weight, [out, in].
func NewKinks(weight []float32, in, out int) *Kinks {
	if len(weight) != in*out {
		panic("kernel: NewKinks: weight has the wrong length")
	}
	groups := (in + kinkInputs - 1) / kinkInputs
	k := &Kinks{In: in, Out: out, weight: make([]float32, groups*out*kinkInputs), reach: make([]float32, groups*Pad(out))}
	for o := range out {
		for i := range in {
			v, g := weight[o*in+i], i/kinkInputs
			k.weight[(g*out+o)*kinkInputs+i%kinkInputs] = v
			reach := &k.reach[g*Pad(out)+o]
			*reach = max(*reach, v, -v)
		}
	}
	return k
}

// NewTile returns a tile of zeros for the inputs of k, as Terms needs it.
func (k *Kinks) NewTile(rows int) Tile {
	return NewTile(rows, (k.In+kinkInputs-1)/kinkInputs*kinkInputs)
}

// Terms computes how much ReLU bends the effect of a change of each single input, for rows
// [0, rows). For all i < k.In:
//
//	dst[t][i] = 0
//	for h < k.Out: dst[t][i] += slope[t][h] * max(0, -s*(pre[t][h] + k[h][i]*change[t][i])), where s = 1 if pre[t][h] > 0, else -1
//
// Let pre be the output of the layer before ReLU, and slope the derivatives of a value with
// respect to its output after ReLU. If input i alone changes by change[t][i], and the value is
// linear in the units, it changes by dst[t][i] more than its derivative with respect to the
// input predicts. The term is exactly 0 if change[t][i] or all weights of the input are 0.
//
// dst and change must be from k.NewTile. Terms overwrites the elements of dst beyond k.In, and
// those of change must be 0. pre and slope have at least Pad(k.Out) columns. All of them must
// be finite. off and on are memory from NewList(k.Out), which Terms overwrites.
//
// A unit is left out where pre is so far from 0 that no change of a single input reaches it.
func (k *Kinks) Terms(dst, change, pre, slope Tile, rows int, off, on []int32) {
	groups, width := len(k.weight)/max(1, k.Out*kinkInputs), Pad(k.Out)
	if rows < 1 || k.Out < 1 || k.In < 1 {
		panic("kernel: Terms: nothing to compute")
	}
	for _, t := range []Tile{dst, change} {
		if t.Stride < groups*kinkInputs || len(t.Values) < rows*t.Stride {
			panic("kernel: Terms: dst or change is too small")
		}
	}
	for _, t := range []Tile{pre, slope} {
		if t.Stride < width || len(t.Values) < rows*t.Stride {
			panic("kernel: Terms: pre or slope is too small")
		}
	}
	if cap(off) < width+Columns || cap(on) < width+Columns {
		panic("kernel: Terms: the memory for lists is too small")
	}
	off, on = off[:cap(off)], on[:cap(on)]
	// The weights of a group stay in the core's cache while some rows use them, and so do pre and
	// slope of these rows while all groups use them.
	for from := 0; from < rows; from += kinkRows {
		for g := range groups {
			weight, reach := k.weight[g*k.Out*kinkInputs:(g+1)*k.Out*kinkInputs], k.reach[g*width:(g+1)*width]
			for t := from; t < min(from+kinkRows, rows); t++ {
				d, c := dst.Row(t)[g*kinkInputs:][:kinkInputs], change.Row(t)[g*kinkInputs:][:kinkInputs]
				p, s := pre.Row(t)[:width], slope.Row(t)[:width]
				offs, ons := current.reached(off, on, p, reach, c)
				current.kinks(d, c, weight, off[:offs], on[:ons], p, s)
			}
		}
	}
}
