package sweep

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Series is a method over the budgets, for people: points of repeats, which differ
// in nothing but their seeds, are one.
type Series struct {
	Label  string
	Points []Mean
}

// Mean is the mean of a series' points at one budget.
type Mean struct {
	Sparsity      float64
	Parameters    int
	EmptyFeatures float64
	AUC           Spread // NaN if there is none
	LogLoss       Spread
	Calibrated    Spread // NaN if there is none
	ValidationAUC Spread // the same
	first         int    // of its points, in the document
}

// Spread is a mean of repeats, and how far the farthest of them is from it.
type Spread struct{ Mean, Off float64 }

func spread(values []float64) Spread {
	s := Spread{}
	for _, v := range values {
		s.Mean += v / float64(len(values))
	}
	for _, v := range values {
		s.Off = max(s.Off, math.Abs(v-s.Mean))
	}
	return s
}

// String writes four digits, and the deviation where there is one.
func (s Spread) String() string {
	switch {
	case math.IsNaN(s.Mean):
		return "-"
	case s.Off == 0:
		return fmt.Sprintf("%.4f", s.Mean)
	}
	return fmt.Sprintf("%.4f±%.4f", s.Mean, s.Off)
}

// Series returns the document's series in the order in which they first occur.
func (d *Document) Series() []Series {
	type place struct {
		label      string
		sparsity   float64
		parameters int
	}
	var order []string
	groups := map[string][]*[]int{} // of points
	at := map[place]*[]int{}
	type like struct { // all that Label looks at
		method, baseline, values string
		source                   int
	}
	labels := map[like]string{}
	for i := range d.Points {
		p := &d.Points[i]
		alike := like{p.Method, p.Baseline, p.Values, -1}
		if p.Source != nil {
			alike.source = *p.Source
		}
		label, ok := labels[alike]
		if !ok {
			label = d.Label(p)
			labels[alike] = label
		}
		if groups[label] == nil {
			order = append(order, label)
		}
		here := place{label, p.Sparsity, p.Parameters}
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
	return all
}

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
		return spread(values)
	}
	first := &d.Points[points[0]]
	m := Mean{Sparsity: first.Sparsity, Parameters: first.Parameters, first: points[0]}
	for _, i := range points {
		m.EmptyFeatures += float64(d.Points[i].EmptyFeatures) / float64(len(points))
	}
	m.AUC = column(func(p *Point) *float64 { return p.AUC })
	m.LogLoss = column(func(p *Point) *float64 { return &p.LogLoss })
	m.Calibrated = column(func(p *Point) *float64 { return p.CalibratedLogLoss })
	m.ValidationAUC = column(func(p *Point) *float64 { return p.ValidationAUC })
	return m
}

// Label names a point's method as far as the document has others like it: by its
// baseline, how kept entries are stored, and for one that ranks by scores all of
// their job but the seed.
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
	if p.Source != nil { // those of one method all have one
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

// phrases says all that a label may say of a scores file, in the same places for
// all files. A phrase is empty if its estimator does not take the setting.
func (s *ScoresFile) phrases() []string {
	var all []string
	for _, setting := range s.Settings() {
		all = append(all, setting.Phrase)
	}
	return append(all, strings.Join(s.Splits, " and "), fmt.Sprintf("%g of the rows", s.Sample))
}

// WriteTable writes the document for people, columns separated by tabs.
func (d *Document) WriteTable(w io.Writer) {
	calibrated, chosen := false, false
	for i := range d.Points {
		calibrated = calibrated || d.Points[i].Calibration != nil
		chosen = chosen || d.Points[i].ValidationAUC != nil
	}
	header := "SPARSITY\tPARAMETERS\tMETHOD\tAUC\tLOGLOSS"
	if calibrated {
		header += "\tCALIBRATED"
	}
	if chosen {
		header += "\tVALIDATION AUC"
	}
	fmt.Fprintln(w, header+"\tEMPTY FEATURES")
	line := func(sparsity float64, parameters int, label string, m *Mean) {
		fmt.Fprintf(w, "%.6g\t%d\t%s\t%v\t%v", sparsity, parameters, label, m.AUC, m.LogLoss)
		if calibrated {
			fmt.Fprintf(w, "\t%v", m.Calibrated)
		}
		if chosen {
			fmt.Fprintf(w, "\t%v", m.ValidationAUC)
		}
		fmt.Fprintf(w, "\t%.0f\n", m.EmptyFeatures)
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
		line(m.Sparsity, m.Parameters, m.label, m.Mean)
	}
}
