package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/launch"
	"shaver/internal/app/reporting"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/chart"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
	"shaver/internal/prune/report"
	"shaver/internal/prune/sweep"
)

type reportOptions struct {
	reporting.Input
	aggregate     string
	out, pictures string
	outputs       cli.Outputs
	output        cli.Output
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
		Long:    help.Text("report"),
		Example: help.Text("report.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE: cli.Run(func(c *cobra.Command, _ []string) error {
			for name, v := range map[string]float64{"auc-tolerance": o.Tolerance.AUC, "log-loss-tolerance": o.Tolerance.LogLoss} {
				if !(v >= 0 && v <= 1) {
					return fault.Usagef("--%s %v: expected a number from 0 to 1", name, v)
				}
				if c.Flags().Changed(name) && o.Sweep == "" {
					return fault.Usagef("--%s needs --sweep", name)
				}
			}
			return o.run(c)
		}, o.output.Check),
	}
	f := c.Flags()
	flags.Model(c, &o.Model, "checkpoint `file` that was scored")
	flags.ModelOutput(c, &o.ModelOutput)
	flags.Scores(c, &o.Scores)
	f.StringVar(&o.Sweep, "sweep", "", "`file` with the output of shaver sweep -o json for these scores")
	cli.Files(c, "sweep", "json")
	f.StringVar(&o.Path, "path", "", "`file` of shaver prune --path for this model (default none)")
	cli.Files(c, "path", "json")
	flags.Dataset(c, &o.Folders, "dataset `folder` that was scored, for the names of features and for what the model memorises")
	flags.Aggregate(c, &o.aggregate)
	f.Lookup("aggregate").DefValue = "that of the recommended table, or " + o.aggregate
	flags.Out(c, &o.out, "HTML `file` to write", "html")
	f.Float64Var(&o.Tolerance.AUC, "auc-tolerance", sweep.DefaultTolerance.AUC, "decrease of AUC that a table may have")
	f.Float64Var(&o.Tolerance.LogLoss, "log-loss-tolerance", sweep.DefaultTolerance.LogLoss, "increase of LogLoss that a table may have, nat")
	f.StringVar(&o.pictures, "pictures", "", "`folder` for the pictures as "+chart.Extension+" files (default none)")
	cli.Folder(c, "pictures")
	o.outputs.Flag(c, "a page of another model and files that shaver did not write at --out and in --pictures")
	o.output.Flag(c)
	cli.Group(c, "Files", "model", "scores", "sweep", "path", "dataset", "out", "pictures", "force")
	cli.Group(c, "Recommendation", "aggregate", "auc-tolerance", "log-loss-tolerance")
	cli.MarkRequired(c, "model", "scores", "out")
	return c
}

// otherPage is the obstacle of a page that is not of the same thing. Pages of older programs do not
// say what they are of.
func otherPage(of string) cli.Obstacle {
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

func (o *reportOptions) run(c *cobra.Command) error {
	o.outputs.Inputs(checkpoint.Files(o.Model)...)
	o.outputs.Inputs(o.Scores, launch.ReportPath(o.Scores), o.Sweep, o.Path)
	if len(o.Folders) > 0 {
		o.outputs.Inputs(dataset.Files(o.Folders...)...)
	}
	if err := o.outputs.Check("--out", o.out, cli.Unless(report.Written, "a page"), ".html"); err != nil {
		return err
	}
	if c.Flags().Changed("pictures") && o.pictures == "" {
		return fault.Usagef(`--pictures "": expected the name of a folder`)
	}
	if c.Flags().Changed("aggregate") {
		o.Aggregate = o.aggregate
	}
	o.Warn = cli.Warn
	facts, err := o.Facts(c.Context())
	if err != nil {
		return err
	}
	if err := o.outputs.Check("--out", o.out, otherPage(report.OfModel+facts.Scores.Spec.Model)); err != nil {
		return err
	}
	r, err := report.Write(facts)
	if err != nil {
		return err
	}
	result := written{Out: o.out, Bytes: len(r.HTML), Pictures: []string{}}
	if o.pictures != "" {
		if err := os.MkdirAll(o.pictures, 0o777); err != nil {
			return fault.Usagef("--pictures: %w", err)
		}
		for _, p := range r.Pictures {
			path := filepath.Join(o.pictures, p.Name+chart.Extension)
			if err := o.outputs.Check("--pictures", path, cli.Unless(chart.Written, "a picture")); err != nil {
				return err
			}
			result.Pictures = append(result.Pictures, path)
		}
		for i, path := range result.Pictures {
			if err := r.Pictures[i].Write(path); err != nil {
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
