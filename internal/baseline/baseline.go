// Package baseline computes the values that dropped entries read: 0, or the codebook value
// of the field. It also encodes a baseline for workers.
package baseline

import (
	"fmt"

	"shaver/internal/model"
)

// The names of the baselines.
const (
	Zero     = "zero"     // 0 (Shaver-Zero)
	Codebook = "codebook" // the field's frequency-weighted mean (Shaver-Codebook)
)

// Names returns the names of all baselines.
func Names() []string { return []string{Zero, Codebook} }

// Of returns the named baseline, [m, d], of a table, [n, d]. counts are the occurrences
// of the features, [n]; Zero does not read them. unseen lists the fields none of whose
// features occurs. For these fields the codebook is the unweighted mean.
func Of(name string, a *model.Architecture, table []float32, counts []int64) (values []float32, unseen []int, err error) {
	switch name {
	case Zero:
		return make([]float32, a.Players()), nil, nil
	case Codebook:
		values, unseen = codebook(a, table, counts)
		return values, unseen, nil
	}
	return nil, nil, fmt.Errorf("baseline %q: the baselines are %s and %s", name, Zero, Codebook)
}

// codebook computes C[j,:] = (sum over i of p_i E[i,:]) / (sum over i of p_i) in float64.
// Here i runs over the features of field j, and p_i is the number of occurrences of i.
func codebook(a *model.Architecture, table []float32, counts []int64) (book []float32, unseen []int) {
	if len(counts) != a.Features() {
		panic("baseline: codebook: counts have the wrong length")
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
