// Package report makes HTML pages. One kind of page shows the scores of a job and what
// pruning by them costs. The other kind shows what a dataset contains. A page is a single
// file. It has no scripts and loads nothing over the network. The same facts give the same
// bytes.
package report

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"shaver/internal/base/chart"
	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/gap"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/explain"
	"shaver/internal/prune/gate"
	"shaver/internal/prune/slice"
	"shaver/internal/prune/sweep"
)

// Facts is the content of a report. The names in it may be any text; the page escapes them.
type Facts struct {
	Architecture *model.Architecture
	Entries      []float32 // the embedding table, [n, d]
	Scores       *scores.File
	Digest       string            // SHA-256 of the scores file
	Aggregate    string            // aggregate by which entries are ranked: one of Scores.Aggregates
	Tables       []dataset.Table   // tables from which the rows are, as far as they are known
	Run          *Run              // time and resources of the job; nil = unknown
	Sweep        *sweep.Document   // results of pruning; nil = not measured
	Within       sweep.Bound       // how much worse than the unpruned model a table may be
	Shipped      *Shipped          // file that was made; nil = none
	Program      string            // name and version of the program that writes the page
	Ends         []Ends            // some features of each field, [m]; nil = not shown
	Changes      []Changes         // of each field, [m]; nil = there is nothing to compare with
	Since        string            // night with which Changes compare
	Path         *slice.Path       // path over the fields and columns of the model; nil = not shown
	Gap          *gap.Gap          // what the model memorises; nil = not shown
	Row          *explain.Document // one row, with the whole table and at Shown; nil = not shown
	order        []int32           // see ordered; nil = not yet known
	most         int               // number of entries of order that may be dropped
}

// Shipped is a file that was made from the model.
type Shipped struct {
	File          string         // name
	Bytes, Dense  int64          // sizes of the file, and of one with the whole model
	Kept, Entries int            // of the embedding table
	Rounded       bool           // some numbers have fewer than 32 bits
	Within        float64        // bound within which it is certain to be; 0 = it has a size that was asked for
	Check         *gate.Document // of the file
}

// Run holds the time and the resources that a job took.
type Run struct {
	Seconds, CPUSeconds float64
	Resumed             bool // an earlier run was interrupted, and its time is not included
	Shards, Workers     int
	Finished            time.Time // zero = unknown
	Program             string    // name and version of the program that ran the job; "" = unknown
}

// Ends holds features of a field, among those that occur: those that are worth most and least, or of a path those that stay longest and
// those that go first.
type Ends struct {
	Top, Bottom  []Feature
	Occur, Alive int // number of features that occur, and of those of them that keep an entry at Facts.Shown
}

// Changes says which features of a field keep no entry any more, and which keep one again, since an earlier night.
type Changes struct {
	Gone, Back         int       // numbers of features
	MostGone, MostBack []Feature // some of those that occur, the most frequent first; without Worth
}

// Feature is a feature in Ends and Changes.
type Feature struct {
	Name  string
	Count int64    // number of rows in which it occurs
	Worth *float64 // sum of the aggregate over its entries, nat; nil of a path
	Kept  int      // number of entries that it keeps at Facts.Shown
}

// Sparsities lists the sparsities that a report shows if there is no sweep.
var Sparsities = []float64{.5, .8, .9, .95, .99}

// Check returns bad input unless the sweep and the path are nil or belong to the model, and the sweep to the scores. A
// sweep without scores, of models alone, belongs to all scores of its model.
func (f *Facts) Check() error {
	if p := f.Path; p != nil && p.Model != f.Scores.Spec.Model {
		return fault.Inputf("the path is of the model with digest %.12s, the scores are for the model with digest %.12s", p.Model, f.Scores.Spec.Model)
	}
	d := f.Sweep
	if d == nil {
		return nil
	}
	if d.Model != f.Scores.Spec.Model {
		return fault.Inputf("the sweep is for the model with digest %.12s, the scores are for the model with digest %.12s", d.Model, f.Scores.Spec.Model)
	}
	if slices.ContainsFunc(d.Points, func(p sweep.Point) bool { return p.Difference == nil }) {
		return fault.Inputf("the sweep has no 95%% intervals, because an older program wrote it: run shaver sweep again")
	}
	if len(d.Sources) == 0 {
		return nil
	}
	var jobs []string
	for _, s := range d.Sources {
		if s.Job == f.Scores.Spec.ID() {
			return nil
		}
		jobs = append(jobs, s.Job)
	}
	return fault.Inputf("the scores are of job %s, but the sweep has only the scores of job %s", f.Scores.Spec.ID(), strings.Join(jobs, ", "))
}

// Recommended returns the aggregate of the scores by which the table that the report
// recommends is ranked. It returns "" if the report recommends none, or one that does not
// rank by these scores.
func (f *Facts) Recommended() string {
	if f.Sweep == nil {
		return ""
	}
	p := f.Sweep.Decide(f.Within)
	if p == nil || p.Source == nil || f.Sweep.Sources[*p.Source].Job != f.Scores.Spec.ID() {
		return ""
	}
	aggregate, _ := f.Sweep.AggregateOf(p) // which Parse has checked
	return aggregate
}

// Report is a page and the pictures on it.
type Report struct {
	HTML     []byte
	Pictures []*chart.Figure
}

//go:embed job.html
var jobText string

var jobPage = pageOf(jobText + removalsText)

// document is the input of the template job.html.
type document struct {
	frame
	Warnings  []string
	Answer    *answerSection
	Curves    *curvesSection
	Quality   *qualitySection
	Fields    *fieldsSection
	Frequency *frequencySection
	Ends      []endsRow
	Summed    string            // what Ends adds up over the entries of a feature
	Shown     float64           // see Facts.Shown
	Changes   *changesSection   // nil without Facts.Changes
	Gap       *gapSection       // nil without Facts.Gap
	Row       *rowSection       // nil without Facts.Row
	Certainty *certaintySection // nil for a path, which has no values
	Rounds    *roundsSection    // of a path; nil for other scores
	Removals  *removalsSection  // nil without a path over fields and columns
	Job       []fact
}

// Write returns the report of f, for which Check must return nil.
func Write(f *Facts) (*Report, error) {
	if f.Scores.Spec.OfFields() {
		return writeFieldValues(f)
	}
	found, err := analyse(f)
	if err != nil {
		return nil, err
	}
	var c *comparison
	if f.Sweep != nil {
		c = compare(f.Sweep, f.Within)
	}
	d := document{frame: frame{Of: OfModel + f.Scores.Spec.Model, Kind: "Pruning report", Title: f.title(), Summary: f.summary()}, Warnings: f.warnings(), Job: f.job()}
	var pictures []*chart.Figure
	show := func(p *chart.Figure) chart.Inline {
		pictures = append(pictures, p)
		return p.Inline()
	}
	if c != nil {
		d.Curves, d.Quality = c.curves(show), c.quality(show)
		d.Answer = c.answer(f, d.Quality)
	}
	if f.Row != nil {
		d.Row = f.rowOf(show)
	}
	d.Fields, d.Frequency = f.fieldsOf(found, show), f.frequencyOf(found, show)
	if f.Scores.Ranks() {
		d.Rounds = f.roundsOf()
	} else {
		d.Certainty = f.certaintyOf(found, show)
	}
	if f.Gap != nil {
		d.Gap = f.gapOf()
	}
	if f.Path != nil {
		d.Removals = removalsOf(f.Path, show)
	}
	d.Shown = found.sparsities[found.shown]
	for j, e := range f.Ends {
		d.Ends, d.Summed = append(d.Ends, endsRow{f.Scores.Fields[j], e}), summed[f.Aggregate]
	}
	d.Changes = f.changesOf()
	d.Links = d.links()
	html, err := render(jobPage, &d)
	if err != nil {
		return nil, err
	}
	return &Report{html, pictures}, nil
}

// warnings returns what is probably wrong with the scores, or with the model of the sweep.
func (f *Facts) warnings() (all []string) {
	if text := f.Scores.Warning(); text != "" {
		all = append(all, text)
	}
	if text := f.Gap.Warning(&f.Scores.Spec); text != "" {
		all = append(all, text)
	}
	if f.Sweep != nil && f.Sweep.Doubt != "" {
		all = append(all, "the unpruned model "+f.Sweep.Doubt)
	}
	return all
}

// links returns links to the sections that the page has.
func (d *document) links() []link {
	var all []link
	for _, part := range []struct {
		link
		shown bool
	}{
		{link{"answer", "Answer"}, d.Answer != nil},
		{link{"curves", "Rankings"}, d.Curves != nil},
		{link{"quality", "Losses"}, d.Quality != nil},
		{link{"row", "One row"}, d.Row != nil},
		{link{"fields", "Fields"}, true},
		{link{"frequency", "Frequency"}, true},
		{link{"changes", "Changes"}, d.Changes != nil},
		{link{"gap", "Memory"}, d.Gap != nil},
		{link{"certainty", "Certainty"}, d.Certainty != nil},
		{link{"rounds", "Rounds"}, d.Rounds != nil},
		{link{"removals", "Path"}, d.Removals != nil},
		{link{"job", "Job"}, true},
	} {
		if part.shown {
			all = append(all, part.link)
		}
	}
	return all
}

// changesSection is what changed since an earlier night.
type changesSection struct {
	Since      string
	Gone, Back int          // features of all fields
	Rows       []changesRow // of the fields with changes
}

type changesRow struct {
	Name string
	Changes
}

// Rest returns how many of n features are not listed.
func (changesRow) Rest(n int, listed []Feature) int { return n - len(listed) }

// changesOf returns what changed, or nil if there is nothing to compare with.
func (f *Facts) changesOf() *changesSection {
	if f.Changes == nil {
		return nil
	}
	s := &changesSection{Since: oneLine(f.Since)}
	for j, c := range f.Changes {
		if s.Gone, s.Back = s.Gone+c.Gone, s.Back+c.Back; c.Gone+c.Back > 0 {
			s.Rows = append(s.Rows, changesRow{f.Scores.Fields[j], c})
		}
	}
	return s
}

type endsRow struct {
	Name string
	Ends
}

func (f *Facts) title() string {
	a := f.Architecture
	if a.Plain() {
		return fmt.Sprintf("%s, %s features × %d", a.Kind, count(a.Features()), a.Dim)
	}
	return fmt.Sprintf("%s, %s features, %s parameters", a.Kind, count(a.Features()), count(a.Parameters()))
}
