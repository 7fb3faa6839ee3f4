package compact

import (
	"fmt"
	"slices"
)

// frequencies are the chances of bytes, in units of 1/frequencyUnits. They adapt to the bytes that
// were coded after firstBytes of them, each time their number has doubled, and, from
// lastBytes on, after each lastBytes bytes.
type frequencies struct {
	of     [256]uint32
	before [257]uint32           // sum of of, up to each byte
	slots  [frequencyUnits]uint8 // byte of each unit
	counts [256]uint64           // twice how often each byte was coded, plus 1
	coded  int
	next   int // number of coded bytes at which the frequencies adapt
}

const (
	frequencyBits  = 14
	frequencyUnits = 1 << frequencyBits
	firstBytes     = 32
	lastBytes      = 4096
)

func newFrequencies() *frequencies {
	f := &frequencies{next: firstBytes}
	for i := range f.counts {
		f.counts[i] = 1
	}
	f.adapt()
	return f
}

// adapt sets the frequencies to the counts. Each byte has at least one unit. Byte 0 has those that
// remain.
func (f *frequencies) adapt() {
	sum := uint64(len(f.of) + 2*f.coded)
	left := uint32(frequencyUnits)
	for i, n := range f.counts {
		f.of[i] = 1 + uint32(n*(frequencyUnits-uint64(len(f.of)))/sum)
		left -= f.of[i]
	}
	f.of[0] += left
	for i, n := range f.of {
		at := f.before[i]
		f.before[i+1] = at + n
		slots := f.slots[at : at+n]
		for k := range slots {
			slots[k] = uint8(i)
		}
	}
}

// count counts a coded byte.
func (f *frequencies) count(b byte) {
	f.counts[b] += 2
	if f.coded++; f.coded == f.next {
		f.next += min(f.coded, lastBytes)
		f.adapt()
	}
}

// leastRange is the least difference of low and high with which a byte is coded.
const leastRange = 1 << 32

// codeByte codes a byte by its frequency and returns it. If c reads, codeByte returns the byte
// read and ignores the argument. It then counts the byte. An interval that is too small to be
// divided has two parts of different first bytes, and loses the smaller one. If the number that is
// read is in there, no writer wrote it, and codeByte returns false.
func (c *coder) codeByte(f *frequencies, b byte) (coded byte, ok bool) {
	for c.high-c.low < leastRange {
		if middle := c.high >> 56 << 56; middle-c.low > c.high-middle {
			c.high = middle - 1
		} else {
			c.low = middle
		}
		if c.reading && (c.number < c.low || c.number > c.high) {
			return 0, false
		}
		c.shift()
	}
	unit := (c.high - c.low) >> frequencyBits
	if c.reading {
		b = f.slots[min((c.number-c.low)/unit, frequencyUnits-1)]
	}
	if end := f.before[int(b)+1]; end < frequencyUnits {
		c.high = c.low + unit*uint64(end) - 1
	}
	c.low += unit * uint64(f.before[b])
	c.shift()
	f.count(b)
	return b, true
}

// leastCode returns the least number of bytes of the code of n bytes. They are read as n float32
// numbers, whose size MaxInflation bounds.
func leastCode(n int) int { return (4*n + MaxInflation - 1) / MaxInflation }

// EncodeBytes returns an arithmetic code of data. Bytes of 0 follow if the code would have less
// than one byte for MaxInflation/4 bytes of data.
func EncodeBytes(data []byte) []byte {
	w, f := newWriter(), newFrequencies()
	for _, b := range data {
		w.codeByte(f, b)
	}
	code := append(w.data, w.end()...)
	return append(code, make([]byte, max(0, leastCode(len(data))-len(code)))...)
}

// DecodeBytes returns the n bytes of which EncodeBytes returned code. It allocates at most
// MaxInflation/4 bytes for each byte of code.
func DecodeBytes(code []byte, n int) ([]byte, error) {
	if most := MaxInflation / 4 * len(code); n > most {
		return nil, fmt.Errorf("%d bytes of code for %d numbers: expected at most %d numbers", len(code), n, most)
	}
	r, f := newDecoder(code), newFrequencies()
	data := make([]byte, n)
	for i := range data {
		b, ok := r.codeByte(f, 0)
		if !ok {
			return nil, fmt.Errorf("code of no number after %d of %d numbers", i, n)
		}
		data[i] = b
	}
	tail := r.end()
	end := r.at + len(tail)
	if end > len(code) || !slices.Equal(code[r.at:end], tail) {
		return nil, fmt.Errorf("code that ends otherwise than expected after %d numbers", n)
	}
	least := leastCode(n)
	if rest := code[end:]; len(rest) != max(0, least-end) || slices.ContainsFunc(rest, func(b byte) bool { return b != 0 }) {
		return nil, fmt.Errorf("%d bytes after the code of %d numbers, expected %d bytes of 0", len(rest), n, max(0, least-end))
	}
	return data, nil
}
