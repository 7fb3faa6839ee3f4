// Package steps has the steps from scores to a published model as functions over options that check themselves. Commands bind
// flags to the options, and nights the keys of their configuration.
package steps

import (
	"context"
	"io"

	"shaver/internal/app/cli"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/num/loss"
	"shaver/internal/prune/gate"
)

// Check says what the step check compares.
type Check struct {
	gate.Check
	Out     string // file for the result, or ""
	Outputs cli.Outputs
	Given   cli.Given
}

// NewCheck returns the defaults of a check.
func NewCheck() *Check {
	return &Check{Check: gate.Check{Split: dataset.Test, Bounds: gate.DefaultBounds}}
}

// Run checks a pruned model and writes the result to Out. A model that fails is not an error; see Verdict.
func (o *Check) Run(ctx context.Context) (*gate.Document, error) {
	if err := o.Bounds.Check(); err != nil {
		return nil, err
	}
	if o.Out != "" || o.Given.Has("out") {
		o.Outputs.Inputs(checkpoint.Files(o.Model)...)
		o.Outputs.Inputs(checkpoint.Files(o.Pruned)...)
		o.Outputs.Inputs(dataset.Files(o.Folders...)...)
		if err := o.Outputs.Check("--out", o.Out, cli.Unless(gate.Written, "the result of a check"), ".json"); err != nil {
			return nil, err
		}
	}
	begin, end := progress("evaluate")
	defer end()
	o.Begin, o.Accept, o.Note, o.Warn = begin, o.accept, cli.Note, cli.Warn
	d, err := o.Check.Run(ctx)
	if err != nil || o.Out == "" {
		return d, err
	}
	return d, atomicfile.Write(o.Out, func(w io.Writer) error { return cli.WriteJSON(w, d) })
}

// accept returns a usage error for a bound that was given but is not one of the loss.
func (o *Check) accept(kind loss.Kind) error {
	for _, name := range []string{"max-auc-drop", "max-logloss-rise", "max-rmse-rise"} {
		if o.Given.Has(name) && (name == "max-rmse-rise") != (kind == loss.Squared) {
			return fault.Usagef("--%s does not go with the loss %s", name, kind.Name())
		}
	}
	return nil
}

// Measure returns the model in a file and its predictions of a split.
func Measure(ctx context.Context, file string, folders []string, split string) (*checkpoint.Checkpoint, *evaluate.Predictions, error) {
	ck, m, err := checkpoint.ReadModel(file, "")
	if err != nil {
		return nil, nil, err
	}
	b, err := measure.Open(folders, split, "", m, ck.Known())
	if err != nil {
		return nil, nil, err
	}
	found, err := b.Predict(ctx, m, nil)
	return ck, found, err
}

// progress returns what shows the progress of a step over rows, and what ends that.
func progress(what string) (begin func(rows int64) func(rows int), end func()) {
	var p *cli.Progress
	begin = func(rows int64) func(int) {
		p = cli.NewProgress(what, "rows", rows)
		return func(rows int) { p.Add(int64(rows)) }
	}
	return begin, func() {
		if p != nil {
			p.End()
		}
	}
}
