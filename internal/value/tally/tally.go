// Package tally turns the contributions of rows into estimates. It adds contributions
// exactly, normalises the sums, computes standard errors, and checks the efficiency
// identity.
//
// A loss is rounded once, to an integer multiple of [LossUnit]. A contribution is the
// difference of two such losses. From there on all sums are sums of integers. They are
// therefore the same for any number of workers, any shard size and any order of arrival,
// and the contributions of a walk telescope exactly.
package tally

import "math"

// LossUnit is the resolution of a loss, 2^-36 nat (1.5e-11). The resolution of a float32
// network is a hundred thousand times coarser.
const LossUnit = 1.0 / (1 << 36)

// SquareUnit is the resolution of the square of a contribution, 2^-44 nat^2 (5.7e-14).
const SquareUnit = 1.0 / (1 << 44)

// MaxLoss is the upper bound of the loss of one row, in nat. A click model whose logit
// reaches a million is broken.
const MaxLoss = 1 << 20

// Loss returns loss, in nat, as a multiple of LossUnit. It returns false if loss is NaN
// or outside [0, MaxLoss].
func Loss(loss float64) (int64, bool) {
	if !(loss >= 0 && loss <= MaxLoss) {
		return 0, false
	}
	return int64(math.RoundToEven(loss * (1 << 36))), true
}

// maxContribution is the upper bound, in LossUnits, of the magnitude of a row's mean
// contribution over its walks. The square of 725 nat overflows int64.
const maxContribution = 724 << 36

// square returns (x*scale)^2 in SquareUnits. x*scale is in LossUnits and at most
// maxContribution in magnitude.
func square(x int64, scale float64) int64 {
	v := float64(float64(x) * scale)
	return int64(float64(float64(v*v)*(LossUnit*LossUnit/SquareUnit)) + .5)
}

// Square returns the square of x, a contribution in LossUnits of a row with a single walk, as a
// Builder adds it, in SquareUnits. It returns false if x is too large.
func Square(x int64) (int64, bool) {
	if x < -maxContribution || x > maxContribution {
		return 0, false
	}
	return square(x, 1), true
}

// Variance converts a variance in squared LossUnits to a multiple of SquareUnit. It
// returns false if the result overflows.
func Variance(v float64) (int64, bool) {
	v = math.RoundToEven(v / (1 << (2*36 - 44)))
	if !(v < 1<<63) {
		return 0, false
	}
	return int64(v), true
}

// add returns a+b and reports whether the sum fits in an int64.
func add(a, b int64) (sum int64, ok bool) {
	sum = a + b
	return sum, (a^sum)&(b^sum) >= 0
}
