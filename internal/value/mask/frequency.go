package mask

import (
	"maps"
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
	return groupsOf(a, counts, bins, false).count(mask)
}

// AllBins is like Bins, but sorts the features of all fields together.
func AllBins(a *model.Architecture, counts []int64, mask []bool, bins int) []Bin {
	return Together(a, counts, bins).Bins(mask)
}

// Together divides the features of all fields into bins, as AllBins does, once for several masks.
func Together(a *model.Architecture, counts []int64, bins int) *Groups {
	return groupsOf(a, counts, bins, true)
}

// Bins returns the bins with the entries that mask keeps.
func (g *Groups) Bins(mask []bool) []Bin { return g.count(mask)[0] }

// Groups are the bins of features, without the numbers of kept entries.
type Groups struct {
	a    *model.Architecture
	bins [][]Bin
	of   [][]int32 // by field and id: the bin among all bins, one list after the other; -1 = none
}

// groupsOf divides the features of each field into bins, or of all fields together. See Bins. It counts how often each number of
// occurrences is there, because few numbers differ, and sorts no features.
func groupsOf(a *model.Architecture, counts []int64, bins int, together bool) *Groups {
	g, pads := &Groups{a: a, of: make([][]int32, a.Fields())}, a.FixedRows()
	occur := make([][]int64, a.Fields()) // by field and id
	for _, s := range a.Spans() {        // the occurrences of a feature with several rows are those of the last one
		j := s.Field
		if g.of[j] == nil {
			g.of[j], occur[j] = make([]int32, s.Rows), make([]int64, s.Rows)
		}
		for id := range s.Rows {
			if _, pad := slices.BinarySearch(pads, s.Row+id); pad {
				g.of[j][id] = -1
			}
			occur[j][id] = counts[s.Row+id]
		}
	}
	step, first := 1, int32(0) // fields of a group, and the first bin of the next one
	if together {
		step = len(occur)
	}
	for from := 0; from < len(occur); from += step {
		to := from + step
		n, before := 0, map[int64]int{} // features, and those before the next one with a number of occurrences
		for f := from; f < to; f++ {
			for id, count := range occur[f] {
				if g.of[f][id] >= 0 {
					before[count]++
					n++
				}
			}
		}
		sum := 0
		for _, count := range slices.Sorted(maps.Keys(before)) {
			before[count], sum = sum, sum+before[count]
		}
		var all []Bin
		if n > 0 {
			all = make([]Bin, min(bins, n))
		}
		for f := from; f < to; f++ {
			for id, count := range occur[f] {
				if g.of[f][id] < 0 {
					continue
				}
				at := before[count]
				before[count]++
				k := ((at+1)*len(all) - 1) / n // the last bin that begins at most there: k*n/len(all) <= at
				b := &all[k]
				if b.Features == 0 {
					b.Least, b.Most = count, count
				}
				b.Features, b.Least, b.Most = b.Features+1, min(b.Least, count), max(b.Most, count)
				g.of[f][id] = first + int32(k)
			}
		}
		first += int32(len(all))
		g.bins = append(g.bins, all)
	}
	return g
}

// count returns the bins with the numbers of the entries that mask keeps.
func (g *Groups) count(mask []bool) [][]Bin {
	all := make([][]Bin, len(g.bins))
	var flat []*Bin
	for j := range g.bins {
		all[j] = slices.Clone(g.bins[j])
		for k := range all[j] {
			flat = append(flat, &all[j][k])
		}
	}
	for _, s := range g.a.Spans() {
		for id, bin := range g.of[s.Field] {
			if bin < 0 {
				continue
			}
			for _, gone := range mask[s.Entry+id*s.Dim:][:s.Dim] {
				if !gone {
					flat[bin].Kept++
				}
			}
		}
	}
	for _, b := range flat {
		b.Mean = float64(b.Kept) / float64(b.Features)
	}
	return all
}
