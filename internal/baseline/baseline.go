// Package baseline computes what stands in for a dropped entry: 0, or the field's
// codebook value. It also has the form in which workers receive a baseline.
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

// Of returns the named baseline of a table, [m, d], and the fields that never occur
// in counts, whose codebook entry is the plain mean instead of 0/0.
// counts are the features' occurrences, [n]; zero needs none.
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

// codebook computes C[j,:] = sum over the features i of field j of p_i E[i,:] /
// sum of p_i, p_i being i's occurrences, in float64.
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
