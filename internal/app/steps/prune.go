package steps

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"shaver/internal/app/cli"
	"shaver/internal/app/training"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/data/dataset"
	"shaver/internal/num/loss"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/slice"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

// Prune says how the step prune prunes a model. The budget is Budget, or else that of Sparsity, Parameters and Bytes which was
// given. Run logs nothing if Warn is nil.
type Prune struct {
	cut.Options
	Sparsity          float64
	Parameters, Bytes int64
	Values            string        // encoding of the kept entries, or sweep.AutoValues
	Slicing           slice.Options // what is removed before entries are, or in their place
	Outputs           cli.Outputs
	Given             cli.Given
}

// NewPrune returns the defaults of the step.
func NewPrune() *Prune {
	return &Prune{
		Options: cut.Options{Rank: mask.Abs, Rounding: cut.DefaultRounding, Hysteresis: 1, Name: func(setting string) string { return "--" + setting }, Warn: cli.Warn},
		Values:  string(compact.Float32),
	}
}

// Pruning says what the step prune wrote.
type Pruning struct {
	*cut.Choice
	Calibration *loss.Calibration `json:"calibration,omitempty"`
	Tuned       *training.Result  `json:"tuned,omitempty"` // with --tune
	cut.Sizes
	Removed []string      `json:"removed,omitempty"` // names of fields, with --max-rise
	Path    []slice.Step  `json:"path,omitempty"`
	Beyond  []slice.Step  `json:"beyond,omitempty"`
	Stages  []slice.Stage `json:"stages,omitempty"`
}

// Check checks the options before any file is read, and sets the budget.
func (o *Prune) Check() error {
	switch {
	case !(o.Sparsity >= 0 && o.Sparsity <= 1):
		return fault.Refuse(mask.Sparsity, o.Sparsity, "expected a number from 0 to 1")
	case o.Given.Has(mask.Bytes) && o.Bytes < 1:
		return fault.Refuse(mask.Bytes, o.Bytes, "expected a whole number, at least 1")
	case !(o.Keep.Minimum >= 0 && o.Keep.Minimum <= 1):
		return fault.Refuse("field-minimum", o.Keep.Minimum, "expected a number from 0 to 1")
	case !(o.Hysteresis >= 0) || math.IsInf(o.Hysteresis, 0):
		return fault.Refuse("hysteresis", o.Hysteresis, "expected a finite number of at least 0")
	}
	var given []mask.Budget
	if o.Budget != nil {
		given = append(given, *o.Budget)
	}
	for _, b := range []mask.Budget{{Unit: mask.Sparsity, Amount: o.Sparsity}, {Unit: mask.Kept, Amount: float64(o.Parameters)}, {Unit: mask.Bytes, Amount: float64(o.Bytes)}} {
		if o.Given.Has(b.Unit) {
			given = append(given, b)
		}
	}
	switch {
	case o.Scores == "":
		for _, name := range []string{"from", mask.Sparsity, mask.Kept, mask.Bytes, "aggregate", "rank", "protect", "field-minimum", "hysteresis"} {
			if o.Given.Has(name) {
				return fault.Usagef("--previous without --scores keeps all choices of that file, so --%s has no effect: give --scores, or leave it out", name)
			}
		}
	case o.From != "":
		for _, name := range []string{mask.Bytes, "aggregate", "rank", "protect", "field-minimum", "values"} {
			if o.Given.Has(name) {
				return fault.Usagef("--from already sets --%s: leave one of them out", name)
			}
		}
		if len(given) > 1 {
			return fault.Usagef("--sparsity and --parameters both name a budget of --from: give only one")
		}
	case o.bounded() && len(given) > 0:
		return fault.Usagef("--%s and --max-rise both name a budget: give only one", given[0].Unit)
	case o.bounded():
	case len(given) > 1:
		return fault.Usagef("--sparsity, --parameters and --bytes are one budget: give only one of them")
	case len(given) == 0:
		return fault.Usagef("shaver prune needs one of --sparsity, --parameters, --bytes and --max-rise, or --from")
	}
	if err := CheckForm(o.Given, &o.Form, o.Values, o.Out, sweep.AutoValues); err != nil {
		return err
	}
	auto := o.Values == sweep.AutoValues
	if auto {
		o.Form.Values = compact.Mixed
	}
	switch {
	case auto && len(o.Dataset) == 0:
		return fault.Usagef("--values auto chooses the bits by the loss on the rows of --dataset: give it")
	case auto && o.Previous != "":
		return fault.Usagef("--values auto and --previous exclude each other: the number of kept entries depends on the bits")
	case auto && o.Tune:
		return fault.Usagef("--values auto and --tune exclude each other: training changes the values after their rounding")
	case !auto && o.Given.Has("rounding"):
		return fault.Usagef("--rounding has no effect without --values auto")
	}
	switch {
	case o.Given.Has("previous") && o.Previous == "":
		return fault.Usagef(`--previous "": expected the name of a file`)
	case o.Previous == "" && o.Given.Has("hysteresis"):
		return fault.Usagef("--hysteresis has no effect without --previous")
	case o.Form.Dense && o.Given.Has("bytes"):
		return fault.Usagef("--bytes is a budget for the compact file; a dense file is as large as the model")
	case checkpoint.NamedONNX(o.Out) && o.Given.Has("bytes"):
		return fault.Usagef("--bytes is a budget for the compact safetensors file: give --sparsity or --parameters for an .onnx file")
	}
	if o.Calibrate && len(o.Dataset) == 0 {
		return fault.Usagef("--calibrate needs --dataset")
	}
	switch {
	case o.Tune && len(o.Dataset) == 0:
		return fault.Usagef("--tune needs --dataset")
	case o.Tune && (o.Form.Dense || checkpoint.NamedONNX(o.Out)):
		return fault.Usagef("--tune writes a compact file: expected --out with another extension than .onnx, and no --dense")
	case o.Tune && o.Calibrate:
		return fault.Usagef("--tune and --calibrate exclude each other: training changes the scale and the offset of the logits anyway")
	case !o.Calibrate && !o.Tune && !auto && o.From == "" && !o.bounded() && o.Scores != "" && o.Given.Has("dataset"):
		return fault.Usagef("--dataset has no effect without --calibrate, --tune, --values auto, --from or --max-rise")
	}
	if given != nil {
		o.Budget = &given[0]
	}
	if o.bounded() {
		return o.checkBound()
	}
	return nil
}

// Run prunes the model and writes it to Out.
func (o *Prune) Run(ctx context.Context) (r *Pruning, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o.Outputs.Inputs(checkpoint.Files(o.Model)...)
	o.Outputs.Inputs(o.Scores, o.From)
	if o.Previous != "" {
		o.Outputs.Inputs(checkpoint.Files(o.Previous)...)
	}
	if len(o.Dataset) > 0 {
		o.Outputs.Inputs(dataset.Files(o.Dataset...)...)
	}
	if err := o.checkPath(); err != nil {
		return nil, err
	}
	if err := CheckModelOutput(&o.Outputs, "--out", o.Out, o.Model); err != nil {
		return nil, err
	}
	r = &Pruning{}
	begin, end := progress("calibrate")
	defer end()
	if o.bounded() {
		if err := o.slicedFirst(ctx, r); err != nil {
			return nil, err
		}
	}
	if r.Choice, err = o.Choose(ctx); err != nil {
		return nil, err
	}
	if err := o.checkReplaced(r.Model()); err != nil {
		return nil, err
	}
	if r.Calibration, err = r.Choice.Calibration(ctx, begin); err != nil {
		return nil, err
	}
	if o.Tune {
		err = o.writeTuned(ctx, r)
	} else {
		r.Sizes, err = r.Write(o.Out, r.Calibration)
	}
	if err != nil {
		return nil, err
	}
	if r.Bounded != nil {
		r.addStages(o.Form.Values)
	}
	if o.Warn == nil {
		return r, nil
	}
	cli.Note(r.Unknown)
	if r.Uncalibrated != "" {
		cli.Log().Info(o.Scores + ": " + r.Uncalibrated)
	}
	return r, nil
}

// checkReplaced checks that the file at --out, if there is one, was pruned from the model with the
// digest. Files of earlier versions do not say from which model they were pruned.
func (o *Prune) checkReplaced(model string) error {
	if checkpoint.NamedONNX(o.Out) {
		return nil // only --force replaces one
	}
	return o.Outputs.Check("--out", o.Out, func(path string) string {
		origins, pruned := checkpoint.OriginsOf(path)
		switch {
		case !pruned:
			return "is not a model that shaver prune wrote"
		case origins != nil && origins[len(origins)-1] != model:
			return fmt.Sprintf("was pruned from another model, with the digest %.12s", origins[len(origins)-1])
		}
		return ""
	})
}

// writeTuned writes the model that "prune --tune" prunes and tunes. The pruned model is in a
// hidden file next to --out while the command runs. If the command is interrupted, it writes the same
// file again and continues the training.
func (o *Prune) writeTuned(ctx context.Context, r *Pruning) (err error) {
	hidden := filepath.Join(filepath.Dir(o.Out), "."+filepath.Base(o.Out)+".pruned")
	defer atomicfile.Track(hidden).Remove()
	if r.Sizes, err = r.Write(hidden, nil); err != nil {
		return err
	}
	t, err := (&training.Options{Settings: training.DefaultTuning(), Out: o.Out, Folders: o.Dataset, Outputs: o.Outputs, Replace: true, Warn: o.Warn}).Tuning(hidden)
	if err != nil {
		return err
	}
	if err := t.NeedValidation("--tune chooses"); err != nil {
		return err
	}
	if r.Tuned, err = t.Train(ctx); err != nil {
		return err
	}
	info, err := os.Stat(o.Out)
	if err != nil {
		return err
	}
	r.Bytes = info.Size()
	return nil
}
