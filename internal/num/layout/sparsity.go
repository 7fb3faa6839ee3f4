package layout

import (
	"fmt"
	"math/big"
	"strconv"
)

// Dropped returns the number of entries that a sparsity t drops: floor(entries * t). It
// computes the product in decimal, from t as the user typed it. If t was computed as
// float64(drop)/float64(entries), the result is exactly drop.
func Dropped(entries int, t float64) (int, error) {
	if !(t >= 0 && t <= 1) {
		return 0, fmt.Errorf("sparsity %v is outside [0, 1]", t)
	}
	drop, _ := portion(entries, t)
	if float64(drop+1)/float64(entries) == t {
		drop++
	}
	return drop, nil
}

// Ceil returns ceil(n * p). It computes the product in decimal.
func Ceil(n int, p float64) int {
	whole, rest := portion(n, p)
	if rest {
		return whole + 1
	}
	return whole
}

// portion returns floor(n * p), and reports whether n * p is larger than that.
func portion(n int, p float64) (whole int, rest bool) {
	exact, _ := new(big.Rat).SetString(strconv.FormatFloat(p, 'g', -1, 64))
	exact.Mul(exact, new(big.Rat).SetInt64(int64(n)))
	quotient, remainder := new(big.Int).QuoRem(exact.Num(), exact.Denom(), new(big.Int))
	return int(quotient.Int64()), remainder.Sign() > 0
}
