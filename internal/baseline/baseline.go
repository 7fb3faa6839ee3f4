// Package baseline computes the values that dropped entries read: 0, or the codebook value
// of the field. It also encodes a baseline for workers.
package baseline

import (
	"fmt"
	"slices"

	"shaver/internal/model"
)

// The names of the baselines.
const (
	Zero     = "zero"     // 0 (Shaver-Zero)
	Codebook = "codebook" // the field's frequency-weighted mean (Shaver-Codebook)
)

// Names returns the names of all baselines.
func Names() []string { return []string{Zero, Codebook} }

// Of returns the named baseline, [D], of the tables of a, which has a codebook for each
// look-up. counts are the occurrences of the features, [n]; Zero does not read them. unseen
// lists the fields none of whose features occurs. For these fields the codebook is the
// unweighted mean.
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
// Here i runs over the features of the field that look-up j reads, and p_i is the number of
// occurrences of i.
func codebook(a *model.Architecture, table []float32, counts []int64) (book []float32, unseen []int) {
	if len(counts) != a.Features() {
		panic("baseline: codebook: counts have the wrong length")
	}
	book = make([]float32, a.Players())
	for _, s := range a.Spans() {
		sums, total := make([]float64, s.Dim), 0.0
		counts := counts[s.Feature : s.Feature+s.Rows]
		for _, count := range counts {
			total += float64(count)
		}
		for i, count := range counts {
			weight := float64(count) / total
			if total == 0 {
				weight = 1 / float64(s.Rows)
			}
			for c := range sums {
				sums[c] += float64(weight * float64(table[s.Entry+i*s.Dim+c]))
			}
		}
		if total == 0 && !slices.Contains(unseen, s.Field) {
			unseen = append(unseen, s.Field)
		}
		for c, sum := range sums {
			book[s.Player+c] = float32(sum)
		}
	}
	return book, unseen
}
