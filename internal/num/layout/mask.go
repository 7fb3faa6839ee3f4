package layout

import (
	"fmt"
	"math/bits"
)

// Mask says which entries of the tables are dropped. Entry i is bit i%8 of byte i/8, which is 1
// if the entry is dropped. The bits after the last entry are 0.
type Mask []byte

// NewMask returns a mask of n entries that drops nothing.
func NewMask(n int) Mask { return make(Mask, (n+7)/8) }

// Check returns an error unless m is a mask of n entries.
func (m Mask) Check(n int) error {
	if len(m) != (n+7)/8 || n%8 > 0 && m[len(m)-1]>>(n%8) > 0 {
		return fmt.Errorf("a mask of %d bytes, expected %d with %d bits", len(m), (n+7)/8, n)
	}
	return nil
}

// Dropped reports whether an entry is dropped.
func (m Mask) Dropped(i int) bool { return m[i/8]>>(i%8)&1 == 1 }

// Drop drops an entry.
func (m Mask) Drop(i int) { m[i/8] |= 1 << (i % 8) }

// Count returns the number of entries in [from, to) that are dropped.
func (m Mask) Count(from, to int) (n int) {
	for i := from; i < to; {
		if i%8 == 0 && to-i >= 8 {
			n += bits.OnesCount8(m[i/8])
			i += 8
			continue
		}
		if m.Dropped(i) {
			n++
		}
		i++
	}
	return n
}

// Part returns the mask of the entries [from, to), which are numbered from 0.
func (m Mask) Part(from, to int) Mask {
	part := NewMask(to - from)
	for i := range part {
		at, shift := from/8+i, from%8
		part[i] = m[at] >> shift
		if shift > 0 && at+1 < len(m) {
			part[i] |= m[at+1] << (8 - shift)
		}
	}
	if over := (to - from) % 8; over > 0 {
		part[len(part)-1] &= 1<<over - 1
	}
	return part
}

// Bools returns the first n entries of the mask, true = dropped.
func (m Mask) Bools(n int) []bool {
	mask := make([]bool, n)
	for i := range mask {
		mask[i] = m.Dropped(i)
	}
	return mask
}
