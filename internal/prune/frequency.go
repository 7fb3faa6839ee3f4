package prune

import (
	"cmp"
	"slices"

	"shaver/internal/model"
)

// Bin is a group of features that occur about equally often.
type Bin struct {
	Features int     `json:"features"` // number of features in the bin
	Least    int64   `json:"least"`    // occurrences of its rarest feature
	Most     int64   `json:"most"`     // occurrences of its most frequent feature
	Kept     int64   `json:"kept"`     // number of kept entries
	Mean     float64 `json:"mean"`     // mean number of kept entries per feature
}

// Bins sorts the features of each field by occurrences, rarest first, and ties by id. It
// divides them into the given number of bins and counts the entries that mask keeps in each
// bin. The numbers of features of a field's bins differ by at most one. A field with fewer
// features than bins has one bin for each feature. counts are the occurrences of the
// features, or, in a model with look-ups, of the rows of the tables. The entries of a
// feature are those of all its rows. The result is [m][bins]; a field that no look-up reads
// has no bins.
func Bins(a *model.Architecture, counts []int64, mask []bool, bins int) [][]Bin {
	spans := make([][]model.Span, a.Fields()) // by field
	for _, s := range a.Spans() {
		spans[s.Field] = append(spans[s.Field], s)
	}
	all := make([][]Bin, len(spans))
	for j, spans := range spans {
		if len(spans) == 0 {
			continue
		}
		all[j] = binsOf(counts[spans[0].Row:][:spans[0].Rows], bins, func(id int) (kept int64) {
			for _, s := range spans {
				kept += keptIn(mask[s.Entry+id*s.Dim:][:s.Dim])
			}
			return kept
		})
	}
	return all
}

// AllBins is like Bins, but sorts the features of all fields, or the rows of all tables,
// together.
func AllBins(a *model.Architecture, counts []int64, mask []bool, bins int) []Bin {
	shape := a.Shape()
	return binsOf(counts, bins, func(row int) int64 {
		from, to := shape.Row(row)
		return keptIn(mask[from:to])
	})
}

// binsOf divides the features with the given counts into bins. kept returns the number of
// kept entries of a feature.
func binsOf(counts []int64, bins int, kept func(feature int) int64) []Bin {
	features := make([]int, len(counts))
	for i := range features {
		features[i] = i
	}
	slices.SortFunc(features, func(i, j int) int { return cmp.Or(cmp.Compare(counts[i], counts[j]), cmp.Compare(i, j)) })
	var all []Bin
	bins = min(bins, len(features))
	for k := range bins {
		part := features[k*len(features)/bins : (k+1)*len(features)/bins]
		b := Bin{Features: len(part), Least: counts[part[0]], Most: counts[part[len(part)-1]]}
		for _, i := range part {
			b.Kept += kept(i)
		}
		b.Mean = float64(b.Kept) / float64(b.Features)
		all = append(all, b)
	}
	return all
}

func keptIn(mask []bool) (kept int64) {
	for _, gone := range mask {
		if !gone {
			kept++
		}
	}
	return kept
}
