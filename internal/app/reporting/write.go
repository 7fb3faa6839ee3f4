package reporting

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"shaver/internal/app/cli"
	"shaver/internal/app/launch"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
	"shaver/internal/prune/picture"
	"shaver/internal/prune/report"
	"shaver/internal/prune/sweep"
)

// Options say what the step report writes.
type Options struct {
	Input
	Out, Pictures string // page, and folder for its pictures or ""
	Outputs       cli.Outputs
	Given         cli.Given
}

// New returns the defaults of a report.
func New() *Options { return &Options{Input: Input{Tolerance: sweep.DefaultTolerance, Warn: cli.Warn}} }

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
	for _, t := range []struct {
		name  string
		value float64
	}{{"auc-tolerance", o.Tolerance.AUC}, {"log-loss-tolerance", o.Tolerance.LogLoss}} {
		if !(t.value >= 0 && t.value <= 1) {
			return nil, fault.Refuse(t.name, t.value, "expected a number from 0 to 1")
		}
		if o.Given.Has(t.name) && o.Sweep == "" {
			return nil, fault.Usagef("--%s needs --sweep", t.name)
		}
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
			for _, format := range picture.Formats() {
				path := filepath.Join(o.Pictures, p.Name+format)
				if err := o.Outputs.Check("--pictures", path, cli.Unless(picture.Written, "a picture")); err != nil {
					return nil, err
				}
				result.Pictures = append(result.Pictures, path)
			}
		}
		for i, path := range result.Pictures {
			if err := r.Pictures[i/len(picture.Formats())].Write(path); err != nil {
				return nil, err
			}
		}
	}
	if err := atomicfile.Write(o.Out, func(w io.Writer) error { _, err := w.Write(r.HTML); return err }); err != nil {
		return nil, err
	}
	return result, nil
}
