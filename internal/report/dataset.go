package report

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"shaver/internal/dataset"
	"shaver/internal/picture"
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
	Vocabulary bool      // at least one field has an OOV share
	Held       []float64 // dataset.Held
	Figure     figure
	Fields     []datasetField
	Marked     string // explanation of the marks in the table of fields; "" = there are no marks
	HasTop     bool   // at least one field lists its most frequent values
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
	Values []valueRow
}

// valueRow is the line of a frequent value.
type valueRow struct {
	dataset.ValueFacts
	Name  string
	Quiet bool   // Name is not a value of the dataset, but a description
	Width string // width of the bar, in percent of the line
}

// IsHigh reports whether the page marks an OOV share.
func (d *datasetDocument) IsHigh(oov *float64) bool { return *oov >= highOOV }

// Dataset returns the page about an inspected dataset. Names and values may be any text. The
// page escapes and shortens them, and shows each on one line.
func Dataset(facts *dataset.Inspection) ([]byte, error) {
	d := &datasetDocument{Held: dataset.Held, About: aboutDataset(facts)}
	d.Title = fmt.Sprintf("Dataset, %s rows × %s", count(facts.Rows), fields(len(facts.Fields)))
	d.Summary = []fact{{"positive", rate(facts.LabelRate), ""}, {"features", count(facts.Features), ""}}
	for _, s := range facts.Splits {
		d.Splits = append(d.Splits, splitRow{s, portion(float64(s.Rows), float64(facts.Rows))})
	}
	high, never := false, false
	for _, f := range facts.Fields {
		row := datasetFieldOf(f)
		d.Fields = append(d.Fields, row)
		d.Vocabulary = d.Vocabulary || f.OOV != nil
		d.HasTop = d.HasTop || len(f.Top) > 0
		high, never = high || f.OOV != nil && d.IsHigh(f.OOV), never || row.Never > 0
	}
	var marks []string
	if high {
		marks = append(marks, fmt.Sprintf("fields with an OOV share of %s or more", percent(highOOV)))
	}
	if never {
		marks = append(marks, "features that occur in no row, so these rows give no information about them")
	}
	d.Marked = strings.Join(marks, "; ")
	d.Figure = figureOf(concentrationOf(d.Fields))
	return render(datasetPage, d)
}

func fields(n int) string {
	if n == 1 {
		return "1 field"
	}
	return count(n) + " fields"
}

func aboutDataset(facts *dataset.Inspection) []fact {
	ids := map[string]string{
		dataset.LocalIDs: "counted within each field", dataset.GlobalIDs: "counted over all fields", dataset.RawStrings: "assigned to the strings of each field",
	}
	about := []fact{{"digest", facts.Digest, "SHA-256"}, {"ids", facts.IDs, ids[facts.IDs]}}
	if facts.Skipped > 0 {
		about = append(about, fact{"skipped", count(facts.Skipped), "malformed rows that the import left out"})
	}
	return about
}

func datasetFieldOf(f dataset.FieldFacts) datasetField {
	row := datasetField{FieldFacts: f, Name: oneLine(f.Name), Never: f.Size - f.Seen}
	if f.OOV != nil && *f.OOV == 0 {
		row.Never-- // the feature for OOV values is not counted if there are no such values
	}
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
func concentrationOf(all []datasetField) *picture.Picture {
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
