package composed

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// ForDivider returns the shape of QR with the divider q.
func ForDivider(features, dim, q int) Shape {
	return Shape{Scheme: QR, Features: features, Dim: dim, Divider: q}
}

// ForRanks returns the shape of TT with the given ranks, which has one more core, and the given
// number of cached features.
func ForRanks(features, dim int, ranks []int, cached int) Shape {
	rows, columns := SuggestedShapes(features, dim, len(ranks)+1)
	return Shape{Scheme: TT, Features: features, Dim: dim, Rows: rows, Columns: columns, Ranks: ranks, Cached: cached}
}

// ForBuckets returns the shape of CERP with tables of b rows.
func ForBuckets(features, dim, b int) Shape {
	return Shape{Scheme: CERP, Features: features, Dim: dim, Buckets: b}
}

// Choose returns the shape of a table of features and dim for a sparsity in (0, 1), of which keep is
// the number of entries that remain. It returns an error if no shape fits.
//
//   - QR has the divider 1/(1-sparsity), rounded, as in the reference's configurations. It may have a
//     few more entries than keep.
//   - TT has three cores and no cache. The ranks are the largest that fit into keep, and the first
//     is equal to the second or larger by one.
//   - CERP has the buckets of the reference's configurations for Criteo, as a portion of the features:
//     29% up to a sparsity of .5, 13% from .8 on, and linearly between them. Below .5 the portion
//     grows with what remains. The tables always start with more than keep entries.
func Choose(scheme Scheme, features, dim int, sparsity float64, keep int) (Shape, error) {
	switch scheme {
	case QR:
		return ForDivider(features, dim, int(min(math.Round(1/(1-sparsity)), float64(features)))), nil
	case TT:
		return chooseRanks(features, dim, keep)
	case CERP:
		s := ForBuckets(features, dim, max(1, int(math.Round(bucketShare(sparsity)*float64(features)))))
		s.Buckets = min(s.Buckets, features)
		for s.Entries() <= keep && s.Buckets < features {
			s.Buckets++
		}
		return s, nil
	}
	return Shape{}, fmt.Errorf("scheme is %q, expected %s, %s or %s", scheme, QR, TT, CERP)
}

func chooseRanks(features, dim, keep int) (Shape, error) {
	s := ForRanks(features, dim, []int{1, 1}, 0)
	if n := s.Entries(); n > keep {
		return s, fmt.Errorf("a tensor train with ranks of 1 has %d entries, expected at most %d", n, keep)
	}
	fits := func(sum int) bool { // of both ranks
		s.Ranks = []int{sum - sum/2, sum / 2}
		return s.Validate() == nil && s.Entries() <= keep
	}
	low, high := 2, 4
	for fits(high) {
		low, high = high, 2*high
	}
	for high-low > 1 {
		if middle := (low + high) / 2; fits(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	fits(low)
	return s, nil
}

// bucketShare returns the rows of each of CERP's tables for a sparsity, as a portion of the features.
func bucketShare(sparsity float64) float64 {
	const half, most = 320000. / 1086810, 140000. / 1086810
	switch {
	case sparsity < .5:
		return half * 2 * (1 - sparsity)
	case sparsity < .8:
		return half + (sparsity-.5)/.3*(most-half)
	}
	return most
}

// SuggestedShapes returns the rows and the columns of the cores of a tensor train of a table of
// features and dim, as suggested_tt_shapes of TT-Rec does. The rows are the factors of the number of
// features, rounded up to a power of 10, that have the greatest entropy.
func SuggestedShapes(features, dim, cores int) (rows, columns []int) {
	best := -1.
	for power := 1; ; power *= 10 {
		n := quotient(features, power) * power
		if f := factors(n, cores); entropy(f) > best {
			best, rows = entropy(f), f
		}
		if features/power < 10 {
			break
		}
	}
	return interleave(rows), interleave(factors(dim, cores))
}

// factors returns the k ascending factors of n with the greatest entropy.
func factors(n, k int) (best []int) {
	var divisors []int
	for a := 1; a*a <= n; a++ {
		if n%a == 0 {
			divisors = append(divisors, a)
			if a*a < n {
				divisors = append(divisors, n/a)
			}
		}
	}
	slices.Sort(divisors)
	chosen, most := make([]int, 0, k), -1.
	var choose func(rest, from int)
	choose = func(rest, from int) {
		left := k - len(chosen)
		if left == 1 {
			if all := append(chosen, rest); entropy(all) > most {
				most, best = entropy(all), slices.Clone(all)
			}
			return
		}
		for i := from; i < len(divisors) && math.Pow(float64(divisors[i]), float64(left)) <= float64(rest)*(1+1e-9); i++ {
			if rest%divisors[i] == 0 {
				chosen = append(chosen, divisors[i])
				choose(rest/divisors[i], i)
				chosen = chosen[:len(chosen)-1]
			}
		}
	}
	choose(n, 0)
	return best
}

// entropy returns the entropy of numbers, divided by their sum.
func entropy(numbers []int) (h float64) {
	sum := 0
	for _, x := range numbers {
		sum += x
	}
	for _, x := range numbers {
		p := float64(x) / float64(sum)
		h -= p * math.Log(p)
	}
	return h
}

// interleave returns ascending numbers as taken in turn from their lower and their upper half.
func interleave(sorted []int) (all []int) {
	lower, upper := sorted[:len(sorted)/2], sorted[len(sorted)/2:]
	for i := range upper {
		if i < len(lower) {
			all = append(all, lower[i])
		}
		all = append(all, upper[i])
	}
	return all
}

// MostFrequent returns the n features with the greatest counts, ascending. Of equal counts, the
// smaller features come first.
func MostFrequent(counts []int64, n int) []int32 {
	order := make([]int32, len(counts))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	order = order[:n]
	slices.Sort(order)
	return order
}
