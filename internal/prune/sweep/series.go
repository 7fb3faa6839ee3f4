package sweep

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"shaver/internal/num/loss"
)

// Series is the result of one method at all budgets. Points that differ only in the seed of
// their scores, or of the training of their models, are repeats, which a series combines into one Mean.
type Series struct {
	Label  string
	Points []Mean
}

// Mean combines the repeats of a series at one budget. The sparsities and parameters of models
// that are repeats may differ, and are then means.
type Mean struct {
	Sparsity      float64
	Parameters    int
	EmptyFeatures float64
	AUC           Spread // JudgedAUC; NaN if it is undefined
	Loss          Spread // LogLoss or RMSE
	Calibrated    Spread // calibrated Loss; NaN without calibration
	// Difference compares the tables with the unpruned one. Each interval has the mean of the
	// repeats and contains all their intervals. It is nil in documents of older programs.
	Difference *Differences
	// Judged is Difference with intervals that hold for all points of the document at once (Interval.Among). Along is
	// Difference with intervals that hold for one table of each order at once; see Decide.
	Judged, Along *Differences
	Point         *Point // the first repeat
	first         int    // index of Point in Document.Points
}

// Spread is the mean of repeats. Off is the largest distance of a repeat from the mean.
type Spread struct{ Mean, Off float64 }

// SpreadOf returns the spread of the values of repeats. Without any, its mean is NaN.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{Mean: math.NaN()}
	}
	s := Spread{}
	for _, v := range values {
		s.Mean += v / float64(len(values))
	}
	for _, v := range values {
		s.Off = max(s.Off, math.Abs(v-s.Mean))
	}
	return s
}

// String returns the mean with four decimals, and Off if it is not 0.
func (s Spread) String() string {
	switch {
	case math.IsNaN(s.Mean):
		return "-"
	case s.Off == 0:
		return fmt.Sprintf("%.4f", s.Mean)
	}
	return fmt.Sprintf("%.4f±%.4f", s.Mean, s.Off)
}

// Series returns the series of the document in the order of their first points.
func (d *Document) Series() []Series {
	type place struct {
		label      string
		sparsity   float64
		parameters int
		recipe     recipe // of a model, which then has no sparsity and no parameters here
	}
	var order []string
	groups := map[string][]*[]int{} // by label: for each place, indices of its points
	at := map[place]*[]int{}
	type key struct { // the properties that determine the label
		method, baseline, values string
		source, model            int
	}
	labels := map[key]string{}
	for i := range d.Points {
		p := &d.Points[i]
		k := key{p.Method, p.Baseline, p.Values, -1, -1}
		if p.Source != nil {
			k.source = *p.Source
		}
		if p.Model != nil {
			k.model = *p.Model
		}
		label, ok := labels[k]
		if !ok {
			label = d.Label(p)
			labels[k] = label
		}
		if groups[label] == nil {
			order = append(order, label)
		}
		here := place{label, p.Sparsity, p.Parameters, recipe{}}
		if p.Model != nil {
			here = place{label: label, recipe: d.recipe(p)}
		}
		if at[here] == nil {
			at[here] = &[]int{}
			groups[label] = append(groups[label], at[here])
		}
		*at[here] = append(*at[here], i)
	}
	var all []Series
	for _, label := range order {
		s := Series{Label: label}
		for _, points := range groups[label] {
			s.Points = append(s.Points, d.mean(*points))
		}
		all = append(all, s)
	}
	n := len(orders(all))
	for i := range all {
		for k := range all[i].Points {
			if m := &all[i].Points[k]; m.Difference != nil {
				m.Judged, m.Along = m.Difference.among(len(at), d.Rows), m.Difference.among(n, d.Rows)
			}
		}
	}
	return all
}

// mean combines the points with the given indices.
func (d *Document) mean(points []int) Mean {
	column := func(value func(*Point) *float64) Spread {
		var values []float64
		for _, i := range points {
			v := value(&d.Points[i])
			if v == nil {
				return Spread{Mean: math.NaN()}
			}
			values = append(values, *v)
		}
		return SpreadOf(values)
	}
	first := &d.Points[points[0]]
	m := Mean{Sparsity: first.Sparsity, Parameters: first.Parameters, Point: first, first: points[0]}
	for _, i := range points {
		m.EmptyFeatures += float64(d.Points[i].EmptyFeatures) / float64(len(points))
	}
	if slices.ContainsFunc(points, func(i int) bool { return d.Points[i].Parameters != first.Parameters }) {
		m.Sparsity = column(func(p *Point) *float64 { return &p.Sparsity }).Mean
		m.Parameters = int(math.Round(column(func(p *Point) *float64 { return new(float64(p.Parameters)) }).Mean))
	}
	m.AUC = column(func(p *Point) *float64 { return p.JudgedAUC() })
	m.Loss = column(func(p *Point) *float64 { value := p.Loss(); return &value })
	m.Calibrated = column(func(p *Point) *float64 { return p.CalibratedLoss() })
	m.Difference = d.difference(points)
	return m
}

// difference combines the differences of the points with the given indices. It returns nil
// if one of them has none.
func (d *Document) difference(points []int) *Differences {
	for _, i := range points {
		if d.Points[i].Difference == nil {
			return nil
		}
	}
	combined := func(of func(*Differences) *Interval) *Interval {
		var all Interval
		for k, i := range points {
			one := of(d.Points[i].Difference)
			if one == nil {
				return nil
			}
			all.Value += one.Value / float64(len(points))
			if k == 0 {
				all.Low, all.High = one.Low, one.High
			}
			if all.Low == nil || one.Low == nil {
				all.Low, all.High = nil, nil
				continue
			}
			if *one.Low < *all.Low {
				all.Low = one.Low
			}
			if *one.High > *all.High {
				all.High = one.High
			}
		}
		return &all
	}
	all := newDifferences(d.Loss, combined(func(d *Differences) *Interval { return d.AUC }), combined((*Differences).Loss), combined((*Differences).CalibratedLoss))
	all.GAUC = combined(func(d *Differences) *Interval { return d.GAUC })
	return all
}

// Label returns the method of a point, with the properties in which points of this method
// differ in the document. These are the baseline, the number format of kept entries, and
// all properties of the scores except their seed. A model has its file instead, if its method
// does not distinguish it.
func (d *Document) Label(p *Point) string {
	parts := []string{p.Method}
	differ := func(of func(*Point) string) bool {
		for i := range d.Points {
			if q := &d.Points[i]; q.Method == p.Method && of(q) != of(p) {
				return true
			}
		}
		return false
	}
	if p.Model != nil {
		switch file := d.fileLabel(p); {
		case file != "" && p.Method == OfFile:
			return file
		case file != "":
			return p.Method + ", " + file
		}
	}
	if p.Source != nil { // then all points of the method have a source
		mine := d.Sources[*p.Source].phrases()
		for i, text := range mine {
			other := func(q *Point) string { return d.Sources[*q.Source].phrases()[i] }
			if text != "" && differ(other) {
				parts = append(parts, text)
			}
		}
	}
	for _, of := range []func(*Point) string{func(q *Point) string { return q.Baseline }, func(q *Point) string { return q.Values }} {
		if differ(of) {
			parts = append(parts, of(p))
		}
	}
	return strings.Join(parts, ", ")
}

// phrases returns the properties of a scores file that may be part of a label. A phrase has
// the same index for all files. It is empty if the estimator does not take the setting.
func (s *ScoresFile) phrases() []string {
	var all []string
	for _, setting := range s.Settings() {
		all = append(all, setting.Phrase)
	}
	return append(all, strings.Join(s.Splits, " and "), fmt.Sprintf("%g of the rows", s.Sample))
}

// String returns the difference and its ends with four decimals, and Mark if it differs. It
// returns a dash if i is nil.
func (i *Interval) String() string {
	if i == nil {
		return "-"
	}
	text := fmt.Sprintf("%+.4f", i.Value)
	if i.Low != nil {
		text += fmt.Sprintf(" [%+.4f, %+.4f]", *i.Low, *i.High)
	}
	return text + i.mark()
}

// Mark marks differences whose interval does not contain 0.
const Mark = " *"

func (i *Interval) mark() string {
	if i.Differs() {
		return Mark
	}
	return ""
}

// Listed reports whether tables and pages list a point: not if Run found its budget and others are named.
func (d *Document) Listed(p *Point) bool {
	return !p.Found || !slices.ContainsFunc(d.Points, func(p Point) bool { return !p.Found && p.Method != Nothing })
}

// SparsityText returns a sparsity as tables print it.
func SparsityText(sparsity float64) string { return fmt.Sprintf("%.6g", sparsity) }

// WriteTable writes the document as a table whose columns are separated by tabs. It fits 80 columns,
// so it has one loss, the calibrated one if there is one. The marked
// numbers differ from those of the unpruned table. The last lines are the ladder.
func (d *Document) WriteTable(w io.Writer) {
	calibrated, compared := false, false
	for i := range d.Points {
		calibrated = calibrated || d.Points[i].Calibration != nil
		compared = compared || d.Points[i].Difference != nil
	}
	name, of := d.AUCName(), func(m *Mean) Spread { return m.AUC }
	if d.Loss == loss.Squared {
		name, of = "RMSE", func(m *Mean) Spread { return m.Loss }
	}
	header := "SPARSITY\tPARAMS\tMETHOD\t" + name
	if compared {
		header += "\tCHANGE, 95% INTERVAL"
	}
	if calibrated {
		header += "\tCALIBRATED"
	} else if d.Loss != loss.Squared {
		header += "\tLOGLOSS"
	}
	fmt.Fprintln(w, header)
	marked := false
	line := func(sparsity float64, parameters int, label string, m *Mean) {
		off := m.Difference
		if off == nil {
			off = &Differences{}
		}
		marked = marked || off.JudgedAUC().Differs() || off.Loss().Differs() || off.CalibratedLoss().Differs()
		fmt.Fprintf(w, "%s\t%d\t%s\t%v", SparsityText(sparsity), parameters, label, of(m))
		if compared && d.Loss == loss.Squared {
			fmt.Fprintf(w, "\t%v", off.RMSE)
		} else if compared {
			fmt.Fprintf(w, "\t%v", off.JudgedAUC())
		}
		if calibrated {
			fmt.Fprintf(w, "\t%v%s", m.Calibrated, off.CalibratedLoss().mark())
		} else if d.Loss != loss.Squared {
			fmt.Fprintf(w, "\t%v%s", m.Loss, off.Loss().mark())
		}
		fmt.Fprintln(w)
	}
	unpruned := Document{Points: []Point{{Measure: d.Unpruned}}}
	m := unpruned.mean([]int{0})
	line(0, d.Entries, "unpruned", &m)
	type labelled struct {
		label string
		*Mean
	}
	var means []labelled
	for _, s := range d.Series() {
		for i := range s.Points {
			means = append(means, labelled{s.Label, &s.Points[i]})
		}
	}
	slices.SortFunc(means, func(a, b labelled) int { return cmp.Compare(a.first, b.first) })
	for _, m := range means {
		if !d.Listed(m.Point) {
			continue
		}
		line(m.Sparsity, m.Parameters, m.label, m.Mean)
	}
	if marked {
		fmt.Fprintln(w, "* differs from the unpruned table: the 95% interval of the difference does not contain 0")
	}
	if d.Group != nil {
		fmt.Fprintln(w, d.Group.Text())
	}
	if compared {
		answer := d.Answer
		if answer == nil {
			answer = d.Ladder()
		}
		fmt.Fprintln(w, strings.Join(answer.Text, "\n"))
	}
}
