package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/click/model"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// scoresFacts is what "scores inspect" prints.
type scoresFacts struct {
	Job         string          `json:"job"`
	Spec        job.Spec        `json:"spec"`
	Rows        int64           `json:"rows"`
	DatasetRows int64           `json:"dataset_rows"`
	Features    int             `json:"features"`
	Dim         int             `json:"dim"`              // 0 if the tables have different numbers of columns
	Tables      []model.Table   `json:"tables,omitempty"` // if the model has look-ups
	LossFull    float64         `json:"loss_full"`
	*ValueFacts                 // nil for a path
	Path        *scores.Path    `json:"path,omitempty"`        // how the order of a path came about
	Stopped     *scores.Stopped `json:"stopped,omitempty"`     // how a job with a stop rule or a time limit ended
	Audit       *scores.Audit   `json:"audit,omitempty"`       // result of the audit, for a multilinear job with one
	Lineage     *scores.Lineage `json:"lineage,omitempty"`     // how the values follow from earlier ones, for a paired job
	NoInterval  *int            `json:"no_interval,omitempty"` // number of features that occur, but in too few rows for intervals; nil for a path
	Aggregate   string          `json:"aggregate"`             // aggregate that sum_abs of the fields adds up
	Fields      []fieldFacts    `json:"fields"`

	entries int // number of all entries
}

// ValueFacts are facts about values, which a path does not have. The name is exported so that
// package json can decode an embedded pointer.
type ValueFacts struct {
	LossEmpty       float64 `json:"loss_empty"`
	EfficiencyError float64 `json:"efficiency_error"`
	EfficiencySE    float64 `json:"efficiency_se,omitempty"` // for estimators without the efficiency identity
	StandardError   string  `json:"standard_error"`          // whether the standard errors on the dataset are estimates or upper bounds
	MaxSE           float64 `json:"max_se"`
	MaxPopulationSE float64 `json:"max_se_population"`
	Convergence     float64 `json:"convergence"` // max_se / (largest - smallest phi); the paper stops below 0.01
}

// fieldFacts describes a field. Its sums are nil for a path.
type fieldFacts struct {
	scores.FieldSummary
	Sum    *float64 `json:"sum,omitempty"`     // see scores.FieldSummary
	SumAbs *float64 `json:"sum_abs,omitempty"` // see scores.FieldSummary
}

func scoresInspectCommand() *cobra.Command {
	var out cli.Output
	c := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Print the job, the errors and the fields of a scores file",
		Long:  help("scores-inspect"),
		Example: `  shaver scores inspect scores.arrow
  shaver scores inspect scores.arrow -o json`,
		ValidArgsFunction: cli.FileArgs("arrow"),
		Args:              cli.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			f, err := scores.Read(args[0])
			if err != nil {
				return err
			}
			facts, err := inspectScores(f)
			if err != nil {
				return err
			}
			return out.Print(c.OutOrStdout(), facts, facts.table)
		},
	}
	out.Flag(c)
	return c
}

func inspectScores(f *scores.File) (*scoresFacts, error) {
	aggregate := f.DefaultAggregate()
	values, err := f.Aggregate(aggregate)
	if err != nil {
		return nil, err
	}
	s := f.Summary(values)
	facts := &scoresFacts{
		Job: f.Spec.ID(), Spec: f.Spec, Rows: f.Rows, DatasetRows: f.DatasetRows, Features: f.Layout.Features(), Dim: f.Shape.Dim(), Tables: f.Layout.Tables,
		LossFull: f.LossFull, Path: f.Path, Stopped: f.Stopped, Audit: f.Audit, Lineage: f.Lineage, Aggregate: aggregate, entries: f.Layout.Parameters(),
	}
	if !f.Ranks() {
		facts.NoInterval, facts.ValueFacts = &s.NoInterval, &ValueFacts{
			LossEmpty: f.LossEmpty, EfficiencyError: f.EfficiencyError, EfficiencySE: f.EfficiencySE, StandardError: f.StandardError(),
			MaxSE: s.MaxSE, MaxPopulationSE: s.MaxPopulationSE, Convergence: s.Convergence(),
		}
	}
	for i := range s.Fields {
		field := fieldFacts{FieldSummary: s.Fields[i]}
		if !f.Ranks() {
			field.Sum, field.SumAbs = &s.Fields[i].Sum, &s.Fields[i].SumAbs
		}
		facts.Fields = append(facts.Fields, field)
	}
	return facts, nil
}

func (s *scoresFacts) table(w io.Writer) {
	fmt.Fprintf(w, "job\t%s\n", s.Job)
	squared := ""
	if s.Spec.Loss == loss.Squared {
		squared = ", squared loss"
	}
	fmt.Fprintf(w, "estimator\t%s\t%s, seed %d, baseline %s%s\n", s.Spec.Estimator, scores.Effort(&s.Spec), s.Spec.Seed, s.Spec.Baseline, squared)
	fmt.Fprintf(w, "rows\t%d\tof %d of %v\n", s.Rows, s.DatasetRows, s.Spec.Splits)
	if s.Stopped != nil {
		converged := "converged"
		if !s.Stopped.Converged {
			converged = "not converged"
		}
		fmt.Fprintf(w, "stopped\t%s\t%s\n", converged, s.Stopped.Text(s.Spec.Until))
	}
	if s.Tables == nil {
		fmt.Fprintf(w, "table\t%d x %d\n", s.Features, s.Dim)
	}
	for _, t := range s.Tables {
		fmt.Fprintf(w, "table %s\t%d x %d\n", cli.Printable(t.Name), t.Rows, t.Dim)
	}
	if s.Path != nil {
		s.pathTable(w)
		return
	}
	fmt.Fprintf(w, "mean loss\t%.6f\t%.6f with everything dropped\n", s.LossFull, s.LossEmpty)
	fmt.Fprintf(w, "efficiency error\t%s\n", scores.EfficiencyText(s.EfficiencyError, s.EfficiencySE))
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
	if s.Spec.Estimator == estimator.Multilinear {
		fmt.Fprintln(w, "bias\tnot included\tthe values of multilinear are biased; they rank entries about as walks do")
	}
	fmt.Fprintln(w, "ranking\tnot judged\tshaver sweep measures whether it is good enough to prune by")
	if *s.NoInterval > 0 {
		fmt.Fprintf(w, "no intervals\t%d\tfeatures in fewer than %d rows\n", *s.NoInterval, tally.LeastRows)
	}
	if s.Audit != nil {
		s.Audit.WriteTable(w)
	} else if s.Spec.Audit > 0 {
		fmt.Fprintln(w, "audit\tnot done; run the job again")
	}
	if s.Lineage != nil {
		s.Lineage.WriteTable(w, s.DatasetRows)
	}
	fmt.Fprintf(w, "kernel\t%s\n\nFIELD\tFEATURES\tSEEN\tSUM OF PHI\tSUM OF %s\n", s.Spec.Kernel, strings.ToUpper(s.Aggregate))
	for _, f := range s.Fields {
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
func (s *scoresFacts) pathTable(w io.Writer) {
	fmt.Fprintf(w, "mean loss\t%.6f\n", s.LossFull)
	fmt.Fprintf(w, "path\t%s\n", s.Path.Text())
	fmt.Fprintln(w, "ranking\tnot judged\tshaver sweep measures whether it is good enough to prune by")
	fmt.Fprintf(w, "kernel\t%s\n\n", s.Spec.Kernel)
	s.Path.WriteTable(w, s.entries)
	fmt.Fprint(w, "\nFIELD\tFEATURES\tSEEN\n")
	for _, f := range s.Fields {
		fmt.Fprintf(w, "%s\t%d\t%d\n", cli.Printable(f.Name), f.Features, f.Seen)
	}
}
