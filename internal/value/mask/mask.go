// Package mask turns scores into a pruned table: scores -> order -> mask -> table. One
// order serves every budget. The package also implements the scores of the rival methods
// and post-training quantization (PTQ).
package mask

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"shaver/internal/click/model"
)

// The ranks. A rank is the way in which scores order the entries.
const (
	Abs    = "abs"    // by |phi|, as all scripts of the paper's authors do
	Signed = "signed" // by phi, as the paper's text says
)

// Ranks returns the names of all ranks.
func Ranks() []string { return []string{Abs, Signed} }

// Order returns all entries in the order in which they are dropped. It sorts by score or by
// the absolute value of the score, depending on rank. Ties are broken by |weight| and then
// by position, so the order is unique. scores and weights have one element for each entry.
func Order(rank string, scores []float64, weights []float32) ([]int32, error) {
	if len(scores) != len(weights) {
		panic("prune: Order: scores and weights differ in length")
	}
	worth, err := worthOf(rank, scores)
	if err != nil {
		return nil, err
	}
	return orderBy(weights, worth)
}

// worthOf returns the figure by which a rank sorts entries.
func worthOf(rank string, scores []float64) (worth func(i int32) float64, err error) {
	switch rank {
	case Abs:
		return func(i int32) float64 { return math.Abs(scores[i]) }, nil
	case Signed:
		return func(i int32) float64 { return scores[i] }, nil
	}
	return nil, fmt.Errorf("rank %q: the ranks are %s and %s", rank, Abs, Signed)
}

// orderBy returns all entries, sorted by the keys, then by |weight| and then by position.
func orderBy(weights []float32, keys ...func(i int32) float64) ([]int32, error) {
	if len(weights) > math.MaxInt32 {
		return nil, fmt.Errorf("the table has %d entries, expected at most %d", len(weights), math.MaxInt32)
	}
	order := make([]int32, len(weights))
	for i := range order {
		order[i] = int32(i)
	}
	keys = append(keys, magnitude(weights))
	sortBy(order, make([]uint64, len(order)), keys...)
	return order, nil
}

// magnitude is the key that breaks ties.
func magnitude(weights []float32) func(i int32) float64 {
	return func(i int32) float64 { return math.Abs(float64(weights[i])) }
}

// Sort sorts numbers, which must be ascending, by a key, then by the magnitude of the weight,
// and then by the number itself. weights and key are indexed by number.
func Sort(numbers []int32, weights []float32, key func(i int32) float64) {
	sortBy(numbers, make([]uint64, len(numbers)), key, magnitude(weights))
}

// Lowest returns the first n of the numbers in the order of Sort. n is at most their number. It
// does not change numbers. It takes much less time and memory than Sort if n is a small part.
func Lowest(numbers []int32, n int, weights []float32, key func(i int32) float64) []int32 {
	return lowestBy(numbers, func(int32) bool { return true }, n, key, magnitude(weights))
}

// lowestBy is Lowest for the order of sortBy and the numbers that are in. Besides the result it takes 8 bytes for each number of the result, and
// 4 for each with the rounded key of the last one unless their keys are equal.
func lowestBy(numbers []int32, in func(i int32) bool, n int, keys ...func(i int32) float64) []int32 {
	if len(keys) == 0 {
		lowest := make([]int32, 0, n)
		for at := 0; len(lowest) < n; at++ {
			if in(numbers[at]) {
				lowest = append(lowest, numbers[at])
			}
		}
		return lowest
	}
	if n == 0 {
		return nil
	}
	key := keys[0]
	// Two counts of 16 bits each find the rounded key of the n-th number, and how many of those with
	// this key are among the first n.
	counts, left := make([]int, 1<<16), n
	find := func(of func(bits uint32) int) uint32 {
		clear(counts)
		for _, i := range numbers {
			if !in(i) {
				continue
			}
			if digit := of(rounded(key(i))); digit >= 0 {
				counts[digit]++
			}
		}
		digit := 0
		for left > counts[digit] {
			left -= counts[digit]
			digit++
		}
		return uint32(digit)
	}
	top := find(func(bits uint32) int { return int(bits >> 16) })
	last := top<<16 | find(func(bits uint32) int {
		if bits>>16 != top {
			return -1
		}
		return int(bits & 0xffff)
	})
	tie := func(i int32) bool { return in(i) && rounded(key(i)) == last }
	var lowest []int32
	if n > left {
		lowest = make([]int32, 0, n)
	}
	ties, first, same := 0, 0.0, true
	for _, i := range numbers {
		if !in(i) {
			continue
		}
		switch x := key(i); {
		case rounded(x) < last:
			lowest = append(lowest, i)
		case rounded(x) == last:
			if ties++; ties == 1 {
				first = x
			}
			same = same && cmp.Compare(x, first) == 0
		}
	}
	sortBy(lowest, make([]uint64, len(lowest)), keys...)
	if same {
		return append(lowest, lowestBy(numbers, tie, left, keys[1:]...)...)
	}
	others := make([]int32, 0, ties)
	for _, i := range numbers {
		if tie(i) {
			others = append(others, i)
		}
	}
	sortBy(others, make([]uint64, ties), keys...)
	return append(lowest, others[:left]...)
}

// sortBy sorts numbers, which must be ascending, by the first key, then by the other keys,
// and then by the numbers themselves. memory must be as long as numbers.
//
// The first key, rounded to float32, determines nearly all of the order. sortBy packs it with
// the number into one integer and sorts the integers, which is several times as fast as
// comparing keys.
func sortBy(numbers []int32, memory []uint64, keys ...func(i int32) float64) {
	if len(keys) == 0 {
		return
	}
	key := keys[0]
	for at, i := range numbers {
		memory[at] = uint64(rounded(key(i)))<<32 | uint64(i)
	}
	sortPacked(memory)
	begin := 0
	for at, packed := range memory {
		numbers[at] = int32(uint32(packed))
		if at+1 < len(memory) && memory[at+1]>>32 == packed>>32 {
			continue
		}
		ties := numbers[begin : at+1] // equal after rounding; ascending
		if begin = at + 1; len(ties) > 1 {
			sortTies(ties, memory[at+1-len(ties):at+1], keys)
		}
	}
}

// sortPacked sorts integers whose low 32 bits are ascending. Many of them are distributed by one byte of the high bits after the other,
// which is several times as fast as comparing, and takes as much memory again.
func sortPacked(all []uint64) {
	if len(all) < 1<<14 {
		slices.Sort(all)
		return
	}
	from, to := all, make([]uint64, len(all))
	for shift := 32; shift < 64; shift += 8 {
		var ends [257]int
		for _, x := range from {
			ends[int(byte(x>>shift))+1]++
		}
		for b := range 256 {
			ends[b+1] += ends[b]
		}
		for _, x := range from {
			b := byte(x >> shift)
			to[ends[b]] = x
			ends[b]++
		}
		from, to = to, from
	} // after an even number of passes all is sorted
}

// equal reports whether all numbers have the same key. This is common, because the entries of all
// features that occur in no row have the score 0.
func equal(numbers []int32, key func(i int32) float64) bool {
	return !slices.ContainsFunc(numbers, func(i int32) bool { return cmp.Compare(key(i), key(numbers[0])) != 0 })
}

// sortTies is like sortBy, but faster if the first key of all numbers is the same.
func sortTies(numbers []int32, memory []uint64, keys []func(i int32) float64) {
	if equal(numbers, keys[0]) {
		sortBy(numbers, memory, keys[1:]...)
		return
	}
	slices.SortFunc(numbers, func(i, j int32) int {
		for _, key := range keys {
			if c := cmp.Compare(key(i), key(j)); c != 0 {
				return c
			}
		}
		return cmp.Compare(i, j)
	})
}

// rounded returns an integer that orders like x rounded to float32. For a greater x the result is
// greater or equal. NaN comes before all other numbers.
func rounded(x float64) uint32 {
	b := math.Float32bits(float32(x) + 0) // turns -0 into 0
	switch {
	case x != x:
		return 0
	case b>>31 == 1:
		return ^b
	}
	return b | 1<<31
}

// Of returns the mask, true = dropped, that drops the first drop entries of order.
func Of(order []int32, drop int) []bool {
	mask := make([]bool, len(order))
	for _, i := range order[:drop] {
		mask[i] = true
	}
	return mask
}

// Apply returns a copy of the embedding tables of a, one after another, in which every
// dropped entry is replaced by its baseline.
func Apply(a *model.Architecture, table []float32, mask []bool, baseline model.Baseline) []float32 {
	pruned := slices.Clone(table)
	book := a.Book(baseline)
	for j, s := range book.Spans {
		for i := range s.Rows {
			row := s.Entry + i*s.Dim
			for c, b := range book.Of(j, i) {
				if mask[row+c] {
					pruned[row+c] = b
				}
			}
		}
	}
	return pruned
}
