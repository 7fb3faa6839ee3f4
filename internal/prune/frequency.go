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
// features, [n]. The result is [m][bins].
func Bins(a *model.Architecture, counts []int64, mask []bool, bins int) [][]Bin {
	if len(counts) != a.Features() || len(mask) != a.Parameters() || bins < 1 {
		panic("prune: Bins: counts or mask have the wrong length, or there are no bins")
	}
	all := make([][]Bin, 0, a.Fields())
	first := 0
	for _, size := range a.FieldDims {
		features := make([]int, size)
		for i := range features {
			features[i] = first + i
		}
		slices.SortFunc(features, func(i, j int) int { return cmp.Or(cmp.Compare(counts[i], counts[j]), cmp.Compare(i, j)) })
		var field []Bin
		for k := range min(bins, size) {
			part := features[k*size/min(bins, size) : (k+1)*size/min(bins, size)]
			b := Bin{Features: len(part), Least: counts[part[0]], Most: counts[part[len(part)-1]]}
			for _, i := range part {
				for _, gone := range mask[i*a.Dim : (i+1)*a.Dim] {
					if !gone {
						b.Kept++
					}
				}
			}
			b.Mean = float64(b.Kept) / float64(b.Features)
			field = append(field, b)
		}
		all = append(all, field)
		first += size
	}
	return all
}
