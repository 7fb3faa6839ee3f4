package evaluate

import "gonum.org/v1/gonum/stat/distuv"

// Wider returns the factor by which 95% intervals of Student's t must be wider so that n of them all
// contain their values in at least 95% of samples, however the values depend on each other (Bonferroni).
func Wider(n int, degrees float64) float64 {
	t := distuv.StudentsT{Sigma: 1, Nu: min(max(degrees, 1), 1e6)}
	return t.Quantile(1-.025/float64(max(n, 1))) / t.Quantile(.975)
}

// RateInterval returns the interval of Clopper and Pearson (Biometrika, 1934) of a rate that positives of
// rows rows, at least 1, show. All of n such intervals contain their rates in at least 95% of samples.
func RateInterval(positives, rows int64, n int) (low, high float64) {
	k, others, tail := float64(positives), float64(rows-positives), .025/float64(max(n, 1))
	if high = 1; others > 0 {
		high = distuv.Beta{Alpha: k + 1, Beta: others}.Quantile(1 - tail)
	}
	if k > 0 {
		low = distuv.Beta{Alpha: k, Beta: others + 1}.Quantile(tail)
	}
	return low, high
}
