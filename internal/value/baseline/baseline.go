// Package baseline computes the values that dropped entries read: 0, or the codebook value
// of the field. It also encodes a baseline for workers.
package baseline

import (
	"fmt"
	"slices"

	"shaver/internal/click/model"
)

// The names of the baselines.
const (
	Zero     = "zero"     // 0 (Shaver-Zero)
	Codebook = "codebook" // the field's frequency-weighted mean (Shaver-Codebook)
	Words    = "words"    // the mean of its cluster; see Finder
	// Marginal is for games of fields only: what another row of the dataset has.
	Marginal = "marginal"
)

// Names returns the names of the baselines of entries.
func Names() []string { return []string{Zero, Codebook, Words} }

// Help lists the baselines of entries, for the help text of a flag.
func Help() string {
	return Zero + ", " + Codebook + " (the mean of its field and column) or " + Words + " (that of its cluster)"
}

// Of returns the named baseline of the tables of a, which has a codebook
// for each look-up. Look-ups that read the same rows have the same codebook. counts are the
// occurrences of the features, [n]; Zero does not read them. unseen lists the fields none of
// whose features occurs. For these fields the codebook is the unweighted mean.
func Of(name string, a *model.Architecture, table []float32, counts []int64) (b model.Baseline, unseen []int, err error) {
	switch name {
	case Zero:
		return a.Zero(), nil, nil
	case Codebook:
		b.Values, unseen = codebook(a, table, counts)
		return b, unseen, nil
	}
	return b, nil, fmt.Errorf("baseline %q: the baselines are %s and %s", name, Zero, Codebook)
}

// codebook computes C[j,:] = (sum over i of p_i E[i,:]) / (sum over i of p_i) in float64.
// Here i runs over the rows that look-up j reads, except pad rows, and p_i is the number of
// occurrences of the features that read row i.
func codebook(a *model.Architecture, table []float32, counts []int64) (book []float32, unseen []int) {
	book = make([]float32, a.BaselineSize())
	rows, pads := a.RowCounts(counts), a.FixedRows()
	for _, s := range a.Spans() {
		total, others := 0.0, 0 // others is the number of rows that are no pad rows
		for row := s.Row; row < s.Row+s.Rows; row++ {
			if _, pad := slices.BinarySearch(pads, row); !pad {
				total += float64(rows[row])
				others++
			}
		}
		sums := make([]float64, s.Dim)
		for i := range s.Rows {
			if _, pad := slices.BinarySearch(pads, s.Row+i); pad {
				continue
			}
			weight := float64(rows[s.Row+i]) / total
			if total == 0 {
				weight = 1 / float64(others)
			}
			for c := range sums {
				sums[c] += float64(weight * float64(table[s.Entry+i*s.Dim+c]))
			}
		}
		if total == 0 && others > 0 && !slices.Contains(unseen, s.Field) {
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
