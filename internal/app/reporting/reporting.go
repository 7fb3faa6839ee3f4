// Package reporting reads what the report about scores shows: the model, the scores, the report of
// their job, a sweep, and the names of features.
package reporting

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaver/internal/app/cli"
	"shaver/internal/app/launch"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/chart"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/gap"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/explain"
	"shaver/internal/prune/report"
	"shaver/internal/prune/slice"
	"shaver/internal/prune/sweep"
	"shaver/internal/prune/worth"
	"shaver/internal/value/mask"
)

// Input names the files of a report.
type Input struct {
	Model, Scores string
	ModelOutput   string   // output of the model, if it is an .onnx file with several
	Sweep         string   // output of a sweep, or ""
	Path          string   // path over the fields and columns, or ""
	Folders       []string // dataset that was scored, for the names of features and the gap; it may be empty
	Aggregate     string   // "" = that of the recommended table, or of the scores
	Within        sweep.Bound
	Shipped       *report.Shipped
	Pruned, Last  string            // compact files of this night and of the one before, to compare what they keep; both may be ""
	Warn          func(text string) // takes a warning; may be nil
}

// Facts reads everything that the report shows, and measures its gap.
func (o *Input) Facts(ctx context.Context) (*report.Facts, error) {
	p, err := o.open()
	if err != nil {
		return nil, err
	}
	s := p.Scores[0]
	f := &report.Facts{Architecture: &p.Checkpoint.Architecture, Entries: p.Table, Scores: s, Aggregate: o.Aggregate, Within: o.Within, Shipped: o.Shipped, Program: cli.Program()}
	if o.Path != "" {
		if f.Path, err = slice.ReadPath(o.Path); err != nil {
			return nil, err
		}
		if err := f.Check(); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Path, err)
		}
	}
	if f.Digest, err = files.Digest(o.Scores); err != nil {
		return nil, err
	}
	if f.Run, err = readRun(o.Scores, f.Digest); err != nil {
		return nil, err
	}
	if s.Spec.OfFields() {
		if o.Sweep != "" || o.Aggregate != "" {
			return nil, fault.Usagef("%s has the values of fields, by which no sweep and no aggregate rank entries: leave --sweep and --aggregate out", o.Scores)
		}
		return f, nil
	}
	if o.Sweep != "" {
		if f.Sweep, err = sweep.Read(o.Sweep); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Sweep, err)
		}
		if err := f.Check(); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Sweep, err)
		}
		if err := p.Checkpoint.Apart(f.Sweep.Dataset, f.Sweep.Split, checkpoint.Judge); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Sweep, err)
		}
		if d := s.Spec.Dataset; f.Sweep.Dataset != d && o.Warn != nil {
			o.Warn(fmt.Sprintf("%s measured the dataset with the digest %.12s, but %s has scores of the dataset with the digest %.12s", o.Sweep, f.Sweep.Dataset, o.Scores, d))
		}
	}
	if o.Aggregate == "" {
		f.Aggregate = cmp.Or(f.Recommended(), s.DefaultAggregate())
	}
	values, err := s.Aggregate(f.Aggregate)
	if err != nil {
		return nil, fault.Usagef("--aggregate: %w", err)
	}
	dropped, err := f.Dropped()
	if err != nil {
		return nil, err
	}
	d, err := worth.OpenScored(p, o.Folders)
	if err != nil {
		return nil, err
	}
	name, err := worth.Names(d)
	if err != nil {
		return nil, err
	}
	ranked := worth.Ranked(p, values, name, dropped)
	if f.Ends = ends(ranked, f); o.Last != "" {
		f.Since = filepath.Base(filepath.Dir(o.Last))
		if f.Changes, err = o.changes(p, ranked); err != nil {
			return nil, err
		}
	}
	if d == nil {
		return f, nil
	}
	f.Tables = d.Tables
	m, err := p.Checkpoint.Model()
	if err != nil {
		return nil, err
	}
	m = m.WithEmbedding(p.Table)
	if d.Rows(dataset.Test) > 0 && len(s.Spec.Tasks) < 2 {
		pruned := m.WithEmbedding(mask.Apply(f.Architecture, p.Table, dropped, s.Baseline))
		f.Row, err = explain.Rows(ctx, []explain.Subject{{Model: pruned, Dataset: d}, {Model: m, Dataset: d}}, name, s.Spec.Loss, dataset.Test, nil, explain.Background)
		if fault.IsInput(err) && o.Warn != nil {
			o.Warn("the page explains no row: " + err.Error())
		} else if err != nil {
			return nil, err
		}
	}
	f.Gap, err = gap.Measure(ctx, m, d, &s.Spec, s.Baseline)
	return f, err
}

// open opens the model and the scores, which may also be the values of fields.
func (o *Input) open() (*cut.Source, error) {
	head, err := scores.ReadHead(o.Scores)
	if err != nil {
		return nil, err
	}
	if !head.Spec.OfFields() {
		return cut.Open(o.Model, o.ModelOutput, o.Scores)
	}
	f, err := scores.Read(o.Scores)
	if err != nil {
		return nil, err
	}
	p, err := cut.OpenFor(o.Model, o.ModelOutput, []*scores.File{f})
	if err != nil {
		return nil, err
	}
	if digest := p.Checkpoint.Digest(); f.Spec.Model != digest {
		return nil, fault.Inputf("%s and %s: the values were computed for another model, with digest %.12s; the digest of this model is %.12s", o.Scores, o.Model, f.Spec.Model, digest)
	}
	p.Scores = []*scores.File{f}
	return p, nil
}

// ends returns some features of each field.
func ends(ranked [][]worth.Feature, f *report.Facts) (all []report.Ends) {
	list := func(some []worth.Feature) (features []report.Feature) {
		for _, x := range some {
			of := named(&x)
			if !f.Scores.Ranks() {
				of.Worth = &x.Worth
			}
			features = append(features, of)
		}
		return features
	}
	for _, features := range ranked {
		top, bottom := worth.Ends(features, 3)
		e := report.Ends{Top: list(top), Bottom: list(bottom), Occur: len(features)}
		for i := range features {
			e.Alive += min(features[i].Kept, 1)
		}
		all = append(all, e)
	}
	return all
}

// named returns a feature by its name, or by its id without one.
func named(x *worth.Feature) report.Feature {
	name := x.Name
	if name == "" {
		name = "id " + strconv.Itoa(x.ID)
	}
	return report.Feature{Name: name, Count: x.Count, Kept: x.Kept}
}

// mostChanged bounds the names of features in report.Changes.
const mostChanged = 4

// changes compares which features keep an entry in Pruned and in Last. A feature that Last lacks is no change.
func (o *Input) changes(p *cut.Source, ranked [][]worth.Feature) ([]report.Changes, error) {
	before, err := kept(p, o.Last)
	if err != nil {
		return nil, err
	}
	now, err := kept(p, o.Pruned)
	if err != nil {
		return nil, err
	}
	all := make([]report.Changes, len(ranked))
	for j, features := range ranked {
		c := &all[j]
		for id, is := range now[j] {
			switch was := before[j][id]; {
			case was == mask.WasKept && is == mask.WasDropped:
				c.Gone++
			case was == mask.WasDropped && is == mask.WasKept:
				c.Back++
			}
		}
		slices.SortFunc(features, func(x, y worth.Feature) int { return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.ID, y.ID)) })
		for i := range features {
			switch x := &features[i]; {
			case before[j][x.ID] == mask.WasKept && now[j][x.ID] == mask.WasDropped && len(c.MostGone) < mostChanged:
				c.MostGone = append(c.MostGone, named(x))
			case before[j][x.ID] == mask.WasDropped && now[j][x.ID] == mask.WasKept && len(c.MostBack) < mostChanged:
				c.MostBack = append(c.MostBack, named(x))
			}
		}
	}
	return all, nil
}

// kept returns what a compact file keeps of the features of each field: WasKept if it keeps an entry, and WasDropped if it has the
// feature and keeps none.
func kept(p *cut.Source, file string) ([][]mask.Choice, error) {
	choices, err := p.Choices(file)
	if err != nil {
		return nil, err
	}
	all := make([][]mask.Choice, p.Checkpoint.Architecture.Fields())
	for _, span := range p.Checkpoint.Architecture.Spans() {
		of := &all[span.Field]
		if *of == nil {
			*of = slices.Repeat([]mask.Choice{mask.WasDropped}, span.Rows)
		}
		for id := range span.Rows {
			(*of)[id] = max((*of)[id], slices.Max(choices[span.Entry+id*span.Dim:][:span.Dim]))
		}
	}
	return all, nil
}

// readRun reads the report of the job, which is next to the scores. It returns nil if the
// file does not exist.
func readRun(scoresFile, digest string) (*report.Run, error) {
	path := launch.ReportPath(scoresFile)
	data, err := files.Small(path, 64, "the report of a job")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var r launch.JobReport
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fault.Inputf("%s is not the report of a job: %w", path, err)
	}
	if r.Digests.Scores != digest {
		return nil, fault.Inputf("%s is the report of other scores, with digest %.12s: expected that of %s, %.12s", path, r.Digests.Scores, scoresFile, digest)
	}
	if r.Shards == 0 { // the run that computed the scores ended before it wrote a report
		return nil, nil
	}
	run := &report.Run{Seconds: r.Seconds, CPUSeconds: r.CPUSeconds, Resumed: r.Resumed, Shards: r.Shards, Workers: len(r.Workers), Program: r.Program}
	if r.Finished != "" {
		if run.Finished, err = time.Parse(time.RFC3339, r.Finished); err != nil {
			return nil, fault.Inputf("%s: finished: %w", path, err)
		}
	}
	return run, nil
}

// Options say what the step report writes.
type Options struct {
	Input
	Out, Pictures string // page, and folder for its pictures or ""
	Outputs       cli.Outputs
	Given         cli.Given
}

// New returns the defaults of a report.
func New() *Options { return &Options{Input: Input{Within: sweep.DefaultBound, Warn: cli.Warn}} }

// Written says what Run wrote.
type Written struct {
	Out      string   `json:"out"`
	Bytes    int      `json:"bytes"`
	Pictures []string `json:"pictures"`
}

// OtherPage is the obstacle of a page that is not of the same thing. Pages of older programs do not
// say what they are of.
func OtherPage(of string) cli.Obstacle {
	return func(path string) string {
		there := report.Of(path)
		model, isModel := strings.CutPrefix(there, report.OfModel)
		switch {
		case there == "" || there == of:
			return ""
		case isModel:
			return fmt.Sprintf("is the report about another model, with the digest %.12s", model)
		}
		return "is a page about another thing, " + there
	}
}

// Run writes the page and its pictures.
func (o *Options) Run(ctx context.Context) (*Written, error) {
	if err := sweep.CheckBounds(float64(o.Within)); err != nil {
		return nil, fault.Usagef("--within %v", err)
	}
	if o.Given.Has("within") && o.Sweep == "" {
		return nil, fault.Usagef("--within needs --sweep")
	}
	o.Outputs.Inputs(checkpoint.Files(o.Model)...)
	o.Outputs.Inputs(o.Scores, launch.ReportPath(o.Scores), o.Sweep, o.Path)
	if len(o.Folders) > 0 {
		o.Outputs.Inputs(dataset.Files(o.Folders...)...)
	}
	if err := o.Outputs.Check("--out", o.Out, cli.Unless(report.Written, "a page"), ".html"); err != nil {
		return nil, err
	}
	if o.Given.Has("pictures") && o.Pictures == "" {
		return nil, fault.Usagef(`--pictures "": expected the name of a folder`)
	}
	facts, err := o.Facts(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.Outputs.Check("--out", o.Out, OtherPage(report.OfModel+facts.Scores.Spec.Model)); err != nil {
		return nil, err
	}
	r, err := report.Write(facts)
	if err != nil {
		return nil, err
	}
	result := &Written{Out: o.Out, Bytes: len(r.HTML), Pictures: []string{}}
	if o.Pictures != "" {
		if err := os.MkdirAll(o.Pictures, 0o777); err != nil {
			return nil, fault.Usagef("--pictures: %w", err)
		}
		for _, p := range r.Pictures {
			path := filepath.Join(o.Pictures, p.Name+chart.Extension)
			if err := o.Outputs.Check("--pictures", path, cli.Unless(chart.Written, "a picture")); err != nil {
				return nil, err
			}
			result.Pictures = append(result.Pictures, path)
		}
		for i, path := range result.Pictures {
			if err := r.Pictures[i].Write(path); err != nil {
				return nil, err
			}
		}
	}
	if err := atomicfile.Write(o.Out, func(w io.Writer) error { _, err := w.Write(r.HTML); return err }); err != nil {
		return nil, err
	}
	return result, nil
}
