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
// one of its row's quantizer in p, and the values of the baseline as p says. The baseline of
// the parts has the rounded values. If p has a number that is no quantizer's, EncodeMixed
// panics.
func EncodeMixed(a *model.Architecture, tables []float32, dropped []bool, baseline model.Baseline, p *Palette) (*Parts, error) {
	spans := a.Spans()
	last := &spans[len(spans)-1]
	if len(tables) != a.Parameters() || len(dropped) != a.Parameters() || len(p.Rows) != last.Row+last.Rows || p.Codebook != nil && len(p.Codebook) != len(spans) {
		panic(fmt.Sprintf("compact: EncodeMixed: tables of %d, mask of %d, palette of %d rows and %d lines", len(tables), len(dropped), len(p.Rows), len(p.Codebook)))
	}
	parts := &Parts{Quantizers: slices.Clone(p.Quantizers), Baseline: baseline, Fields: make([]Field, len(spans))}
	if err := checkQuantizers(parts.Quantizers); err != nil {
		return nil, err
	}
	if err := checkEncoded(a, spans, tables, dropped, &baseline); err != nil {
		return nil, err
	}
	parts.Baseline.Values = slices.Clone(baseline.Values)
	e := &mixedWriter{positions: newPositions(newWriter()), parts: parts, book: a.Book(parts.Baseline)}
	for j := range spans {
		var given []uint8
		if p.Codebook != nil {
			given = p.Codebook[j : j+1]
		}
		if err := e.line(j, given); err != nil {
			return nil, fmt.Errorf("%s: %w", spanName(a, &spans[j]), err)
		}
	}
	pads := a.FixedRows()
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
	parts.Words = Words(a, dropped, &parts.Baseline)
	if short := leastMixed(a, len(baseline.Values)) - parts.mixedBytes(); short > 0 {
		parts.Positions = append(parts.Positions, make([]byte, short)...)
	}
	return parts, nil
}

// leastMixed returns the least number of bytes of the tables of a as Mixed, which
// MaxInflation requires. values is the number of values of the baseline.
func leastMixed(a *model.Architecture, values int) int {
	return (4*(a.Parameters()+values-a.BaselineSize()) + MaxInflation - 1) / MaxInflation
}

// Bytes returns the number of bytes that parts of Mixed take in a file.
func (p *Parts) Bytes() int { return p.mixedBytes() + quantizerBytes*len(p.Quantizers) + len(p.Words) }

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
	book   *model.Book // of the parts' baseline
	values bitWriter
}

// line writes the words of span j. given holds the number of their
// quantizer, unless they are stored exactly.
func (e *mixedWriter) line(j int, given []uint8) error {
	var line []float32
	for n := range e.book.NumberOfWords(j) {
		line = append(line, e.book.Word(j, n)...)
	}
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
	s := &e.book.Spans[j]
	for n := range e.book.NumberOfWords(j) {
		copy(e.book.Word(j, n), line[n*s.Dim:])
	}
	for _, r := range s.Sharers {
		copy(e.book.Values[r.Baseline:r.Baseline+s.Dim], line)
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
		e.codeColumns(masks, nil)
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

func (w *bitWriter) append(number uint32, n int) {
	at := w.bits
	w.bits += n
	for len(w.data)*8 < w.bits {
		w.data = append(w.data, 0)
	}
	for i := range n {
		w.data[(at+i)/8] |= byte(number>>i&1) << ((at + i) % 8)
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
			p.Rows = append(p.Rows, t.readMixed(x, nil, f, i))
		}
	}
	return p
}

// Use says how many rows and kept entries have a quantizer.
type Use struct{ Rows, Kept int }

// Uses returns, for Mixed, the use of each quantizer of the palette, without the codebook.
func (t *Table) Uses() []Use {
	uses := make([]Use, len(t.palette))
	for j := range t.fields {
		f := &t.fields[j]
		for i := range f.size {
			kept, number := 0, uint8(0)
			for k := 0; k < f.segments && f.layout != nothing; k++ {
				if mask, _, n := t.seekMixed(f, i*f.segments+k); mask != 0 {
					kept, number = kept+bits.OnesCount16(mask), n
				}
			}
			if kept > 0 {
				uses[number] = Use{uses[number].Rows + 1, uses[number].Kept + kept}
			}
		}
	}
	return uses
}

// MeanBits returns, for Mixed, the mean number of bits of a kept entry, rounded up, or 0 if
// nothing is kept.
func (t *Table) MeanBits() int {
	sum := 0
	for i, u := range t.Uses() {
		sum += u.Kept * t.palette[i].Bits
	}
	if kept := t.Kept(); kept > 0 {
		return (sum + kept - 1) / kept
	}
	return 0
}

// FieldBytes returns, for Mixed, the number of bytes of each field's positions, values and
// numbers of words in the file. They are rounded, because fields share bytes.
func (t *Table) FieldBytes() []int {
	bytes := make([]int, len(t.fields))
	for j := range t.fields {
		bytes[j] = t.fields[j].bytes
	}
	return bytes
}

// Memory returns the number of bytes that a Table of Mixed needs to read rows: the values of
// the file, the baseline and the index.
func (t *Table) Memory() int64 {
	const wordBytes, groupBytes = 8, 16
	bytes := len(t.entries) + 4*len(t.codebook)
	if &t.empty[0] != &t.codebook[0] {
		bytes += 4 * len(t.empty)
	}
	for j := range t.fields {
		f := &t.fields[j]
		bytes += wordMemory(len(f.words)/f.dim, f.size, f.dim)
		bytes += wordBytes*len(f.listing) + groupBytes*len(f.mixed)
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
