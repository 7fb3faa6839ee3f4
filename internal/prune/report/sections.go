package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"shaver/internal/base/chart"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/picture"
	"shaver/internal/value/mask"
	"shaver/internal/value/path"
)

// addPicture adds a picture to the report and returns it in the form for the page.
type addPicture func(*chart.Figure) chart.Inline

// fieldsSection shows what each field is worth and how many of its entries are kept. The
// scores of a path do not say what a field is worth.
type fieldsSection struct {
	Ordered    bool // the scores are those of a path
	Heading    string
	Unit       string // unit of the values, with their baseline
	Figure     chart.Inline
	Sparsities []float64
	Rows       []fieldRow
	Extremes   []extremes
}

// extremes names the fields at an end of an order.
type extremes struct {
	Name string
	Rows []fieldRow
}

type fieldRow struct {
	Name           string
	RowsOf         string // see scores.FieldSummary
	Features, Seen int
	Sum            float64 // sum of phi over the field's entries, nat
	Table          float64 // portion of the table's entries
	Worth          float64 // portion of the value of all fields
	Kept           []keptCell
}

// keptCell describes the kept entries of a field at a sparsity. Share is their portion of all
// kept entries, and Own their portion of the field's entries.
type keptCell struct{ Share, Own float64 }

func (f *Facts) fieldsOf(found *findings, show addPicture) *fieldsSection {
	s := &fieldsSection{Ordered: f.Scores.Ranks(), Unit: f.unit(), Sparsities: found.sparsities}
	total := 0.0
	for _, field := range found.fields {
		total += field.SumAbs
	}
	shown := found.shown
	var names []string
	shares := make([][]float64, 3)
	for _, j := range found.byWorth() {
		field := &found.fields[j]
		row := fieldRow{
			Name: field.Name, RowsOf: field.RowsOf, Features: field.Features, Seen: field.Seen, Sum: field.Sum,
			Table: portion(float64(field.Entries), float64(len(found.order))), Worth: portion(field.SumAbs, total),
		}
		for k, kept := range field.kept {
			row.Kept = append(row.Kept, keptCell{portion(float64(kept), float64(found.cuts[k].kept)), portion(float64(kept), float64(field.Entries))})
		}
		s.Rows = append(s.Rows, row)
		names = append(names, field.Name)
		for k, share := range []float64{row.Table, row.Worth, row.Kept[shown].Share} {
			shares[k] = append(shares[k], share)
		}
	}
	s.Heading = fieldsHeading(s.Rows, shown, found.sparsities[shown])
	labels := []string{"share of the table", "share of the value (" + f.symbol() + " summed over entries, baseline " + f.Scores.Spec.Baseline + ")", "share of the kept entries at sparsity " + number(found.sparsities[shown])}
	if s.Ordered {
		labels, shares = slices.Delete(labels, 1, 2), slices.Delete(shares, 1, 2)
	} else {
		s.Extremes = extremesOf(s.Rows)
	}
	s.Figure = show(picture.Fields(names, labels, shares))
	return s
}

// fieldsHeading names the fields that have half of the entries that are kept at a sparsity, the k-th one.
func fieldsHeading(rows []fieldRow, k int, sparsity float64) string {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b fieldRow) int { return cmp.Compare(b.Kept[k].Share, a.Kept[k].Share) })
	var names []string
	kept, table := 0., 0.
	for _, row := range rows {
		if kept >= .5 || len(names) == 4 {
			break
		}
		names, kept, table = append(names, oneLine(row.Name)), kept+row.Kept[k].Share, table+row.Table
	}
	return "At sparsity " + number(sparsity) + ", " + percent(kept) + " of the kept entries are those of " + list(names) + ", which have " + percent(table) + " of the table"
}

// extremesOf returns the fields that are worth most and least per entry. It returns nil if
// there are few fields.
func extremesOf(rows []fieldRow) []extremes {
	const shown = 3
	if len(rows) < 2*shown {
		return nil
	}
	order := slices.Clone(rows)
	slices.SortStableFunc(order, func(a, b fieldRow) int { return cmp.Compare(portion(b.Worth, b.Table), portion(a.Worth, a.Table)) })
	least := slices.Clone(order[len(order)-shown:])
	slices.Reverse(least)
	return []extremes{{"Worth most per entry", order[:shown]}, {"Worth least per entry", least}}
}

// symbol returns a short name of the value by which entries are ranked.
func (f *Facts) symbol() string {
	if f.Aggregate == scores.Sum {
		return "|phi|"
	}
	return f.Aggregate
}

// portion returns part / whole, or 0 if whole is 0.
func portion(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}

// frequencySection shows how many entries rare and frequent features keep.
type frequencySection struct {
	Heading    string
	Figure     chart.Inline
	Gone       chart.Inline // when the features of each field go
	Sparsities []float64
	Bins       []binRow
	Reference  float64 // sparsity of Fields
	Dim        string  // number of entries of a feature, in words
	Fields     []binField
}

// binRow is a bin of the features of all fields.
type binRow struct {
	Name string
	mask.Bin
	Means []float64 // by sparsity: mean number of kept entries per feature
}

type binField struct {
	Name string
	Bins []mask.Bin // bins at the sparsity Reference
}

func (f *Facts) frequencyOf(found *findings, show addPicture) *frequencySection {
	entries := f.Architecture.FeatureEntries()
	most := slices.Max(entries)
	dim := strconv.Itoa(most)
	if slices.Min(entries) < most {
		dim = "at most " + dim
	}
	s := &frequencySection{Sparsities: found.sparsities, Dim: dim, Reference: found.sparsities[found.reference()]}
	curves := make([]chart.Series, len(found.sparsities))
	var names []string
	for b, bin := range found.bins[0] {
		name := "all"
		if len(found.bins[0]) == binsShown {
			name = []string{"rarest third", "middle third", "most frequent"}[b]
		}
		row := binRow{Name: name, Bin: bin}
		for k := range found.sparsities {
			mean := found.bins[k][b].Mean
			row.Means = append(row.Means, mean)
			curves[k].Label, curves[k].Style = number(found.sparsities[k]), k
			curves[k].X, curves[k].Y = append(curves[k].X, float64(b)), append(curves[k].Y, mean)
		}
		s.Bins, names = append(s.Bins, row), append(names, name)
	}
	for j, bins := range found.fieldBins {
		s.Fields = append(s.Fields, binField{f.Scores.Fields[j], bins})
	}
	s.Heading = s.heading()
	s.Figure = show(picture.Frequency(most, s.Dim, names, curves))
	var fields []string
	gone := make([][][]int, 0, len(found.gone))
	for _, j := range found.byWorth() {
		fields, gone = append(fields, found.fields[j].Name), append(gone, found.gone[j])
	}
	for k, bin := range found.bins[0] {
		names[k] += ", " + count(bin.Least) + " to " + count(bin.Most) + " rows"
	}
	s.Gone = show(picture.Gone(fields, names, gone, found.sparsities[found.shown]))
	return s
}

// heading compares the rarest with the most frequent features.
func (s *frequencySection) heading() string {
	if len(s.Bins) < 2 {
		return "Rare and frequent features"
	}
	k := max(0, slices.Index(s.Sparsities, s.Reference))
	return fmt.Sprintf("At sparsity %s, frequent features keep %.1f of %s entries and rare ones %.1f", number(s.Reference), s.Bins[len(s.Bins)-1].Means[k], s.Dim, s.Bins[0].Means[k])
}

// roundsSection shows how the order of a path came about.
type roundsSection struct {
	Heading string
	Adds    int // number of rounds that add entries, the last ones
	Reach   float64
	Rows    []roundRow
}

type roundRow struct {
	scores.Round
	Sparsity, Loss, Scale, Offset string
}

func (f *Facts) roundsOf() *roundsSection {
	p := f.Scores.Path
	s, drops := &roundsSection{Heading: "One round dropped the entries", Reach: p.Reach}, len(p.Rounds)
	if f.Scores.Spec.Adds {
		n, _ := path.Rounds(f.Architecture, f.Scores.Spec.Sparsity)
		drops = min(drops, n)
	}
	if drops > 1 {
		s.Heading = count(drops) + " rounds dropped the entries"
	}
	if s.Adds = len(p.Rounds) - drops; s.Adds > 0 {
		s.Heading += fmt.Sprintf(", and %d added some again", s.Adds)
	}
	for _, r := range p.Rounds {
		s.Rows = append(s.Rows, roundRow{r, number(r.Sparsity(len(f.Entries))), decimal(r.Loss), decimal(r.Scale), signed(r.Offset)})
	}
	return s
}

// certaintySection shows how certain the values and their order are.
type certaintySection struct {
	Heading string
	Facts   []fact
	Figure  chart.Inline
	Cuts    []cutRow
	Unknown int // number of entries that occur, but have no intervals
}

type cutRow struct {
	Sparsity                        float64
	Kept                            int
	Value                           float64
	UncertainKept, UncertainDropped int
	Share                           float64 // UncertainKept / Kept
}

func (f *Facts) certaintyOf(found *findings, show addPicture) *certaintySection {
	s := &certaintySection{Facts: f.errors(found.summary)}
	sparsities, values, widths := f.cutCurve(found)
	label := f.symbol() + ", nat"
	curves := []chart.Series{{Label: f.symbol() + " at the cut", X: sparsities, Y: values}}
	if f.Aggregate == scores.Sum {
		curves = append(curves, chart.Series{Label: "half of the median 95% interval around the cut", X: sparsities, Y: widths})
	}
	for k, c := range found.cuts {
		if !c.withoutIntervals {
			s.Cuts = append(s.Cuts, cutRow{found.sparsities[k], c.kept, c.value, c.uncertainKept, c.uncertainDropped, portion(float64(c.uncertainKept), float64(c.kept))})
			s.Unknown = c.unknown
		}
	}
	s.Heading = s.heading(found.sparsities[found.shown])
	s.Figure = show(picture.Cut(label, curves))
	return s
}

// heading says how many kept entries are uncertain at a sparsity.
func (s *certaintySection) heading(sparsity float64) string {
	for _, cut := range s.Cuts {
		if cut.Sparsity == sparsity {
			return "At sparsity " + number(sparsity) + ", " + percent(cut.Share) + " of the kept entries are uncertain"
		}
	}
	return "How certain the values are"
}

// errors returns facts about how the job ended, its standard errors and its audit.
func (f *Facts) errors(summary *scores.Summary) []fact {
	s := f.Scores
	var all []fact
	if s.Stopped != nil {
		converged := "not converged"
		if s.Stopped.Converged {
			converged = "converged"
		}
		all = append(all, fact{"ended", converged, s.Stopped.Text(s.Spec.Until)})
	}
	note := "for the values of these rows"
	if s.StandardError() == scores.UpperBound {
		note += "; an upper bound, because one pass does not show how much noise the estimator adds"
	}
	all = append(all,
		fact{"largest standard error", value(summary.MaxSE) + " nat", note},
		fact{"", value(summary.MaxPopulationSE) + " nat", "for the values of the population that the rows come from"})
	if summary.Range > 0 {
		all = append(all, fact{"largest standard error / range", number(summary.Convergence()), "the range is the largest value minus the smallest; the paper stops below 0.01"})
	}
	return append(all, f.audit()...)
}

// audit returns facts about how the values compare with those of the audit's reference. It returns nil if
// there was no audit.
func (f *Facts) audit() []fact {
	a := f.Scores.Audit
	if a == nil {
		return nil
	}
	all := []fact{
		{"audit", count(a.Rows) + " rows", count(a.Entries) + " entries, compared with " + a.Reference},
		{"bias", scores.FigureText(a.RelativeBias), "relative to the values, excluding noise; up to " + scores.FigureText(a.BiasNoise) + " may be chance"},
		{"Spearman", scores.FigureText(a.Spearman), "correlation of the ranks; " + a.Reference + " on one half of the rows and on the other half: " + scores.FigureText(a.ReferenceSpearman)},
	}
	for _, o := range a.Overlaps {
		all = append(all, fact{"overlap at " + number(o.Sparsity), fmt.Sprintf("%.3f", o.Overlap), fmt.Sprintf("portion of the kept entries that %s also keeps; %[1]s on one half of the rows and on the other half: %.3f", a.Reference, o.Reference)})
	}
	return all
}
