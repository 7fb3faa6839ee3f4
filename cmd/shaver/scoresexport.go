package main

import (
	"encoding/csv"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/tally"
)

func scoresExportCommand() *cobra.Command {
	var format, out string
	var outputs cli.Outputs
	c := &cobra.Command{
		Use:   "export FILE",
		Short: "Export scores as CSV or Parquet",
		Long:  strings.Replace(help("scores-export"), "LEAST_ROWS", strconv.Itoa(tally.LeastRows), 1),
		Example: `  shaver scores export scores.arrow --out scores.csv
  shaver scores export scores.arrow --format parquet --out scores.parquet`,
		ValidArgsFunction: cli.FileArgs("arrow"),
		Args:              cli.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			var write func(io.Writer, *scores.File) error
			switch format {
			case "csv":
				write = writeCSV
			case "parquet":
				write = func(w io.Writer, f *scores.File) error {
					return arrowio.WriteScoresParquet(w, f.Fields, &f.Layout, &f.Scores, f.Interval, nil)
				}
			default:
				return fault.Usagef("--format %s: the formats are csv and parquet", format)
			}
			if c.Flags().Changed("out") {
				outputs.Inputs(args[0])
				if err := outputs.Check("--out", out, exports); err != nil {
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
	c.Flags().StringVar(&format, "format", "csv", "`format` to write: csv or parquet")
	cli.Choices(c, "format", "csv", "parquet")
	c.Flags().StringVar(&out, "out", "", "`file` to write (default standard output)")
	outputs.Flag(c, "a file at --out that is not exported scores")
	cli.Files(c, "out", "csv", "parquet")
	return c
}

func writeCSV(to io.Writer, f *scores.File) error {
	w := csv.NewWriter(to)
	widest := f.Shape.Widest()
	record := []string{"field", "id", "count"}
	names := []string{"rank_"}
	if !f.Ranks() {
		record, names = append(record, "t", "t_population"), []string{"phi_", "abs_", "rms_", "se_", "se_population_"}
	}
	if f.Lineage != nil {
		names = append(names, "se_paired_", "abs_se_paired_", "rms_se_paired_")
	}
	for _, name := range names {
		for c := range widest {
			record = append(record, name+strconv.Itoa(c))
		}
	}
	if !f.Layout.Plain() {
		record = append(record, "table")
	}
	_ = w.Write(record) // the writer keeps its first error
	for _, span := range f.Layout.Spans() {
		none := make([]string, widest-span.Dim) // cells for the columns that the table lacks
		for id := range span.Rows {
			count := f.Count[span.Row+id]
			record = append(record[:0], f.Fields[span.Field], strconv.Itoa(id), strconv.FormatInt(count, 10))
			v := f.Part(f.Shape.Row(span.Row + id))
			for _, rank := range v.Rank {
				record = append(record, strconv.Itoa(int(rank)))
			}
			if !f.Ranks() {
				dataset, population := f.Interval(count)
				for _, t := range []float64{dataset, population} {
					text := ""
					if !math.IsNaN(t) {
						text = strconv.FormatFloat(t, 'g', 6, 64)
					}
					record = append(record, text)
				}
			}
			for _, phi := range v.Phi {
				record = append(record, strconv.FormatFloat(phi, 'g', -1, 64))
			}
			record = append(record, none...)
			for _, values := range [][]float32{v.Abs, v.RMS, v.SE, v.PopulationSE, v.PairedSE, v.AbsPairedSE, v.RMSPairedSE} {
				if values == nil { // the scores do not have it
					continue
				}
				for _, x := range values {
					record = append(record, strconv.FormatFloat(float64(x), 'g', -1, 32))
				}
				record = append(record, none...)
			}
			if !f.Layout.Plain() {
				record = append(record, f.Layout.Tables[span.Table].Name)
			}
			_ = w.Write(record)
		}
	}
	w.Flush()
	return w.Error()
}
