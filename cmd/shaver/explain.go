package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/flags"
	"shaver/internal/app/steps"
	"shaver/internal/base/fault"
	"shaver/internal/prune/explain"
	"shaver/internal/prune/worth"
)

type explainOptions struct {
	model, against, modelOutput, split, loss string
	tasks, dataset                           []string
	rows                                     []int64
	background                               int
	output                                   cli.Output
}

func explainCommand() *cobra.Command {
	var o explainOptions
	c := &cobra.Command{
		Use:   "explain",
		Short: "Explain a prediction: what each field of a row adds",
		Long:  help.Text("explain"),
		Example: `  shaver explain --model pruned.safetensors --against model.pth --dataset data
  shaver explain --model model.pth --dataset data --split val --rows 0,17`,
		Args: cli.Args(cobra.NoArgs),
		RunE: cli.Run(o.run, o.output.Check),
	}
	flags.Model(c, &o.model, "checkpoint or pruned model `file`")
	flags.ModelOutput(c, &o.modelOutput)
	flags.Tasks(c, &o.tasks)
	flags.File(c, &o.against, "against", "model `file` to compare with, which was pruned (default none)", cli.Checkpoints...)
	flags.Dataset(c, &o.dataset, "dataset `folder`")
	flags.Split(c, &o.split)
	c.Flags().Lookup("split").Usage = "`split` that has the rows"
	flags.Loss(c, &o.loss)
	c.Flags().Int64SliceVar(&o.rows, "rows", nil, "`numbers` of rows in the split, from 0, separated by commas (default that which changes most of the first 10,000, or 0 without --against)")
	c.Flags().IntVar(&o.background, "background", explain.Background, "`number` of background rows")
	o.output.Flag(c)
	cli.MarkRequired(c, "model", "dataset")
	return c
}

func (o *explainOptions) run(c *cobra.Command, _ []string) error {
	if o.background < 1 {
		return fault.Refuse("background", o.background, "expected a whole number, at least 1")
	}
	subjects, err := steps.OpenBoth(o.model, o.against, o.modelOutput, o.tasks, o.dataset, o.split, o.loss)
	if err != nil {
		return err
	}
	var of []explain.Subject
	for _, s := range subjects {
		of = append(of, explain.Subject{Model: s.Model, Dataset: s.Bench.Dataset})
	}
	name, err := worth.Names(of[len(of)-1].Dataset)
	if err != nil {
		return err
	}
	d, err := explain.Rows(c.Context(), of, name, subjects[0].Bench.Loss, o.split, o.rows, o.background)
	if err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), d, func(w io.Writer) { explainTable(w, d) })
}

// explainTable writes the effects in each row, and what they sum to.
func explainTable(w io.Writer, d *explain.Document) {
	for i := range d.Rows {
		r, head := &d.Rows[i], "EFFECT\tSE"
		fmt.Fprintf(w, "%srow %d of %s, with label %v", strings.Repeat("\n", min(i, 1)), r.Row, d.Split, r.Label)
		if d.Sampled > 0 {
			fmt.Fprintf(w, ", which changes most of the first %d", d.Sampled)
		}
		if r.Against != nil {
			head = "BEFORE\tAFTER\tCHANGE\tSE"
		}
		fmt.Fprintf(w, "\n\nFIELD\tVALUE\t%s\n", head)
		line := func(name, value, form string, before *float64, after float64, end string) {
			if fmt.Fprintf(w, "%.18s\t%.18s\t", cli.Printable(name), cli.Printable(value)); before != nil {
				fmt.Fprintf(w, form+"\t"+form+"\t%+.4f%s\n", *before, after, after-*before, end)
			} else {
				fmt.Fprintf(w, form+"%s\n", after, end)
			}
		}
		for _, e := range r.Effects {
			se := "\t-"
			if e.SE != nil {
				se = fmt.Sprintf("\t%.4f", *e.SE)
			}
			line(e.Field, strings.Join(e.Values, " "), "%+.4f", e.Against, e.Effect, se)
		}
		var before struct{ base, logit, probability *float64 }
		if a := r.Against; a != nil {
			before.base, before.logit, before.probability = &a.Base, &a.Logit, a.Probability
		}
		line("base", fmt.Sprintf("%d rows", d.Background), "%+.4f", before.base, r.Base, "")
		if line("logit", "", "%+.4f", before.logit, r.Logit, ""); r.Probability != nil {
			line("probability", "", "%.4f", before.probability, *r.Probability, "")
		}
	}
}
