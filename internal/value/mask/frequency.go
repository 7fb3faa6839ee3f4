package mask

import (
	"cmp"
	"slices"

	"shaver/internal/click/model"
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
// feature are those of all its rows. The result is [m][bins]; a field without spans has no
// bins. Features that read pad rows are left out.
func Bins(a *model.Architecture, counts []int64, mask []bool, bins int) [][]Bin {
	all := make([][]Bin, a.Fields())
	for j, features := range keptOf(a, counts, mask) {
		all[j] = binsOf(features, bins)
	}
	return all
}

// AllBins is like Bins, but sorts the features of all fields together.
func AllBins(a *model.Architecture, counts []int64, mask []bool, bins int) []Bin {
	return binsOf(slices.Concat(keptOf(a, counts, mask)...), bins)
}

// keptFeature says how often a feature occurs and how many of its entries are kept.
type keptFeature struct {
	count, kept int64
	pad         bool // whether it reads a pad row
}

// keptOf returns the features of each field in the order of their ids, without those that
// read pad rows. A field without spans has none. See Bins for counts.
func keptOf(a *model.Architecture, counts []int64, mask []bool) [][]keptFeature {
	all, pads := make([][]keptFeature, a.Fields()), a.FixedRows()
	for _, s := range a.Spans() {
		if all[s.Field] == nil {
			all[s.Field] = make([]keptFeature, s.Rows)
		}
		for id := range s.Rows {
			f := &all[s.Field][id]
			f.count = counts[s.Row+id]
			if _, pad := slices.BinarySearch(pads, s.Row+id); pad {
				f.pad = true
			}
			for _, gone := range mask[s.Entry+id*s.Dim:][:s.Dim] {
				if !gone {
					f.kept++
				}
			}
		}
	}
	if len(pads) > 0 {
		for j := range all {
			all[j] = slices.DeleteFunc(all[j], func(f keptFeature) bool { return f.pad })
		}
	}
	return all
}

// binsOf sorts features by occurrences and divides them into bins.
func binsOf(features []keptFeature, bins int) []Bin {
	slices.SortStableFunc(features, func(x, y keptFeature) int { return cmp.Compare(x.count, y.count) })
	var all []Bin
	bins = min(bins, len(features))
	for k := range bins {
		part := features[k*len(features)/bins : (k+1)*len(features)/bins]
		b := Bin{Features: len(part), Least: part[0].count, Most: part[len(part)-1].count}
		for _, f := range part {
			b.Kept += f.kept
		}
		b.Mean = float64(b.Kept) / float64(b.Features)
		all = append(all, b)
	}
	return all
}
