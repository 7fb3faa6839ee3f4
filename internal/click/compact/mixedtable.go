package compact

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
)

// segments returns the number of segments of a row: ranges of maxNarrow columns, of which
// the last may be smaller. The index has one mask for each segment of a listed row.
func segments(dim int) int { return (dim + maxNarrow - 1) / maxNarrow }

// mixedGroup describes consecutive segments of a field.
type mixedGroup struct {
	masks uint64 // masks, 16 bits per segment
	place uint64 // number of the first bit of the group's values in all values, 48 bits; then the quantizers, 4 bits per segment
}

const placeBits = 48

// newMixed returns the tables of a that are stored in parts.
func newMixed(a *model.Architecture, parts *Parts) (*Table, error) {
	spans := a.Spans()
	if err := checkQuantizers(parts.Quantizers); err != nil {
		return nil, err
	}
	words, values, code, err := cutWords(a, spans, parts.Words)
	if err != nil {
		return nil, err
	}
	least := leastMixed(a, values)
	if parts.mixedBytes() < least {
		return nil, fmt.Errorf("%s in %d bytes of positions and values: expected at least %d bytes", a.Size(), parts.mixedBytes(), least)
	}
	t := &Table{values: Mixed, ids: a.Width(), narrow: true, fields: make([]field, len(spans)), codebook: make([]float32, a.BaselineSize()), entries: parts.Values}
	t.palette = t.quantizers[:len(parts.Quantizers)]
	for i, q := range parts.Quantizers {
		t.widths[i], t.quantizers[i] = uint8(q.Bits), q
	}
	r := &mixedReader{positions: newPositions(newDecoder(parts.Positions)), table: t}
	for j := range spans {
		s, f := &spans[j], &t.fields[j]
		*f = field{size: s.Rows, dim: s.Dim, narrow: true, segments: segments(s.Dim), words: t.codebook[s.Baseline : s.Baseline+s.Dim]}
		if words[j] > 1 {
			f.words = make([]float32, words[j]*s.Dim)
		}
		if err := r.line(f.words); err != nil {
			return nil, fmt.Errorf("the codebook of %s: %w", spanName(a, s), err)
		}
		for _, o := range s.Readers() {
			copy(t.codebook[o.Baseline:o.Baseline+s.Dim], f.words)
		}
	}
	for j := range spans {
		s, f := &spans[j], &t.fields[j]
		at, bit := r.at, r.bit
		if err := r.field(f); err != nil {
			return nil, fmt.Errorf("%s: %w", spanName(a, s), err)
		}
		f.bytes = r.at - at + (r.bit-bit+7)/8
	}
	if err := r.finish(least); err != nil {
		return nil, err
	}
	return t, t.finish(a, spans, code)
}

// mixedReader reads the positions of Parts.
type mixedReader struct {
	*positions
	table *Table
	bit   int // number of the next value's first bit
}

// take advances to the bits after n values. It returns an error if there are fewer, or
// if one of them is not finite.
func (r *mixedReader) take(number, n int) error {
	if number >= len(r.table.palette) {
		return fmt.Errorf("a row has quantizer %d of %d", number, len(r.table.palette))
	}
	q := &r.table.palette[number]
	from := r.bit
	r.bit += n * q.Bits
	if r.bit > 8*len(r.table.entries) {
		return fmt.Errorf("values ends before those of all kept entries")
	}
	if q.Bits > 8 {
		for ; from < r.bit; from += q.Bits {
			if v := r.table.number(q, from); q.Bits == 16 && v&0x7c00 == 0x7c00 || q.Bits == 32 && v&0x7f800000 == 0x7f800000 {
				return fmt.Errorf("a value of %d bits is infinite or NaN: values must be finite", q.Bits)
			}
		}
	}
	return nil
}

// line reads the words of a span. They must be 0 before.
func (r *mixedReader) line(line []float32) error {
	number := r.codeLine(0)
	r.table.lines = append(r.table.lines, uint8(number))
	if number != ZeroLine {
		from := r.bit
		if err := r.take(number, len(line)); err != nil {
			return err
		}
		q := &r.table.palette[number]
		for c := range line {
			line[c] = r.table.value(q, from+c*q.Bits)
		}
	}
	return nil
}

// field reads the positions of a field and builds its index.
func (r *mixedReader) field(f *field) error {
	r.begin(f.dim)
	present := make([]byte, bitBytes(f.size))
	for i := range f.size {
		listed := r.codeListed(0)
		present[i/8] |= byte(listed) << (i % 8)
		f.Rows += listed
	}
	if f.Rows == 0 {
		f.Form = None
		return nil
	}
	f.Form, f.layout = Coded, coded
	size := f.size * f.segments // segments of the field
	bound := min(f.Rows*f.segments, 4*len(r.table.entries))
	f.some = bound < size*3/8
	if f.some {
		f.listing = make([]uint64, (size+listingRows-1)/listingRows)
		f.mixed = make([]mixedGroup, bound/groupRows+1)
	} else {
		f.mixed = make([]mixedGroup, size/groupRows+1)
	}
	masks := make([]uint16, f.segments)
	next := 0 // number of segments in the groups
	for i := range f.size {
		if present[i/8]>>(i%8)&1 == 0 {
			if !f.some {
				f.open(r.bit, i*f.segments, f.segments)
			}
			continue
		}
		clear(masks)
		number := r.codeQuantizer(0)
		f.Kept += r.codeColumns(masks, nil)
		for k, mask := range masks {
			at := i*f.segments + k
			if f.some {
				if mask == 0 {
					continue
				}
				f.listing[at/listingRows] |= 1 << (at % listingRows)
				at = next
				next++
				if at/groupRows >= len(f.mixed) {
					return fmt.Errorf("values ends before those of all kept entries")
				}
			}
			f.open(r.bit, at, 1)
			g := &f.mixed[at/groupRows]
			g.masks |= uint64(mask) << (at % groupRows * 16)
			g.place |= uint64(number) << (placeBits + at%groupRows*4)
			if err := r.take(number, bits.OnesCount16(mask)); err != nil {
				return err
			}
		}
	}
	before := uint64(0)
	for i := range f.listing {
		f.listing[i] |= before << 32
		before += uint64(bits.OnesCount32(uint32(f.listing[i])))
	}
	if f.some {
		f.mixed = slices.Clip(f.mixed[:next/groupRows+1])
	}
	return nil
}

// open sets the places of the groups that begin in n segments from at on to bit.
func (f *field) open(bit, at, n int) {
	for i := at; i < at+n; i++ {
		if i%groupRows == 0 {
			f.mixed[i/groupRows].place = uint64(bit)
		}
	}
}

// finish returns an error unless everything was read.
func (r *mixedReader) finish(least int) error {
	if n := (r.bit + 7) / 8; n != len(r.table.entries) || r.bit%8 > 0 && r.table.entries[n-1]>>(r.bit%8) != 0 {
		return fmt.Errorf("values has %d bytes, expected %d bits and then bits of 0", len(r.table.entries), r.bit)
	}
	tail := r.end()
	if r.at+len(tail) > len(r.data) || !slices.Equal(r.data[r.at:r.at+len(tail)], tail) {
		return fmt.Errorf("positions ends otherwise than expected")
	}
	rest := r.data[r.at+len(tail):]
	if need := least - len(r.table.entries) - r.at - len(tail); len(rest) != max(0, need) || slices.ContainsFunc(rest, func(b byte) bool { return b != 0 }) {
		return fmt.Errorf("positions has %d bytes after the last row, expected %d bytes of 0", len(rest), max(0, need))
	}
	return nil
}

// number returns the number of a value at the given bit.
func (t *Table) number(q *Quantizer, bit int) uint32 {
	return uint32(load(t.entries, bit>>3) >> (bit & 7) & (1<<q.Bits - 1))
}

// value returns the value at the given bit.
func (t *Table) value(q *Quantizer, bit int) float32 { return q.Value(t.number(q, bit)) }

// spread writes the values of a segment to x, which begins with the segment's first column.
// mask marks the kept columns; bit is the first bit of their values.
func (t *Table) spread(x []float32, mask uint16, bit int, q *Quantizer) {
	for ; mask != 0; mask &= mask - 1 {
		x[bits.TrailingZeros16(mask)] = t.value(q, bit)
		bit += q.Bits
	}
}

// find returns the mask of segment i of the group, its first bit and its quantizer. widths
// holds the bits of each quantizer.
func (g *mixedGroup) find(i uint32, widths *[16]uint8) (mask uint16, bit int, number uint8) {
	at := i % groupRows * 16
	before := g.masks & (1<<at - 1) // masks of the segments before
	numbers := g.place >> placeBits
	bit = int(g.place&(1<<placeBits-1)) +
		bits.OnesCount16(uint16(before))*int(widths[numbers&15]) +
		bits.OnesCount16(uint16(before>>16))*int(widths[numbers>>4&15]) +
		bits.OnesCount16(uint16(before>>32))*int(widths[numbers>>8&15])
	return uint16(g.masks >> at), bit, uint8(numbers >> (i % groupRows * 4) & 15)
}

// seekMixed returns the mask of segment i of a field, its first bit and its quantizer.
func (t *Table) seekMixed(f *field, i int) (mask uint16, bit int, number uint8) {
	at, listed := rank(f.word(i), uint32(i))
	if listed == 0 {
		return 0, 0, 0
	}
	return f.mixed[at/groupRows].find(at, &t.widths)
}

// readMixed writes the kept entries of row i of a field to x, [d], and clears those of
// dropped, unless that is nil. It returns the number of the row's quantizer.
func (t *Table) readMixed(x []float32, dropped []bool, f *field, i int) (number uint8) {
	if f.layout == nothing {
		return 0
	}
	for k := range f.segments {
		mask, bit, n := t.seekMixed(f, i*f.segments+k)
		if mask == 0 {
			continue
		}
		number = n
		t.spread(x[k*maxNarrow:], mask, bit, &t.palette[n])
		for ; mask != 0 && dropped != nil; mask &= mask - 1 {
			dropped[k*maxNarrow+bits.TrailingZeros16(mask)] = false
		}
	}
	return number
}

// unpack writes the segments of some look-ups, whose rows are those in the groups, to x.
func (t *Table) unpack(x []float32, lookups []lookup, found []kernel.Packed) {
	for i := range lookups { // load the groups of all look-ups, which find reads
		l := &lookups[i]
		l.word = l.field.mixed[l.row/groupRows].masks
	}
	n := 0
	for i := range lookups {
		l := &lookups[i]
		mask, bit, number := l.field.mixed[l.row/groupRows].find(l.row, &t.widths)
		q := &t.quantizers[number]
		found[n] = kernel.Packed{To: l.at, Bit: bit, Mask: mask, Bits: uint16(q.Bits), Origin: q.Origin, Step: q.Step}
		if q.Bits > 8 {
			t.spread(x[l.at:], mask, bit, q)
			continue
		}
		n += int((uint32(mask) + math.MaxUint16) >> 16) // 1 if the row keeps an entry
	}
	kernel.Unpack(x, t.entries, found[:n])
}
