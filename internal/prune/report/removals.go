package report

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"shaver/internal/base/chart"
	"shaver/internal/prune/picture"
	"shaver/internal/prune/slice"
)

// removalsText is the template of the section about a path, of the pages that have one.
//
//go:embed removals.html
var removalsText string

// removalsSection shows how the loss rises as fields and columns go.
type removalsSection struct {
	Heading, Note string
	Figure        chart.Inline
	Rows          []removalRow
}

// removalRow is a step.
type removalRow struct {
	Name                     string
	Fields, LookUps          int
	Multiplications, Entries int
	Columns, Bytes, AUC      string
	change
}

func removalsOf(p *slice.Path, show addPicture) *removalsSection {
	s := &removalsSection{Heading: "Removing fields and columns", Note: fmt.Sprintf("Each step removes what raises the loss least. Candidates are compared on %s rows of the validation split, and the figures are those of its other %s rows.", count(p.Compared), count(p.Rows-p.Compared))}
	add := func(name string, of *slice.Figures, c change) {
		row := removalRow{Name: name, Fields: of.Fields, Columns: of.ColumnsText(), LookUps: of.LookUps, Multiplications: of.Multiplications, Entries: of.Entries, Bytes: size(&of.Bytes), AUC: "-", change: c}
		if of.AUC != nil {
			row.AUC = decimal(*of.AUC)
		}
		s.Rows = append(s.Rows, row)
	}
	add("the whole model", &p.Whole, change{})
	curve := func(label string, style int, first *slice.Figures, rise *slice.Step, steps []slice.Step, cost func(*slice.Figures) int) chart.Series {
		c := chart.Series{Label: label, Style: style}
		point := func(of *slice.Figures, s *slice.Step) {
			y, low, high := 0., 0., 0.
			if s != nil {
				if s.Rise == nil {
					return
				}
				y, low, high = s.Rise.Value, s.Rise.Value, s.Rise.Value
				if s.Rise.Low != nil {
					low, high = *s.Rise.Low, *s.Rise.High
				}
			}
			c.X, c.Y = append(c.X, float64(cost(of))), append(c.Y, y)
			c.Low, c.High = append(c.Low, low), append(c.High, high)
		}
		point(first, rise)
		for i := range steps {
			point(&steps[i].Figures, &steps[i])
		}
		return c
	}
	lookUps := func(f *slice.Figures) int { return f.LookUps }
	multiplications := func(f *slice.Figures) int { return f.Multiplications }
	for i := range p.Fields {
		step := &p.Fields[i]
		add("without "+step.Field, &step.Figures, changeOf(step.Rise))
	}
	first := []chart.Series{curve("fields", 0, &p.Whole, nil, p.Fields, lookUps)}
	second := []chart.Series{curve("fields", 0, &p.Whole, nil, p.Fields, multiplications)}
	for k, b := range p.Columns {
		from, rise := &p.Whole, (*slice.Step)(nil)
		if gone := p.Whole.Fields - len(p.Removed) - b.Fields; gone > 0 {
			rise = &p.Fields[gone-1]
			from = &rise.Figures
		}
		second = append(second, curve("columns of "+strconv.Itoa(b.Fields), k+1, from, rise, b.Steps, multiplications))
		for i := range b.Steps {
			step := &b.Steps[i]
			columns := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(step.Gone)), " and "), "[]")
			add(strconv.Itoa(b.Fields)+" fields, without column "+columns, &step.Figures, changeOf(step.Rise))
		}
	}
	if n, most := cheap(p); n > 0 {
		s.Heading = fmt.Sprintf("Without %d of %d fields the loss rises by at most %s", n, p.Whole.Fields, signed(most))
	}
	s.Figure = show(picture.Removals(first, second))
	return s
}

// cheap returns the number of first steps after which the interval of the rise holds 0 or is below it, and the end
// of that interval.
func cheap(p *slice.Path) (n int, most float64) {
	for i := range p.Fields {
		if r := p.Fields[i].Rise.Among(len(p.Fields), p.Rows-p.Compared); r != nil && r.Low != nil && *r.Low <= 0 {
			n, most = i+1, *r.High
		}
	}
	return n, most
}
