package report

import (
	"cmp"
	"math"
	"slices"

	"shaver/internal/jobs/scores"
	"shaver/internal/num/layout"
	"shaver/internal/prune/picture"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

// findings holds the statistics of the scores that the page shows.
type findings struct {
	sparsities []float64 // ascending
	shown      int       // index of the sparsity that pictures and headings show
	values     []float64 // aggregate of each entry
	order      []int32   // entries in the order in which they are dropped
	summary    *scores.Summary
	fields     []fieldFinding
	bins       [][]mask.Bin // by sparsity: bins of all features together
	fieldBins  [][]mask.Bin // by field: bins at the reference sparsity
	cuts       []cutFinding // by sparsity: how certain the cut is
	gone       [][][]int    // see picture.Gone
}

// fieldFinding describes the entries of a field.
type fieldFinding struct {
	scores.FieldSummary
	kept []int // by sparsity: number of kept entries
}

// cutFinding describes, for one sparsity, how certain it is which entries are kept.
type cutFinding struct {
	kept             int     // number of kept entries
	value            float64 // smallest |value| of the kept entries: the value at the cut
	uncertainKept    int     // number of kept entries whose 95% interval contains the value at the cut
	uncertainDropped int     // number of dropped entries whose 95% interval contains the value at the cut
	unknown          int     // number of entries that occur, but have no interval
	withoutIntervals bool    // there are no intervals, so the last three numbers are 0
}

// ordered returns the entries in the order in which they are dropped.
func (f *Facts) ordered() (order []int32, err error) {
	if f.order == nil {
		if f.order, err = sweep.Order(f.Scores, f.Aggregate, mask.Abs, f.Entries); err != nil {
			return nil, err
		}
		_, f.most = mask.PadsLast(&f.Scores.Layout, f.order)
	}
	return f.order, nil
}

// Dropped says which entries are dropped at the sparsity Shown.
func (f *Facts) Dropped() ([]bool, error) {
	order, err := f.ordered()
	if err != nil {
		return nil, err
	}
	drop, err := f.drops(f.Shown())
	return mask.Of(order, drop), err
}

// drops returns how many entries are dropped at a sparsity. The order must be known.
func (f *Facts) drops(sparsity float64) (int, error) {
	drop, err := layout.Dropped(f.Scores.Layout.Prunable(), sparsity)
	return min(drop, f.most), err
}

const binsShown = 3 // as in the paper's RQ5

// analyse computes the findings. It returns an error if the aggregate is unknown.
func analyse(f *Facts) (*findings, error) {
	s := f.Scores
	order, err := f.ordered()
	if err != nil {
		return nil, err
	}
	values, err := s.Aggregate(f.Aggregate)
	if err != nil {
		return nil, err
	}
	found := &findings{sparsities: f.sparsities(), values: values, order: order, summary: s.Summary(values)}
	found.shown = slices.Index(found.sparsities, f.Shown())
	for _, field := range found.summary.Fields {
		found.fields = append(found.fields, fieldFinding{FieldSummary: field})
	}
	reference, groups := found.reference(), mask.Together(f.Architecture, s.Count, binsShown)
	for k, t := range found.sparsities {
		drop, err := f.drops(t)
		if err != nil {
			return nil, err
		}
		dropped := mask.Of(order, drop)
		countKept(found.fields, s, dropped)
		found.bins = append(found.bins, groups.Bins(dropped))
		if k == reference {
			found.fieldBins = mask.Bins(f.Architecture, s.Count, dropped, binsShown)
		}
		found.cuts = append(found.cuts, f.cut(found, dropped, drop))
	}
	found.gone = f.gone(found)
	return found, nil
}

// gone counts the features that occur by field, by the sparsity at which they lose their last entry, and by the bin of their
// frequency. Those with entries that are never dropped are left out, as in the bins.
func (f *Facts) gone(found *findings) [][][]int {
	s := f.Scores
	ranks := make([]int32, len(found.order))
	for rank, i := range found.order {
		ranks[i] = int32(rank)
	}
	last := make([][]int32, len(s.Layout.FieldDims)) // by field and id, the highest rank
	counts, fixed := make([][]int64, len(last)), s.Layout.FixedRows()
	for _, span := range s.Layout.Spans() {
		if last[span.Field] == nil {
			last[span.Field], counts[span.Field] = make([]int32, span.Rows), make([]int64, span.Rows)
		}
		for id := range span.Rows {
			from := span.Entry + id*span.Dim
			last[span.Field][id] = max(last[span.Field][id], slices.Max(ranks[from:from+span.Dim]))
			counts[span.Field][id] = s.Count[span.Row+id]
			if _, stays := slices.BinarySearch(fixed, span.Row+id); stays {
				last[span.Field][id] = math.MaxInt32
			}
		}
	}
	bins := found.bins[0]
	all := make([][][]int, len(last))
	for j := range last {
		for range picture.GoneBins {
			all[j] = append(all[j], make([]int, len(bins)))
		}
		for id, rank := range last[j] {
			if n := counts[j][id]; n > 0 && rank < math.MaxInt32 {
				sort := slices.IndexFunc(bins, func(b mask.Bin) bool { return n <= b.Most })
				all[j][picture.GoneBin(float64(rank+1)/float64(s.Layout.Prunable()))][sort]++
			}
		}
	}
	return all
}

// sparsities returns the sparsities that the sweep was asked for at which it has points that rank entries by scores, and the one
// that the report recommends, in ascending order. Without such points it returns Sparsities.
func (f *Facts) sparsities() []float64 {
	var all []float64
	if f.Sweep != nil {
		decided := f.Sweep.Decide(f.Within)
		for i := range f.Sweep.Points {
			if p := &f.Sweep.Points[i]; p.Source != nil && p.Method != sweep.SSEDS && (f.Sweep.Listed(p) || p == decided) {
				all = append(all, p.Sparsity)
			}
		}
	}
	if len(all) == 0 {
		return Sparsities
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Shown returns the sparsity that pictures, headings and Ends are about: that of the recommended table if it ranks entries by scores.
func (f *Facts) Shown() float64 {
	all := f.sparsities()
	if f.Sweep != nil {
		if p := f.Sweep.Decide(f.Within); p != nil && slices.Contains(all, p.Sparsity) {
			return p.Sparsity
		}
	}
	return all[len(all)/2]
}

// reference returns the index of the sparsity 0.5, at which the paper examines frequencies.
// If 0.5 is not among the sparsities, reference returns 0, the index of the smallest.
func (f *findings) reference() int { return max(0, slices.Index(f.sparsities, .5)) }

// countKept appends to the kept of each field the number of its entries that mask keeps.
func countKept(fields []fieldFinding, s *scores.File, mask []bool) {
	kept := make([]int, len(fields))
	for _, span := range s.Layout.Spans() {
		from, to := span.Entries()
		for _, gone := range mask[from:to] {
			if !gone {
				kept[span.Field]++
			}
		}
	}
	for j, n := range kept {
		fields[j].kept = append(fields[j].kept, n)
	}
}

// cut computes how certain it is which entries are kept. Standard errors exist only for phi,
// so only the aggregate scores.Sum has intervals.
func (f *Facts) cut(found *findings, mask []bool, drop int) cutFinding {
	s := f.Scores
	c := cutFinding{kept: len(mask) - drop, withoutIntervals: f.Aggregate != scores.Sum}
	if c.kept == 0 {
		c.withoutIntervals = true
		return c
	}
	c.value = math.Abs(found.values[found.order[drop]])
	if c.withoutIntervals {
		return c
	}
	interval := s.Intervals()
	for row, count := range s.Count {
		if count == 0 {
			continue // its values are exactly 0
		}
		t, _ := interval(row)
		from, to := s.Shape.Row(row)
		for i := from; i < to; i++ {
			switch uncertain := math.Abs(math.Abs(s.Phi[i])-c.value) < t*float64(s.SE[i]); {
			case math.IsNaN(t):
				c.unknown++
			case uncertain && mask[i]:
				c.uncertainDropped++
			case uncertain:
				c.uncertainKept++
			}
		}
	}
	return c
}

// cutCurve returns curves over sparsities from 0 to 0.999. The sparsities are evenly spaced in
// the logarithm of the number of kept entries. values are the values at the cut. widths are
// the median half-widths of the 95% intervals of the entries around the cut, or NaN if none
// of these entries has an interval.
func (f *Facts) cutCurve(found *findings) (sparsities, values, widths []float64) {
	const steps, neighbours = 90, 100
	n := len(found.order)
	interval := f.Scores.Intervals()
	last := n + 1
	for step := range steps + 1 {
		kept := int(math.Round(float64(n) * math.Pow(10, -3*float64(step)/steps)))
		if kept < 1 || kept == last {
			continue
		}
		last = kept
		at := n - kept
		var near []float64
		for _, i := range found.order[max(0, at-neighbours):min(n, at+neighbours+1)] {
			if t, _ := interval(f.Scores.Shape.RowOf(int(i))); !math.IsNaN(t) {
				near = append(near, t*float64(f.Scores.SE[i]))
			}
		}
		sparsities = append(sparsities, float64(at)/float64(n))
		values = append(values, math.Abs(found.values[found.order[at]]))
		widths = append(widths, median(near))
	}
	return sparsities, values, widths
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// byWorth returns the indices of the fields, most valuable first. Of fields that are worth the
// same, as all fields of a path, the first is that with the largest kept portion.
func (f *findings) byWorth() []int {
	order := make([]int, len(f.fields))
	for j := range order {
		order[j] = j
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(f.fields[b].SumAbs, f.fields[a].SumAbs), cmp.Compare(f.kept(b), f.kept(a)))
	})
	return order
}

// kept returns the portion of the entries of field j that is kept at the sparsity that is shown.
func (f *findings) kept(j int) float64 {
	return portion(float64(f.fields[j].kept[f.shown]), float64(f.fields[j].Entries))
}
