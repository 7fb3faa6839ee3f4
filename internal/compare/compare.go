// Package compare says how far two estimates of the same values agree: in the
// values themselves, in their ranks, and in what pruning by them would keep.
package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"shaver/internal/sparsity"
)

// RelativeRMS returns the root mean square of values - reference relative to that
// of reference: 0 if they are the same, NaN if all of reference is 0. The noise of
// both is in it.
func RelativeRMS(values, reference []float64) float64 {
	same(values, reference)
	size := floats.Norm(reference, 2)
	if size == 0 {
		return math.NaN()
	}
	return floats.Distance(values, reference, 2) / size
}

// RelativeBias is RelativeRMS without the noise: of values and references that were
// estimated twice, independently, such as from two samples. The product of the two
// differences of an entry is, on average, the square of its bias, as the noise of
// one does not know of the other's; and the product of the references is the square
// of the value. Where noise hides a bias, it is 0. noise is what two standard errors of
// the sum of those products would look like: a bias that is not above it may be none.
// Both are NaN if the references do not agree in anything.
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
// magnitudes have the mean of their ranks. It is NaN if all are equal.
func Spearman(a, b []float64) float64 {
	same(a, b)
	return stat.Correlation(ranks(a), ranks(b), nil)
}

// ranks returns the rank of each magnitude.
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

// Overlap returns which portion of what pruning to sparsity at keeps by one estimate
// is kept by the other too. Kept are all but sparsity.Dropped of the entries, those of
// the largest magnitude; of equal ones those that come last, as in pruning; but none
// of value 0, of which nothing is known: if there are fewer others, fewer are kept.
// It is of the larger of the two sets, and 1 if both are empty. NaN sorts nowhere
// and must not occur, and at is in [0, 1].
func Overlap(a, b []float64, at float64) float64 {
	same(a, b)
	drop, err := sparsity.Dropped(len(a), at)
	if err != nil {
		panic("compare: Overlap: " + err.Error())
	}
	keep := len(a) - drop
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

// cut tells what is kept of values that it is asked for in their order.
type cut struct {
	least uint64 // bits of the smallest magnitude that is kept
	skip  int    // of this magnitude, those that come first and are not
}

// newCut finds the keep largest magnitudes, which ascend with their bits as
// integers, 16 of them at a time: it takes four readings and no copy.
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

func same(a, b []float64) {
	if len(a) != len(b) {
		panic(fmt.Sprintf("compare: %d values and %d", len(a), len(b)))
	}
}
