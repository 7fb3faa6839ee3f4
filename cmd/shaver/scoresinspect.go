package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/click/model"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
)

func scoresInspectCommand() *cobra.Command {
	var out cli.Output
	c := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Print the job, the errors and the fields of a scores file",
		Long:  help.Text("scores-inspect"),
		Example: `  shaver scores inspect scores.arrow
  shaver scores inspect scores.arrow -o json`,
		ValidArgsFunction: cli.FileArgs("arrow"),
		Args:              cli.Args(cobra.ExactArgs(1)),
		RunE: cli.Run(func(c *cobra.Command, args []string) error {
			f, err := scores.Read(args[0])
			if err != nil {
				return err
			}
			facts, err := f.Facts()
			if err != nil {
				return err
			}
			return out.Print(c.OutOrStdout(), facts, func(w io.Writer) { scoresTable(w, facts) })
		}, out.Check),
	}
	out.Flag(c)
	return c
}

func scoresTable(w io.Writer, s *scores.Facts) {
	fmt.Fprintf(w, "job\t%s\n", s.Job)
	squared := ""
	if s.Spec.Loss == loss.Squared {
		squared = ", squared loss"
	}
	fmt.Fprintf(w, "estimator\t%s\t%s, seed %d, baseline %s%s\n", s.Spec.Estimator, scores.Effort(&s.Spec), s.Spec.Seed, s.Spec.Baseline, squared)
	if s.Words != "" {
		fmt.Fprintf(w, "words\t%s\n", cli.Printable(s.Words))
	}
	fmt.Fprintf(w, "rows\t%d\tof %d of %v\n", s.Rows, s.DatasetRows, s.Spec.Splits)
	upTo := ""
	if s.Spec.Tasks != nil { // rows lack labels
		upTo = "at most "
		fmt.Fprintf(w, "tasks\t%s\n", cli.Printable(model.TasksText(s.Spec.Tasks)))
	}
	if f := s.Spec.Fresh; f != nil {
		fmt.Fprintf(w, "fresh rows\t%s%d\teach counts %d times; the model was not trained on them\n", upTo, f.Count(), f.Weight)
	}
	if most := s.Spec.LargestWeight; most > 0 {
		fmt.Fprintf(w, "weights\t%d\tsum of the weights of the rows, which are at most %d\n", s.Weight, most)
	}
	if s.WalkedRows > 0 {
		fmt.Fprintf(w, "walks\t%d rows\t%s\n", s.WalkedRows, scores.WalkedNote)
	}
	if s.Stopped != nil {
		converged := "converged"
		if !s.Stopped.Converged {
			converged = "not converged"
		}
		fmt.Fprintf(w, "stopped\t%s\t%s\n", converged, s.Stopped.Text(s.Spec.Until))
	}
	if s.FieldValues != nil {
		fmt.Fprintf(w, "players\t%d\tfields and dense inputs\n", len(s.FieldValues))
	} else if s.Tables == nil {
		fmt.Fprintf(w, "table\t%d x %d\n", s.Features, s.Dim)
	}
	for _, t := range s.Tables {
		fmt.Fprintf(w, "table %s\t%d x %d\n", cli.Printable(t.Name), t.Rows, t.Dim)
	}
	for _, j := range s.Spec.Freeze {
		fmt.Fprintf(w, "frozen\t%s\tno players\n", cli.Printable(s.Fields[j].Name))
	}
	if s.Path != nil {
		pathTable(w, s)
		return
	}
	fmt.Fprintf(w, "mean loss\t%.6f\t%.6f with everything dropped\n", s.LossFull, s.LossEmpty)
	scores.WriteEfficiency(w, s.EfficiencyError, s.EfficiencySE, scores.Bias(&s.Spec.Options), s.Warning)
	rule := "meets"
	if s.Convergence >= 0.01 {
		rule = "misses"
	}
	kind := ""
	if s.StandardError == scores.UpperBound {
		kind = "an upper bound "
	}
	fmt.Fprintf(w, "precision\t%.2f%% of the range of the scores\t%s the paper's stop rule, which asks for less than 1%%\n", 100*s.Convergence, rule)
	fmt.Fprintf(w, "standard error\t%.3g at most\t%sfor the rows of %v\n", s.MaxSE, kind, s.Spec.Splits)
	fmt.Fprintf(w, "\t%.3g at most\tfor other rows of the same kind\n", s.MaxPopulationSE)
	if s.Spec.Estimator == estimator.Multilinear && s.Warning == "" {
		fmt.Fprintln(w, "bias\tnot included\tthe values of multilinear are biased; they rank entries about as walks do")
	}
	if s.FieldValues == nil {
		fmt.Fprintln(w, "ranking\tnot judged\tshaver sweep measures whether it is good enough to prune by")
	}
	if *s.NoInterval > 0 {
		fmt.Fprintf(w, "no intervals\t%d\tfeatures in too few rows, or with contributions too small for a standard error\n", *s.NoInterval)
	}
	if s.Audit != nil {
		s.Audit.WriteTable(w)
	} else if s.Spec.Audit > 0 {
		fmt.Fprintln(w, "audit\tnot done; run the job again")
	}
	if s.Lineage != nil {
		s.Lineage.WriteTable(w, s.DatasetRows)
	}
	if s.FieldValues != nil {
		fmt.Fprintf(w, "kernel\t%s\n", s.Spec.Kernel)
		scores.WriteFieldValues(w, s.FieldValues, s.FieldPairs, cli.Printable)
		return
	}
	fmt.Fprintf(w, "kernel\t%s\n\nFIELD\tFEATURES\tSEEN\tSUM OF PHI\tSUM OF %s\n", s.Spec.Kernel, strings.ToUpper(s.Aggregate))
	for _, f := range s.Fields {
		if f.RowsOf != "" {
			fmt.Fprintf(w, "%s\t%d\t%s\t\t\n", cli.Printable(f.Name), f.Features, rowsOf(f.RowsOf))
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%+.6f\t%.6f\n", cli.Printable(f.Name), f.Features, f.Seen, *f.Sum, *f.SumAbs)
	}
	if s.Lineage != nil {
		fmt.Fprint(w, "\nFIELD\tREDUCTION\tB OF SUM\tB OF ABS\tB OF RMS\n")
		for _, f := range s.Lineage.Fields {
			fmt.Fprintf(w, "%s\t%s\t%.3f\t%.3f\t%.3f\n", cli.Printable(f.Field), scores.ReductionText(f.Reduction), f.Sum, f.Abs, f.RMS)
		}
	}
}

// pathTable prints what follows the table sizes for a path.
func pathTable(w io.Writer, s *scores.Facts) {
	fmt.Fprintf(w, "mean loss\t%.6f\n", s.LossFull)
	fmt.Fprintf(w, "path\t%s\n", s.Path.Text())
	fmt.Fprintln(w, "ranking\tnot judged\tshaver sweep measures whether it is good enough to prune by")
	fmt.Fprintf(w, "kernel\t%s\n\n", s.Spec.Kernel)
	s.Path.WriteTable(w, s.Entries)
	fmt.Fprint(w, "\nFIELD\tFEATURES\tSEEN\n")
	for _, f := range s.Fields {
		seen := strconv.Itoa(f.Seen)
		if f.RowsOf != "" {
			seen = rowsOf(f.RowsOf)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\n", cli.Printable(f.Name), f.Features, seen)
	}
}

// rowsOf says that a field reads the rows of another one, which has their counts and sums.
func rowsOf(field string) string { return "in " + cli.Printable(field) }
