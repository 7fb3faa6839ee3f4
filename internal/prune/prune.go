// Package prune turns scores into a pruned table: scores -> order -> mask ->
// table. One order serves every budget. It also holds the baselines that stand
// in for dropped entries, the orders of the rivals, and PTQ.
package prune

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"shaver/internal/model"
)

// What a dropped entry reads.
const (
	Zero     = "zero"     // 0 (Shaver-Zero)
	Codebook = "codebook" // the field's frequency-weighted mean (Shaver-Codebook)
)

// Baselines lists the names.
func Baselines() []string { return []string{Zero, Codebook} }

// Baseline returns the named baseline of a table, [m, d], and the fields that
// never occur in counts, whose codebook entry is the plain mean instead of 0/0.
// counts are the features' occurrences, [n]; zero needs none.
func Baseline(name string, a *model.Architecture, table []float32, counts []int64) (baseline []float32, unseen []int, err error) {
	switch name {
	case Zero:
		return make([]float32, a.Players()), nil, nil
	case Codebook:
		baseline, unseen = codebook(a, table, counts)
		return baseline, unseen, nil
	}
	return nil, nil, fmt.Errorf("baseline %q: the baselines are %s and %s", name, Zero, Codebook)
}

// codebook computes C[j,:] = sum over the features i of field j of p_i E[i,:] /
// sum of p_i, p_i being i's occurrences, in float64.
func codebook(a *model.Architecture, table []float32, counts []int64) (book []float32, unseen []int) {
	if len(counts) != a.Features() {
		panic("prune: codebook: counts have the wrong length")
	}
	book = make([]float32, a.Players())
	sums := make([]float64, a.Dim)
	first := 0
	for j, size := range a.FieldDims {
		clear(sums)
		total := 0.0
		for _, count := range counts[first : first+size] {
			total += float64(count)
		}
		for i := first; i < first+size; i++ {
			weight := float64(counts[i]) / total
			if total == 0 {
				weight = 1 / float64(size)
			}
			for c := range sums {
				sums[c] += float64(weight * float64(table[i*a.Dim+c]))
			}
		}
		if total == 0 {
			unseen = append(unseen, j)
		}
		for c, sum := range sums {
			book[j*a.Dim+c] = float32(sum)
		}
		first += size
	}
	return book, unseen
}

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
	slices.SortFunc(order, func(i, j int32) int {
		return cmp.Or(cmp.Compare(worth(i), worth(j)), cmp.Compare(size(i), size(j)), cmp.Compare(i, j))
	})
	return order, nil
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

// Table returns a copy of the model's embedding table in which dropped entries
// read their baseline, [m, d].
func Table(a *model.Architecture, table []float32, mask []bool, baseline []float32) []float32 {
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
