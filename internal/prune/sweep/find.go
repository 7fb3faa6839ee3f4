package sweep

import (
	"cmp"
	"context"
	"math"
	"slices"

	"shaver/internal/value/mask"
)

// find first halves the kept entries until that is beyond all bounds several times in a row. Then it halves the range in which a
// bound ends several times, or until the two tables have nearly the same size.
const (
	shrink      = .5
	patience    = 2
	refinements = 5
	alike       = .04
)

// MostFound returns the number of tables of a method that find measures, at most.
func MostFound(bounds int) int {
	return int(math.Ceil(math.Log(leastKept)/math.Log(shrink))) + refinements*bounds
}

// leastKept is the least portion of the entries that find keeps.
const leastKept = 1e-4

// find measures tables of a method that it finds, so that the smallest one that is certain to be within each bound is among the
// points. The rows on which the tables are measured choose the sparsities between one that holds and the next one, which does
// not. This adds little to the probability that a table beyond the bound holds (TestCertain).
func (r *run) find(ctx context.Context, m *ordered) error {
	kept := shrink
	least, most := m.reach()
	for _, b := range r.Budgets { // the points of which are part of the order
		if b.Unit == mask.Sparsity && b.Amount < 1 {
			kept = min(kept, shrink*(1-b.Amount))
		}
	}
	for beyond := 0; beyond < patience && kept >= leastKept; kept *= shrink {
		p, err := r.at(ctx, m, max(least, min(most, roundKept(kept))))
		if err != nil {
			return err
		}
		beyond++
		for _, b := range r.Within {
			if Bound(b).seems(p.Difference) {
				beyond = 0
			}
		}
		if p.Sparsity >= most {
			break
		}
	}
	for _, b := range r.Within {
		for range refinements {
			good, bad := r.ends(m, Bound(b))
			if good-bad < alike*good {
				break
			}
			if _, err := r.at(ctx, m, max(least, min(most, roundKept(math.Sqrt(good*bad))))); err != nil {
				return err
			}
		}
	}
	return nil
}

// of reports whether p is a point of the method.
func (m *ordered) of(p *Point) bool {
	t := &m.template
	return p.Source != nil && *p.Source == *t.Source && p.Method == t.Method && p.Values == t.Values
}

// at returns the point of a method at a sparsity, and measures it unless that is done.
func (r *run) at(ctx context.Context, m *ordered, sparsity float64) (*Point, error) {
	for i := range r.d.Points {
		if p := &r.d.Points[i]; m.of(p) && p.Sparsity == sparsity {
			return p, nil
		}
	}
	if err := r.add(ctx, m, mask.Budget{Unit: mask.Sparsity, Amount: sparsity}); err != nil {
		return nil, err
	}
	p := &r.d.Points[len(r.d.Points)-1]
	p.Found = true
	return p, nil
}

// ends returns the portions that two tables of a method keep: the last one before the first that is not within t, and this one. If
// all are, both are of the last one.
func (r *run) ends(m *ordered, t Bound) (good, bad float64) {
	var points []*Point
	for i := range r.d.Points {
		if p := &r.d.Points[i]; m.of(p) {
			points = append(points, p)
		}
	}
	slices.SortFunc(points, func(a, b *Point) int { return cmp.Compare(a.Sparsity, b.Sparsity) })
	good = 1
	for _, p := range points {
		kept := 1 - p.Sparsity
		if !t.Holds(p.Difference.among(r.orders, r.d.Rows)) {
			return good, kept
		}
		good = kept
	}
	return good, good
}

// roundKept returns the sparsity that keeps a portion of the entries, rounded to three digits.
func roundKept(kept float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(kept))-2)
	return math.Round((1-math.Round(kept/unit)*unit)*1e9) / 1e9
}
