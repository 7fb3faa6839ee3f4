// Package report writes what a job found and what pruning by it costs as one HTML
// page that needs nothing beside it: no network, no script, no other file. The same
// facts give the same bytes.
package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"reflect"
	"strings"

	"shaver/internal/fault"
	"shaver/internal/model"
	"shaver/internal/picture"
	"shaver/internal/scores"
	"shaver/internal/sweep"
)

// Facts is what a report tells of. Names in it are foreign: the page has them escaped.
type Facts struct {
	Architecture *model.Architecture
	Entries      []float32 // the embedding table, [n, d]
	Scores       *scores.File
	Digest       string // SHA-256 of the scores file
	Aggregate    string // of the scores, which ranks entries
	Run          *Run   // what the job took; nil = nobody knows
	Ended        string // how a job ended that was to end by a rule or in time; "" = it was not
	Sweep        *sweep.Document
	Ends         []Ends // of each field, [m]; nil = not told
}

// Run is what a job took.
type Run struct {
	Seconds, CPUSeconds float64
	Shards, Workers     int
}

// Ends are the features of a field that are worth most and least, of those that
// occur.
type Ends struct{ Top, Bottom []Feature }

// Feature is one of them.
type Feature struct {
	Name  string
	Count int64   // rows
	Worth float64 // sum of the aggregate over its entries, nat
}

// Sparsities are those of a report on scores without a sweep.
var Sparsities = []float64{.5, .8, .9, .95, .99}

// Check returns bad input if the sweep is none of the model and the scores.
func (f *Facts) Check() error {
	d := f.Sweep
	if d == nil {
		return nil
	}
	if d.Model != f.Scores.Spec.Model {
		return fault.Inputf("the sweep is of another model: its digest is %.12s, that of the scores' %.12s", d.Model, f.Scores.Spec.Model)
	}
	var jobs []string
	for _, s := range d.Sources {
		if s.Job == f.Scores.Spec.ID() {
			return nil
		}
		jobs = append(jobs, s.Job)
	}
	return fault.Inputf("the sweep is not of job %s, whose scores these are, but of %s", f.Scores.Spec.ID(), strings.Join(jobs, ", "))
}

// Report is a page and its pictures.
type Report struct {
	HTML     []byte
	Pictures []*picture.Picture
}

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	styleText string
)

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"count": func(n any) string { return count(reflect.ValueOf(n).Int()) }, "percent": percent, "number": number, "value": value, "worth": func(v float64) string { return fmt.Sprintf("%+.3g", v) },
}).Parse(pageText))

// document is what the page's template reads.
type document struct {
	Style     template.CSS
	Title     string
	Summary   []fact
	Sweep     *sweepSection
	Fields    *fieldsSection
	Frequency *frequencySection
	Ends      []endsRow
	Certainty *certaintySection
	Job       []fact
}

// fact is a line of a list.
type fact struct{ Name, Value, Note string }

// figure is a picture on the page.
type figure struct {
	Panels []template.HTML
	Keys   []figureKey
}

type figureKey struct {
	Label string
	Shape template.HTML
}

func figureOf(p *picture.Picture) figure {
	panels, keys := p.Inline()
	var f figure
	for _, svg := range panels {
		f.Panels = append(f.Panels, template.HTML(svg)) // escaped by picture
	}
	for _, k := range keys {
		f.Keys = append(f.Keys, figureKey{k.Label, template.HTML(k.SVG)})
	}
	return f
}

// Write returns the report of facts that Check takes.
func Write(f *Facts) (*Report, error) {
	found, err := analyse(f)
	if err != nil {
		return nil, err
	}
	d := document{Style: template.CSS(styleText), Title: f.title(), Summary: f.summary(), Job: f.job()}
	var pictures []*picture.Picture
	show := func(p *picture.Picture) figure {
		pictures = append(pictures, p)
		return figureOf(p)
	}
	if f.Sweep != nil {
		d.Sweep = sweepOf(f.Sweep, show)
	}
	d.Fields, d.Frequency, d.Certainty = f.fieldsOf(found, show), f.frequencyOf(found, show), f.certaintyOf(found, show)
	for j, e := range f.Ends {
		d.Ends = append(d.Ends, endsRow{f.Scores.Fields[j], e})
	}
	var html bytes.Buffer
	if err := page.Execute(&html, &d); err != nil {
		return nil, err
	}
	return &Report{html.Bytes(), pictures}, nil
}

type endsRow struct {
	Name string
	Ends
}

func (f *Facts) title() string {
	return fmt.Sprintf("%s, %s features × %d", f.Architecture.Kind, count(len(f.Scores.Count)), f.Scores.Dim)
}
