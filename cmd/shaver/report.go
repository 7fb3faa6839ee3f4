package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/launch"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/picture"
	"shaver/internal/prune/report"
	"shaver/internal/prune/sweep"
	"shaver/internal/prune/worth"
)

type reportOptions struct {
	modelOutput                     string
	model, scores, sweep, aggregate string
	dataset                         []string
	out, pictures                   string
	outputs                         cli.Outputs
	tolerance                       sweep.Tolerance
	output                          cli.Output
}

// written is what "report" prints.
type written struct {
	Out      string   `json:"out"`
	Bytes    int      `json:"bytes"`
	Pictures []string `json:"pictures"`
}

func reportCommand() *cobra.Command {
	var o reportOptions
	c := &cobra.Command{
		Use:     "report",
		Short:   "Write an HTML report about scores and pruning",
		Long:    help("report"),
		Example: help("report.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			if err := o.output.Check(); err != nil {
				return err
			}
			for name, v := range map[string]float64{"auc-tolerance": o.tolerance.AUC, "log-loss-tolerance": o.tolerance.LogLoss} {
				if !(v >= 0 && v <= 1) {
					return fault.Usagef("--%s %v: expected a number from 0 to 1", name, v)
				}
				if c.Flags().Changed(name) && o.sweep == "" {
					return fault.Usagef("--%s needs --sweep", name)
				}
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	flags.Model(c, &o.model, "checkpoint `file` that was scored")
	flags.ModelOutput(c, &o.modelOutput)
	flags.Scores(c, &o.scores)
	f.StringVar(&o.sweep, "sweep", "", "`file` with the output of shaver sweep -o json for these scores")
	cli.Files(c, "sweep", "json")
	flags.Dataset(c, &o.dataset, "dataset `folder` that was scored, for the names of features")
	flags.Aggregate(c, &o.aggregate)
	f.Lookup("aggregate").DefValue = "that of the recommended table, or " + o.aggregate
	flags.Out(c, &o.out, "HTML `file` to write", "html")
	f.Float64Var(&o.tolerance.AUC, "auc-tolerance", sweep.DefaultTolerance.AUC, "decrease of AUC that a table may have")
	f.Float64Var(&o.tolerance.LogLoss, "log-loss-tolerance", sweep.DefaultTolerance.LogLoss, "increase of LogLoss that a table may have, nat")
	f.StringVar(&o.pictures, "pictures", "", "`folder` for the pictures as "+strings.Join(picture.Formats(), " and ")+" files (default none)")
	cli.Folder(c, "pictures")
	o.outputs.Flag(c, "files at --out and in --pictures that shaver did not write")
	o.output.Flag(c)
	cli.Group(c, "Files", "model", "scores", "sweep", "dataset", "out", "pictures", "force")
	cli.Group(c, "Recommendation", "aggregate", "auc-tolerance", "log-loss-tolerance")
	cli.MarkRequired(c, "model", "scores", "out")
	return c
}

func (o *reportOptions) run(c *cobra.Command) error {
	o.outputs.Inputs(checkpoint.Files(o.model)...)
	o.outputs.Inputs(o.scores, launch.ReportPath(o.scores), o.sweep)
	if len(o.dataset) > 0 {
		o.outputs.Inputs(dataset.Files(o.dataset...)...)
	}
	if err := o.outputs.Check("--out", o.out, cli.Unless(report.Written, "a page")); err != nil {
		return err
	}
	if c.Flags().Changed("pictures") && o.pictures == "" {
		return fault.Usagef(`--pictures "": expected the name of a folder`)
	}
	facts, err := o.facts(c)
	if err != nil {
		return err
	}
	r, err := report.Write(facts)
	if err != nil {
		return err
	}
	result := written{Out: o.out, Bytes: len(r.HTML), Pictures: []string{}}
	if o.pictures != "" {
		if err := os.MkdirAll(o.pictures, 0o755); err != nil {
			return fault.Usagef("--pictures: %w", err)
		}
		for _, p := range r.Pictures {
			for _, format := range picture.Formats() {
				path := filepath.Join(o.pictures, p.Name+format)
				if err := o.outputs.Check("--pictures", path, cli.Unless(picture.Written, "a picture")); err != nil {
					return err
				}
				result.Pictures = append(result.Pictures, path)
			}
		}
		for i, path := range result.Pictures {
			if err := r.Pictures[i/len(picture.Formats())].Write(path); err != nil {
				return err
			}
		}
	}
	if err := atomicfile.Write(o.out, func(w io.Writer) error { _, err := w.Write(r.HTML); return err }); err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), result, func(w io.Writer) {
		fmt.Fprintf(w, "report\t%s\t%d bytes\n", result.Out, result.Bytes)
		for _, path := range result.Pictures {
			fmt.Fprintf(w, "picture\t%s\n", path)
		}
	})
}

// facts reads everything that the report shows.
func (o *reportOptions) facts(c *cobra.Command) (*report.Facts, error) {
	p, err := cut.Open(o.model, o.modelOutput, o.scores)
	if err != nil {
		return nil, err
	}
	s := p.Scores[0]
	f := &report.Facts{Architecture: &p.Checkpoint.Architecture, Entries: p.Table, Scores: s, Aggregate: o.aggregate, Tolerance: o.tolerance, Program: cli.Program()}
	if f.Digest, err = scores.Digest(o.scores); err != nil {
		return nil, err
	}
	if f.Run, err = readRun(o.scores, f.Digest); err != nil {
		return nil, err
	}
	if o.sweep != "" {
		if f.Sweep, err = sweep.Read(o.sweep); err != nil {
			return nil, fmt.Errorf("%s: %w", o.sweep, err)
		}
		if err := f.Check(); err != nil {
			return nil, fmt.Errorf("%s: %w", o.sweep, err)
		}
	}
	if !c.Flags().Changed("aggregate") {
		f.Aggregate = cmp.Or(f.Recommended(), s.DefaultAggregate())
	}
	if !s.Ranks() {
		f.Ends, err = o.ends(p, f.Aggregate)
	}
	return f, err
}

// ends returns the most and the least valuable features of each field.
func (o *reportOptions) ends(p *cut.Source, aggregate string) ([]report.Ends, error) {
	ranked, err := rankedFeatures(p, aggregate, o.dataset, make([]bool, len(p.Table)))
	if err != nil {
		return nil, err
	}
	named := func(list []worth.Feature) (features []report.Feature) {
		for _, x := range list {
			name := x.Name
			if name == "" {
				name = "id " + strconv.Itoa(x.ID)
			}
			features = append(features, report.Feature{Name: name, Count: x.Count, Worth: x.Worth})
		}
		return features
	}
	var all []report.Ends
	for _, features := range ranked {
		top, bottom := worth.Ends(features, 3)
		all = append(all, report.Ends{Top: named(top), Bottom: named(bottom)})
	}
	return all, nil
}

// readRun reads the report of the job, which is next to the scores. It returns nil if the
// file does not exist.
func readRun(scoresFile, digest string) (*report.Run, error) {
	path := launch.ReportPath(scoresFile)
	data, err := files.Small(path, 64)
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
