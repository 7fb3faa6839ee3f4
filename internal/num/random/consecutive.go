package random

import "math/bits"

// Consecutive has the first numbers of the streams at (seed, purpose, i, j) for consecutive i. It computes several at
// once, in less time than the streams take. Only one goroutine may use it at a time.
type Consecutive struct {
	seed    uint64
	purpose Purpose
	j       uint64
	first   uint64 // index of words[0]
	filled  bool
	words   [64]uint64
}

// NewConsecutive returns the first numbers of the streams at (seed, purpose, i, j) for all i.
func NewConsecutive(seed uint64, purpose Purpose, j uint64) *Consecutive {
	return &Consecutive{seed: seed, purpose: purpose, j: j}
}

// Below returns what Stream.Below(n) returns first for the stream of index i. It is fast if i follows the
// index of the call before. It panics if n is 0.
func (c *Consecutive) Below(i, n uint64) uint64 {
	if !c.filled || i-c.first >= uint64(len(c.words)) {
		c.fill(i)
	}
	hi, lo := bits.Mul64(c.words[i-c.first], n)
	if lo < n { // perhaps the number is rejected, and the stream has to go on
		stream := At(c.seed, c.purpose, i, c.j)
		return stream.Below(n)
	}
	return hi
}

// fill computes the words from index i on.
func (c *Consecutive) fill(i uint64) {
	c.first, c.filled = i, true
	for k := 0; k < len(c.words); k += 2 {
		c.words[k], c.words[k+1] = firstTwo(c.seed, uint64(c.purpose), i+uint64(k), c.j)
	}
}

// firstTwo returns the first words of philox for the counters (0, i, j, 0) and (0, i+1, j, 0). The processor
// works on both at once, and neither the first round nor the last one needs all products.
func firstTwo(k0, k1, i, j uint64) (uint64, uint64) {
	hi, lo := bits.Mul64(multiplier1, j)
	a0, a1, a2, a3 := hi^i^k0, lo, k1, uint64(0)
	b0, b1, b2, b3 := hi^(i+1)^k0, lo, k1, uint64(0)
	for range rounds - 2 {
		k0 += weyl0
		k1 += weyl1
		ah0, al0 := bits.Mul64(multiplier0, a0)
		bh0, bl0 := bits.Mul64(multiplier0, b0)
		ah1, al1 := bits.Mul64(multiplier1, a2)
		bh1, bl1 := bits.Mul64(multiplier1, b2)
		a0, a1, a2, a3 = ah1^a1^k0, al1, ah0^a3^k1, al0
		b0, b1, b2, b3 = bh1^b1^k0, bl1, bh0^b3^k1, bl0
	}
	k0 += weyl0
	ah, _ := bits.Mul64(multiplier1, a2)
	bh, _ := bits.Mul64(multiplier1, b2)
	return ah ^ a1 ^ k0, bh ^ b1 ^ k0
}
