package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"html/template"

	"shaver/internal/base/chart"
	"shaver/internal/prune/picture"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

// curvesSection shows what each method costs at each sparsity.
type curvesSection struct {
	Heading    string
	Note       string
	Figure     chart.Inline
	Rankings   []rankingRow
	At         string       // sparsity of the changes of Rankings
	Loss       string       // name of the loss that is compared
	Base       string       // its name without calibration
	Unit       string       // what follows the name in a heading
	All        chart.Inline // all methods on the whole axes
	Rounded    []roundedRow
	Repeats    bool // some points are the mean of several repeats
	Points     []pointRow
	Calibrated bool
}

// rankingRow says what a method is for.
type rankingRow struct {
	Shape           template.HTML
	Label           string
	Measures, Needs string
	Holds           string // largest sparsity within the bound
	AUC, LogLoss    change
	Best            bool
}

// roundedRow is a result of PTQ.
type roundedRow struct {
	Label        string
	Bits         int
	Saved        string
	AUC, LogLoss change
}

type pointRow struct {
	Label string
	sweep.Mean
}

// curves returns the section.
func (c *comparison) curves(show addPicture) *curvesSection {
	s := &curvesSection{Heading: c.heading(), Loss: c.LossName(), Base: c.lossBase(), Unit: c.lossUnit(), Calibrated: c.calibrated}
	s.Figure, s.Note = c.differences(show)
	s.Rankings, s.At = c.rankingRows()
	s.All = show(picture.Sweep(c.dropping()))
	for _, m := range c.methods {
		for k := range m.Points {
			p := &m.Points[k]
			s.Points = append(s.Points, pointRow{m.Label, *p})
			s.Repeats = s.Repeats || p.AUC.Off > 0 || p.Loss.Off > 0
			if m.rounded {
				s.Rounded = append(s.Rounded, roundedRow{m.Label, p.Point.Bits, percent(p.Sparsity), changeOf(c.auc(p)), changeOf(c.logLoss(p))})
			}
		}
	}
	slices.SortStableFunc(s.Rounded, func(a, b roundedRow) int { return b.Bits - a.Bits })
	return s
}

// heading says up to which sparsity the metrics hold.
func (c *comparison) heading() string {
	names, hold, are := c.AUCName()+" and "+c.lossBase(), "hold", "are"
	if c.Unpruned.RMSE != nil {
		names, hold, are = c.lossBase(), "holds", "is"
	}
	switch {
	case len(c.budgets) == 0:
		return "What rounding costs"
	case c.decided == nil:
		return names + " " + are + " not certain to hold"
	}
	return names + " " + hold + " up to sparsity " + number(c.decided.best.Sparsity)
}

// dropping returns the document without the points of PTQ, unless it has no others.
func (c *comparison) dropping() *sweep.Document {
	d := *c.Document
	d.Points = slices.DeleteFunc(slices.Clone(d.Points), func(p sweep.Point) bool { return strings.HasPrefix(p.Method, "ptq") })
	if len(d.Points) == 0 {
		return c.Document
	}
	return &d
}

// noMethod is the style of what is not pruned by one method.
const noMethod = 7

const zoom = 10 // the zoomed axes show about this many bounds

// differences draws the methods that are within reach of the best one, and returns a note
// on what is not drawn.
func (c *comparison) differences(show addPicture) (chart.Inline, string) {
	var panels []picture.Lines
	var hidden []string
	worst := func(sign, bound float64, of func(*sweep.Mean) *sweep.Interval) float64 {
		reach := zoom * bound
		if first := c.first(); first != nil {
			if i := of(first.best); i != nil {
				reach = max(reach, -1.3*sign*i.Value)
			}
		}
		if reach == 0 {
			reach = .001
		}
		return reach
	}
	aucReach, lossReach := worst(1, float64(c.within), c.auc), worst(-1, float64(c.within), c.logLoss)
	// The axes end at the first sparsity from which on no method is close.
	most := 1.
	for _, b := range slices.Backward(c.budgets) {
		if slices.ContainsFunc(c.methods, func(m *method) bool { return c.nearAt(m, b.best.Sparsity, aucReach, lossReach) }) {
			break
		}
		most = b.best.Sparsity
	}
	// A method is in both panels or in none.
	var shown []*method
	for _, m := range c.methods {
		if m.rounded || c.near(m, most, aucReach, lossReach) {
			shown = append(shown, m)
		} else {
			hidden = append(hidden, m.Label)
		}
	}
	panel := func(name string, sign, bound, reach float64, unpruned string, of func(*sweep.Mean) *sweep.Interval) {
		l := picture.Lines{
			Title: name + ", difference to the unpruned model", About: name + " against sparsity, as the difference to the unpruned model, by ranking",
			Levels: []chart.Rule{{Label: "unpruned " + unpruned}, {At: -sign * bound, Label: "bound"}},
			Under:  c.bytesAt,
		}
		if c.decided != nil {
			l.Answer = c.decided.best.Sparsity
		}
		best := bound / 2 // the largest gain
		for _, m := range shown {
			curve := chart.Series{Label: m.Label, Style: m.style, Alone: m.rounded, Below: sign > 0, Strong: m == c.leader()}
			switch {
			case m.rounded && !c.bestRounded(m):
				continue
			case m.rounded:
				curve.Label = m.Points[0].Point.Values
			}
			c.follow(&curve, m.Points, of, most, curve.Strong)
			for _, y := range curve.Y {
				best = max(best, sign*y)
			}
			l.Curves = append(l.Curves, curve)
		}
		for _, curve := range l.Curves {
			for k := range curve.High {
				best = max(best, min(reach, sign*curve.High[k], reach), min(reach, sign*curve.Low[k]))
			}
		}
		l.Low, l.High = -1.05*reach, 1.15*best
		if sign < 0 {
			l.Low, l.High = -1.15*best, 1.05*reach
		}
		panels = append(panels, l)
	}
	if auc := c.Unpruned.JudgedAUC(); auc != nil {
		panel(c.AUCName(), 1, float64(c.within), aucReach, decimal(*auc), c.auc)
	}
	panel(capital(c.LossName()), -1, float64(c.within), lossReach, decimal(c.loss(&c.Unpruned)), c.logLoss)
	note := "The axes show only what is close to the unpruned model. Lines that leave them go on below"
	if c.Unpruned.AUC != nil {
		note += " (" + c.AUCName() + ") or above (LogLoss)"
	}
	note += "."
	if c.leader() != nil {
		note += " The shaded area is the 95% interval of the wide line. Each sparsity has the size of its table on disk."
	}
	if c.decided != nil {
		note += " The vertical line is the answer."
	}
	if slices.ContainsFunc(c.methods, func(m *method) bool { return m.rounded }) {
		note += " A mark such as int8 is the best rounding (PTQ) to 8 bits, at the sparsity that saves as many bits."
	}
	if len(hidden) > 0 {
		note += " Under \"All methods\" are the rankings that are far from the best: " + list(hidden) + "."
	}
	if most < 1 {
		note += " All methods leave the axes before sparsity " + number(most) + "."
	}
	return show(picture.Differences(panels...)), note
}

// bytesAt returns the size of the leader's table at a sparsity, or "" if that is unknown.
func (c *comparison) bytesAt(sparsity float64) string {
	if m := c.leader(); m != nil {
		if p := m.at(sparsity); p != nil && p.Point.TableBytes != nil {
			return size(p.Point.TableBytes)
		}
	}
	return ""
}

// follow appends the differences of points to a curve.
func (c *comparison) follow(curve *chart.Series, points []sweep.Mean, of func(*sweep.Mean) *sweep.Interval, most float64, banded bool) {
	for k := range points {
		i := of(&points[k])
		if i == nil || points[k].Sparsity > most {
			continue
		}
		curve.X, curve.Y = append(curve.X, points[k].Sparsity), append(curve.Y, i.Value)
		if low, high := &i.Value, &i.Value; banded {
			if i.Low != nil {
				low, high = i.Low, i.High
			}
			curve.Low, curve.High = append(curve.Low, *low), append(curve.High, *high)
		}
	}
}

// leader returns the method that the page recommends, or the one that is best at the first
// sparsity.
func (c *comparison) leader() *method {
	switch {
	case c.decided != nil:
		return c.decided.by
	case c.first() != nil:
		return c.first().by
	}
	return nil
}

// first returns the smallest sparsity at which a method other than a model file is best. If model
// files are best everywhere, it returns the smallest sparsity. It returns nil without any.
func (c *comparison) first() *budget {
	for i := range c.budgets {
		if !c.budgets[i].by.model {
			return &c.budgets[i]
		}
	}
	if len(c.budgets) > 0 {
		return &c.budgets[0]
	}
	return nil
}

// reference returns the sparsity at which the page compares methods.
func (c *comparison) reference() *budget {
	if c.decided != nil {
		return c.decided
	}
	return c.first()
}

// near reports whether a method is close to the best result at half of its sparsities below
// most or more. Close means within what the zoomed axes show. Models, which may be alone at their
// sparsities, are near if one is on these axes.
func (c *comparison) near(m *method, most, aucReach, lossReach float64) bool {
	if m.model {
		return slices.ContainsFunc(m.Points, func(p sweep.Mean) bool { return c.nearAt(m, p.Sparsity, aucReach, lossReach) })
	}
	near, all := 0, 0
	for _, b := range c.budgets {
		if b.best.Sparsity >= most && all > 0 {
			break
		}
		p := m.at(b.best.Sparsity)
		if p == nil {
			continue
		}
		all++
		auc, best := c.auc(p), c.auc(b.best)
		if (auc == nil || best == nil || auc.Value >= best.Value-aucReach) && c.logLoss(p).Value <= c.logLoss(b.best).Value+lossReach {
			near++
		}
	}
	return 2*near >= all
}

// nearAt reports whether a method that drops entries is on the zoomed axes at a sparsity.
func (c *comparison) nearAt(m *method, sparsity, aucReach, lossReach float64) bool {
	p := m.at(sparsity)
	if p == nil || m.rounded {
		return false
	}
	auc := c.auc(p)
	return (auc == nil || auc.Value >= -aucReach) && c.logLoss(p).Value <= lossReach
}

// bestRounded reports whether m has the highest AUC of the PTQ methods with its number of bits.
func (c *comparison) bestRounded(m *method) bool {
	for _, other := range c.methods {
		if !other.rounded || other.Points[0].Point.Bits != m.Points[0].Point.Bits {
			continue
		}
		a, b := other.Points[0].AUC.Mean, m.Points[0].AUC.Mean
		if a > b || a == b && other.style < m.style {
			return false
		}
	}
	return true
}

// rankingRows says what each method is for, and compares them at the reference.
func (c *comparison) rankingRows() (rows []rankingRow, at string) {
	reference := c.reference()
	if reference == nil || len(c.methods) == 1 {
		return nil, ""
	}
	for _, m := range c.methods {
		if m.rounded {
			continue
		}
		row := rankingRow{Shape: chart.Sample(m.style), Label: m.Label, Best: m == reference.by}
		row.Measures, row.Needs = c.purpose(m)
		holds := math.NaN()
		for k := range m.Points {
			if p := &m.Points[k]; c.certain[p.Point] {
				holds = p.Sparsity
			}
		}
		row.Holds = "-"
		if !math.IsNaN(holds) {
			row.Holds = number(holds)
		}
		if p := m.at(reference.best.Sparsity); p != nil {
			row.AUC, row.LogLoss = changeOf(c.auc(p)), changeOf(c.logLoss(p))
		}
		rows = append(rows, row)
	}
	return rows, number(reference.best.Sparsity)
}

// settings returns sentences about the settings that all methods share.
func settings(s *sweep.Settings) string {
	if s == nil {
		return ""
	}
	var text []string
	if s.Rank == mask.Signed {
		text = append(text, "Entries are ranked by their signed scores.")
	}
	if len(s.Protect) > 0 {
		text = append(text, "These fields keep all entries: "+strings.Join(s.Protect, ", ")+".")
	}
	if s.FieldMinimum > 0 {
		text = append(text, fmt.Sprintf("Each field keeps at least %s%% of its entries.", number(100*s.FieldMinimum)))
	}
	return strings.Join(text, " ")
}
