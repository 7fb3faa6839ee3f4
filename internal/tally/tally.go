// Package tally turns the contributions of rows into estimates: exact sums that
// do not depend on the order in which anything arrives, their normalisation,
// standard errors, and the efficiency check.
//
// A loss is rounded once, to an integer multiple of LossUnit; a contribution is
// a difference of two such losses. From there on everything that is added up is
// an integer, so sums over rows are the same for any number of workers, any
// shard size and any order, and the contributions of a walk telescope exactly.
package tally

import (
	"errors"
	"math"
)

// LossUnit is the resolution of a loss, 2^-36 nat (1.5e-11): a hundred thousand
// times finer than what float32 networks resolve.
const LossUnit = 1.0 / (1 << 36)

// SquareUnit is the resolution of a square of a contribution, 2^-44 (5.7e-14).
const SquareUnit = 1.0 / (1 << 44)

// MaxLoss bounds the loss of one row, in nat. A click model whose logit reaches
// a million is broken.
const MaxLoss = 1 << 20

// ErrOverflow says that the sums of one partial left the range of int64: the
// average over its rows of a loss exceeds 2^27 / rows nat, or the average of a
// square exceeds 2^19 / rows. Fewer rows a shard help; see Partial.Capacity.
var ErrOverflow = errors.New("the losses of so many rows overflow the sums of one shard: put fewer rows in a shard")

// Loss returns loss, in nat, as a multiple of LossUnit. It reports false if loss
// is NaN or outside [0, MaxLoss].
func Loss(loss float64) (int64, bool) {
	if !(loss >= 0 && loss <= MaxLoss) {
		return 0, false
	}
	return int64(math.RoundToEven(loss * (1 << 36))), true
}

// largest is what a row's mean contribution over its walks may reach, in LossUnits:
// the square of 725 nat leaves int64.
const largest = 724 << 36

// square returns the square of x times scale, in LossUnits and at most largest, in
// SquareUnits.
func square(x int64, scale float64) int64 {
	v := float64(float64(x) * scale)
	return int64(float64(float64(v*v)*(LossUnit*LossUnit/SquareUnit)) + .5)
}

// Variance returns a variance in squared LossUnits as a multiple of SquareUnit,
// or false if it overflows.
func Variance(v float64) (int64, bool) {
	v = math.RoundToEven(v / (1 << (2*36 - 44)))
	if !(v < 1<<63) {
		return 0, false
	}
	return int64(v), true
}

// add returns a+b and whether it stayed in range.
func add(a, b int64) (sum int64, ok bool) {
	sum = a + b
	return sum, (a^sum)&(b^sum) >= 0
}
