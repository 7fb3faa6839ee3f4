package compact

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"shaver/internal/click/model"
)

// Coded is the form of a field of which some entries are kept as Mixed. Its other fields
// have the form None.
const Coded Form = "coded"

// EncodeMixed is Encode for the encoding Mixed. Each kept value is rounded to the nearest
// one of its row's quantizer in p, and the values of the codebook as p says. The codebook of
// the parts has the rounded values. If p has a number that is no quantizer's, EncodeMixed
// panics.
func EncodeMixed(a *model.Architecture, tables []float32, dropped []bool, codebook []float32, p *Palette) (*Parts, error) {
	spans := a.Spans()
	last := &spans[len(spans)-1]
	if len(tables) != a.Parameters() || len(dropped) != a.Parameters() || len(codebook) != a.BaselineSize() || len(p.Rows) != last.Row+last.Rows || p.Codebook != nil && len(p.Codebook) != len(spans) {
		panic(fmt.Sprintf("compact: EncodeMixed: tables of %d, mask of %d, codebook of %d, palette of %d rows and %d lines", len(tables), len(dropped), len(codebook), len(p.Rows), len(p.Codebook)))
	}
	parts := &Parts{Quantizers: slices.Clone(p.Quantizers), Codebook: slices.Clone(codebook), Fields: make([]Field, len(spans))}
	if err := checkQuantizers(parts.Quantizers); err != nil {
		return nil, err
	}
	if err := checkEncoded(a, spans, tables, dropped, codebook); err != nil {
		return nil, err
	}
	e := &mixedWriter{positions: newPositions(newWriter()), parts: parts}
	for j := range spans {
		var given []uint8
		if p.Codebook != nil {
			given = p.Codebook[j : j+1]
		}
		if err := e.line(&spans[j], given); err != nil {
			return nil, fmt.Errorf("%s: %w", spanName(a, &spans[j]), err)
		}
	}
	pads := a.PadRows()
	for j := range spans {
		s := &spans[j]
		from, to := s.Entries()
		field, err := e.field(s, tables[from:to], dropped[from:to], p.Rows[s.Row:s.Row+s.Rows], pads)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", spanName(a, s), err)
		}
		parts.Fields[j] = field
	}
	parts.Values = e.values.data
	parts.Positions = append(e.data, e.end()...)
	if short := leastMixed(a) - parts.mixedBytes(); short > 0 {
		parts.Positions = append(parts.Positions, make([]byte, short)...)
	}
	return parts, nil
}

// leastMixed returns the least number of bytes of the tables of a as Mixed, which
// MaxInflation requires.
func leastMixed(a *model.Architecture) int {
	return (4*a.Parameters() + MaxInflation - 1) / MaxInflation
}

// Bytes returns the number of bytes that parts of Mixed take in a file.
func (p *Parts) Bytes() int { return p.mixedBytes() + quantizerBytes*len(p.Quantizers) }

// mixedBytes returns the number of bytes of positions and values.
func (p *Parts) mixedBytes() int { return len(p.Positions) + len(p.Values) }

// checkQuantizers returns an error unless they are those of a palette.
func checkQuantizers(all []Quantizer) error {
	if len(all) > MaxQuantizers {
		return fmt.Errorf("the palette has %d quantizers: expected at most %d", len(all), MaxQuantizers)
	}
	for i, q := range all {
		if err := q.Check(); err != nil {
			return fmt.Errorf("quantizer %d has %w", i, err)
		}
	}
	return nil
}

// mixedWriter writes the positions and values of Parts.
type mixedWriter struct {
	*positions
	parts  *Parts
	values bitWriter
}

// line writes the values of a span in the codebook. given holds the number of their
// quantizer, unless they are stored exactly.
func (e *mixedWriter) line(s *model.Span, given []uint8) error {
	line := e.parts.Codebook[s.Baseline : s.Baseline+s.Dim]
	number := ZeroLine
	if len(given) > 0 {
		number = int(given[0])
		if number >= len(e.parts.Quantizers) && number != ZeroLine {
			panic(fmt.Sprintf("compact: EncodeMixed: codebook with quantizer %d of %d", number, len(e.parts.Quantizers)))
		}
	} else if slices.ContainsFunc(line, func(v float32) bool { return math.Float32bits(v) != 0 }) {
		q := Quantizer{Bits: 16}
		for _, v := range line {
			if _, same := q.exactly(v); !same {
				q.Bits = 32
			}
		}
		if number = slices.Index(e.parts.Quantizers, q); number < 0 {
			number = len(e.parts.Quantizers)
			e.parts.Quantizers = append(e.parts.Quantizers, q)
			if err := checkQuantizers(e.parts.Quantizers); err != nil {
				return fmt.Errorf("with %d bits for the codebook %w", q.Bits, err)
			}
		}
	}
	e.codeLine(number)
	if number == ZeroLine {
		clear(line)
	} else {
		q := e.parts.Quantizers[number]
		for c, v := range line {
			n, value := q.Nearest(v)
			e.values.append(n, q.Bits)
			line[c] = value
		}
	}
	for _, r := range s.Sharers {
		copy(e.parts.Codebook[r.Baseline:r.Baseline+s.Dim], line)
	}
	return nil
}

// field writes a field. rows holds the quantizers of its rows.
func (e *mixedWriter) field(s *model.Span, table []float32, dropped []bool, rows []uint8, pads []int) (Field, error) {
	masks := make([]uint16, segments(s.Dim))
	f := Field{Form: None}
	e.begin(s.Dim)
	for i := range s.Rows {
		if kept := maskOf(masks, dropped[i*s.Dim:(i+1)*s.Dim]); kept > 0 {
			f = Field{Coded, f.Rows + 1, f.Kept + kept}
			e.codeListed(1)
		} else {
			e.codeListed(0)
		}
	}
	for i := range s.Rows {
		_, pad := slices.BinarySearch(pads, s.Row+i)
		row, gone := table[i*s.Dim:(i+1)*s.Dim], dropped[i*s.Dim:(i+1)*s.Dim]
		if pad && slices.Contains(gone, true) {
			return f, fmt.Errorf("the mask drops an entry of row %d, which a pad id reads", s.Row+i)
		}
		if maskOf(masks, gone) == 0 {
			continue
		}
		number := int(rows[i])
		if number >= len(e.parts.Quantizers) {
			panic(fmt.Sprintf("compact: EncodeMixed: row %d with quantizer %d of %d", s.Row+i, number, len(e.parts.Quantizers)))
		}
		e.codeQuantizer(number)
		e.codeColumns(masks)
		q := e.parts.Quantizers[number]
		for c, v := range row {
			if gone[c] {
				continue
			}
			n, value := q.Nearest(v)
			if pad && value != v {
				return f, fmt.Errorf("row %d has the value %v in column %d: its quantizer of %d bits cannot hold it exactly, as the row of a pad id needs", s.Row+i, v, c, q.Bits)
			}
			if q.Bits == 16 && math.Abs(float64(v)) >= maxHalf+16 {
				return f, fmt.Errorf("row %d has the value %v in column %d: float16 holds magnitudes up to 65504", s.Row+i, v, c)
			}
			e.values.append(n, q.Bits)
		}
	}
	return f, nil
}

// bitWriter writes numbers of some bits one after the other, from the lowest bit of the
// first byte on.
type bitWriter struct {
	data []byte
	bits int // number of bits written
}

func (w *bitWriter) append(number uint32, bits int) {
	at := w.bits
	w.bits += bits
	for len(w.data)*8 < w.bits {
		w.data = append(w.data, 0)
	}
	for i := range bits {
		w.data[(at+i)/8] |= byte(number>>i&1) << ((at + i) % 8)
	}
}

// segments returns the number of segments of a row: ranges of maxNarrow columns, of which
// the last may be smaller. The index has one mask for each segment of a listed row.
func segments(dim int) int { return (dim + maxNarrow - 1) / maxNarrow }

// mixedGroup describes consecutive segments of a field.
type mixedGroup struct {
	masks uint64 // masks, 16 bits per segment
	place uint64 // number of the first bit of the group's values in all values, 48 bits; then the quantizers, 4 bits per segment
}

const placeBits = 48

// decoded is a quantizer that is ready to read values.
type decoded struct {
	bits   uint64
	mask   uint64
	levels []float32 // values of all numbers, for at most 8 bits
}

// newMixed returns the tables of a that are stored in parts.
func newMixed(a *model.Architecture, parts *Parts) (*Table, error) {
	spans := a.Spans()
	if len(a.Lists) > 0 && a.Players() > maxPlayers {
		return nil, fmt.Errorf("the lists have %d entries in a row, expected at most %d", a.Players(), maxPlayers)
	}
	if err := checkQuantizers(parts.Quantizers); err != nil {
		return nil, err
	}
	if least := leastMixed(a); parts.mixedBytes() < least {
		return nil, fmt.Errorf("%s in %d bytes of positions and values: expected at least %d bytes", a.Size(), parts.mixedBytes(), least)
	}
	t := &Table{values: Mixed, ids: a.Width(), narrow: true, fields: make([]field, len(spans)), codebook: make([]float32, a.BaselineSize()), entries: parts.Values, palette: parts.Quantizers}
	for _, q := range parts.Quantizers {
		d := decoded{bits: uint64(q.Bits), mask: 1<<q.Bits - 1}
		if q.Bits <= 8 {
			for n := range uint32(1) << q.Bits {
				d.levels = append(d.levels, q.value(n))
			}
		}
		t.decoded = append(t.decoded, d)
	}
	r := &mixedReader{positions: newPositions(newDecoder(parts.Positions)), table: t}
	for j := range spans {
		s := &spans[j]
		if err := r.line(s); err != nil {
			return nil, fmt.Errorf("the codebook of %s: %w", spanName(a, s), err)
		}
	}
	for j := range spans {
		s, f := &spans[j], &t.fields[j]
		*f = field{size: s.Rows, dim: s.Dim, narrow: true, segments: segments(s.Dim), codebook: t.codebook[s.Baseline : s.Baseline+s.Dim]}
		if err := r.field(f); err != nil {
			return nil, fmt.Errorf("%s: %w", spanName(a, s), err)
		}
	}
	if err := r.finish(leastMixed(a)); err != nil {
		return nil, err
	}
	t.look(a, spans)
	return t, nil
}

// mixedReader reads the positions of Parts.
type mixedReader struct {
	*positions
	table *Table
	bit   int // number of the next value's first bit
}

// take advances to the bits after n values. It returns an error if there are not so many, or
// if one of them is not finite.
func (r *mixedReader) take(number, n int) error {
	if number >= len(r.table.decoded) {
		return fmt.Errorf("a row has quantizer %d of %d", number, len(r.table.decoded))
	}
	q := &r.table.decoded[number]
	from := r.bit
	r.bit += n * int(q.bits)
	if r.bit > 8*len(r.table.entries) {
		return fmt.Errorf("values ends before those of all kept entries")
	}
	if q.levels == nil {
		for ; from < r.bit; from += int(q.bits) {
			if v := r.table.number(q, from); q.bits == 16 && v&0x7c00 == 0x7c00 || q.bits == 32 && v&0x7f800000 == 0x7f800000 {
				return fmt.Errorf("a value of %d bits is infinite or NaN: values must be finite", q.bits)
			}
		}
	}
	return nil
}

// line reads the values of a span in the codebook.
func (r *mixedReader) line(s *model.Span) error {
	number := r.codeLine(0)
	r.table.lines = append(r.table.lines, uint8(number))
	line := r.table.codebook[s.Baseline : s.Baseline+s.Dim]
	if number != ZeroLine {
		from := r.bit
		if err := r.take(number, s.Dim); err != nil {
			return err
		}
		q := &r.table.decoded[number]
		for c := range line {
			line[c] = r.table.value(q, from+c*int(q.bits))
		}
	}
	for _, o := range s.Sharers {
		copy(r.table.codebook[o.Baseline:o.Baseline+s.Dim], line)
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
		f.Kept += r.codeColumns(masks)
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
func (t *Table) number(q *decoded, bit int) uint64 {
	return load(t.entries, bit>>3) >> (bit & 7) & q.mask
}

// value returns the value at the given bit.
func (t *Table) value(q *decoded, bit int) float32 {
	n := t.number(q, bit)
	switch {
	case q.levels != nil:
		return q.levels[n]
	case q.bits == 16:
		return fromHalf(uint16(n))
	}
	return math.Float32frombits(uint32(n))
}

// seekMixed returns the mask of segment i of a field, its first bit and its quantizer.
func (t *Table) seekMixed(f *field, i int) (mask uint16, bit, number int) {
	at, listed := rank(f.word(i), uint32(i))
	if listed == 0 {
		return 0, 0, 0
	}
	g := &f.mixed[at/groupRows]
	bit = int(g.place & (1<<placeBits - 1))
	numbers := g.place >> placeBits
	for k := range at % groupRows {
		bit += bits.OnesCount16(uint16(g.masks>>(16*k))) * t.Bits(int(numbers>>(4*k)&15))
	}
	at %= groupRows
	return uint16(g.masks >> (16 * at)), bit, int(numbers >> (4 * at) & 15)
}

// Bits returns the number of bits of a quantizer's values.
func (t *Table) Bits(number int) int { return t.palette[number].Bits }

// readMixed writes the kept entries of row i of a field to x, [d], and returns the number of
// its quantizer.
func (t *Table) readMixed(x []float32, dropped []bool, f *field, i int) (number int) {
	for k := range f.segments {
		mask, bit, n := t.seekMixed(f, i*f.segments+k)
		q := &t.decoded[n]
		for ; mask != 0; mask &= mask - 1 {
			c := k*maxNarrow + bits.TrailingZeros16(mask)
			x[c], number = t.value(q, bit), n
			if dropped != nil {
				dropped[c] = false
			}
			bit += int(q.bits)
		}
	}
	return number
}

// embedMixed implements Embed for Mixed.
func (t *Table) embedMixed(x []float32, features []int32) {
	for row := range len(features) / t.ids {
		x := x[row*len(t.empty) : (row+1)*len(t.empty)]
		copy(x, t.empty)
		for i := range t.looks {
			l := &t.looks[i]
			f := l.field
			if f.layout == nothing {
				continue
			}
			t.readMixed(x[l.at:l.at+f.dim], nil, f, int(features[row*t.ids+l.id])-l.first)
		}
	}
}

// Palette returns how the values of Mixed are stored. For other encodings it returns nil.
// With it and the values that Rows passes, EncodeMixed gives a table of the same values.
func (t *Table) Palette() *Palette {
	if t.values != Mixed {
		return nil
	}
	p := &Palette{Quantizers: slices.Clone(t.palette), Codebook: slices.Clone(t.lines)}
	for j := range t.fields {
		f := &t.fields[j]
		x := make([]float32, f.dim)
		for i := range f.size {
			number := 0
			if f.layout != nothing {
				number = t.readMixed(x, nil, f, i)
			}
			p.Rows = append(p.Rows, uint8(number))
		}
	}
	return p
}

// Memory returns the number of bytes that a Table of Mixed needs to read rows: the values of
// the file, the codebook, the quantizers and the index.
func (t *Table) Memory() int64 {
	bytes := len(t.entries) + 4*len(t.codebook)
	if &t.empty[0] != &t.codebook[0] {
		bytes += 4 * len(t.empty)
	}
	for i := range t.decoded {
		bytes += 4 * len(t.decoded[i].levels)
	}
	for j := range t.fields {
		f := &t.fields[j]
		bytes += 8*len(f.listing) + 16*len(f.mixed)
	}
	return int64(bytes)
}

// quantizerBytes is the number of bytes of a quantizer in a file.
const quantizerBytes = 9

// PackQuantizers returns the bytes of quantizers in a file: for each the bits, then origin
// and step as little-endian float32 numbers.
func PackQuantizers(all []Quantizer) []byte {
	var data []byte
	for _, q := range all {
		data = append(data, byte(q.Bits))
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(q.Origin))
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(q.Step))
	}
	return data
}

// UnpackQuantizers returns the quantizers of which data are the bytes. New checks them.
func UnpackQuantizers(data []byte) ([]Quantizer, error) {
	if len(data)%quantizerBytes != 0 || len(data) > MaxQuantizers*quantizerBytes {
		return nil, fmt.Errorf("%d bytes: expected %d for each of at most %d quantizers", len(data), quantizerBytes, MaxQuantizers)
	}
	var all []Quantizer
	for ; len(data) > 0; data = data[quantizerBytes:] {
		all = append(all, Quantizer{int(data[0]), math.Float32frombits(binary.LittleEndian.Uint32(data[1:])), math.Float32frombits(binary.LittleEndian.Uint32(data[5:]))})
	}
	return all, nil
}
