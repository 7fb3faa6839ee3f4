package report

import (
	"fmt"

	"shaver/internal/picture"
	"shaver/internal/prune"
	"shaver/internal/scores"
)

// addPicture puts a picture on the page.
type addPicture func(*picture.Picture) figure

// fieldsSection says what fields are worth, and what they keep.
type fieldsSection struct {
	Figure     figure
	Sparsities []float64
	Rows       []fieldRow
}

type fieldRow struct {
	Name           string
	Features, Seen int
	Sum            float64
	Table, Worth   float64 // shares
	Kept           []keptCell
}

// keptCell is what a field keeps at a sparsity.
type keptCell struct{ Share, Own float64 } // of the budget, of the field's entries

func (f *Facts) fieldsOf(found *findings, show addPicture) *fieldsSection {
	s := &fieldsSection{Sparsities: found.sparsities}
	total := 0.0
	for _, field := range found.fields {
		total += field.SumAbs
	}
	shown := len(found.sparsities) / 2
	var names []string
	shares := make([][]float64, 3)
	for _, j := range found.byWorth() {
		field := &found.fields[j]
		entries := field.Features * f.Scores.Dim
		row := fieldRow{
			Name: field.Name, Features: field.Features, Seen: field.Seen, Sum: field.Sum,
			Table: portion(float64(entries), float64(len(found.order))), Worth: portion(field.SumAbs, total),
		}
		for k, kept := range field.kept {
			row.Kept = append(row.Kept, keptCell{portion(float64(kept), float64(found.cuts[k].kept)), portion(float64(kept), float64(entries))})
		}
		s.Rows = append(s.Rows, row)
		names = append(names, field.Name)
		for k, share := range []float64{row.Table, row.Worth, row.Kept[shown].Share} {
			shares[k] = append(shares[k], share)
		}
	}
	s.Figure = show(picture.Fields(names, []string{"of the table's entries", "of the value, sum of " + f.symbol(), fmt.Sprintf("of what is kept at sparsity %.4g", found.sparsities[shown])}, shares))
	return s
}

// symbol is what ranks an entry.
func (f *Facts) symbol() string {
	if f.Aggregate == scores.Sum {
		return "|phi|"
	}
	return f.Aggregate
}

// portion is part / whole, 0 of nothing.
func portion(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}

// frequencySection says what is kept of rare and of frequent features.
type frequencySection struct {
	Figure     figure
	Sparsities []float64
	Bins       []binRow
	Reference  float64
	Dim        int
	Fields     []binField
}

// binRow is a bin of all features.
type binRow struct {
	Name string
	prune.Bin
	Means []float64 // kept entries of a feature, by sparsity
}

type binField struct {
	Name string
	Bins []prune.Bin // at Reference
}

func (f *Facts) frequencyOf(found *findings, show addPicture) *frequencySection {
	s := &frequencySection{Sparsities: found.sparsities, Dim: f.Scores.Dim, Reference: found.sparsities[found.reference()]}
	curves := make([]picture.Curve, len(found.sparsities))
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
			curves[k].Label = fmt.Sprintf("sparsity %.4g", found.sparsities[k])
			curves[k].X, curves[k].Y = append(curves[k].X, float64(b)), append(curves[k].Y, mean)
		}
		s.Bins, names = append(s.Bins, row), append(names, name)
	}
	for j, bins := range found.fieldBins {
		s.Fields = append(s.Fields, binField{f.Scores.Fields[j], bins})
	}
	s.Figure = show(picture.Frequency(f.Scores.Dim, names, curves))
	return s
}

// certaintySection says how sure values and their order are.
type certaintySection struct {
	Facts   []fact
	Figure  figure
	Cuts    []cutRow
	Unknown int // entries that occur, but have no intervals
}

type cutRow struct {
	Sparsity                  float64
	Kept                      int
	Value                     float64
	UnsureKept, UnsureDropped int
	Share                     float64 // of UnsureKept in Kept
}

func (f *Facts) certaintyOf(found *findings, show addPicture) *certaintySection {
	s := &certaintySection{Facts: f.errors(found.summary)}
	sparsities, values, widths := f.cutCurve(found)
	label := f.symbol() + ", nat"
	curves := []picture.Curve{{Label: f.symbol() + " of the entry at the cut", X: sparsities, Y: values}}
	if f.Aggregate == scores.Sum {
		curves = append(curves, picture.Curve{Label: "half a 95% interval of the entries about it, median", X: sparsities, Y: widths})
	}
	for k, c := range found.cuts {
		if !c.withoutIntervals {
			s.Cuts = append(s.Cuts, cutRow{found.sparsities[k], c.kept, c.value, c.unsureKept, c.unsureDropped, portion(float64(c.unsureKept), float64(c.kept))})
			s.Unknown = c.unknown
		}
	}
	s.Figure = show(picture.Cut(label, curves))
	return s
}

// errors are the standard errors of the values.
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
	note := "about the dataset's own values"
	if s.StandardError() == scores.UpperBound {
		note += "; an upper bound, as one pass does not tell how much of it is the estimator's own noise"
	}
	all = append(all,
		fact{"largest standard error", value(summary.MaxSE) + " nat", note},
		fact{"", value(summary.MaxPopulationSE) + " nat", "about the values of the population that the rows come from"})
	if summary.Range > 0 {
		all = append(all, fact{"of the values' range", number(summary.Convergence()), "the paper stops below 0.01"})
	}
	return append(all, f.audit()...)
}

// audit is how the values compare with those of walks, if that is known.
func (f *Facts) audit() []fact {
	a := f.Scores.Audit
	if a == nil {
		return nil
	}
	all := []fact{
		{"audit", count(a.Rows) + " rows", count(a.Entries) + " entries, against walks"},
		{"bias", scores.FigureText(a.RelativeBias), "relative to the values, without noise; up to " + scores.FigureText(a.BiasNoise) + " may be chance"},
		{"Spearman", scores.FigureText(a.Spearman), "of the ranks; walks on half of the rows with walks on the others: " + scores.FigureText(a.WalksSpearman)},
	}
	for _, o := range a.Overlaps {
		all = append(all, fact{"overlap at " + number(o.Sparsity), fmt.Sprintf("%.3f", o.Overlap), fmt.Sprintf("of what is kept; walks with walks: %.3f", o.Walks)})
	}
	return all
}
