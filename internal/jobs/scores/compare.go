package scores

import (
	"cmp"
	"math"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/job"
	"shaver/internal/value/compare"
)

// Comparison compares the values of two scores files. It covers the entries of the features
// that occur in the rows of both jobs.
type Comparison struct {
	Aggregate string `json:"aggregate"`
	Agreement
	Overlap []OverlapAt      `json:"overlap"`
	Fields  []FieldAgreement `json:"fields"` // fields without common entries are left out
	Differ  []job.Difference `json:"differ"` // settings in which the two jobs differ

	Ordered bool `json:"-"` // one of the files has an order and no values

	all *common
}

// Agreement says how far the values of some entries agree. Figures that are not defined
// are null.
type Agreement struct {
	Entries     int      `json:"entries"`
	RelativeRMS *float64 `json:"relative_rms"` // root mean square of the difference, relative to the second file's; null if that is 0
	Spearman    *float64 `json:"spearman"`     // rank correlation of the magnitudes; null if all are equal
	Shift       *float64 `json:"shift"`        // mean of the difference, relative to the mean magnitude of the second file; null if that is 0
	// Beyond is the portion of Known whose difference exceeds two standard errors; null if
	// Known is 0.
	Beyond *float64 `json:"beyond"`
	Known  int      `json:"known"` // number of entries of features that have intervals in both jobs
}

// FieldAgreement is the Agreement in one field.
type FieldAgreement struct {
	Field string `json:"field"`
	Agreement
}

// OverlapAt is the Agreement of the kept entries at a sparsity.
type OverlapAt struct {
	Sparsity float64 `json:"sparsity"`
	Portion  float64 `json:"portion"` // share of the entries kept by one file that the other keeps too
}

// common holds the values of the entries that are compared, in the order of the tables.
type common struct {
	left, right []float64
	errors      []float64 // standard errors of left - right; NaN if a feature occurs in too few rows for them
	ordered     bool      // one of the files has an order and no values, so only ranks can be compared
}

func (c *common) append(o *common) {
	c.left, c.right, c.errors = append(c.left, o.left...), append(c.right, o.right...), append(c.errors, o.errors...)
}

// part returns the entries [from, to).
func (c *common) part(from, to int) *common {
	return &common{c.left[from:to:to], c.right[from:to:to], c.errors[from:to:to], c.ordered}
}

func (c *common) agreement() Agreement {
	a := Agreement{
		Entries: len(c.left), RelativeRMS: Figure(compare.RelativeRMS(c.left, c.right)),
		Spearman: Figure(compare.Spearman(c.left, c.right)), Shift: Figure(compare.Shift(c.left, c.right)),
	}
	if c.ordered {
		a.RelativeRMS, a.Shift = nil, nil
		return a
	}
	beyond := 0
	for i, e := range c.errors {
		if math.IsNaN(e) {
			continue
		}
		a.Known++
		if math.Abs(c.left[i]-c.right[i]) > 2*e {
			beyond++
		}
	}
	a.Beyond = Figure(float64(beyond) / float64(a.Known))
	return a
}

// CompareOptions say how to compare two scores files.
type CompareOptions struct {
	Aggregate  string // "" = that of the files
	Sparsities []float64
	// Needs is not empty if both files must have values. It names what needs them, for messages.
	Needs string
}

// Compare compares the scores of two files.
func Compare(fileA, fileB string, o CompareOptions) (*Comparison, error) {
	a, err := Read(fileA)
	if err != nil {
		return nil, err
	}
	b, err := Read(fileB)
	if err != nil {
		return nil, err
	}
	if !a.Layout.SameLayout(&b.Layout) {
		return nil, fault.Inputf("%s has fields of %v features and %s, %s has %v and %s: expected the same tables", fileA, a.Layout.FieldDims, a.Layout.Size(), fileB, b.Layout.FieldDims, b.Layout.Size())
	}
	if o.Needs != "" {
		if err := cmp.Or(a.CheckValues(fileA, o.Needs), b.CheckValues(fileB, o.Needs)); err != nil {
			return nil, err
		}
	}
	aggregate := cmp.Or(o.Aggregate, DefaultAggregate)
	if a.Ranks() && b.Ranks() && o.Aggregate == "" {
		aggregate = ByPath
	}
	all, fields, err := commonOf(a, b, aggregate)
	if err != nil {
		return nil, fault.Usagef("%w", err)
	}
	if len(all.left) == 0 {
		return nil, fault.Inputf("%s and %s: no feature occurs in the rows of both", fileA, fileB)
	}
	r := &Comparison{Ordered: all.ordered, Aggregate: aggregate, Agreement: all.agreement(), Differ: job.Differences(&a.Spec, &b.Spec), all: all}
	for _, t := range o.Sparsities {
		r.Overlap = append(r.Overlap, OverlapAt{t, compare.Overlap(all.left, all.right, len(all.left), t)})
	}
	for j, f := range fields {
		if len(f.left) > 0 {
			r.Fields = append(r.Fields, FieldAgreement{a.Fields[j], f.agreement()})
		}
	}
	return r, nil
}

// Values returns the values of both files that are compared, entry by entry.
func (r *Comparison) Values() (a, b []float64) { return r.all.left, r.all.right }

// commonOf returns the entries of the features that occur in the rows of both files, all
// together and by field.
func commonOf(a, b *File, aggregate string) (all *common, fields []common, err error) {
	var values, errors [2][]float64
	ordered := a.Ranks() || b.Ranks()
	for i, f := range []*File{a, b} {
		if f.Ranks() && a.Ranks() != b.Ranks() { // the aggregate is that of the other file
			values[i], err = f.Aggregate(ByPath)
		} else {
			values[i], err = f.Aggregate(aggregate)
		}
		if err != nil {
			return nil, nil, err
		}
		if f.Ranks() {
			for k := range values[i] {
				values[i][k]++ // compare.Overlap never keeps an entry whose value is 0
			}
		}
		if ordered {
			errors[i] = slices.Repeat([]float64{math.NaN()}, len(values[i]))
		} else if errors[i], err = f.AggregateSE(aggregate); err != nil {
			return nil, nil, err
		}
	}
	all, fields = &common{ordered: ordered}, make([]common, len(a.Fields))
	spans, ofA, ofB := a.Layout.Spans(), a.Intervals(), b.Intervals()
	ends := make([]int, len(spans)+1) // number of entries before each span, and of all
	for k, s := range spans {
		for f := s.Row; f < s.Row+s.Rows; f++ {
			if a.Count[f] == 0 || b.Count[f] == 0 {
				continue
			}
			from, to := a.Shape.Row(f)
			t, _ := ofA(f)
			u, _ := ofB(f)
			all.left, all.right = append(all.left, values[0][from:to]...), append(all.right, values[1][from:to]...)
			for i := from; i < to; i++ {
				e := math.Hypot(errors[0][i], errors[1][i])
				if math.IsNaN(t) || math.IsNaN(u) {
					e = math.NaN()
				}
				all.errors = append(all.errors, e)
			}
		}
		ends[k+1] = len(all.left)
	}
	for k, s := range spans {
		if part, f := all.part(ends[k], ends[k+1]), &fields[s.Field]; len(f.left) == 0 {
			*f = *part // most fields have one span, which needs no copy
		} else {
			f.append(part)
		}
	}
	return all, fields, nil
}
