// Package report writes what a job found and what pruning by it costs, or what a
// dataset holds, as one HTML page that needs nothing beside it: no network, no script,
// no other file. The same facts give the same bytes.
package report

import (
	_ "embed"
	"fmt"
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
	Sweep        *sweep.Document
	Ends         []Ends // of each field, [m]; nil = not told
}

// Run is what a job took.
type Run struct {
	Seconds, CPUSeconds float64
	Resumed             bool // and what a run took before that was cut off
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

//go:embed job.html
var jobText string

var jobPage = pageOf(jobText)

// document is what the page's template reads.
type document struct {
	frame
	Sweep     *sweepSection
	Fields    *fieldsSection
	Frequency *frequencySection
	Ends      []endsRow
	Certainty *certaintySection
	Job       []fact
}

// Write returns the report of facts that Check takes.
func Write(f *Facts) (*Report, error) {
	found, err := analyse(f)
	if err != nil {
		return nil, err
	}
	d := document{frame: frame{Title: f.title(), Summary: f.summary()}, Job: f.job()}
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
	html, err := render(jobPage, &d)
	if err != nil {
		return nil, err
	}
	return &Report{html, pictures}, nil
}

type endsRow struct {
	Name string
	Ends
}

func (f *Facts) title() string {
	return fmt.Sprintf("%s, %s features × %d", f.Architecture.Kind, count(len(f.Scores.Count)), f.Scores.Dim)
}
