package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"shaver/internal/jobs/scores"
	"shaver/internal/prune/picture"
	"shaver/internal/prune/sweep"
)

// comparison is a sweep in the form in which the page compares methods.
type comparison struct {
	*sweep.Document
	within     sweep.Bound
	certain    [3]map[*sweep.Point]bool // tables that are certain to be within the bound: in all metrics, in AUC, and in the loss
	calibrated bool                     // losses are calibrated
	intervals  bool                     // differences have intervals; documents of older programs have none
	methods    []*method
	budgets    []budget // ascending sparsities
	decided    *budget  // the smallest table within the bound, or nil
}

// method is a method of the sweep.
type method struct {
	sweep.Series
	name    string
	style   int  // number of the style in pictures
	rounded bool // the method rounds entries (PTQ) and drops none
	scored  bool // the method ranks by scores
	model   bool // the points are those of models that were measured as they are
}

// budget is a sparsity with the best result there.
type budget struct {
	by   *method
	best *sweep.Mean
}

// compare returns the comparison of a document.
func compare(d *sweep.Document, within sweep.Bound) *comparison {
	c := &comparison{Document: d, within: within, calibrated: d.Unpruned.CalibratedLoss() != nil}
	var names []string
	for i, holds := range []func(*sweep.Differences) bool{within.Holds, within.HoldsAUC, within.HoldsLoss} {
		c.certain[i] = d.Certain(holds)
	}
	point := d.Decide(within)
	for _, s := range d.Series() {
		first := s.Points[0].Point
		if first.Method == sweep.Nothing && first != point {
			continue
		}
		names = append(names, first.Method)
		m := &method{Series: s, name: first.Method, rounded: strings.HasPrefix(first.Method, "ptq"), scored: first.Source != nil, model: first.Model != nil}
		slices.SortStableFunc(m.Points, func(a, b sweep.Mean) int { return cmp.Compare(a.Sparsity, b.Sparsity) })
		c.methods = append(c.methods, m)
		for k := range m.Points {
			c.intervals = c.intervals || m.Points[k].Difference != nil
			if p := m.Points[k].Point; !m.rounded && (d.Listed(p) || p == point) {
				c.consider(m, &m.Points[k])
			}
		}
	}
	for i, style := range picture.Styles(names) {
		c.methods[i].style = style
	}
	slices.SortFunc(c.budgets, func(a, b budget) int { return cmp.Compare(a.best.Sparsity, b.best.Sparsity) })
	if point != nil {
		for _, m := range c.methods {
			for k := range m.Points {
				if m.Points[k].Point == point {
					c.decided = &budget{m, &m.Points[k]}
				}
			}
		}
	}
	return c
}

// consider makes p the best result at its sparsity if it is better than the best one so far.
func (c *comparison) consider(m *method, p *sweep.Mean) {
	k := slices.IndexFunc(c.budgets, func(b budget) bool { return b.best.Sparsity == p.Sparsity })
	switch {
	case k < 0:
		c.budgets = append(c.budgets, budget{m, p})
	case c.better(p, c.budgets[k].best):
		c.budgets[k] = budget{m, p}
	}
}

// better reports whether p is better than q, a result at the same sparsity. A result within
// the bound is better than one that is not. Otherwise AUC decides, or LogLoss if AUC is
// undefined.
func (c *comparison) better(p, q *sweep.Mean) bool {
	if holds := c.certain[0][p.Point]; holds != c.certain[0][q.Point] {
		return holds
	}
	if !math.IsNaN(p.AUC.Mean) && !math.IsNaN(q.AUC.Mean) {
		return p.AUC.Mean > q.AUC.Mean
	}
	return c.logLoss(p).Value < c.logLoss(q).Value
}

// auc returns the difference of the AUC of p to that of the unpruned model, or nil if it is
// undefined. The interval is missing in documents of older programs.
func (c *comparison) auc(p *sweep.Mean) *sweep.Interval {
	switch {
	case p.Difference != nil:
		return p.Difference.AUC
	case math.IsNaN(p.AUC.Mean) || c.Unpruned.AUC == nil:
		return nil
	}
	return &sweep.Interval{Value: p.AUC.Mean - *c.Unpruned.AUC}
}

// logLoss returns the difference of the LogLoss or RMSE of p, which is calibrated if the sweep is.
func (c *comparison) logLoss(p *sweep.Mean) *sweep.Interval {
	switch d := p.Difference; {
	case d != nil && c.calibrated && d.CalibratedLoss() != nil:
		return d.CalibratedLoss()
	case d != nil:
		return d.Loss()
	case c.calibrated && !math.IsNaN(p.Calibrated.Mean):
		return &sweep.Interval{Value: p.Calibrated.Mean - *c.Unpruned.CalibratedLoss()}
	}
	return &sweep.Interval{Value: p.Loss.Mean - c.Unpruned.Loss()}
}

// aucHolds and lossHolds report whether the interval of a difference is within the bound.
// In documents of older programs, which have no intervals, they judge the difference.
func (c *comparison) aucHolds(p *sweep.Mean) bool {
	if p.Difference != nil {
		return c.certain[1][p.Point]
	}
	auc := c.auc(p)
	return auc == nil || auc.Value >= -float64(c.within)
}

func (c *comparison) lossHolds(p *sweep.Mean) bool {
	if p.Difference != nil {
		return c.certain[2][p.Point]
	}
	return c.logLoss(p).Value <= float64(c.within)
}

// rankings returns the number of methods that drop entries.
func (c *comparison) rankings() int {
	n := 0
	for _, m := range c.methods {
		if !m.rounded && !m.model {
			n++
		}
	}
	return n
}

// models returns the number of series of models that were measured as they are.
func (c *comparison) models() int {
	n := 0
	for _, m := range c.methods {
		if m.model {
			n++
		}
	}
	return n
}

// at returns the result of the method at a sparsity, or nil.
func (m *method) at(sparsity float64) *sweep.Mean {
	for k := range m.Points {
		if m.Points[k].Sparsity == sparsity {
			return &m.Points[k]
		}
	}
	return nil
}

// free reports whether the method ranks without scores and may replace a ranking by scores.
func (m *method) free() bool {
	return !m.scored && !m.rounded && !m.model && m.name != sweep.Random
}

// low and high return the ends of an interval. If the ends are unknown, they return its
// value.
func low(i *sweep.Interval) float64 {
	if i.Low == nil {
		return i.Value
	}
	return *i.Low
}

func high(i *sweep.Interval) float64 {
	if i.High == nil {
		return i.Value
	}
	return *i.High
}

// game returns the name of the method without its aggregate, and the aggregate. The aggregate
// is empty if the method does not rank entries by an aggregate of their scores.
func (m *method) game() (name, aggregate string) {
	if !m.scored || m.name == sweep.SSEDS || m.name == sweep.SNIP {
		return m.name, ""
	}
	if m.name == scores.ByPath {
		return m.name, scores.ByPath
	}
	for _, a := range []string{scores.Abs, scores.RMS} {
		if name, ok := strings.CutSuffix(m.name, "-"+a); ok {
			return name, a
		}
	}
	return m.name, scores.Sum
}

// purpose says what a method measures and what it needs.
func (m *method) purpose() (measures, needs string) {
	name, aggregate := m.game()
	switch {
	case m.model:
		return "Nothing. These are models with tables and heads of their own.", "the files of the models"
	case name == sweep.SSEDS:
		return "The sum of the mean contributions of a field's column. Whole columns are dropped.", "a job with one gradient per row"
	case name == sweep.SNIP:
		return "The mean contribution of an entry in the model before its training.", "that model, and a job with one gradient per row"
	case name == scores.ByPath:
		return "How much the loss rises if an entry goes next, measured again while entries are dropped. It is not a Shapley value.", "a job that measures a table that becomes smaller"
	case m.scored:
		measures = map[string]string{
			scores.Sum: "The mean contribution of an entry. Contributions of opposite signs cancel.",
			scores.Abs: "The mean size of an entry's contributions, whatever their signs.",
			scores.RMS: "The root mean square of an entry's contributions. Rows where it matters most count most.",
		}[aggregate]
		if name == sweep.ByShapley {
			return measures, "a job that scores rows"
		}
		return measures, "a job with one gradient per row"
	case name == sweep.Frequency:
		return "|weight − baseline| · √occurrences.", "only the dataset"
	case name == sweep.Magnitude:
		return "|weight|.", "only the model"
	case name == sweep.Random:
		return "Nothing. A ranking must beat this.", "nothing"
	}
	return "", ""
}

// holds returns the largest sparsity at which ok holds for a method, or NaN.
func (c *comparison) holds(ok func(*sweep.Mean) bool) float64 {
	last := math.NaN()
	for _, b := range c.budgets {
		for _, m := range c.methods {
			if p := m.at(b.best.Sparsity); p != nil && !m.rounded && ok(p) {
				last = b.best.Sparsity
			}
		}
	}
	return last
}
