package main

import (
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/files"
	"shaver/internal/data/columnfile"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/tally"
)

func scoresExportCommand() *cobra.Command {
	var out string
	var outputs cli.Outputs
	c := &cobra.Command{
		Use:   "export FILE",
		Short: "Export scores as CSV or Parquet",
		Long:  strings.NewReplacer("LEAST_ROWS", strconv.Itoa(tally.LeastRows), "POSITION_ROWS", strconv.Itoa(scores.PositionRows)).Replace(help.Text("scores-export")),
		Example: `  shaver scores export scores.arrow --out scores.csv
  shaver scores export scores.arrow --out scores.parquet`,
		ValidArgsFunction: cli.FileArgs("arrow"),
		Args:              cli.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			write := scores.WriteCSV
			if strings.EqualFold(filepath.Ext(out), ".parquet") {
				write = func(w io.Writer, f *scores.File) error {
					return columnfile.WriteScoresParquet(w, f.Fields, &f.Layout, &f.Scores, f.Intervals(), nil)
				}
			}
			if c.Flags().Changed("out") {
				outputs.Inputs(args[0])
				if err := outputs.Check("--out", out, cli.Unless(exported, "exported scores"), ".csv", ".parquet"); err != nil {
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
	c.Flags().StringVar(&out, "out", "", "`file` to write, whose extension .csv or .parquet says the format (default CSV to standard output)")
	cli.Renamed(c, "format", "the extension of --out")
	outputs.Flag(c, "a file at --out that is not exported scores")
	cli.Files(c, "out", "csv", "parquet")
	return c
}

// exported reports whether the file at path was written by this command.
func exported(path string) bool {
	return scores.IsCSV(path) || files.Is(path, columnfile.IsScoresParquet)
}
