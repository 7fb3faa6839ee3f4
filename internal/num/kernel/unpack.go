package kernel

import (
	"encoding/binary"
	"math/bits"
)

// Packed is one step of Unpack. The set bits of Mask, ascending, name elements relative to
// To. These elements receive the values of consecutive numbers of Bits bits, of which the
// first begins at bit Bit.
type Packed struct {
	To, Bit      int
	Mask         uint16
	Bits         uint16 // 1 to 8
	Origin, Step float32
}

// unpackAhead is the number of bytes that a level may read from the first byte of a part on.
const unpackAhead = 32

// Unpack sets some elements of x to values of numbers in packed, whose bit i is bit i%8 of
// byte i/8. For each part:
//
//	k = 0; for o in bits of Mask: x[To+o] = Origin + Step*(number at Bit+k*Bits); k++
//
// Product and sum are rounded to float32. The other elements of x stay as they are.
func Unpack(x []float32, packed []byte, parts []Packed) {
	first := 0 // parts from first on are left
	for i := range parts {
		p := &parts[i]
		if p.To < 0 || p.Bit < 0 || uint(p.To+bits.Len16(p.Mask)) > uint(len(x)) || uint(p.Bits-1) > 7 || uint(p.Bit+bits.OnesCount16(p.Mask)*int(p.Bits)) > uint(len(packed))*8 {
			panic("kernel: Unpack: a part is outside x or packed")
		}
		if p.Bit>>3+unpackAhead > len(packed) {
			if first < i {
				current.unpack(x, packed, parts[first:i])
			}
			unpackPortable(x, packed, parts[i:i+1])
			first = i + 1
		}
	}
	if first < len(parts) && len(x) > 0 {
		current.unpack(x, packed, parts[first:])
	}
}

// unpackPortable computes four values before its first branch, because most parts have few
// and their number is random. If there are fewer, it computes the last one again.
func unpackPortable(x []float32, packed []byte, parts []Packed) {
	for i := range parts {
		p := &parts[i]
		rest, size := uint64(p.Mask), int(p.Bits)
		if rest == 0 {
			continue
		}
		to := x[p.To:]
		most := uint64(1)<<size - 1
		word := load64(packed, p.Bit>>3) >> (p.Bit & 7) // has at least 57 bits
		shift := 0
		to[bits.TrailingZeros64(rest)] = p.value(word & most)
		for range 3 {
			next := rest & (rest - 1)
			more := (next | -next) >> 63 // 1 if next is not 0
			rest = next | rest&(more-1)
			shift += size & -int(more)
			to[bits.TrailingZeros64(rest)] = p.value(word >> (shift & 63) & most)
		}
		bit := p.Bit + 4*size
		for rest &= rest - 1; rest != 0; rest &= rest - 1 {
			to[bits.TrailingZeros64(rest)] = p.value(load64(packed, bit>>3) >> (bit & 7) & most)
			bit += size
		}
	}
}

func (p *Packed) value(number uint64) float32 {
	return p.Origin + float32(p.Step*float32(number)) // the conversion forbids a fused operation
}

// load64 returns the 8 bytes at position at, little-endian. Bytes beyond the end are 0.
func load64(data []byte, at int) uint64 {
	if at+8 <= len(data) {
		return binary.LittleEndian.Uint64(data[at:])
	}
	word := uint64(0)
	for i, b := range data[at:] {
		word |= uint64(b) << (8 * i)
	}
	return word
}
