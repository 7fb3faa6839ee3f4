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
	"shaver/internal/prune/gate"
)

type checkOptions struct {
	*steps.Check
	output cli.Output
}

func checkCommand() *cobra.Command {
	o := checkOptions{Check: steps.NewCheck()}
	c := &cobra.Command{
		Use:   "check",
		Short: "Check that a pruned model is as good as its model",
		Long:  help.Text("check"),
		Example: `  shaver check --model pruned.safetensors --against model.pth --dataset data
  shaver check --model pruned.safetensors --against model.pth --dataset data \
      --max-auc-drop 0.002 --confident --out check.json`,
		Args: cli.Args(cobra.NoArgs),
		RunE: cli.Run(o.run, o.output.Check),
	}
	flags.Model(c, &o.Pruned, "pruned model `file`")
	f := c.Flags()
	flags.ModelOutput(c, &o.ModelOutput)
	flags.Tasks(c, &o.Tasks)
	flags.File(c, &o.Model, "against", "model `file` that was pruned", cli.Checkpoints...)
	flags.Dataset(c, &o.Folders, "dataset `folder`")
	flags.Split(c, &o.Split)
	flags.Group(c, &o.Group)
	f.Float64Var(&o.Bounds.AUCDrop, "max-auc-drop", o.Bounds.AUCDrop, "largest `drop` of the AUC")
	f.Float64Var(&o.Bounds.LogLossRise, "max-logloss-rise", o.Bounds.LogLossRise, "largest `rise` of the LogLoss, in nat")
	f.Float64Var(&o.Bounds.RMSERise, "max-rmse-rise", o.Bounds.RMSERise, "largest `rise` of the RMSE, with the squared loss")
	flags.Loss(c, &o.Loss)
	f.BoolVar(&o.Bounds.Confident, "confident", false, "demand that the whole 95% intervals are within the bounds")
	flags.Out(c, &o.Out, "`file` for the result, .json (default none)", "json")
	o.Outputs.Flag(c, "a file at --out that shaver did not write")
	o.output.Flag(c)
	cli.Group(c, "Files", "model", "model-output", "task", "against", "dataset", "out", "force")
	cli.Group(c, "Check", "split", "group", "loss", "max-auc-drop", "max-logloss-rise", "max-rmse-rise", "confident")
	cli.MarkRequired(c, "model", "against", "dataset")
	cli.Renamed(c, "pruned", "--model, as in evaluate, and the model that was pruned is --against")
	return c
}

func (o *checkOptions) run(c *cobra.Command, _ []string) error {
	o.Given = c.Flags().Changed
	d, err := o.Run(c.Context())
	if err != nil {
		return err
	}
	if err := o.output.Print(c.OutOrStdout(), d, func(w io.Writer) { checkTable(w, d) }); err != nil {
		return err
	}
	return gateError(d)
}

// gateError returns cli.ErrGate with the reason if the pruned model failed its check.
func gateError(d *gate.Document) error {
	if d.Passed {
		return nil
	}
	return fmt.Errorf("%w: %s", cli.ErrGate, d.Failure())
}

// checkTable writes the metrics of both models, and the verdict.
func checkTable(w io.Writer, d *gate.Document) {
	fmt.Fprintf(w, "%s\t%d rows\n\n", d.Split, d.Rows)
	fmt.Fprint(w, "\tMODEL\tPRUNED\tDIFFERENCE\t95% INTERVAL\tALLOWED\t\n")
	line := func(name, sign string, m *gate.Metric) {
		if m == nil {
			return
		}
		if m.Bound == 0 {
			sign = ""
		}
		interval := "-"
		if i := m.Difference; i.Low != nil && i.High != nil {
			interval = fmt.Sprintf("[%+.6f, %+.6f]", *i.Low, *i.High)
		}
		verdict := map[bool]string{true: "passes", false: "fails"}[m.Passed]
		if !m.Certain {
			verdict += ", uncertain"
		}
		fmt.Fprintf(w, "%s\t%.6f\t%.6f\t%+.6f\t%s\t%s%g\t%s\n", name, m.Model, m.Pruned, m.Difference.Value, interval, sign, m.Bound, verdict)
	}
	line("RMSE", "+", d.RMSE)
	line("GAUC", "-", d.GAUC)
	line("AUC", "-", d.AUC)
	line("LogLoss", "+", d.LogLoss)
	for _, t := range d.Tasks {
		line(t.Task+": GAUC", "-", t.GAUC)
		line(t.Task+": AUC", "-", t.AUC)
		line(t.Task+": LogLoss", "+", t.LogLoss)
	}
	fmt.Fprintf(w, "\n%s\n", d.Reason)
	if d.Group != nil {
		fmt.Fprintf(w, "%s.\n", d.Group.Text())
	}
	if d.Answer != nil {
		fmt.Fprintf(w, "\n%s\n", strings.Join(d.Answer.Text, "\n"))
	}
}
