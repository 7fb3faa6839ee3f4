package main

import (
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
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
		Long:  strings.Replace(help.Text("scores-export"), "LEAST_ROWS", strconv.Itoa(tally.LeastRows), 1),
		Example: `  shaver scores export scores.arrow --out scores.csv
  shaver scores export scores.arrow --format parquet --out scores.parquet`,
		ValidArgsFunction: cli.FileArgs("arrow"),
		Args:              cli.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			var write func(io.Writer, *scores.File) error
			switch format {
			case "csv":
				write = scores.WriteCSV
			case "parquet":
				write = func(w io.Writer, f *scores.File) error {
					return arrowio.WriteScoresParquet(w, f.Fields, &f.Layout, &f.Scores, f.Interval, nil)
				}
			default:
				return fault.Usagef("--format %s: the formats are csv and parquet", format)
			}
			if c.Flags().Changed("out") {
				outputs.Inputs(args[0])
				if err := outputs.Check("--out", out, cli.Unless(scores.Exported, "exported scores")); err != nil {
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
