package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/atomicfile"
	"shaver/internal/cli"
	"shaver/internal/dataset"
	"shaver/internal/fault"
	"shaver/internal/report"
)

func datasetInspectCommand() *cobra.Command {
	var out cli.Output
	var top int
	var html string
	c := &cobra.Command{
		Use:   "inspect DIR",
		Short: "Print the splits, label rates and fields of a dataset",
		Long: `Print the rows and the label rate of each split of a dataset, and for each
field: the number of features, how many of them occur, the share of rows whose
value is not in the vocabulary (OOV), and the most frequent values. The command
reads no rows.

--html also writes a page, which needs no network and no script. The page and
the output of -o json also say how few features cover half of the rows, and
larger shares.`,
		Example: `  shaver dataset inspect data
  shaver dataset inspect data --top 10 --html data.html`,
		ValidArgsFunction: cli.FolderArgs,
		Args:              cli.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if top < 0 {
				return fault.Usagef("--top %d: expected 0 or more", top)
			}
			if html != "" {
				if err := cli.CheckOut(html); err != nil {
					return err
				}
			}
			facts, err := dataset.Inspect(args[0], top)
			if err != nil {
				return err
			}
			if html != "" {
				page, err := report.Dataset(facts)
				if err != nil {
					return err
				}
				if err := atomicfile.Write(html, func(w io.Writer) error { _, err := w.Write(page); return err }); err != nil {
					return err
				}
			}
			return out.Print(c.OutOrStdout(), facts, func(w io.Writer) { datasetTable(w, facts) })
		},
	}
	c.Flags().IntVar(&top, "top", 3, "`number` of most frequent values to print for each field")
	c.Flags().StringVar(&html, "html", "", "HTML `file` to write as well (default none)")
	cli.Files(c, "html", "html")
	out.Flag(c)
	return c
}

func datasetTable(w io.Writer, facts *dataset.Inspection) {
	fmt.Fprintf(w, "fields\t%d\t%d features\n", len(facts.Fields), facts.Features)
	fmt.Fprintf(w, "rows\t%d\t%.2f%% positive\n", facts.Rows, 100*facts.LabelRate)
	for _, s := range facts.Splits {
		fmt.Fprintf(w, "%s\t%d\t%.2f%% positive\n", s.Name, s.Rows, 100*s.LabelRate)
	}
	if facts.Skipped > 0 {
		fmt.Fprintf(w, "skipped\t%d\n", facts.Skipped)
	}
	fmt.Fprintf(w, "digest\t%s\n\nFIELD\tSIZE\tSEEN\tOOV", facts.Digest)
	named := slices.ContainsFunc(facts.Fields, func(f dataset.FieldFacts) bool { return len(f.Top) > 0 })
	if named {
		fmt.Fprint(w, "\tMOST FREQUENT")
	}
	fmt.Fprintln(w)
	for _, f := range facts.Fields {
		oov := "-"
		if f.OOV != nil {
			oov = fmt.Sprintf("%.2f%%", 100**f.OOV)
		}
		var most []string
		for _, v := range f.Top {
			name := fmt.Sprint(v.ID)
			switch {
			case v.Value != nil:
				name = strconv.Quote(*v.Value)
			case f.OOV != nil:
				name = "others"
			}
			most = append(most, fmt.Sprintf("%s %.1f%%", name, 100*v.Share))
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s", f.Name, f.Size, f.Seen, oov)
		if named {
			fmt.Fprintf(w, "\t%s", strings.Join(most, ", "))
		}
		fmt.Fprintln(w)
	}
}
