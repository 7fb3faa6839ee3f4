package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"shaver/internal/cli"
	"shaver/internal/job"
	"shaver/internal/scores"
	"shaver/internal/tally"
)

// scoresFacts is what "scores inspect" prints.
type scoresFacts struct {
	Job             string                `json:"job"`
	Spec            job.Spec              `json:"spec"`
	Rows            int64                 `json:"rows"`
	DatasetRows     int64                 `json:"dataset_rows"`
	Features        int                   `json:"features"`
	Dim             int                   `json:"dim"`
	LossFull        float64               `json:"loss_full"`
	LossEmpty       float64               `json:"loss_empty"`
	EfficiencyError float64               `json:"efficiency_error"`
	EfficiencySE    float64               `json:"efficiency_se,omitempty"` // for estimators without the efficiency identity
	StandardError   string                `json:"standard_error"`          // whether the standard errors on the dataset are estimates or upper bounds
	MaxSE           float64               `json:"max_se"`
	MaxPopulationSE float64               `json:"max_se_population"`
	Convergence     float64               `json:"convergence"`       // max_se / (largest - smallest phi); the paper stops below 0.01
	Stopped         *scores.Stopped       `json:"stopped,omitempty"` // how a job with a stop rule or a time limit ended
	Audit           *scores.Audit         `json:"audit,omitempty"`   // result of the audit, for a multilinear job with one
	NoInterval      int                   `json:"no_interval"`       // number of features that occur, but in too few rows for intervals
	Fields          []scores.FieldSummary `json:"fields"`
}

func scoresInspectCommand() *cobra.Command {
	var out cli.Output
	c := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Print the job, the errors and the fields of a scores file",
		Long: `Print the job of a scores file, how it ended, its losses and errors, and the sum
of the Shapley values of each field.`,
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
			facts := inspectScores(f)
			return out.Print(c.OutOrStdout(), facts, facts.table)
		},
	}
	out.Flag(c)
	return c
}

func inspectScores(f *scores.File) *scoresFacts {
	s := f.Summary(f.Phi)
	return &scoresFacts{
		Job: f.Spec.ID(), Spec: f.Spec, Rows: f.Rows, DatasetRows: f.DatasetRows, Features: len(f.Count), Dim: f.Dim,
		LossFull: f.LossFull, LossEmpty: f.LossEmpty, EfficiencyError: f.EfficiencyError, EfficiencySE: f.EfficiencySE, StandardError: f.StandardError(), Stopped: f.Stopped, Audit: f.Audit,
		MaxSE: s.MaxSE, MaxPopulationSE: s.MaxPopulationSE, Convergence: s.Convergence(), NoInterval: s.NoInterval, Fields: s.Fields,
	}
}

func (s *scoresFacts) table(w io.Writer) {
	fmt.Fprintf(w, "job\t%s\n", s.Job)
	fmt.Fprintf(w, "estimator\t%s\t%s, seed %d, baseline %s\n", s.Spec.Estimator, scores.Effort(&s.Spec), s.Spec.Seed, s.Spec.Baseline)
	fmt.Fprintf(w, "rows\t%d\tof %d of %v\n", s.Rows, s.DatasetRows, s.Spec.Splits)
	if s.Stopped != nil {
		converged := "converged"
		if !s.Stopped.Converged {
			converged = "not converged"
		}
		fmt.Fprintf(w, "stopped\t%s\t%s\n", converged, s.Stopped.Text(s.Spec.Until))
	}
	fmt.Fprintf(w, "table\t%d x %d\n", s.Features, s.Dim)
	fmt.Fprintf(w, "mean loss\t%.6f\t%.6f with everything dropped\n", s.LossFull, s.LossEmpty)
	fmt.Fprintf(w, "efficiency error\t%s\n", scores.EfficiencyText(s.EfficiencyError, s.EfficiencySE))
	fmt.Fprintf(w, "standard error\t%.3g at most\ton the dataset, %s; %.4f of the range of the scores\n", s.MaxSE, s.StandardError, s.Convergence)
	fmt.Fprintf(w, "\t%.3g at most\ton the population\n", s.MaxPopulationSE)
	if s.NoInterval > 0 {
		fmt.Fprintf(w, "no intervals\t%d\tfeatures in fewer than %d rows\n", s.NoInterval, tally.LeastRows)
	}
	if s.Audit != nil {
		s.Audit.WriteTable(w)
	} else if s.Spec.Audit > 0 {
		fmt.Fprintln(w, "audit\tnot done; run the job again")
	}
	fmt.Fprintf(w, "kernel\t%s\n\nFIELD\tFEATURES\tSEEN\tSUM OF PHI\tSUM OF |PHI|\n", s.Spec.Kernel)
	for _, f := range s.Fields {
		fmt.Fprintf(w, "%s\t%d\t%d\t%+.6f\t%.6f\n", f.Name, f.Features, f.Seen, f.Sum, f.SumAbs)
	}
}
