package steps

import (
	"context"
	"fmt"
	"math"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/slice"
	"shaver/internal/value/mask"
)

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
