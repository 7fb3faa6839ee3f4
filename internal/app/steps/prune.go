package steps

import (
	"cmp"
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
	"shaver/internal/click/model"
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
	Layers            []float64 // sparsities of models that share the file
	Values            string    // encoding of the kept entries, or sweep.AutoValues
	Outputs           cli.Outputs
	Given             cli.Given
}

// NewPrune returns the defaults of the step.
func NewPrune() *Prune {
	return &Prune{
		Options: cut.Options{Rank: mask.Abs, Hysteresis: 1, Name: func(setting string) string { return "--" + setting }, Warn: cli.Warn},
		Values:  string(compact.Float32),
	}
}

// Pruning says what the step prune wrote.
type Pruning struct {
	*cut.Choice
	Calibration *loss.Calibration  `json:"calibration,omitempty"`
	Tuned       *training.Result   `json:"tuned,omitempty"`  // with --tune
	Layers      []checkpoint.Layer `json:"layers,omitempty"` // with --layers, of which the rest describes the last one
	cut.Sizes
}

// Settings of prune that take a file of scores: those that choose entries, and those of the form in which they are stored.
var (
	entrySettings = []string{mask.Sparsity, mask.Kept, mask.Bytes, "aggregate", "protect", "field-minimum", "table-budget", "hysteresis"}
	formSettings  = []string{"values", "dense", "calibrate", "tune"}
)

// SliceSettings are the settings of prune that remove fields and columns.
var SliceSettings = []string{"drop-fields", "fields", "columns", "max-rise"}

// first returns the first of the settings that is given, or "".
func (o *Prune) first(settings ...string) string {
	if i := slices.IndexFunc(settings, o.Given.Has); i >= 0 {
		return settings[i]
	}
	return ""
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
	case o.Given.Has("max-rise") && !(o.MostRise > 0 && o.MostRise <= math.MaxFloat64):
		return fault.Refuse("max-rise", o.MostRise, "expected a finite number above 0")
	case o.Given.Has("fields") && o.KeepFields < 1:
		return fault.Refuse("fields", o.KeepFields, "expected at least 1")
	case o.Given.Has("columns") && o.KeepColumns < 1:
		return fault.Refuse("columns", o.KeepColumns, "expected at least 1")
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
	if err := CheckForm(o.Given, &o.Form, o.Values, o.Out, sweep.AutoValues); err != nil {
		return err
	}
	if len(o.Layers) > 0 {
		if err := o.checkLayers(); err != nil {
			return err
		}
		given = append(given, mask.Budget{Unit: mask.Sparsity, Amount: o.Layers[0]})
	}
	auto, rows, onnx, scored := o.Values == sweep.AutoValues, len(o.Dataset) > 0, checkpoint.NamedONNX(o.Out), o.Scores != ""
	if auto {
		o.Form.Values = compact.Mixed
	}
	bounded, slicing := scored && o.MostRise > 0, o.Slices()
	unread, unit, measured := "", "", o.first("fields", "columns", "max-rise")
	if len(given) > 0 {
		unit = given[0].Unit
	}
	switch {
	case !scored && o.Previous != "":
		unread = o.first(entrySettings...)
	case !scored:
		unread = o.first(slices.Concat(entrySettings, formSettings)...)
	}
	for _, c := range []struct {
		wrong bool
		text  string
	}{
		{unread != "", fmt.Sprintf("--%s has no effect without --scores, by which entries go: give --scores, or leave it out", unread)},
		{slicing && o.Given.Has("previous"), fmt.Sprintf("--previous and --%s both decide what stays: give only one", o.first(SliceSettings...))},
		{bounded && unit != "", fmt.Sprintf("--%s and --max-rise both name a budget: give only one", unit)},
		{len(given) > 1, "--sparsity, --parameters, --bytes and --layers are one budget: give only one of them"},
		{unit == "" && scored && !bounded, "shaver prune needs one of --sparsity, --parameters, --bytes, --max-rise and --layers"},
		{o.Layers != nil && (!scored || onnx || modelfile.Named(o.Out)), "--layers needs --scores, by which entries go, and --out with the extension .safetensors"},
		{slicing && scored && onnx, "fields and columns go together with entries in a safetensors file: expected --out with another extension than .onnx"},
		{measured != "" && !rows, fmt.Sprintf("--%s chooses by the loss on the validation split of --dataset: give it", measured)},
		{auto && !rows, "--values auto chooses the bits by the loss on the rows of --dataset: give it"},
		{auto && o.Form.Dense, "--values auto is for the compact file"},
		{auto && o.Previous != "", "--values auto and --previous exclude each other: the number of kept entries depends on the bits"},
		{auto && o.Tune, "--values auto and --tune exclude each other: training changes the values after their rounding"},
		{o.Given.Has("previous") && o.Previous == "", `--previous "": expected the name of a file`},
		{o.Previous == "" && o.Given.Has("hysteresis"), "--hysteresis has no effect without --previous"},
		{o.Form.Dense && o.Given.Has(mask.Bytes), "--bytes is a budget for the compact file; a dense file is as large as the model"},
		{o.Calibrate && !rows, "--calibrate needs --dataset"},
		{o.Tune && !rows, "--tune needs --dataset"},
		{o.Tune && (o.Form.Dense || onnx), "--tune writes a compact file: expected --out with another extension than .onnx, and no --dense"},
		{o.Tune && o.Calibrate, "--tune and --calibrate exclude each other: training changes the scale and the offset of the logits anyway"},
		{scored && o.Given.Has("dataset") && !o.Calibrate && !o.Tune && !auto && !slicing, "--dataset has no effect without --calibrate, --tune, --values auto, or what removes fields and columns"},
	} {
		if c.wrong {
			return fault.Usagef("%s", c.text)
		}
	}
	if given != nil {
		o.Budget = &given[0]
	}
	return nil
}

// checkLayers checks Layers, and sorts them from the smallest model to the largest.
func (o *Prune) checkLayers() error {
	slices.SortFunc(o.Layers, func(a, b float64) int { return cmp.Compare(b, a) })
	for i, s := range o.Layers {
		if !(s >= 0 && s <= 1) || i > 0 && s == o.Layers[i-1] || i == compact.MaxLayers {
			return fault.Refuse("layers", s, fmt.Sprintf("expected at most %d different numbers from 0 to 1", compact.MaxLayers))
		}
	}
	if name := o.first(append(SliceSettings, "dense", "tune", "previous")...); name != "" {
		return fault.Usagef("--layers and --%s exclude each other: each model of a file only adds entries to the one before, and differs in nothing else but its calibration", name)
	}
	if v := compact.Encoding(o.Values); !compact.LayersOf(v) {
		return fault.Usagef("--layers and --values %s exclude each other: the models share their values, which %s rounds by what else is kept; expected %s or %s", v, v, compact.Float32, compact.Float16)
	}
	return nil
}

// choose prunes the model and calibrates it, but writes nothing.
func (o *Prune) choose(ctx context.Context, r *Pruning) (err error) {
	if r.Choice, err = o.Choose(ctx); err != nil {
		return err
	}
	if err := o.checkReplaced(r.Model()); err != nil {
		return err
	}
	if o.Calibrate {
		progress := cli.NewProgress("calibrate", "rows", 0)
		r.Calibration, err = r.Choice.Calibration(ctx, progress.SetOf)
		progress.End()
	}
	return err
}

// Run prunes the model and writes it to Out.
func (o *Prune) Run(ctx context.Context) (r *Pruning, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o.Outputs.Inputs(checkpoint.Files(o.Model)...)
	o.Outputs.Inputs(o.Scores)
	if o.Previous != "" {
		o.Outputs.Inputs(checkpoint.Files(o.Previous)...)
	}
	if len(o.Dataset) > 0 {
		o.Outputs.Inputs(dataset.Files(o.Dataset...)...)
	}
	if err := CheckModelOutput(&o.Outputs, "--out", o.Out, o.Model); err != nil {
		return nil, err
	}
	if o.KeepFields > 0 || o.KeepColumns > 0 || o.MostRise > 0 {
		o.Path = checkpoint.PathFile(o.Out)
		if err := o.Outputs.Check("--out", o.Path, cli.Unless(slice.Written, "a path"), ".json"); err != nil {
			return nil, err
		}
	}
	r = &Pruning{}
	var layers cut.Layers
	for _, s := range o.Layers {
		o.Budget = &mask.Budget{Unit: mask.Sparsity, Amount: s}
		if err := o.choose(ctx, r); err != nil {
			return nil, err
		}
		layers.Add(r.Choice, r.Calibration)
	}
	if o.Layers == nil {
		err = o.choose(ctx, r)
	}
	switch {
	case err != nil:
	case o.Layers != nil:
		r.Sizes, err = layers.Write(o.Out, r.Choice)
		r.Layers = layers.All
	case o.Tune:
		err = o.writeTuned(ctx, r)
	default:
		r.Sizes, err = r.Write(o.Out, r.Calibration)
	}
	if err != nil {
		return nil, err
	}
	if o.Warn == nil {
		return r, nil
	}
	cli.Note(r.Unknown)
	if r.Uncalibrated != "" {
		cli.Log().Info(o.Scores + ": " + r.Uncalibrated)
	}
	if r.Sliced != nil && len(r.Path) == 0 && len(r.Beyond) > 0 {
		first := &r.Beyond[0]
		o.Warn(fmt.Sprintf("no field and no column goes within --max-rise %v, because without %s the rise is %v: allow more, give more validation rows, which narrow the interval, or --scores, by which entries go", o.MostRise, first.Text(), first.Rise))
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
	if head, err := scores.ReadHead(o.Scores); err == nil && head.Spec.Tasks != nil {
		return fault.Usagef("--tune trains by the first label, and the scores are those of %s: tune in your framework", model.TasksText(head.Spec.Tasks))
	}
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

// CheckForm checks the settings of a model that is written to path, and sets f. An .onnx file has every entry, unless dense is
// given as false, or values or a budget in bytes are given. values may also be one of the others, for which the caller sets the encoding.
func CheckForm(given cli.Given, f *cut.Form, values, path string, others ...string) error {
	if checkpoint.NamedONNX(path) && (given.Has("dense") || given.Has("values") || given.Has(mask.Bytes)) {
		f.CompactONNX = !f.Dense
	}
	switch {
	case modelfile.Named(path) && (f.Dense || given.Has("values")):
		return fault.Usagef("--dense and --values are for safetensors files; a %s file has every entry as float32", modelfile.Extension)
	case f.Dense && given.Has("values"):
		return fault.Usagef("--values is for the compact file; a dense file has float32")
	}
	if f.Values = compact.Encoding(values); f.Values.Size() == 0 && !slices.Contains(others, values) {
		return fault.Refuse("values", values, "expected one of "+strings.Join(append(compact.EncodingNames(), others...), ", "))
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
