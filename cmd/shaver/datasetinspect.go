package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/reporting"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/data/dataset"
	"shaver/internal/prune/report"
)

func datasetInspectCommand() *cobra.Command {
	var outputs cli.Outputs
	var out cli.Output
	var top int
	var html string
	c := &cobra.Command{
		Use:   "inspect DIR...",
		Short: "Print the splits, label rates and fields of a dataset",
		Long:  help.Text("dataset-inspect"),
		Example: `  shaver dataset inspect data
  shaver dataset inspect data --top 10 --html data.html
  shaver dataset inspect days/1 days/2 days/3`,
		ValidArgsFunction: cli.FolderArgs,
		Args:              cli.Args(cobra.MinimumNArgs(1)),
		RunE: cli.Run(func(c *cobra.Command, args []string) error {
			if top < 0 {
				return fault.Usagef("--top %d: expected 0 or more", top)
			}
			if c.Flags().Changed("html") {
				outputs.Inputs(dataset.Files(args...)...)
				if err := outputs.Check("--html", html, cli.Unless(report.Written, "a page"), ".html"); err != nil {
					return err
				}
			}
			d, err := dataset.OpenAll(args)
			if folders := strings.Split(args[0], ","); err != nil && len(args) == 1 && len(folders) > 1 {
				err = fault.Usagef("%s: expected each folder as an argument of its own, as in %s %s", args[0], c.CommandPath(), strings.Join(folders, " "))
			}
			if err != nil {
				return err
			}
			facts, err := d.Inspect(top)
			if err != nil {
				return err
			}
			if html != "" {
				if err := outputs.Check("--html", html, reporting.OtherPage(report.OfDataset)); err != nil {
					return err
				}
				page, err := report.Dataset(facts, datasetOrigin(args))
				if err != nil {
					return err
				}
				if err := atomicfile.Write(html, func(w io.Writer) error { _, err := w.Write(page); return err }); err != nil {
					return err
				}
			}
			return out.Print(c.OutOrStdout(), facts, func(w io.Writer) { datasetTable(w, facts) })
		}, out.Check),
	}
	c.Flags().IntVar(&top, "top", 3, "`number` of most frequent values to print for each field")
	c.Flags().StringVar(&html, "html", "", "HTML `file` to write as well (default none)")
	outputs.Flag(c, "a file at --html that is not a page written by shaver")
	cli.Files(c, "html", "html")
	out.Flag(c)
	return c
}

// datasetOrigin describes the dataset in the folders. Its time of writing is that of the last
// folder.
func datasetOrigin(folders []string) report.Origin {
	origin := report.Origin{Program: cli.Program()}
	var names []string
	for _, dir := range folders {
		if path, err := filepath.Abs(dir); err == nil {
			names = append(names, filepath.Base(path))
		}
	}
	origin.Name = strings.Join(names, ", ")
	dir := folders[len(folders)-1]
	if info, err := os.Stat(filepath.Join(dir, dataset.ManifestName)); err == nil {
		origin.Written = info.ModTime()
	}
	return origin
}

func datasetTable(w io.Writer, facts *dataset.Inspection) {
	fmt.Fprintf(w, "fields\t%d\t%d features\n", len(facts.Fields), facts.Features)
	line := func(s *dataset.SplitFacts) {
		fmt.Fprintf(w, "%s\t%d\t%s", cli.Printable(s.Name), s.Rows, labelText(&s.LabelFacts))
		for _, t := range s.Tasks {
			fmt.Fprintf(w, "; %s: %d of %d", cli.Printable(t.Label), t.Positives, s.Rows-t.Missing)
		}
		if s.Weight > 0 {
			fmt.Fprintf(w, "; weight %.3f", s.Weight)
		}
		fmt.Fprintln(w)
	}
	line(&dataset.SplitFacts{Name: "rows", Rows: facts.Rows, LabelFacts: facts.LabelFacts, Weight: facts.Weight, Tasks: facts.Tasks})
	for _, s := range facts.Splits {
		line(&s)
	}
	for _, t := range facts.Tables {
		fmt.Fprintf(w, "rows from\t%s\n", cli.Printable(t.String()))
	}
	if facts.Skipped > 0 {
		fmt.Fprintf(w, "skipped\t%d\n", facts.Skipped)
	}
	fmt.Fprintf(w, "digest\t%s\n\nFIELD\tSIZE\tSEEN", facts.Digest)
	others := slices.ContainsFunc(facts.Fields, func(f dataset.FieldFacts) bool { return f.OOV != nil })
	if others {
		fmt.Fprint(w, "\tOTHERS")
	}
	named := slices.ContainsFunc(facts.Fields, func(f dataset.FieldFacts) bool { return len(f.Top) > 0 })
	if named {
		fmt.Fprint(w, "\tMOST FREQUENT")
	}
	fmt.Fprintln(w)
	unseen := 0
	for _, f := range facts.Fields {
		unseen += f.Size - f.Seen
		if f.Pad != nil {
			unseen-- // a pad is never counted
		}
		fmt.Fprintf(w, "%s\t%d\t%d", cli.Printable(f.Name), f.Size, f.Seen)
		if others {
			oov := "-"
			if f.OOV != nil {
				oov = fmt.Sprintf("%.2f%%", 100**f.OOV)
			}
			fmt.Fprintf(w, "\t%s", oov)
		}
		if named {
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
			fmt.Fprintf(w, "\t%s", strings.Join(most, ", "))
		}
		fmt.Fprintln(w)
	}
	denseTable(w, facts)
	if others {
		fmt.Fprintln(w, "\nOTHERS is the share of rows whose value has no id of its own in the vocabulary.")
	}
	if unseen > 0 {
		fmt.Fprintf(w, "\n%d of %d ids occur in no row. This is normal, for example for the id of unknown values.\n", unseen, facts.Features)
		fmt.Fprintln(w, "They score 0, so pruning by scores drops them first.")
	}
}

// labelText describes labels in a line of a table.
func labelText(l *dataset.LabelFacts) string {
	if n := l.Labels; n != nil {
		return fmt.Sprintf("labels %.4g to %.4g, mean %.4g, deviation %.4g", n.Min, n.Max, n.Mean, n.Deviation)
	}
	return fmt.Sprintf("%.2f%% positive", 100**l.LabelRate)
}
