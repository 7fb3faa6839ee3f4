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

// Of returns the named baseline, [a.BaselineSize()], of the tables of a, which has a codebook
// for each look-up. Look-ups that read the same rows have the same codebook. counts are the
// occurrences of the features, [n]; Zero does not read them. unseen lists the fields none of
// whose features occurs. For these fields the codebook is the unweighted mean.
func Of(name string, a *model.Architecture, table []float32, counts []int64) (values []float32, unseen []int, err error) {
	switch name {
	case Zero:
		return make([]float32, a.BaselineSize()), nil, nil
	case Codebook:
		values, unseen = codebook(a, table, counts)
		return values, unseen, nil
	}
	return nil, nil, fmt.Errorf("baseline %q: the baselines are %s and %s", name, Zero, Codebook)
}

// codebook computes C[j,:] = (sum over i of p_i E[i,:]) / (sum over i of p_i) in float64.
// Here i runs over the rows that look-up j reads, except pad rows, and p_i is the number of
// occurrences of the features that read row i.
func codebook(a *model.Architecture, table []float32, counts []int64) (book []float32, unseen []int) {
	if len(counts) != a.Features() {
		panic("baseline: codebook: counts have the wrong length")
	}
	book = make([]float32, a.BaselineSize())
	pads := a.PadRows()
	for _, s := range a.Spans() {
		weights := weightsOf(&s, counts)
		total, rows := 0.0, s.Rows
		for _, row := range pads {
			if id := row - s.Row; id >= 0 && id < s.Rows {
				weights[id] = -1
				rows--
			}
		}
		for _, weight := range weights {
			total += max(weight, 0)
		}
		sums := make([]float64, s.Dim)
		for i, weight := range weights {
			switch {
			case weight < 0:
				continue
			case total > 0:
				weight /= total
			default:
				weight = 1 / float64(rows)
			}
			for c := range sums {
				sums[c] += float64(weight * float64(table[s.Entry+i*s.Dim+c]))
			}
		}
		if total == 0 && !slices.Contains(unseen, s.Field) {
			unseen = append(unseen, s.Field)
		}
		for _, r := range s.Readers() {
			for c, sum := range sums {
				book[r.Baseline+c] = float32(sum)
			}
		}
	}
	return book, unseen
}

// weightsOf returns the number of occurrences of the features that read each row of a span.
func weightsOf(s *model.Span, counts []int64) []float64 {
	weights := make([]float64, s.Rows)
	var fields []int
	for _, r := range s.Readers() {
		if slices.Contains(fields, r.Field) {
			continue
		}
		fields = append(fields, r.Field)
		for i, count := range counts[r.Feature : r.Feature+s.Rows] {
			weights[i] += float64(count)
		}
	}
	return weights
}
