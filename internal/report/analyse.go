package report

import (
	"cmp"
	"math"
	"slices"

	"shaver/internal/model"
	"shaver/internal/prune"
	"shaver/internal/scores"
	"shaver/internal/sparsity"
	"shaver/internal/sweep"
)

// findings is what the scores say of themselves.
type findings struct {
	sparsities []float64 // ascending
	values     []float64 // of the aggregate, [n, d]
	order      []int32   // entries, least worth first
	summary    *scores.Summary
	fields     []fieldFinding
	bins       [][]prune.Bin // of all features, by sparsity
	fieldBins  [][]prune.Bin // of each field, at the reference sparsity
	cuts       []cutFinding  // by sparsity
}

// fieldFinding is about the entries of a field.
type fieldFinding struct {
	scores.FieldSummary
	kept []int // entries, by sparsity
}

// cutFinding is how sure the division at a sparsity is.
type cutFinding struct {
	kept             int
	value            float64 // |value| of the least that is kept
	unsureKept       int     // kept entries whose 95% interval reaches the cut
	unsureDropped    int
	unknown          int // entries that occur, but in too few rows for an interval
	withoutIntervals bool
}

const binsShown = 3 // as in the paper's RQ5

func analyse(f *Facts) (*findings, error) {
	s := f.Scores
	order, err := sweep.Order(s, f.Aggregate, prune.Abs, f.Entries)
	if err != nil {
		return nil, err
	}
	values, err := s.Aggregate(f.Aggregate)
	if err != nil {
		return nil, err
	}
	found := &findings{sparsities: f.sparsities(), values: values, order: order, summary: s.Summary(values)}
	for _, field := range found.summary.Fields {
		found.fields = append(found.fields, fieldFinding{FieldSummary: field})
	}
	reference := found.reference()
	one := &model.Architecture{FieldDims: []int{len(s.Count)}, Dim: s.Dim}
	for k, t := range found.sparsities {
		drop, err := sparsity.Dropped(len(order), t)
		if err != nil {
			return nil, err
		}
		mask := prune.Mask(order, drop)
		countKept(found.fields, s, mask)
		found.bins = append(found.bins, prune.Bins(one, s.Count, mask, binsShown)[0])
		if k == reference {
			found.fieldBins = prune.Bins(f.Architecture, s.Count, mask, binsShown)
		}
		found.cuts = append(found.cuts, f.cut(found, mask, drop))
	}
	return found, nil
}

// sparsities returns those at which the sweep ranked by scores, of the table's
// entries, or Sparsities.
func (f *Facts) sparsities() []float64 {
	var all []float64
	if f.Sweep != nil {
		for _, p := range f.Sweep.Points {
			if p.Source != nil {
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

// reference returns the index of the sparsity .5, at which the paper looks at
// frequencies, or of the least.
func (f *findings) reference() int { return max(0, slices.Index(f.sparsities, .5)) }

// countKept appends to each field how many of its entries mask keeps.
func countKept(fields []fieldFinding, s *scores.File, mask []bool) {
	i := 0
	for j, size := range s.FieldDims {
		kept := 0
		for range size * s.Dim {
			if !mask[i] {
				kept++
			}
			i++
		}
		fields[j].kept = append(fields[j].kept, kept)
	}
}

// cut says how sure it is which entries are kept. Standard errors are those of phi,
// so that only the aggregate sum has intervals.
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
	interval := f.intervals()
	for i, v := range s.Phi {
		count := s.Count[i/s.Dim]
		if count == 0 {
			continue // it is worth 0, and that is sure
		}
		t := interval(count)
		switch unsure := math.Abs(math.Abs(v)-c.value) < t*float64(s.SE[i]); {
		case math.IsNaN(t):
			c.unknown++
		case unsure && mask[i]:
			c.unsureDropped++
		case unsure:
			c.unsureKept++
		}
	}
	return c
}

// intervals returns scores.File.Interval for the dataset's own values, computed once
// a count.
func (f *Facts) intervals() func(count int64) float64 {
	known := map[int64]float64{}
	return func(count int64) float64 {
		t, ok := known[count]
		if !ok {
			t, _ = f.Scores.Interval(count)
			known[count] = t
		}
		return t
	}
}

// cutCurve returns, at sparsities from 0 to .999 that are evenly spaced by the logarithm
// of what is kept, the value at the cut, and the median half width of the 95%
// intervals of the entries about it; NaN if there is none.
func (f *Facts) cutCurve(found *findings) (sparsities, values, widths []float64) {
	const steps, neighbours = 90, 100
	n := len(found.order)
	interval := f.intervals()
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
			if width := interval(f.Scores.Count[int(i)/f.Scores.Dim]) * float64(f.Scores.SE[i]); !math.IsNaN(width) {
				near = append(near, width)
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

// byWorth returns the fields' positions, most valuable first.
func (f *findings) byWorth() []int {
	order := make([]int, len(f.fields))
	for j := range order {
		order[j] = j
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(f.fields[b].SumAbs, f.fields[a].SumAbs) })
	return order
}
