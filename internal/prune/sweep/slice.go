package sweep

import (
	"cmp"
	"context"
	"math"
	"slices"

	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/num/loss"
)

const (
	rareBelow    = 100 // occurrences below which the slice of a field takes a feature
	mostFields   = 8   // number of fields that have a slice
	leastInSlice = 100 // rows of the smallest slice
)

// bands holds the least number of occurrences of the rarest feature, for each slice of rows by
// this feature.
var bands = []int64{0, 1, 10, 100, 1000}

// Slicer assigns the rows of a split to slices, by how often their features occur in the rows
// of train and val. A row is in one slice for its rarest feature: no occurrence, 1 to 9,
// 10 to 99, 100 to 999, or more. It is also in the slice of each field in which its feature,
// or the rarest of a list, occurs fewer than 100 times. Pads do not count. Of the fields, the
// 8 with the most occurrences of such features have a slice. If rows are those of several tasks, each task has a slice, too. A Slicer
// takes 4 bytes per row.
type Slicer struct {
	Loss    loss.Kind // set before the first call of Add
	counts  []int64
	ids     []ids // by field
	slices  []Slice
	fields  []int    // by slice: the field, or -1 for the rarest feature; the slices of tasks come after these
	members []uint32 // by row: bit k is 1 if the row is in slice k
}

// ids says where a field's ids are in a row.
type ids struct {
	from, to int
	pad      int32 // global id of the field's pad, or -1
}

// NewSlicer returns a slicer without rows. names are the names of the fields, and counts the
// numbers of occurrences of the features, [n], or nil if they are not known. tasks are those of the rows; fewer than two have no slices. NewSlicer
// returns nil if there are no slices.
func NewSlicer(a *model.Architecture, names []string, counts []int64, tasks []model.Task) *Slicer {
	s := &Slicer{counts: counts}
	if counts != nil {
		s.addOccurrences(a, names)
	}
	for _, t := range tasks {
		if len(tasks) > 1 {
			s.slices = append(s.slices, Slice{Task: t.Label})
		}
	}
	if s.slices == nil {
		return nil
	}
	return s
}

// addOccurrences adds the slices by how often features occur.
func (s *Slicer) addOccurrences(a *model.Architecture, names []string) {
	for i, least := range bands {
		band := Slice{Least: least}
		if i+1 < len(bands) {
			most := bands[i+1] - 1
			band.Most = &most
		}
		s.slices, s.fields = append(s.slices, band), append(s.fields, -1)
	}
	rare := make([]int64, a.Fields()) // occurrences of rare features
	var order []int
	first, at, lengths := 0, 0, a.Lengths()
	for j, size := range a.FieldDims {
		s.ids = append(s.ids, ids{at, at + lengths[j], -1})
		at += lengths[j]
		for _, l := range a.Lists {
			if l.Field == j && l.Pad >= 0 {
				s.ids[j].pad = int32(first + l.Pad)
			}
		}
		for id, count := range s.counts[first : first+size] {
			if count < rareBelow && int32(first+id) != s.ids[j].pad {
				rare[j] += count
			}
		}
		first += size
		order = append(order, j)
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(rare[j], rare[i]) })
	for _, j := range order[:min(mostFields, len(order))] {
		most := int64(rareBelow - 1)
		s.slices, s.fields = append(s.slices, Slice{Field: names[j], Most: &most}), append(s.fields, j)
	}
}

// Of adds the rows of a source, whose loss is kind, and returns s. It does nothing if s is nil.
func (s *Slicer) Of(ctx context.Context, kind loss.Kind, source model.RowSource) (*Slicer, error) {
	if s == nil {
		return nil, nil
	}
	s.Loss = kind
	return s, source(ctx, func(rows *model.Rows) error { s.Add(rows); return nil })
}

// Add adds rows, which must come in the order of the predictions.
func (s *Slicer) Add(rows *model.Rows) {
	for r := range rows.Len() {
		features := rows.Row(r)
		rarest := int64(math.MaxInt64)
		for j := range s.ids {
			rarest = min(rarest, s.rarest(features, j))
		}
		var member uint32
		selector := rows.DenseRow(r)[rows.Inputs-(len(s.slices)-len(s.fields)):] // which of the tasks
		for k := range s.slices {
			count := rarest
			if k < len(s.fields) && s.fields[k] >= 0 {
				count = s.rarest(features, s.fields[k])
			}
			of := &s.slices[k]
			if of.Task != "" && selector[k-len(s.fields)] == 1 || of.Task == "" && count >= of.Least && (of.Most == nil || count <= *of.Most) {
				member |= 1 << k
				of.Rows++
				if s.Loss != loss.Squared {
					if of.Positives == nil {
						of.Positives = new(int64)
					}
					*of.Positives += int64(rows.Label[r])
				}
			}
		}
		s.members = append(s.members, member)
	}
}

// rarest returns the least number of occurrences of a row's features in field j. It is
// math.MaxInt64 if all of them are pads.
func (s *Slicer) rarest(features []int32, j int) int64 {
	least := int64(math.MaxInt64)
	for _, f := range features[s.ids[j].from:s.ids[j].to] {
		if f != s.ids[j].pad {
			least = min(least, s.counts[f])
		}
	}
	return least
}

// shown returns the indices of the slices that are worth measuring. They are those of tasks, or have enough rows
// and both labels unless the loss is squared, and not nearly all rows of the split.
func (s *Slicer) shown() (all []int) {
	for k := range s.slices {
		of := &s.slices[k]
		mixed := s.Loss == loss.Squared || of.Positives != nil && *of.Positives > 0 && *of.Positives < of.Rows
		if of.Task != "" || of.Rows >= leastInSlice && mixed && 20*of.Rows <= 19*int64(len(s.members)) {
			all = append(all, k)
		}
	}
	return all
}

// predictions returns the predictions of p for the rows of slice k.
func (s *Slicer) predictions(p *evaluate.Predictions, k int) *evaluate.Predictions {
	part := &evaluate.Predictions{Logits: make([]float64, 0, s.slices[k].Rows), Labels: make([]float32, 0, s.slices[k].Rows), Loss: p.Loss}
	groups := map[int32]int32{} // numbers of those that have rows of the slice
	for i, member := range s.members {
		if member>>k&1 == 0 {
			continue
		}
		part.Logits, part.Labels = append(part.Logits, p.Logits[i]), append(part.Labels, p.Labels[i])
		if p.Weights != nil {
			part.Weights = append(part.Weights, p.Weights[i])
		}
		if p.Groups != nil {
			g, ok := groups[p.Groups[i]]
			switch {
			case p.Groups[i] < 0:
				g = -1
			case !ok:
				g = int32(len(groups))
				groups[p.Groups[i]] = g
			}
			part.Groups = append(part.Groups, g)
		}
	}
	if !slices.ContainsFunc(part.Weights, func(w int32) bool { return w != part.Weights[0] }) {
		part.Weights = nil // as in the slice of a task
	}
	return part
}
