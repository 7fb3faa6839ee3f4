package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"shaver/internal/cli"
	"shaver/internal/compare"
	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/scores"
)

// comparison is what "scores compare" prints. It covers the entries of the features
// that occur in the rows of both jobs.
type comparison struct {
	Aggregate   string           `json:"aggregate"`
	Entries     int              `json:"entries"`
	RelativeRMS *float64         `json:"relative_rms"` // root mean square of the difference, relative to the second file's; null if that is 0
	Spearman    *float64         `json:"spearman"`     // rank correlation of the magnitudes; null if all are equal
	Overlap     []overlapAt      `json:"overlap"`
	Differ      []job.Difference `json:"differ"` // settings in which the two jobs differ
}

// overlapAt is the agreement of the kept entries at a sparsity.
type overlapAt struct {
	Sparsity float64 `json:"sparsity"`
	Portion  float64 `json:"portion"` // share of the entries kept by one file that the other keeps too
}

func scoresCompareCommand() *cobra.Command {
	var out cli.Output
	var aggregate string
	var sparsities []float64
	c := &cobra.Command{
		Use:   "compare A B",
		Short: "Compare two scores files",
		Long: `Compare the scores of A with those of B, for example last night's with
tonight's, or those of two estimators. The tables must have the same size. The
command prints the settings in which the jobs differ, the difference relative to
B, the rank correlation of the magnitudes, and the portion of the entries kept
by A that B keeps too. Only features that occur in the rows of both jobs count.`,
		Example: `  shaver scores compare monday.arrow tuesday.arrow
  shaver scores compare walks.arrow fast.arrow --sparsities 0.9,0.99`,
		ValidArgsFunction: cli.FileArgs("arrow"),
		Args:              cli.Args(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			for _, t := range sparsities {
				if !(t >= 0 && t <= 1) {
					return fault.Usagef("--sparsities: sparsity %v is outside [0, 1]", t)
				}
			}
			result, err := compareScores(args[0], args[1], aggregate, sparsities)
			if err != nil {
				return err
			}
			return out.Print(c.OutOrStdout(), result, result.table)
		},
	}
	c.Flags().StringVar(&aggregate, "aggregate", scores.DefaultAggregate, "`aggregate` to compare: "+scores.AggregateHelp())
	cli.OneOf(c, "aggregate", scores.Aggregates()...)
	portionsFlag(c, &sparsities, "sparsities", []float64{.5, .8, .9, .95, .99}, "`portions` of the entries to drop, separated by commas")
	out.Flag(c)
	return c
}

func compareScores(fileA, fileB, aggregate string, sparsities []float64) (*comparison, error) {
	a, err := scores.Read(fileA)
	if err != nil {
		return nil, err
	}
	b, err := scores.Read(fileB)
	if err != nil {
		return nil, err
	}
	if !a.Layout.SameLayout(&b.Layout) {
		return nil, fault.Inputf("%s has fields of %v features and %s, %s has %v and %s: expected the same tables", fileA, a.Layout.FieldDims, a.Layout.Size(), fileB, b.Layout.FieldDims, b.Layout.Size())
	}
	x, err := a.Aggregate(aggregate)
	if err != nil {
		return nil, fault.Usagef("%w", err)
	}
	y, err := b.Aggregate(aggregate)
	if err != nil {
		return nil, fault.Usagef("%w", err)
	}
	var left, right []float64
	for f := range a.Count {
		if a.Count[f] > 0 && b.Count[f] > 0 {
			from, to := a.Shape.Row(f)
			left = append(left, x[from:to]...)
			right = append(right, y[from:to]...)
		}
	}
	if len(left) == 0 {
		return nil, fault.Inputf("%s and %s: no feature occurs in the rows of both", fileA, fileB)
	}
	r := &comparison{
		Aggregate: aggregate, Entries: len(left), Differ: job.Differences(&a.Spec, &b.Spec),
		RelativeRMS: scores.Figure(compare.RelativeRMS(left, right)), Spearman: scores.Figure(compare.Spearman(left, right)),
	}
	for _, t := range sparsities {
		r.Overlap = append(r.Overlap, overlapAt{t, compare.Overlap(left, right, t)})
	}
	return r, nil
}

func (r *comparison) table(w io.Writer) {
	number := func(v *float64, format string) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf(format, *v)
	}
	for _, d := range r.Differ {
		fmt.Fprintf(w, "%s\t%s\t%s\n", d.Name, d.A, d.B)
	}
	fmt.Fprintf(w, "entries\t%d\n", r.Entries)
	fmt.Fprintf(w, "relative RMS\t%s\n", number(r.RelativeRMS, "%.4f"))
	fmt.Fprintf(w, "Spearman\t%s\n", number(r.Spearman, "%.4f"))
	for _, o := range r.Overlap {
		fmt.Fprintf(w, "kept by both\t%.4f\tat sparsity %g\n", o.Portion, o.Sparsity)
	}
}
