package steps

import (
	"context"
	"io"

	"shaver/internal/app/cli"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
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
