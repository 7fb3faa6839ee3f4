package kernel

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Part is one step of Expand. The set bits of Mask, ascending, name elements relative to
// To. These elements receive consecutive values, beginning with value From.
type Part struct {
	To, From int
	Mask     uint16
}

// Expand sets some elements of x to little-endian float32 numbers in values. For each
// part:
//
//	k = 0; for o in bits of Mask: x[To+o] = values[From+k]; k++
//
// The other elements of x stay as they are.
func Expand(x []float32, values []byte, parts []Part) {
	n := uint(len(values)) / 4
	for i := range parts {
		p := &parts[i]
		if p.To < 0 || p.From < 0 || uint(p.To+bits.Len16(p.Mask)) > uint(len(x)) || uint(p.From+bits.OnesCount16(p.Mask)) > n {
			panic("kernel: Expand: a part is outside x or values")
		}
	}
	if len(parts) > 0 && len(x) > 0 && n > 0 {
		current.expand(x, values, parts)
	}
}

func expandPortable(x []float32, values []byte, parts []Part) {
	for _, p := range parts {
		to, from := x[p.To:], values[4*p.From:]
		for mask := p.Mask; mask != 0; mask &= mask - 1 {
			to[bits.TrailingZeros16(mask)] = math.Float32frombits(binary.LittleEndian.Uint32(from))
			from = from[4:]
		}
	}
}
