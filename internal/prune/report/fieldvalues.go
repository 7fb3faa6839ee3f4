package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"

	"shaver/internal/base/chart"
	"shaver/internal/base/fault"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/prune/picture"
)

//go:embed fieldvalues.html
var fieldValuesText string

var fieldValuesPage = pageOf(fieldValuesText + removalsText)

// fieldValuesDocument is the input of the template fieldvalues.html.
type fieldValuesDocument struct {
	frame
	Warnings []string
	Values   *valuesSection
	Pairs    *valuesSection   // nil for a job without pairs
	Removals *removalsSection // nil without a path
	Job      []fact
}

// valuesSection shows the values of fields, or the interactions of pairs, with their intervals.
type valuesSection struct {
	Heading  string
	Unit     string
	Figure   chart.Inline
	Rows     []playerRow
	Rest     int // number of pairs without a row
	Compared int // number of values of which Heading and Figure judge each by sweep.Interval.Among
}

// playerRow is a value. Share is empty if it is not known.
type playerRow struct {
	Name, Share string
	change
}

// shownPairs is the number of pairs with a row, of at most 120 in the picture.
const shownPairs = 20

// writeFieldValues is Write for the values of fields.
func writeFieldValues(f *Facts) (*Report, error) {
	if f.Sweep != nil {
		return nil, fault.Inputf("the scores are the values of fields, by which no sweep ranks: expected no sweep")
	}
	var pictures []*chart.Figure
	show := func(p *chart.Figure) chart.Inline {
		pictures = append(pictures, p)
		return p.Inline()
	}
	values := f.Scores.FieldValues()
	d := fieldValuesDocument{
		frame:    frame{Of: OfModel + f.Scores.Spec.Model, Kind: "Fields", Title: f.title(), Summary: f.summary(), Links: []link{{"values", "Values"}}},
		Warnings: f.warnings(), Values: f.valuesOf(values, show), Job: f.job(),
	}
	if f.Scores.Spec.OfPairs() {
		d.Pairs = f.pairsOf(values, show)
		d.Links = append(d.Links, link{"pairs", "Pairs"})
	}
	if f.Path != nil {
		d.Removals = removalsOf(f.Path, show)
		d.Links = append(d.Links, link{"removals", "Path"})
	}
	d.Links = append(d.Links, link{"job", "Job"})
	html, err := render(fieldValuesPage, &d)
	if err != nil {
		return nil, err
	}
	return &Report{html, pictures}, nil
}

// unit returns the unit of the values and their baseline, with which the game and so all values change.
func (f *Facts) unit() string {
	unit := "nat"
	if f.Scores.Spec.Loss == loss.Squared {
		unit = "squared units of the label"
	}
	return unit + ", baseline " + f.Scores.Spec.Baseline
}

func (f *Facts) valuesOf(values []scores.FieldValue, show addPicture) *valuesSection {
	s := &valuesSection{Unit: f.unit(), Compared: len(values)}
	var bars []picture.Bar
	var harmful []string
	useful := 0
	for _, v := range values {
		bar := picture.Bar{Label: v.Field, Value: v.Value, Low: math.NaN(), High: math.NaN()}
		row := playerRow{Name: v.Field, change: changeTo(v.Value, v.Low, v.High)}
		if v.Low != nil {
			bar.Low, bar.High = *v.Low, *v.High
		}
		switch joint := interval(&v.Value, v.Low, v.High).Among(s.Compared, f.Scores.Rows); {
		case joint.Differs() && v.Value > 0:
			useful++
		case joint.Differs():
			harmful = append(harmful, oneLine(v.Field)+", by "+six(-*joint.High)+" to "+six(-*joint.Low))
		}
		if v.Share != nil {
			row.Share = signedPercent(*v.Share)
		}
		bars, s.Rows = append(bars, bar), append(s.Rows, row)
	}
	switch n := len(harmful); {
	case n > 1:
		s.Heading = count(n) + " of " + count(len(values)) + " fields raise the loss"
	case n > 0:
		s.Heading = "One field raises the loss: " + harmful[0]
	case useful == len(values):
		s.Heading = "All fields lower the loss"
	case useful > 0:
		s.Heading = count(useful) + " of " + count(len(values)) + " fields are certain to lower the loss"
	default:
		s.Heading = "The rows do not show which fields lower the loss"
	}
	s.Figure = show(picture.Values("value, "+s.Unit, bars))
	return s
}

func (f *Facts) pairsOf(values []scores.FieldValue, show addPicture) *valuesSection {
	pairs := f.Scores.FieldPairs()
	// All pairs count, because the values of the fields chose those that are shown.
	s := &valuesSection{Unit: f.unit(), Rest: max(0, len(pairs)-shownPairs), Compared: len(values) * (len(values) - 1) / 2}
	var names []string
	for _, v := range values {
		if slices.ContainsFunc(pairs, func(p scores.FieldPair) bool { return slices.Contains(p.Fields[:], v.Field) }) {
			names = append(names, v.Field)
		}
	}
	var cells []picture.Cell
	for i, p := range pairs {
		joint := interval(&p.Value, p.Low, p.High).Among(s.Compared, f.Scores.Rows)
		cells = append(cells, picture.Cell{I: slices.Index(names, p.Fields[0]), J: slices.Index(names, p.Fields[1]), Value: p.Value, Unsure: !joint.Differs()})
		if s.Heading == "" && joint.Differs() {
			s.Heading = "Worth more together: "
			if p.Value < 0 {
				s.Heading = "Redundant in part: "
			}
			s.Heading += oneLine(p.Fields[0]) + " and " + oneLine(p.Fields[1]) + ", by " + six(*joint.Low) + " to " + six(*joint.High)
		}
		if i < shownPairs {
			s.Rows = append(s.Rows, playerRow{Name: p.Fields[0] + ", " + p.Fields[1], change: changeTo(p.Value, p.Low, p.High)})
		}
	}
	s.Heading = cmp.Or(s.Heading, "No pair is certain to interact")
	s.Figure = show(picture.Matrix(names, cells))
	return s
}

// changeTo returns a value with its interval, whose ends may be nil, in six decimals.
func changeTo(v float64, low, high *float64) change {
	c := change{Value: six(v)}
	if low != nil && high != nil {
		c.Interval, c.Differs = six(*low)+" to "+six(*high), *low > 0 || *high < 0
	}
	return c
}

func six(v float64) string {
	text := fmt.Sprintf("%+.6f", v)
	if v < 0 {
		text = "−" + text[1:]
	}
	return text
}

func signedPercent(v float64) string {
	text := strconv.FormatFloat(100*v, 'f', 1, 64) + "%"
	if v < 0 {
		text = "−" + text[1:]
	}
	return text
}
