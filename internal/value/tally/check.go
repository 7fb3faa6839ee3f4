package tally

import (
	"errors"

	"shaver/internal/num/vector"
)

// Partial.Check is a sum modulo 2^64 of
//
//   - Rows, Walked, Fresh, Weights and all losses, residuals and shared parts;
//   - for each feature, its weight times (Count + the sum over its columns of column weight *
//     list weight * number, over all lists);
//   - 2^63 for each odd number in High;
//   - weighted words of Fourths.
//
// All weights are odd, so a change of any single number changes it, except one of a number in High by a
// multiple of 2. Weights differ between features, lists and columns, so a number in another place changes it, too. A Builder
// adds up the addends of each row before it adds them to its sums. Check then states whether the
// sums are those of the rows. It cannot find an error in the rows themselves.

// The weight of list l is mix^l.
const mix = vector.Mix

// errCheck means that a partial is not the sum of its rows.
var errCheck = errors.New("partial has sums that are not those that its worker added up row by row: the memory or the processor of the worker may be faulty")

// weightOf returns the weight of a feature.
func weightOf(feature int32) uint64 {
	h := (uint64(feature) + 1) * mix
	return h ^ h>>32 | 1
}

// listWeight returns the weight of list l.
func listWeight(l int) uint64 {
	w := uint64(1)
	for range l {
		w *= mix
	}
	return w
}

// listCheck returns the part of a list in the check of a feature, without its weight.
func listCheck(list []int64) uint64 {
	var c vector.Check
	for _, v := range list {
		c.Add(uint64(v))
	}
	return c.Sum()
}

// correctedCheck is listCheck for the addends of Correction and CorrectedSquare, with the weights 1 and mix.
func correctedCheck(x, z []int64, scale float64) uint64 {
	var c vector.Check
	for i, v := range z {
		c.Add(uint64(v) + mix*uint64(square(x[i]+v, scale)))
	}
	return c.Sum()
}

// pairCheck is listCheck for the addends of all lists of a paired job, with their weights. z and w are the corrections, or nil.
func pairCheck(x, y, z, w []int64, scale float64) uint64 {
	var c vector.Check
	for i, v := range x {
		u := y[i]
		sum, previous, squares := v, u, uint64(0)
		if z != nil {
			sum, previous = v+z[i], u+w[i]
			squares = uint64(square(sum, scale)) + mix*uint64(square(previous, scale))
		}
		size, previousSize := magnitude(v), magnitude(u)
		squares = uint64(square(sum-previous, scale)) + mix*(uint64(square(size-previousSize, scale))+mix*squares)
		squares = uint64(previous) + mix*(uint64(previousSize)+mix*(uint64(square(u, scale))+mix*squares))
		c.Add(uint64(sum) + mix*(uint64(size)+mix*(uint64(square(v, scale))+mix*squares)))
	}
	return c.Sum()
}

// Checksum returns what Check must be, computed from the sums of p.
func (p *Partial) Checksum() uint64 {
	total, odd := uint64(p.Rows+p.Walked+p.Fresh+p.Weights.Sum+p.Weights.Squares), int64(0)
	for _, x := range p.heads() {
		total += uint64(*x)
	}
	if p.High != nil {
		for _, x := range p.High.heads() {
			odd ^= *x
		}
	}
	n, from := Lists(p.Form()), 0
	lists := p.AllLists()
	for i, f := range p.Features {
		first, end := p.Shape.Row(int(f))
		sum, weight, to := uint64(p.Count[i]), uint64(1), from+end-first
		for l, list := range lists {
			if l < n {
				sum += weight * listCheck((*list)[from:to])
				weight *= mix
				continue
			}
			for _, x := range (*list)[from:to] {
				odd ^= x
			}
		}
		total += weightOf(f) * sum
		from = to
	}
	return total + uint64(odd)<<63 + fourthsCheck(p.Fourths)
}

// fourthsCheck is the part of Fourths in the check.
func fourthsCheck(fourths []Powers) uint64 {
	var c vector.Check
	for i := range fourths {
		for _, sum := range fourths[i].all() {
			c.Add(sum.Low + mix*(sum.High+mix*sum.Top))
		}
	}
	return c.Sum()
}
