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
	Job             string          `json:"job"`
	Spec            job.Spec        `json:"spec"`
	Rows            int64           `json:"rows"`
	DatasetRows     int64           `json:"dataset_rows"`
	Features        int             `json:"features"`
	Dim             int             `json:"dim"`
	LossFull        float64         `json:"loss_full"`
	LossEmpty       float64         `json:"loss_empty"`
	EfficiencyError float64         `json:"efficiency_error"`
	EfficiencySE    float64         `json:"efficiency_se,omitempty"` // of estimators without the identity
	StandardError   string          `json:"standard_error"`          // whether those of the dataset's values are estimates or upper bounds
	MaxSE           float64         `json:"max_se"`
	MaxPopulationSE float64         `json:"max_se_population"`
	Convergence     float64         `json:"convergence"`       // max_se / (largest - smallest phi); the paper stops below 0.01
	Stopped         *scores.Stopped `json:"stopped,omitempty"` // of a job with a rule to stop by
	Audit           *scores.Audit   `json:"audit,omitempty"`   // of a multilinear job
	NoInterval      int             `json:"no_interval"`       // features that occur, but in too few rows for intervals
	Fields          []fieldScores   `json:"fields"`
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
		Job: f.Spec.ID(), Spec: f.Spec, Rows: f.Rows, DatasetRows: f.DatasetRows, Features: len(f.Count), Dim: f.Dim,
		LossFull: f.LossFull, LossEmpty: f.LossEmpty, EfficiencyError: f.EfficiencyError, EfficiencySE: f.EfficiencySE, StandardError: f.StandardError(), Stopped: f.Stopped, Audit: f.Audit,
		MaxSE: float64(slices.Max(f.SE)), MaxPopulationSE: float64(slices.Max(f.PopulationSE)),
	}
	for _, count := range f.Count {
		if count > 0 && count < tally.LeastRows {
			s.NoInterval++
		}
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
	fmt.Fprintf(w, "standard error\t%.3g at most\tof the dataset's own values, %s; %.4f of the scores' range\n", s.MaxSE, s.StandardError, s.Convergence)
	fmt.Fprintf(w, "\t%.3g at most\tof the population's\n", s.MaxPopulationSE)
	if s.NoInterval > 0 {
		fmt.Fprintf(w, "no intervals\t%d\tfeatures in fewer than %d rows\n", s.NoInterval, tally.LeastRows)
	}
	if s.Audit != nil {
		s.Audit.WriteTable(w)
	} else if s.Spec.Audit > 0 {
		fmt.Fprintln(w, "audit\tnot done: score the job again")
	}
	fmt.Fprintf(w, "kernel\t%s\n\nFIELD\tFEATURES\tSEEN\tSUM OF PHI\tSUM OF |PHI|\n", s.Spec.Kernel)
	for _, f := range s.Fields {
		fmt.Fprintf(w, "%s\t%d\t%d\t%+.6f\t%.6f\n", f.Name, f.Features, f.Seen, f.Sum, f.SumAbs)
	}
}

func scoresExportCommand() *cobra.Command {
	var format, out string
	c := &cobra.Command{
		Use:   "export FILE",
		Short: "Write scores as CSV or Parquet: a line for each feature, in the order of global ids",
		Long: fmt.Sprintf(`Write scores as CSV or Parquet: a line for each feature, in the order of global
ids, with field, id, count, t, t_population, and of each column c of the table
phi_c, abs_c, rms_c, se_c and se_population_c.

phi_c give or take t*se_c is a 95%% interval for the dataset's own value, and
t_population*se_population_c for that of the population its rows come from.
Features in fewer than %d rows have none: t is empty, or NaN in Parquet. The bias
of the multilinear estimator is not in the intervals.`, tally.LeastRows),
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			var write func(io.Writer, *scores.File) error
			switch format {
			case "csv":
				write = writeCSV
			case "parquet":
				write = func(w io.Writer, f *scores.File) error {
					return arrowio.WriteScoresParquet(w, f.Fields, f.FieldDims, &f.Scores, f.Interval, nil)
				}
			default:
				return fault.Usagef("--format %s: the formats are csv and parquet", format)
			}
			if out != "" {
				if err := cli.CheckOut(out, args[0]); err != nil {
					return err
				}
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
	record := []string{"field", "id", "count", "t", "t_population"}
	for _, name := range []string{"phi_", "abs_", "rms_", "se_", "se_population_"} {
		for c := range f.Dim {
			record = append(record, name+strconv.Itoa(c))
		}
	}
	_ = w.Write(record) // the writer keeps its first error
	feature := 0
	for j, size := range f.FieldDims {
		for id := range size {
			count := f.Count[feature]
			record = append(record[:0], f.Fields[j], strconv.Itoa(id), strconv.FormatInt(count, 10))
			dataset, population := f.Interval(count)
			for _, t := range []float64{dataset, population} {
				text := ""
				if !math.IsNaN(t) {
					text = strconv.FormatFloat(t, 'g', 6, 64)
				}
				record = append(record, text)
			}
			v := f.Part(feature*f.Dim, (feature+1)*f.Dim)
			for _, phi := range v.Phi {
				record = append(record, strconv.FormatFloat(phi, 'g', -1, 64))
			}
			for _, values := range [][]float32{v.Abs, v.RMS, v.SE, v.PopulationSE} {
				for _, x := range values {
					record = append(record, strconv.FormatFloat(float64(x), 'g', -1, 32))
				}
			}
			_ = w.Write(record)
			feature++
		}
	}
	w.Flush()
	return w.Error()
}
