// Package compare measures how well two estimates of the same values agree: in the
// values, in their ranks, and in the entries that pruning would keep.
package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"shaver/internal/num/layout"
)

// RelativeRMS returns the root mean square of values - reference, divided by the root
// mean square of reference. It is 0 if both are equal, and NaN if reference is all 0. The
// result includes the noise of both estimates.
func RelativeRMS(values, reference []float64) float64 {
	checkLengths(values, reference)
	size := floats.Norm(reference, 2)
	if size == 0 {
		return math.NaN()
	}
	return floats.Distance(values, reference, 2) / size
}

// RelativeBias is like RelativeRMS, but excludes noise. It needs two independent
// estimates of both values and reference, for example from two samples.
//
// The noise of independent estimates is independent. Therefore, for each entry, the
// product of the two differences is on average the square of the bias, and the product of
// the two references is on average the square of the value. bias is 0 if noise hides it.
// noise is the bias that would correspond to two standard errors of the sum of products;
// a bias below it is not significant. Both are NaN if the two references do not agree at
// all.
func RelativeBias(values, reference [2][]float64) (bias, noise float64) {
	var sum, squares, size float64
	for i, r := range reference[0] {
		product := float64((values[0][i] - r) * (values[1][i] - reference[1][i]))
		sum += product
		squares += float64(product * product)
		size += float64(r * reference[1][i])
	}
	if size <= 0 {
		return math.NaN(), math.NaN()
	}
	return math.Sqrt(max(0, sum) / size), math.Sqrt(2 * math.Sqrt(squares) / size)
}

// Spearman returns the rank correlation of the magnitudes of two estimates. Equal
// magnitudes share their mean rank. The result is NaN if all magnitudes of an estimate
// are equal.
func Spearman(a, b []float64) float64 {
	checkLengths(a, b)
	return stat.Correlation(ranks(a), ranks(b), nil)
}

// ranks returns the rank of each value's magnitude.
func ranks(values []float64) []float64 {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(math.Abs(values[i]), math.Abs(values[j])) })
	ranks := make([]float64, len(values))
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && math.Abs(values[order[to]]) == math.Abs(values[order[from]]) {
			to++
		}
		for _, i := range order[from:to] {
			ranks[i] = float64(from+to-1) / 2
		}
		from = to
	}
	return ranks
}

// Overlap returns the portion of the entries kept at a sparsity that are the same for
// both estimates. It divides the number of common entries by the size of the larger set,
// and is 1 if both sets are empty.
//
// Pruning keeps all except layout.Dropped of the entries, those with the largest
// magnitudes. Of equal magnitudes it keeps the last. In contrast to pruning, Overlap
// never keeps an entry whose value is 0, because nothing is known about it; a set may
// therefore be smaller. The values must not be NaN, and the sparsity at must be in
// [0, 1]. entries is the number of entries without those that are frozen, whose values are 0.
func Overlap(a, b []float64, entries int, at float64) float64 {
	checkLengths(a, b)
	drop, err := layout.Dropped(entries, at)
	if err != nil {
		panic("compare: Overlap: " + err.Error())
	}
	keep := entries - drop
	fromA, fromB := newCut(a, keep), newCut(b, keep)
	var both, inA, inB int
	for i := range a {
		keptA, keptB := fromA.keeps(a[i]), fromB.keeps(b[i])
		inA += keptA
		inB += keptB
		both += keptA & keptB
	}
	if inA+inB == 0 {
		return 1
	}
	return float64(both) / float64(max(inA, inB))
}

// cut decides which values are kept. It must see the values in their order.
type cut struct {
	least uint64 // bits of the smallest kept magnitude
	skip  int    // number of values of this magnitude that come first and are not kept
}

// newCut finds the keep largest magnitudes. Magnitudes have the same order as their bits,
// read as integers. newCut determines 16 bits at a time, so it reads the values four
// times and needs no copy.
func newCut(values []float64, keep int) *cut {
	if keep == 0 {
		return &cut{least: math.MaxUint64}
	}
	c := &cut{}
	count := make([]int, 1<<16)
	for shift := 48; shift >= 0; shift -= 16 {
		clear(count)
		for _, v := range values {
			if b := math.Float64bits(v) &^ (1 << 63); b>>shift>>16 == c.least>>shift>>16 {
				count[b>>shift&0xffff]++
			}
		}
		digit := len(count) - 1
		for ; count[digit] < keep; digit-- {
			keep -= count[digit]
		}
		c.least |= uint64(digit) << shift
		c.skip = count[digit] - keep
	}
	return c
}

// keeps returns 1 if the next value is kept, else 0.
func (c *cut) keeps(v float64) int {
	b := math.Float64bits(v) &^ (1 << 63)
	switch {
	case b < c.least || b == 0:
		return 0
	case b == c.least && c.skip > 0:
		c.skip--
		return 0
	}
	return 1
}

func checkLengths(a, b []float64) {
	if len(a) != len(b) {
		panic(fmt.Sprintf("compare: estimates have %d and %d values", len(a), len(b)))
	}
}
