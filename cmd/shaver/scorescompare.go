package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/base/chart"
	"shaver/internal/base/fault"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/picture"
	"shaver/internal/value/compare"
)

// compareOptions are the flags of "scores compare".
type compareOptions struct {
	aggregate  string
	sparsities []float64
	picture    string
	outputs    cli.Outputs
	output     cli.Output
}

func scoresCompareCommand() *cobra.Command {
	var o compareOptions
	c := &cobra.Command{
		Use:   "compare A B",
		Short: "Compare two scores files",
		Long:  help.Text("scores-compare"),
		Example: `  shaver scores compare tuesday.arrow monday.arrow
  shaver scores compare walks.arrow fast.arrow --sparsities 0.9,0.99
  shaver scores compare tuesday.arrow monday.arrow --picture drift.svg`,
		ValidArgsFunction: cli.FileArgs("arrow"),
		Args:              cli.Args(cobra.ExactArgs(2)),
		RunE: cli.Run(func(c *cobra.Command, args []string) error {
			for _, t := range o.sparsities {
				if !(t >= 0 && t <= 1) {
					return fault.Usagef("--sparsities: sparsity %v is outside [0, 1]", t)
				}
			}
			o.outputs.Inputs(args...)
			if c.Flags().Changed("picture") {
				if err := o.outputs.Check("--picture", o.picture, cli.Unless(chart.Written, "a picture")); err != nil {
					return err
				}
			}
			if err := chart.Check(o.picture); err != nil {
				return err
			}
			options := scores.CompareOptions{Sparsities: o.sparsities}
			if c.Flags().Changed("aggregate") {
				options.Aggregate = o.aggregate
			}
			if o.picture != "" {
				options.Needs = "--picture"
			}
			result, err := scores.Compare(args[0], args[1], options)
			if err != nil {
				return err
			}
			if o.picture != "" {
				if err := drawComparison(args[0], args[1], result).Write(o.picture); err != nil {
					return err
				}
			}
			return o.output.Print(c.OutOrStdout(), result, func(w io.Writer) { comparisonTable(w, result) })
		}, o.output.Check),
	}
	flags.OneOf(c, &o.aggregate, "aggregate", scores.DefaultAggregate, "`aggregate` to compare: "+scores.AggregateHelp(), scores.Aggregates()...)
	flags.Portions(c, &o.sparsities, "sparsities", []float64{.5, .8, .9, .95, .99}, "`portions` of the entries to drop, separated by commas")
	flags.File(c, &o.picture, "picture", "`file` for a picture of both values and of the overlap: "+chart.Extension+" (default none)", "svg")
	o.outputs.Flag(c, "a file at --picture that is not a picture written by shaver")
	o.output.Flag(c)
	return c
}

// drawComparison returns the picture of a comparison.
func drawComparison(fileA, fileB string, r *scores.Comparison) *chart.Figure {
	const cells = 72
	left, right := r.Values()
	d := compare.NewDensity(left, right, cells)
	p := picture.Agreement{X: filepath.Base(fileB), Y: filepath.Base(fileA), Unit: r.Aggregate + ", nat", Low: d.Low, High: d.High, Count: d.Count}
	for _, t := range []float64{0, .25, .5, .7, .8, .85, .9, .93, .95, .97, .98, .99, .995, .999} {
		p.Overlap.X = append(p.Overlap.X, t)
		p.Overlap.Y = append(p.Overlap.Y, compare.Overlap(left, right, len(left), t))
	}
	return p.Draw()
}

func comparisonTable(w io.Writer, r *scores.Comparison) {
	for _, d := range r.Differ {
		fmt.Fprintf(w, "%s\t%s\t%s\n", d.Name, d.A, d.B)
	}
	fmt.Fprintf(w, "entries\t%d\n", r.Entries)
	if !r.Ordered {
		fmt.Fprintf(w, "relative RMS\t%s\n", figure(r.RelativeRMS, 1, "%.4f"))
	}
	fmt.Fprintf(w, "Spearman\t%s\n", figure(r.Spearman, 1, "%.4f"))
	if !r.Ordered {
		fmt.Fprintf(w, "shift\t%s\n", figure(r.Shift, 100, "%+.2f%%"))
		fmt.Fprintf(w, "beyond 2 SE\t%s\tof %d entries with standard errors\n", figure(r.Beyond, 100, "%.2f%%"), r.Known)
	}
	for _, o := range r.Overlap {
		fmt.Fprintf(w, "kept by both\t%.4f\tat sparsity %g\n", o.Portion, o.Sparsity)
	}
	if r.Ordered {
		fmt.Fprintln(w, "\nFIELD\tENTRIES\tSPEARMAN")
		for _, f := range r.Fields {
			fmt.Fprintf(w, "%s\t%d\t%s\n", cli.Printable(f.Field), f.Entries, figure(f.Spearman, 1, "%.4f"))
		}
		return
	}
	fmt.Fprintln(w, "\nFIELD\tENTRIES\tRELATIVE RMS\tSPEARMAN\tSHIFT\tBEYOND 2 SE")
	for _, f := range r.Fields {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", cli.Printable(f.Field), f.Entries, figure(f.RelativeRMS, 1, "%.4f"), figure(f.Spearman, 1, "%.4f"), figure(f.Shift, 100, "%+.2f%%"), figure(f.Beyond, 100, "%.2f%%"))
	}
}

// figure formats a figure times a factor, or "-" if it is not defined.
func figure(v *float64, factor float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v*factor)
}
