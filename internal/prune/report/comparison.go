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
	ladder     *sweep.Answer
	certain    map[*sweep.Point]bool // tables that are certain to be within the bound
	calibrated bool                  // losses are calibrated
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
	bounds := []float64{float64(within)}
	if d.Answer != nil {
		for i := range d.Answer.Rungs {
			bounds = append(bounds, d.Answer.Rungs[i].Within)
		}
	}
	c := &comparison{Document: d, within: within, ladder: d.Ladder(bounds...), certain: d.Certain(within.Holds), calibrated: d.Unpruned.CalibratedLoss() != nil}
	var names []string
	point := d.Decide(within)
	shown := map[*sweep.Point]bool{point: true} // tables of the ladder
	for _, r := range c.ladder.Rungs {
		if r.Certain != nil {
			shown[r.Certain.Point] = true
		}
	}
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
			if p := m.Points[k].Point; !m.rounded && (d.Listed(p) || shown[p]) {
				c.consider(m, &m.Points[k])
			}
			if m.Points[k].Point == point {
				c.decided = &budget{m, &m.Points[k]}
			}
		}
	}
	for i, style := range picture.Styles(names) {
		c.methods[i].style = style
	}
	slices.SortFunc(c.budgets, func(a, b budget) int { return cmp.Compare(a.best.Sparsity, b.best.Sparsity) })
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
	if holds := c.certain[p.Point]; holds != c.certain[q.Point] {
		return holds
	}
	if !math.IsNaN(p.AUC.Mean) && !math.IsNaN(q.AUC.Mean) {
		return p.AUC.Mean > q.AUC.Mean
	}
	return c.logLoss(p).Value < c.logLoss(q).Value
}

// auc returns the difference of the AUC of p to that of the unpruned model, or nil if it is undefined.
func (c *comparison) auc(p *sweep.Mean) *sweep.Interval { return p.Difference.JudgedAUC() }

// logLoss returns the difference of the LogLoss or RMSE of p, which is calibrated if the sweep is.
func (c *comparison) logLoss(p *sweep.Mean) *sweep.Interval {
	return cmp.Or(p.Difference.CalibratedLoss(), p.Difference.Loss())
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

// aggregate returns the aggregate by which a point ranks entries, or "".
func (c *comparison) aggregate(p *sweep.Point) string {
	name, _ := c.AggregateOf(p) // which Parse has checked
	return name
}

// purpose says what a method measures and what it needs.
func (c *comparison) purpose(m *method) (measures, needs string) {
	aggregate := c.aggregate(m.Points[0].Point)
	name := strings.TrimSuffix(m.name, "-"+aggregate)
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
