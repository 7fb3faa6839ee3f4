// Package random gives every random number an address: a seed, a purpose and two indices.
// The number at an address is always the same. It does not depend on who draws it, in
// which order, on which machine, or at which attempt.
//
// The generator is Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1,
// 2, 3", SC 2011), a keyed bijection of a counter.
package random

import (
	"math"
	"math/bits"
)

// Purpose separates different uses of the same seed.
type Purpose uint64

// The purposes. Their numbers are part of every job's identity, so never reuse one.
// Number 7 is not in use.
const (
	Order      Purpose = 1  // order in which a row's players are dropped; indices: row, pass
	Sample     Purpose = 2  // which rows of a dataset are scored; indices: row, generation of paired jobs (0 = not paired)
	Split      Purpose = 3  // split of an imported row; index: row
	Quickstart Purpose = 4  // the planted model and its rows; indices: chosen by the quickstart
	Coalition  Purpose = 5  // which of a row's players are present in a draw; indices: row, pair of draws
	Portion    Purpose = 6  // round in which a job that may stop early scores a row in its first pass; index: row
	Synthetic  Purpose = 8  // raw click logs that follow a planted law; indices: row, kind of stream
	Floor      Purpose = 9  // scores of entries about which nothing is known; indices: 0, 0
	Flip       Purpose = 10 // which players of a row are flipped in a draw; indices: row, pair of draws
	Initial    Purpose = 11 // weights with which a training starts; index: number of the tensor
	Dropout    Purpose = 12 // which units are kept; indices: row, epoch times the number of layers plus the layer
	Shuffle    Purpose = 13 // order of the rows of an epoch; index: epoch
	Search     Purpose = 14 // settings of a trial; index: trial
	Width      Purpose = 15 // number of columns of each field that a training step reads; indices: row, epoch
	Evolution  Purpose = 16 // candidates of a search of widths; index: candidate
	Part       Purpose = 17 // part of the rows with which a block of rows begins in a path; index: block
	Background Purpose = 18 // row that gives the values of absent fields; index: row
	Words      Purpose = 19 // rows with which clusters begin; indices: span, number of words
)

// Stream is the sequence of random numbers at one address. It is small, and cheap enough
// to make for every row. Only one goroutine may use it at a time.
type Stream struct {
	key     [2]uint64
	counter [4]uint64
	block   [4]uint64
	used    int
}

// At returns the stream at the given address.
func At(seed uint64, purpose Purpose, i, j uint64) Stream {
	return Stream{key: [2]uint64{seed, uint64(purpose)}, counter: [4]uint64{0, i, j, 0}, used: 4}
}

// Uint64 returns the next 64 random bits.
func (s *Stream) Uint64() uint64 {
	if s.used == 4 {
		s.block = philox(s.counter, s.key)
		s.counter[0]++
		s.used = 0
	}
	s.used++
	return s.block[s.used-1]
}

// Below returns a uniform integer in [0, n), without bias (Lemire's method). It panics if
// n is 0.
func (s *Stream) Below(n uint64) uint64 {
	if n == 0 {
		panic("random: Below(0)")
	}
	hi, lo := bits.Mul64(s.Uint64(), n)
	if lo < n {
		for threshold := -n % n; lo < threshold; {
			hi, lo = bits.Mul64(s.Uint64(), n)
		}
	}
	return hi
}

// Float64 returns a uniform multiple of 2^-53 in [0, 1).
func (s *Stream) Float64() float64 { return float64(s.Uint64()>>11) / (1 << 53) }

// Normal returns a standard normal number (Box-Muller).
func (s *Stream) Normal() float64 {
	radius := math.Sqrt(-2 * math.Log(1-s.Float64()))
	return radius * math.Cos(2*math.Pi*s.Float64())
}

// Permute fills order with a uniform random order of 0, 1, ..., len(order)-1.
func (s *Stream) Permute(order []int32) {
	for i := range order {
		j := int(s.Below(uint64(i + 1)))
		order[i] = order[j]
		order[j] = int32(i)
	}
}

// Coins sets each of the first n bits to 1 with probability exactly q/2^64. Bit i is bit
// i%64 of word i/64. The rest of the last word is arbitrary.
//
// Coins compares 64 random numbers with q at once, bit by bit from the highest. It stops
// when all 64 comparisons are decided, which takes about 8 calls of Uint64.
func (s *Stream) Coins(words []uint64, n int, q uint64) {
	for w := range words[:(n+63)/64] {
		ones, open := uint64(0), ^uint64(0)
		for rest := q; rest != 0 && open != 0; rest <<= 1 {
			bits := s.Uint64()
			if rest>>63 == 1 {
				ones |= open &^ bits
				open &= bits
			} else {
				open &^= bits
			}
		}
		words[w] = ones
	}
}

// The constants of Philox4x64.
const (
	rounds                   = 10
	multiplier0, multiplier1 = 0xD2E7470EE14C6C93, 0xCA5A826395121157
	weyl0, weyl1             = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
)

// philox is Philox4x64 with 10 rounds.
func philox(c [4]uint64, k [2]uint64) [4]uint64 {
	for range rounds {
		hi0, lo0 := bits.Mul64(multiplier0, c[0])
		hi1, lo1 := bits.Mul64(multiplier1, c[2])
		c = [4]uint64{hi1 ^ c[1] ^ k[0], lo1, hi0 ^ c[3] ^ k[1], lo0}
		k[0] += weyl0
		k[1] += weyl1
	}
	return c
}
