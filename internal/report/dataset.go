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

// highOOV is the share of rows without a known value from which on a field stands
// out: one feature has to stand for so many.
const highOOV = .25

// datasetDocument is what the template of a dataset's page reads.
type datasetDocument struct {
	frame
	Splits     []splitRow
	Vocabulary bool // the fields have an OOV share
	Held       []float64
	Figure     figure
	Fields     []datasetField
	Marked     string // what of the fields stands out, in words; "" = nothing does
	HasTop     bool
	About      []fact
}

type splitRow struct {
	dataset.SplitFacts
	Share float64 // of all rows
}

type datasetField struct {
	dataset.FieldFacts
	Name   string // on one line
	Never  int    // features that might occur, but do not
	Values []valueRow
}

// valueRow is a line of a frequent value.
type valueRow struct {
	dataset.ValueFacts
	Name  string
	Quiet bool   // the name is ours
	Width string // of its bar, in percent of the line
}

// IsHigh tells whether an OOV share stands out.
func (d *datasetDocument) IsHigh(oov *float64) bool { return *oov >= highOOV }

// Dataset returns the page of what dataset.Inspect says. Names and values are foreign
// and may be anything: the page has them escaped, on one line, and cut to what fits.
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
		marks = append(marks, fmt.Sprintf("fields of which %s of the rows or more have no value of their own", percent(highOOV)))
	}
	if never {
		marks = append(marks, "features that occur in no row, of which these rows can say nothing")
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
		dataset.LocalIDs: "counted within each field", dataset.GlobalIDs: "counted over all fields", dataset.RawStrings: "made from strings",
	}
	about := []fact{{"digest", facts.Digest, "SHA-256"}, {"ids", facts.IDs, ids[facts.IDs]}}
	if facts.Skipped > 0 {
		about = append(about, fact{"skipped", count(facts.Skipped), "lines that were no valid rows"})
	}
	return about
}

func datasetFieldOf(f dataset.FieldFacts) datasetField {
	row := datasetField{FieldFacts: f, Name: oneLine(f.Name), Never: f.Size - f.Seen}
	if f.OOV != nil && *f.OOV == 0 {
		row.Never-- // that there are no other values is no lack
	}
	for _, v := range f.Top {
		value := valueRow{ValueFacts: v, Name: fmt.Sprint(v.ID), Width: strconv.FormatFloat(100*v.Share, 'f', 2, 64)}
		switch {
		case v.Value != nil:
			value.Name = `"` + oneLine(*v.Value) + `"`
		case f.OOV != nil:
			value.Name, value.Quiet = "others", true
		}
		row.Values = append(row.Values, value)
	}
	return row
}

// concentrationOf draws how few features have how much.
func concentrationOf(all []datasetField) *picture.Picture {
	var names, wholes []string
	features := make([][]int, len(dataset.Held)+1)
	for _, share := range dataset.Held {
		wholes = append(wholes, "have "+percent(share)+" of the rows")
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

// oneLine writes a foreign text as Go would within quotes, so that what cannot be
// seen, or would turn the text about it round, is seen and does nothing. Of one that
// is longer than 75 characters, so written, the middle is left out.
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

// escaped returns the inside of a Go string, and its length in runes.
func escaped(text string) (string, int) {
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1], utf8.RuneCountInString(quoted) - 2
}
