package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/reporting"
	"shaver/internal/base/chart"
)

func reportCommand() *cobra.Command {
	o := reporting.New()
	var aggregate string
	var output cli.Output
	c := &cobra.Command{
		Use:     "report",
		Short:   "Write an HTML report about scores and pruning",
		Long:    help.Text("report"),
		Example: help.Text("report.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE: cli.Run(func(c *cobra.Command, _ []string) error {
			if o.Given = c.Flags().Changed; o.Given("aggregate") {
				o.Aggregate = aggregate
			}
			r, err := o.Run(c.Context())
			if err != nil {
				return err
			}
			return output.Print(c.OutOrStdout(), r, func(w io.Writer) {
				fmt.Fprintf(w, "report\t%s\t%d bytes\n", r.Out, r.Bytes)
				for _, path := range r.Pictures {
					fmt.Fprintf(w, "picture\t%s\n", path)
				}
			})
		}, output.Check),
	}
	f := c.Flags()
	flags.Model(c, &o.Model, "checkpoint `file` that was scored")
	flags.ModelOutput(c, &o.ModelOutput)
	flags.Scores(c, &o.Scores)
	flags.File(c, &o.Sweep, "sweep", "`file` with the output of shaver sweep -o json for these scores", "json")
	flags.File(c, &o.Path, "path", "`file` OUT.path.json of shaver prune for this model (default none)", "json")
	flags.Dataset(c, &o.Folders, "dataset `folder` that was scored, for the names of features and for what the model memorises")
	flags.Aggregate(c, &aggregate, nil)
	f.Lookup("aggregate").DefValue = "that of the recommended table, or " + aggregate
	flags.Out(c, &o.Out, "HTML `file` to write", "html")
	f.Float64Var((*float64)(&o.Within), "within", float64(o.Within), "`bound` by which AUC may be lower, and LogLoss higher, than of the unpruned model")
	flags.Folder(c, &o.Pictures, "pictures", "`folder` for the pictures as "+chart.Extension+" files (default none)")
	o.Outputs.Flag(c, "a page of another model and files that shaver did not write at --out and in --pictures")
	output.Flag(c)
	cli.Group(c, "Files", "model", "scores", "sweep", "path", "dataset", "out", "pictures", "force")
	cli.Group(c, "Recommendation", "aggregate", "within")
	cli.MarkRequired(c, "model", "scores", "out")
	cli.Renamed(c, "auc-tolerance", "--within")
	cli.Renamed(c, "log-loss-tolerance", "--within")
	return c
}
