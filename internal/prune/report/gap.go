package report

import (
	"fmt"
	"slices"

	"shaver/internal/jobs/gap"
)

// gapSection shows how much of what each field is worth on rows of the training comes back on others.
type gapSection struct {
	Heading, Note string
	Rows          []gapRow
}

type gapRow struct {
	Name          string
	Train, Unseen change // of the loss without the field
	Back          string
}

func (f *Facts) gapOf() *gapSection {
	g := *f.Gap
	g.Fields = slices.Clone(g.Fields)
	for i := range g.Fields {
		g.Fields[i].Name = oneLine(g.Fields[i].Name)
	}
	s := &gapSection{
		Heading: capital(g.Text()),
		Note: fmt.Sprintf("A field is worth how much the mean loss rises if the baseline replaces all of its entries (%s). The whole model has the loss %s on %s rows of the training and %s on %s rows that it has not seen.",
			f.unit(), decimal(g.Loss[gap.Train]), count(g.Rows[gap.Train]), decimal(g.Loss[gap.Unseen]), count(g.Rows[gap.Unseen])),
	}
	for _, field := range append(g.Fields, g.Total) {
		train, unseen := &field.Worth[gap.Train], &field.Worth[gap.Unseen]
		s.Rows = append(s.Rows, gapRow{field.Name, changeTo(train.Value, &train.Low, &train.High), changeTo(unseen.Value, &unseen.Low, &unseen.High), percent(field.Back())})
	}
	return s
}
