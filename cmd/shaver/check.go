package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/num/loss"
	"shaver/internal/prune/gate"
)

// checkInput says what a check compares.
type checkInput struct {
	model, pruned, split string
	dataset              []string // its folder, or those of a window's days
	modelOutput          string   // of the models, if they are .onnx files with several
	loss                 string   // one of loss.Names, or "" for that of the dataset's labels
	bounds               gate.Bounds
}

type checkOptions struct {
	checkInput
	out     string
	outputs cli.Outputs
	output  cli.Output
}

func checkCommand() *cobra.Command {
	var o checkOptions
	c := &cobra.Command{
		Use:   "check",
		Short: "Check that a pruned model is as good as its model",
		Long:  help("check"),
		Example: `  shaver check --model model.pth --pruned pruned.safetensors --dataset data
  shaver check --model model.pth --pruned pruned.safetensors --dataset data \
      --max-auc-drop 0.002 --confident --out check.json`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			return o.run(c)
		},
	}
	modelFlag(c, &o.model, "checkpoint `file` that was pruned")
	f := c.Flags()
	modelOutputFlag(c, &o.modelOutput)
	f.StringVar(&o.pruned, "pruned", "", "pruned model `file`")
	cli.Files(c, "pruned", cli.Checkpoints...)
	datasetFlag(c, &o.dataset, "dataset `folder`")
	splitFlag(c, &o.split)
	o.split = dataset.Val
	f.Lookup("split").DefValue = dataset.Val
	f.Float64Var(&o.bounds.AUCDrop, "max-auc-drop", 0.001, "largest `drop` of the AUC")
	f.Float64Var(&o.bounds.LogLossRise, "max-logloss-rise", 0.001, "largest `rise` of the LogLoss, in nat")
	f.Float64Var(&o.bounds.RMSERise, "max-rmse-rise", 0.001, "largest `rise` of the RMSE, with the squared loss")
	lossFlag(c, &o.loss)
	f.BoolVar(&o.bounds.Confident, "confident", false, "demand that the whole 95% intervals are within the bounds")
	outFlag(c, &o.out, "`file` for the result, .json (default none)", "json")
	o.outputs.Flag(c, "a file at --out that shaver did not write")
	o.output.Flag(c)
	cli.Group(c, "Files", "model", "model-output", "pruned", "dataset", "out", "force")
	cli.Group(c, "Check", "split", "loss", "max-auc-drop", "max-logloss-rise", "max-rmse-rise", "confident")
	cli.MarkRequired(c, "model", "pruned", "dataset")
	return c
}

func (o *checkOptions) run(c *cobra.Command) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	if err := checkBounds(&o.bounds); err != nil {
		return err
	}
	if c.Flags().Changed("out") {
		o.outputs.Inputs(checkpoint.Files(o.model)...)
		o.outputs.Inputs(checkpoint.Files(o.pruned)...)
		o.outputs.Inputs(dataset.Files(o.dataset...)...)
		if err := o.outputs.Check("--out", o.out, checks); err != nil {
			return err
		}
	}
	d, err := checkPruned(c.Context(), &o.checkInput, c.Flags().Changed)
	if err != nil {
		return err
	}
	if o.out != "" {
		if err := atomicfile.Write(o.out, func(w io.Writer) error { return cli.WriteJSON(w, d) }); err != nil {
			return err
		}
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

// checkBounds returns a usage error for a bound that is out of range.
func checkBounds(b *gate.Bounds) error {
	if !(b.AUCDrop >= 0 && b.AUCDrop <= 1) {
		return fault.Usagef("--max-auc-drop %v: expected a number from 0 to 1", b.AUCDrop)
	}
	if !(b.LogLossRise >= 0) || math.IsInf(b.LogLossRise, 0) {
		return fault.Usagef("--max-logloss-rise %v: expected a finite number of at least 0", b.LogLossRise)
	}
	if !(b.RMSERise >= 0) || math.IsInf(b.RMSERise, 0) {
		return fault.Usagef("--max-rmse-rise %v: expected a finite number of at least 0", b.RMSERise)
	}
	return nil
}

// checkBoundsOf returns a usage error for a bound that was given but is not one of the loss.
func checkBoundsOf(kind loss.Kind, given func(flag string) bool) error {
	for _, flag := range []string{"max-auc-drop", "max-logloss-rise", "max-rmse-rise"} {
		if given(flag) && (flag == "max-rmse-rise") != (kind == loss.Squared) {
			return fault.Usagef("--%s does not go with the loss %s", flag, kind.Name())
		}
	}
	return nil
}

// checkPruned measures the model and its pruned form on all cores, with progress, and
// decides. It returns an error if something cannot be measured. A pruned model that fails
// is not an error. given reports whether a flag of a bound was given.
func checkPruned(ctx context.Context, o *checkInput, given func(flag string) bool) (*gate.Document, error) {
	ck, m, err := checkpoint.ReadModel(o.model, o.modelOutput)
	if err != nil {
		return nil, err
	}
	output := o.modelOutput
	if !checkpoint.NamedONNX(o.pruned) {
		output = ""
	}
	prunedCk, pruned, err := checkpoint.ReadModel(o.pruned, output)
	if err != nil {
		return nil, err
	}
	same := &m.Architecture
	if m.Kind != model.Graph && pruned.Kind == model.Graph && checkpoint.IsONNX(o.model) {
		// The calibration of an .onnx file adds nodes, so that its graph is not recognized.
		generic, err := checkpoint.ReadPart(o.model, checkpoint.Options{Generic: true})
		if err != nil {
			return nil, err
		}
		same = &generic.Architecture
	}
	if err := checkSameArchitecture(o, same, &pruned.Architecture); err != nil {
		return nil, err
	}
	b, err := measure.Open(o.dataset, o.split, o.loss, m)
	if err != nil {
		return nil, err
	}
	if err := checkBoundsOf(b.Loss, given); err != nil {
		return nil, err
	}
	if err := b.Dataset.CheckNames(ck.Fields); err != nil {
		return nil, err
	}
	all, err := predictAll(ctx, b, []*model.Model{m, pruned})
	if err != nil {
		return nil, err
	}
	if b.Loss != loss.Squared && all[0].OneKind() {
		return nil, fault.Inputf("dataset %s: all %d rows of split %s have the label %v, so the AUC is undefined: expected both labels", joined(o.dataset), b.Rows, o.split, all[0].Labels[0])
	}
	d := gate.Decide(o.bounds, all[0], all[1])
	d.Model, d.Pruned, d.Dataset, d.Split = ck.Digest(), prunedCk.Digest(), b.Dataset.Digest(), o.split
	return d, nil
}

// checkSameArchitecture returns a bad-input error unless the pruned model has the
// architecture of the model. Their weights may differ, because a calibration changes them.
func checkSameArchitecture(o *checkInput, a, pruned *model.Architecture) error {
	text := func(a *model.Architecture) []byte {
		data, err := json.Marshal(a)
		if err != nil {
			panic(err) // an architecture has only numbers and strings
		}
		return data
	}
	if bytes.Equal(text(a), text(pruned)) {
		return nil
	}
	if a.Kind == pruned.Kind && a.Size() == pruned.Size() {
		return fault.Inputf("%s was not pruned from %s: their fields or hidden layers have other sizes (shaver model inspect)", o.pruned, o.model)
	}
	return fault.Inputf("%s was not pruned from %s: it has the kind %s and %s, expected the kind %s and %s", o.pruned, o.model, pruned.Kind, pruned.Size(), a.Kind, a.Size())
}

// checkTable writes the metrics of both models, and the verdict.
func checkTable(w io.Writer, d *gate.Document) {
	fmt.Fprintf(w, "%s\t%d rows\n\n", d.Split, d.Rows)
	fmt.Fprint(w, "\tMODEL\tPRUNED\tDIFFERENCE\t95% INTERVAL\tALLOWED\t\n")
	line := func(name, sign string, m *gate.Metric) {
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
	if d.RMSE != nil {
		line("RMSE", "+", d.RMSE)
	} else {
		line("AUC", "-", d.AUC)
		line("LogLoss", "+", d.LogLoss)
	}
	fmt.Fprintf(w, "\n%s\n", d.Reason)
}
