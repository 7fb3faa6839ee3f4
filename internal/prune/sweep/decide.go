package sweep

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"shaver/internal/click/compact"
	"shaver/internal/num/loss"
)

// Bound is how much worse than the unpruned table a table may be: its AUC, or with groups its GAUC, that much lower, and its LogLoss, or RMSE with the squared
// loss, that much higher.
type Bound float64

// DefaultBound is that of a report. Papers about click models commonly call a
// difference of this size significant.
const DefaultBound Bound = .001

// Holds reports whether differences are within the bound: whether the whole 95% intervals are. The loss is the calibrated one if there
// is one, because calibration is free. It returns false if d or an interval is nil.
func (t Bound) Holds(d *Differences) bool {
	loss := d.judgedLoss()
	return loss != nil && loss.High != nil && *loss.High <= float64(t) && (d.RMSE != nil || d.JudgedAUC() != nil && d.JudgedAUC().Low != nil && *d.JudgedAUC().Low >= -float64(t))
}

// judgedLoss returns the difference of the loss that is judged, the calibrated one if there is one, or nil.
func (d *Differences) judgedLoss() *Interval {
	if d == nil {
		return nil
	}
	if calibrated := d.CalibratedLoss(); calibrated != nil {
		return calibrated
	}
	return d.Loss()
}

// Decide returns the point of the smallest table that is certain to be within the bound, or nil. It considers only tables
// that have a file. The size of a table is the number of bits of its parameters, so that it does not depend on the positions
// of the kept entries, or if InBytes the bytes that the table takes in its file. Of tables with equal sizes, Decide chooses the
// one with the highest AUC, or with the least RMSE. Repeats count as one point, the first of them, and their combined intervals
// must be within the bound.
//
// The tables of an order are judged one after another, from the one that keeps most entries on, and the first one that is not within
// the bound ends the order. Their number needs no wider intervals: the probability that any table which Decide returns is
// worse than the bound is that of the first such table of an order. Intervals are wider for the number of orders
// (Mean.Along), because Decide chooses among them.
func (d *Document) Decide(t Bound) *Point {
	best, _ := d.smallest(t.Holds, true)
	return best
}

// smallest returns the point with the smallest table that holds, and its mean, or nil. With ends, the first table of an order
// that does not hold ends the order.
func (d *Document) smallest(holds func(*Differences) bool, ends bool) (best *Point, mean *Mean) {
	stored := d.InBytes()
	for _, o := range orders(d.Series()) {
		for _, m := range o {
			p := m.Point
			if !holds(m.Along) {
				if ends {
					break
				}
				continue
			}
			if p.Method == Nothing && d.Settings != nil && (d.Settings.FieldMinimum > 0 || d.Settings.Protect != nil) {
				continue // keeping nothing keeps nothing that is protected
			}
			if best == nil || p.size(stored) < best.size(stored) || p.size(stored) == best.size(stored) && p.better(best) {
				best, mean = p, m
			}
		}
	}
	return best, mean
}

// Certain returns the points of the tables for which holds returns true, and so for all larger tables of their order. Its intervals are
// those of Decide.
func (d *Document) Certain(holds func(*Differences) bool) map[*Point]bool {
	all := map[*Point]bool{}
	for _, o := range orders(d.Series()) {
		for _, m := range o {
			if !holds(m.Along) {
				break
			}
			all[m.Point] = true
		}
	}
	return all
}

// orders returns the tables of each series that have a file, from the one that keeps most parameters to the one that keeps least. The table that keeps nothing is the
// last one of each series with its baseline, or an order of its own.
func orders(series []Series) (all [][]*Mean) {
	var floors []*Mean
	for i := range series {
		var order []*Mean
		for k := range series[i].Points {
			switch m := &series[i].Points[k]; {
			case m.Point.Bytes == nil:
			case m.Point.Method == Nothing:
				floors = append(floors, m)
			default:
				order = append(order, m)
			}
		}
		if order != nil {
			slices.SortStableFunc(order, func(a, b *Mean) int { return cmp.Compare(b.Point.Parameters, a.Point.Parameters) })
			all = append(all, order)
		}
	}
	for _, f := range floors {
		alone := true
		for i, o := range all {
			if p := o[0].Point; p.Method != Nothing && p.Model == nil && p.Baseline == f.Point.Baseline {
				all[i], alone = append(o, f), false
			}
		}
		if alone {
			all = append(all, []*Mean{f})
		}
	}
	return all
}

// better reports whether p has a higher AUC than q, or with the squared loss a lower RMSE.
func (p *Point) better(q *Point) bool {
	if p.RMSE != nil {
		return *p.RMSE < *q.RMSE
	}
	return *p.JudgedAUC() > *q.JudgedAUC()
}

// BelowFloor returns a warning that says at how many sparsities, and at which least one, each order is clearly worse than keeping nothing, or "". The 95% intervals
// of the AUC, or with the squared loss of the RMSE, do not overlap, and the loss, calibrated if it is known, is not better either.
func (d *Document) BelowFloor() string {
	all := d.Series()
	var below []string
	for _, s := range all {
		least, worse := math.Inf(1), 0
		for _, f := range all {
			for i := range s.Points {
				p, q := &s.Points[i], &f.Points[0]
				if q.Point.Method == Nothing && p.Point.Model == nil && p.Point.Baseline == q.Point.Baseline && p.Judged.worse(q.Judged) {
					least = min(least, p.Sparsity)
					worse++
				}
			}
		}
		if worse > 0 {
			below = append(below, s.Label+" at sparsity "+SparsityText(least))
		}
		if worse > 1 {
			below[len(below)-1] += fmt.Sprintf(" and %d more", worse-1)
		}
	}
	are := "is"
	switch len(below) {
	case 0:
		return ""
	case 1:
	default:
		are = "are"
	}
	return strings.Join(below, ", ") + " " + are + " worse than keeping nothing: drop fewer entries, or take another method"
}

// worse reports whether d are clearly worse differences than those of another table.
func (d *Differences) worse(than *Differences) bool {
	if d == nil || than == nil || d.Loss() == nil || than.Loss() == nil {
		return false
	}
	mine, theirs := d.Loss(), than.Loss()
	if a, b := d.CalibratedLoss(), than.CalibratedLoss(); a != nil && b != nil {
		mine, theirs = a, b
	}
	auc, other := d.JudgedAUC(), than.JudgedAUC()
	if auc == nil || other == nil {
		return mine.Low != nil && theirs.High != nil && *mine.Low > *theirs.High
	}
	return auc.High != nil && other.Low != nil && *auc.High < *other.Low && mine.Value >= theirs.Value
}

// LossName returns the name of the loss that Decide judges, as in a sentence.
func (d *Document) LossName() string {
	name := "LogLoss"
	if d.Loss == loss.Squared {
		name = "RMSE"
	}
	if d.Unpruned.CalibratedLoss() != nil {
		name = "calibrated " + name
	}
	return name
}

// size returns the number of bits of the parameters, or with stored the bytes of the table.
func (p *Point) size(stored bool) int64 {
	if stored {
		return *p.TableBytes
	}
	return int64(p.Parameters) * int64(p.Bits)
}

// InBytes reports whether the sizes of tables are compared in bytes of the file, because the entries
// of some table have different numbers of bits. Otherwise they are compared in parameters.
func (d *Document) InBytes() bool {
	stored := true
	for i := range d.Points {
		stored = stored && (d.Points[i].Bytes == nil || d.Points[i].TableBytes != nil)
	}
	return stored && slices.ContainsFunc(d.Points, func(p Point) bool { return p.Values == string(compact.Mixed) && p.Bytes != nil })
}
