package report

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"shaver/internal/base/chart"
	"shaver/internal/data/dataset"
	"shaver/internal/prune/picture"
)

//go:embed dataset.html
var datasetText string

var datasetPage = pageOf(datasetText)

// highOOV is the OOV share from which the page marks a field: the share of rows whose value
// is not in the vocabulary. A single feature stands for all these rows.
const highOOV = .25

// datasetDocument is the input of the template dataset.html.
type datasetDocument struct {
	frame
	Splits     []splitRow
	Numbers    bool      // labels are numbers
	Heading    string    // of the fields
	Vocabulary bool      // at least one field has an OOV share
	Held       []float64 // dataset.Held
	Figure     chart.Inline
	Fields     []datasetField
	Notes      []string // explanations of the table of fields
	Dense      []denseRow
	HasTop     bool // at least one field lists its most frequent values
	About      []fact
}

type splitRow struct {
	dataset.SplitFacts
	Share float64 // portion of all rows
}

type datasetField struct {
	dataset.FieldFacts
	Name   string // name as oneLine writes it
	Never  int    // number of features that could occur, but do not
	Marked bool   // the page marks Never
	Values []valueRow
}

// denseRow is the line of a dense input.
type denseRow struct {
	Name, Rule, Min, Mean, Max string
	Missing                    string // share of the rows without the number; "" if there must be none
}

// denseRows returns the lines of the dense inputs.
func denseRows(facts *dataset.Inspection) (all []denseRow) {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	for _, in := range facts.Dense {
		row := denseRow{Name: oneLine(in.Name), Rule: in.Rule, Min: number(in.Values.Min), Mean: number(in.Values.Mean), Max: number(in.Values.Max)}
		if in.Mean != nil && in.Deviation != nil {
			row.Rule += " (mean " + number(*in.Mean) + ", deviation " + number(*in.Deviation) + ")"
		}
		if in.Missing != nil {
			row.Missing = percent(portion(float64(in.Filled), float64(facts.Rows))) + " as " + number(*in.Missing)
		}
		all = append(all, row)
	}
	return all
}

// valueRow is the line of a frequent value.
type valueRow struct {
	dataset.ValueFacts
	Name  string
	Quiet bool   // Name is not a value of the dataset, but a description
	Width string // width of the bar, in percent of that for all rows
}

// IsHigh reports whether the page marks an OOV share.
func (d *datasetDocument) IsHigh(oov *float64) bool { return *oov >= highOOV }

// Origin says where an inspected dataset is from.
type Origin struct {
	Name    string    // name of its folder
	Written time.Time // when its manifest was written; zero = unknown
	Program string    // name and version of the program that writes the page
}

// Dataset returns the page about an inspected dataset. Names and values may be any text. The
// page escapes and shortens them, and shows each on one line.
func Dataset(facts *dataset.Inspection, from Origin) ([]byte, error) {
	d := &datasetDocument{Held: dataset.Held, About: aboutDataset(facts, from)}
	d.Of, d.Kind, d.Title = OfDataset, "Dataset", oneLine(from.Name)
	if d.Title == "" {
		d.Title = "Dataset"
	}
	d.Summary = []fact{{"rows", count(facts.Rows), ""}, {"fields", count(len(facts.Fields)), ""}, {"features", count(facts.Features), ""}, labelFact(&facts.LabelFacts)}
	d.Numbers = facts.Labels != nil
	if !from.Written.IsZero() {
		d.Summary = append(d.Summary, fact{"written", from.Written.UTC().Format("2006-01-02"), ""})
	}
	for _, s := range facts.Splits {
		d.Splits = append(d.Splits, splitRow{s, portion(float64(s.Rows), float64(facts.Rows))})
	}
	for _, f := range facts.Fields {
		row := datasetFieldOf(f)
		d.Fields = append(d.Fields, row)
		d.Vocabulary = d.Vocabulary || f.OOV != nil
		d.HasTop = d.HasTop || len(f.Top) > 0
	}
	d.Dense = denseRows(facts)
	d.Heading, d.Notes = d.heading(), d.notes()
	d.Figure = concentrationOf(d.Fields).Inline()
	return render(datasetPage, d)
}

// labelFact describes the labels of all rows.
func labelFact(l *dataset.LabelFacts) fact {
	if n := l.Labels; n != nil {
		return fact{"mean label", number(n.Mean), ""}
	}
	return fact{"positive", rate(*l.LabelRate), ""}
}

// heading names the fields that have most of the features.
func (d *datasetDocument) heading() string {
	all := 0
	order := make([]*datasetField, len(d.Fields))
	for j := range d.Fields {
		order[j] = &d.Fields[j]
		all += d.Fields[j].Size
	}
	slices.SortStableFunc(order, func(a, b *datasetField) int { return b.Size - a.Size })
	var names []string
	features := 0
	for _, f := range order {
		if 10*features >= 8*all || len(names) == 3 {
			break
		}
		names, features = append(names, f.Name), features+f.Size
	}
	if len(names) == 0 || len(names) == len(d.Fields) {
		return "Fields"
	}
	verb := " have "
	if len(names) == 1 {
		verb = " has "
	}
	return list(names) + verb + percent(portion(float64(features), float64(all))) + " of the features"
}

// notes explains the columns and the marks of the table of fields.
func (d *datasetDocument) notes() []string {
	high, marked, reserved := false, false, 0
	for j := range d.Fields {
		f := &d.Fields[j]
		high = high || f.OOV != nil && d.IsHigh(f.OOV)
		marked = marked || f.Marked
		if f.Never == 1 && !f.Marked {
			reserved++
		}
	}
	var notes []string
	if d.Vocabulary {
		notes = append(notes, "OOV (out of vocabulary) is the share of rows whose value is not in the vocabulary. All such values of a field share one feature.")
	}
	if reserved > 0 {
		notes = append(notes, fmt.Sprintf("In %d of %s, exactly one feature occurs in no row. This is usually the id that an encoder reserves for unknown values.", reserved, fields(len(d.Fields))))
	}
	if high {
		notes = append(notes, "Marked: an OOV share of "+percent(highOOV)+" or more.")
	}
	if marked {
		notes = append(notes, "Marked: features that occur in no row. The dataset has no information about them.")
	}
	return notes
}

func fields(n int) string {
	if n == 1 {
		return "1 field"
	}
	return count(n) + " fields"
}

// tableFacts says from which tables rows are.
func tableFacts(tables []dataset.Table) (facts []fact) {
	for i := range tables {
		facts = append(facts, fact{"rows from", tables[i].String(), tables[i].ID})
	}
	return facts
}

func aboutDataset(facts *dataset.Inspection, from Origin) []fact {
	ids := map[string]string{
		dataset.LocalIDs: "counted within each field", dataset.GlobalIDs: "counted over all fields", dataset.RawStrings: "assigned to the strings of each field",
	}
	about := []fact{{"digest", facts.Digest, "SHA-256"}, {"ids", facts.IDs, ids[facts.IDs]}}
	about = append(about, tableFacts(facts.Tables)...)
	if facts.Skipped > 0 {
		about = append(about, fact{"skipped", count(facts.Skipped), "malformed rows that the import left out"})
	}
	if !from.Written.IsZero() {
		about = append(about, fact{"written", from.Written.UTC().Format(time.RFC3339), ""})
	}
	if from.Program != "" {
		about = append(about, fact{"page by", from.Program, ""})
	}
	return about
}

func datasetFieldOf(f dataset.FieldFacts) datasetField {
	row := datasetField{FieldFacts: f, Name: oneLine(f.Name), Never: f.Size - f.Seen}
	if f.OOV != nil && *f.OOV == 0 {
		row.Never-- // the feature for OOV values is not counted if there are no such values
	}
	// Encoded rows have no vocabulary, and an encoder may reserve one id for unknown values.
	row.Marked = row.Never > 1 || row.Never == 1 && f.OOV != nil
	for _, v := range f.Top {
		value := valueRow{ValueFacts: v, Name: fmt.Sprint(v.ID), Width: strconv.FormatFloat(100*v.Share, 'f', 2, 64)}
		switch {
		case v.Value != nil:
			value.Name = `"` + oneLine(*v.Value) + `"`
		case f.OOV != nil:
			value.Name, value.Quiet = "other values (OOV)", true
		}
		row.Values = append(row.Values, value)
	}
	return row
}

// concentrationOf draws, for each field, how many of its most frequent features cover a
// given share of the rows.
func concentrationOf(all []datasetField) *chart.Figure {
	var names, wholes []string
	features := make([][]int, len(dataset.Held)+1)
	for _, share := range dataset.Held {
		wholes = append(wholes, "cover "+percent(share)+" of the rows")
	}
	for _, f := range all {
		names = append(names, f.Name)
		for k, held := range f.Concentration {
			features[k] = append(features[k], held.Features)
		}
		features[len(dataset.Held)] = append(features[len(dataset.Held)], f.Seen)
	}
	return picture.Concentration(names, append(wholes, "occur"), features)
}

// oneLine escapes text like the inside of a Go string. Invisible characters become visible,
// and characters that change the direction of text have no effect. If the result has more
// than 75 characters, oneLine replaces its middle by an ellipsis.
func oneLine(text string) string {
	const head, tail = 50, 25
	if len(text) <= utf8.UTFMax*(head+tail) {
		if whole, length := escaped(text); length <= head+tail {
			return whole
		}
	}
	first, last := "", ""
	for rest, left := text, head; ; {
		_, size := utf8.DecodeRuneInString(rest)
		char, length := escaped(rest[:size])
		if left -= length; left < 0 {
			break
		}
		first, rest = first+char, rest[size:]
	}
	for rest, left := text, tail; ; {
		_, size := utf8.DecodeLastRuneInString(rest)
		at := len(rest) - size
		char, length := escaped(rest[at:])
		if left -= length; left < 0 {
			break
		}
		last, rest = char+last, rest[:at]
	}
	return first + "…" + last
}

// escaped returns text escaped like the inside of a Go string, and its length in runes.
func escaped(text string) (string, int) {
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1], utf8.RuneCountInString(quoted) - 2
}
