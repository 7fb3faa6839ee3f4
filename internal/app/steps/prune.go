package steps

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shaver/internal/app/cli"
	"shaver/internal/app/training"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/modelfile"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
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

// entrySettings are the settings of prune that choose entries or store those that are kept.
var entrySettings = []string{
	"scores", "from", "previous", mask.Sparsity, mask.Kept, mask.Bytes, "aggregate", "rank", "protect", "field-minimum",
	"hysteresis", "values", "rounding", "dense", "compact-onnx", "calibrate", "tune",
}

// SliceSettings are the settings of prune that remove fields and columns.
var SliceSettings = []string{"drop-fields", "fields", "columns", "path", "max-rise"}

// Slice removes fields and columns only, and writes the model to Out.
func (o *Prune) Slice(ctx context.Context) (*slice.Result, error) {
	for _, name := range entrySettings {
		if o.Given.Has(name) {
			return nil, fault.Usagef("--%s has no effect with --drop-fields, --fields and --columns, which remove whole fields and columns: prune the entries of what is left in a second step, or give --scores and --max-rise", name)
		}
	}
	if err := o.checkSlice(); err != nil {
		return nil, err
	}
	o.Outputs.Inputs(checkpoint.Files(o.Model)...)
	o.Outputs.Inputs(dataset.Files(o.Dataset...)...)
	if err := o.checkPath(); err != nil {
		return nil, err
	}
	if err := CheckModelOutput(&o.Outputs, "--out", o.Out, o.Model); err != nil {
		return nil, err
	}
	s := o.sliceOptions()
	s.Warn = o.Warn
	r, err := s.Write(ctx)
	if err != nil {
		return nil, err
	}
	cli.Note(r.Unknown)
	if len(r.Path) == 0 && len(r.Beyond) > 0 {
		first := &r.Beyond[0]
		o.Warn(fmt.Sprintf("no field and no column goes within --max-rise %v, because without %s the rise is %v: allow more, give more validation rows, which narrow the interval, or --scores, by which entries go", s.MostRise, first.Text(), first.Rise))
	}
	return r, nil
}

// checkSlice checks the flags that say what is removed.
func (o *Prune) checkSlice() error {
	s := &o.Slicing
	for name, number := range map[string]int{"fields": s.KeepFields, "columns": s.KeepColumns} {
		switch {
		case !o.Given.Has(name):
		case number < 1:
			return fault.Usagef("--%s %d: expected at least 1", name, number)
		case len(o.Dataset) == 0:
			return fault.Usagef("--%s chooses by the loss on the validation split of --dataset: give it", name)
		}
	}
	bounds := o.Given.Has("max-rise")
	switch {
	case bounds && !(s.MostRise > 0 && s.MostRise <= math.MaxFloat64):
		return fault.Usagef("--max-rise %v: expected a finite number above 0", s.MostRise)
	case bounds && len(o.Dataset) == 0:
		return fault.Usagef("--max-rise bounds the loss on the validation split of --dataset: give it")
	case o.Given.Has("path") && !bounds && !o.Given.Has("fields") && !o.Given.Has("columns"):
		return fault.Usagef("--path keeps the path of --fields, --columns and --max-rise: give one of them")
	}
	return nil
}

// checkPath checks that the command may write --path, which it also reads.
func (o *Prune) checkPath() error {
	if !o.Given.Has("path") {
		return nil
	}
	if err := o.Outputs.Check("--path", o.Slicing.Path, cli.Unless(slice.Written, "a path"), ".json"); err != nil {
		return err
	}
	o.Outputs.Inputs(o.Slicing.Path)
	return nil
}

// sliceOptions returns the options of what is removed.
func (o *Prune) sliceOptions() *slice.Options {
	s := &o.Slicing
	s.Model, s.ModelOutput, s.Dataset, s.Out, s.Rows, s.Restart = o.Model, o.ModelOutput, o.Dataset, o.Out, slice.Rows, o.Outputs.Force
	return s
}

// bounded reports whether the loss bounds everything that is removed: fields, columns, entries and bits.
func (o *Prune) bounded() bool {
	return o.Given.Has("max-rise") && o.Given.Has("scores")
}

// checkBound checks the flags of a bound on everything.
func (o *Prune) checkBound() error {
	for _, name := range []string{"from", "previous"} {
		if o.Given.Has(name) {
			return fault.Usagef("--%s and --max-rise both decide which entries stay: give only one", name)
		}
	}
	if checkpoint.NamedONNX(o.Out) {
		return fault.Usagef("--max-rise writes a safetensors file: expected --out with another extension than .onnx")
	}
	return o.checkSlice()
}

// slicedFirst chooses the fields and columns that go within the bound, before entries are chosen.
func (o *Prune) slicedFirst(ctx context.Context, r *Pruning) error {
	s, most := o.sliceOptions(), o.Slicing.MostRise
	if o.Form.Values == compact.Mixed {
		o.Rounding = min(o.Rounding, most/10)
		s.MostRise -= 2 * o.Rounding // what the network and the tables may take
	}
	s.Warn = o.Warn
	if head, err := scores.ReadHead(o.Scores); err != nil {
		return err
	} else if len(head.Spec.Freeze) > 0 { // they keep their columns
		return fault.Usagef("--max-rise removes fields and columns first, but the scores of %s freeze fields: give --sparsity, --parameters or --bytes", o.Scores)
	}
	first, err := s.Choose(ctx)
	if err != nil {
		return err
	}
	cli.Note(first.Unknown)
	o.Bound = &cut.Bound{Most: most, Kept: first.Kept, Compared: first.Compared}
	r.Removed, r.Path, r.Beyond, r.Stages = first.Removed, first.Path, first.Beyond, first.Stages
	return nil
}

// Names of the stages that addStages adds.
const (
	EntriesStage = "entries"
	BitsStage    = "bits"
)

// addStages adds what the entries and the bits saved.
func (r *Pruning) addStages(values compact.Encoding) {
	entries := slice.Stage{Without: EntriesStage, Rise: r.Bounded.Entries, Cost: r.Stages[len(r.Stages)-1].Cost}
	entries.Entries, entries.Bytes = r.Kept, r.Bytes
	if values != compact.Mixed {
		r.Stages = append(r.Stages, entries)
		return
	}
	entries.Bytes = r.Bounded.Bytes
	bits := slice.Stage{Without: BitsStage, Rise: r.Bounded.Rise, Cost: entries.Cost}
	bits.Bytes = r.Bytes
	r.Stages = append(r.Stages, entries, bits)
}

// CheckForm checks the settings of a model that is written to path, and sets the encoding of f. values may also be one of
// the others, for which the caller sets the encoding.
func CheckForm(given cli.Given, f *cut.Form, values, path string, others ...string) error {
	onnx := checkpoint.NamedONNX(path)
	switch {
	case modelfile.Named(path) && (f.Dense || given.Has("values")):
		return fault.Usagef("--dense and --values are for safetensors files; a %s file has every entry as float32", modelfile.Extension)
	case onnx && f.Dense:
		return fault.Usagef("--dense is for safetensors files; an .onnx file is dense without --compact-onnx")
	case onnx && given.Has("values"):
		return fault.Usagef("--values is for the compact safetensors file; an .onnx file keeps the types of its tables")
	case !onnx && f.CompactONNX:
		return fault.Usagef("--compact-onnx is for .onnx files, and %s is not one", path)
	}
	if f.Values = compact.Encoding(values); f.Values.Size() == 0 && !slices.Contains(others, values) {
		return fault.Refuse("values", values, "expected one of "+strings.Join(append(compact.EncodingNames(), others...), ", "))
	}
	if f.Dense && given.Has("values") {
		return fault.Usagef("--values is for the compact file; a dense file has float32")
	}
	return nil
}

// CheckModelOutput checks that the command may write the model of the file in, perhaps with
// pruned tables, to path, which the user gave as flag. An .onnx file need not say that shaver
// wrote it, so only --force replaces one.
func CheckModelOutput(outputs *cli.Outputs, flag, path, in string) error {
	if !checkpoint.NamedONNX(path) {
		return outputs.Check(flag, path, cli.Unless(checkpoint.Written, "a model"), ".safetensors")
	}
	if !checkpoint.IsONNX(in) {
		advice := ""
		if _, pruned := checkpoint.OriginsOf(in); pruned {
			advice = fmt.Sprintf(", or if it was pruned from one, shaver prune --out %s of that file", path)
		}
		return fault.Usagef("%s is %s, but %s is not an .onnx file: an .onnx file is written from an .onnx file only; expected another extension%s", flag, path, in, advice)
	}
	files, err := checkpoint.ONNXFiles(path, in)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := outputs.Check(flag, file, cli.Any); err != nil {
			return err
		}
	}
	return nil
}
