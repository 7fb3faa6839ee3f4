// Package prune turns scores into a pruned table: scores -> order -> mask ->
// table. One order serves every budget. It also holds the orders of the rivals, and
// PTQ.
package prune

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"shaver/internal/model"
)

// How scores are ranked.
const (
	Abs    = "abs"    // by |phi|, as every script of the reference does
	Signed = "signed" // by phi, as the paper's text says
)

// Ranks lists the names.
func Ranks() []string { return []string{Abs, Signed} }

// Order returns all entries, least worth first: by score, or by its absolute
// value; ties by |weight|, then by position. So one input has one order. scores
// and weights are [n*d].
func Order(rank string, scores []float64, weights []float32) ([]int32, error) {
	if len(scores) != len(weights) {
		panic("prune: Order: scores and weights differ in length")
	}
	if len(scores) > math.MaxInt32 {
		return nil, fmt.Errorf("the table has %d entries: %d is the most that can be ranked", len(scores), math.MaxInt32)
	}
	worth := func(i int32) float64 { return scores[i] }
	switch rank {
	case Abs:
		worth = func(i int32) float64 { return math.Abs(scores[i]) }
	case Signed:
	default:
		return nil, fmt.Errorf("rank %q: the ranks are %s and %s", rank, Abs, Signed)
	}
	order := make([]int32, len(scores))
	for i := range order {
		order[i] = int32(i)
	}
	size := func(i int32) float64 { return math.Abs(float64(weights[i])) }
	sortBy(order, make([]uint64, len(order)), worth, size)
	return order, nil
}

// sortBy sorts ascending numbers by the first key, then by the others, then by
// themselves. Nearly all of that order is in the first bits of the key, which are
// sorted as integers, each beside its number: that is several times as fast as
// comparing keys. memory is as long as numbers.
func sortBy(numbers []int32, memory []uint64, keys ...func(i int32) float64) {
	if len(keys) == 0 {
		return
	}
	key := keys[0]
	for at, i := range numbers {
		memory[at] = uint64(first(key(i)))<<32 | uint64(i)
	}
	slices.Sort(memory)
	begin := 0
	for at, packed := range memory {
		numbers[at] = int32(uint32(packed))
		if at+1 < len(memory) && memory[at+1]>>32 == packed>>32 {
			continue
		}
		alike := numbers[begin : at+1] // in the first bits, ascending
		if begin = at + 1; len(alike) > 1 {
			sortAlike(alike, memory[at+1-len(alike):at+1], keys)
		}
	}
}

// sortAlike is sortBy for numbers whose first key may be the same in all, as in
// those of the features that no row has.
func sortAlike(numbers []int32, memory []uint64, keys []func(i int32) float64) {
	key := keys[0]
	if !slices.ContainsFunc(numbers, func(i int32) bool { return cmp.Compare(key(i), key(numbers[0])) != 0 }) {
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

// first returns the first 32 bits of a number whose order is that of x: not above
// those of a greater one, NaN before all.
func first(x float64) uint32 {
	b := math.Float64bits(x + 0) // -0 is 0
	switch {
	case x != x:
		return 0
	case b>>63 == 1:
		return ^uint32(b >> 32)
	}
	return uint32(b>>32) | 1<<31
}

// Mask returns which entries are dropped, true = dropped, when the first drop of
// order are.
func Mask(order []int32, drop int) []bool {
	mask := make([]bool, len(order))
	for _, i := range order[:drop] {
		mask[i] = true
	}
	return mask
}

// Apply returns a copy of the model's embedding table in which dropped entries
// read their baseline, [m, d].
func Apply(a *model.Architecture, table []float32, mask []bool, baseline []float32) []float32 {
	pruned := slices.Clone(table)
	i := 0
	for j, size := range a.FieldDims {
		for range size {
			for c := range a.Dim {
				if mask[i] {
					pruned[i] = baseline[j*a.Dim+c]
				}
				i++
			}
		}
	}
	return pruned
}
