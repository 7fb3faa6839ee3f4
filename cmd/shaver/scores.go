package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"shaver/internal/arrowio"
	"shaver/internal/atomicfile"
	"shaver/internal/cli"
	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/scores"
	"shaver/internal/tally"
)

// scoresFacts is what "scores inspect" prints.
type scoresFacts struct {
	Job                string        `json:"job"`
	Spec               job.Spec      `json:"spec"`
	Rows               int64         `json:"rows"`
	Features           int           `json:"features"`
	Dim                int           `json:"dim"`
	LossFull           float64       `json:"loss_full"`
	LossEmpty          float64       `json:"loss_empty"`
	EfficiencyError    float64       `json:"efficiency_error"`
	EfficiencyExpected float64       `json:"efficiency_expected,omitempty"` // of estimators without the identity
	StandardError      tally.Spread  `json:"standard_error"`
	MaxSE              float64       `json:"max_se"`
	Convergence        float64       `json:"convergence"` // largest standard error / (largest - smallest phi); the paper stops below 0.01
	Fields             []fieldScores `json:"fields"`
}

// fieldScores is about the entries of one field.
type fieldScores struct {
	Name     string  `json:"name"`
	Features int     `json:"features"`
	Seen     int     `json:"seen"`    // features that occur in the rows
	Sum      float64 `json:"sum"`     // of phi: the loss that the field saves, nat
	SumAbs   float64 `json:"sum_abs"` // of |phi|
}

func scoresInspectCommand() *cobra.Command {
	var out cli.Output
	c := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Say what a scores file holds: its job, its checks, the worth of each field",
		Args:  cli.Args(cobra.ExactArgs(1)),
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
	s := &scoresFacts{
		Job: f.Spec.ID(), Spec: f.Spec, Rows: f.Rows, Features: len(f.Count), Dim: f.Dim,
		LossFull: f.LossFull, LossEmpty: f.LossEmpty, EfficiencyError: f.EfficiencyError, EfficiencyExpected: f.EfficiencyExpected, StandardError: f.Spread,
		MaxSE: slices.Max(f.SE),
	}
	if width := slices.Max(f.Phi) - slices.Min(f.Phi); width > 0 {
		s.Convergence = s.MaxSE / width
	}
	i := 0
	for j, size := range f.FieldDims {
		field := fieldScores{Name: f.Fields[j], Features: size}
		for range size {
			if f.Count[i/f.Dim] > 0 {
				field.Seen++
			}
			for range f.Dim {
				field.Sum += f.Phi[i]
				field.SumAbs += math.Abs(f.Phi[i])
				i++
			}
		}
		s.Fields = append(s.Fields, field)
	}
	return s
}

func (s *scoresFacts) table(w io.Writer) {
	fmt.Fprintf(w, "job\t%s\n", s.Job)
	effort := fmt.Sprintf("%d passes", s.Spec.Passes)
	if s.Spec.Draws > 0 {
		effort = fmt.Sprintf("%d draws, %s end points", s.Spec.Draws, s.Spec.Endpoints)
	}
	fmt.Fprintf(w, "estimator\t%s\t%s, seed %d, baseline %s\n", s.Spec.Estimator, effort, s.Spec.Seed, s.Spec.Baseline)
	fmt.Fprintf(w, "rows\t%d\t%v, sample %g\n", s.Rows, s.Spec.Splits, s.Spec.Sample)
	fmt.Fprintf(w, "table\t%d x %d\n", s.Features, s.Dim)
	fmt.Fprintf(w, "mean loss\t%.6f\t%.6f with everything dropped\n", s.LossFull, s.LossEmpty)
	fmt.Fprintf(w, "efficiency error\t%.3g%s\n", s.EfficiencyError, cli.Expected(s.EfficiencyExpected))
	fmt.Fprintf(w, "standard error\t%.3g at most\t%s; %.4f of the scores' range\n", s.MaxSE, s.StandardError, s.Convergence)
	fmt.Fprintf(w, "kernel\t%s\n\nFIELD\tFEATURES\tSEEN\tSUM OF PHI\tSUM OF |PHI|\n", s.Spec.Kernel)
	for _, f := range s.Fields {
		fmt.Fprintf(w, "%s\t%d\t%d\t%+.6f\t%.6f\n", f.Name, f.Features, f.Seen, f.Sum, f.SumAbs)
	}
}

func scoresExportCommand() *cobra.Command {
	var format, out string
	c := &cobra.Command{
		Use:   "export FILE",
		Short: "Write scores as CSV or Parquet: field, id, count, phi_0.., se_0.., in the order of global ids",
		Args:  cli.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			var write func(io.Writer, *scores.File) error
			switch format {
			case "csv":
				write = writeCSV
			case "parquet":
				write = func(w io.Writer, f *scores.File) error {
					return arrowio.WriteScoresParquet(w, f.Fields, f.FieldDims, &f.Scores, nil)
				}
			default:
				return fault.Usagef("--format %s: the formats are csv and parquet", format)
			}
			f, err := scores.Read(args[0])
			if err != nil {
				return err
			}
			if out == "" {
				return write(c.OutOrStdout(), f)
			}
			return atomicfile.Write(out, func(w io.Writer) error { return write(w, f) })
		},
	}
	c.Flags().StringVar(&format, "format", "csv", "csv or parquet")
	c.Flags().StringVar(&out, "out", "", "file to write (default standard output)")
	return c
}

func writeCSV(to io.Writer, f *scores.File) error {
	w := csv.NewWriter(to)
	record := []string{"field", "id", "count"}
	for _, name := range []string{"phi_", "se_"} {
		for c := range f.Dim {
			record = append(record, name+strconv.Itoa(c))
		}
	}
	_ = w.Write(record) // the writer keeps its first error
	feature := 0
	for j, size := range f.FieldDims {
		for id := range size {
			record = append(record[:0], f.Fields[j], strconv.Itoa(id), strconv.FormatInt(f.Count[feature], 10))
			for _, values := range [][]float64{f.Phi, f.SE} {
				for _, v := range values[feature*f.Dim : (feature+1)*f.Dim] {
					record = append(record, strconv.FormatFloat(v, 'g', -1, 64))
				}
			}
			_ = w.Write(record)
			feature++
		}
	}
	w.Flush()
	return w.Error()
}
