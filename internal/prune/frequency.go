package prune

import (
	"cmp"
	"slices"

	"shaver/internal/model"
)

// Bin is a run of a field's features in the order of how often they occur.
type Bin struct {
	Features int     `json:"features"`
	Least    int64   `json:"least"` // occurrences of the rarest of them
	Most     int64   `json:"most"`  // and of the most frequent
	Kept     int64   `json:"kept"`  // entries
	Mean     float64 `json:"mean"`  // kept entries of a feature
}

// Bins divides each field's features, rarest first, ties by id, into so many bins of
// equal numbers of features (but for one more in some), and counts what mask keeps
// of each: [m][bins]. A field of fewer features has fewer bins. counts are the
// features' occurrences, [n].
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
